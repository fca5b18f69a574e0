"""What an encoder may be given as X, brought to one of three forms: columns, flat tokens, matrices."""

from itertools import chain

import numpy as np

from crfbook.data.corpus import offsets
from crfbook.data.vocabulary import where
from crfbook.encoding.templates import available


def is_columns(X):
    """Is X a `TokenColumns`, or anything with its `columns` and `seq_ptr`?"""
    return hasattr(X, "columns") and hasattr(X, "seq_ptr")


def kind_of(X, template):
    """The form that X is to be read in: "template", "items" or "matrix";
    None if X holds no token to tell it by.
    """
    if template is not None:
        return "template"
    if is_columns(X):
        raise ValueError(
            "columns of strings need a template: a file, a text, "
            f"or one of the shipped ones ({', '.join(available())})"
        )
    first = next((sequence for sequence in X if _length(sequence)), None)
    if first is None:
        return None
    dense = isinstance(first, np.ndarray) and (first.ndim != 1 or first.dtype.kind in "biuf")
    return "matrix" if dense or hasattr(first, "tocsr") else "items"


def pointers(sequences):
    """int64 (S+1,): where each sequence begins in the flat order."""
    return offsets([_length(sequence) for sequence in sequences])


def as_sequences(X):
    """X as a list of sequences with lengths. Raises TypeError for one sequence in place of a list of them."""
    if isinstance(X, (str, bytes, dict)) or not hasattr(X, "__iter__"):
        raise TypeError(f"X: expected a list of sequences, got {type(X).__name__}")
    sequences = []
    for i, sequence in enumerate(X):
        if isinstance(sequence, (str, bytes, dict)):
            raise TypeError(
                f"sequence {i}: expected a list of tokens, "
                f"got {sequence!r} (X is a list of sequences of tokens)"
            )
        if not hasattr(sequence, "__len__"):
            if hasattr(sequence, "items"):  # pycrfsuite.ItemSequence
                sequence = sequence.items()
            elif hasattr(sequence, "__iter__"):
                sequence = list(sequence)
            else:
                raise TypeError(f"sequence {i}: expected a list of tokens, got {sequence!r}")
        elif hasattr(sequence, "items") and callable(sequence.items):
            sequence = sequence.items()
        sequences.append(sequence)
    return sequences


def as_columns(X, names):
    """(columns {name: flat list}, seq_ptr) from a `TokenColumns` or sequences of strings,
    tuples or dicts of cells.

    A string is a token of one column; the places of a tuple are columns called as in `names` (those seen at
    fit, or None), else "0", "1", ...; a dict has its columns by name. Raises ValueError or TypeError naming
    sequence and token where a token has another form than the first one.
    """
    if is_columns(X):
        return X.columns, X.seq_ptr
    sequences = as_sequences(X)
    seq_ptr = pointers(sequences)
    tokens = list(chain.from_iterable(sequences))
    first = tokens[0] if tokens else ""
    if isinstance(first, dict):
        keys = list(first)
        rows = [tuple(map(token.get, keys)) if isinstance(token, dict) else token for token in tokens]
    elif isinstance(first, str):
        keys, rows = ["0"], [(token,) if isinstance(token, str) else token for token in tokens]
    else:
        keys, rows = [str(j) for j in range(len(first))] if isinstance(first, (tuple, list)) else [], tokens
    if not isinstance(first, dict) and names is not None:
        keys = [names[j] if j < len(names) else key for j, key in enumerate(keys)]
    sizes = {len(row) if isinstance(row, (tuple, list)) else -1 for row in rows}
    if not keys or sizes - {len(keys)}:
        _complain(rows, len(keys), seq_ptr)
    return {key: [row[j] for row in rows] for j, key in enumerate(keys)}, seq_ptr


def _complain(rows, n, seq_ptr):
    for t, row in enumerate(rows):
        if not isinstance(row, (tuple, list)):
            raise TypeError(
                f"{where(t, seq_ptr)}: expected cells of the same form as in the first token, got {row!r}"
            )
        if len(row) != n or n == 0:
            raise ValueError(
                f"{where(t, seq_ptr)}: expected {max(n, 1)} cells as in the first token, got {len(row)}"
            )


def _length(sequence):
    return sequence.shape[0] if hasattr(sequence, "tocsr") else len(sequence)
