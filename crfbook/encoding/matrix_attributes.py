"""Attributes given as numbers: one dense array or scipy.sparse matrix (T_i, A) for each sequence.

Column j is attribute "j", or has the j-th of the names one gives. Zeros are absent; a column that is zero
throughout training is no attribute.
"""

import numpy as np

from crfbook.data.corpus import offsets, owners
from crfbook.data.vocabulary import falling_order, pack_strings, unpack_strings
from crfbook.encoding.assemble import Rows


class MatrixAttributes:
    """Alphabet of columns; ids by falling number of non-zero entries, then by column."""

    kind = "matrix"
    n_edge_attrs = 1

    def __init__(self, column_names=None):
        self.column_names = None if column_names is None else list(column_names)
        self.n_columns, self.columns = 0, np.zeros(0, np.int64)

    @property
    def n_attrs(self):
        return len(self.columns)

    def learn(self, matrices, seq_ptr, min_freq):
        """Build the alphabet; returns (Rows, non-zero entries of each attribute)."""
        self.n_columns = next((matrix.shape[1] for matrix in matrices if matrix.shape[0]), 0)
        if self.column_names is not None and len(self.column_names) != self.n_columns:
            raise ValueError(f"{len(self.column_names)} attribute names for {self.n_columns} columns")
        ptr, column, val = self._read(matrices)
        counts = np.bincount(column, minlength=self.n_columns)
        kept = np.flatnonzero(counts >= max(min_freq, 1))
        self.columns = kept[falling_order(counts[kept])[0]]
        return self._rows(ptr, column, val), counts[self.columns]

    def apply(self, matrices, seq_ptr):
        """Rows of other matrices; columns without an attribute are left out."""
        return self._rows(*self._read(matrices))

    def node_names(self, ids=None):
        """Names of the columns in the order of ids."""
        columns = (self.columns if ids is None else self.columns[np.asarray(ids, np.int64)]).tolist()
        return [str(j) if self.column_names is None else self.column_names[j] for j in columns]

    def edge_names(self):
        """There is only the constant one."""
        return ["B"]

    def get_state(self):
        """(JSON-able header, dict of arrays)."""
        text, ptr = pack_strings(self.column_names or [])
        arrays = {"columns": self.columns, "names_text": text, "names_ptr": ptr}
        return {"n_columns": self.n_columns, "named": self.column_names is not None}, arrays

    @classmethod
    def from_state(cls, header, arrays):
        """The inverse of `get_state`."""
        new = cls(unpack_strings(arrays["names_text"], arrays["names_ptr"]) if header["named"] else None)
        new.n_columns, new.columns = header["n_columns"], arrays["columns"]
        return new

    def _rows(self, ptr, column, val):
        ids = np.full(self.n_columns, -1, np.int32)
        ids[self.columns] = np.arange(self.n_attrs, dtype=np.int32)
        idx = ids[column]
        known = idx >= 0
        if not known.all():
            ptr, idx, val = offsets(known)[ptr], idx[known], val[known]
        return Rows(ptr, idx, None if (val == 1).all() else val)

    def _read(self, matrices):
        """All matrices as one CSR: (ptr int64 (N+1,), column int (nnz,), value float64 (nnz,)),
        zeros left out.
        """
        sizes, columns, values = [], [np.zeros(0, np.int64)], [np.zeros(0)]
        for i, matrix in enumerate(matrices):
            if matrix.shape[0] == 0:
                continue
            if matrix.shape[1] != self.n_columns:
                raise ValueError(f"sequence {i}: expected {self.n_columns} columns, got {matrix.shape[1]}")
            row, column, value = _entries(matrix)
            bad = ~np.isfinite(value)
            if bad.any():
                k = int(np.argmax(bad))
                raise ValueError(
                    f"sequence {i}, token {row[k]}, column {column[k]}: "
                    f"expected a finite number, got {value[k]}"
                )
            sizes.append(np.bincount(row, minlength=matrix.shape[0]))
            columns.append(column)
            values.append(value)
        ptr = np.concatenate([np.zeros(1, np.int64), *sizes]).cumsum()
        return ptr, np.concatenate(columns), np.concatenate(values)


def checked_matrix(i, matrix):
    """Sequence i as something with `.shape` (T, A) and numbers inside.
    Raises ValueError or TypeError naming it.
    """
    if not hasattr(matrix, "tocsr"):
        matrix = np.asarray(matrix)
        if matrix.ndim == 1 and matrix.size == 0:
            matrix = np.zeros((0, 0))
    if len(matrix.shape) != 2:
        raise ValueError(
            f"sequence {i}: expected an array of shape (tokens, attributes), got shape {matrix.shape}"
        )
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"sequence {i}: expected an array of real numbers, got dtype {matrix.dtype}")
    return matrix


def _entries(matrix):
    """(row, column, value float64) of what is not zero, by rows."""
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocsr().copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return owners(matrix.indptr), matrix.indices.astype(np.int64), matrix.data.astype(np.float64)
    row, column = np.nonzero(matrix)
    return row, column, matrix[row, column].astype(np.float64)
