"""Chapter 08: what weights of three phonemes buy beside pairs, under L1, in models that converged.

Weights of triples of phonemes join the tests of single letters of Table 2, or the trigrams of letters of
Table 3. The models are those of the first `N_WORDS` training words, since an evaluation with tuples is dear.
c1 is chosen anew for each model, on the last tenth of these words (c08.py). The chosen ones are trained until
the largest violation is NEAR of c1, which bounds the gap over all candidates; the gap is a column. Those that
c1 is chosen from end at ten times this violation.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from crfbook.chain.inference import decode
from crfbook.chain.objective import Objective
from crfbook.learners.quasi_newton.steps import pseudo_gradient
from crfbook.learners.tuples.automaton import Tuples, tuple_occurrences
from crfbook.learners.tuples.tuple_chain import TupleObjective, decode_tuples, train_tuples
from crfbook.training.certificate import duality_gap

from .c08 import chosen, set_up, tested
from .harness import study, timed
from .records import each
from .work import dataset, descend, error_of

N_WORDS = 1000
STRENGTHS = (2.0, 1.0, 0.5, 0.25, 1 / 8, 1 / 16, 1 / 32)  # c1, each from the solution of the one before
NEAR = 0.01  # a violation of this share of c1 is small enough
LIMITS = {"max_rounds": 10, "max_iterations": 600}  # far more than it takes
NOTHING = Tuples(np.zeros(0, np.int32), np.zeros((0, 4), np.int32)), np.zeros(0)


class Memory(NamedTuple):
    """A kind of model: labels in the longest tuple, less one; the model it is tested against."""

    name: str
    template: str
    order: int
    before: str | None = None


MODELS = {
    memory.name: memory
    for memory in (
        Memory("letters, pairs", "letter_tests", 1),
        Memory("letters, triples", "letter_tests", 2, "letters, pairs"),
        Memory("3-grams, pairs", "ngrams_3", 1),
        Memory("3-grams, triples", "ngrams_3", 2, "3-grams, pairs"),
    )
}


class Found(NamedTuple):
    """A trained model, and what training it took; violation: the largest, of all candidates."""

    w: np.ndarray
    tuples: Tuples
    nu: np.ndarray
    objective: float
    violation: float
    evaluations: int
    seconds: float


def candidates(setup, memory):
    """FeatureSet of labels and pairs: all of them for letters, those that were seen for trigrams."""
    return setup.everything if memory.template == "letter_tests" else setup.features


def train(setup, memory, c1, start=None, near=NEAR):
    """`Found` at c1, from `start` (a Found of the same or a lower order, or None: zeros)."""
    features, how = candidates(setup, memory), {"c1": c1, "tol_gradient": near * c1}
    if memory.order == 1:
        how["max_iterations"] = 3 * LIMITS["max_iterations"]
        found, seconds = timed(descend, setup.corpus, features, None if start is None else start.w, **how)
        grad = Objective(setup.corpus, features)(found.w)[1]
        violation = pseudo_gradient(found.w, grad, c1, np.empty_like(grad))[1]
        return Found(found.w, *NOTHING, found.objective, violation, found.n_evaluations, seconds)
    known = None if start is None else (start.w, start.tuples, start.nu)
    how |= {"order": memory.order, "start": known, **LIMITS}
    found, seconds = timed(train_tuples, setup.corpus, features, **how)
    n = sum(one.get("evaluations", 0) + 1 for one in found.rounds)
    return Found(found.w, found.tuples, found.nu, found.objective, found.violation, n, seconds)


def certified(setup, memory, found, c1):
    """(number of candidate tuples, certified gap in per cent of the objective) over all candidates."""
    features, (tuples, counts) = candidates(setup, memory), NOTHING
    if memory.order > 1:
        tuples, counts = tuple_occurrences(setup.corpus, memory.order, (0,))
    nu, place = np.zeros(len(counts)), {tuple(z): i for i, z in enumerate(tuples.labels.tolist())}
    for z, value in zip(found.tuples.labels.tolist(), found.nu, strict=True):
        nu[place[tuple(z)]] = value
    w = np.concatenate([found.w, nu])
    value, grad = TupleObjective(setup.corpus, features, tuples, counts)(w)
    return len(counts), 100 * duality_gap(value, grad, w, c1) / found.objective


def labels_of(setup, memory, found):
    """The labels (N,) of the held words."""
    features = candidates(setup, memory)
    if memory.order == 1:
        return decode(setup.held, features, found.w)
    return decode_tuples(setup.held, features, found.w, found.tuples, found.nu)


def choice_rows(template, n_words):
    """Error on the last tenth of the words along a falling path of c1; template: the name of a model."""
    memory, rows, found = MODELS[template], [], None
    setup = set_up(memory.template, n_words, held_out=True)
    if memory.before:
        found = train(setup, MODELS[memory.before], STRENGTHS[0], near=10 * NEAR)
    for c1 in STRENGTHS:
        found = train(setup, memory, c1, found, near=10 * NEAR)
        wrong = labels_of(setup, memory, found) != setup.held.labels
        error, deviation, _ = error_of(setup.held, wrong)
        scores = {"c1": f"{c1:g}", "error": f"{error:.2f}", "standard error": f"{deviation:.2f}"}
        rows.append({**scores, **training_cost(found, c1)})
    return rows


class Longer:
    """The models at their c1, {name: c1}, those with tuples from the one without."""

    def __init__(self, c1, n_words):
        self.c1, self.n_words = c1, n_words

    @cache  # noqa: B019 - one object a run
    def found(self, name):
        memory = MODELS[name]
        before = None if memory.before is None else self.found(memory.before)
        return train(set_up(memory.template, self.n_words), memory, self.c1[name], before)

    def row(self, model):
        """The row of 08_longer_memory.csv."""
        memory, found, c1 = MODELS[model], self.found(model), self.c1[model]
        setup, p = set_up(memory.template, self.n_words), ""
        labels, (n, gap) = labels_of(setup, memory, found), certified(setup, memory, found, c1)
        error, deviation, words = error_of(setup.held, labels != setup.held.labels)
        if memory.before:
            other = labels_of(setup, MODELS[memory.before], self.found(memory.before))
            p = f"{tested(setup, other, labels)[1]:.4f}"
        return {
            "c1": f"{c1:g}", "error": f"{error:.2f}", "standard error": f"{deviation:.2f}", "p": p,
            "words": f"{words:.2f}", "mu and lambda": int(np.count_nonzero(found.w)), "candidates": n,
            "tuples": len(found.nu), **evaluation_cost(setup, memory, found),
            "dense products": setup.sizes[0] ** (memory.order + 1), "objective": f"{found.objective:.1f}",
            "certified gap %": f"{gap:.2f}", **training_cost(found, c1),
        }  # fmt: skip


def training_cost(found, c1):
    """{column: value}: the largest violation as a share of c1, and what it took to get there."""
    end = {"violation / c1": f"{found.violation / c1:.4f}"}
    return end | {"evaluations": found.evaluations, "seconds": f"{found.seconds:.0f}"}


def evaluation_cost(setup, memory, found, repeats=3):
    """{column: value}: states of a model, products of a token, CPU seconds of value and gradient."""
    fun = TupleObjective(setup.corpus, candidates(setup, memory), found.tuples, np.zeros(len(found.nu)))
    x = np.concatenate([found.w, found.nu])
    seconds = np.median([timed(fun, x)[1] for _ in range(repeats)])
    inner = setup.corpus.n_tokens - setup.corpus.n_sequences
    contexts = [len(z) for z in fun.automaton.contexts]
    return {
        "pairs as states": contexts.count(2), "triples as states": contexts.count(3),
        "products": f"{setup.sizes[0] ** 2 + fun.n_products[0] / inner:.0f}", "evaluation": f"{seconds:.2f}",
    }  # fmt: skip


def heaviest_tuples(encoder, found, n=10):
    """The n tuples with the largest |weight|: (labels as text, weight)."""
    order, labels = np.argsort(-np.abs(found.nu))[:n], found.tuples.labels
    return [(" ".join(encoder.labels_[y] for y in labels[i] if y >= 0), found.nu[i]) for i in order]


@study("08_memory_choice.csv", "08_longer_memory.csv", frozen=("tuples", "owlqn", "decoding, dense"))
def longer_memory(n_words=N_WORDS):
    """What triples of phonemes buy beside pairs, under L1, converged; half an hour."""
    data, cells = [dataset("nettalk")], [{"template": name} for name in MODELS]
    rows = yield "08_memory_choice.csv", each(choice_rows, cells, n_words=n_words), data
    at = Longer({name: chosen(rows, name) for name in MODELS}, n_words)
    yield "08_longer_memory.csv", each(at.row, [{"model": name} for name in MODELS]), data
