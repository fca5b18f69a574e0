"""Chunks as places in a text: (start, stop, type) in characters, to labels of tokens and back; three formats.

A tokeniser of yours cuts a text: a function that returns tokens, or their places (start, stop), or a sequence
of these for each sentence. Tokens are found in the text from left to right. A chunk whose ends are not ends
of tokens is misaligned: no labels say it, so you say what becomes of it.

brat: a text file and standoff annotations beside it (brat.nlplab.org/standoff.html). doccano: a JSON object
a line. spaCy: a `Doc`, which is used as it is, so spaCy itself is not imported.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from operator import index
from typing import Any, NamedTuple

from crfbook._checks import File, file_name, one_of, shown, unexpected
from crfbook.data.columns import TokenColumns, tokenize
from crfbook.data.readers import decoded, filled_lines, read_source, write_text
from crfbook.evaluation.schemes import Reading, chunk_lists, reading_of, scheme_named, warn_joined

Span = tuple[int, int, str]
Tokenizer = Callable[[str], Iterable[Any]]
_AROUND = 20  # characters shown on each side of a span
_FIRST = 3  # misaligned spans that a message shows


class Document(NamedTuple):
    """A text and its chunks; tokens, where they are known: places (start, stop), a list for each sentence."""

    text: str
    spans: list[Span] = []
    tokens: list[list[tuple[int, int]]] | None = None


def token_places(text: str, tokens: Iterable[Any]) -> list[list[tuple[int, int]]]:
    """Places (start, stop) of the tokens of each sentence; what a tokeniser may return is said above.

    Raises ValueError for a token that does not follow in the text, and for places that overlap or leave it.
    """
    rows = list(tokens)
    alone = [isinstance(row, str) or not hasattr(row, "__iter__") or _is_place(row) for row in rows]
    found, at = [], 0
    for row in rows if rows and not any(alone) else [rows]:
        places = []
        for token in row:
            start = text.find(token, at) if isinstance(token, str) else 0
            place = (start, start + len(token)) if isinstance(token, str) else token
            try:
                start, stop = map(_offset, place)
            except (TypeError, ValueError):
                wanted = "strings, places (start, stop) as integers, or sequences of these"
                raise unexpected("tokens", wanted, shown(token)) from None
            if not at <= start < stop <= len(text):
                raise ValueError(f"tokens: expected {shown(token)} after {_around(text, at, at)}, found none")
            places.append((start, stop))
            at = stop
        found.append(places)
    return found


def columns_from_spans(
    documents: Iterable[Any], tokenizer: Tokenizer | None = None, scheme: str = "BIO", *,
    misaligned: str = "raise", column: str = "word", label: str = "label",
) -> TokenColumns:  # fmt: skip
    """`TokenColumns` of documents: a column of tokens, and their labels.

    documents : `Document`s, or pairs (text, spans) with spans (start, stop, type) in characters.
    tokenizer : see above; None: the document's own tokens, or `tokenize` for English.
    scheme : in which labels are written.
    misaligned : of spans whose ends are not ends of tokens, or which go beyond a sentence. "raise":
        ValueError. Others warn: "expand": all tokens that they touch are labelled; "drop": none; "mask":
        these have None. White space at their ends does not matter. A token that two spans touch belongs to
        the first; the other has no labels in this sentence, and the warning says so.
    column, label : names of both.

    A message shows spans with the text around them. Raises ValueError for spans that overlap or leave the
    text.
    """
    written = scheme_named(scheme)
    one_of("misaligned", misaligned, ("raise", "expand", "drop", "mask"))
    rows: list[Any] = []
    lost: list[tuple[int, int]] = []
    labels, wrong, behind, join = [], [], {}, Reading(written).join
    for d, document in enumerate(documents):
        text, spans, places = _cut(document, tokenizer)
        spans = _checked(text, spans, f"document {d}")
        heads, tails = ([span[side] for span in spans] for side in (0, 1))  # both rise
        fits: set[Span] = set()
        for row in places:
            starts, stops = ([place[side] for place in row] for side in (0, 1))
            here = slice(bisect_right(tails, starts[0]), bisect_left(heads, stops[-1])) if row else slice(0)
            chunks: list[Any] = []
            masked: set[int] = set()
            for span in spans[here]:
                first, last = bisect_right(stops, span[0]), bisect_left(starts, span[1])
                if first < last and (starts[first], stops[last - 1]) == _stripped(text, *span[:2]):
                    fits.add(span)
                elif misaligned != "expand":
                    masked.update(range(first, last) if misaligned == "mask" else ())
                    continue
                if chunks and first < chunks[-1][2]:
                    behind[d, span] = f" (without labels: {_named(chunks[-1][0])} has a token of it)"
                elif first < last:
                    chunks.append((span, first, last))
            parts, touching = written.write([(span[2], a, b) for span, a, b in chunks], len(row))
            lost += [(len(rows), t) for t in touching]
            labels += [None if t in masked else join(*part) for t, part in enumerate(parts)]
            rows.append([(text[a:b],) for a, b in row])
        wrong += [(d, span, text) for span in spans if span not in fits]
    if wrong:
        wrong.sort(key=lambda one: one[:2] not in behind)
        some = [
            f"document {d}, {_named(span)}: {_around(text, *span[:2])}{behind.get((d, span), '')}"
            for d, span, text in wrong[:_FIRST]
        ]
        some += [f"and {len(wrong) - _FIRST} more"] * (len(wrong) > _FIRST)
        sentence = f"spans: expected ends that are ends of tokens of one sentence, found {'; '.join(some)}"
        if misaligned == "raise":
            raise ValueError(f"{sentence}; misaligned='expand', 'drop' or 'mask' goes on")
        warnings.warn(sentence, UserWarning, stacklevel=2)
    warn_joined(lost)
    tokens = TokenColumns.from_sentences(rows, (column,))
    return TokenColumns(tokens.columns, tokens.seq_ptr, labels, label)


def spans_from_labels(
    texts: Iterable[Any], labels: Iterable[Sequence[Hashable]], tokenizer: Tokenizer | None = None,
    scheme: str = "auto", strict: bool = False,
) -> list[Document]:  # fmt: skip
    """Texts with the chunks of their labels: those of `columns_from_spans`, or what a model predicts for it.

    texts : strings or `Document`s, whose spans are not read.
    labels : a sequence for each sentence that the tokeniser makes; None is outside.
    tokenizer : that of `columns_from_spans`.
    scheme, strict : how labels are read, as in `evaluation.chunk_report`. "auto" prints what it took.

    Raises ValueError where labels do not fit tokens, naming the document.
    """
    rows = [["O" if label is None else label for label in row] for row in labels]
    documents, first = [], 0
    found = chunk_lists(rows, reading_of(rows, scheme, strict, say=True), strict)
    for d, given in enumerate(texts):
        text, _, places = _cut((given, []) if isinstance(given, str) else given, tokenizer)
        mine = slice(first, first + len(places))
        lengths, got = ([len(row) for row in side] for side in (places, rows[mine]))
        if lengths != got:
            wanted = f"labels of sentences of {shown(lengths)} tokens"
            raise unexpected(f"document {d}", wanted, f"those of {shown(got)}")
        chunks = zip(places, found[mine], strict=True)
        spans = [(row[a][0], row[b - 1][1], kind) for row, here in chunks for kind, a, b in here]
        documents.append(Document(text, spans, places))
        first = mine.stop
    if first < len(rows):
        raise ValueError(f"labels: expected those of the {first} sentences of the texts, got {len(rows)}")
    return documents


def _cut(document, tokenizer):
    """`document` with the places of its tokens."""
    text, spans, places = _document(document)
    cut = tokenizer is not None or places is None
    return text, spans, token_places(text, (tokenizer or tokenize)(text) if cut else places)


def _document(given):
    """The `Document` that is given, or of a pair (text, spans); ValueError for what is neither."""
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3) or not isinstance(given[0], str):
        raise unexpected("documents", "pairs (text, spans) or `Document`s", shown(given))
    return Document(*given)


def _is_place(token):
    return hasattr(token, "__len__") and len(token) == 2 and not any(hasattr(x, "__len__") for x in token)


def _offset(value):
    """An integer of Python or NumPy as int; TypeError for all else, also for 1.0, "1" and True."""
    if isinstance(value, bool):
        raise TypeError
    return index(value)


def _named(span):
    return f"{span[0]}:{span[1]} {shown(span[2])}"


def _around(text, start, stop):
    """A piece of a text with its surroundings, for a message."""
    left = text[max(0, start - _AROUND) : start]
    return shown(f"{left}[{text[start:stop]}]{text[stop : stop + _AROUND]}")


def _stripped(text, start, stop):
    """A span without white space at its ends."""
    piece = text[start:stop]
    return start + len(piece) - len(piece.lstrip()), stop - len(piece) + len(piece.rstrip())


def _checked(text, spans, place, apart=True):
    """Spans, sorted; ValueError for what is none, leaves the text or, with `apart`, overlaps another."""
    found, span = [], spans
    try:
        for span in spans:
            start, stop, kind = span
            found.append((_offset(start), _offset(stop), kind))
            if not (isinstance(kind, str) and 0 <= start < stop <= len(text)):
                raise ValueError
    except (TypeError, ValueError):
        wanted = f"a span (start, stop, type) in a text of {len(text)} characters, start and stop integers"
        raise unexpected(place, wanted, shown(span)) from None
    spans = sorted(found)
    for one, other in pairwise(spans) if apart else ():
        if other[0] < one[1]:
            both = f"{shown(one)} and {shown(other)} in {_around(text, one[0], max(one[1], other[1]))}"
            raise ValueError(f"{place}: expected spans that do not overlap, got {both}")
    return spans


# ---- formats ----


def _base(path):
    """The path of a brat document without .txt or .ann; other dots belong to its name."""
    base, ending = os.path.splitext(name := file_name(path))
    return base if ending in (".txt", ".ann") else name


def read_brat(path: File, fragments: str = "raise") -> Document:
    """The `Document` of brat's x.txt and x.ann; path : one of both.

    fragments : of annotations in several pieces with text between, "raise": ValueError; "cover": the span
        goes from the first to the last. Relations, events and notes are not read.
    Raises ValueError naming file and line; also where the text of an annotation is not what stands there.
    """
    one_of("fragments", fragments, ("raise", "cover"))
    base, spans = _base(path), []
    text = decoded(*read_source(f"{base}.txt"))
    for place, line in filled_lines(f"{base}.ann", marks_anywhere=False):
        if not line.startswith("T"):
            continue
        match = re.fullmatch(r"T\S*\t(\S+) (\d{1,18} \d{1,18}(?:;\d{1,18} \d{1,18})*)\t(.*)", line)
        if not match:
            raise ValueError(f"{place}: expected number, type with places, and text, got {shown(line)}")
        pieces = [tuple(map(int, piece.split())) for piece in match[2].split(";")]
        if fragments == "raise" and any(text[a:b].strip() for (_, a), (b, _) in pairwise(sorted(pieces))):
            raise ValueError(f"{place}: expected one piece, got {match[2]}; fragments='cover' joins them")
        there, said = (" ".join(t.split()) for t in (" ".join(text[a:b] for a, b in pieces), match[3]))
        if there != said:
            raise unexpected(place, f"{shown(there)}, which stands at {match[2]}", shown(said))
        whole = min(pieces)[0], max(stop for _, stop in pieces), match[1]
        spans += _checked(text, [whole], place)
    return Document(text, sorted(spans))


def write_brat(path: File, document: Document | tuple[str, list[Span]]) -> None:
    """Write x.txt and x.ann for brat, each atomically; path : one of both. What they held is replaced.

    A span over several lines has several pieces. Raises ValueError for a type with white space, and for a
    span that begins or ends with a line break.
    """
    base, (text, spans, _) = _base(path), _document(document)
    lines: list[str] = []
    for start, stop, kind in _checked(text, spans, f"{base}.ann", apart=False):
        piece = text[start:stop]
        if piece.strip("\r\n") != piece or kind.split() != [kind]:
            wanted = "a type without blanks and a span that begins and ends inside a line"
            raise unexpected(f"{base}.ann", wanted, f"{shown(kind)}: {_around(text, start, stop)}")
        parts = [match.span() for match in re.finditer(r"[^\r\n]+", piece)]
        places = ";".join(f"{start + a} {start + b}" for a, b in parts)
        lines.append(f"T{len(lines) + 1}\t{kind} {places}\t{' '.join(piece[a:b] for a, b in parts)}\n")
    write_text(base + ".txt", text)
    write_text(base + ".ann", "".join(lines))


def read_doccano(path: File) -> list[Document]:
    """`Document`s of doccano's JSONL: {"text": ..., "label": [[start, stop, type], ...]} a line.

    The names of other versions are read, too: data, labels, and entities with start_offset, end_offset and
    label. Raises ValueError naming file and line.
    """
    documents = []
    for place, line in filled_lines(path, marks_anywhere=False):
        try:
            entry = json.loads(line)
            text = entry["text"] if "text" in entry else entry["data"]
            spans: Any = entry.get("label") or entry.get("labels") or entry.get("entities") or []
            keys = "start_offset", "end_offset", "label"
            spans = [tuple(map(s.get, keys)) if isinstance(s, dict) else s for s in spans]
            if not isinstance(text, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            wanted = 'an object with "text" and "label": [[start, stop, type], ...]'
            raise unexpected(place, wanted, shown(line)) from None
        documents.append(Document(text, _checked(text, spans, place, apart=False)))
    return documents


def write_doccano(path: File, documents: Iterable[Document | tuple[str, list[Span]]]) -> None:
    """Write texts and spans as JSONL for doccano, atomically."""
    lines = []
    for d, (text, spans, _) in enumerate(map(_document, documents)):
        entry = {"text": text, "label": _checked(text, spans, f"document {d}", apart=False)}
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def read_spacy(doc: Any) -> Document:
    """The `Document` of a spaCy `Doc`: its text, entities and tokens, cut into sentences where it has any."""
    sentences = doc.sents if doc.has_annotation("SENT_START") else [doc]
    tokens = [[(t.idx, t.idx + len(t)) for t in sentence if not t.is_space] for sentence in sentences]
    return Document(doc.text, [(e.start_char, e.end_char, e.label_) for e in doc.ents], tokens)


def write_spacy(doc: Any, spans: Iterable[Span]) -> Any:
    """The same `Doc`, whose entities are these spans now. Raises ValueError for those that cut a token."""
    spans = _checked(doc.text, spans, "doc")
    found = [doc.char_span(start, stop, label=kind) for start, stop, kind in spans]
    for one, span in zip(found, spans, strict=True):
        if one is None:
            around = _around(doc.text, *span[:2])
            raise ValueError(f"doc: expected ends of tokens, found {_named(span)}: {around}")
    doc.ents = found
    return doc
