"""Hard constraints: which labels may follow one another, open a sequence, close it, or stand on a token.

A forbidden transition scores minus infinity in training and in decoding, so its probability is exactly 0
and no decoded path can contain it. That is not the same as a transition that was never seen in training:
an unseen transition merely has no weight of its own (it scores 0) and stays possible.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import shown, unexpected
from crfbook.evaluation.schemes import reading, scheme_named


class Constraints(NamedTuple):
    """What is allowed, in the order of the label ids.

    allowed : bool (L, L)   [previous, next]
    start : bool (L,)       labels that may stand on the first token
    end : bool (L,)         labels that may stand on the last token
    label_sets : bool (D, L)  labels that may stand on token t:
        row corpus.label_set[t] (see `tag_dictionary`); None: all
    """

    allowed: np.ndarray
    start: np.ndarray
    end: np.ndarray
    label_sets: np.ndarray | None = None


Limits = Constraints | None
ConstraintsLike = str | Constraints | Mapping[str, Any] | ArrayLike | None  # what `constraints_from` reads


class Bounds(NamedTuple):
    """Hard constraints as scores of M labels, of which L exist: 0 where allowed, -inf where not."""

    start: np.ndarray  # (M,): at first tokens
    middle: np.ndarray  # (M,): at all tokens: 0 for labels, -inf for padding
    end: np.ndarray  # (M,): at last tokens
    edge: np.ndarray  # (M, M) [previous, next]
    label_sets: np.ndarray  # (D, M): row `label_set[t]` of a corpus holds at token t


def bounds_of(constraints, n_labels, width=None):
    """`Bounds` of `Constraints`, or of None (everything is allowed), padded to `width` labels."""
    width, every = width or n_labels, np.ones(n_labels, bool)
    free = constraints is None and width == n_labels
    if constraints is None:
        constraints = Constraints(np.ones((n_labels, n_labels), bool), every, every)
    sets = np.zeros((0, n_labels), bool) if constraints.label_sets is None else constraints.label_sets

    def scores(allowed, *shape):
        out = np.full(shape, -np.inf)
        out[tuple(map(slice, allowed.shape))][allowed] = 0.0
        return out

    vectors = (scores(allowed, width) for allowed in (constraints.start, every, constraints.end))
    # a table of thousands of labels takes 40 MB and more; zeros take no memory until they are written to
    edge = np.zeros((width, width)) if free else scores(constraints.allowed, width, width)
    return Bounds(*vectors, edge, scores(sets, len(sets), width))


def constraints_from(spec, labels):
    """Turn what a user writes as `constraints=` into arrays.

    Parameters
    ----------
    spec : None, a name, Constraints, array (L, L), DataFrame, or dict
        * "BIO" (or "IOB2"): I-x only after B-x or I-x, hence never first (what CoNLL-2000 uses).
        * "IOB1": chunks begin with I-x; B-x only where it separates it from a chunk of the same type, that
          is after I-x or B-x, hence never first.
        * "BIOES" (or "IOBES"): B-x and I-x only before I-x or E-x, I-x and E-x only after B-x or I-x; S-x
          stands alone. "BILOU" (or "BILUO"): the same with L for E, and U for S.
        * "IO": forbids nothing; the labels are checked.
        Labels may be B-x, B_x, x-B or x_B (`crfbook.evaluation.schemes`).
        * a boolean table [previous, next] in the order of `labels` (all labels may start and end), or a
          DataFrame with the label names on both axes,
        * a dict with any of "allowed" (such a table), "start" and "end" (a boolean vector, or the collection
          of the labels that may).
    labels : sequence of L label objects; the index is the id.

    Returns
    -------
    Constraints, or None when `spec` is None.

    Raises
    ------
    ValueError : an unknown scheme; a label that the scheme cannot read; a table of another shape, that is
        not boolean, or that lacks a label.
    """
    if spec is None:
        return None
    labels = list(labels)
    if isinstance(spec, str):
        scheme = scheme_named(spec, "constraints", " or a boolean table")
        read = reading(labels, scheme.name, what="constraints")
        parts, outside = [read.split(label) for label in labels], ("O", "")
        return Constraints(
            np.array([[scheme.follows(p, n) for n in parts] for p in parts], dtype=bool),
            np.array([scheme.follows(outside, n) for n in parts], dtype=bool),
            np.array([scheme.follows(p, outside) for p in parts], dtype=bool),
        )
    if isinstance(spec, Constraints):
        sets, spec = spec.label_sets, spec._asdict()
        if sets is not None and (sets.dtype != bool or sets.shape[1:] != (len(labels),)):
            wanted = f"label_sets bool (D, {len(labels)})"
            raise unexpected("constraints", wanted, f"{sets.dtype} {sets.shape}")
        del spec["label_sets"]
        return constraints_from(spec, labels)._replace(label_sets=sets)
    if not isinstance(spec, dict):
        spec = {"allowed": spec}
    if unknown := sorted(map(str, set(spec) - {"allowed", "start", "end"})):
        raise ValueError(f"constraints: expected the keys 'allowed', 'start', 'end', got {shown(unknown[0])}")
    allowed = _table(spec.get("allowed"), labels)
    return Constraints(allowed, *(_vector(spec.get(name), labels, name) for name in ("start", "end")))


def check_constraints(constraints, n_labels):
    """ValueError unless `constraints` is None or `Constraints` of so many labels."""
    if constraints is None:
        return
    if not isinstance(constraints, Constraints):
        wanted = "Constraints or None (constraints_from makes them)"
        raise unexpected("constraints", wanted, shown(constraints))
    for name, shape in (("allowed", (n_labels, n_labels)), ("start", (n_labels,)), ("end", (n_labels,))):
        array = np.asarray(getattr(constraints, name))
        if array.shape != shape or array.dtype != bool:
            raise ValueError(f"constraints.{name}: expected bool {shape}, got {array.dtype} {array.shape}")


def check_label_set(corpus, constraints):
    """ValueError unless the rows that corpus.label_set names are rows of constraints.label_sets."""
    if len(corpus.label_set):
        sets = None if constraints is None else constraints.label_sets
        if sets is None or corpus.label_set.max() >= len(sets):
            wanted = f"rows of constraints.label_sets ({0 if sets is None else len(sets)} rows)"
            raise unexpected("label_set", wanted, f"row {corpus.label_set.max()}")


def violations(corpus, constraints, label_names):
    """All places where the labels of a corpus do what the constraints forbid.

    Returns a list of (sequence, token, message) in corpus order; the token counts from 0 inside its
    sequence. Unknown labels (-1) and sequences of length 0 violate nothing. Cost O(N).
    """
    check_label_set(corpus, constraints)
    if constraints is None:
        return []
    labels, sequence, position = corpus.labels, corpus.sequence, corpus.position
    first, last = np.zeros((2, len(labels)), bool)
    first[corpus.first], last[corpus.last] = True, True
    known = labels >= 0
    previous = np.roll(labels, 1)  # means nothing at first tokens
    pair = known & ~first & (previous >= 0)
    bad_pair = pair & ~constraints.allowed[previous, labels]
    bad_start = known & first & ~constraints.start[labels]
    bad_end = known & last & ~constraints.end[labels]
    bad_label = known & False
    if len(corpus.label_set):
        bad_label = known & ~constraints.label_sets[corpus.label_set, labels]
    found = []
    for t in np.flatnonzero(bad_pair | bad_start | bad_end | bad_label):
        name, place = shown(label_names[labels[t]]), (int(sequence[t]), int(position[t]))
        faults = (
            (bad_start, "may not start a sequence"),
            (bad_pair, f"may not follow {shown(label_names[previous[t]])}"),
            (bad_end, "may not end a sequence"),
            (bad_label, "is not among the labels of this token's word"),
        )
        found += [(*place, f"{name} {fault}") for bad, fault in faults if bad[t]]
    return found


def describe_violations(found, limit=5):
    """The first few violations as one text: "sequence 3, token 0: 'I-NP' may not start a sequence; ..."."""
    shown = "; ".join(f"sequence {s}, token {t}: {message}" for s, t, message in found[:limit])
    return shown if len(found) <= limit else f"{shown}; and {len(found) - limit} more"


def table_by_name(table, rows, columns):
    """An array of what a user gives as a table, a DataFrame in the order of these labels.

    ValueError for a DataFrame that lacks one of them, or has it twice; for rows of different lengths.
    """
    if hasattr(table, "loc"):
        for axis, names, labels in (("row", table.index, rows), ("column", table.columns, columns)):
            missing = [label for label in labels if label not in names]
            if missing:
                raise ValueError(f"constraints: the table has no {axis} for the label {shown(missing[0])}")
            if not names.is_unique:
                raise ValueError(f"constraints: expected one {axis} of the table for each label, got several")
        table = table.loc[rows, columns].to_numpy()
    try:
        return np.asarray(table)
    except ValueError:
        raise ValueError(f"constraints: expected a table, got {shown(table)}") from None


def _table(table, labels):
    n_labels = len(labels)
    if table is None:
        return np.ones((n_labels, n_labels), dtype=bool)
    table = table_by_name(table, labels, labels)  # rows are the previous label, columns the next one
    if table.shape != (n_labels, n_labels):
        wanted = (
            f"a table of shape ({n_labels}, {n_labels}) [previous, next], one row and column for each label"
        )
        raise unexpected("constraints", wanted, f"shape {table.shape}")
    if table.dtype != bool and not (table.dtype != object and np.isin(table, (0, 1)).all()):
        # a DataFrame with mixed columns gives an object table of True and False
        if table.dtype == object and all(isinstance(x, (bool, np.bool_)) for x in table.ravel()):
            return table.astype(bool)
        raise unexpected("constraints", "True or False everywhere in the table", f"{table.dtype} values")
    return np.ascontiguousarray(table.astype(bool))


def _vector(vector, labels, name):
    if vector is None:
        return np.ones(len(labels), dtype=bool)
    if isinstance(vector, str):
        wanted = "a boolean vector or a collection of labels for 'start' and 'end'"
        raise unexpected("constraints", wanted, f"the string {shown(vector)}")
    if isinstance(vector, (set, frozenset)) or np.asarray(list(vector)).dtype != bool:
        # label names that the training data lack are harmless: they cannot occur anyway
        may = set(vector)
        return np.array([label in may for label in labels], dtype=bool)
    vector = np.asarray(vector)
    if vector.shape != (len(labels),):
        wanted = f"{shown(name)} with {len(labels)} values, one for each label"
        raise unexpected("constraints", wanted, f"shape {vector.shape}")
    return vector.astype(bool)
