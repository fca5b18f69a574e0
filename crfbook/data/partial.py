"""Labels that are partly known: of a token its label, a set of labels of which one is right, or nothing.

What is known is a mask of labels beside that of the constraints, as a tag dictionary has it. `hold` joins
both to `Held`: what is left of each token's labels. `lost_tokens` finds sequences that no labelling is left
of, `conflicts` says why. Training on such labels is chain/partial.py. Source: Tsuboi, Kashima, Mori, Oda and
Matsumoto (2008).
"""

from typing import NamedTuple

import numpy as np

from crfbook._checks import shown, unexpected
from crfbook.data.constraints import Constraints, check_constraints, check_label_set, violations
from crfbook.data.corpus import offsets, ragged_index
from crfbook.data.features import MOST_LABELS
from crfbook.data.vocabulary import UnknownLabelError, plain_value
from crfbook.evaluation.schemes import SETS


class Partial(NamedTuple):
    """What is known of N tokens."""

    row: np.ndarray  # int32 (N,): row of sets that holds at a token
    sets: np.ndarray  # bool (D, L): labels that may be right


class Held(NamedTuple):
    """What is left of each token's labels, those that may not open or close a sequence left out there."""

    row: np.ndarray  # int32 (N,): row of both tables that holds at a token
    sets: np.ndarray  # bool (D, L): by the constraints and by what is known
    free: np.ndarray  # bool (D, L): by the constraints alone

    def limits(self, constraints):
        """`Constraints` (or None) whose label sets these are."""
        return limits_of(constraints, self.sets.shape[1])._replace(label_sets=self.sets)

    @property
    def single(self):
        """bool (N,): one label is left."""
        return (self.sets.sum(axis=1) == 1)[self.row]

    def spoken(self, sequence, n_sequences):
        """bool (S,): sequences of which something is known; `sequence` (N,) is that of each token."""
        says = (self.sets != self.free).any(axis=1)[self.row]
        return np.bincount(sequence, says, minlength=n_sequences) > 0

    def labels(self, corpus):
        """int32 (N,): the one label that is left in a sequence of which something is known, else -1."""
        known = self.single & self.spoken(corpus.sequence, corpus.n_sequences)[corpus.sequence]
        return np.where(known, self.sets.argmax(axis=1)[self.row], -1).astype(np.int32)


def limits_of(constraints, n_labels):
    """`constraints`, or for None those that allow everything."""
    if constraints is not None:
        return constraints
    return Constraints(np.ones((n_labels, n_labels), bool), *np.ones((2, n_labels), bool))


def split_sets(y):
    """(y with None in place of sets, [(token, set)]): y is a list of sequences, tokens count from the first
    one of all.
    """
    rows, found, first = [], [], 0
    for row in y:
        if hasattr(row, "__len__") and any(isinstance(label, SETS) for label in row):
            found += [(first + t, label) for t, label in enumerate(row) if isinstance(label, SETS)]
            row = [None if isinstance(label, SETS) else label for label in row]
        rows.append(row)
        first += len(row) if hasattr(row, "__len__") else 0
    return rows, found


def check_sets(corpus, found, ids=False):
    """ValueError naming the token for a set that is empty, or has what is no label. ids : labels are ids."""
    for token, labels in found:
        if not labels:
            raise unexpected(corpus.place(token), "some labels in a set", "an empty one (None says nothing)")
        for label in labels:
            if label is None or ((plain := plain_value(label)) != plain) is not False:  # as pandas.NA
                raise unexpected(corpus.place(token), "labels in a set", f"{shown(label)} in it")
            if ids and not (type(plain) is int and 0 <= plain < MOST_LABELS):
                wanted = f"label ids from 0 to {MOST_LABELS - 1:,} in a set"
                raise unexpected(corpus.place(token), wanted, shown(label))


def make_partial(corpus, found, alphabet):
    """(corpus, `Partial` or None: all is known) of the labels of a corpus and of sets [(token, set)] in their
    place. A set of one label is that label, which the corpus then has.

    alphabet : labels in the order of their ids. Raises ValueError naming the token of an unknown label.
    """
    number, n_labels = {label: y for y, label in enumerate(alphabet)}, len(alphabet)
    row, which = corpus.labels.copy(), {}
    for token, labels in found:
        if unknown := [label for label in labels if label not in number]:
            known = ", ".join(map(repr, alphabet[:10])) + ", ..." * (n_labels > 10)
            sentence = f"label {shown(unknown[0])} of a set was not seen in training; known: {known}"
            raise UnknownLabelError(f"{corpus.place(token)}: {sentence}")
        ids = tuple(sorted(number[label] for label in labels))
        row[token] = ids[0] if len(ids) == 1 else n_labels + which.setdefault(ids, len(which))
    if found:
        corpus = corpus._replace(labels=np.where(row < n_labels, row, np.int32(-1)))
    if not (corpus.labels < 0).any():
        return corpus, None
    used, row = np.unique(row, return_inverse=True)
    sets, several = np.ones((len(used), n_labels), bool), list(which)
    for k, kind in enumerate(used.tolist()):
        if kind >= 0:
            sets[k] = False
            sets[k, kind if kind < n_labels else list(several[kind - n_labels])] = True
    return corpus, Partial(row.reshape(-1).astype(np.int32), sets)


def hold(corpus, constraints, partial):
    """`Held` of a corpus under `Constraints` (or None) and `Partial`. Cost: N, and D L."""
    n_labels = partial.sets.shape[1]
    check_constraints(constraints, n_labels)
    check_label_set(corpus, constraints)
    limits, based = limits_of(constraints, n_labels), len(corpus.label_set) > 0
    bases = limits.label_sets if based else np.ones((1, n_labels), bool)
    ends = np.zeros(corpus.n_tokens, np.int64)
    ends[corpus.first] = 1
    ends[corpus.last] += 2
    base = corpus.label_set if based else 0
    keys, row = np.unique((partial.row * np.int64(len(bases)) + base) * 4 + ends, return_inverse=True)
    ends, (of_sets, of_bases) = keys % 4, np.divmod(keys // 4, len(bases))
    free = bases[of_bases]
    free[ends % 2 == 1] &= limits.start
    free[ends >= 2] &= limits.end
    return Held(row.reshape(-1).astype(np.int32), partial.sets[of_sets] & free, free)


def lost_tokens(corpus, constraints):
    """int64 (S,): the token of each sequence, counted in it, up to which no labelling is left; -1: some are.

    Cost: N L^2 operations, or N where any label may follow any other.
    """
    lost, length, first = np.full(corpus.n_sequences, -1), corpus.lengths, corpus.seq_ptr[:-1]
    if constraints is None:
        return lost
    limits = constraints.allowed, constraints.start, constraints.end
    sets = constraints.label_sets if len(corpus.label_set) else None
    if all(limit.all() for limit in limits) and (sets is None or sets.any(axis=1).all()):
        return lost
    # labels that some labelling so far ends in
    open_ends = np.zeros((corpus.n_sequences, len(constraints.start)), bool)
    for t in range(corpus.longest):
        here = np.flatnonzero(length > t)
        may = constraints.start if t == 0 else open_ends[here].astype(float) @ constraints.allowed > 0
        may = may & (constraints.end | (length[here] > t + 1)[:, None])
        open_ends[here] = may if sets is None else may & sets[corpus.label_set[first[here] + t]]
        ended = here[(lost[here] < 0) & ~open_ends[here].any(axis=1)]
        lost[ended] = t
    return lost


def conflicts(corpus, constraints, held, names):
    """All places where what is known contradicts the constraints: (sequence, token, message) in corpus order.

    names : the labels. A pair of known neighbours is named; else a token whose labels are all forbidden, and
    then the token up to which no labelling is left.
    """
    single = np.where(held.single, held.sets.argmax(axis=1)[held.row], -1)
    labels = np.where(corpus.labels < 0, single, corpus.labels).astype(np.int32)
    found = violations(corpus._replace(labels=labels), constraints, names)
    lost = lost_tokens(corpus._replace(label_set=held.row), held.limits(constraints))
    for i in np.setdiff1d(np.flatnonzero(lost >= 0), [place[0] for place in found]).tolist():
        empty = not held.sets[held.row[corpus.seq_ptr[i] + lost[i]]].any()
        message = "all its labels are forbidden there" if empty else "up to here no labelling is left"
        found.append((i, int(lost[i]), message))
    return sorted(found)


def spelled_out(corpus, held):
    """The corpus, and after its sequences those that show what sets of labels may mean, to choose weights by.

    A token that is known as a set is shown once with each of its labels. So is each pair of neighbours that
    are known, one of them as a set, with all pairs of their labels: two tokens without attributes, whose
    weight is the number of such neighbours. A token of which nothing is known shows nothing.
    """
    size = held.sets.sum(axis=1)
    several = ((size > 1) & (held.sets != held.free).any(axis=1))[held.row]
    token = np.flatnonzero(several)
    alone, single = np.repeat(token, size[held.row[token]]), np.nonzero(held.sets[held.row[token]])[1]
    inner = corpus.inner
    shows = several | (corpus.labels >= 0)
    inner = inner[(several[inner] | several[inner - 1]) & shows[inner] & shows[inner - 1]]
    kinds = np.stack([corpus.edge_class[inner], held.row[inner - 1], held.row[inner]])
    kinds, one, count = np.unique(kinds, axis=1, return_index=True, return_counts=True)
    pairs = held.sets[kinds[1]][:, :, None] & held.sets[kinds[2]][:, None, :]
    kind, before, here = np.nonzero(pairs)
    tokens = np.concatenate([np.arange(corpus.n_tokens), alone, np.repeat(inner[one][kind], 2)])
    n_shown = corpus.n_tokens + len(alone)
    items, ptr = ragged_index(corpus.attr_ptr, tokens[:n_shown])
    lengths = [corpus.lengths, np.ones(len(alone), np.int64), np.full(len(kind), 2)]
    labels = np.concatenate([corpus.labels, single, np.stack([before, here], axis=1).reshape(-1)])
    return corpus._replace(
        seq_ptr=offsets(np.concatenate(lengths)),
        attr_ptr=np.append(ptr, np.full(len(tokens) - n_shown, ptr[-1])),
        attr_idx=corpus.attr_idx[items],
        attr_val=corpus.attr_val[items] if len(corpus.attr_val) else corpus.attr_val,
        edge_class=corpus.edge_class[tokens],
        labels=labels.astype(np.int32),
        seq_weight=np.concatenate([np.ones(corpus.n_sequences + len(alone)), count[kind]]),
        label_set=np.zeros(0, np.int32),
        link=np.zeros(0, np.int32),
    )
