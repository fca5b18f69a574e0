"""Chapter 08: letters to phonemes on NetTalk: Tables 2 and 3, Figures 1 and 4, and longer memory.

The tables and figures are those of Sokolovska, Lavergne, Cappe and Yvon (2010). The values of c1 are not
legible in the paper. They are chosen on the last tenth of the training words: the largest c1 whose error
there is at most one standard error above the lowest on the path. The test words choose nothing. Seconds are
of CPU, without the scoring.

Longer memory: what tuples of three and four phonemes buy beside pairs, under L1. To tests of single letters,
as in Table 2 (26 blocks of label and of pair weights), weights of triples, or of triples and quadruples, of
phonemes are added: the same everywhere, or one set for each letter. c1 is chosen for pairs alone; all models
have it, so that they differ in nothing else.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook.chain.inference import decode
from crfbook.chain.objective import Objective
from crfbook.learners.coordinate.arrays import Sparse
from crfbook.learners.coordinate.descent import coordinate_descent
from crfbook.learners.coordinate.path import solve_path
from crfbook.learners.quasi_newton.lbfgs import minimize
from crfbook.learners.stochastic.gradient_descent import sgd
from crfbook.learners.tuples.automaton import Tuples, tuple_occurrences
from crfbook.learners.tuples.tuple_chain import TupleObjective, decode_tuples, train_tuples

from .c07 import PATH
from .harness import follow, peak_mb, study, timed
from .records import each
from .work import LETTERS_C2 as C2
from .work import dataset, descend, error_of, load, model_error

LETTERS = (10.0, 3.0, 1.0, 0.5, 0.2, 0.05)  # c1 of Table 2; its first row is c1 = 0
SWEEPS = 30  # for each value in Table 2, and the longest run of Table 3
TESTS = ("pseudo_ngrams_3", "ngrams_3", "pseudo_ngrams_5", "ngrams_5")
CHOICES = {"letter_tests": (LETTERS, 8), "ngrams_5": ((*PATH, 0.2, 0.1), 2)}  # values, sweeps for each
COUNTED = (*TESTS, "ngrams_3_inside", "ngrams_5_inside")
DENSE_RUN = {"max_iterations": 90, "tol": 0.0}  # L-BFGS of Table 2
REPEATS = 5
# method, iterations, minutes (Pentium 4, 3 GHz), train %, test %, active mu, active lambda; SBCD with c1
# rising from 0
PAPER_LETTERS = (
    ("SBCD", 30, 125, 13.3, 14.0, 1378, 73034), ("SBCD", 30, 76, 13.5, 14.2, 1155, 4171),
    ("SBCD", 30, 70, 14.0, 14.2, 1089, 3598), ("SBCD", 30, 63, 13.7, 14.3, 957, 3077),
    ("SBCD", 30, 55, 16.3, 16.8, 858, 3111), ("SBCD", 30, 43, 16.4, 16.9, 760, 2275),
    ("SBCD", 30, 25, 17.3, 17.7, 267, 997), ("OWL-QN", 50, 165, 13.5, 14.2, 1864, 4079),
    ("L-BFGS", 90, 302, 13.5, 14.1, 1378, 73034), ("SGD", 30, 17, 18.5, 19.1, 1378, 73034),
)  # fmt: skip
PAPER_NGRAMS = {  # million features; sweeps: (error %, thousands active)
    "pseudo_ngrams_3": {"million": 0.236, 20: (8.98, 12.5), 30: (8.67, 10.9)},
    "ngrams_3": {"million": 14.2, 20: (8.22, 12.8), 30: (8.04, 11.7)},
    "pseudo_ngrams_5": {"million": 0.399, 20: (6.77, 19.8), 30: (6.65, 17.1)},
    "ngrams_5": {"million": 121, 20: (6.51, 21.7), 30: (6.50, 20.1)},
}
# run by hand, not by this repository, on the same file with another split: (per cent of phonemes wrong, how)
PEERS = {
    "CRFsuite": (
        8.31,
        "n-grams to length 5 for labels, plain transitions; c1 = 0.3, c2 = 0.01, 60 iterations",
    ),
    "Wapiti, OWL-QN": (10.91, "pseudo 3-grams, c1 = 1; objective 42,051, 3.1 s an evaluation"),
    "Wapiti, bcd": (14.2, "pseudo 3-grams, c1 = 1, from zero: after six sweeps of 97 s"),
}

# template, n_words (None: all training words), held_out: the last tenth of them in place of the test words
set_up = partial(load, "nettalk")


def walk(setup, c1, sweeps, row, marks=None):
    """A falling path of SBCD: (rows, {c1: the last `Sparse` there}).

    row(c1, Step, Sparse, CPU seconds) makes a row after each of the sweeps `marks` (None: the last one of
    each c1).
    """
    marks = set(np.cumsum(np.broadcast_to(sweeps, len(c1))) if marks is None else marks)
    rows, models = [], {}

    def look(value, step, w, seconds):
        models[value] = w
        if step.iteration in marks:
            rows.append(row(value, step, w, seconds))

    coordinate_descent(setup.corpus, c1=1e9, max_iterations=1, **setup.options)  # compiles
    limits = {"sweeps": sweeps, "tol": 0.0, "tol_gradient": 0.0, "keep": False}
    follow(solve_path, setup.corpus, c1=c1, look=look, **limits, **setup.options)
    return rows, models


def choice_rows(template, n_words=None):
    """Error on the last tenth of the training words for each c1 of a path over nine tenths."""
    setup, (values, sweeps) = set_up(template, n_words, held_out=True), CHOICES[template]

    def row(c1, step, model, seconds):
        found, deviation, _ = model_error(setup.held, model)
        errors = {"error": f"{found:.3f}", "standard error": f"{deviation:.3f}"}
        size = {"active": model.features.n_features, "seconds": f"{seconds:.1f}"}
        return {"c1": f"{c1:g}", "sweeps": step.iteration, **errors, **size}

    return walk(setup, values, sweeps, row)[0]


def chosen(rows, template):
    """The largest c1 within one standard error of the lowest error, from rows of 08_choice.csv."""
    rows = [row for row in rows if row["template"] == template]
    best = min(rows, key=lambda row: float(row["error"]))
    bound = float(best["error"]) + float(best["standard error"])
    return max(float(row["c1"]) for row in rows if float(row["error"]) <= bound)


class Letters:
    """Table 2: tests of single letters, 26 blocks; its rows, and the models of Figures 1 and 4."""

    def __init__(self, c1, n_words=None):
        self.c1, self.setup = c1, set_up("letter_tests", n_words)
        self.everything = self.setup.everything

    @cache  # noqa: B019 - one object a run
    def path(self):
        """(rows, {c1: Sparse}) of SBCD over the values of c1, 0 last."""
        before = [0.0]

        def row(c1, step, model, seconds):
            spent, before[0] = seconds - before[0], seconds
            start = "the c1 before" if c1 < LETTERS[0] else "zero"
            return self._row(c1, SWEEPS, model, step.objective, spent, start)

        return walk(self.setup, (*LETTERS, 0.0), SWEEPS, row)

    def sparse(self):
        """The `Sparse` that SBCD finds at the chosen c1, at the end of its part of the path."""
        return self.path()[1][self.c1]

    def cold(self):
        """The row of SBCD at the chosen c1 from zero, as the paper has it."""

        def row(c1, step, model, seconds):
            return self._row(c1, step.iteration, model, step.objective, seconds)

        return walk(self.setup, (self.c1,), SWEEPS, row)[0]

    @cache  # noqa: B019 - one object a run
    def batch(self, c1, **how):
        """(OptResult, CPU seconds) of a quasi-Newton method on all candidates."""
        fun = Objective(self.setup.corpus, self.everything, c2=C2)
        fit = partial(minimize, fun, np.zeros(self.everything.n_features), c1=c1, c2=C2)
        fit(**{**how, "max_iterations": 2})  # compiles
        return timed(fit, **how)

    def quasi_newton(self, c1, **how):
        """The row of OWL-QN (c1 > 0) or L-BFGS."""
        return self._dense_row(c1, *self.batch(c1, **how))

    def sgd(self):
        """The row of stochastic gradient descent with an L2 penalty."""
        fit = partial(sgd, self.setup.corpus, self.everything, c2=C2)
        fit(max_iterations=1)  # compiles
        return self._dense_row(0.0, *timed(fit, max_iterations=SWEEPS, delta=0.0))

    def _dense_row(self, c1, found, seconds):
        return self._row(c1, found.n_iter, Sparse(self.everything, found.w), found.objective, seconds)

    def _row(self, c1, iterations, model, objective, seconds, start="zero"):
        n_mu = np.count_nonzero(model.w[: model.features.n_node])
        return {
            "c1": f"{c1:g}",
            "start": start,
            "iterations": iterations,
            "seconds": f"{seconds:.1f}",
            "train": f"{model_error(self.setup.corpus, model)[0]:.2f}",
            "test": f"{model_error(self.setup.held, model)[0]:.2f}",
            "mu": n_mu,
            "lambda": np.count_nonzero(model.w) - n_mu,
            "objective": f"{objective:.1f}",
        }

    def weights(self):
        """Figures 1 and 4: |mu|, and |lambda| summed over the phoneme before, of the L2 and the L1 model.

        A row for each letter and phoneme.
        """
        dense, names = {}, self.setup.encoder
        tests = names.attribute_names()
        letter, number = [name[-1] for name in tests], {name: a for a, name in enumerate(tests)}
        test_of = np.array([number.get(name, -1) for name in names.edge_attribute_names()])
        l2 = Sparse(self.everything, self.batch(0.0, **DENSE_RUN)[0].w)
        for kind, (features, w) in {"L2": l2, "L1": self.sparse()}.items():
            mu, lam = np.zeros((2, features.n_attrs, features.n_labels))
            size, row = np.abs(w), np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr))
            mu[row, features.node_label] = size[: features.n_node]
            owner = np.repeat(test_of, np.diff(features.edge_ptr))
            np.add.at(lam, (owner, features.edge_next), size[features.n_node :])
            dense |= {f"{kind} mu": mu, f"{kind} lambda": lam}
        cells = [(a, y, phoneme) for a in np.argsort(letter) for y, phoneme in enumerate(names.labels_)]
        tables = [{name: f"{table[a, y]:.4g}" for name, table in dense.items()} for a, y, _ in cells]
        return [
            {"letter": letter[a], "phoneme": p, **row} for (a, _, p), row in zip(cells, tables, strict=True)
        ]


class Ngrams:
    """Table 3: contexts, each under one falling path of c1; its rows, and the model of the largest one."""

    def __init__(self, c1, n_words=None):
        self.values, self.n_words, self.peak = (*(value for value in PATH if value > c1), c1), n_words, 0.0

    def sizes(self, template):
        """Tests and candidates, in millions."""
        n_labels, n_attrs, n_edge_attrs = set_up(template, self.n_words).sizes
        million = (n_attrs * n_labels + n_edge_attrs * n_labels**2) / 1e6
        return {"tests": n_attrs, "edge tests": n_edge_attrs, "million": f"{million:.3f}"}

    @cache  # noqa: B019 - one object a run
    def path(self, template):
        """(Work, rows after each second sweep, the last `Sparse`)."""
        setup, n = set_up(template, self.n_words), [2] * (len(self.values) - 1)

        def row(c1, step, model, seconds):
            n_mu = model.features.n_node
            return {
                "sweeps": step.iteration,
                "c1": f"{c1:g}",
                "test": f"{model_error(setup.held, model)[0]:.2f}",
                "mu": n_mu,
                "lambda": model.features.n_features - n_mu,
                "objective": f"{step.objective:.1f}",
                "seconds": f"{seconds:.1f}",
                "MB so far": f"{self.peak_mb():.0f}",
            }

        rows, models = walk(setup, self.values, [*n, SWEEPS - sum(n)], row, range(2, SWEEPS + 1, 2))
        return setup, rows, models[self.values[-1]]

    def peak_mb(self):
        """The most memory that this process, with all its templates so far, was seen to hold."""
        self.peak = max(self.peak, peak_mb())  # a counter that is reset takes nothing back
        return self.peak

    def tagging(self, template="ngrams_5"):
        """Rows: words to phonemes by the sparse and by the dense form of Viterbi; medians, CPU seconds."""
        setup, _, model = self.path(template)
        sizes = {
            "words": setup.held.n_sequences,
            "letters": setup.held.n_tokens,
            "classes": setup.held.n_classes,
        }
        paths, rows = {}, []
        for form in ("sparse", "dense"):
            paths[form], spent = decode(setup.held, *model, form=form), []
            for _ in range(REPEATS):
                held, encode = timed(setup.encoder.transform, setup.words, on_unknown_label="mark")
                spent.append((encode, timed(decode, held, *model, form=form)[1]))
            encode, search = np.median(spent, axis=0)
            same = str(bool((paths[form] == paths["sparse"]).all()))
            found = {"encode": f"{encode:.3f}", "decode": f"{search:.3f}", "same path": same}
            rows.append({"form": form, **sizes, **found})
        return rows

    def errors(self, template="ngrams_5"):
        """Rows: how often a letter of the test words with this phoneme got that one."""
        setup, _, model = self.path(template)
        found = setup.encoder.decode(decode(setup.held, *model), setup.held.seq_ptr)
        columns = setup.words.by_sequence("letter"), setup.words.labels_by_sequence(), found
        triples = [triple for word in zip(*columns, strict=True) for triple in zip(*word, strict=True)]
        names, counts = np.unique(np.array(triples), axis=0, return_counts=True)
        keys = "letter", "phoneme", "found"
        found = zip(names.tolist(), counts, strict=True)
        return [{**dict(zip(keys, name, strict=True)), "count": int(n)} for name, n in found]


@study(*(f"08_{name}.csv" for name in "choice candidates ngrams errors letters weights tagging".split()))
def phonetization(n_words=None):
    """Tables 2 and 3, Figures 1 and 4: records of chapter 08, smallest first; half an hour."""
    data = [dataset("nettalk")]
    choices = [{"template": name} for name in CHOICES]
    rows = yield "08_choice.csv", each(choice_rows, choices, n_words=n_words), data
    letters = Letters(chosen(rows, "letter_tests"), n_words)
    ngrams = Ngrams(chosen(rows, "ngrams_5"), n_words)
    owlqn = {"l1_method": "owlqn", "max_iterations": 50, "tol": 0.0}
    methods = {
        "OWL-QN": partial(letters.quasi_newton, letters.c1, **owlqn),
        "L-BFGS": partial(letters.quasi_newton, 0.0, **DENSE_RUN),
        "L-BFGS, until it rests": partial(letters.quasi_newton, 0.0, relative_change=(10, 1e-4)),
        "SGD": letters.sgd,
        "SBCD, from zero": letters.cold,
        "SBCD": lambda: letters.path()[0],
    }
    yield "08_candidates.csv", each(ngrams.sizes, [{"template": name} for name in COUNTED]), data
    # the leanest first (pseudo 5-grams need more than 5-grams): the peak of memory is that of all so far
    order = [{"template": name} for name in (*TESTS[:2], TESTS[3], TESTS[2])]
    yield "08_ngrams.csv", each(lambda template: ngrams.path(template)[1], order), data
    yield "08_errors.csv", [({"model": "ngrams_5"}, ngrams.errors)], data
    yield "08_letters.csv", [({"method": name}, make) for name, make in methods.items()], data
    yield "08_weights.csv", [({"data": "NetTalk"}, letters.weights)], data
    yield "08_tagging.csv", [({"model": "ngrams_5"}, ngrams.tagging)], data


# ---- longer memory ----

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


@study("08_memory_choice.csv", "08_longer_memory.csv")
def longer_memory(n_words=None):
    """What tuples of three and four phonemes buy beside pairs, under L1; about half an hour."""
    data, cell = [dataset("nettalk")], {"template": MODELS[0].name}
    rows = yield "08_memory_choice.csv", each(memory_rows, [cell], n_words=n_words), data
    at = Longer(chosen(rows, MODELS[0].name), n_words)
    keys = [{"model": one.name, "order": one.order, "letters": one.letters} for one in MODELS]
    jobs = [(key, partial(at.row, one)) for key, one in zip(keys, MODELS, strict=True)]
    yield "08_longer_memory.csv", jobs, data
