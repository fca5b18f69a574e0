"""Label schemes: how tokens of a chunk are labelled, and how labels are read, written, converted, repaired.

One notion serves constraints, metrics, scorers, paths, span probabilities and figures:

    scheme   chunks of four and one   also called
    BIO      B I I I   B              IOB2
    IOB1     I I I I   I              B for the first I, where a chunk of its type ends just before
    IO       I I I I   I              cannot tell such chunks apart
    BIOES    B I I E   S              IOBES
    BILOU    B I I L   U              BILUO

A label is a tag and a type: `B-X`, `B_X`, `X-B` or `X_B`; one way in all labels, which `reading` finds. `O`
is outside, a tag alone has the empty type. To IO, labels without tags are types.

Chunks are read in two ways. As conlleval.pl does (Tjong Kim Sang, version of 2004-01-26), any label goes on
with a chunk or starts one; in schemes that mark ends, E, L, S and U end chunks, too. Strictly, a chunk is
only what the scheme allows: as `mode="strict"` of seqeval 1.2.2 (Nakayama 2018), with the gaps of its IOB1.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

SETS = set, frozenset  # of labels, one of which is right


def a_set(place, label):
    """The error of a set of labels where one label is expected."""
    got = f"{sorted(label, key=repr)!r:.80} as a set"
    return ValueError(f"{place}: expected one label, got {got}; `fit` and given= alone take sets of labels")


def refuse_sets(rows, name=""):
    """Raise ValueError naming the first token of sequences of labels that has a set of them."""
    for i, row in enumerate(rows):
        for t, label in enumerate(row):
            if isinstance(label, SETS):
                raise a_set(f"{name}sequence {i}, token {t}", label)


TAGS = {tag: code for code, tag in enumerate(["O", "B", "I", "E", ".", "[", "]", "S"])}
_O, _B, _I, _E, _DOT, _OPEN, _CLOSE, _S = range(8)
Chunk = tuple[str, int, int]  # type, first token, token after the last one


class Scheme(NamedTuple):
    """How chunks are written."""

    name: str
    tags: str  # all that may occur beside O
    written: str  # tags of the first, an inner and the last token of a chunk, and of a chunk of one token
    openers: str  # tags that may begin a chunk after O or a complete chunk
    closers: str  # tags that may end a chunk

    @property
    def marks_ends(self) -> bool:
        return "I" not in self.closers

    def follows(self, previous, following):
        """Whether a label (tag, type) may follow another. ("O", "") stands before all and after all."""
        (p, kind), (n, other) = previous, following
        if n == "O" or n in self.openers:
            return p == "O" or p in self.closers
        return p in "BI" and kind == other

    def write(self, spans, n):
        """([(tag, type)] of n tokens, first tokens of chunks that are lost in their neighbours)."""
        parts, lost, before = [("O", "")] * n, [], None
        first, inner, last, only = self.written
        for kind, start, stop in spans:
            tags = only if stop == start + 1 else first + inner * (stop - start - 2) + last
            if before == (kind, start) and self.openers == "I":
                tags = self.tags[0] + tags[1:]
                lost += [start] * (self.tags == "I")
            parts[start:stop] = [(tag, kind) for tag in tags]
            before = kind, stop
        return parts, lost


SCHEMES = {row[0]: Scheme(*row) for row in (
    ("BIO", "BI", "BIIB", "B", "BI"), ("IOB1", "BI", "IIII", "I", "BI"), ("IO", "I", "IIII", "I", "I"),
    ("BIOES", "BIES", "BIES", "SB", "ES"), ("BILOU", "BILU", "BILU", "UB", "LU"),
)}  # fmt: skip
ALIASES = {"IOB2": "BIO", "IOBES": "BIOES", "BILUO": "BILOU"}
EVERY_TAG = "BIESLU"
_SAME_ROLE = {"L": "E", "U": "S"}
_STYLES = ("-", False), ("_", False), ("-", True), ("_", True)


class Reading(NamedTuple):
    """A scheme (None: what conlleval reads), and how tag and type are joined in one label."""

    scheme: Scheme | None
    separator: str = "-"  # "": no tag, every label but O is a type
    suffix: bool = False  # the tag stands last

    def split(self, label):
        """(tag, type). To conlleval a type of "0" is no type."""
        text = str(label)
        if not self.separator and text != "O":
            return "I", text
        if text == "O" or self.separator not in text:
            return text, ""
        tag, kind = text.rsplit(self.separator, 1)[::-1] if self.suffix else text.split(self.separator, 1)
        return tag, kind if kind != "0" or self.scheme else ""

    def join(self, tag, kind):
        if tag == "O" or not (self.separator and kind):
            return kind if not self.separator and kind else tag
        return self.separator.join((kind, tag) if self.suffix else (tag, kind))


def scheme_named(name: Any, what: str = "scheme", also: str = "") -> Scheme:
    """The `Scheme` of a name or an alias; ValueError that lists them, and `also`."""
    key = name.upper() if isinstance(name, str) else ""
    found = SCHEMES.get(ALIASES.get(key, key))
    if found is None:
        names = ", ".join(map(repr, [*SCHEMES, *ALIASES]))
        raise ValueError(f"{what}: expected {names}{also}, got {name!r:.80}")
    return found


def some_of(labels: Iterable[Hashable]) -> str:
    """A few labels, sorted, for a message."""
    ordered = sorted((y.item() if isinstance(y, np.generic) else y for y in labels), key=str)
    return ", ".join(f"{label!r:.40}" for label in ordered[:5]) + ", ..." * (len(ordered) > 5)


def reading(
    labels: Iterable[Hashable], name: Any = "auto", rows: Iterable[Sequence[Hashable]] = (),
    what: str = "scheme", say: bool = False,
) -> Reading:  # fmt: skip
    """How a set of labels is read: the scheme of this name, or "auto", and the separator that all have.

    rows : sequences of labels, from which "auto" tells IOB1 and BIO apart. It takes IO where all tags are I,
        and what conlleval reads where they are I and E.
    say : "auto" prints one line with what it took.
    Raises ValueError for another name, and for labels that the scheme does not read, naming them.
    """
    if isinstance(name, Reading):
        return name
    auto = isinstance(name, str) and name.lower() == "auto"
    scheme = None if auto else scheme_named(name, what, ', "auto" or "conlleval"' * (what == "scheme"))
    tags, labels = scheme.tags if scheme else EVERY_TAG, set(labels) - {None}
    lost = {style: [y for y in labels if not _is_read(y, tags, *style)] for style in _STYLES}
    style = min(_STYLES, key=lambda style: len(lost[style]))  # of several the first
    if lost[style]:
        tagged = any(not isinstance(y, str) or _is_read(y, EVERY_TAG) for y in labels - {"O"})
        if scheme == SCHEMES["IO"] and not tagged:
            return Reading(scheme, "")
        wanted = f"{', '.join(f'{tag}-x' for tag in tags)} (all with - or all with _, or x-{tags[0]})"
        got = some_of(lost[style]) + "; 'IO' takes labels without tags for types" * auto
        raise ValueError(f"{what}={name!r:.40}: expected labels 'O' or {wanted}, got {got}")
    read = Reading(scheme, *style)
    if auto:
        read = read._replace(scheme=_detected(read, labels, rows))
        if say:
            took = read.scheme.name if read.scheme else "conlleval (IOE)"
            used = sorted({read.split(y)[0] for y in labels} - {"O"}) or ["none"]
            example = read.join("B", "X")
            print(f"scheme='auto': {took}; tags {', '.join(used)}, written as {example}", flush=True)
    return read


def _is_read(label, tags, separator="-", suffix=False):
    """Whether a label is O, a tag alone, or a tag and a type."""
    if not isinstance(label, str):
        return False
    tag, kind = Reading(SCHEMES["IO"], separator, suffix).split(label)
    return label == "O" or (len(tag) == 1 and tag in tags and bool(kind or label == tag))


def _detected(read, labels, rows):
    """The `Scheme` of labels whose tags are known, None where conlleval alone reads them."""
    used = {read.split(label)[0] for label in labels} - {"O"}
    if used & set("LU"):
        if used & set("ES"):
            tags = ", ".join(sorted(used))
            raise ValueError(f"scheme='auto': expected labels of one scheme, got the tags {tags}")
        return SCHEMES["BILOU"]
    if "S" in used or {"B", "E"} <= used:
        return SCHEMES["BIOES"]
    if "E" in used or used == {"I"}:
        return None if "E" in used else SCHEMES["IO"]
    bio, iob1 = SCHEMES["BIO"], SCHEMES["IOB1"]
    parts = [[read.split(y) for y in row if y is not None] for row in rows]
    broken = any(faults(row, bio) for row in parts) and not any(faults(row, iob1) for row in parts)
    return iob1 if broken else bio


def faults(parts, scheme):
    """Positions in a row of (tag, type) that the scheme forbids; the length of the row: it may not end so."""
    outside = ("O", "")
    pairs = zip([outside, *parts], [*parts, outside], strict=True)
    return [t for t, (before, now) in enumerate(pairs) if not scheme.follows(before, now)]


# ---- chunks ----


class Flat(NamedTuple):
    """All sequences in a row, each followed by one boundary token `O`, as conlleval reads its file."""

    tag: np.ndarray  # (n,) codes of TAGS; L and U have those of E and S
    type: np.ndarray  # (n,) ids; 0 is the empty type
    starts: np.ndarray  # (n,) bool: a chunk starts here
    ends: np.ndarray  # (n,) bool: a chunk ended just before


def flatten(sequences, read, tags, types, strict=False):
    """Codes of all labels; `tags` and `types` (dicts string -> id) grow."""
    codes = {}
    for label in dict.fromkeys(chain.from_iterable(sequences)):
        tag, kind = read.split(label)
        tag = _SAME_ROLE.get(tag, tag) if read.scheme else tag
        codes[label] = (tags.setdefault(tag, len(tags)), types.setdefault(kind, len(types)))
    flat = [code for labels in sequences for code in (*map(codes.get, labels), (_O, 0))]
    tag, kind = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    before_tag, before_kind = np.append(_O, tag)[:-1], np.append(0, kind)[:-1]
    edges = _strict_edges if strict and read.scheme else _edges
    return Flat(tag, kind, *edges(before_tag, tag, before_kind != kind, read.scheme))


def _edges(before, tag, changed, scheme):
    """Where chunks start and where they have ended, by the rules of conlleval.

    start: O or I or B before B; O or E before I; O or E before E; a new type (unless O or "."); "[" and "]".
    end:   B or I before B; B, I or E before O; E before E or I; a new type (unless after O or ".");
           after "[" and "]".
    The script knows no S, and E before B is neither start nor end. Schemes that mark ends add: B and S always
    start, E and S always end.
    """
    starts = (
        (tag == _B) & np.isin(before, (_O, _B, _I))
        | np.isin(tag, (_I, _E)) & np.isin(before, (_O, _E))
        | changed & ~np.isin(tag, (_O, _DOT))
        | np.isin(tag, (_OPEN, _CLOSE))
    )
    ends = (
        (tag == _B) & np.isin(before, (_B, _I))
        | (tag == _O) & np.isin(before, (_B, _I, _E))
        | (before == _E) & np.isin(tag, (_E, _I))
        | changed & ~np.isin(before, (_O, _DOT))
        | np.isin(before, (_OPEN, _CLOSE))
    )
    if scheme and scheme.marks_ends:
        starts |= np.isin(tag, (_B, _S)) | (before == _S) & (tag != _O)
        ends |= np.isin(before, (_E, _S)) | (before != _O) & np.isin(tag, (_B, _S))
    return starts, ends


def _strict_edges(before, tag, changed, scheme):
    """The same of chunks that the scheme allows alone.

    A chunk goes on at I or E after B or I of its type. It starts at B or S; in IO and IOB1 at an I after O, B
    or another type, and at B after its type. It counts where its last tag may be one; seqeval also refuses a
    B of IOB1 before a B of another type.
    """
    goes_on = np.isin(tag, (_I, _E)) & np.isin(before, (_B, _I)) & ~changed
    starts, plain = np.isin(tag, (_B, _S)), scheme.openers == "I"
    if plain:
        starts &= np.isin(before, (_B, _I)) & ~changed
        starts |= (tag == _I) & (np.isin(before, (_O, _B)) | changed)
        starts &= ~(goes_on & np.append(False, starts[:-1]))  # this chunk began at the B before
    first, stops = np.flatnonzero(starts), np.flatnonzero(~goes_on)
    stop = stops[np.searchsorted(stops, first, side="right")]
    whole = np.isin(before[stop], (_E, _S) if scheme.marks_ends else (_B, _I))
    whole &= ~(plain & (before[stop] == _B) & (tag[stop] == _B) & changed[stop])
    starts, ends = np.zeros((2, len(tag)), bool)
    starts[first[whole]] = ends[stop[whole]] = True
    return starts, ends


def chunk_lists(rows, read, strict=False) -> list[list[Chunk]]:
    """Chunks of each row of labels."""
    types = {"": 0}
    flat = flatten(rows, read, dict(TAGS), types, strict)
    names = list(types)
    found: list[list[Chunk]] = [[] for _ in rows]
    sizes = [len(row) + 1 for row in rows]  # with the boundary
    owner, begins = np.repeat(np.arange(len(rows)), sizes), np.cumsum([0, *sizes]).tolist()
    for first, last in pairwise(np.flatnonzero(flat.starts | flat.ends).tolist()):
        i = owner[first]
        if flat.starts[first] and flat.ends[last] and i == owner[last]:
            found[i].append((names[flat.type[first]], first - begins[i], last - begins[i]))
    return found


def chunks(labels: Sequence[Hashable], scheme: str = "conlleval", strict: bool = False) -> list[Chunk]:
    """Chunks of one sequence: list of (type, start, stop), tokens start:stop. Tokens whose label is None are
    passed over. Arguments and errors are those of `chunk_report`.
    """
    labels = list(labels)
    places = [t for t, label in enumerate(labels) if label is not None]
    kept = [labels[t] for t in places]
    found = chunk_lists([kept], reading_of([kept], scheme, strict), strict)[0]
    return [(kind, places[start], places[stop - 1] + 1) for kind, start, stop in found]


def reading_of(rows, scheme, strict=False, say=False, others=(), level=3):
    """The `Reading` of rows of labels, and of others that have the same one, for `scheme=`.

    "conlleval" refuses labels whose separator it would not see, also beside those that it sees. It warns of
    others that it does not read.
    """
    labels = {label for side in (rows, others) for row in side for label in row}
    if not isinstance(scheme, str) or scheme.lower() != "conlleval":
        read = reading(labels, scheme, rows, say=say)
        if read.scheme or not strict:
            return read
    if strict:
        names = ", ".join(map(repr, SCHEMES))
        raise ValueError(f"strict=True: expected a scheme, {names} or labels of one, got {scheme!r:.80}")
    read = Reading(None)
    prefix = {label: read.split(label)[0] for label in labels}
    tags = set(TAGS) - {"S"} - ({"E"} if "B" in prefix.values() else set())
    if lost := {label for label in labels if prefix[label] not in tags}:
        sentence = f"chunks: conlleval reads O, B-x, I-x and the like, not {some_of(lost)}"
        styles = [style for style in _STYLES if all(_is_read(y, EVERY_TAG, *style) for y in labels)]
        if styles and styles[0] != _STYLES[0]:
            raise ValueError(f"{sentence}; scheme='auto' reads them")
        known, odd = labels - lost - {"O", *EVERY_TAG}, {y for y in lost if not _is_read(y, EVERY_TAG)}
        if known and not styles and any(_is_read(y, EVERY_TAG, *s) for y in odd for s in _STYLES):
            raise ValueError(f"{sentence}; join tag and type of all labels in one way")
        warnings.warn(sentence + "; scheme='auto' reads them" * bool(styles), UserWarning, stacklevel=level)
    return read


def chunk_patterns(scheme, span, n, parts):
    """[(first token, sets of labels)]: labellings with the chunk have one of these patterns, others none.

    A pattern is a set of labels for each token from the first one on. The chunk (type, start, stop) stands in
    n tokens as its scheme writes it, and no neighbour makes it longer. In BIO, x any label but I-X:

        B-X I-X x

    In IOB1, y any label but B-X and I-X, and z one of these two; at the ends of a sentence without x and y:

        y I-X I-X x    and    z B-X I-X x

    parts : (tag, type) of every label; a set has their positions. A pattern with an empty set is left out.
    """
    kind, start, stop = span

    def having(tags, wanted=True):
        return [y for y, (tag, other) in enumerate(parts) if (tag in tags and other == kind) == wanted]

    inside = [having(tag) for tag, _ in scheme.write([(kind, start, stop)], stop)[0][start:]]
    right = [having("I", False)] * (stop < n and not scheme.marks_ends)
    ways = [(start, [*inside, *right])]
    if scheme.openers == "I" and start:
        no_tag, tag, begins = having(scheme.tags, False), having(scheme.tags), having("B")  # IO has no B
        ways = [(start - 1, [no_tag, *inside, *right]), (start - 1, [tag, begins, *inside[1:], *right])]
    return [way for way in ways if all(way[1])]


class Way(NamedTuple):
    """How chunks of K types are written; ids of labels (K,), -1: there is no such label."""

    first: np.ndarray  # of a chunk of several tokens
    inner: np.ndarray
    last: np.ndarray
    only: np.ndarray  # of a chunk of one token
    before: np.ndarray | None  # bool (K, L): labels that may stand before it; None: all, and the boundary
    after: np.ndarray | None  # bool (K, L): labels that may stand after it; None: all
    opens: bool  # it may begin a sentence


def chunk_ways(scheme: Scheme, kinds: Sequence[str], parts: Sequence[tuple[str, str]]) -> list[Way]:
    """The patterns of `chunk_patterns` for chunks of all lengths: a labelling has a chunk in one way at most.

    kinds : the K types. parts : (tag, type) of each of the L labels.
    """
    number = {part: y for y, part in enumerate(parts)}

    def ids(tag):
        return np.array([number.get((tag, kind), -1) for kind in kinds], np.int64)

    def having(tags):
        found = [[tag in tags and other == kind for tag, other in parts] for kind in kinds]
        return np.array(found, bool).reshape(len(kinds), len(parts))

    after, begins = None if scheme.marks_ends else ~having("I"), ids("B")
    first, inner, last, only = map(ids, scheme.written)
    if scheme.openers != "I":
        return [Way(first, inner, last, only, None, after, True)]
    own = having(tuple(scheme.tags))
    again = Way(begins, inner, last, begins, own, after, False)  # IO has no B
    return [Way(first, inner, last, only, ~own, after, True), again]


# ---- from one scheme to another ----


def convert_labels(labels: Any, source: str, target: str, *, repair: str = "refuse") -> Any:
    """Labels in another scheme: chunks are read in one and written in the other.

    labels : a sequence of labels, a list of them, or `TokenColumns`; the same comes back. None stays None.
    source : the scheme that they have, or "auto", which prints what it took.
    target : a scheme. The separator stays.
    repair : what becomes of labels that the source forbids, such as I-X after O in BIO. "refuse": ValueError
        that names sequence and token. "conlleval": chunks are those that conlleval reads: I-X begins one.
        "drop": chunks are those of strict reading, all else becomes O. With source = target labels are
        repaired, no more.

    Warns of chunks that IO cannot tell from the one just before, which has the same type. All other targets
    lose nothing. Raises ValueError for labels that the source does not have.
    """
    if repair not in ("refuse", "conlleval", "drop"):
        raise ValueError(f"repair: expected 'refuse', 'conlleval' or 'drop', got {repair!r:.80}")
    wanted = scheme_named(target, "target")
    if hasattr(labels, "seq_ptr"):
        rows = convert_labels(labels.labels_by_sequence(), source, target, repair=repair)
        return labels.select(labels.names, [label for row in rows for label in row])
    labels = list(labels)
    one = not any(hasattr(row, "__len__") and not isinstance(row, str) for row in labels)
    rows = [labels] if one else list(map(list, labels))
    read = reading({y for row in rows for y in row}, source, rows, "source", say=True)
    places = [[t for t, label in enumerate(row) if label is not None] for row in rows]
    known = [[row[t] for t in kept] for row, kept in zip(rows, places, strict=True)]
    for i, row in enumerate(known if repair == "refuse" and read.scheme else ()):
        for t in faults([read.split(label) for label in row], read.scheme):
            fault = f"{row[t - 1]!r} may not end a sequence"
            if t < len(row):
                fault = f"{row[t]!r} may not " + (f"follow {row[t - 1]!r}" if t else "start a sequence")
            place = f"sequence {i}, token {places[i][min(t, len(row) - 1)]}: {fault} in this scheme"
            ways = "repair='conlleval' makes it part of a chunk, repair='drop' makes it O"
            raise ValueError(f"{place} ({source}); {ways}")
    join = read._replace(scheme=wanted, separator=read.separator or "-" * (wanted.tags != "I")).join
    found, lost = [], []
    for i, spans in enumerate(chunk_lists(known, read, repair == "drop")):
        parts, touching = wanted.write(spans, len(known[i]))
        lost += [(i, places[i][t]) for t in touching]
        written = iter(parts)
        found.append([None if label is None else join(*next(written)) for label in rows[i]])
    warn_joined(lost)
    return found[0] if one else found


def warn_joined(lost):
    """Say what IO has lost: (sequence, token) of chunks that were joined with the one before."""
    if lost:
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        place = f"sequence {lost[0][0]}, token {lost[0][1]}{more}"
        sentence = "IO cannot tell a chunk from the one of its type just before, they are joined"
        warnings.warn(f"{sentence}: {place}", UserWarning, stacklevel=3)
