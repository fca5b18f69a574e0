"""Numbers with their errors, and rules that say whether they are on the side that a paper claims."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from crfbook.evaluation import holm

LEAST_P = 1e-4  # of 10,000 permutations
SINGLE = 2.5  # the most by which single timings of one pass differed in a record (07_race.csv of 2026-11-23)
SHOWN = 6  # numbers of a claim, one by one


def two_digits(x):
    """A number of two digits; from 100 on a whole number, so that none has a power of ten."""
    return f"{x:,.0f}" if abs(x) >= 99.5 else f"{x:.2g}"


class Found(NamedTuple):
    """A number, and half of its 95 % interval: 0 for a count, infinity where one run says nothing of it."""

    value: float
    error: float = 0.0
    p: float = math.nan  # of the paired test that the error is made from
    df: float = math.inf  # of the interval, Student's t; 0: the error is a bound, and no test
    factor: float = 1.0  # of a ratio that is good to this factor, either way

    def __str__(self):
        text = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        if not math.isnan(self.p):
            return f"{text} (p {self.p:.2g})"
        if self.factor > 1.0:
            least, most = self.value / self.factor, self.value * self.factor
            return f"{text} ({two_digits(least)} to {two_digits(most)})"
        return f"{text} ±{self.error:.2g}" if 0.0 < self.error < math.inf else text


class Claim(NamedTuple):
    """One row of a paper's table.

    rule : `Found` -> how far it is on the claimed side, below 0 on the other; None for what is not judged.
    paper : its numbers, to which the rule applies, too; or words. ours : a list of `Found`, or why there are
    none. where : "NN, " and the heading, table or figure of that chapter. unjudged : the verdict without one.
    budget : what the paper spent; ours, where that differs or matters.
    """

    claim: str
    rule: Callable | None
    paper: list | str
    ours: list | str
    where: str
    unjudged: str = "not tested"
    budget: str = "-"


def at(*rows):
    """Yield `Claim`s: rows (claim, rule, paper, ours), or with `unjudged` at the end. A text before rows is
    their place, the field `where`; one that begins with "budget: " is their budget, until the next place.
    """
    where, budget = None, "-"
    for row in rows:
        if not isinstance(row, str):
            yield Claim(*row[:4], where, *row[4:])._replace(budget=budget)
        elif row.startswith("budget: "):
            budget = row.removeprefix("budget: ")
        else:
            where, budget = row, "-"


def stand_in(claim, rule, paper, found, corpora):
    """A row of `at` for a claim on a corpus that nobody else has: what `corpora` say, and no verdict."""
    return claim, None, shown(paper, rule), f"{shown(found, rule)}, on {corpora}"


def tested(difference, p):
    """`Found` of a difference and the p-value of its paired test, its error taken for normal.

    A p-value at LEAST_P may be less: the error is then too large, and more is left undecided. One above 0.5
    says nothing of the error: it is infinite (see `alike`).
    """
    z = NormalDist().inv_cdf(1.0 - max(p, LEAST_P) / 2.0)
    return Found(difference, 1.96 * abs(difference) / z if p <= 0.5 else math.inf, p)


def alike(tests, design):
    """`tests`; those without an error get the median error of `design`, tests on the same sentences."""
    errors = [one.error for one in design if one.error < math.inf]
    error = float(np.median(errors)) if errors else math.inf
    return [one._replace(error=error) if one.error == math.inf else one for one in tests]


def mean_of(values):
    """`Found` of the mean over random subsets or seeds."""
    from scipy.stats import t

    values = np.asarray(values, float)
    n = len(values)
    spread = t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n) if n > 1 else math.inf
    return Found(float(values.mean()), float(spread), df=n - 1)


def ratio(a, b, factor=SINGLE):
    """`Found` of a / b for seconds that were measured once: good to a factor."""
    return Found(a / b, df=0, factor=factor)


def ratios(a, b, factor=SINGLE):
    """`ratio` of each pair of two lists."""
    return [ratio(*pair, factor) for pair in zip(a, b, strict=True)]


def spread(found):
    """`Found` of the largest less the smallest; all have errors against one arm."""
    low, high = min(found), max(found)
    return minus(high, low)


def minus(a, b):
    """a - b of two `Found`. They may share an arm, so their errors are added, which bounds the error."""
    return Found(a.value - b.value, a.error + b.error, df=min(a.df, b.df))


def over(a, b):
    """a / b of two `Found`, whose relative errors are independent; a factor of one is one of the ratio."""
    value, factor = a.value / b.value, a.factor * b.factor
    error = abs(value) * math.hypot(a.error / a.value, b.error / b.value)
    return Found(value, error, df=min(a.df, b.df), factor=factor)


def slope(x, y):
    """`Found` of the power with which y grows with x."""
    from scipy.stats import linregress, t

    line = linregress(np.log(x), np.log(y))
    return Found(float(line.slope), float(t.ppf(0.975, len(x) - 2) * line.stderr), df=len(x) - 2)


def more(least=0.0, none=None):
    """none : the number that means no effect, where `least` is beyond it: between them is "weaker"."""

    def rule(one):
        return one.value - least

    rule.weaker = None if none is None else more(none)
    return rule


def less(most=0.0):
    return lambda one: most - one.value


def significant(most):
    """Of p-values: one above `most` shows nothing."""
    return lambda one: max(0.0, most - one.value)


def near(target, margin):
    return lambda one: margin - abs(one.value - target)


def sides(rule, found):
    """1 for each number that is on the claimed side, -1 on the other, 0 undecided.

    An error is a test of the rule's border; of several Holm's correction decides. A bound, or a count, is no
    test.
    """
    from scipy.stats import t

    off = [rule(one) for one in found]
    beyond = np.array([abs(x) > one.error for x, one in zip(off, found, strict=True)])
    for i, one in enumerate(found):
        ends = [rule(one._replace(value=one.value * times)) for times in (1.0 / one.factor, one.factor)]
        beyond[i] &= min(ends) > 0.0 or max(ends) < 0.0
    tests = [i for i, one in enumerate(found) if one.error > 0.0 and one.df > 0]
    p = [2.0 * t.sf(t.ppf(0.975, found[i].df) * abs(off[i]) / found[i].error, found[i].df) for i in tests]
    beyond[tests] = holm(p) <= 0.05
    return [int(one) for one in np.sign(off) * beyond]


VERDICTS = """holds: all our numbers are on the claimed side by more than their errors
reversed: all are on the other side of the claim's limit by more than their errors (where the limit is not
0, that need not be an opposite effect)
weaker: all fall short of the limit, but are on the claimed side of no effect, by more than their errors
... where decided: so are those that their errors decide; some are undecided
mixed: some are on each side by more than their errors
undecided: all are within their errors
An error is half of a 95 % interval; in brackets stands a range. Of several tests in one claim Holm's
correction decides; p-values are shown without it. Seconds that were measured once are good to a factor of
{SINGLE}.
decided: how many of the numbers of a claim their errors decide
budget: what the paper spent; what we did. A verdict is for the numbers of that row alone."""
VERDICTS = f"""{VERDICTS.format(SINGLE=SINGLE)}
not tested, other data: no record has it, or the paper's corpus is not to be had; the row says what stood in
fitted: what the paper leaves open was chosen by this number
seen in the chapter, not judged: the chapter shows it; no rule decides
not finished: nothing of it ended by its rule"""


def verdict(rule, found, unjudged="not tested"):
    """The word of VERDICTS for the `Found`s of a claim; `unjudged` without a rule, or with nothing found."""
    if rule is None or isinstance(found, str) or not found:
        return unjudged
    said, weaker = set(sides(rule, found)), getattr(rule, "weaker", None)
    if len(said - {0}) != 1:
        return "mixed" if said - {0} else "undecided"
    against = "weaker" if weaker and set(sides(weaker, found)) == {1} else "reversed"
    return ("holds" if 1 in said else against) + " where decided" * (0 in said)


def decided(rule, found):
    """How many of several `Found`s their errors decide, as text."""
    if rule is None or isinstance(found, str) or len(found) < 2:
        return "-"
    return f"{np.count_nonzero(sides(rule, found))} of {len(found)}"


def shown(numbers, rule):
    """The numbers of a claim as text."""
    if isinstance(numbers, str):
        return numbers
    numbers = [one if isinstance(one, Found) else Found(one) for one in numbers]
    if len(numbers) <= SHOWN:
        return " / ".join(map(str, numbers))
    ends, found = sorted(numbers)[:: len(numbers) - 1], sides(rule, numbers)
    counts = f"{found.count(1)} of {len(found)} as claimed, {found.count(-1)} against"
    return f"{ends[0]} to {ends[1]}; {counts}"
