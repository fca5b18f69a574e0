"""The attribute side of a corpus: rows from lists of (token, attribute), sums of duplicates,
edge classes.
"""

from typing import NamedTuple

import numpy as np

from crfbook.data.corpus import offsets, owners, stretches

MAX_PRODUCT = 10**6  # attributes that several cells of one pattern give a token together
_BLOCK = 1 << 12  # tokens whose duplicates are looked for at once: limits the scratch memory


class Rows(NamedTuple):
    """The attribute side of a `Corpus`, same names, dtypes and shapes; `attr_val` None: all ones."""

    attr_ptr: np.ndarray
    attr_idx: np.ndarray
    attr_val: np.ndarray | None = None
    edge_class: np.ndarray | None = None
    class_ptr: np.ndarray | None = None
    class_attr: np.ndarray | None = None


def append_cell(part, codes, tabulated, size, place):
    """Key times size plus the cell's code, on the rows of `part`; rows without a code drop out.

    Numbers of values of a token's cells multiply: ValueError with place(token) where they pass MAX_PRODUCT.
    """
    rows, keys = part
    table, ptr = tabulated
    codes = codes if rows is None else codes[rows]
    if ptr is None:
        values = table[codes]
    else:
        sizes = ptr[codes + 1] - ptr[codes]
        if keys is not None and rows is not None:
            before, after = np.bincount(rows), np.bincount(rows, sizes)
            for token in np.flatnonzero((before > 1) & (after > MAX_PRODUCT))[:1]:
                many = f"its cells give {int(after[token]):,} attributes together"
                raise ValueError(f"{place(token)}: {many}, expected at most {MAX_PRODUCT:,}")
        rows = np.repeat(np.arange(len(codes)) if rows is None else rows, sizes)
        keys = None if keys is None else np.repeat(keys, sizes)
        values = table[stretches(ptr[codes], sizes)]
    has_value = values >= 0
    if not has_value.all():
        rows = np.flatnonzero(has_value) if rows is None else rows[has_value]
        keys = None if keys is None else keys[has_value]
        values = values[has_value]
    return rows, values.astype(np.int64) if keys is None else keys * size + values


def select_known(rows, values):
    """Keep the rows whose value is >= 0."""
    keep = values >= 0
    if keep.all():
        return rows, values
    return np.flatnonzero(keep) if rows is None else rows[keep], values[keep]


def gather(n, parts):
    """Merge parts (rows, ids) into ragged rows: (ptr int64 (n+1,), idx int32).

    `rows` rise (with repeats) and say whose the ids are; None stands for 0..n-1. Within a row the order is
    that of the parts. `parts` is emptied on the way, to free memory.
    """
    ptr = np.zeros(n + 1, np.int64)
    for rows, _ in parts:
        ptr[1:] += 1 if rows is None else np.bincount(rows, minlength=n)
    np.cumsum(ptr, out=ptr)
    fill = ptr[:-1].copy()
    idx = np.empty(ptr[-1], np.int32)
    for i in range(len(parts)):
        rows, ids = parts[i]
        parts[i] = None
        if rows is None:
            idx[fill] = ids
            fill += 1
        else:
            sizes = np.bincount(rows, minlength=n)
            first = np.cumsum(sizes) - sizes
            idx[(fill - first)[rows] + np.arange(len(rows))] = ids
            fill += sizes
    parts.clear()
    return ptr, idx


def sum_duplicates(ptr, idx, val):
    """Attributes that occur twice at a token become one whose values are added.

    Returns (ptr, idx, val) unchanged if there are none; else rows come back sorted by attribute id.
    `val` may be None (all ones).
    """
    n = len(ptr) - 1
    width = int(idx.max(initial=-1)) + 1
    blocks, twice = [], False
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        low, high = ptr[start], ptr[stop]
        row = owners(ptr[start : stop + 1])
        key = row * width + idx[low:high]
        ordered = np.sort(key)
        twice = twice or bool((ordered[1:] == ordered[:-1]).any())
        if twice:
            break
    if not twice:
        return ptr, idx, val
    new_ptr = np.zeros(n + 1, np.int64)
    for start in range(0, n, _BLOCK):
        stop = min(n, start + _BLOCK)
        low, high = ptr[start], ptr[stop]
        row = owners(ptr[start : stop + 1])
        key, inverse = np.unique(row * width + idx[low:high], return_inverse=True)
        summed = np.bincount(inverse, None if val is None else val[low:high], minlength=len(key))
        new_ptr[start + 1 : stop + 1] = np.bincount(key // width, minlength=stop - start) if width else 0
        blocks.append(
            ((key % width).astype(np.int32) if width else key.astype(np.int32), summed.astype(np.float64))
        )
    return np.cumsum(new_ptr), np.concatenate([b[0] for b in blocks]), np.concatenate([b[1] for b in blocks])


def edge_classes(n, inner, parts, n_edge_attrs):
    """Classes of tokens with the same set of edge attributes.

    inner: int64, the tokens that are not first in their sequence; parts: (rows, ids) as for `gather`, with
    rows among `inner` and ids 1 .. n_edge_attrs-1. Each class also has the constant attribute 0.
    Classes are numbered by their sets (shorter first where one begins the other), so they do not depend on
    the order of the data. Returns (edge_class int32 (n,), class_ptr int64, class_attr int32).
    """
    ptr, idx = gather(n, parts)
    row = owners(ptr)
    key = np.unique(row * n_edge_attrs + idx)  # sets: each attribute once, in rising order
    row, idx = key // n_edge_attrs, key % n_edge_attrs
    size = np.bincount(row, minlength=n)
    first = np.cumsum(size) - size
    code = np.zeros(len(inner), np.int64)
    for slot in range(int(size.max(initial=0))):
        has = size[inner] > slot
        code *= n_edge_attrs
        code[has] += idx[first[inner[has]] + slot]
        code = np.unique(code, return_inverse=True)[1]
    edge_class = np.zeros(n, np.int32)
    if len(inner) == 0:
        return edge_class, np.array([0, 1], np.int64), np.zeros(1, np.int32)
    _, example = np.unique(code, return_index=True)
    edge_class[inner] = code
    sets = [np.concatenate([[0], idx[first[t] : first[t] + size[t]]]) for t in inner[example].tolist()]
    return edge_class, offsets([len(s) for s in sets]), np.concatenate(sets).astype(np.int32)
