"""Chapter 08: what tuples of three and four phonemes buy beside pairs, under L1.

To tests of single letters, as in Table 2 (26 blocks of label and of pair weights), weights of triples, or of
triples and quadruples, of phonemes are added: the same everywhere, or one set for each letter. c1 is chosen
for pairs alone; all models have it, so that they differ in nothing else.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook.learners.tuples.automaton import Tuples, tuple_occurrences
from crfbook.learners.tuples.tuple_chain import TupleObjective, decode_tuples, train_tuples

from .c08 import chosen, set_up
from .harness import study, timed
from .records import each
from .work import dataset, descend, error_of

STRENGTHS = (4.0, 2.0, 1.0, 0.5)  # c1, each from the solution of the one before
STOP = {"relative_change": (5, 1e-3), "max_iterations": 100}
ROUNDS, ITERATIONS = 2, 20  # of grafting, and in each of them: with tuples an evaluation takes seconds
NOTHING = Tuples(np.zeros(0, np.int32), np.zeros((0, 4), np.int32)), np.zeros(0)


class Memory(NamedTuple):
    """A kind of model: labels in the longest tuple, less one, and whether tuples are joined with letters."""

    name: str
    order: int
    letters: bool = False

    def edge_attrs(self, setup):
        return tuple(setup.options["edge_attrs"]) if self.letters else (0,)


MODELS = (
    Memory("pairs", 1),
    Memory("triples", 2),
    Memory("triples of each letter", 2, True),
    Memory("triples and quadruples", 3),
)


class Found(NamedTuple):
    """A trained model, what training it took, and how far from the optimum it ended."""

    w: np.ndarray
    tuples: Tuples
    nu: np.ndarray
    objective: float
    violation: float
    evaluations: int
    seconds: float


def train(setup, memory, c1, start=None):
    """`Found` at c1, from `start` (a Found of the same or a lower order, or None: zeros)."""
    w, features = None if start is None else start.w, setup.everything
    if memory.order == 1:  # few evaluations: the sparse form's kernels take longer to compile
        found, seconds = timed(descend, setup.corpus, features, w, c1=c1, form="batched", **STOP)
        return Found(found.w, *NOTHING, found.objective, float("nan"), found.n_evaluations, seconds)
    known = (np.zeros(features.n_features), *NOTHING) if start is None else (w, start.tuples, start.nu)
    how = {"order": memory.order, "c1": c1, "edge_attrs": memory.edge_attrs(setup), "start": known}
    limits = {**STOP, "max_rounds": ROUNDS, "max_iterations": ITERATIONS}
    found, seconds = timed(train_tuples, setup.corpus, features, **how, **limits)
    n = sum(one.get("evaluations", 0) + 1 for one in found.rounds)
    return Found(found.w, found.tuples, found.nu, found.objective, found.violation, n, seconds)


def errors(setup, found):
    """Per cent of the held words' phonemes, and of the words, that Viterbi gets wrong."""
    path = decode_tuples(setup.held, setup.everything, found.w, found.tuples, found.nu)
    columns = zip(
        ("error", "standard error", "words"), error_of(setup.held, path != setup.held.labels), strict=True
    )
    return {name: f"{value:.2f}" for name, value in columns}


def memory_rows(template, n_words=None):
    """Error of pairs on the last tenth of the training words along a falling path of c1."""
    setup, rows, found = set_up("letter_tests", n_words, held_out=True), [], None
    for c1 in STRENGTHS:
        found = train(setup, MODELS[0], c1, found)
        cost = {"evaluations": found.evaluations, "seconds": f"{found.seconds:.0f}"}
        rows.append(
            {"c1": f"{c1:g}", **errors(setup, found), "active": int(np.count_nonzero(found.w)), **cost}
        )
    return rows


def evaluation_cost(setup, found, repeats=3):
    """{column: value}: states and arcs of a model, products of a token, CPU seconds of value and gradient."""
    fun = TupleObjective(setup.corpus, setup.everything, found.tuples, np.zeros(len(found.nu)))
    x = np.concatenate([found.w, found.nu])
    seconds = np.median([timed(fun, x)[1] for _ in range(repeats)])
    inner = setup.corpus.n_tokens - setup.corpus.n_sequences
    contexts = [len(z) for z in fun.automaton.contexts]
    return {
        "pairs as states": contexts.count(2),
        "triples as states": contexts.count(3),
        "products": f"{setup.sizes[0] ** 2 + fun.n_products[0] / inner:.0f}",
        "log form": fun.n_products[2],
        "evaluation": f"{seconds:.2f}",
    }


class Longer:
    """The models of all training words at one c1, each from the one before it."""

    def __init__(self, c1, n_words=None):
        self.c1, self.setup = c1, set_up("letter_tests", n_words)

    @cache  # noqa: B019 - one object a run
    def found(self, memory):
        before = None if memory.order == 1 else self.found(MODELS[1 if memory.order > 2 else 0])
        return train(self.setup, memory, self.c1, before)

    def row(self, memory):
        """The row of 08_longer_memory.csv."""
        found, candidates = self.found(memory), 0
        if memory.order > 1:
            which = memory.order, memory.edge_attrs(self.setup)
            candidates = len(tuple_occurrences(self.setup.corpus, *which)[1])
        return {
            "c1": f"{self.c1:g}",
            **errors(self.setup, found),
            "mu and lambda": int(np.count_nonzero(found.w)),
            "candidates": candidates,
            "tuples": len(found.nu),
            "positive": int((found.nu > 0).sum()),
            **evaluation_cost(self.setup, found),
            "dense products": self.setup.sizes[0] ** (memory.order + 1),
            "objective": f"{found.objective:.1f}",
            "violation": f"{found.violation:.3g}",
            "evaluations": found.evaluations,
            "seconds": f"{found.seconds:.0f}",
        }


def heaviest_tuples(encoder, found, n=10):
    """The n tuples with the largest |weight|: (labels as text, weight)."""
    order, labels = np.argsort(-np.abs(found.nu))[:n], found.tuples.labels
    return [(" ".join(encoder.labels_[y] for y in labels[i] if y >= 0), found.nu[i]) for i in order]


@study("08_memory_choice.csv", "08_longer_memory.csv", frozen=("tuples", "owlqn", "decoding, dense"))
def longer_memory(n_words=None):
    """What tuples of three and four phonemes buy beside pairs, under L1; about half an hour."""
    data, cell = [dataset("nettalk")], {"template": MODELS[0].name}
    rows = yield "08_memory_choice.csv", each(memory_rows, [cell], n_words=n_words), data
    at = Longer(chosen(rows, MODELS[0].name), n_words)
    keys = [{"model": one.name, "order": one.order, "letters": one.letters} for one in MODELS]
    jobs = [(key, partial(at.row, one)) for key, one in zip(keys, MODELS, strict=True)]
    yield "08_longer_memory.csv", jobs, data
