"""Chapter 10: active and inactive transitions, Tables 1 and 2 of Jeong, Lin and Lee (2009).

Every arm of a data set learns from the same sentences under the same prior to the same certificate. Their
private corpora, Communicator and Encyclopedia, have stand-ins: ATIS, and simulated chains of 120 and 279
labels.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook.chain.active import (
    ActiveObjective,
    PseudoLikelihood,
    TiedObjective,
    after_another,
    printed,
    tied_features,
)
from crfbook.chain.objective import Objective
from crfbook.data.columns import TokenColumns
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet, frequency_cutoff, observed
from crfbook.datasets import load_dataset
from crfbook.datasets.simulated import HiddenMarkov, large_label_hmm, sample
from crfbook.decoding import BEAM_WIDTH, decode
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
MOST, ROUND = 200, 20  # iterations of L-BFGS; after so many of them active sets are made anew

# The paper's features: the word, two words to each side, pairs and triples of words, affixes of 1 to 4
# letters, and tags where a corpus has them.
WINDOW = "U00:%x[-2,0]\nU01:%x[-1,0]\nU02:%x[0,0]\nU03:%x[1,0]\nU04:%x[2,0]\n"
WORDS = WINDOW + "U05:%x[-1,0]/%x[0,0]\nU06:%x[0,0]/%x[1,0]\nU07:%x[-1,0]/%x[0,0]/%x[1,0]\n"
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
    "simulated 120": Task("simulated", "labels", WINDOW, 2500, 120),
    "simulated 279": Task("simulated", "labels", WINDOW, 2500, 279),
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


class Found(NamedTuple):
    """What training ended with."""

    w: np.ndarray  # parameters
    objective: float
    gap: float  # at most so far above the minimum
    n_iter: int
    status: str


class Arm(NamedTuple):
    """A trained model, and how it labels."""

    features: FeatureSet
    w: np.ndarray  # (F,)
    found: Found
    seconds: float
    log_likelihood: float  # of the training part, by exact inference
    form: str = "default"  # of `decode`, as the paper's arm labels
    beam_width: int = BEAM_WIDTH
    after: bool = False  # has the attribute "after another token"


def trained(objective, n):
    """(`Found` of L-BFGS from zero, CPU seconds). Active sets are made anew every ROUND iterations, until
    that changes nothing. The evaluations before it are not timed: kernels are compiled there.
    """
    for w in (np.zeros(n), np.full(n, 1e-3)):
        objective(w)
    return timed(in_rounds, objective, n)


def in_rounds(objective, n):
    """`trained`."""
    w, n_iter, active = np.zeros(n), 0, isinstance(objective, ActiveObjective)
    while n_iter < MOST:
        if active:
            objective.renew()
        found = minimize(objective, w, c2=C2, tol=TOL, max_iterations=ROUND if active else MOST)
        w, n_iter = found.w, n_iter + found.n_iter
        if not active or found.n_iter == 0:
            break
    status = "sets still change" if active and found.n_iter else found.status
    value, grad = objective(w)
    return Found(w, value, float(grad @ grad) / (4.0 * C2), n_iter, status)


def exact_arm(setup, dense=False):
    """Sparse, or Dense: weights of what occurs in training, or all of them; Viterbi looks at all pairs."""
    features = observed(setup.train, *setup.sizes, all_states=dense, all_transitions=dense)
    found, seconds = trained(Objective(setup.train, features, c2=C2), features.n_features)
    return Arm(features, found.w, found, seconds, C2 * float(found.w @ found.w) - found.objective, "plain")


def active_arm(setup, outside):
    """Method 1 (outside "zero"), or the default potential outside; decoded by beam search, as wide as the
    active sets are in the mean.
    """
    features = observed(setup.train, *setup.sizes)
    objective = ActiveObjective(setup.train, features, c2=C2, outside=outside)
    found, seconds = trained(objective, features.n_features)
    exact, width = Objective(setup.train, features), int(np.ceil(objective.n_kept))
    return Arm(features, found.w, found, seconds, -exact(found.w)[0], "beam", width)


def tied_arm(setup, per_label):
    """Methods 3 and 4."""
    later, fewer = tied_features(setup.train, observed(setup.train, *setup.sizes))
    tied = TiedObjective(Objective(later, fewer), c2=C2, per_label=per_label)
    found, seconds = trained(tied, len(tied.start()))
    log_likelihood = C2 * float(found.w @ found.w) - found.objective
    return Arm(fewer, tied.fold(found.w), found, seconds, log_likelihood, after=True)


def arms_of(setup):
    """{arm: `Arm`}. Method 2 is Sparse with pairs without weight looked at once a token: one training."""
    sparse, beam = exact_arm(setup), active_arm(setup, "zero")
    method_2 = sparse._replace(form="default")
    return {
        "Dense": exact_arm(setup, dense=True),
        "Sparse": sparse,
        "Method 1": beam,
        "Method 1, exact Viterbi": beam._replace(form="default"),
        "Default outside, exact Viterbi": active_arm(setup, "default")._replace(form="default"),
        "Method 2": method_2,
        "Method 2, (10) as printed": method_2._replace(w=printed(sparse.features, sparse.w)),
        "Method 3": tied_arm(setup, False),
        "Method 4": tied_arm(setup, True),
    }


def arm_rows(name, n_train, n_repeats):
    """Rows of Table 2 of a data set. Its arms are timed in one race, each as the paper's arm labels and,
    exactly, as the package would ("auto").
    """
    setup = encoded(name, n_train)
    arms, later = arms_of(setup), after_another(setup.test)
    runs, paths, rows = {}, {}, []
    for arm, one in arms.items():
        model = later if one.after else setup.test, one.features, one.w
        runs[arm] = partial(decode, *model, form=one.form, beam_width=one.beam_width)
        runs[arm, "auto"], paths[arm] = partial(decode, *model), runs[arm]()
    ms = {key: 1e3 * took.median_cpu / setup.test.n_sequences for key, took in race(runs, n_repeats).items()}
    said = {arm: setup.encoder.decode(path, setup.test.seq_ptr) for arm, path in paths.items()}
    for arm, one in arms.items():
        test = paired_test(setup.gold, said["Sparse"], said[arm], "accuracy")
        rows.append({
            "method": arm, "sentences": setup.train.n_sequences, "accuracy": f"{100 * test.value_b:.2f}",
            "star": "*" if test.p_value < 0.05 else "", "p": f"{test.p_value:.4f}",
            "tokens that differ": int(np.count_nonzero(paths[arm] != paths["Sparse"])),
            "form": f"beam, {one.beam_width}" if one.form == "beam" else one.form,
            "ms a sentence": f"{ms[arm]:.4f}", "ms a sentence, auto": f"{ms[arm, 'auto']:.4f}",
            "weights": len(one.found.w), "log-likelihood": f"{one.log_likelihood:.2f}",
            "objective": f"{one.found.objective:.2f}", "above its minimum, at most": f"{one.found.gap:.3g}",
            "iterations": one.found.n_iter, "status": one.found.status,
            "training CPU s": f"{one.seconds:.1f}",
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


# ---- active sets: what they save and cost ----

LEAST_SHARES = 1e-1, 1e-2, 1e-3, 1e-4, 1e-5


@cache
def many_labels(name):
    """(training corpus, its features, test corpus) of one of `TAGGERS`."""
    data = load_dataset(*TAGGERS[name][:2], verbose=False)
    parts = [joint(part, None) if name == "joint" else part for part in (data.train, data.test)]
    encoder = Encoder(templates.as_template(TEMPLATE))
    train, test = encoder.fit_transform(parts[0]), encoder.transform(parts[1], on_unknown_label="mark")
    return train, observed(train, encoder.n_labels, encoder.n_attrs), test


def renewing(objective):
    """The objective with sets made anew at each evaluation, as those of the paper are."""
    return lambda w: (objective.renew(), objective(w))[1]


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
            anew = partial(renewing(some), w)
            near, near_grad = anew()
            rows.append({
                "eps": eps, "outside": outside, "labels": features.n_labels, "active": some.n_kept,
                "error": abs(near - value) / n, "bound": some.error_bound / n,
                "gradient error (%)": 100.0 * float(np.linalg.norm(near_grad - grad) / np.linalg.norm(grad)),
                "us a token": us_a_token(part, anew, n_repeats), "exact us a token": us_exact,
            })  # fmt: skip
    return rows


@study("10_errors.csv")
def active_errors(names=("joint", "morphology", "supertags"), n_tokens=4000, n_repeats=3):
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


def curve_rows(corpus, n_train, max_iterations):
    """Objective against CPU seconds of L-BFGS: Figure 1. Active sets are judged by the exact objective at
    their weights, which is not on their clock.
    """
    setup, rows = encoded(corpus, n_train), []
    features, dense = (observed(setup.train, *setup.sizes, all_states=a, all_transitions=a) for a in (0, 1))
    later, fewer = tied_features(setup.train, features)
    exact, tied = partial(Objective, c2=C2), partial(TiedObjective, Objective(later, fewer), c2=C2)
    beam = partial(ActiveObjective, setup.train, features, c2=C2)
    arms = {
        "Dense": exact(setup.train, dense, form="batched"),
        "Sparse": exact(setup.train, features, form="batched"),
        "Method 1": renewing(beam(outside="zero")),
        "Method 2": exact(setup.train, features, form="default"),
        "Method 3": tied(),
        "Method 4": tied(per_label=True),
        "active sets": renewing(beam(outside="default")),
    }
    n_all = {name: len(arms[name].start()) for name in ("Method 3", "Method 4")} | {"Dense": dense.n_features}
    for name, objective in arms.items():
        objective(start := np.zeros(n_all.get(name, features.n_features)))
        values, judge = [], arms["Method 2"] if name in ("Method 1", "active sets") else None

        def look(step, w, cpu, judge=judge, values=values):
            values.append(judge(w)[0] if judge else step.objective)

        found = follow(minimize, objective, start, c2=C2, look=look, tol=TOL, max_iterations=max_iterations)
        rows += [
            {"method": name, "iteration": tick.step.iteration, "CPU s": tick.cpu, "objective": value,
             "status": found.result.status}
            for tick, value in zip(found.ticks, values, strict=True)
        ]  # fmt: skip
    return rows


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
