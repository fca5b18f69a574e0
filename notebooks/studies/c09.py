"""Chapter 09: error against number of features, for the ways to select them: Figure 6.

The figure is that of Sokolovska, Lavergne, Cappe and Yvon (2010). L1 selects while it trains, by OWL-QN or by
blockwise coordinate descent (SBCD); the frequency cut-off and mutual information before, then an L2 penalty
trains what is left; a-posteriori thresholding takes the largest weights of the whole L2 model and trains no
more. The rivals of L1 are as large as its models, feature for feature. Every model has one penalty; that of
an L2 model is the one of `C2` that does best on the first held-out part, whatever was selected. All are
trained to a certified relative gap of about one per cent (`gap`: the bound at the end). Bands and tests
resample, and swap, sentences of the second held-out part, which chooses nothing.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective
from crfbook.chain.inference import decode
from crfbook.data import features as sets
from crfbook.evaluation import bootstrap_interval, chunk_report, paired_test
from crfbook.learners.coordinate import coordinate_descent
from crfbook.learners.coordinate.arrays import Sparse
from crfbook.training.certificate import duality_gap

from .harness import study, timed
from .records import cells, each
from .work import TASKS, dataset, descend, load_dataset, set_up

TOL = 0.01  # certified relative gap (L2), share of c1 by which a condition may fail (L1)
C2 = (12.5, 2.5, 0.5, 0.1, 0.02, 0.004)
SIZES = (20_000, 50_000)  # beside those of the L1 models
SEEN = (2, 1)  # times: true cut-offs beyond `SIZES`
EQUAL = (8.0, 2.0, 0.5)  # c1 of the L1 models that the others equal in size
STRENGTHS = (32.0, 8.0, 2.0, 0.5, 0.25, 0.125, 0.0625)  # c1
LAST = 1 / 128  # a path goes on by halves down to this while its last is its best
BEST = {"ner": 0.0625, "wnut17": 0.125}  # c1 of OWL-QN in 09_best_*.csv
SWEPT = {"ner": (8.0, 0.5, 0.125, 0.0625)}  # c1 of SBCD where it takes minutes a row, else all
L1 = ("OWL-QN", "SBCD")
BATCH = {"owlqn": 100, "proximal": 3000}  # iterations: what OWL-QN leaves unfinished is finished by the other
SWEEPS = {"accelerate": True, "freeze_after": 0, "max_iterations": 60}
SAMPLES = 1000
NAMED = ("ner", "wnut17", "conll2003")
FROZEN = ("lbfgs", "owlqn", "lbfgs, elastic net", "sbcd", "objective, auto")


class Model(NamedTuple):
    """What a selection leaves, trained."""

    w: np.ndarray  # (F,)
    penalty: float
    objective: float
    gap: float  # certified bound, a share of the objective
    iterations: int
    seconds: float


def l1_gap(corpus, features, w, c1, violation=None):
    """(objective, certified relative gap); violation: what no |gradient| beyond `features` exceeds c1 by."""
    value, grad = Objective(corpus, features)(w)
    objective = value + c1 * np.abs(w).sum()
    gap = duality_gap(value, grad, w, c1)
    if violation is not None:
        gap = max(gap, objective - c1 / (c1 + violation) * (value - grad @ w))
    return objective, gap / objective


def tested(gold, guess, other):
    """(F1 of `guess` minus F1 of `other`, p), as text."""
    found = paired_test(gold, other, guess, n_samples=SAMPLES)
    return f"{100 * found.difference:.2f}", f"{found.p_value:.4f}"


def measured(setup, guess):
    """{"<part> F1", "<part> error"}: phrases, and tokens with a wrong label, per cent, on held-out parts;
    of the last part with the ends of a 95 % bootstrap interval.
    """
    found = {}
    for name, part in setup.parts.items():
        report = chunk_report(part.gold, guess[name])
        found[f"{name} F1"] = f"{100 * report.f1:.2f}"
        found[f"{name} error"] = f"{100 * (1 - report.accuracy):.3f}"
    sure = partial(bootstrap_interval, part.gold, guess[name], n_samples=SAMPLES)
    f1, right = sure("f1"), sure("accuracy")
    found |= {"F1 low": f"{100 * f1.low:.2f}", "F1 high": f"{100 * f1.high:.2f}"}
    low, high = (f"{100 * (1 - share):.3f}" for share in (right.high, right.low))
    return found | {"error low": low, "error high": high}


class Selections:
    """The selections on one task, `n_sentences` of its training data (None: all); a model is trained once."""

    def __init__(self, task, n_sentences=None):
        self.setup = set_up(task, TASKS[task].template, n_sentences)
        self.corpus, self.features = self.setup.corpus, self.setup.features
        self.dev, self.test = self.setup.parts
        self.strengths = {"OWL-QN": list(STRENGTHS), "SBCD": list(SWEPT.get(task, STRENGTHS))}
        self.fixed = [n for n in SIZES if n < self.features.n_features]
        self.model, self.guess = cache(self._model), cache(self._guess)
        self.whole = cache(lambda: self._l2(np.ones(self.features.n_features, bool)))

    def _model(self, selection, setting):
        if selection in L1:
            return self._l1(selection, setting)
        if selection == "threshold":
            models = [m._replace(w=np.where(sets.heaviest(m.w, setting), m.w, 0.0)) for m in self.whole()]
        else:
            given = self.corpus, self.features, setting
            kept = self.most_seen(setting) if selection == "cut-off" else sets.most_informative(*given)
            models = self.whole() if kept.all() else self._l2(kept)
        return max(models, key=self._dev_f1)

    def most_seen(self, n):
        """Boolean (F,): the n features that were seen most often, equals by lot."""
        lot = np.random.default_rng(0).permutation(self.features.n_features)
        order = np.lexsort([lot, -sets.empirical_counts(self.corpus, self.features)])
        return np.isin(np.arange(len(order)), order[:n])

    def _dev_f1(self, model):
        guess = self.setup.guess(model.w, self.dev)
        return chunk_report(self.setup.parts[self.dev].gold, guess).f1

    def _l2(self, keep):
        """A `Model` for each c2, trained from the one before."""
        models, part, features = [], np.zeros(keep.sum()), sets.select(self.features, keep)
        for c2 in C2:
            fit = partial(descend, self.corpus, features, part, c2=c2, tol=TOL)
            found, seconds = timed(fit, max_iterations=BATCH["proximal"])
            w, part = np.zeros(len(keep)), found.w
            w[keep] = part
            grad = Objective(self.corpus, features, c2=c2)(part)[1]  # the start, too, may meet TOL
            gap = grad @ grad / (4.0 * c2) / found.objective
            models.append(Model(w, c2, found.objective, gap, found.n_iter, seconds))
        return models

    def _l1(self, learner, c1):
        """From the solution for the c1 before."""
        start = np.zeros(self.features.n_features)
        values = self.strengths[learner]
        if c1 in values[1:]:
            start = self.model(learner, values[values.index(c1) - 1]).w
        (w, n_iter), seconds = timed(self._batch if learner == "OWL-QN" else self._sweeps, start, c1)
        return Model(w, c1, *l1_gap(self.corpus, self.features, w, c1), n_iter, seconds)

    def _batch(self, w, c1):
        n = 0
        for method, most in BATCH.items():
            how = {"l1_method": method, "c1": c1, "tol_gradient": TOL * c1, "max_iterations": most}
            found = descend(self.corpus, self.features, w, **how)
            w, n = found.w, n + found.n_iter
        return w, n

    def _sweeps(self, w, c1):
        found = coordinate_descent(self.corpus, self.features, w, c1=c1, tol_gradient=TOL * c1, **SWEEPS)
        return found.w, found.n_iter

    def _guess(self, selection, setting):
        return {name: self.setup.guess(self.model(selection, setting).w, name) for name in self.setup.parts}

    def against(self, mine, other):
        """`tested` on the last part: mine, other are (selection, setting) or None."""
        if other is None:
            return "", ""
        gold = self.setup.parts[self.test].gold
        return tested(gold, self.guess(*mine)[self.test], self.guess(*other)[self.test])

    def row(self, selection, setting, l1=None, mi=None):
        """A row, and its tests against an L1 model and one of mutual information, where there are any."""
        model, mine = self.model(selection, setting), (selection, setting)
        active = model.w != 0
        (gain_l1, p_l1), (gain_mi, p_mi) = self.against(mine, l1), self.against(mine, mi)
        return {
            "features": int(active.sum()), "edges": int(active[self.features.n_node :].sum()),
            **measured(self.setup, self.guess(*mine)),
            "gain L1": gain_l1, "p L1": p_l1, "gain MI": gain_mi, "p MI": p_mi,
            "penalty": f"{model.penalty:g}", "objective": f"{model.objective:.2f}", "gap": f"{model.gap:.1e}",
            "iterations": model.iterations, "seconds": f"{model.seconds:.1f}",
        }  # fmt: skip

    def path(self, name):
        """Jobs for `fill`: L1 at each strength by that method; SBCD is tested against OWL-QN.

        The path goes on by halves until its best on the first held-out part is not its last, or to `LAST`.
        """
        values = self.strengths[name]
        for c1 in values:
            other = ("OWL-QN", c1) if name == "SBCD" else None
            yield {"selection": name, "setting": f"{c1:g}"}, partial(self.row, name, c1, other)
            if c1 == values[-1] > LAST and c1 == max(values, key=lambda c: self._dev_f1(self.model(name, c))):
                values.append(c1 / 2)

    def rivals(self, rows):
        """Jobs for `fill`: the others, as large as some L1 models (rows of the path), and larger."""
        equal = [row for row in rows if float(row["setting"]) in EQUAL]
        l1 = {int(row["features"]): ("OWL-QN", float(row["setting"])) for row in equal}
        for name in ("threshold", "mutual information", "cut-off"):
            for n in [*l1, *self.fixed]:
                mi = None if name == "mutual information" else ("mutual information", n)
                yield {"selection": name, "setting": str(n)}, partial(self.row, name, n, l1.get(n), mi)
        n = self.features.n_features
        yield {"selection": "threshold", "setting": str(n)}, partial(self.row, "threshold", n)

    def best(self, rows):
        """Jobs for `fill`: of each selection the row that does best on the first held-out part."""
        found = {}
        for row in rows:
            now = found.setdefault(row["selection"], row)
            if float(row[f"{self.dev} F1"]) > float(now[f"{self.dev} F1"]):
                found[row["selection"]] = row
        for name, row in found.items():
            l1 = None if name == "OWL-QN" else ("OWL-QN", float(found["OWL-QN"]["setting"]))
            mine = name, (float if name in L1 else int)(row["setting"])
            yield {"selection": name, "setting": row["setting"]}, partial(self.row, *mine, l1)

    def ends(self, best):
        """Jobs for `fill`: cut-offs at features seen once or more and twice or more, mutual information of
        these sizes, tested against OWL-QN's model at c1 = best.

        Here a cut-off draws no lots, and thresholding all features is the same as keeping all.
        """
        counts = sets.empirical_counts(self.corpus, self.features)
        for seen in SEEN:
            n = int((counts >= seen).sum())
            for name in ("mutual information", "cut-off"):
                mi = None if name == "mutual information" else ("mutual information", n)
                key = {"selection": name, "setting": str(n), "seen": seen, "L1 at": f"{best:g}"}
                yield key, partial(self.row, name, n, ("OWL-QN", best), mi)


@study(*(f"09_{name}_{{}}.csv" for name in "path selection sbcd best".split()), of=NAMED, frozen=FROZEN)
def selection(task, n_sentences=None):
    """Figure 6 on names: the path of L1, the others at its sizes, the best of each; 5 and 10 CPU minutes.

    n_sentences: only so many of the training data. Raises FileNotFoundError for
    "conll2003", which nobody may pass on, where the reader's own files are not in the folder conll2003 of
    CRFBOOK_DATA.
    """
    if task not in NAMED:
        raise ValueError(f"there is no selection task {task!r}; there are {', '.join(NAMED)}")
    if task == "conll2003":
        load_dataset(task, source="real")
    at, data = Selections(task, n_sentences), [dataset(task)]
    path = yield f"09_path_{task}.csv", at.path("OWL-QN"), data
    rest = yield f"09_selection_{task}.csv", list(at.rivals(path)), data
    swept = yield f"09_sbcd_{task}.csv", at.path("SBCD"), data
    yield f"09_best_{task}.csv", list(at.best([*path, *rest, *swept])), data


@study("09_ends_{}.csv", of=("ner", "wnut17"), frozen=FROZEN)
def selection_ends(task, n_sentences=None):
    """The largest rivals of Figure 6, up to all features, against the best L1 model; three CPU minutes."""
    yield f"09_ends_{task}.csv", list(Selections(task, n_sentences).ends(BEST[task])), [dataset(task)]


# ---- why mutual information dips at 20,000 features of WNUT-17 ----


def dip_row(kept, n, seen=1, n_sentences=None):
    """A row: the n features of largest information among those seen so often, what they are, what they do."""
    setup, c2 = set_up("wnut17", "ner", n_sentences), 0.1
    corpus, features = setup.corpus, setup.features
    counts, plain = sets.empirical_counts(corpus, features), ~sets.without_plain_transitions(features)
    score = np.where(plain, np.inf, np.where(counts >= seen, sets.mutual_information(corpus, features), -1.0))
    order = np.argsort(-score, kind="stable")
    first, keep = order[:10_000], np.isin(np.arange(len(order)), order[:n])
    once = keep & (counts == 1)
    other = np.append(features.node_label, features.edge_next) == setup.encoder.labels_.index("O")
    found = descend(corpus, sets.select(features, keep), c2=c2, tol=TOL / 10)
    w = np.zeros(len(keep))
    w[keep] = found.w
    report, (dev, _) = setup.reports(w), setup.parts
    return {
        "features": int(keep.sum()), "seen once": int(once.sum()),
        "seen once, with O": int((once & other).sum()),
        "seen once, with O, of all": int((other & (counts == 1)).sum()),
        "loss": f"{found.objective - c2 * w @ w:.1f}",
        "sum of the first 10,000": f"{np.abs(w[first]).sum():.0f}",
        "names proposed": report["test"].n_predicted, "precision": f"{100 * report['test'].precision:.2f}",
        "recall": f"{100 * report['test'].recall:.2f}", "test F1": f"{100 * report['test'].f1:.2f}",
        f"{dev} F1": f"{100 * report[dev].f1:.2f}",
        "gap": f"{found.history[-1].violation / found.objective:.1e}",
    }  # fmt: skip


@study("09_dip_wnut17.csv", frozen=("lbfgs", "objective, auto"))
def dip(n_sentences=None):
    """What enters and what changes when mutual information keeps 10,000, 20,000, 50,000 features."""
    jobs = each(dip_row, cells(kept=["all"], n=(10_000, 20_000, 50_000)), n_sentences=n_sentences)
    seen = partial(dip_row, "seen twice", 20_000, 2, n_sentences)
    yield "09_dip_wnut17.csv", [*jobs, ({"kept": "seen twice", "n": 20_000}, seen)], [dataset("wnut17")]


# ---- weights of pairs of labels that depend on the word ----

WORDS = "".join(f"U{t}:%x[{t - 1},0]\nU{t + 3}:%shortshape[{t - 1},0]\n" for t in range(3)) + "B\n"
TESTS = {"plain": WORDS, "tests": WORDS + "B1:%x[0,0]\nB4:%shortshape[0,0]\n"}  # on pairs of labels
PAIR_STRENGTHS = (1.0, 0.25, 0.125)
PAIR_SENTENCES = None  # all; a model of their pairs takes 20 to 30 CPU minutes


class Pairs:
    """Spanish names by SBCD, weights virtual: words and shapes, transitions plain, or on the same tests."""

    def __init__(self, n_sentences=None, strengths=None):
        self.setups = {name: set_up("ner", text, n_sentences) for name, text in TESTS.items()}
        self.strengths = PAIR_STRENGTHS if strengths is None else strengths  # of c1, falling
        self.model, self.guess = cache(self._model), cache(self._guess)

    def _model(self, transitions, c1):
        """(SparseResult, CPU seconds), from the model for the c1 before."""
        setup, place = self.setups[transitions], self.strengths.index(c1)
        before = self.model(transitions, self.strengths[place - 1])[0] if place else None
        start = None if before is None else Sparse(before.features, before.w)
        how = {"sizes": setup.sizes, "c1": c1, "tol_gradient": TOL * c1, **SWEEPS}
        return timed(coordinate_descent, setup.corpus, None, start, **how)

    def _guess(self, transitions, c1):
        setup, found = self.setups[transitions], self.model(transitions, c1)[0]
        labels = setup.encoder.decode
        paths = {name: decode(part.corpus, found.features, found.w) for name, part in setup.parts.items()}
        return {name: labels(path, setup.parts[name].corpus.seq_ptr) for name, path in paths.items()}

    def row(self, transitions, c1):
        """A row; with tests on pairs it is tested against plain transitions at the same c1."""
        setup, (found, seconds) = self.setups[transitions], self.model(transitions, c1)
        violation = found.history[-1].violation
        objective, gap = l1_gap(setup.corpus, found.features, found.w, c1, violation)
        gain = p = ""
        if transitions != "plain":
            gold = setup.parts["testb"].gold
            gain, p = tested(gold, *(self.guess(name, c1)["testb"] for name in (transitions, "plain")))
        return {
            "candidates": setup.n_candidates, "node": found.features.n_node, "pairs": found.features.n_edge,
            **measured(setup, self.guess(transitions, c1)),
            "gain": gain, "p": p, "objective": f"{objective:.2f}", "gap": f"{gap:.1e}",
            "iterations": found.n_iter, "seconds": f"{seconds:.1f}",
        }  # fmt: skip


@study("09_pairs_ner.csv", frozen=("sbcd, virtual weights", "lbfgs, elastic net"))
def pairs(n_sentences=PAIR_SENTENCES):
    """Word and shape tests on pairs of labels beside plain transitions: Spanish names, SBCD."""
    at = Pairs(n_sentences)
    keys = [{"transitions": name, "c1": c1} for c1 in PAIR_STRENGTHS for name in TESTS]
    yield "09_pairs_ner.csv", each(at.row, keys), [dataset("ner")]
