"""Text as columns of strings: what readers return, what encoders take; and raw English text cut into it.

All tokens of all sentences stand in flat lists, one list per column; `seq_ptr` says where each sentence
begins, exactly as in `Corpus`. Nothing is parsed: a cell is a string, whatever it looks like.

Raw text is cut as in the Penn Treebank (Marcus, Santorini, Marcinkiewicz 1993), on which the corpora of
English newspapers rest: punctuation stands alone, `don't` is `do` + `n't`, `firm's` is `firm` + `'s`, `U.S.`
and `1,000.5` are one token each. These rules are for English; a corpus with other cuts needs its own
tokeniser, or its tagger sees words that it never met in training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import shown
from crfbook.data.corpus import Corpus, ragged_index


class TokenColumns:
    """Sentences as flat columns of strings (S sentences, N tokens), with or without labels.

    columns: dict of name -> list of N strings; the order is the column number that templates use.
    seq_ptr: int64 (S+1,), tokens of sentence i are seq_ptr[i]:seq_ptr[i+1]; empty sentences are allowed.
    labels: list of N labels, or None for text that is yet to be labelled.
    label_name: what the labels are called in messages and tables.
    Raises ValueError when the lengths do not fit together.
    """

    __slots__ = ("columns", "label_name", "labels", "seq_ptr")

    def __init__(
        self, columns: Mapping[str, list[str]], seq_ptr: ArrayLike, labels: list[Any] | None = None,
        label_name: str = "label",
    ) -> None:  # fmt: skip
        self.columns = dict(columns)
        self.seq_ptr = np.ascontiguousarray(seq_ptr, dtype=np.int64)
        self.labels = labels
        self.label_name = label_name
        ptr = self.seq_ptr
        if ptr.ndim != 1 or len(ptr) == 0 or ptr[0] != 0 or (np.diff(ptr) < 0).any():
            raise ValueError("seq_ptr: expected a rising row of positions that begins with 0")
        for name, column in [*self.columns.items(), (self.label_name, self.labels)]:
            if column is not None and len(column) != ptr[-1]:
                raise ValueError(
                    f"column {shown(name)}: expected {ptr[-1]} tokens as seq_ptr says, found {len(column)}"
                )

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Iterable[Any]], names: Iterable[str], label: str | None = None
    ) -> Self:
        """Columns from sentences that are lists of tuples (or of strings, when there is one name).

        `names` are the names of a tuple's places, `label` the one among them that holds the labels.
        Raises ValueError naming the sequence and token whose number of values differs.
        """
        names = tuple(names)
        if label is not None and label not in names:
            raise ValueError(f"label {shown(label)} is not among the names {', '.join(map(repr, names))}")
        rows, seq_ptr = [], [0]
        for i, sentence in enumerate(sentences):
            for t, row in enumerate(sentence):
                row = (row,) if isinstance(row, str) else row
                if len(row) != len(names):
                    raise ValueError(
                        f"sequence {i}, token {t}: expected {len(names)} values "
                        f"({', '.join(names)}), found {len(row)}"
                    )
                rows.append(row)
            seq_ptr.append(len(rows))
        flat = {name: [row[j] for row in rows] for j, name in enumerate(names)}
        labels = flat.pop(label) if label is not None else None
        return cls(flat, seq_ptr, labels, label or "label")

    @classmethod
    def from_text(cls, text: str, name: str = "word", *, penn_symbols: bool = False) -> Self:
        """One column of words from raw English text, cut by `tokenize` (penn_symbols is explained there)."""
        return cls.from_sentences(tokenize(text, penn_symbols=penn_symbols), (name,))

    def __len__(self) -> int:
        return len(self.seq_ptr) - 1

    @property
    def n_tokens(self) -> int:
        return int(self.seq_ptr[-1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in template order (labels not among them)."""
        return tuple(self.columns)

    def sentences(self, labels: bool = True) -> Iterator[list[tuple[Any, ...]]]:
        """Iterate over sentences, each a list of tuples.

        A tuple has the cells of a token, then its label if there is one.
        """
        parts = list(self.columns.values())
        if labels and self.labels is not None:
            parts.append(self.labels)
        for start, stop in pairwise(self.seq_ptr.tolist()):
            yield list(zip(*(part[start:stop] for part in parts), strict=True))

    __iter__ = sentences

    def by_sequence(self, name: str) -> list[list[str]]:
        """One column as a list of lists; `name` is a column's name."""
        if name not in self.columns:
            raise ValueError(f"no column {shown(name)}; there are {', '.join(map(repr, self.columns))}")
        return self._cut(self.columns[name])

    def labels_by_sequence(self) -> list[list[Any]]:
        """Labels as a list of lists. Raises ValueError when there are none."""
        if self.labels is None:
            raise ValueError("these columns have no labels; name the label column when reading")
        return self._cut(self.labels)

    def _cut(self, flat):
        return [flat[start:stop] for start, stop in pairwise(self.seq_ptr.tolist())]

    def __getitem__(self, index: int | slice) -> Any:
        """`x[3]` is sentence 3 as a list of tuples, `x[10:20]` ten sentences as TokenColumns."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._range(start, max(start, stop)) if step == 1 else self.take(range(start, stop, step))
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return next(self._range(i, i + 1).sentences())

    def _range(self, start, stop):
        first, last = int(self.seq_ptr[start]), int(self.seq_ptr[stop])
        return self._with(lambda cells: cells[first:last], self.seq_ptr[start : stop + 1] - first)

    def _with(self, chosen, seq_ptr):
        """`chosen` of every column and of the labels."""
        columns = {name: chosen(column) for name, column in self.columns.items()}
        labels = None if self.labels is None else chosen(self.labels)
        return TokenColumns(columns, seq_ptr, labels, self.label_name)

    def head(self, n: int) -> TokenColumns:
        """The first n sentences (all, if there are fewer)."""
        return self[:n]

    def take(self, index: ArrayLike) -> TokenColumns:
        """The sentences with these numbers, in this order; numbers may repeat."""
        index = np.asarray(index, dtype=np.int64).reshape(-1)
        if len(index) and not (-len(self) <= index.min() and index.max() < len(self)):
            raise IndexError(f"sentence numbers must lie in 0..{len(self) - 1}")
        index = np.where(index < 0, index + len(self), index)
        token, seq_ptr = ragged_index(self.seq_ptr, index)
        token = token.tolist()
        return self._with(lambda cells: [cells[t] for t in token], seq_ptr)

    def select(
        self, names: Iterable[str], labels: list[Any] | str | None = None, label_name: str | None = None
    ) -> TokenColumns:
        """The named columns only; `labels` replaces the labels (a list, or the name of a column)."""
        if isinstance(labels, str):
            label_name, labels = label_name or labels, self.columns[labels]
        elif labels is None:
            labels = self.labels
        chosen = {name: self.columns[name] for name in names}
        return TokenColumns(chosen, self.seq_ptr, labels, label_name or self.label_name)

    def copy(self) -> TokenColumns:
        """New lists, the same strings."""
        return self._with(list, self.seq_ptr.copy())

    def __eq__(self, other):
        if not isinstance(other, TokenColumns):
            return NotImplemented
        return (
            self.names == other.names
            and np.array_equal(self.seq_ptr, other.seq_ptr)
            and self.labels == other.labels
            and self.columns == other.columns
        )

    __hash__ = None  # type: ignore[assignment]  # equal ones may change: Python's own way to say so

    def __repr__(self):
        labels = "no labels" if self.labels is None else f"labels {self.label_name}"
        size = f"{len(self):,} sentences, {self.n_tokens:,} tokens"
        return f"TokenColumns({size}; columns {', '.join(self.names)}; {labels})"


Data = TokenColumns | Corpus | Iterable[Any]  # what estimators and encoders read


_ABBREVIATIONS = """
    Mr Mrs Ms Dr Prof Messrs Sen Rep Gov Gen Col Lt Sgt Capt Rev Hon St Mt Jr Sr
    Inc Corp Co Cos Ltd Bros Dept Univ
    Jan Feb Mar Apr Aug Sep Sept Oct Nov Dec vs etc cf al approx
"""
_TOKEN = re.compile(
    rf"""
      https?://\S*[\w/] | [\w.+-]{{1,64}}+@[\w-]+(?:\.[\w-]+)+  # addresses; RFC 5321: 64 before the @
    | \.\.\.+ | --+                                           # ellipsis, dash
    | [\U0001F1E6-\U0001F1FF]{{2}} | [\d\#*]\ufe0f?\u20e3        # flags, keycaps
    | (?:[^\W\d_]\.){{2,}}                                    # U.S.  p.m.
    | (?:{"|".join(_ABBREVIATIONS.split())})\.(?!\w)          # Mr.  Inc.
    | No\.(?=\s*\d)                                           # No. 5, but not the answer No.
    | (?!I\.)[A-Z]\.(?=\s+[A-Z])                              # J. Smith
    | ['’]\d\ds?\b                                            # '90s
    | \w[\w\u0300-\u036f]*(?:[-&/'’]\w+|(?<=\d)[.,:]\d+|\.[a-z]\w*)*  # words, numbers, example.com
    | \S(?:\u200d\S | [\u0300-\u036f\ufe0e\ufe0f\U0001F3FB-\U0001F3FF])* # all else: a character, an emoji
    """,
    re.X,
)
_CLITIC = re.compile(r"(?i)(.+?)(n['’]t|['’](?:s|m|d|re|ve|ll))|(can)(not)")
_PENN = dict(zip("()[]{}“”‘", "-LRB- -RRB- -LSB- -RSB- -LCB- -RCB- `` '' `".split(), strict=True))
_CLOSING = set("\"'’”)]}")


def tokenize(text, *, penn_symbols=False):
    """Cut a text into sentences and these into tokens: a list of lists of strings.

    A sentence ends at `.`, `?` or `!` unless a small letter follows; closing quotes and brackets that touch
    it belong to it. It also ends at an ellipsis before a capital, and at an empty line. The stop of an
    abbreviation never ends one: `He left the U.S. She stayed.` is one sentence to this function.
    penn_symbols: quotes and brackets as the Treebank and CoNLL-2000 write them: `` '' ` ' -LRB- -RRB-, and '
    for ’; otherwise every token is a piece of the text, and only white space is lost.
    Raises TypeError for anything but a string. Cost O(length of the text).
    """
    if not isinstance(text, str):
        raise TypeError(f"text: expected one string, got {type(text).__name__}")
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found.extend(_cut_into_sentences(_tokens(paragraph)))
    return [
        [_penn(token, before) if penn_symbols else token for token, _, before in sentence]
        for sentence in found
    ]


def _tokens(text):
    """Tokens of a paragraph as (token, start, character before it)."""
    found = []
    for match in _TOKEN.finditer(text):
        start, token = match.start(), match.group()
        cut = _CLITIC.fullmatch(token)
        parts = [part for part in cut.groups() if part] if cut else [token]
        for part in parts:
            found.append((part, start, text[start - 1 : start]))
            start += len(part)
    return found


def _cut_into_sentences(tokens):
    sentence, ended = [], False
    for token, start, before in tokens:
        touches = start > 0 and not before.isspace()
        if ended and not (touches and token in _CLOSING or token in ".?!"):
            if not token[0].islower():
                yield sentence
                sentence = []
            ended = False
        sentence.append((token, start, before))
        ended = ended or token in (".", "?", "!") or token.startswith("...")
    if sentence:
        yield sentence


def _penn(token, before):
    opens = not before or before.isspace() or before in "([{"
    if token == '"':
        return "``" if opens else "''"
    if token == "'" and opens:
        return "`"
    return _PENN.get(token, token.replace("’", "'"))
