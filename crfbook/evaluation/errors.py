"""What went wrong: the fate of each chunk, and which labels are taken for which."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .conlleval import TAGS, Labels, flatten
from .counts import check_lengths

if TYPE_CHECKING:
    import pandas as pd


def chunks(labels: Sequence[Hashable], scheme: str = "conlleval") -> list[tuple[str, int, int]]:
    """Chunks of one sequence, by the same rules: list of (type, start, stop), tokens start:stop."""
    types = {"": 0}
    flat = flatten([labels], dict(TAGS), types, scheme == "IOBES")
    names = list(types)
    found, start = [], None
    for t in range(len(labels) + 1):
        if flat.ends[t] and start is not None:
            found.append((names[flat.type[start]], start, t))
            start = None
        if flat.starts[t]:
            start = t
    return found


def error_table(gold: Labels, predicted: Labels, scheme: str = "conlleval") -> pd.DataFrame:
    """What became of each gold chunk, by type: DataFrame; and `spurious`,
    the predicted chunks that touch no gold chunk.

    correct: same span and type. wrong_type: same span. wrong_boundary: a predicted chunk of the same type
    overlaps. wrong_both: one of another type overlaps. missed: none overlaps. The first that holds;
    these five add up to the gold chunks.
    """
    import pandas as pd

    check_lengths(gold, predicted)
    kinds = ["correct", "wrong_type", "wrong_boundary", "wrong_both", "missed", "spurious"]
    counts = {}
    for labels, guess in zip(gold, predicted, strict=True):
        ours, theirs = chunks(labels, scheme), chunks(guess, scheme)
        for chunk in ours:
            counts.setdefault(chunk[0], dict.fromkeys(kinds, 0))[_fate(chunk, theirs)] += 1
        for chunk in theirs:
            row = counts.setdefault(chunk[0], dict.fromkeys(kinds, 0))
            row["spurious"] += not any(_overlap(chunk, other) for other in ours)
    frame = pd.DataFrame.from_dict(counts, orient="index", columns=kinds).sort_index()
    return frame.rename_axis("type").astype(np.int64)


def _overlap(a, b):
    return a[1] < b[2] and b[1] < a[2]


def _fate(chunk, others):
    touching = [other for other in others if _overlap(chunk, other)]
    if chunk in touching:
        return "correct"
    if any(other[1:] == chunk[1:] for other in touching):
        return "wrong_type"
    if any(other[0] == chunk[0] for other in touching):
        return "wrong_boundary"
    return "wrong_both" if touching else "missed"


def confusion(gold: Labels, predicted: Labels, labels: Sequence[Hashable] | None = None) -> pd.DataFrame:
    """Token counts as a DataFrame, gold labels down, predicted across;
    `labels` fixes rows and columns (default: all, sorted).
    """
    import pandas as pd

    check_lengths(gold, predicted)
    if labels is None:
        seen = {label for side in (gold, predicted) for sequence in side for label in sequence}
        labels = sorted(
            seen,
            key=lambda label: (
                (str(type(label)), label) if isinstance(label, (int, str)) else ("~", str(label))
            ),
        )
    index = {label: i for i, label in enumerate(labels)}
    pairs = [
        (index[x], index[z])
        for a, b in zip(gold, predicted, strict=True)
        for x, z in zip(a, b, strict=True)
        if x in index and z in index
    ]
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    if pairs:
        np.add.at(counts, tuple(np.array(pairs).T), 1)
    return pd.DataFrame(
        counts,
        index=pd.Index(labels, name="gold", tupleize_cols=False),
        columns=pd.Index(labels, name="predicted", tupleize_cols=False),
    )
