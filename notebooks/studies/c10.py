"""Chapter 10: active and inactive transitions, Tables 1 and 2 of Jeong, Lin and Lee (2009).

Every arm of a data set learns from the same sentences under the same prior to the same certificate. Their
private corpora, Communicator and Encyclopedia, have stand-ins: ATIS, and simulated chains of 120 and 279
labels.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook import Encoder, FeatureSet, Objective, TokenColumns, minimize
from crfbook.chain import active
from crfbook.chain.active.sequence import EPS
from crfbook.chain.inference import ready_model, stretch_scores
from crfbook.chain.numpy_form import edge_scores
from crfbook.data.features import frequency_cutoff, observed
from crfbook.datasets.simulated import HiddenMarkov, large_label_hmm, sample
from crfbook.decoding import BEAM_WIDTH, DECODERS, decode, search_by
from crfbook.encoding import templates
from crfbook.evaluation import paired_test
from crfbook.learners.quasi_newton import ActiveLBFGS
from crfbook.training.loop import OptResult, run

from . import crfsuite, work
from .c11 import us_a_token
from .harness import follow, race, study, timed
from .records import cells, each, rounded
from .work import load_dataset

C2 = 0.125  # a prior of variance 4, as in the paper
TOL = 1e-4  # of the objective: the certificate of every arm
MOST = 200  # iterations of L-BFGS, the same for all arms

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
    "conll2000": Task("conll2000", "chunking", WORDS + AFFIXES + TAGS, 2000),
    "conll2003": Task("conll2003", "ner", WORDS + AFFIXES + TAGS, 2000),
    "nettalk": Task("nettalk", "phonemes", WORDS + LETTERS, 5000),
    "atis": Task("atis", "slots", WORDS + AFFIXES, 2000),
    "simulated 120": Task("simulated", "labels", WINDOW, 1000, 120),
    "simulated 279": Task("simulated", "labels", WINDOW, 1000, 279),
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
    data = load_dataset(task.dataset, task.task)
    return data.train, data.test, [data]


def encoded(name, n_train=None):
    """`Work` of a task, on its first n_train sentences (None: as many as its row in TASKS says)."""
    task, (train, test, _) = TASKS[name], columns_of(name)
    about = work.Task(task.dataset, task.task, task.template + "B\n", work.TEST, "accuracy")
    first = train.head(n_train or task.n_train or len(train))
    return work.encode(about, about.template, first, {"test": test})


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
    """A trained model, and how it labels."""

    features: FeatureSet
    w: np.ndarray  # (F,)
    found: OptResult  # the last violation: at most so far above the minimum
    seconds: float
    log_likelihood: float  # of the training part, by exact inference
    form: str = "default"  # of `decode`, as the paper's arm labels
    beam_width: int = BEAM_WIDTH
    after: bool = False  # has the attribute "after another token"


def trained(objective, n, start=None, max_iterations=None):
    """(`OptResult` of L-BFGS, CPU seconds), from zero unless told, MOST iterations unless told.

    Active sets are made anew on the way, and it ends on fresh ones. The evaluations before it are not timed:
    kernels are compiled there.
    """
    for w in (np.zeros(n), np.full(n, 1e-3)):
        objective(w)
    start = np.zeros(n) if start is None else start
    rules = {"c2": C2, "tol": TOL, "max_iterations": MOST if max_iterations is None else max_iterations}
    if isinstance(objective, active.ActiveObjective):
        objective.renew()
        return timed(lambda: run(ActiveLBFGS(objective, start, **rules)))
    return timed(minimize, objective, start, **rules)


def exact_arm(setup, dense=False):
    """Sparse, or Dense: weights of what occurs in training, or all of them; Viterbi looks at all pairs."""
    features = observed(setup.corpus, *setup.sizes, all_states=dense, all_transitions=dense)
    found, seconds = trained(Objective(setup.corpus, features, c2=C2), features.n_features)
    return Arm(features, found.w, found, seconds, C2 * float(found.w @ found.w) - found.objective, "plain")


def active_arm(setup, outside):
    """Method 1 (outside "zero"), or the default potential outside; decoded by beam search, as wide as the
    active sets are in the mean.
    """
    features = setup.features
    objective = active.ActiveObjective(setup.corpus, features, c2=C2, outside=outside)
    found, seconds = trained(objective, features.n_features)
    exact, width = Objective(setup.corpus, features), int(np.ceil(objective.n_kept))
    return Arm(features, found.w, found, seconds, -exact(found.w)[0], "beam", width)


def tied_arm(setup, per_label):
    """Methods 3 and 4."""
    later, fewer = active.tied_features(setup.corpus, setup.features)
    tied = active.TiedObjective(Objective(later, fewer), c2=C2, per_label=per_label)
    found, seconds = trained(tied, len(tied.start()))
    log_likelihood = C2 * float(found.w @ found.w) - found.objective
    return Arm(fewer, tied.fold(found.w), found, seconds, log_likelihood, after=True)


def arms_of(setup):
    """{arm: `Arm`}. Method 2 is Sparse with pairs without weight looked at once a token: one training."""
    sparse, beam = exact_arm(setup), active_arm(setup, "zero")
    method_2 = sparse._replace(form="default")
    return {
        "Dense": exact_arm(setup, dense=True), "Sparse": sparse, "Method 1": beam,
        "Method 1, exact Viterbi": beam._replace(form="default"),
        "Default outside, exact Viterbi": active_arm(setup, "default")._replace(form="default"),
        "Method 2": method_2,
        "Method 2, (10) as printed": method_2._replace(w=active.printed(sparse.features, sparse.w)),
        "Method 3": tied_arm(setup, False), "Method 4": tied_arm(setup, True),
    }  # fmt: skip


def labeller(corpus, features, w, form, beam_width):
    """() -> labels (N,), node scores included; the tables of DECODERS are made beforehand."""
    if form not in DECODERS:
        return partial(decode, corpus, features, w, form=form)
    model = ready_model(corpus, features, w, None, edge_scores, False, padding=False)
    search, path = search_by(form, model.edges, None, beam_width), np.empty(corpus.n_tokens, np.int32)

    def run():
        node = stretch_scores(corpus, model, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens))
        search(node, corpus.edge_class, corpus.seq_ptr, path, np.empty(corpus.n_sequences))
        return path

    return run


def arm_rows(name, n_train, n_repeats):
    """Rows of Table 2 of a data set. Its arms are timed in one race, each as the paper's arm labels and,
    exactly, as the package would ("auto").
    """
    setup = encoded(name, n_train)
    arms, later = arms_of(setup), active.after_another(setup.held)
    runs, paths, rows = {}, {}, []
    for arm, one in arms.items():
        model = later if one.after else setup.held, one.features, one.w
        runs[arm] = labeller(*model, one.form, one.beam_width)
        runs[arm, "auto"], paths[arm] = partial(decode, *model), runs[arm]()
    ms = {key: 1e3 * took.median_cpu / setup.held.n_sequences for key, took in race(runs, n_repeats).items()}
    said = {arm: setup.encoder.decode(path, setup.held.seq_ptr) for arm, path in paths.items()}
    for arm, one in arms.items():
        test = paired_test(setup.parts["test"].gold, said["Sparse"], said[arm], "accuracy")
        rows.append({
            "method": arm, "sentences": setup.corpus.n_sequences, "accuracy": f"{100 * test.value_b:.2f}",
            "star": "*" if test.p_value < 0.05 else "", "p": f"{test.p_value:.4f}",
            "tokens that differ": int(np.count_nonzero(paths[arm] != paths["Sparse"])),
            "form": f"beam, {one.beam_width}" if one.form == "beam" else one.form,
            "ms a sentence": f"{ms[arm]:.4f}", "ms a sentence, auto": f"{ms[arm, 'auto']:.4f}",
            "weights": len(one.found.w), "log-likelihood": f"{one.log_likelihood:.2f}",
            "objective": f"{one.found.objective:.2f}",
            "above its minimum, at most": f"{one.found.history[-1].violation:.3g}",
            "iterations": one.found.n_iter, "status": one.found.status,
            "training CPU s": f"{one.seconds:.1f}",
        })  # fmt: skip
    return rows


TRAINED = "lbfgs", "objective, default", "active sets", "tied potentials"


@study("10_corpora.csv", "10_methods.csv", frozen=(*TRAINED, "decoders"))
def active_sets(names=tuple(TASKS), n_train=None, n_repeats=5):
    """Tables 1 and 2 of Jeong, Lin and Lee (2009): Dense, Sparse and Methods 1 to 4; half an hour."""
    data = {name: columns_of(name)[2] for name in names}
    kept = [name for name in names if name not in USER_SUPPLIED or data[name][0].source == "real"]
    files = [one for name in kept for one in data[name]]
    yield "10_corpora.csv", [({"corpus": name}, partial(corpus_row, name)) for name in kept], files
    jobs = [({"corpus": name}, partial(arm_rows, name, n_train, n_repeats)) for name in kept]
    yield "10_methods.csv", jobs, files


# ---- where training starts, and which rule makes the sets ----

START = 30  # iterations of the pseudo-likelihood, as in the paper
ACTIVE = cells(outside=("zero", "default"), rule=("share", "mass"))
METHODS = {None: "exact", "zero": "Method 1", "default": "default outside"}  # by `outside`


def mass_of(corpus, features, w):
    """The eps with which the rule "mass" keeps about as many labels at w as the rule "share" with EPS."""

    def kept(eps, rule):
        objective = active.ActiveObjective(corpus, features, eps=eps, rule=rule)
        objective(w)
        return objective.n_kept

    wanted = kept(EPS, "share")
    return min(np.geomspace(1e-4, 1e-1, 25), key=lambda eps: abs(kept(eps, "mass") - wanted))


def start_rows(corpus, n_train, max_iterations):
    """Fits from zero, and from START iterations of the pseudo-likelihood, which count: exact, and with sets
    that are frozen and renewed. All have the same number of iterations.
    """
    setup, rows = encoded(corpus, n_train), []
    features = setup.features
    n, exact = features.n_features, Objective(setup.corpus, features, c2=C2)
    begun, took = trained(active.PseudoLikelihood(setup.corpus, features, c2=C2), n, None, START)
    eps = {"share": EPS, "mass": mass_of(setup.corpus, features, trained(exact, n)[0].w)}
    starts = ("zero", None, 0, 0.0), ("pseudo-likelihood", begun.w, begun.n_iter, took)
    for start, w0, before, spent in starts:
        for options in ({}, *ACTIVE):
            objective, rule = exact, options.get("rule", "")
            if options:
                objective = active.ActiveObjective(setup.corpus, features, c2=C2, eps=eps[rule], **options)
            found, seconds = trained(objective, n, w0, max_iterations - before)
            right = decode(setup.held, features, found.w) == setup.held.labels
            rows.append({
                "start": start, "method": METHODS[options.get("outside")], "rule": rule,
                "eps": eps.get(rule, ""), "labels kept": objective.n_kept if options else features.n_labels,
                "CPU s": seconds + spent, "of it, start": spent, "iterations": found.n_iter + before,
                "objective": f"{exact(found.w)[0]:.3f}", "status": found.status,
                "accuracy": f"{100 * np.mean(right):.2f}",
            })  # fmt: skip
    return rows


@study("10_starts.csv", frozen=("lbfgs", "active sets", "tied potentials"))
def active_starts(names=("atis", "simulated 279"), n_train=1000, max_iterations=100):
    """The pseudo-likelihood as a start, and sets by share or by mass (Pal et al. 2006); minutes."""
    limits = {"n_train": n_train, "max_iterations": max_iterations}
    jobs = each(rounded(start_rows), cells(corpus=names), **limits)
    yield "10_starts.csv", jobs, [one for name in names for one in columns_of(name)[2]]


# ---- Figure 1, and a peer ----


def renewing(objective):
    """The objective with sets made anew at each evaluation, as those of the paper are."""
    return lambda w: (objective.renew(), objective(w))[1]


def curve_rows(corpus, n_train, max_iterations):
    """Objective against CPU seconds of L-BFGS: Figure 1. Active sets are judged by the exact objective at
    their weights, which is not on their clock.
    """
    setup, rows = encoded(corpus, n_train), []
    features, dense = (observed(setup.corpus, *setup.sizes, all_states=a, all_transitions=a) for a in (0, 1))
    later, fewer = active.tied_features(setup.corpus, features)
    exact, tied = partial(Objective, c2=C2), partial(active.TiedObjective, Objective(later, fewer), c2=C2)
    beam = partial(active.ActiveObjective, setup.corpus, features, c2=C2)
    arms = {
        "Dense": exact(setup.corpus, dense, form="batched"),
        "Sparse": exact(setup.corpus, features, form="batched"), "Method 1": renewing(beam(outside="zero")),
        "Method 2": exact(setup.corpus, features, form="default"), "Method 3": tied(),
        "Method 4": tied(per_label=True), "active sets": renewing(beam(outside="default")),
    }  # fmt: skip
    n_all = {name: len(arms[name].start()) for name in ("Method 3", "Method 4")} | {"Dense": dense.n_features}
    for name, objective in arms.items():
        objective(start := np.zeros(n_all.get(name, features.n_features)))
        values, judge = [], arms["Method 2"] if name in ("Method 1", "active sets") else None

        def look(step, w, cpu, judge=judge, values=values):
            values.append(judge(w)[0] if judge else step.objective)

        found = follow(minimize, objective, start, c2=C2, look=look, tol=TOL, max_iterations=max_iterations)
        for tick, value in zip(found.ticks, values, strict=True):
            row = {"method": name, "iteration": tick.step.iteration, "CPU s": tick.cpu, "objective": value}
            rows.append(row | {"status": found.result.status})
    return rows


@study("10_curves.csv", frozen=TRAINED)
def active_curves(names=("conll2000", "nettalk", "atis", "simulated 279"), n_train=300, max_iterations=200):
    """Figure 1: objectives against CPU seconds, all methods, from 300 sentences; minutes."""
    limits = {"n_train": n_train, "max_iterations": max_iterations}
    jobs = each(rounded(curve_rows), cells(corpus=names), **limits)
    yield "10_curves.csv", jobs, [one for name in names for one in columns_of(name)[2]]


PEERS_ON = "conll2000", "nettalk", "atis", "simulated 120", "simulated 279"
ONLY_SEEN = {"feature.possible_transitions": False, "feature.possible_states": False}


def peer_row(corpus, n_train, n_iterations):
    """CPU seconds of iterations of L-BFGS on the same features, beside CRFsuite's."""
    setup = encoded(corpus, n_train)
    rows = crfsuite.attribute_numbers(setup.corpus), crfsuite.label_numbers(setup.corpus)
    peer = crfsuite.trainer(*rows, c2=C2, max_iterations=n_iterations, **ONLY_SEEN)
    (tagger, log), theirs = timed(crfsuite.train, peer)
    features = setup.features
    objective = Objective(setup.corpus, features, c2=C2)
    objective(np.zeros(features.n_features))
    options = {"c2": C2, "tol": 0.0, "max_iterations": n_iterations}
    ours = follow(minimize, objective, np.zeros(features.n_features), **options)
    seconds, _ = crfsuite.viterbi_seconds(tagger, crfsuite.attribute_numbers(setup.held))
    return {
        "labels": features.n_labels, "tokens": setup.corpus.n_tokens, "iterations": n_iterations,
        "ours": ours.seconds, "CRFsuite": theirs, "our decoding us a token":
        us_a_token(setup.held, partial(decode, setup.held, features, ours.result.w), 3),
        "CRFsuite's decoding us a token": 1e6 * seconds / setup.held.n_tokens,
    }  # fmt: skip


@study("10_peers.csv", frozen=("lbfgs", "decoders"))
def active_peers(names=PEERS_ON, n_train=1000):
    """Training and decoding beside CRFsuite on the same features; minutes."""
    jobs = each(rounded(peer_row), cells(corpus=names), n_train=n_train, n_iterations=20)
    yield "10_peers.csv", jobs, [one for name in names for one in columns_of(name)[2]]
