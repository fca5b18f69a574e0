"""Which attributes share one dense row of weights (companions.py): decided once, from the data alone."""

import numpy as np

from crfbook.chain.companions import count_claims, find_companions
from crfbook.data.corpus import offsets

MIN_COUNT = (
    16  # a carrier's row is filled and collected at every evaluation: it must save more additions than that
)
MAX_COMPANIONS = 32
PASSES = 3  # claims of pairs that were dropped block others in the first pass


def find_bundles(corpus, n_attrs):
    """(carrier (C,), ptr (C+1,), member): attribute carrier[c] always comes with member[ptr[c]:ptr[c+1]],
    and carries them.

    In no token is an attribute carried twice, and what carries is not carried. Attributes with values, or
    repeated within a token, stay out. All int64; cost O(nnz) a few times over.
    """
    none = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
    if len(corpus.attr_val) or n_attrs == 0:
        return none
    count = np.bincount(corpus.attr_idx, minlength=n_attrs)
    carrier = np.flatnonzero(count >= MIN_COUNT)
    candidate = np.full(n_attrs, -1, np.int32)
    candidate[carrier] = np.arange(len(carrier))
    longest = int(np.diff(corpus.attr_ptr).max(initial=0))
    companion = np.zeros((len(carrier), min(longest, MAX_COMPANIONS)), np.int32)
    n_companions, repeated = np.full(len(carrier), -1, np.int32), np.zeros(n_attrs, np.uint8)
    find_companions(
        corpus.attr_ptr,
        corpus.attr_idx,
        candidate,
        companion,
        n_companions,
        repeated,
        np.full(n_attrs, -1, np.int64),
    )
    column = np.arange(companion.shape[1])
    keep = (column < n_companions[:, None]) & (repeated[companion] == 0) & (repeated[carrier] == 0)[:, None]
    for _ in range(PASSES):
        n_companions, companion = _keep(companion, keep)
        claims = np.zeros(companion.shape, np.int32)
        count_claims(
            corpus.attr_ptr,
            corpus.attr_idx,
            candidate,
            companion,
            n_companions,
            claims,
            np.full(n_attrs, -1, np.int64),
        )
        keep = (column < n_companions[:, None]) & (claims == count[carrier][:, None])
    n_members = keep.sum(axis=1)
    some = n_members > 0
    return carrier[some], offsets(n_members[some]), companion[keep].astype(np.int64)


def _keep(companion, keep):
    """Move what is kept to the front of each row: (how many (C,), rows)."""
    order = np.argsort(~keep, axis=1, kind="stable")
    return keep.sum(axis=1).astype(np.int32), np.ascontiguousarray(
        np.take_along_axis(companion, order, axis=1)
    )
