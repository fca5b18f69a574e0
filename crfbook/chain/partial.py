"""Training on labels that are partly known: the marginal likelihood, as the difference of two lattices.

    value(w) = sum_i weight_i (log Z_i - log Z_i(held)) + c2 |w|^2        in nats
    grad(w)  = expected counts - expected counts given what is known + 2 c2 w

Z(held) sums over the labellings that agree with what is known. Both sums run through the port of forms.py.
Where all labels are known, log Z(held) is their score, and nothing else is computed. Between known labels a
gap is on its own (the chain is Markov): the held lattice has the gaps alone, each with a known neighbour at
its ends, and all other tokens are constant counts. The difference is not convex.
Source: Tsuboi, Kashima, Mori, Oda and Matsumoto (2008); the cut at known labels is ours.
"""

from typing import NamedTuple

import numpy as np

from crfbook._checks import unexpected
from crfbook.chain.objective import Objective
from crfbook.data.corpus import offsets, ragged_index, stretches, take_sequences
from crfbook.data.features import empirical_counts
from crfbook.data.partial import lost_tokens


class Lattice(Objective):
    """sum_i weight_i log Z_i - w . counts, for counts (F,) that are given.

    numbers : int64 (S,), of the sequences in messages; None: 0, 1, 2, ...
    """

    def __init__(self, corpus, features, counts, numbers=None, **options):
        self._counts = counts
        super().__init__(corpus, features, **options)
        if numbers is not None:
            self._packing = self._packing._replace(sequence=numbers[self._packing.sequence])

    def _gold_counts(self, corpus):
        return self._counts


class Difference(NamedTuple):
    """What the free lattice is worth, less the held one; call it with weights to get (value, gradient)."""

    free: Objective  # with the counts of what is known
    held: Objective | None  # of what is not; None: all is known, and the value is convex

    def __call__(self, w):
        value, grad = self.free(w)
        if self.held is not None:
            less, slope = self.held(w)
            value, grad = value - less, grad - slope
        return value, grad

    @property
    def curvature(self):
        """That of the free lattice, see `Objective.curvature`: the difference may be negative."""
        return self.free.curvature


def partial_objective(corpus, held, features, *, c2=0.0, constraints=None, **options):
    """`Difference` for a corpus (S sequences) of which `Held` says what is known.

    options : n_threads, form, batch_tokens of `Objective`. Where all is known, the bits are those of
    `Objective`. Sequences of which nothing is known are left out: both lattices would be the same.
    Raises ValueError, naming the token, for what leaves a sequence no labelling.
    """
    lost = lost_tokens(corpus._replace(label_set=held.row), held.limits(constraints))
    for i in np.flatnonzero(lost >= 0)[:1].tolist():
        wanted = "a labelling up to here that agrees with the constraints and with what is known"
        raise unexpected(corpus.place(corpus.seq_ptr[i] + lost[i]), wanted, "none")
    spoken = held.spoken(corpus.sequence, corpus.n_sequences)
    corpus = corpus._replace(labels=held.labels(corpus))
    counts, numbers, every = empirical_counts(corpus, features), None, corpus
    if not spoken[corpus.filled].all():
        numbers = np.flatnonzero(spoken)
        every = take_sequences(corpus, numbers)
    free = Lattice(every, features, counts, numbers, c2=c2, constraints=constraints, **options)
    gap = spoken[corpus.sequence] & ~held.single
    if not gap.any():
        return Difference(free, None)
    part, numbers = _gaps(corpus, held, gap)
    inside = held.limits(constraints)  # a gap may begin and end with any label that its sets leave
    inside = inside._replace(start=np.ones_like(inside.start), end=np.ones_like(inside.end))
    options["constraints"] = inside
    return Difference(free, Lattice(part, features, np.zeros_like(counts), numbers, **options))


def _gaps(corpus, held, gap):
    """(the corpus of gaps with a known neighbour at their ends, the sequence of each).

    gap : bool (N,). Known neighbours have no attributes here: their scores are constant counts.
    """
    first, last = np.zeros((2, corpus.n_tokens), bool)
    first[corpus.first], last[corpus.last] = True, True
    begin = np.flatnonzero(gap & (first | ~np.append(False, gap[:-1])))
    end = np.flatnonzero(gap & (last | ~np.append(gap[1:], False))) + 1
    sequence = corpus.sequence[begin]
    begin, end = begin - ~first[begin], end + ~last[end - 1]
    token = stretches(begin, end - begin)
    items, ptr = ragged_index(corpus.attr_ptr, token[gap[token]])
    n_items = np.zeros(len(token), np.int64)
    n_items[gap[token]] = np.diff(ptr)
    none = np.zeros(0, np.int32)
    part = corpus._replace(
        seq_ptr=offsets(end - begin),
        attr_ptr=offsets(n_items),
        attr_idx=corpus.attr_idx[items],
        attr_val=corpus.attr_val[items] if len(corpus.attr_val) else corpus.attr_val,
        edge_class=corpus.edge_class[token],
        labels=np.full(len(token), -1, np.int32),
        seq_weight=corpus.seq_weight[sequence] if len(corpus.seq_weight) else corpus.seq_weight,
        label_set=held.row[token],
        link=none,
    )
    return part, sequence
