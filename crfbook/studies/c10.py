"""Chapter 10: active and inactive transitions, Tables 1 and 2 of Jeong, Lin and Lee (2009).

Every arm of a data set learns from the same sentences under the same prior to the same certificate. Their
private corpora, Communicator and Encyclopedia, have stand-ins: ATIS, and simulated chains of 120 and 279
labels.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook.chain.active import PseudoLikelihood, TiedObjective, after_another, printed, tied_features
from crfbook.chain.active.form import ActiveObjective
from crfbook.chain.objective import Objective
from crfbook.data.columns import TokenColumns
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet, frequency_cutoff, observed
from crfbook.datasets import load_dataset
from crfbook.datasets.simulated import HiddenMarkov, large_label_hmm, sample
from crfbook.decoding import decode
from crfbook.encoding import templates
from crfbook.encoding.encoder import Encoder
from crfbook.evaluation import paired_test
from crfbook.learners.quasi_newton import minimize
from crfbook.learners.stochastic import sgd

from . import crfsuite
from .c11 import TAGGERS, TEMPLATE, beginning, data_of, growing_tagger, jobs_of, us_a_token
from .harness import follow, race, study, timed
from .work import MOST_CELLS, joint

C2 = 0.125  # a prior of variance 4, as in the paper
TOL = 1e-4  # of the objective: the certificate of every arm
STOP = {"tol": TOL, "max_iterations": 500}

# The paper's features: the word, two words to each side, pairs and triples of words, affixes of 1 to 4
# letters, and tags where a corpus has them.
WORDS = """U00:%x[-2,0]
U01:%x[-1,0]
U02:%x[0,0]
U03:%x[1,0]
U04:%x[2,0]
U05:%x[-1,0]/%x[0,0]
U06:%x[0,0]/%x[1,0]
U07:%x[-1,0]/%x[0,0]/%x[1,0]
"""
AFFIXES = "U10:%prefix[0,0,1,4]\nU11:%suffix[0,0,1,4]\n"
TAGS = "U20:%x[-2,1]\nU21:%x[-1,1]\nU22:%x[0,1]\nU23:%x[1,1]\nU24:%x[2,1]\n"
LETTERS = "U30:%x[-3,0]\nU31:%x[3,0]\nU32:%x[-2,0]/%x[-1,0]/%x[0,0]\nU33:%x[0,0]/%x[1,0]/%x[2,0]\n"


class Task(NamedTuple):
    """A corpus of Table 1: data set and task, or labels of a simulated chain; template; what arms learn from.

    n_train : sentences (None: all), for which Dense, with all weights, needs no more than minutes.
    """

    dataset: str
    task: str
    template: str
    n_train: int | None = None
    n_labels: int = 0


TASKS = {
    "treebank": Task("treebank", "pos", WORDS + AFFIXES),
    "conll2000": Task("conll2000", "chunking", WORDS + AFFIXES + TAGS, 3000),
    "conll2003": Task("conll2003", "ner", WORDS + AFFIXES + TAGS, 4000),
    "nettalk": Task("nettalk", "phonemes", WORDS + LETTERS, 8000),
    "atis": Task("atis", "slots", WORDS + AFFIXES),
    "simulated 120": Task("simulated", "labels", WORDS, 2500, 120),
    "simulated 279": Task("simulated", "labels", WORDS, 2500, 279),
}
USER_SUPPLIED = ("conll2003",)  # these count where they are real alone: their twins stand in for nothing
SIMULATED = {"train": 2500, "test": 1000}  # sentences
N_WORDS = 2000


def simulated_chain(n_labels):
    """A `HiddenMarkov` whose labels have 2 to 5 successors, 3.5 in the mean, some of them rare; a word
    belongs to several labels.
    """
    rng = np.random.default_rng(n_labels)
    like, transition = large_label_hmm(n_labels, N_WORDS), np.zeros((n_labels, n_labels))
    for y in range(n_labels):
        after = rng.choice(n_labels, size=rng.integers(2, 6), replace=False)
        transition[y, after] = rng.dirichlet(np.full(len(after), 0.7))
    return HiddenMarkov(like.start, transition, like.emission)


def simulated_columns(n_labels, n, seed):
    """n sentences of 5 to 30 tokens of `simulated_chain` as TokenColumns."""
    lengths = np.random.default_rng([n_labels, seed]).integers(5, 31, n)
    labels, words = sample(simulated_chain(n_labels), lengths, [seed, n_labels])
    named = {"word": [f"w{x}" for x in words]}
    return TokenColumns(named, np.cumsum([0, *lengths]), [f"L{y:03d}" for y in labels], "label")


def columns_of(name):
    """(training columns, test columns, [the `Dataset`], or [] for a simulated chain)."""
    task = TASKS[name]
    if task.n_labels:
        sizes = enumerate(SIMULATED.values())
        return (*(simulated_columns(task.n_labels, n, seed) for seed, n in sizes), [])
    data = load_dataset(task.dataset, task.task, verbose=False)
    return data.train, data.test, [data]


class Setup(NamedTuple):
    """A task, encoded."""

    encoder: Encoder
    train: Corpus
    test: Corpus
    gold: list  # labels of the test part, lists of lists

    @property
    def sizes(self):
        return self.encoder.n_labels, self.encoder.n_attrs, self.encoder.n_edge_attrs


def encoded(name, n_train=None):
    """`Setup` of a task, on its first n_train sentences (None: as many as its row in TASKS says)."""
    task = TASKS[name]
    (train, test, _), encoder = columns_of(name), Encoder(templates.as_template(task.template + "B\n"))
    n_train = n_train or task.n_train
    corpus = encoder.fit_transform(train if n_train is None else train.head(n_train))
    held = encoder.transform(test, on_unknown_label="mark")
    return Setup(encoder, corpus, held, test.labels_by_sequence())


# ---- Table 1 ----


def corpus_row(name):
    """Columns of Table 1, of the whole training part. Abar: different gold transitions over labels."""
    train, test, _ = columns_of(name)
    encoder = Encoder(templates.as_template("U00:%x[0,0]\nB\n"))
    corpus = encoder.fit_transform(train)
    features = observed(corpus, encoder.n_labels, encoder.n_attrs)
    often = frequency_cutoff(corpus, features, 5)[features.n_node :]
    return {
        "train": len(train), "test": len(test), "tokens": corpus.n_tokens, "labels": features.n_labels,
        "pairs": features.n_edge, "Abar": f"{features.n_edge / features.n_labels:.2f}",
        "Abar of pairs seen 5 times": f"{often.sum() / features.n_labels:.2f}",
    }  # fmt: skip


# ---- Table 2 ----


class Arm(NamedTuple):
    """A trained model and how it labels: `form` of `decode`, as the paper's arm does it."""

    features: FeatureSet
    w: np.ndarray  # (F,)
    n_weights: int  # parameters
    run: object  # `Run`
    penalty: float  # c2 |parameters|^2
    form: str
    after: bool = False  # has the attribute "after another token"


def trained(objective, n):
    """`Run` of L-BFGS from zero. The evaluations before it are not timed: kernels are compiled there."""
    for w in (np.zeros(n), np.full(n, 1e-3)):
        objective(w)
    return follow(minimize, objective, np.zeros(n), c2=C2, **STOP)


def plain_arm(setup, form, dense=False):
    """Sparse, or Dense: weights of what occurs in training, or all."""
    features = observed(setup.train, *setup.sizes, all_states=dense, all_transitions=dense)
    found = trained(Objective(setup.train, features, c2=C2), features.n_features)
    w = found.result.w
    return Arm(features, w, len(w), found, C2 * float(w @ w), form)


def tied_arm(setup, per_label):
    """Methods 3 and 4."""
    later, fewer = tied_features(setup.train, observed(setup.train, *setup.sizes))
    tied = TiedObjective(Objective(later, fewer), c2=C2, per_label=per_label)
    found = trained(tied, len(tied.start()))
    p = found.result.w
    return Arm(fewer, tied.fold(p), len(p), found, C2 * float(p @ p), "default", True)


def arms_of(setup):
    """{arm: `Arm`}. Method 2 is Sparse with the pairs that have a weight looked at alone: one training."""
    sparse = plain_arm(setup, "plain")
    over = printed(sparse.features, sparse.w)
    return {
        "Dense": plain_arm(setup, "plain", dense=True),
        "Sparse": sparse,
        "Method 2": sparse._replace(form="default"),
        "Method 2, (10) as printed": sparse._replace(form="default", w=over),
        "Method 3": tied_arm(setup, False),
        "Method 4": tied_arm(setup, True),
    }


def arm_rows(name, n_train, n_repeats):
    """Rows of Table 2 of a data set: its arms are timed in one race, which its decoding as the package does
    it, form "auto", runs with.
    """
    setup = encoded(name, n_train)
    arms, later = arms_of(setup), after_another(setup.test)
    models = {arm: (later if one.after else setup.test, one.features, one.w) for arm, one in arms.items()}
    runs = {
        (arm, arms[arm].form): partial(decode, *model, form=arms[arm].form) for arm, model in models.items()
    }
    runs |= {(arm, "auto"): partial(decode, *model) for arm, model in models.items()}
    ms = {key: 1e3 * took.median_cpu / setup.test.n_sequences for key, took in race(runs, n_repeats).items()}
    paths = {arm: decode(*model, form=arms[arm].form) for arm, model in models.items()}
    said = {arm: setup.encoder.decode(path, setup.test.seq_ptr) for arm, path in paths.items()}
    rows = []
    for arm, one in arms.items():
        test = paired_test(setup.gold, said["Sparse"], said[arm], "accuracy")
        rows.append({
            "method": arm, "sentences": setup.train.n_sequences, "tokens": setup.train.n_tokens,
            "accuracy": f"{100 * test.value_b:.2f}", "p": f"{test.p_value:.4f}",
            "star": "*" if test.p_value < 0.05 else "",
            "tokens that differ": int(np.count_nonzero(paths[arm] != paths["Sparse"])),
            "form": one.form, "ms a sentence": f"{ms[arm, one.form]:.4f}",
            "ms a sentence, auto": f"{ms[arm, 'auto']:.4f}", "weights": one.n_weights,
            "log-likelihood": f"{one.penalty - one.run.result.objective:.2f}",
            "iterations": one.run.result.n_iter, "status": one.run.result.status,
            "objective": f"{one.run.result.objective:.2f}",
            "at most above its minimum": f"{one.run.result.history[-1].violation:.3g}",
            "training CPU s": f"{one.run.seconds:.1f}",
        })  # fmt: skip
    return rows


@study("10_corpora.csv", "10_methods.csv")
def active_sets(names=tuple(TASKS), n_train=None, n_repeats=5):
    """Tables 1 and 2 of Jeong, Lin and Lee (2009): Dense, Sparse and Methods 1 to 4; half an hour."""
    data = {name: columns_of(name)[2] for name in names}
    kept = [name for name in names if name not in USER_SUPPLIED or data[name][0].source == "real"]
    files = [one for name in kept for one in data[name]]
    yield "10_corpora.csv", [({"corpus": name}, partial(corpus_row, name)) for name in kept], files
    jobs = [({"corpus": name}, partial(arm_rows, name, n_train, n_repeats)) for name in kept]
    yield "10_methods.csv", jobs, files


# ---- active sets: what they save, and what they cost ----

LEAST_SHARES = 1e-1, 1e-2, 1e-3, 1e-4, 1e-5
PART = 4000  # tokens on which losses are compared


@cache
def many_labels(name):
    """(training corpus, its features, test corpus) of one of `TAGGERS`."""
    data = load_dataset(*TAGGERS[name][:2], verbose=False)
    parts = [joint(part, None) if name == "joint" else part for part in (data.train, data.test)]
    encoder = Encoder(templates.as_template(TEMPLATE))
    train, test = encoder.fit_transform(parts[0]), encoder.transform(parts[1], on_unknown_label="mark")
    return train, observed(train, encoder.n_labels, encoder.n_attrs), test


def error_rows(task, iterations, n_tokens, n_repeats):
    """Losses with active sets beside the exact one, for weights after some iterations of L-BFGS on the
    pseudo-likelihood, early and late; CPU us a token of a value and gradient, the sets made in it.
    """
    (train, features, _), rows = many_labels(task), []
    start = PseudoLikelihood(train, features, c2=C2)
    w = minimize(start, np.zeros(features.n_features), c2=C2, max_iterations=iterations).w
    part = beginning(train, n_tokens)
    exact = Objective(part, features, form="default")
    (value, grad), n = exact(w), part.n_tokens
    us_exact = us_a_token(part, partial(exact, w), n_repeats)
    for eps in LEAST_SHARES:
        for outside in ("zero", "default"):
            some = ActiveObjective(part, features, eps=eps, outside=outside)

            def anew(some=some):
                some.renew()
                return some(w)

            near, near_grad = anew()
            rows.append({
                "eps": eps, "outside": outside, "labels": features.n_labels, "active": some.n_kept,
                "error": abs(near - value) / n, "bound": some.error_bound / n,
                "gradient error (%)": 100.0 * float(np.linalg.norm(near_grad - grad) / np.linalg.norm(grad)),
                "us a token": us_a_token(part, anew, n_repeats), "exact us a token": us_exact,
            })  # fmt: skip
    return rows


@study("10_errors.csv")
def active_errors(names=("joint", "morphology", "supertags"), n_tokens=PART, n_repeats=3):
    """Error of log Z, its bound, and time against eps, for Method 1 and with the default outside; minutes."""
    keys = [(name, iterations) for name in names for iterations in (3, 30)]
    jobs = jobs_of(error_rows, ("task", "iterations"), keys, n_tokens=n_tokens, n_repeats=n_repeats)
    yield "10_errors.csv", jobs, data_of()


def growth_rows(labels, n_repeats):
    """CPU us a token of a value and gradient on a `growing_tagger`, by tables, stored pairs, active sets."""
    rows, (whole, features, w) = [], growing_tagger(labels, 8000)
    for name, make in (
        ("tables", partial(Objective, form="batched")), ("stored pairs", partial(Objective, form="default")),
        ("active sets", partial(ActiveObjective, eps=1e-3)),
    ):  # fmt: skip
        part = beginning(whole, max(200, MOST_CELLS / labels**2)) if name == "tables" else whole
        rows.append(
            {"form": name, "us a token": us_a_token(part, partial(make(part, features), w), n_repeats)}
        )
    return rows


@study("10_growth.csv")
def active_growth(sizes=(50, 100, 200, 500, 1000, 2000, 5000), n_repeats=3):
    """Microseconds a token of a value and gradient against L, labels by Zipf's law; minutes."""
    keys = [(n,) for n in sizes]
    yield "10_growth.csv", jobs_of(growth_rows, ("labels",), keys, n_repeats=n_repeats), []


class Jumping:
    """An `ActiveObjective` whose sets are made anew at each evaluation, as those of the paper are."""

    def __init__(self, objective):
        self.objective = objective

    def __call__(self, w):
        self.objective.renew()
        return self.objective(w)


def curve_rows(corpus, n_train, max_iterations):
    """Objective against CPU seconds of L-BFGS: Figure 1. Method 1 and active sets are judged by the exact
    objective at their weights, which is not on their clock.
    """
    setup, rows = encoded(corpus, n_train), []
    dense, features = (
        observed(setup.train, *setup.sizes, all_states=a, all_transitions=a) for a in (True, False)
    )
    later, fewer = tied_features(setup.train, features)
    exact = Objective(setup.train, features, c2=C2, form="default")
    beam = partial(ActiveObjective, setup.train, features, c2=C2, eps=1e-3)
    arms = {
        "Dense": Objective(setup.train, dense, c2=C2, form="batched"),
        "Sparse": Objective(setup.train, features, c2=C2, form="batched"),
        "Method 1": Jumping(beam(outside="zero")),
        "Method 2": Objective(setup.train, features, c2=C2, form="default"),
        "Method 3": TiedObjective(Objective(later, fewer), c2=C2),
        "Method 4": TiedObjective(Objective(later, fewer), c2=C2, per_label=True),
        "active sets": Jumping(beam(outside="default")),
    }
    for name, objective in arms.items():
        objective(start := np.zeros(sizes_of(objective, features, dense)))
        values, near = [], isinstance(objective, Jumping)

        def look(step, w, cpu, approximate=near, values=values):
            values.append(exact(w)[0] if approximate else step.objective)

        found = follow(minimize, objective, start, c2=C2, look=look, tol=TOL, max_iterations=max_iterations)
        for tick, value in zip(found.ticks, values, strict=True):
            rows.append({
                "method": name, "iteration": tick.step.iteration, "CPU s": tick.cpu, "objective": value,
                "status": found.result.status,
            })  # fmt: skip
    return rows


def sizes_of(objective, features, dense):
    """Number of parameters of an arm of `curve_rows`."""
    if isinstance(objective, TiedObjective):
        return len(objective.start())
    return features.n_features if isinstance(objective, Jumping) else objective.features.n_features


@study("10_curves.csv")
def active_curves(names=("conll2000", "nettalk", "atis", "simulated 279"), n_train=1000, max_iterations=200):
    """Figure 1: the objective of training against CPU seconds, Dense, Sparse and Methods 1 to 4; an hour."""
    jobs = jobs_of(
        curve_rows, ("corpus",), [(n,) for n in names], n_train=n_train, max_iterations=max_iterations
    )
    yield "10_curves.csv", jobs, [one for name in names for one in columns_of(name)[2]]


def peer_row(corpus, n_train, n_iterations):
    """CPU seconds of iterations of L-BFGS on the same features, beside CRFsuite's."""
    setup = encoded(corpus, n_train)
    names = setup.train.labels.astype(str)
    labels = [part.tolist() for part in np.split(names, setup.train.seq_ptr[1:-1])]
    peer = crfsuite.trainer(
        crfsuite.attribute_numbers(setup.train), labels, c2=C2, max_iterations=n_iterations,
        **{"feature.possible_transitions": False, "feature.possible_states": False},
    )  # fmt: skip
    (tagger, log), theirs = timed(crfsuite.train, peer)
    features = observed(setup.train, *setup.sizes)
    objective = Objective(setup.train, features, c2=C2)
    objective(np.zeros(features.n_features))
    options = {"c2": C2, "tol": 0.0, "max_iterations": n_iterations}
    ours = follow(minimize, objective, np.zeros(features.n_features), **options)
    seconds, _ = crfsuite.viterbi_seconds(tagger, crfsuite.attribute_numbers(setup.test))
    return {
        "labels": features.n_labels, "tokens": setup.train.n_tokens, "iterations": n_iterations,
        "ours": ours.seconds, "CRFsuite": theirs, "our decoding us a token":
        us_a_token(setup.test, partial(decode, setup.test, features, ours.result.w), 3),
        "CRFsuite's decoding us a token": 1e6 * seconds / setup.test.n_tokens,
    }  # fmt: skip


@study("10_peers.csv")
def active_peers(names=("conll2000", "nettalk", "atis", "simulated 120", "simulated 279"), n_train=1000):
    """Training and decoding beside CRFsuite on the same features; minutes."""
    jobs = jobs_of(peer_row, ("corpus",), [(n,) for n in names], n_train=n_train, n_iterations=20)
    yield "10_peers.csv", jobs, [one for name in names for one in columns_of(name)[2]]


def supertagger_rows(eps, n_epochs):
    """SGD without penalty on the supertags: CPU seconds of each epoch, and test accuracy after it."""
    train, features, test = many_labels("supertags")
    rows = []

    def look(step, w, cpu):
        right = 100.0 * float(np.mean(decode(test, features, w) == test.labels))
        rows.append({"epoch": step.iteration, "CPU s": cpu, "accuracy": right})

    options = {"c2": 0.0, "eps": eps, "max_iterations": n_epochs, "average": False}
    follow(sgd, train, features, look=look, **options)
    return [{**row, "labels": features.n_labels, "tokens": train.n_tokens} for row in rows]


@study("10_supertagger.csv")
def active_supertagger(shares=(0.0, 1e-5, 1e-3, 1e-2), n_epochs=3):
    """A CRF of 2,322 supertags by SGD, exact and with active sets: seconds, accuracy of epochs; minutes."""
    jobs = jobs_of(supertagger_rows, ("eps",), [(eps,) for eps in shares], n_epochs=n_epochs)
    yield "10_supertagger.csv", jobs, [load_dataset(*TAGGERS["supertags"][:2], verbose=False)]
