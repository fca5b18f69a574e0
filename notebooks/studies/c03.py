"""Chapters 02 and 03: an evaluation, Viterbi, tagging and training beside python-crfsuite, same features.

Each side of `end-to-end` goes from columns to a trained model in a process of its own. Reading the data set
lies outside the clock for both; the peak memory is that of the whole process, imports included: the peer's
side loads no compiled code.
"""

from functools import partial

import numpy as np

from . import crfsuite
from .harness import Clocked, Row, clocked, cpu_row, own_peak_mb, race, race_processes, study, timed
from .records import each
from .work import columns_of, dataset, load, set_up

RECORD = "03_benchmarks.csv"
ITERATIONS = 50  # of end-to-end
TOOLS = "crfbook", "python-crfsuite"


def _evaluations(work, threads, repeats):
    """Timings of objective + gradient: CRFsuite's ("crfsuite") and ours on n threads (n)."""
    peer = crfsuite.trainer(*crfsuite.sentences(work))
    runs = {"crfsuite": lambda: Clocked(crfsuite.seconds_per_evaluation(peer))}
    return race(runs | {n: work.evaluation(n_threads=n) for n in threads}, repeats)


@study(RECORD, frozen=("objective, batched",))
def gradient(repeats=5):
    """Objective + gradient, CoNLL-2000, 22 labels, one and two threads."""
    work = load("chunking", verbose=True)
    took = _evaluations(work, (1, 2), repeats)
    name = "objective + gradient"
    shape = f"{work.features.n_node:,} node weights, {work.features.n_edge} transitions"
    yield cpu_row(f"{name}, 22 labels, 1 thread", took, 0.50, 0.35, shape, ours=1)
    wall = took[2].median_wall, took["crfsuite"].median_wall
    yield Row(f"{name}, 22 labels, 2 threads", *wall, "wall s", 0.30, 0.20)


@study(RECORD, frozen=("objective, batched",))
def gradient_atis(repeats=5):
    """Objective + gradient, ATIS slots, 121 labels, one thread."""
    took = _evaluations(load("atis", verbose=True), (1,), repeats)
    yield cpu_row("objective + gradient, ATIS, 121 labels, 1 thread", took, 0.35, 0.25, ours=1)


@study(RECORD, frozen=("objective, batched",))
def gradient_joint(repeats=3):
    """Objective + gradient, joint POS/chunk labels, 319 labels, one thread; and its matrix products alone."""
    work = load("joint", verbose=True)
    n, labels = work.corpus.n_tokens, work.features.n_labels
    took = _evaluations(work, (1,), repeats)
    runs = {"ours": work.evaluation(), "products": _products(work), "cached": _cached_products(n, labels)}
    alone = race(runs, repeats)
    ms, peer, own = (1e3 / n * one.median_cpu for one in (took[1], took["crfsuite"], alone["ours"]))
    name = f"objective + gradient, {labels} labels, 1 thread"
    yield Row(name, ms, peer, "ms/token", 0.22, 0.16, f"{n:,} tokens")
    products, cached = (1e3 / n * alone[name].median_cpu for name in ("products", "cached"))
    note = "alpha E, v E', alpha' v in the shapes of the packed batches; "
    note += f"in (256, L) blocks that never leave the cache: {cached:.4g} ms/token"
    yield Row("the same against its three matrix products", own, products, "ms/token", 1.4, None, note)


def _products(work):
    """The matrix products of one evaluation alone: batches, steps and rows as forward-backward has them."""
    from crfbook.chain.objective import Objective

    packing, labels = Objective(work.corpus, work.features)._packing, work.features.n_labels
    rng = np.random.default_rng(0)
    e = rng.random((labels, labels))
    e_t, total = np.ascontiguousarray(e.T), np.empty_like(e)
    a, v = rng.random((2, int(np.diff(packing.row_ptr).max()), labels))
    out, steps = np.empty_like(a), [packing.steps(b) for b in range(packing.n_batches)]

    def run():
        for step in steps:
            for matrix, rows in ((e, a), (e_t, v)):
                for low, high in zip(step[1:-1], step[2:], strict=True):
                    np.matmul(rows[low:high], matrix, out=out[low:high])
            np.matmul(a[step[1] : step[-1]].T, v[step[1] : step[-1]], out=total)

    return run


def _cached_products(n_tokens, n_labels, block=256):
    """As many multiply-adds in square-ish blocks, used over and over: the most that BLAS can do here."""
    rng = np.random.default_rng(0)
    a, v = rng.random((2, block, n_labels))
    e, out = rng.random((n_labels, n_labels)), np.empty((block, n_labels))
    total = np.empty((n_labels, n_labels))

    def run():
        for _ in range(0, n_tokens, block):
            np.matmul(a, e, out=out)
            np.matmul(v, e.T, out=out)
            np.matmul(a.T, v, out=total)

    return run


@study(RECORD, frozen=("decoding, dense",))
def viterbi(repeats=5):
    """Viterbi alone, scores ready, 22 and 319 labels, one thread."""
    yield _viterbi("chunking", 2000, 20, 0.35, 0.20, repeats)
    yield _viterbi("joint", 300, 5, 0.12, 0.06, repeats)


def _viterbi(name, n_sentences, iterations, required, aim, repeats):
    from crfbook.chain.inference import node_scores
    from crfbook.chain.viterbi import viterbi_many
    from crfbook.data.features import log_edge

    work = load(name, verbose=True)
    test = work.words.head(n_sentences)
    tagger, _ = crfsuite.train_tagger(work, iterations)
    rows, w = crfsuite.attribute_strings(test, work.template), crfsuite.weights_of(work, tagger)
    corpus = work.encoder.transform(test, on_unknown_label="mark")
    tables = log_edge(work.features, w, corpus.class_ptr, corpus.class_attr), corpus.edge_class
    path, score = np.zeros(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)
    args = node_scores(corpus, work.features, w), *tables, corpus.seq_ptr, path, score
    runs = {"crfsuite": lambda: Clocked(*crfsuite.viterbi_seconds(tagger, rows))}
    took = race(runs | {"ours": partial(viterbi_many, *args)}, repeats)
    speed = corpus.n_tokens / took["ours"].median_cpu / 1e6
    note = f"{corpus.n_tokens:,} tokens; ours {speed:.3g} M tokens/s; the same weights"
    return cpu_row(f"Viterbi alone, {work.features.n_labels} labels", took, required, aim, note)


@study(RECORD, frozen=("decoding, dense",))
def tagging(repeats=5):
    """The CoNLL-2000 test set from columns of strings to labels, one thread, the same weights."""
    from crfbook.chain.inference import decode

    work, found = load("chunking", verbose=True), {}
    tagger, _ = crfsuite.train_tagger(work)
    w = crfsuite.weights_of(work, tagger)

    def ours():
        corpus = work.encoder.transform(work.words, on_unknown_label="mark")
        found["ours"] = work.encoder.decode(decode(corpus, work.features, w), corpus.seq_ptr)

    def peer():
        rows = crfsuite.attribute_strings(work.words, work.template)
        found["crfsuite"] = [tagger.tag(row) for row in rows]

    took = race({"crfsuite": peer, "ours": ours}, repeats)
    same = np.mean([a == b for a, b in zip(found["ours"], found["crfsuite"], strict=True)])
    note = f"{len(work.words):,} sentences; {same:.2%} of them tagged identically"
    yield cpu_row("tagging, columns of strings to labels", took, 0.50, 0.25, note)


@study(RECORD, frozen=("lbfgs",))
def end_to_end(repeats=3):
    """Columns to corpus + 50 iterations of L-BFGS, each side in its own process; peak memory."""
    took, done = race_processes(one_side, {"crfsuite": ["crfsuite"], "ours": ["ours"]}, repeats)
    values = {side: runs[-1]["objective"] for side, runs in done.items()}
    note = f"objective: ours {values['ours']:.2f}, CRFsuite {values['crfsuite']:.2f}"
    yield cpu_row("columns to corpus + fit 50 iterations", took, 0.50, 0.35, note)
    memory = [float(np.median([run["peak_mb"] for run in done[side]])) for side in ("ours", "crfsuite")]
    yield Row("peak memory of that process", *memory, "MB", 1.0, 0.7)


def _fit_ours():
    """One side of `end_to_end`: what is to be timed. A first fit is thrown away: it may compile."""
    from crfbook.chain.sparse.choice import never_tiny
    from crfbook.models.crf import CRF

    template, train, _ = columns_of("chunking", verbose=True)
    with never_tiny():
        CRF(template=template, c2=1.0, max_iterations=2).fit(train.head(50))
    model = CRF(template=template, c2=1.0, max_iterations=ITERATIONS, n_jobs=1)
    return lambda: model.fit(train).objective_


def _fit_crfsuite():
    """The other side of `end_to_end`."""
    template, train, _ = columns_of("chunking", verbose=True)

    def run():
        sentences = crfsuite.attribute_strings(train, template), train.labels_by_sequence()
        peer = crfsuite.trainer(*sentences, max_iterations=ITERATIONS)
        del sentences  # CRFsuite has its own copy: the memory is free while it trains
        with crfsuite.model_file() as path:
            peer.train(path)
        return peer.logparser.last_iteration["loss"]

    return run


def one_side(side):
    """Seconds of a side of `end_to_end` ("ours", "crfsuite"), its objective, the memory of the process."""
    objective, spent = clocked({"ours": _fit_ours, "crfsuite": _fit_crfsuite}[side]())
    return {**spent, "objective": objective, "peak_mb": own_peak_mb()}


def whole_corpus_row(tool, c2, stop, n_sentences=None):
    """One tool on CoNLL-2000, L-BFGS with six pairs; `stop`: "its own" rule, or a number of iterations.

    Our own rule is a certified gap of 1e-9 of the objective; CRFsuite's is its default.
    """
    from crfbook.chain.objective import Objective
    from crfbook.learners.quasi_newton.lbfgs import minimize

    work = set_up("chunking", n_sentences=n_sentences)
    objective = Objective(work.corpus, work.features, c2=c2)
    limit = {} if stop == "its own" else {"max_iterations": stop}
    if tool == "crfbook":
        start = np.zeros(work.features.n_features)
        options = {"c2": c2, "memory": 6, "tol": 1e-9, **({"max_iterations": 10_000} | limit)}
        found, seconds = timed(minimize, objective, start, **options)
        w, scored, value, iterations = found.w, found.w, found.objective, found.n_iter
    else:
        peer = crfsuite.trainer(*crfsuite.sentences(work), c2=c2, **limit)
        (tagger, log), seconds = timed(crfsuite.train, peer)
        rows = crfsuite.attribute_strings(work.words, work.template)
        w, scored = crfsuite.weights_of(work, tagger), {"test": [tagger.tag(row) for row in rows]}
        value, iterations = float(log.last_iteration["loss"]), int(log.last_iteration["num"])
    there, gradient_there = objective(w)
    report = work.reports(scored)["test"]
    return {
        "weights": len(w), "iterations": iterations, "objective": f"{value:.4f}",
        "our objective there": f"{there:.4f}",
        "gap at most": f"{gradient_there @ gradient_there / (4 * c2):.2g}",
        "accuracy": f"{100 * report.accuracy:.2f}", "F1": f"{100 * report.f1:.2f}",
        "CPU seconds": f"{seconds:.0f}",
    }  # fmt: skip


@study("03_whole_corpus.csv", frozen=("lbfgs", "objective, batched", "decoding, dense"))
def whole_corpus(n_sentences=None):
    """CoNLL-2000 at c2 = 1, and for 50 iterations at c2 = 0.05: objective, gap, F1; ours and CRFsuite's."""
    hows = {"c2": 1.0, "stop": "its own"}, {"c2": 0.05, "stop": 50}
    keys = [{"tool": tool, **how} for how in hows for tool in TOOLS]
    yield "03_whole_corpus.csv", each(whole_corpus_row, keys, n_sentences=n_sentences), [dataset("chunking")]
