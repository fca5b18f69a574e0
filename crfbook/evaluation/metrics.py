"""Metrics of two labellings: rates of tokens and chunks, the kind of error of each chunk, confusions of
labels.

`crfbook/evaluation/schemes.py` says where chunks start and end; which of them two labellings share is decided
here, by the rule of conlleval.pl, on arrays. A bootstrap over sentences gives intervals of a rate, and tests
compare two systems on the same sentences. A token whose gold label is None is masked: it counts nowhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .schemes import TAGS, Reading, chunk_lists, flatten, reading_of, refuse_sets

if TYPE_CHECKING:
    import pandas as pd

Labels = Sequence[Sequence[Hashable]]


def correct_ends(gold, found):
    """Positions just after chunks that both labellings have, (n+1,): conlleval's `inCorrect` without a loop.

    The end of the file closes an open chunk, also one of an unknown prefix that no rule has ended.
    """
    same = gold.type == found.type
    opened = gold.starts & found.starts & same
    closed = gold.ends & found.ends  # the script also compares types, which are the same inside
    event = opened | closed | (gold.ends != found.ends) | ~same
    last = np.maximum.accumulate(np.where(event, np.arange(len(event)), -1))
    inside = np.where(last >= 0, opened[last], False)  # after position t: the last event was an opening
    return np.append(closed, True) & np.append(False, inside)


# columns of the counts that every chunk metric is made of
CORRECT, GOLD, PREDICTED, TOKENS, RIGHT_TOKENS, SENTENCES, RIGHT_SENTENCES = range(7)
METRICS = {
    "f1": lambda n: _ratio(2.0 * n[..., CORRECT], n[..., GOLD] + n[..., PREDICTED]),
    "precision": lambda n: _ratio(n[..., CORRECT], n[..., PREDICTED]),
    "recall": lambda n: _ratio(n[..., CORRECT], n[..., GOLD]),
    "accuracy": lambda n: _ratio(n[..., RIGHT_TOKENS], n[..., TOKENS]),
    "sentence_accuracy": lambda n: _ratio(n[..., RIGHT_SENTENCES], n[..., SENTENCES]),
}


def _ratio(part, whole):
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.divide(part, whole, out=np.zeros(np.broadcast(part, whole).shape), where=whole > 0)


def metric_function(name):
    if name not in tuple(METRICS):
        raise ValueError(f"metric: expected one of {', '.join(METRICS)}, got {name!r:.80}")
    return METRICS[name]


def check_lengths(gold, predicted):
    """Raise ValueError naming the first sequence whose two labellings differ in length."""
    if len(gold) != len(predicted):
        both = f"{len(predicted)} and {len(gold)}"
        raise ValueError(f"expected as many predicted as gold sequences, got {both}")
    for i, (a, b) in enumerate(zip(gold, predicted, strict=True)):
        if len(a) != len(b):
            wanted = f"{len(a)} predicted labels (one for each gold label)"
            raise ValueError(f"sequence {i}: expected {wanted}, got {len(b)}")


def unmasked(gold, *predicted):
    """Labellings without the tokens whose gold label is None, and without sequences of nothing else.

    Raises ValueError naming the place: sequences that differ in length; a predicted label of None where gold
    has one; a set of labels; -100 as the only negative number among gold labels, which looks like padding.
    """
    for labels in predicted:
        check_lengths(gold, labels)
    gold, *predicted = (  # a column of a table has places of its own
        [row if isinstance(row, list | tuple | np.ndarray) else list(row) for row in labels]
        for labels in (gold, *predicted)
    )
    refuse_sets(gold)
    places = [[t for t, label in enumerate(row) if label is not None] for row in gold]
    padded = {y for row in gold for y in row if isinstance(y, int | float | np.number) and y < 0} == {-100}
    for i, kept in enumerate(places):
        if padded and (found := [t for t in kept if gold[i][t] == -100]):
            number = f"the only label below 0, {gold[i][found[0]]}"
            question = f"{number}: is it padding? Write None, which counts nowhere"
            raise ValueError(f"sequence {i}, token {found[0]}: expected a label, got {question}")
        if found := [t for t in kept for labels in predicted if labels[i][t] is None]:
            wanted = "expected a predicted label, got None, which masks gold labels alone"
            raise ValueError(f"sequence {i}, token {found[0]}: {wanted}")
    if sum(map(len, places)) == sum(map(len, gold)):
        return gold, *predicted
    rows = [i for i, kept in enumerate(places) if len(kept) or not len(gold[i])]
    return tuple([[labels[i][t] for t in places[i]] for i in rows] for labels in (gold, *predicted))


def token_accuracy(gold: Labels, predicted: Labels) -> float:
    """Share of the tokens whose label is right; 0.0 without tokens. Labels are any objects that compare."""
    gold, predicted = unmasked(gold, predicted)
    n_tokens = sum(len(labels) for labels in gold)
    right = sum(bool(x == z) for a, b in zip(gold, predicted, strict=True) for x, z in zip(a, b, strict=True))
    return right / n_tokens if n_tokens else 0.0


def readable(gold, predicted, scheme, strict=False, metric="f1"):
    """(`Reading` for this metric, gold, each of `predicted`); masked tokens are left out."""
    gold, *found = unmasked(gold, *predicted)
    if metric not in ("f1", "precision", "recall"):
        return Reading(None), gold, *found
    return reading_of(gold, scheme, strict, say=True, others=chain(*found), level=4), gold, *found


def count_chunks(gold, predicted, read, strict=False):
    """(counts (S, 7) of each sequence, {type: (correct, gold, predicted)})."""
    tags, types = dict(TAGS), {"": 0}
    a, b = (flatten(labels, read, tags, types, strict) for labels in (gold, predicted))
    length = np.array([len(labels) for labels in gold], dtype=np.int64)
    sentence = np.repeat(np.arange(len(length)), length + 1)
    correct = correct_ends(a, b)
    right = (a.tag == b.tag) & (a.type == b.type)
    before = np.flatnonzero(correct) - 1  # last tokens of chunks found
    chosen = before, a.starts, b.starts, right
    per_sentence = [np.bincount(sentence[tokens], minlength=len(length)) for tokens in chosen]
    n_right = per_sentence[3] - 1  # the boundary token is always right
    counts = np.stack([*per_sentence[:3], length, n_right, np.ones_like(length), n_right == length], axis=1)
    of_type = a.type[before], a.type[a.starts], b.type[b.starts]
    table = np.stack([np.bincount(ids, minlength=len(types)) for ids in of_type], axis=1)
    by_type = {name: tuple(row) for name, row in zip(types, table.tolist(), strict=True) if row[1] or row[2]}
    return counts, by_type


class ChunkReport(NamedTuple):
    """Chunk counts of a test set; rates are fractions, 0.0 where nothing was to be counted."""

    n_tokens: int
    n_gold: int
    n_predicted: int
    n_correct: int
    accuracy: float  # of tokens
    precision: float
    recall: float
    f1: float
    by_type: dict  # type -> (correct, gold, predicted)

    def to_frame(self) -> pd.DataFrame:
        """DataFrame, a row for each type: correct, gold, predicted, precision, recall, f1."""
        import pandas as pd

        names = sorted(self.by_type)
        counts = np.array([self.by_type[name] for name in names], dtype=np.int64).reshape(-1, 3)
        frame = pd.DataFrame(counts, columns=["correct", "gold", "predicted"], index=names)
        for name in ("precision", "recall", "f1"):
            frame[name] = METRICS[name](counts)
        return frame.rename_axis("type")

    def text(self) -> str:
        """The lines that conlleval prints, in per cent."""
        lines = [
            f"processed {self.n_tokens} tokens with {self.n_gold} phrases; "
            f"found: {self.n_predicted} phrases; correct: {self.n_correct}."
        ]
        if self.n_tokens:
            rates = _percentages(self.n_correct, self.n_gold, self.n_predicted)
            lines.append(f"accuracy: {100 * self.accuracy:6.2f}%; {rates}")
        for name, row in sorted(self.by_type.items()):
            lines.append(f"{name:>17}: {_percentages(*row)}  {row[PREDICTED]}")
        return "\n".join(lines)


def _percentages(n_correct, n_gold, n_predicted):
    precision = 100 * n_correct / n_predicted if n_predicted else 0.0
    recall = 100 * n_correct / n_gold if n_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


def chunk_report(
    gold: Labels, predicted: Labels, scheme: str = "conlleval", strict: bool = False
) -> ChunkReport:
    """`ChunkReport`: precision, recall and F1 of chunks (type, first and last token right), also by type.

    scheme : "conlleval": chunks start and end as in conlleval.pl (Tjong Kim Sang, version of 2004-01-26),
        which reads IOB1, IOB2, IOE1 and IOE2 and broken sequences (O then I-X starts a chunk). It does not
        read S, and of BIOES neighbours of one type run together. A name of `SCHEMES` or `ALIASES`: the same
        rules, and what is missing in them. "auto": the scheme that the labels have; one line is printed.
    strict : chunks that the scheme forbids are none, as in seqeval's strict mode.

    Sequences never share a chunk. A gold label None masks its token: it is left out on both sides.
    Raises ValueError naming the sequence whose lengths differ, and labels that the scheme does not read. With
    "conlleval" labels of no scheme are warned of: what they mark is not counted.
    """
    read, gold, predicted = readable(gold, [predicted], scheme, strict)
    counts, by_type = count_chunks(gold, predicted, read, strict)
    total = counts.sum(axis=0)
    rates = (float(METRICS[name](total)) for name in ("accuracy", "precision", "recall", "f1"))
    sizes = (int(total[column]) for column in (TOKENS, GOLD, PREDICTED, CORRECT))
    return ChunkReport._make([*sizes, *rates, by_type])


def chunk_score(
    gold: Labels, predicted: Labels, metric: str = "f1", scheme: str | Reading = "auto", strict: bool = False
) -> float:
    """ "f1", "precision" or "recall" of chunks alone, as a number for scorers; "auto" prints nothing.

    Arguments and errors are those of `chunk_report`.
    """
    rate = metric_function(metric)
    gold, predicted = unmasked(gold, predicted)
    read = reading_of(gold, scheme, strict, others=predicted)
    return float(rate(count_chunks(gold, predicted, read, strict)[0].sum(axis=0)))


def error_table(
    gold: Labels, predicted: Labels, scheme: str = "conlleval", strict: bool = False
) -> pd.DataFrame:
    """DataFrame of what became of the gold chunks of each type. scheme, strict : as in `chunk_report`.

    correct: same span and type. wrong_type: same span. wrong_boundary: a predicted chunk of the same type
    overlaps. wrong_both: one of another type overlaps. missed: none overlaps. The first that holds;
    these five add up to the gold chunks. spurious: predicted chunks that overlap no gold chunk.
    """
    import pandas as pd

    read, gold, predicted = readable(gold, [predicted], scheme, strict)
    kinds = ["correct", "wrong_type", "wrong_boundary", "wrong_both", "missed", "spurious"]
    counts: dict[str, dict[str, int]] = {}
    for ours, theirs in zip(*(chunk_lists(rows, read, strict) for rows in (gold, predicted)), strict=True):
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
    """Token counts as a DataFrame: gold labels down, predicted labels across.

    labels : those of the rows and columns, in order; None: all, sorted.
    """
    import pandas as pd

    gold, predicted = unmasked(gold, predicted)
    if labels is None:
        seen = {label for side in (gold, predicted) for sequence in side for label in sequence}
        labels = sorted(seen, key=_rank)
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
    axes = (pd.Index(labels, name=side, tupleize_cols=False) for side in ("gold", "predicted"))
    return pd.DataFrame(counts, *axes)


def _rank(label):
    """Key to sort by type, then by value; objects without an order sort by their text."""
    return (str(type(label)), label) if isinstance(label, (int, str)) else ("~", str(label))


class Interval(NamedTuple):
    value: float
    low: float
    high: float


class PairedTest(NamedTuple):
    difference: float  # metric of b minus metric of a
    p_value: float  # two-sided
    value_a: float
    value_b: float


def generator(random_state):
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    return np.random.default_rng(random_state)


def resample(counts, n_samples, rng):
    """Sums (n_samples, ...) of `counts` (S, ...) over S sentences drawn with replacement."""
    size = len(counts)
    return np.stack([counts[rng.integers(size, size=size)].sum(axis=0) for _ in range(n_samples)])


def bootstrap_interval(
    gold: Labels, predicted: Labels, metric: str = "f1", *, level: float = 0.95, n_samples: int = 1000,
    random_state: Any = 0, scheme: str = "conlleval", strict: bool = False,
) -> Interval:  # fmt: skip
    """Percentile bootstrap interval of a metric, resampling whole sentences: `Interval(value, low, high)`.

    metric : "f1", "precision", "recall" (of chunks), "accuracy" (of tokens), "sentence_accuracy".
    level : probability that the interval covers.
    n_samples : resamples.
    random_state : as in scikit-learn.
    scheme, strict : as in `chunk_report`.
    """
    rate = metric_function(metric)
    if len(gold) == 0 or not 0 < level < 1 or n_samples < 1:
        got = f"{len(gold)}, {level} and {n_samples}"
        raise ValueError(f"expected sentences, 0 < level < 1 and n_samples >= 1, got {got}")
    read, gold, predicted = readable(gold, [predicted], scheme, strict, metric)
    counts, _ = count_chunks(gold, predicted, read, strict)
    values = rate(resample(counts, n_samples, generator(random_state)))
    low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(rate(counts.sum(axis=0))), float(low), float(high))


def paired_test(
    gold: Labels, predicted_a: Labels, predicted_b: Labels, metric: str = "f1", *,
    method: str = "randomisation", n_samples: int = 10000, random_state: Any = 0, scheme: str = "conlleval",
    strict: bool = False,
) -> PairedTest:  # fmt: skip
    """Is system b better than a on the same sentences? `PairedTest(difference, p_value, value_a, value_b)`.

    method : "randomisation" (Noreen 1989; Yeh 2000): the two outputs of each sentence are swapped with
        probability 1/2; p is the share of such shuffles whose difference is at least as large as ours, in
        either direction. "bootstrap": sentences are resampled; p is twice the smaller share of samples on one
        side of zero.
    metric, n_samples, random_state, scheme, strict : as in `bootstrap_interval`.
    Both count the sample at hand, so p is never 0.
    """
    rate = metric_function(metric)
    if method not in ("randomisation", "bootstrap"):
        raise ValueError(f'method: expected "randomisation" or "bootstrap", got {method!r:.80}')
    if len(gold) == 0 or n_samples < 1:
        raise ValueError(f"expected sentences and n_samples >= 1, got {len(gold)} and {n_samples}")
    read, gold, *both = readable(gold, [predicted_a, predicted_b], scheme, strict, metric)
    a, b = (count_chunks(gold, labels, read, strict)[0] for labels in both)
    total_a, total_b = a.sum(axis=0), b.sum(axis=0)
    value_a, value_b = float(rate(total_a)), float(rate(total_b))
    rng, slack = generator(random_state), 1e-12  # equal shuffles count as equal in spite of rounding
    if method == "bootstrap":
        sums = resample(np.stack([a, b], axis=1), n_samples, rng)
        moved = rate(sums[:, 1]) - rate(sums[:, 0])
        one_side = min((moved <= slack).sum(), (moved >= -slack).sum())
        p_value = min(1.0, 2.0 * (one_side + 1) / (n_samples + 1))
    else:
        change = (b - a)[(a != b).any(axis=1)].astype(np.float64)
        at_least = 1
        for first in range(0, n_samples, 500):
            swap = rng.integers(0, 2, size=(min(500, n_samples - first), len(change))) @ change
            shuffled = rate(total_b - swap) - rate(total_a + swap)
            at_least += int((np.abs(shuffled) >= abs(value_b - value_a) - slack).sum())
        p_value = at_least / (n_samples + 1)
    return PairedTest(value_b - value_a, float(p_value), value_a, value_b)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """The p-values (n,) of n tests, corrected for their number (Holm 1979), in their order.

    Reject where a corrected value is at most a: the probability of a false rejection is then at most a.
    Raises ValueError for values outside [0, 1].
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p_values: expected numbers from 0 to 1, (n,), got {p_values!r:.80}")
    order, corrected = np.argsort(p, kind="stable"), np.empty(len(p))
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(corrected, 1.0)
