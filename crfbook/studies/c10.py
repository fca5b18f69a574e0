"""Chapter 10: active and inactive transitions, Tables 1 and 2 of Jeong, Lin and Lee (2009).

Every arm of a data set learns from the same sentences under the same prior to the same certificate. Their
private corpora, Communicator and Encyclopedia, have stand-ins: ATIS, and simulated chains of 120 and 279
labels.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook.chain.active import TiedObjective, after_another, printed, tied_features
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

from .harness import follow, race, study

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
