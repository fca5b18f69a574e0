"""Longer memory on NetTalk: what tuples of three and four phonemes buy beside pairs, under L1.

    fill_memory("notebooks/results")                     # 08_memory_choice.csv, 08_longer_memory.csv

Tests of single letters, as in Table 2 of Sokolovska, Lavergne, Cappe and Yvon (2010): 26 blocks of label and
of pair weights. Beside them stand weights of triples, or of triples and quadruples, of phonemes: the same
everywhere, or one set for each letter. c1 is chosen for pairs alone, on the last tenth of the training words,
as in phonetization_tables; all models have it, so that they differ in nothing else.
"""

import time
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..models.tuple_chain import decode_tuples
from ..optim.objective import Objective
from ..optim.quasi_newton import minimize
from ..optim.tuple_automaton import Tuples, tuple_occurrences
from ..optim.tuple_chain import TupleObjective, train_tuples
from .phonetization_tables import _data, chosen, set_up
from .records import read_record
from .tables import fill

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
    features = setup.features()
    w = np.zeros(features.n_features) if start is None else start.w
    clock = time.process_time()
    if memory.order == 1:
        fun = Objective(
            setup.corpus, features, form="batched"
        )  # few evaluations: the sparse form's kernels take longer to compile
        found = minimize(fun, w, c1=c1, **STOP)
        return Found(
            found.w, *NOTHING, found.objective, float("nan"), found.n_evaluations, time.process_time() - clock
        )
    known = NOTHING if start is None else (start.tuples, start.nu)
    found = train_tuples(
        setup.corpus,
        features,
        order=memory.order,
        c1=c1,
        edge_attrs=memory.edge_attrs(setup),
        start=(w, *known),
        max_rounds=ROUNDS,
        **{**STOP, "max_iterations": ITERATIONS},
    )
    n = sum(one.get("evaluations", 0) + 1 for one in found.rounds)
    return Found(
        found.w, found.tuples, found.nu, found.objective, found.violation, n, time.process_time() - clock
    )


def errors(setup, found):
    """{"phonemes", "words"}: per cent of the held words' phonemes, and of the words,
    that Viterbi gets wrong.
    """
    corpus = setup.held
    wrong = decode_tuples(corpus, setup.features(), found.w, found.tuples, found.nu) != corpus.labels
    of_word = np.add.reduceat(wrong, corpus.seq_ptr[:-1])
    deviation = np.sqrt(len(of_word) * of_word.var()) / len(wrong)
    return {
        "error": f"{100 * wrong.mean():.2f}",
        "standard error": f"{100 * deviation:.2f}",
        "words": f"{100 * (of_word > 0).mean():.2f}",
    }


def choice_rows(n_words=None):
    """Error of pairs on the last tenth of the training words along a falling path of c1."""
    setup, rows, found = set_up("letter_tests", n_words, held_out=True), [], None
    for c1 in STRENGTHS:
        found = train(setup, MODELS[0], c1, found)
        rows.append(
            {
                "c1": f"{c1:g}",
                **errors(setup, found),
                "active": int(np.count_nonzero(found.w)),
                "evaluations": found.evaluations,
                "seconds": f"{found.seconds:.0f}",
            }
        )
    return rows


def evaluation_cost(setup, found, repeats=3):
    """{column: value}: states and arcs of a model, products of a token,
    and CPU seconds of value and gradient.
    """
    features, n_labels = setup.features(), setup.options["sizes"][0]
    fun = TupleObjective(setup.corpus, features, found.tuples, np.zeros(len(found.nu)))
    x = np.concatenate([found.w, found.nu])
    seconds = []
    for _ in range(repeats):
        clock = time.process_time()
        fun(x)
        seconds.append(time.process_time() - clock)
    inner = setup.corpus.n_tokens - setup.corpus.n_sequences
    products = n_labels**2 + fun.n_products[0] / inner
    contexts = [len(z) for z in fun.automaton.contexts]
    return {
        "pairs as states": contexts.count(2),
        "triples as states": contexts.count(3),
        "products": f"{products:.0f}",
        "log form": fun.n_products[2],
        "evaluation": f"{np.median(seconds):.2f}",
    }


class Study:
    """The models of all training words at one c1, each from the one before it."""

    def __init__(self, c1, n_words=None):
        self.c1, self.setup = c1, set_up("letter_tests", n_words)

    @cache  # noqa: B019 - one object a run
    def found(self, memory):
        before = None if memory.order == 1 else self.found(MODELS[1 if memory.order > 2 else 0])
        return train(self.setup, memory, self.c1, before)

    def row(self, memory):
        """The row of 08_longer_memory.csv."""
        found, n_labels = self.found(memory), self.setup.options["sizes"][0]
        candidates = 0
        if memory.order > 1:
            candidates = len(
                tuple_occurrences(self.setup.corpus, memory.order, memory.edge_attrs(self.setup))[1]
            )
        return {
            "c1": f"{self.c1:g}",
            **errors(self.setup, found),
            "mu and lambda": int(np.count_nonzero(found.w)),
            "candidates": candidates,
            "tuples": len(found.nu),
            "positive": int((found.nu > 0).sum()),
            **evaluation_cost(self.setup, found),
            "dense products": n_labels ** (memory.order + 1),
            "objective": f"{found.objective:.1f}",
            "violation": f"{found.violation:.3g}",
            "evaluations": found.evaluations,
            "seconds": f"{found.seconds:.0f}",
        }


def heaviest_tuples(encoder, found, n=10):
    """The n tuples with the largest |weight|: (labels as text, weight)."""
    order = np.argsort(-np.abs(found.nu))[:n]
    return [
        (" ".join(encoder.labels_[y] for y in found.tuples.labels[i] if y >= 0), found.nu[i]) for i in order
    ]


def fill_memory(folder, n_words=None):
    """08_memory_choice.csv and 08_longer_memory.csv in `folder`; about half an hour. Returns both paths."""
    folder, data = Path(folder), [_data()]
    choice = fill(
        folder / "08_memory_choice.csv",
        [({"template": MODELS[0].name}, partial(choice_rows, n_words))],
        datasets=data,
    )
    study = Study(chosen(read_record(choice)[1], MODELS[0].name), n_words)
    jobs = [
        ({"model": one.name, "order": one.order, "letters": one.letters}, partial(study.row, one))
        for one in MODELS
    ]
    return choice, fill(folder / "08_longer_memory.csv", jobs, datasets=data)
