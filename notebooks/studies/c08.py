"""Chapter 08: letters to phonemes on NetTalk: Tables 2 and 3, Figures 1 and 4.

The tables and figures are those of Sokolovska, Lavergne, Cappe and Yvon (2010). The values of c1 are not
legible in the paper. They are chosen on the last tenth of the training words: the largest c1 whose error
there is at most one standard error above the lowest on the path. The test words choose nothing. Seconds are
of CPU, without the scoring.

Table 2 says of every model how far its objective is above the least one that is known for its penalties.
Methods that begin at zero also have one budget: the seconds until they are within 1 per cent of it.
"""

from collections import Counter
from functools import cache, partial

import numpy as np

from crfbook import Objective, minimize
from crfbook.chain.inference import decode
from crfbook.evaluation import paired_test
from crfbook.learners.coordinate import coordinate_descent, solve_path
from crfbook.learners.coordinate.arrays import Sparse
from crfbook.learners.stochastic import sgd

from .harness import at, follow, peak_mb, study, timed
from .records import cells, each
from .work import LETTERS_C2 as C2
from .work import dataset, error_of, load, model_error

PATH = (30.0, 10.0, 5.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3)  # of c1 of Table 3, two sweeps each
LETTERS = (10.0, 3.0, 1.0, 0.5, 0.2, 0.05)  # c1 of Table 2; its first row is c1 = 0
SWEEPS = 30  # for each value in Table 2, and the longest run of Table 3
BUDGET = 60.0  # CPU seconds of a method that is not yet within CLOSE of the least objective
CLOSE = 0.01
TESTS = ("pseudo_ngrams_3", "ngrams_3", "pseudo_ngrams_5", "ngrams_5")
CHOICES = {  # values of c1, past the best one or to 0; sweeps for each
    "letter_tests": ((*LETTERS, 0.02, 0.01, 0.0), 8), "ngrams_5": ((*PATH, 0.2, 0.1), 2)
}  # fmt: skip
COUNTED = (*TESTS, "ngrams_3_inside", "ngrams_5_inside")
ITERATIONS = {"L-BFGS": 90, "OWL-QN": 50, "SGD": 30}  # of Table 2; SBCD: SWEEPS
AT_REST = 700  # iterations of L-BFGS, whose model all others are tested against
EPOCHS = (10, 20, 25, 30, 35, 40)  # of SGD, looked at
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


def tested(setup, before, after):
    """(how many more tokens are right after than before, in per cent, p): a paired test on the held words."""
    found = [setup.encoder.decode(path, setup.held.seq_ptr) for path in (before, after)]
    test = paired_test(setup.words.labels_by_sequence(), *found, "accuracy", random_state=0)
    return 100 * test.difference, test.p_value


def difference(setup, before, after):
    """The columns of `tested`, and the standard error of the difference."""
    (fewer, p), labels = tested(setup, before, after), setup.held.labels
    error = error_of(setup.held, (before != labels).astype(int) - (after != labels))[1]
    return {"difference": f"{fewer:.2f}", "standard error": f"{error:.2f}", "p": f"{p:.4f}"}


def compared(setup, before, after):
    """`tested` for two models."""
    return tested(setup, *(decode(setup.held, model.features, model.w) for model in (before, after)))


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
            return {"c1": c1, "model": model, "objective": step.objective, "seconds": spent}

        return walk(self.setup, (*LETTERS, 0.0), SWEEPS, row)

    def sparse(self):
        """The `Sparse` that SBCD finds at the chosen c1, at the end of its part of the path."""
        return self.path()[1][self.c1]

    @cache  # noqa: B019 - one object a run
    def rest(self):
        """(Sparse, objective, seconds) of L-BFGS, c1 = 0, after AT_REST iterations."""
        fun = Objective(self.setup.corpus, self.everything, c2=C2)
        start = np.zeros(self.everything.n_features)
        found, seconds = timed(minimize, fun, start, c2=C2, tol=0.0, max_iterations=AT_REST)
        return Sparse(self.everything, found.w), found.objective, seconds

    @cache  # noqa: B019 - one object a run
    def least(self, c1):
        """The least objective that is known: of accelerated SBCD from the end of its part of the path, to a
        certificate of 1e-4; for c1 = 0 that of `rest`.
        """
        if c1 == 0.0:
            return self.rest()[1]
        how = {"c1": c1, "accelerate": True, "tol": 1e-4, "max_iterations": 60, **self.setup.options}
        return coordinate_descent(self.setup.corpus, w0=self.path()[1][c1], **how).objective

    def path_rows(self):
        """The rows of SBCD down the path, each from the c1 before."""
        rows = zip(self.path()[0], ["zero", *["the c1 before"] * len(LETTERS)], strict=True)
        return [self._row(iterations=SWEEPS, start=start, **part) for part, start in rows]

    def from_zero(self, name):
        """(learner from zero weights without a stop of its own, its c1, the paper's number of iterations)."""
        setup, c1 = self.setup, 0.0 if name in ("L-BFGS", "SGD") else self.c1
        if name == "SBCD, from zero":
            learner = partial(coordinate_descent, setup.corpus, c1=c1, tol=0.0, **setup.options)
        elif name == "SGD":
            learner = partial(sgd, setup.corpus, self.everything, c2=C2, delta=0.0)
        else:
            fun = Objective(setup.corpus, self.everything, c2=C2)
            learner = partial(minimize, fun, np.zeros(self.everything.n_features), c1=c1, c2=C2, tol=0.0)
            learner = partial(learner, l1_method="owlqn") if c1 else learner
        return learner, c1, ITERATIONS.get(name, SWEEPS)

    def method(self, name):
        """The row of a method that begins at zero: after the paper's number of iterations."""
        learner, c1, n = self.from_zero(name)
        least, near, kept, limits = self.least(c1), [], [], {"max_iterations": 10_000}
        fun = Objective(self.setup.corpus, self.everything, c2=C2)

        def look(step, w, seconds):
            value = fun(w)[0] if name == "SGD" else step.objective  # SGD's is that of weights on the move
            if value <= (1 + CLOSE) * least and not near:
                near.append(seconds)
            if step.iteration == n:
                model = w if isinstance(w, Sparse) else Sparse(self.everything, w.copy())
                kept.extend((model, value, seconds))
            return bool(kept) and (bool(near) or seconds > BUDGET)

        learner(**{**limits, "max_iterations": 1})  # compiles
        follow(learner, look=look, **limits)
        return self._row(c1, n, *kept, close=f"{near[0]:.1f}" if near else f"not in {BUDGET:.0f}")

    def at_rest(self):
        """The row of L-BFGS when it rests."""
        return self._row(0.0, AT_REST, *self.rest())

    def _row(self, c1, iterations, model, objective, seconds, start="zero", close=""):
        n_mu, setup = np.count_nonzero(model.w[: model.features.n_node]), self.setup
        error, deviation, _ = model_error(setup.held, model)
        return {
            "c1": f"{c1:g}", "start": start, "iterations": iterations, "seconds": f"{seconds:.1f}",
            "train": f"{model_error(setup.corpus, model)[0]:.2f}", "test": f"{error:.2f}",
            "standard error": f"{deviation:.2f}", "p": f"{compared(setup, self.rest()[0], model)[1]:.4f}",
            "mu": n_mu, "lambda": np.count_nonzero(model.w) - n_mu, "objective": f"{objective:.1f}",
            "% above the least": f"{100 * (objective / self.least(c1) - 1):.2f}", "s to 1 %": close,
        }  # fmt: skip

    def epochs(self):
        """Rows: SGD's mean of iterates, epoch after epoch, and how far it is from L-BFGS at rest."""
        setup = self.setup
        fun, rest = Objective(setup.corpus, self.everything, c2=C2), decode(setup.held, *self.rest()[0])

        def row(step, w, _):
            model = Sparse(self.everything, w)
            value, labels = fun(w)[0], decode(setup.held, *model)
            letter = np.array(setup.words.columns["letter"])[labels != rest]
            gain = (rest != setup.held.labels).astype(int) - (labels != setup.held.labels)
            common = np.unique(np.stack([labels, rest])[:, labels != rest], axis=1, return_counts=True)[1]
            return {
                "epochs": step.iteration, "objective": f"{value:.1f}",
                "% above the least": f"{100 * (value / self.least(0.0) - 1):.2f}",
                "train": f"{model_error(setup.corpus, model)[0]:.2f}",
                "test": f"{100 * np.mean(labels != setup.held.labels):.2f}",
                "p": f"{compared(setup, self.rest()[0], model)[1]:.4f}", "other readings": len(letter),
                "letters": len(set(letter)), "in five swaps": int(np.sort(common)[-5:].sum()),
                "fewer errors": int(gain.sum()),
            }  # fmt: skip

        look, rows = at(EPOCHS, row)
        limits = {"max_iterations": max(EPOCHS), "delta": 0.0, "c2": C2}
        follow(sgd, setup.corpus, self.everything, look=look, **limits)
        return rows

    def weights(self):
        """Figures 1 and 4: |mu|, and |lambda| summed over the phoneme before, of the L2 and the L1 model.

        A row for each letter and phoneme.
        """
        dense, names = {}, self.setup.encoder
        tests = names.attribute_names()
        letter, number = [name[-1] for name in tests], {name: a for a, name in enumerate(tests)}
        test_of = np.array([number.get(name, -1) for name in names.edge_attribute_names()])
        l2 = self.rest()[0]
        for kind, (features, w) in {"L2": l2, "L1": self.sparse()}.items():
            mu, lam = np.zeros((2, features.n_attrs, features.n_labels))
            size, row = np.abs(w), np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr))
            mu[row, features.node_label] = size[: features.n_node]
            owner = np.repeat(test_of, np.diff(features.edge_ptr))
            np.add.at(lam, (owner, features.edge_next), size[features.n_node :])
            dense |= {f"{kind} mu": mu, f"{kind} lambda": lam}
        places = [(a, y, phoneme) for a in np.argsort(letter) for y, phoneme in enumerate(names.labels_)]
        tables = [{name: f"{table[a, y]:.4g}" for name, table in dense.items()} for a, y, _ in places]
        rows = zip(places, tables, strict=True)
        return [{"letter": letter[a], "phoneme": p, **row} for (a, _, p), row in rows]


class Ngrams:
    """Table 3: contexts, each under one falling path of c1; its rows, and the model of the largest one."""

    def __init__(self, c1, n_words=None):
        self.values, self.n_words, self.peak = (*(value for value in PATH if value > c1), c1), n_words, 0.0

    def sizes(self, template):
        """Tests and candidates, in millions."""
        setup = set_up(template, self.n_words)
        _, n_attrs, n_edge_attrs = setup.sizes
        return {"tests": n_attrs, "edge tests": n_edge_attrs, "million": f"{setup.n_candidates / 1e6:.3f}"}

    @cache  # noqa: B019 - one object a run
    def path(self, template):
        """(Work, rows after each second sweep, the last `Sparse`)."""
        setup, n = set_up(template, self.n_words), [2] * (len(self.values) - 1)

        def row(c1, step, model, seconds):
            n_mu, (error, deviation, _) = model.features.n_node, model_error(setup.held, model)
            return {
                "sweeps": step.iteration, "c1": f"{c1:g}", "test": f"{error:.2f}",
                "standard error": f"{deviation:.2f}", "mu": n_mu, "lambda": model.features.n_features - n_mu,
                "objective": f"{step.objective:.1f}", "seconds": f"{seconds:.1f}",
                "MB so far": f"{self.peak_mb():.0f}",
            }  # fmt: skip

        rows, models = walk(setup, self.values, [*n, SWEEPS - sum(n)], row, range(2, SWEEPS + 1, 2))
        return setup, rows, models[self.values[-1]]

    def peak_mb(self):
        """The most memory that this process, with all its templates so far, was seen to hold."""
        self.peak = max(self.peak, peak_mb())  # a counter that is reset takes nothing back
        return self.peak

    def tagging(self, template="ngrams_5"):
        """Rows: words to phonemes by the sparse and by the dense form of Viterbi; medians, CPU seconds."""
        (setup, _, model), paths, rows = self.path(template), {}, []
        held = setup.held
        sizes = {"words": held.n_sequences, "letters": held.n_tokens, "classes": held.n_classes}
        for form in ("sparse", "dense"):
            paths[form], spent = decode(held, *model, form=form), []
            for _ in range(REPEATS):
                text, encode = timed(setup.encoder.transform, setup.words, on_unknown_label="mark")
                spent.append((encode, timed(decode, text, *model, form=form)[1]))
            encode, search = np.median(spent, axis=0)
            same = str(bool((paths[form] == paths["sparse"]).all()))
            found = {"encode": f"{encode:.3f}", "decode": f"{search:.3f}", "same path": same}
            rows.append({"form": form, **sizes, **found})
        return rows

    def paired(self, before, after):
        """The row of a paired test of two templates' last models on the test words."""
        ends = [self.path(template) for template in (before, after)]
        return difference(ends[0][0], *(decode(setup.held, *model) for setup, _, model in ends))

    def errors(self, template="ngrams_5"):
        """Rows: how often a letter of the test words with this phoneme got that one."""
        setup, _, model = self.path(template)
        found = setup.encoder.decode(decode(setup.held, *model), setup.held.seq_ptr)
        columns = setup.words.by_sequence("letter"), setup.words.labels_by_sequence(), found
        words = zip(*columns, strict=True)
        counts = Counter(triple for word in words for triple in zip(*word, strict=True))
        return [dict(letter=x, phoneme=y, found=z, count=n) for (x, y, z), n in sorted(counts.items())]


PAIRED = (TESTS[:2], TESTS[2:], TESTS[::2], TESTS[1::2])  # of Table 3
TABLES = "choice candidates letters epochs weights ngrams paired errors tagging".split()
FROZEN = ("sbcd", "sbcd, virtual weights", "path, sbcd", "owlqn", "lbfgs", "sgd", "decoding, sparse")


@study(*(f"08_{name}.csv" for name in TABLES), frozen=FROZEN)
def phonetization(n_words=None):
    """Tables 2 and 3, Figures 1 and 4: records of chapter 08; half an hour."""
    data = [dataset("nettalk")]
    rows = yield "08_choice.csv", each(choice_rows, cells(template=CHOICES), n_words=n_words), data
    letters = Letters(chosen(rows, "letter_tests"), n_words)
    ngrams = Ngrams(chosen(rows, "ngrams_5"), n_words)
    yield "08_candidates.csv", each(ngrams.sizes, cells(template=COUNTED)), data
    methods = {name: partial(letters.method, name) for name in (*ITERATIONS, "SBCD, from zero")}
    methods |= {"L-BFGS, at rest": letters.at_rest, "SBCD": letters.path_rows}
    yield "08_letters.csv", [({"method": name}, make) for name, make in methods.items()], data
    yield "08_epochs.csv", [({"method": "SGD"}, letters.epochs)], data
    yield "08_weights.csv", [({"data": "NetTalk"}, letters.weights)], data
    # the leanest first (pseudo 5-grams need more than 5-grams): the peak of memory is that of all so far
    order = cells(template=(*TESTS[:2], TESTS[3], TESTS[2]))
    yield "08_ngrams.csv", each(lambda template: ngrams.path(template)[1], order), data
    pairs = [{"before": one, "after": other} for one, other in PAIRED]
    yield "08_paired.csv", each(ngrams.paired, pairs), data
    yield "08_errors.csv", [({"model": "ngrams_5"}, ngrams.errors)], data
    yield "08_tagging.csv", [({"model": "ngrams_5"}, ngrams.tagging)], data


# ---- contexts from zero, a penalty each ----

FROM_ZERO = (0.5, 1.0)  # c1: what Ngrams ends at, and one that keeps out what was seen once
SWEEPS_FROM_ZERO = 20


def swept(template, c1, n_words=None):
    """(rows after each sweep from zero, labels of the test words after each)."""
    setup, rows, paths = set_up(template, n_words), [], []

    def look(step, model, seconds):
        paths.append(decode(setup.held, *model))
        error, deviation, _ = error_of(setup.held, paths[-1] != setup.held.labels)
        scores = {"test": f"{error:.2f}", "standard error": f"{deviation:.2f}"}
        sizes = {"active": model.features.n_features, "candidates": setup.n_candidates}
        found = {"template": template, "sweeps": step.iteration, **scores, **sizes}
        rows.append({**found, "objective": f"{step.objective:.1f}", "seconds": f"{seconds:.1f}"})

    how = {"c1": c1, "tol": 0.0, "max_iterations": SWEEPS_FROM_ZERO, **setup.options}
    coordinate_descent(setup.corpus, **{**how, "c1": 1e9, "max_iterations": 1})  # compiles
    follow(coordinate_descent, setup.corpus, look=look, **how)
    return rows, paths


def from_zero_rows(letters, c1, n_words=None):
    """Rows of pseudo n-grams and n-grams; gain, p: n-grams against pseudo n-grams after the same sweep."""
    pseudo, whole = (swept(f"{name}_{letters}", c1, n_words) for name in ("pseudo_ngrams", "ngrams"))
    setup, rows = set_up(f"ngrams_{letters}", n_words), [{**row, "gain": "", "p": ""} for row in pseudo[0]]
    for row, before, after in zip(whole[0], pseudo[1], whole[1], strict=True):
        gain, p = tested(setup, before, after)
        rows.append({**row, "gain": f"{gain:.2f}", "p": f"{p:.4f}"})
    return rows


@study("08_from_zero.csv", frozen=("sbcd", "sbcd, virtual weights", "decoding, sparse"))
def contexts_from_zero(n_words=None):
    """SBCD from zero for the four contexts of Table 3, sweep after sweep, at two penalties; ten minutes."""
    keys = cells(letters=(5, 3), c1=FROM_ZERO)
    yield "08_from_zero.csv", each(from_zero_rows, keys, n_words=n_words), [dataset("nettalk")]


# ---- are SBCD and OWL-QN as accurate as each other in Table 2? ----

# Both begin at zero and end after the paper's number of sweeps or iterations, as in 08_letters.csv.

C1 = 0.2  # as 08_choice.csv chose


def trained(letters, name):
    """`Sparse` of a method of Table 2 after the paper's number of iterations from zero."""
    (learner, _, n), last = letters.from_zero(name), []

    def look(step, w, seconds):
        last[:] = [w.copy()]

    follow(learner, max_iterations=n, look=look)
    return last[0] if isinstance(last[0], Sparse) else Sparse(letters.everything, last[0])


def paired_row(before, after, c1=C1, n_words=None):
    """Errors of two methods; how many points fewer the second makes, its standard error, p."""
    letters = Letters(c1, n_words)
    held = letters.setup.held
    paths = [decode(held, *trained(letters, name)) for name in (before, after)]
    errors = [f"{100 * np.mean(path != held.labels):.2f}" for path in paths]
    found = {"c1": f"{c1:g}", "error before": errors[0], "error after": errors[1]}
    return found | difference(letters.setup, *paths)


@study("08_letters_paired.csv", frozen=("sbcd", "owlqn", "decoding, sparse"))
def letters_paired(n_words=None, c1=C1):
    """SBCD against OWL-QN in Table 2: a paired test after the paper's numbers of iterations; a minute."""
    keys = cells(before=["OWL-QN"], after=["SBCD, from zero"])
    yield "08_letters_paired.csv", each(paired_row, keys, c1=c1, n_words=n_words), [dataset("nettalk")]
