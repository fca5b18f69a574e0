"""Chapter 07: coordinate descent on simulated sequences (Table 1), and one race of all optimisers.

Table 1 of Sokolovska, Lavergne, Cappe and Yvon (2010) has models M1 to M8 on sequences of a hidden Markov
model, 100 times over. Every replication has ten training sequences of its own and weights of its own. All are
ONE problem here: symbol x of replication r is attribute r V + x, so that the objective is a sum of parts that
share no weight, and its minimum is the minimum of each. Errors on new text are exact: of all V^T strings,
weighted by their probability, not of a sample.
"""

import itertools
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective, make_corpus, minimize
from crfbook.chain.inference import decode
from crfbook.data.corpus import slice_sequences
from crfbook.data.features import observed, select, without_plain_transitions
from crfbook.datasets.simulated import SPARSE_HMM, sample
from crfbook.learners.coordinate import coordinate_descent
from crfbook.learners.quasi_newton import dual_variables, proximal_gradient
from crfbook.learners.stochastic import sag, sdca, sgd, sgd_l1
from crfbook.learners.stochastic.fast import fast_fit, fast_l1_fit
from crfbook.training.certificate import duality_gap

from . import crfsuite
from .harness import follow, study, timed
from .records import cells, each
from .work import dataset, descend, set_up

# ---- Table 1 ----

LENGTH, N_TRAIN, N_REPLICATIONS = 5, 10, 100


class Model(NamedTuple):
    """Penalties c1 |w|_1 + c2 |w|^2, the weights it has, and what the paper reports of it.

    Its errors on training and new text, per cent, and numbers of active mu and lambda; None: not legible.
    """

    c1: float
    c2: float
    weights: str  # "node", "edge" or "both": mu, lambda
    paper: tuple


# Penalties as the specification restores them; the paper's text has lost the numbers. c2 of M1 to M3: of 1/8,
# 1/4, 1/2 and 1 that with the least error on new text, in place of the paper's cross-validation.
MODELS = {
    "M1": Model(0.0, 0.5, "both", (6.4, 18.5, None, None)),
    "M2": Model(0.0, 0.125, "edge", (None, None, None, None)),
    "M3": Model(0.0, 0.5, "node", (None, None, None, None)),
    "M4": Model(0.001, 0.0005, "both", (None, None, 28.5, 50.6)),
    "M5": Model(0.01, 0.0005, "both", (None, None, 15.0, 26)),
    "M6": Model(0.1, 0.0005, "both", (None, None, 10.9, 17.2)),
    "M7": Model(1.0, 0.0005, "both", (10.3, 17.9, 6.2, 4.9)),
    "M8": Model(2.5, 0.0005, "both", (None, None, 5.8, 1.3)),
}
COLUMNS = ("train", "test", "mu", "lambda")


def replicated(symbols, labels, n_replications, n_symbols, length=LENGTH):
    """One corpus of all replications, which share nothing: attributes, and edge classes, r V + x.

    symbols (n_replications * n * length,), replication by replication; labels the same or None.
    Edge attribute 0 is not used.
    """
    width, n_tokens = n_replications * n_symbols, len(symbols)
    attr = np.repeat(np.arange(n_replications), n_tokens // n_replications) * n_symbols + symbols
    classes = {"class_ptr": np.arange(width + 1), "class_attr": np.arange(width) + 1}
    seq_ptr, attr_ptr = np.arange(0, n_tokens + 1, length), np.arange(n_tokens + 1)
    return make_corpus(seq_ptr, attr_ptr, attr, edge_class=attr, labels=labels, **classes)


def feature_set(corpus, n_labels, weights):
    """FeatureSet of all (attribute, label), all (attribute, label, label), or both; no plain transitions."""
    width = corpus.n_classes
    features = observed(corpus, n_labels, width, width + 1, all_states=True, all_transitions=True)
    keep = without_plain_transitions(features)
    keep[: features.n_node] &= weights != "edge"
    keep[features.n_node :] &= weights != "node"
    return select(features, keep)


def joint_of_strings(model, length=LENGTH):
    """(strings (V^T, T), joint (V^T, T, L)): p(x, y_t = y) of all strings, by forward and backward sums."""
    strings = np.array(list(itertools.product(range(model.emission.shape[1]), repeat=length)))
    seen = model.emission[:, strings].transpose(2, 1, 0)  # (T, V^T, L): p(x_t | y)
    alpha, beta = [model.start * seen[0]], [np.ones_like(seen[0])]
    for t in range(1, length):
        alpha.append(alpha[-1] @ model.transition * seen[t])
        beta.insert(0, (beta[0] * seen[length - t]) @ model.transition.T)
    return strings, np.stack([a * b for a, b in zip(alpha, beta, strict=True)], axis=1)


def bayes_error(model, length=LENGTH):
    """The least error of a token that any labelling can have: 1 - E max_y p(y_t = y | x), exactly."""
    return 1.0 - joint_of_strings(model, length)[1].max(axis=2).sum() / length


class Simulation:
    """The replications, and the weights found last for an L1 penalty."""

    def __init__(self, n_replications, random_state=0):
        self.n, n_symbols = n_replications, SPARSE_HMM.emission.shape[1]
        self.labels, symbols = sample(SPARSE_HMM, np.full(self.n * N_TRAIN, LENGTH), random_state)
        self.corpus = replicated(symbols, self.labels, self.n, n_symbols)
        strings, self.joint = joint_of_strings(SPARSE_HMM)
        self.strings = replicated(np.tile(strings.ravel(), self.n), None, self.n, n_symbols)
        self.last = None

    def row(self, name):
        """Means over the replications, CPU seconds of training, and the paper's numbers."""
        c1, c2, weights, paper = MODELS[name]
        features = feature_set(self.corpus, len(SPARSE_HMM.start), weights)
        how = {"c1": c1, "c2": c2, "tol": 1e-5, "form": "sparse"}
        result, seconds = timed(descend, self.corpus, features, self.last if c1 else None, **how)
        self.last = result.w if c1 else self.last
        train, test = self.errors(features, result.w)
        counts = [np.count_nonzero(w) / self.n for w in np.split(result.w, [features.n_node])]
        found = zip(COLUMNS, (100 * train.mean(), 100 * test.mean(), *counts), strict=True)
        papers = {f"paper {k}": "" if x is None else f"{x:g}" for k, x in zip(COLUMNS, paper, strict=True)}
        return {
            "model": name, "c1": f"{c1:g}", "c2": f"{c2:g}", "replications": self.n,
            **{key: f"{value:.1f}" for key, value in found}, "sd test": f"{100 * test.std():.1f}", **papers,
            "iterations": result.n_iter, "status": result.status, "seconds": f"{seconds:.1f}",
        }  # fmt: skip

    def errors(self, features, w):
        """(on the training tokens, on new text: expected), an array (n,) each: errors of a token, 0 to 1."""
        wrong = decode(self.corpus, features, w) != self.labels
        path = decode(self.strings, features, w).reshape(self.n, -1, LENGTH)
        string, t = np.ogrid[: path.shape[1], :LENGTH]
        right = self.joint[string, t, path].sum(axis=(1, 2)) / LENGTH
        return wrong.reshape(self.n, -1).mean(axis=1), 1.0 - right


def table1(n_replications=N_REPLICATIONS, models=None):
    """A list of dicts, one for each model (None: all), by name.

    Those with an L1 penalty are trained from the largest on, each from the solution before.
    """
    at, names = Simulation(n_replications), MODELS if models is None else models
    order = sorted(names, key=lambda name: (MODELS[name].c1 > 0, -MODELS[name].c1))
    return sorted((at.row(name) for name in order), key=lambda row: row["model"])


@study("07_simulation.csv", frozen=("lbfgs", "lbfgs, elastic net", "objective, sparse", "decoding, dense"))
def simulation(n_replications=N_REPLICATIONS):
    """Table 1: models M1 to M8 on sequences of a hidden Markov model, 100 replications; 15 seconds."""
    yield "07_simulation.csv", [({}, partial(table1, n_replications))]


# ---- one race of all optimisers, on four corpora ----

# All arms minimise one objective over the same features, from zero weights, each alone on one thread. What
# they have reached is evaluated by `Objective` outside their clock, at moments that lie `RATIO` apart. A pass
# of ours is timed beside each arm; where the machine is busier than it was for the optimum, seconds are as
# much longer, and so is the arm's limit: all have the same budget in passes.

N, BUDGET = 2000, 12.0  # sequences of each corpus; CPU seconds of an arm, at the pace of the optimum
RATIO, CLOSE = 1.2, 1e-6  # between two looks; a gap that ends an arm
PIECES = {
    "NetTalk, letters": ("nettalk", "letter_tests"),
    "NetTalk, pseudo 3-grams": ("nettalk", "pseudo_ngrams_3"),
    "Spanish names": ("ner", "s3"),
    "CoNLL-2000 chunks": ("chunking", "chunking"),
}
PENALTIES = {"c1": {"c1": 1.0}, "c2": {"c2": 0.1}}
ON, MEMORY = {"max_iterations": 10**6}, {"memory_limit": 1e10}


def batch(method, corpus, features, *, c1=0.0, c2=0.0, **options):
    """A method that asks for whole passes, its layout included."""
    start = np.zeros(features.n_features)
    return method(Objective(corpus, features, c2=c2), start, c1=c1, c2=c2, **options)


EXACT = {"tol": 0.0, "tol_gradient": 0.0}
SWEEPS = {"max_iterations": None, **EXACT}
ARMS = {
    "c1": {
        "OWL-QN": partial(batch, minimize, l1_method="owlqn", **EXACT),
        "proximal quasi-Newton": partial(batch, minimize, **EXACT),
        "split variables": partial(batch, dual_variables, **EXACT),
        "FISTA": partial(batch, proximal_gradient, **EXACT), "SBCD": partial(coordinate_descent, **SWEEPS),
        "SBCD, two blocks": partial(coordinate_descent, joint=False, **SWEEPS),
        "SBCD, accelerated": partial(coordinate_descent, accelerate=True, **SWEEPS),
        "SGD-L1": partial(sgd_l1, period=10**6, **ON), "auto": partial(fast_l1_fit, **EXACT, **MEMORY),
    },
    "c2": {
        "L-BFGS": partial(batch, minimize, **EXACT),
        "SGD": partial(sgd, period=10**6, **ON),
        "SAG": partial(sag, **EXACT, **ON, **MEMORY),
        "SDCA": partial(sdca, tol=0.0, **ON, **MEMORY),
        "auto": partial(fast_fit, tol=0.0, **MEMORY),
    },
}  # fmt: skip
PEERS = {"c1": {"CRFsuite, OWL-QN": "lbfgs"}, "c2": {"CRFsuite, L-BFGS": "lbfgs", "CRFsuite, SGD": "l2sgd"}}
PEER_STOP = {"lbfgs": {"epsilon": 1e-12, "delta": 1e-12}, "l2sgd": {"delta": 0.0}}


class Problem:
    """A corpus with a penalty: features, what all arms minimise, and the optimum that is looked for."""

    def __init__(self, corpus, penalty, n_sentences=N):
        task, template = PIECES[corpus]
        self.work, self.penalty = set_up(task, template, n_sentences), PENALTIES[penalty]
        self.corpus, self.features = self.work.corpus, self.work.features
        if template == "letter_tests":  # as the paper has them
            self.features = select(self.features, without_plain_transitions(self.features))
        self.c1, self.c2 = (self.penalty.get(name, 0.0) for name in ("c1", "c2"))
        self.smooth = Objective(self.corpus, self.features, c2=self.c2)

    def value(self, w):
        return self.smooth(w)[0] + self.c1 * float(np.abs(w).sum())

    def certified(self, w):
        """The objective of w is at most so far above its minimum, in nats."""
        value, grad = self.smooth(w)
        return duality_gap(value, grad, w, self.c1) if self.c1 else float(grad @ grad) / (4.0 * self.c2)

    def fit(self, learner, look, sentences=None):
        n = self.corpus.n_sequences
        corpus = self.corpus if sentences is None else slice_sequences(self.corpus, 0, min(n, sentences))
        return follow(learner, corpus, self.features, look=look, **self.penalty)


def optimum(corpus, penalty, n_sentences=N, budget=6 * BUDGET):
    """The lowest objective that "auto" finds in a longer run, with its certificate."""
    problem = Problem(corpus, penalty, n_sentences)
    of_a_pass = _pass(problem)
    longer = partial(ARMS[penalty]["auto"], tol=1e-9, **({"tol_gradient": 1e-3} if problem.c1 else {}))
    run = problem.fit(longer, lambda step, w, seconds: seconds > budget)
    w = run.result.w
    sizes = {"sequences": problem.corpus.n_sequences, "tokens": problem.corpus.n_tokens, "weights": len(w)}
    penalties = {"c1": f"{problem.c1:g}", "c2": f"{problem.c2:g}"}
    end = {"objective": f"{problem.value(w):.12g}", "certified": f"{problem.certified(w):.3g}"}
    return sizes | penalties | end | {"seconds": f"{run.seconds:.1f}", "pass": f"{of_a_pass:.4g}"}


def arm_rows(corpus, penalty, arm, best, pace, n_sentences=N, budget=BUDGET):
    """A row for each look at an arm; best: the objective to which `gap` refers; pace: CPU seconds of a pass,
    for which the budget holds.
    """
    problem, learner = Problem(corpus, penalty, n_sentences), ARMS[penalty].get(arm)
    if learner is None:
        return _peer_rows(problem, PEERS[penalty][arm], best, budget / pace)
    problem.fit(learner, lambda step, w, seconds: step.iteration >= 40, 30)  # compiles
    of_a_pass, rows, due = _pass(problem), [], [0.0]
    budget *= of_a_pass / pace

    def look(step, w, seconds):
        late = seconds > budget
        if late or seconds >= due[0]:
            due[0], value = RATIO * seconds, problem.value(w)
            if not late or not rows:
                rows.append(_row(seconds, value, best, np.count_nonzero(w), of_a_pass))
            return late or value <= best * (1.0 + CLOSE)
        return False

    run = problem.fit(learner, look)
    if run.seconds <= budget:  # it ended by itself, between two looks
        w = run.result.w
        rows.append(_row(run.seconds, problem.value(w), best, np.count_nonzero(w), of_a_pass))
    return rows


def _pass(problem):
    """CPU seconds of our objective and gradient: how busy the machine is now."""
    w = np.zeros(problem.features.n_features)
    return float(np.median([timed(problem.smooth, w)[1] for _ in range(3)]))


def _row(seconds, value, best, active, of_a_pass):
    found = {"seconds": f"{seconds:.4g}", "objective": f"{value:.12g}", "gap": f"{value / best - 1.0:.3e}"}
    return {**found, "active": active, "pass": f"{of_a_pass:.4g}"}


def _peer_rows(problem, algorithm, best, passes):
    """CRFsuite, for the time of so many passes: its own seconds, without preparation and calibration, and our
    objective at its weights.

    Its L-BFGS and OWL-QN log the objective of each iteration, which must be ours at the end. Its SGD does
    not: it is run for 1, 2, 4, ... epochs.
    """
    rows, labels = crfsuite.sentences(problem.work, numbers=True)
    how = {"c1": problem.c1, "c2": problem.c2} if algorithm == "lbfgs" else {"c2": problem.c2}
    peer = crfsuite.trainer(rows, labels, algorithm, **how, **PEER_STOP[algorithm])
    of_a_pass = _pass(problem)
    budget = passes * of_a_pass

    def trained(n):
        peer.set_params({"max_iterations": n})
        tagger, log = crfsuite.train(peer)
        w = crfsuite.weights_of(problem.work, tagger, numbers=True)
        return problem.value(w), np.count_nonzero(w), log.iterations

    found, n = [], 1
    if algorithm == "l2sgd":
        while True:
            value, active, log = trained(n)
            seconds = sum(float(step["time"]) for step in log)
            found.append(_row(seconds, value, best, active, of_a_pass))
            if seconds > 0.5 * budget or len(log) < n:  # it may stop by itself, whatever it is told
                return found
            n *= 2
    peer.set_params({"max_iterations": 9})
    n = max(9, int(budget / max(1e-3, crfsuite.seconds_per_evaluation(peer))))
    value, active, log = trained(n)
    if abs(log[-1]["loss"] / value - 1.0) > 1e-5:
        raise RuntimeError(f"CRFsuite says {log[-1]['loss']}, its weights have the objective {value}")
    due = 0.0
    for step, seconds in zip(log, np.cumsum([float(step["time"]) for step in log]), strict=True):
        if seconds > budget:
            break
        if seconds >= due or step is log[-1]:
            due = RATIO * seconds
            found.append(_row(seconds, step["loss"], best, int(step["active_features"]), of_a_pass))
        if step["loss"] <= best * (1.0 + CLOSE):
            break
    return found


@study(
    "07_optima.csv", "07_race.csv",
    frozen=("lbfgs", "owlqn", "sbcd", "auto", "sdca", "sag", "sgd", "sgd-l1", "objective, auto"),
)  # fmt: skip
def race_of_all(pieces=None, n_sentences=N, budget=BUDGET):
    """All optimisers, gap to the optimum against CPU seconds: c1 = 1, c2 = 0.1; 20 CPU minutes."""
    names = list(PIECES) if pieces is None else pieces
    keys = cells(corpus=names, penalty=ARMS)
    data = [dataset(task) for task in dict.fromkeys(PIECES[name][0] for name in names)]
    limits = {"n_sentences": n_sentences}
    optima = yield "07_optima.csv", each(optimum, keys, budget=6 * budget, **limits), data
    jobs = []
    for cell, row in zip(keys, optima, strict=True):
        plain = PIECES[cell["corpus"]][0] != "nettalk"  # CRFsuite has no pairs that read a letter
        arms = [arm for arm in ARMS[cell["penalty"]] if arm != "SBCD, two blocks" or not plain]
        arms += PEERS[cell["penalty"]] if plain else []
        best, pace = float(row["objective"]), float(row["pass"])
        made = partial(arm_rows, best=best, pace=pace, budget=budget, **limits)
        jobs += [(cell | {"arm": arm}, partial(made, **cell, arm=arm)) for arm in arms]
    yield "07_race.csv", jobs, data
