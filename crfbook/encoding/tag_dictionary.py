"""Tag dictionaries: a word seen often enough may have only the labels that it was seen with.

A word that occurred at least `min_count` times in training is taken to have shown all its labels; the others
score minus infinity, in training and in decoding alike. Rarer words may have every label. Most words have one
or two labels out of 45, so that less is left to choose from. Sources: Ratnaparkhi (1996), section 4; Altun,
Johnson and Hofmann (2003), section 4.2.
"""

from itertools import chain

import numpy as np

from crfbook._checks import Stored, check_arrays, check_fields, shown, unexpected, whole
from crfbook.data.constraints import constraints_from
from crfbook.data.partial import hold, lost_tokens
from crfbook.data.vocabulary import numbered, pack_strings, unpack_strings
from crfbook.encoding.template_attributes import as_columns, column_name
from crfbook.evaluation.schemes import SETS

MIN_COUNT = 5  # Ratnaparkhi's; Altun et al. do not state theirs


class TagDictionary:
    """Words and the labels that each may have.

    entries : dict word -> collection of labels. Words that are not in it may have every label.
    column : name or number of the column that holds the words.
    """

    def __init__(self, entries, column=0):
        if not hasattr(entries, "items"):
            wanted = "a dict word -> collection of labels"
            raise unexpected("TagDictionary", wanted, shown(entries), TypeError)
        for word, labels in entries.items():
            if isinstance(labels, str) or not hasattr(labels, "__iter__"):
                wanted = f"a collection of labels for {shown(word)}"
                raise unexpected("TagDictionary", wanted, shown(labels), TypeError)
        self.entries, self.column = {word: frozenset(labels) for word, labels in entries.items()}, column

    @classmethod
    def learn(cls, X, y=None, min_count=MIN_COUNT, column=0):
        """The labels of words that occur at least `min_count` times in labelled columns.

        X, y : as `CRF.fit` takes them with a template; None does not count. ValueError without labels, for
            other lengths, for min_count < 1.
        """
        min_count = whole("min_count", min_count, 1)
        if y is None and getattr(X, "labels", None) is None:
            wanted = "labels y, one sequence of labels for each sequence of X"
            raise unexpected("TagDictionary.learn", wanted, "none")
        words, labels = words_of(X, column), list(X.labels if y is None else chain.from_iterable(y))
        if len(words) != len(labels):
            raise ValueError(f"X and y: expected a label for each of {len(words)} tokens, got {len(labels)}")
        seen = _labels_by_word(words, labels)
        return cls({word: found for word, found in seen.items() if len(found) >= min_count}, column)

    def allowing(self, X, labels):
        """This dictionary, with the labels (N,) of the tokens of X added to those of its words.

        So gold labels are always allowed. A label may be a set of labels, or None: then nothing is added.
        """
        seen = _labels_by_word(words_of(X, self.column), labels)
        return TagDictionary(
            {word: entry.union(seen.get(word, ())) for word, entry in self.entries.items()}, self.column
        )

    def encode(self, labels):
        """`LabelSets` in the order of `labels` (L,).

        Labels that are not among these are left out. A word that has no other may have every label.
        """
        number = {label: y for y, label in enumerate(labels)}
        sets, rows, row_of = [np.ones(len(number), bool)], {}, {}
        for word, entry in self.entries.items():
            ids = sorted(number[label] for label in entry if label in number)
            if ids and tuple(ids) not in rows:
                rows[tuple(ids)] = len(sets)
                sets.append(np.isin(np.arange(len(number)), ids))
            row_of[word] = rows.get(tuple(ids), 0)
        return LabelSets(row_of, np.array(sets), self.column)

    def __len__(self):
        return len(self.entries)

    def __repr__(self):
        return f"<TagDictionary: {len(self):,} words>"


TagDictionaryLike = int | TagDictionary | None


class LabelSets:
    """A tag dictionary encoded for one model.

    row_of : dict word -> row of `sets`.
    sets : bool (D, L); row 0 allows everything.
    """

    def __init__(self, row_of, sets, column):
        self.row_of, self.sets, self.column = row_of, sets, column

    def label_set(self, X, names=None):
        """The row of each token of X, int32 (N,): what `Corpus.label_set` holds.

        names : of columns that X does not name.
        """
        words = words_of(X, self.column, names)
        numbers, distinct = numbered(words, len(words))
        return np.array([self.row_of.get(word, 0) for word in distinct], np.int32)[numbers]

    def constrain(self, constraints):
        """`Constraints` (or None) with these sets."""
        base = constraints_from({}, range(self.sets.shape[1])) if constraints is None else constraints
        return base._replace(label_sets=self.sets)

    def get_state(self):
        """(JSON-able header, dict of arrays), without the sets, which the constraints keep."""
        text, ptr = pack_strings(list(self.row_of))
        row = np.array(list(self.row_of.values()), np.int32)
        return {"column": self.column}, {"text": text, "ptr": ptr, "row": row}

    @classmethod
    def from_state(cls, header, arrays, sets):
        """The inverse of `get_state`. ValueError if the arrays do not fit together."""
        if sets is None or not len(sets) or not sets[0].all():
            raise ValueError("tag dictionary: expected label sets, the first of which allows everything")
        check_fields(header, {"column": ((int, str), None)})
        words = unpack_strings(arrays, "", "all different")
        check_arrays(arrays, {"row": Stored(np.int32, (len(words),), 0, len(sets))})
        return cls(dict(zip(words, arrays["row"].tolist(), strict=True)), sets, header["column"])


def free_blocked(corpus, constraints):
    """`corpus` with every label allowed where a tag dictionary would leave a sequence without any labelling.

    New text joins words that training never joined: an I-NP word first, for instance.
    constraints : `Constraints` or None.
    Cost: see `lost_tokens`.
    """
    if constraints is None or constraints.label_sets is None or not len(corpus.label_set):
        return corpus
    blocked = lost_tokens(corpus, constraints) >= 0
    return _freed(corpus, blocked) if blocked.any() else corpus


def _freed(corpus, blocked):
    """The corpus, every label allowed in the sequences where `blocked` bool (S,)."""
    label_set = np.where(np.repeat(blocked, corpus.lengths), np.int32(0), corpus.label_set)
    return corpus._replace(label_set=label_set)


def hold_freed(corpus, constraints, partial, label_sets):
    """(corpus, `Held`) of `hold`, every label allowed where the tag dictionary leaves a sequence no labelling
    that agrees with what is known. label_sets : `LabelSets`; None: without one nothing is freed.
    """
    held = hold(corpus, constraints, partial)
    if label_sets is not None:
        blocked = lost_tokens(corpus._replace(label_set=held.row), held.limits(constraints)) >= 0
        if blocked.any():
            corpus = _freed(corpus, blocked)
            held = hold(corpus, constraints, partial)
    return corpus, held


def words_of(X, column, names=None):
    """The cells of one column (a name or a number) of what a template reads, flat; ValueError without it."""
    columns, _ = as_columns(X, names)
    names = list(columns)
    column = column_name(column, names)
    if columns.get(column) is None:
        raise ValueError(
            f"tag_dictionary: there is no column {shown(column)}; there are {', '.join(map(repr, names))}"
        )
    return columns[column]


def _labels_by_word(words, labels):
    found = {}
    for word, label in zip(words, labels, strict=True):
        if label is not None:
            found.setdefault(word, []).extend(label if isinstance(label, SETS) else (label,))
    return found
