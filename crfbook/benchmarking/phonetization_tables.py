"""Tables 2 and 3, Figures 1 and 4 of Sokolovska, Lavergne, Cappe and Yvon (2010):
letters to phonemes on NetTalk.

    fill_phonetization("notebooks/results")              # 08_choice.csv, 08_letters.csv, ...

The values of c1 are not legible in the paper. They are chosen on the last tenth of the training words: the
largest c1 whose error there is at most one standard error above the lowest on the path. The test words choose
nothing. Seconds are of CPU, without the scoring.
"""

import resource
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data import templates
from ..data.corpus import Corpus
from ..data.datasets import load_dataset
from ..data.encoder import Encoder
from ..data.feature_selection import without_plain_transitions
from ..data.features import observed, select
from ..models.inference import decode
from ..optim.coordinate_descent import coordinate_descent
from ..optim.coordinate_path import solve_path
from ..optim.coordinate_run import Sparse
from ..optim.objective import Objective
from ..optim.quasi_newton import minimize
from ..optim.stochastic import sgd
from .coordinate_tasks import C2, PATH
from .records import read_record
from .tables import fill

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
    ("SBCD", 30, 125, 13.3, 14.0, 1378, 73034), ("SBCD", 30, 76, 13.5, 14.2, 1155, 4171), ("SBCD", 30, 70, 14.0, 14.2, 1089, 3598),
    ("SBCD", 30, 63, 13.7, 14.3, 957, 3077), ("SBCD", 30, 55, 16.3, 16.8, 858, 3111), ("SBCD", 30, 43, 16.4, 16.9, 760, 2275),
    ("SBCD", 30, 25, 17.3, 17.7, 267, 997), ("OWL-QN", 50, 165, 13.5, 14.2, 1864, 4079), ("L-BFGS", 90, 302, 13.5, 14.1, 1378, 73034),
    ("SGD", 30, 17, 18.5, 19.1, 1378, 73034),
)  # fmt: skip
PAPER_NGRAMS = {  # million features; sweeps: (error %, thousands active)
    "pseudo_ngrams_3": {"million": 0.236, 20: (8.98, 12.5), 30: (8.67, 10.9)}, "ngrams_3": {"million": 14.2, 20: (8.22, 12.8), 30: (8.04, 11.7)},
    "pseudo_ngrams_5": {"million": 0.399, 20: (6.77, 19.8), 30: (6.65, 17.1)}, "ngrams_5": {"million": 121, 20: (6.51, 21.7), 30: (6.50, 20.1)},
}  # fmt: skip

# run by hand, not by this repository, on the same file with another split: (per cent of the phonemes wrong,
# how)
PEERS = {
    "CRFsuite": (
        8.31,
        "n-grams to length 5 for labels, plain transitions; c1 = 0.3, c2 = 0.01, 60 iterations",
    ),
    "Wapiti, OWL-QN": (10.91, "pseudo 3-grams, c1 = 1; objective 42,051, 3.1 s an evaluation"),
    "Wapiti, bcd": (14.2, "pseudo 3-grams, c1 = 1, from zero: after six sweeps of 97 s"),
}


class Setup(NamedTuple):
    """NetTalk under one template: training words, the words to score, and what coordinate descent is told."""

    corpus: Corpus
    held: Corpus
    encoder: Encoder
    words: object  # those of `held`, as text
    options: dict  # c2, sizes, and the edge attributes that count where there are no plain transitions

    def features(self):
        """FeatureSet of all candidates, allocated: for the methods that need it."""
        n_labels, n_attrs, n_edge_attrs = self.options["sizes"]
        features = observed(
            self.corpus, n_labels, n_attrs, n_edge_attrs, all_states=True, all_transitions=True
        )
        return (
            select(features, without_plain_transitions(features))
            if "edge_attrs" in self.options
            else features
        )


@cache
def _data():
    return load_dataset("nettalk", verbose=False)


def set_up(template, n_words=None, held_out=False):
    """`Setup` of the first `n_words` training words (None: all) and the test words; held_out:
    of nine tenths and the last tenth.
    """
    train, held = _data().train, _data().test
    train = train if n_words is None else train[:n_words]
    if held_out:
        n = len(train) - len(train) // 10
        train, held = train[:n], train[n:]
    encoder = Encoder(templates.load(template))
    corpus = encoder.fit_transform(train)
    options = {"sizes": (encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs), "c2": C2}
    if template == "letter_tests":
        options["edge_attrs"] = np.arange(1, encoder.n_edge_attrs)
    return Setup(corpus, encoder.transform(held, on_unknown_label="mark"), encoder, held, options)


def error(corpus, model):
    """(per cent of the tokens that Viterbi labels wrong, its standard error) of a `Sparse`; words,
    not letters, are independent.
    """
    wrong = decode(corpus, *model) != corpus.labels
    of_word = np.diff(np.concatenate([[0], np.cumsum(wrong)])[corpus.seq_ptr])
    return 100.0 * wrong.mean(), 100.0 * np.sqrt(len(of_word) * of_word.var()) / len(wrong)


def follow(setup, c1, sweeps, row, marks=None):
    """A falling path of SBCD: (rows, {c1: the last `Sparse` there}).

    row(c1, Step, Sparse, CPU seconds) makes a row after each of the sweeps `marks` (None:
    the last one of each c1).
    """
    marks = set(np.cumsum(np.broadcast_to(sweeps, len(c1))) if marks is None else marks)
    rows, models, clock = [], {}, [0.0, 0.0]

    def watch(value, step, w):
        clock[0] += time.process_time() - clock[1]
        models[value] = w
        if step.iteration in marks:
            rows.append(row(value, step, w, clock[0]))
        clock[1] = time.process_time()

    coordinate_descent(setup.corpus, c1=1e9, max_iterations=1, **setup.options)  # compiles
    clock[1] = time.process_time()
    solve_path(
        setup.corpus,
        c1=c1,
        sweeps=sweeps,
        tol=0.0,
        tol_gradient=0.0,
        keep=False,
        callback=watch,
        **setup.options,
    )
    return rows, models


def choice_rows(template, n_words=None):
    """Error on the last tenth of the training words for each c1 of a path over nine tenths."""
    setup = set_up(template, n_words, held_out=True)
    values, sweeps = CHOICES[template]

    def row(c1, step, model, seconds):
        found, deviation = error(setup.held, model)
        return {
            "c1": f"{c1:g}",
            "sweeps": step.iteration,
            "error": f"{found:.3f}",
            "standard error": f"{deviation:.3f}",
            "active": model.features.n_features,
            "seconds": f"{seconds:.1f}",
        }

    return follow(setup, values, sweeps, row)[0]


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
        self.everything = self.setup.features()

    @cache  # noqa: B019 - one object a run
    def path(self):
        """(rows, {c1: Sparse}) of SBCD over the values of c1, 0 last."""
        before = [0.0]

        def row(c1, step, model, seconds):
            spent, before[0] = seconds - before[0], seconds
            return {
                "c1": f"{c1:g}",
                "start": "the c1 before" if c1 < LETTERS[0] else "zero",
                **self._row(SWEEPS, model, step.objective, spent),
            }

        return follow(self.setup, (*LETTERS, 0.0), SWEEPS, row)

    def sparse(self):
        """The `Sparse` that SBCD finds at the chosen c1, at the end of its part of the path."""
        return self.path()[1][self.c1]

    def cold(self):
        """The row of SBCD at the chosen c1 from zero, as the paper has it."""
        row = lambda c1, step, w, s: {
            "c1": f"{c1:g}",
            "start": "zero",
            **self._row(step.iteration, w, step.objective, s),
        }  # noqa: E731
        return follow(self.setup, (self.c1,), SWEEPS, row)[0]

    @cache  # noqa: B019 - one object a run
    def batch(self, c1, **how):
        """(OptResult, CPU seconds) of a quasi-Newton method on all candidates."""
        fun = Objective(self.setup.corpus, self.everything, c2=C2)
        zero = np.zeros(self.everything.n_features)
        minimize(fun, zero, c1=c1, c2=C2, **{**how, "max_iterations": 2})  # compiles
        clock = time.process_time()
        found = minimize(fun, zero, c1=c1, c2=C2, **how)
        return found, time.process_time() - clock

    def quasi_newton(self, c1, **how):
        """The row of OWL-QN (c1 > 0) or L-BFGS."""
        found, seconds = self.batch(c1, **how)
        return {
            "c1": f"{c1:g}",
            "start": "zero",
            **self._row(found.n_iter, Sparse(self.everything, found.w), found.objective, seconds),
        }

    def sgd(self):
        """The row of stochastic gradient descent with an L2 penalty."""
        sgd(self.setup.corpus, self.everything, c2=C2, max_iterations=1)  # compiles
        clock = time.process_time()
        found = sgd(self.setup.corpus, self.everything, c2=C2, max_iterations=SWEEPS, delta=0.0)
        seconds = time.process_time() - clock
        return {
            "c1": "0",
            "start": "zero",
            **self._row(found.n_iter, Sparse(self.everything, found.w), found.objective, seconds),
        }

    def _row(self, iterations, model, objective, seconds):
        n_mu = np.count_nonzero(model.w[: model.features.n_node])
        return {
            "iterations": iterations,
            "seconds": f"{seconds:.1f}",
            "train": f"{error(self.setup.corpus, model)[0]:.2f}",
            "test": f"{error(self.setup.held, model)[0]:.2f}",
            "mu": n_mu,
            "lambda": np.count_nonzero(model.w) - n_mu,
            "objective": f"{objective:.1f}",
        }

    def weights(self):
        """Figures 1 and 4: for each letter and phoneme |mu|, and the sum of |lambda| over the phoneme before,
        of the L2 and the L1 model.
        """
        dense, names = {}, self.setup.encoder
        node_tests = names.attribute_names()
        letter, edge_test = [name[-1] for name in node_tests], {name: a for a, name in enumerate(node_tests)}
        test_of = np.array([edge_test.get(name, -1) for name in names.edge_attribute_names()])
        l2 = Sparse(self.everything, self.batch(0.0, **DENSE_RUN)[0].w)
        for kind, (features, w) in {"L2": l2, "L1": self.sparse()}.items():
            mu, lam = np.zeros((2, features.n_attrs, features.n_labels))
            mu[np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr)), features.node_label] = (
                np.abs(w[: features.n_node])
            )
            owner = np.repeat(test_of, np.diff(features.edge_ptr))
            np.add.at(lam, (owner, features.edge_next), np.abs(w[features.n_node :]))
            dense |= {f"{kind} mu": mu, f"{kind} lambda": lam}
        return [
            {
                "letter": letter[a],
                "phoneme": phoneme,
                **{name: f"{table[a, y]:.4g}" for name, table in dense.items()},
            }
            for a in np.argsort(letter)
            for y, phoneme in enumerate(names.labels_)
        ]


class Ngrams:
    """Table 3: contexts, each under one falling path of c1; its rows, and the model of the largest one."""

    def __init__(self, c1, n_words=None):
        self.values, self.n_words, self.peak = (*(value for value in PATH if value > c1), c1), n_words, 0.0

    def sizes(self, template):
        """Tests and candidates, in millions."""
        n_labels, n_attrs, n_edge_attrs = set_up(template, self.n_words).options["sizes"]
        return {
            "tests": n_attrs,
            "edge tests": n_edge_attrs,
            "million": f"{(n_attrs * n_labels + n_edge_attrs * n_labels**2) / 1e6:.3f}",
        }

    @cache  # noqa: B019 - one object a run
    def path(self, template):
        """(Setup, rows after each second sweep, the last `Sparse`)."""
        setup = set_up(template, self.n_words)
        n = [2] * (len(self.values) - 1)

        def row(c1, step, model, seconds):
            n_mu = model.features.n_node
            return {
                "sweeps": step.iteration,
                "c1": f"{c1:g}",
                "test": f"{error(setup.held, model)[0]:.2f}",
                "mu": n_mu,
                "lambda": model.features.n_features - n_mu,
                "objective": f"{step.objective:.1f}",
                "seconds": f"{seconds:.1f}",
                "MB so far": f"{self.peak_mb():.0f}",
            }

        rows, models = follow(setup, self.values, [*n, SWEEPS - sum(n)], row, range(2, SWEEPS + 1, 2))
        return setup, rows, models[self.values[-1]]

    def peak_mb(self):
        """The most memory that this process, with all its templates so far, was seen to hold:
        a counter that is reset takes nothing back.
        """
        unit = 1e6 if sys.platform == "darwin" else 1e3
        self.peak = max(self.peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
        return self.peak

    def tagging(self, template="ngrams_5"):
        """Rows: words to phonemes by the sparse and by the dense form of Viterbi's algorithm; medians,
        CPU seconds.
        """
        setup, _, model = self.path(template)
        paths, rows, spent = {}, [], []
        for form in ("sparse", "dense"):
            paths[form], spent = decode(setup.held, *model, form=form), []
            for _ in range(REPEATS):
                clock = [time.process_time()]
                held = setup.encoder.transform(setup.words, on_unknown_label="mark")
                clock.append(time.process_time())
                decode(held, *model, form=form)
                spent.append(np.diff([*clock, time.process_time()]))
            encode, search = np.median(spent, axis=0)
            rows.append(
                {
                    "form": form,
                    "words": setup.held.n_sequences,
                    "letters": setup.held.n_tokens,
                    "classes": setup.held.n_classes,
                    "encode": f"{encode:.3f}",
                    "decode": f"{search:.3f}",
                    "same path": str(bool((paths[form] == paths["sparse"]).all())),
                }
            )
        return rows

    def errors(self, template="ngrams_5"):
        """Rows: how often a letter of the test words with this phoneme got that one."""
        setup, _, model = self.path(template)
        found = setup.encoder.decode(decode(setup.held, *model), setup.held.seq_ptr)
        columns = setup.words.by_sequence("letter"), setup.words.labels_by_sequence(), found
        triples = [triple for word in zip(*columns, strict=True) for triple in zip(*word, strict=True)]
        names, counts = np.unique(np.array(triples), axis=0, return_counts=True)
        return [
            {"letter": letter, "phoneme": gold, "found": guess, "count": int(n)}
            for (letter, gold, guess), n in zip(names.tolist(), counts, strict=True)
        ]


def fill_phonetization(folder, n_words=None):
    """All records of chapter 08 in `folder`, smallest first; half an hour.
    An interrupted run goes on with the next job. Returns the paths.
    """
    folder, data = Path(folder), [_data()]
    choice = fill(
        folder / "08_choice.csv",
        [({"template": name}, lambda name=name: choice_rows(name, n_words)) for name in CHOICES],
        datasets=data,
    )
    rows = read_record(choice)[1]
    letters, ngrams = (
        Letters(chosen(rows, "letter_tests"), n_words),
        Ngrams(chosen(rows, "ngrams_5"), n_words),
    )
    # the leanest first (pseudo 5-grams need more than 5-grams): the peak of memory is that of the process so
    # far
    work = {
        "candidates": [({"template": name}, lambda name=name: ngrams.sizes(name)) for name in COUNTED],
        "ngrams": [
            ({"template": name}, lambda name=name: ngrams.path(name)[1])
            for name in (*TESTS[:2], TESTS[3], TESTS[2])
        ],
        "errors": [({"model": "ngrams_5"}, ngrams.errors)],
        "letters": [
            (
                {"method": "OWL-QN"},
                lambda: letters.quasi_newton(letters.c1, l1_method="owlqn", max_iterations=50, tol=0.0),
            ),
            ({"method": "L-BFGS"}, lambda: letters.quasi_newton(0.0, **DENSE_RUN)),
            (
                {"method": "L-BFGS, until it rests"},
                lambda: letters.quasi_newton(0.0, relative_change=(10, 1e-4)),
            ),
            ({"method": "SGD"}, letters.sgd),
            ({"method": "SBCD, from zero"}, letters.cold),
            ({"method": "SBCD"}, lambda: letters.path()[0]),
        ],
        "weights": [({"data": "NetTalk"}, letters.weights)],
        "tagging": [({"model": "ngrams_5"}, ngrams.tagging)],
    }
    return [choice, *(fill(folder / f"08_{name}.csv", jobs, datasets=data) for name, jobs in work.items())]
