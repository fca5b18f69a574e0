"""Chapter 11: decoding over large label sets."""

import tempfile
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crfbook import Corpus, Encoder, FeatureSet, TokenColumns
from crfbook.chain import inference
from crfbook.chain.numpy_form import edge_scores
from crfbook.chain.sparse.choice import DECODING
from crfbook.data.corpus import slice_sequences, take_sequences
from crfbook.data.features import observed
from crfbook.decoding import BEAM_WIDTH, DECODERS, kbest, label_order, search_by
from crfbook.decoding import decode as decode_by
from crfbook.encoding import templates
from crfbook.learners.online import perceptron
from crfbook.learners.stochastic.fast import fast_fit

from . import crfsuite
from .c06 import FORM_SETS, fit_form, move_fit, print_fit, runs_of, time_cases, time_forms
from .harness import Row, follow, in_own_process, race, study
from .records import cells, each, rounded
from .work import MOST_CELLS, joint, load_dataset, random_tagger, zipf_tagger

# ---- what the default forms cost, and which form is chosen ----

TRAINING = "batched", "sparse", "default"  # of taggers, whose pairs are few


def time_taggers(forms, n_cases, seed, repeats=3, largest=2500):
    """`Case`s of random taggers, decoded or trained; in training scores are a third of those of decoding."""
    size = 0.3 if forms == TRAINING else 1.0

    def runs(corpus, features, w):
        return runs_of(forms, corpus, features, size * w)

    return time_cases(partial(random_tagger, largest=largest), runs, n_cases, seed, repeats)


@study()
def default_fit(n_cases=60):
    """The coefficients of the default forms in chain/sparse/seconds.json, measured anew: printed only."""
    fitted = {forms[2]: fit_form(time_taggers(forms, n_cases, 0), forms[2]) for forms in (TRAINING, DECODING)}
    print_fit(fitted)
    yield from ()


@study()
def register_fit(n_chains=60, n_training=30, n_decoding=40):
    """The coefficients of chain/sparse/seconds.json, moved by times on this processor: printed only.

    Others than this processor's: with OPENBLAS_CORETYPE and NUMBA_CPU_NAME, and a kernel cache of its own.
    """
    chains, (training, decoding) = time_forms(n_chains, 2), FORM_SETS.values()
    tagged = time_taggers(TRAINING, n_training, 11, largest=400)
    found = move_fit([(training, chains), (TRAINING, tagged)], 0.3)
    tagged = time_taggers(DECODING, n_decoding, 1, largest=800)
    found |= move_fit([(decoding, chains), (DECODING, tagged)], 0.1)
    print_fit({form: list(values) for form, values in found.items()})
    yield from ()


# ---- four tasks with many labels ----

TEMPLATE = "pos"
TAGGERS = {  # name: (data set, its task, test accuracy of the perceptron that is required)
    "pos": ("conll2000", "pos", 97.9),
    "joint": ("conll2000", "chunking", 93.3),  # labels POS/chunk, all sentences
    "morphology": ("ud-turkish-imst", "morph", 79.9),
    "supertags": ("ud-english-ewt", "supertag", 67.7),
}


GOLD_TAGS = "supertags, gold tags"  # as in the paper: the tagger is told the tag of each word
TAGGERS_TOLD = TAGGERS | {GOLD_TAGS: TAGGERS["supertags"]}
TOLD = "".join(f"U{d + 22}:%x[{d},tag]\n" for d in range(-2, 3)) + "U25:%x[-1,tag]/%x[0,tag]\n"


class Tagger(NamedTuple):
    """A task, and a model of it."""

    features: FeatureSet
    train: Corpus
    test: Corpus
    w: np.ndarray  # (F,)


def with_tags(columns):
    """Columns with the tag of each word, the first part of its supertag."""
    tags = [label.partition("|")[0] for label in columns.labels]
    return TokenColumns({**columns.columns, "tag": tags}, columns.seq_ptr, columns.labels)


@cache
def tagger(name, model="perceptron"):
    """`Tagger` of one of TAGGERS: an averaged perceptron of 10 epochs, a CRF with c2 = 1, at most 100
    iterations, or None: no weights.
    """
    data, text = load_dataset(*TAGGERS_TOLD[name][:2]), templates.as_template(TEMPLATE).text
    parts = data.train, data.test
    if name == "joint":
        parts = [joint(part, None) for part in parts]
    elif name == GOLD_TAGS:
        parts, text = list(map(with_tags, parts)), text + TOLD
    encoder = Encoder(text)
    train, test = encoder.fit_transform(parts[0]), encoder.transform(parts[1], on_unknown_label="mark")
    features = observed(train, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs)
    if model is None:
        return Tagger(features, train, test, None)
    if model == "perceptron":
        return Tagger(features, train, test, perceptron(train, features, max_iterations=10).w)
    found = fast_fit(train, features, c2=1.0, max_iterations=100, memory_limit=8e9)
    return Tagger(features, train, test, found.w)


def us_a_token(corpus, run, repeats):
    """Median CPU microseconds a token of run(), after a first one."""
    return 1e6 * race({"run": run}, repeats)["run"].median_cpu / corpus.n_tokens


def beginning(corpus, n_tokens):
    """The first sequences of a corpus, some n_tokens."""
    return slice_sequences(corpus, 0, int(np.searchsorted(corpus.seq_ptr[1:-1], n_tokens)) + 1)


PROCESSES = 3  # that errors of times cover
PLAIN_CELLS = 3e9  # tokens times label pairs that "plain" is timed on


def node_scores_by_parts(corpus, features, w):
    """Node scores, part by part, that are thrown away."""
    model = inference.ready_model(corpus, features, w, None, None, False)
    for part in inference.stretches(corpus.seq_ptr, features.n_labels):
        inference.stretch_scores(corpus, model, *part)


# ---- the paper's tables, and what goes past them ----

COMPARED = "plain", "dense", "default", "carpediem", "carpediem-tight", "staggered", "staggered-columns"
SWEPT = 200  # sentences whose sweeps are counted one by one


def is_slow(decoder):
    """Does a token cost L^2 or nearly so?"""
    return decoder in ("plain", "dense") or decoder.startswith(("carpediem", "staggered"))


NODE_CELLS = 3e7  # node scores that stand ready while a decoder is timed


def part_for(task, decoder):
    """What a decoder is timed on: the beginning of the test part of a `Tagger`."""
    corpus, n_labels = task.test, task.features.n_labels
    if is_slow(decoder):
        return beginning(corpus, PLAIN_CELLS / n_labels**2)
    return beginning(corpus, NODE_CELLS / n_labels) if decoder in DECODERS else corpus


def decoding_times(task, n_repeats, corpus, form, beam_width=BEAM_WIDTH):
    """CPU us a token of decoding, one for each repeat, rising: without node scores, and for DECODERS without
    the tables that are made once for a model.
    """
    features, w = task.features, task.w
    if form in DECODERS:
        ready = searched(task, corpus, form, beam_width)
        out = np.empty(corpus.n_tokens, np.int32), np.empty(corpus.n_sequences)
        took = race({"all": lambda: ready(corpus.seq_ptr, slice(None), *out)}, n_repeats)["all"].cpu
    else:
        model = corpus, features, w
        scores = partial(node_scores_by_parts, *model)
        raced = race({"all": partial(decode_by, *model, form=form), "scores": scores}, n_repeats)
        took = np.array(raced["all"].cpu) - raced["scores"].median_cpu
    return np.sort(took) * 1e6 / corpus.n_tokens


def searched(task, corpus, form, beam_width=BEAM_WIDTH):
    """f(seq_ptr, tokens, path, score) -> counters: a decoder of DECODERS, tables and node scores ready."""
    features, w = task.features, task.w
    model = inference.ready_model(corpus, features, w, None, edge_scores, False, padding=False)
    search = search_by(form, model.edges, label_order(features, model.w), beam_width)
    node = inference.node_scores(corpus, features, w)
    return lambda seq_ptr, tokens, *out: search(node[tokens], corpus.edge_class[tokens], seq_ptr, *out)


def timed_alone(task, path, runs, n_repeats):
    """[CPU us a token] of decoders (name, width of a beam) in turn, with weights from a file."""
    task, took = tagger(task, None)._replace(w=np.load(path)), []
    for decoder, width in runs:
        us = decoding_times(task, n_repeats, part_for(task, decoder), decoder, width)
        took.append(float(us[len(us) // 2]))
    return took


def decoder_rows(task, model, n_repeats):
    """A row for each decoder of a model: counts, and times as medians over `PROCESSES` processes, in each of
    which the decoders run in turn.
    """
    name, task = task, tagger(task, model)
    runs = [(decoder, BEAM_WIDTH) for decoder in (COMPARED if model == "perceptron" else OF_CRF)]
    if model == "perceptron":
        runs.append(("beam", beams_of(task)[-1]["width"]))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "w.npy")
        np.save(path, task.w)
        took = [in_own_process(timed_alone, name, path, runs, n_repeats) for _ in range(PROCESSES)]
    timed = zip(runs, np.transpose(took), strict=True)
    return [decoder_row(name, task, *run, np.sort(us)) for run, us in timed]


def decoder_row(name, task, decoder, width, us):
    """us : CPU us a token, one for each process, rising."""
    features, corpus, seen = task.features, part_for(task, decoder), np.zeros(3, np.int64)
    path = decode_by(corpus, features, task.w, form=decoder, beam_width=width, counters=seen)
    counted = seen / [corpus.n_tokens, corpus.n_tokens, corpus.n_sequences] if decoder in DECODERS else None
    mean, error, most = "", "", ""
    if decoder.startswith("staggered"):
        sweeps = sweeps_of(task, decoder)
        mean, error, most = sweeps.mean(), sweeps.std() / np.sqrt(len(sweeps)), int(sweeps.max())
    return {
        "decoder": decoder, "width": width if decoder == "beam" else "",
        "labels": features.n_labels, "stored pairs": features.n_edge, "data": TAGGERS_TOLD[name][0],
        "tokens": corpus.n_tokens, "us a token": us[len(us) // 2], "fastest": us[0], "slowest": us[-1],
        "sentences a second": 1e6 / us[len(us) // 2] / corpus.n_tokens * corpus.n_sequences,
        "nodes a token": "" if counted is None else counted[0],
        "pairs a token": "" if counted is None else counted[1], "sweeps": mean, "sweeps error": error,
        "most sweeps": most, "accuracy": 100 * np.mean(path == corpus.labels),
    }  # fmt: skip


def sweeps_of(task, decoder):
    """Sweeps of each of the first SWEPT test sentences."""
    corpus, found = slice_sequences(task.test, 0, min(SWEPT, task.test.n_sequences)), []
    ready = searched(task, corpus, decoder)
    for lo, hi in pairwise(corpus.seq_ptr.tolist()):
        out = np.zeros(hi - lo, np.int32), np.zeros(1)
        found.append(ready(np.array([0, hi - lo]), slice(lo, hi), *out)[2])
    return np.array(found)


def data_of():
    """The data sets of TAGGERS."""
    return [load_dataset(*about[:2]) for about in TAGGERS.values()]


OF_CRF = "plain", "dense", "default", "staggered", "staggered-columns"
MODELS = [
    *cells(task=TAGGERS, model=["perceptron"]), {"task": GOLD_TAGS, "model": "perceptron"},
    *cells(task=("pos", "joint"), model=["CRF"]),  # of more labels a CRF takes long
]  # fmt: skip


@study("11_decoders.csv", frozen=("perceptron", "auto", "decoders"))
def decoders(models=MODELS, n_repeats=3):
    """Tables 1, 2 and 4: microseconds a token, sentences a second, sweeps of each decoder; an hour."""
    yield "11_decoders.csv", each(rounded(decoder_rows), models, n_repeats=n_repeats), data_of()


def beams_of(task):
    """Accuracy of a beam of widths 1, 2, 4, ... until it is within 0.1 points of exact decoding."""
    rows, width, (features, _, corpus, w) = [], 1, task
    exact = 100 * np.mean(decode_by(corpus, features, w) == corpus.labels)
    while not rows or rows[-1]["accuracy"] < exact - 0.1:
        path = decode_by(corpus, features, w, form="beam", beam_width=width)
        rows.append({"width": width, "accuracy": 100 * np.mean(path == corpus.labels), "exact": exact})
        width *= 2
    return rows


@study("11_beam.csv", frozen=("perceptron", "decoders"))
def decoding_beam():
    """Table 4: beam search with the smallest width in 1, 2, 4, .. within 0.1 points of exact decoding."""
    jobs = each(rounded(lambda task: beams_of(tagger(task))), cells(task=TAGGERS))
    yield "11_beam.csv", jobs, data_of()


TRAINING_FORMS = {"stored pairs": "auto", "tables": "plain"}  # the others have their names


def training_row(task, transitions, n_repeats):
    """CPU seconds of epochs of the averaged perceptron: the first one, where nothing is pruned at first, and
    one from the weights after 10 epochs on, where sweeps are those of most epochs.
    """
    task, form = tagger(task), TRAINING_FORMS.get(transitions, transitions)
    n_labels, n_tokens = task.features.n_labels, task.train.n_tokens
    slow, corpus = n_labels > (500 if form == "plain" else 2000) and form != "auto", task.train
    if slow and form == "plain":  # for staggered decoding, a beginning does not say what labels are frequent
        corpus = beginning(corpus, PLAIN_CELLS / n_labels**2)
    perceptron(beginning(corpus, 100), task.features, form=form, max_iterations=1)

    def epochs(w0, n):
        run = follow(perceptron, corpus, task.features, w0, form=form, max_iterations=n)
        return np.diff([0.0, *(tick.cpu for tick in run.ticks)]) * 1e6 / corpus.n_tokens

    first, us = float(epochs(None, 1)[0]), float(np.median(epochs(task.w, 2 if slow else n_repeats + 1)[1:]))
    found = {"labels": n_labels, "tokens": corpus.n_tokens, "first epoch": first, "us a token": us}
    return found | {"10 epochs (s)": (first + 9.0 * us) * n_tokens / 1e6}


@study("11_training.csv", frozen=("perceptron", "decoders"))
def decoding_training(n_repeats=3):
    """Table 3: training the averaged perceptron by stored pairs, tables and staggered decoding; minutes."""
    keys = cells(task=TAGGERS, transitions=(*TRAINING_FORMS, "staggered", "staggered-columns"))
    yield "11_training.csv", each(rounded(training_row), keys, n_repeats=n_repeats), data_of()


def kbest_row(task, k, n_repeats):
    """CPU us a token of the k best labellings, node scores and log Z included."""
    task = tagger(task)
    us = us_a_token(task.test, partial(kbest, task.test, task.features, task.w, k=k), n_repeats)
    return {"labels": task.features.n_labels, "us a token": us}


@study("11_kbest.csv", frozen=("perceptron", "decoders"))
def decoding_kbest(n_repeats=3):
    """The k best labellings: microseconds a token for k = 1, 10, 100."""
    keys = cells(task=TAGGERS, k=(1, 10, 100))
    yield "11_kbest.csv", each(rounded(kbest_row), keys, n_repeats=n_repeats), data_of()


def peer_row(task):
    """CPU us a token of CRFsuite's tagger, and of ours from attributes to labels, on the same features; and
    of an epoch of its averaged perceptron.

    CRFsuite looks at a table of all pairs whatever the weights are: a model of one epoch on text with all
    labels will do.
    """
    task = tagger(task)
    first, epoch = np.unique(task.train.labels, return_index=True)[1], task.features.n_labels < 1000
    if epoch:
        kept = take_sequences(task.train, np.unique(np.searchsorted(task.train.seq_ptr, first, "right") - 1))
    else:  # a token of each label, by itself: an epoch of sentences takes half an hour
        kept = take_sequences(task.train._replace(seq_ptr=np.arange(task.train.n_tokens + 1)), first)
    corpus = beginning(task.test, PEER_CELLS / task.features.n_labels**2)
    rows = crfsuite.attribute_numbers(kept), crfsuite.label_numbers(kept)
    peer = crfsuite.trainer(*rows, "ap", max_iterations=1)
    model, log = crfsuite.train(peer)
    seconds, _ = crfsuite.viterbi_seconds(model, crfsuite.attribute_numbers(corpus))
    ours = us_a_token(task.test, partial(decode_by, task.test, task.features, task.w), 3)
    return {
        "labels": task.features.n_labels, "tokens": corpus.n_tokens, "ours": ours,
        "CRFsuite": 1e6 * seconds / corpus.n_tokens, "trained on": kept.n_tokens,
        "CRFsuite's epoch": 1e6 * float(log.last_iteration["time"]) / kept.n_tokens if epoch else "",
    }  # fmt: skip


PEER_CELLS = 3e8  # tokens times label pairs that CRFsuite decodes


@study("11_peers.csv", frozen=("perceptron", "decoders"))
def decoding_peers():
    """Tagging with hundreds of labels beside CRFsuite, from attributes to labels, one thread; minutes."""
    yield "11_peers.csv", each(rounded(peer_row), cells(task=TAGGERS)), data_of()


# ---- what it must reach ----

REACH = (  # task, form or learner, beside, required ratio, aim
    ("morphology", "auto", "plain", 1 / 15, 1 / 35), ("supertags", "auto", "plain", 1 / 150, 1 / 400),
    ("morphology", "staggered-columns", "plain", 1 / 4, 1 / 8),
    ("supertags", "staggered-columns", "plain", 1 / 2, 1 / 6),
)  # fmt: skip
PAPERS_SWEEPS = {"pos": 6.02, "joint": 8.15}


@study("11_targets.csv")
def decoding_targets(repeats=5):
    """What decoding and training by decoding must reach, in one run; minutes."""
    for name, (_, _, required) in TAGGERS.items():
        task = tagger(name)
        right = 100 * float(np.mean(decode_by(task.test, task.features, task.w) == task.test.labels))
        work = f"{name}, {task.features.n_labels:,} labels: accuracy that is required / reached"
        yield Row(work, required, round(right, 1), "%", 1.0, note=f"{right:.3f}; required with one decimal")
    for name, sweeps in PAPERS_SWEEPS.items():
        off = abs(float(np.mean(sweeps_of(tagger(name), "staggered"))) - sweeps)
        yield Row(f"{name}: sweeps of staggered decoding, off the paper's {sweeps}", off, 1.0, "sweeps", 0.5)
    for name, form, beside, *limits in REACH:
        task = tagger(name)
        times = (decoding_times(task, repeats, part_for(task, one), one) for one in (form, beside))
        took = [float(np.median(us)) for us in times]
        yield Row(f"{name}: {form} / {beside}, node scores not counted", *took, "us a token", *limits)
    for name, form, *limits in (("supertags", "auto", 20.0, 10.0), ("joint", "auto"), ("pos", "auto")):
        task = tagger(name)
        took = us_a_token(task.test, partial(decode_by, task.test, task.features, task.w, form=form), repeats)
        yield Row(f"{name}: scores and decoding", took, 1.0, "us a token", *limits)
    task = tagger("joint")
    plain = part_for(task, "plain")
    best = us_a_token(task.test, partial(kbest, task.test, task.features, task.w, k=10), repeats)
    once = us_a_token(plain, partial(decode_by, plain, task.features, task.w, form="plain"), repeats)
    work = "joint: the 10 best with probabilities / plain Viterbi, node scores in both"
    yield Row(work, best, once, "us a token")
    for name, *limits in (("joint", 0.45, 0.3), ("supertags", 1 / 60, 1 / 150)):
        took = [training_row(name, how, 3)["us a token"] for how in ("stored pairs", "tables")]
        yield Row(f"{name}: epoch of the perceptron, stored pairs / tables", *took, "us a token", *limits)


GROWN = (50, 100, 200, 500, 1000, 2000, 5000)


def growing_tagger(n_labels, n_tokens):
    """A `zipf_tagger` whose words decide more than its transitions do, as in trained models."""
    return zipf_tagger(np.random.default_rng(n_labels), n_labels, n_tokens, size=0.3)


def growth_rows(labels, n_repeats):
    """CPU us a token of the decoders on a `growing_tagger`, node scores not counted."""
    rows, (whole, features, w) = [], growing_tagger(labels, 20_000)
    task = Tagger(features, whole, whole, w)
    for form in (*(form for form in COMPARED if not form.startswith("carpediem")), "beam"):
        size = max(300, MOST_CELLS / labels**2) if is_slow(form) else NODE_CELLS / labels
        corpus, seen = beginning(whole, size), np.zeros(3, np.int64)
        us = decoding_times(task, n_repeats, corpus, form)
        decode_by(corpus, features, w, form=form, counters=seen)
        pairs = seen[1] / corpus.n_tokens if form in DECODERS else ""
        rows.append({"decoder": form, "us a token": us[len(us) // 2], "pairs a token": pairs})
    return rows


@study("11_growth.csv", frozen=("decoders",))
def decoding_growth(n_repeats=3):
    """Microseconds a token against L from 50 to 5,000 labels by Zipf's law."""
    yield "11_growth.csv", each(rounded(growth_rows), cells(labels=GROWN), n_repeats=n_repeats), []
