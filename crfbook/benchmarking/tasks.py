"""What can be timed. Each task returns rows: ours, the reference, both from the same run."""

import numpy as np

from . import Clocked, Row, race
from .boosting_tasks import boosting
from .coordinate_tasks import sbcd
from .fast_tasks import fast
from .l1_tasks import l1_accuracy, owlqn
from .loss_tasks import loss_training, losses
from .online_tasks import perceptron
from .sparse_tasks import sparse, sparse_choice, sparse_owlqn, sparse_tagging
from .stochastic_tasks import sgd, stochastic_passes
from .work import load

TARGETS = "required and aim: shares of python-crfsuite's time in the same run"


def _threads_one():
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


def _objective_seconds(work, n_threads, repeats):
    """Timing of ours per objective + gradient, at weights away from zero."""
    from ..optim.objective import Objective

    objective = Objective(work.corpus, work.features, c2=1.0, n_threads=n_threads)
    w = np.random.default_rng(0).normal(scale=0.1, size=work.features.n_features)
    return lambda: objective(w)


def _against_crfsuite(work, threads, repeats):
    from .crfsuite import seconds_per_evaluation, trainer
    from .work import attribute_strings

    it = trainer(attribute_strings(work.columns, work.template), work.columns.labels_by_sequence())

    def crfsuite():
        seconds = seconds_per_evaluation(it)
        return Clocked(seconds, seconds)

    candidates = {"crfsuite": crfsuite}
    for n in threads:
        candidates[f"ours, {n}"] = _objective_seconds(work, n, repeats)
    with _threads_one():
        return race(candidates, repeats)


def gradient(repeats=5):
    """Objective + gradient, CoNLL-2000, 22 labels, one and two threads."""
    work = load("chunking")
    took = _against_crfsuite(work, (1, 2), repeats)
    shape = f"{work.features.n_node:,} node weights, {work.features.n_edge} transitions"
    return [
        Row(
            "objective + gradient, 22 labels, 1 thread",
            took["ours, 1"].median_cpu,
            took["crfsuite"].median_cpu,
            "CPU s",
            0.50,
            0.35,
            shape,
        ),
        Row(
            "objective + gradient, 22 labels, 2 threads",
            took["ours, 2"].median_wall,
            took["crfsuite"].median_wall,
            "wall s",
            0.30,
            0.20,
        ),
    ]


def gradient_atis(repeats=5):
    """Objective + gradient, ATIS slots, 121 labels, one thread."""
    took = _against_crfsuite(load("atis"), (1,), repeats)
    return [
        Row(
            "objective + gradient, ATIS, 121 labels, 1 thread",
            took["ours, 1"].median_cpu,
            took["crfsuite"].median_cpu,
            "CPU s",
            0.35,
            0.25,
        )
    ]


def gradient_joint(repeats=3):
    """Objective + gradient, joint POS/chunk labels, 319 labels, one thread; and its matrix products alone."""
    work = load("joint")
    took = _against_crfsuite(work, (1,), repeats)
    n, labels = work.corpus.n_tokens, work.features.n_labels
    with _threads_one():
        alone = race(
            {
                "ours": _objective_seconds(work, 1, repeats),
                "products": _products(work),
                "cached": lambda: _cached_products(n, labels),
            },
            repeats,
        )
    scale = 1e3 / n
    return [
        Row(
            f"objective + gradient, {labels} labels, 1 thread",
            took["ours, 1"].median_cpu * scale,
            took["crfsuite"].median_cpu * scale,
            "ms/token",
            0.22,
            0.16,
            f"{n:,} tokens",
        ),
        Row(
            "the same against its three matrix products",
            alone["ours"].median_cpu * scale,
            alone["products"].median_cpu * scale,
            "ms/token",
            1.4,
            None,
            "alpha E, v E', alpha' v in the shapes of the packed batches; "
            f"in (256, L) blocks that never leave the cache: {alone['cached'].median_cpu * scale:.4g} ms/token",
        ),
    ]


def _products(work):
    """The matrix products of one evaluation alone: the same batches,
    steps and rows as forward-backward has.
    """
    from ..optim.objective import Objective

    packing = Objective(work.corpus, work.features)._packing
    labels = work.features.n_labels
    rng = np.random.default_rng(0)
    e = rng.random((labels, labels))
    e_t, total = np.ascontiguousarray(e.T), np.empty_like(e)
    a, v = rng.random((2, int(np.diff(packing.row_ptr).max()), labels))
    out = np.empty_like(a)
    steps = [
        packing.step_ptr[packing.step_start[b] : packing.step_start[b + 1]]
        for b in range(len(packing.row_ptr) - 1)
    ]

    def run():
        for step in steps:
            for matrix, rows in ((e, a), (e_t, v)):
                for low, high in zip(step[1:-1], step[2:], strict=True):
                    np.matmul(rows[low:high], matrix, out=out[low:high])
            np.matmul(a[step[1] : step[-1]].T, v[step[1] : step[-1]], out=total)

    return run


def _cached_products(n_tokens, n_labels, block=256):
    """As many multiply-adds in square-ish blocks that are used over and over:
    the most that BLAS can do here.
    """
    rng = np.random.default_rng(0)
    a, v = rng.random((2, block, n_labels))
    e, out = rng.random((n_labels, n_labels)), np.empty((block, n_labels))
    total = np.empty((n_labels, n_labels))
    for _ in range(0, n_tokens, block):
        np.matmul(a, e, out=out)
        np.matmul(v, e.T, out=out)
        np.matmul(a.T, v, out=total)


def viterbi(repeats=5):
    """Viterbi alone, scores ready, 22 and 319 labels, one thread."""
    return [_viterbi("chunking", 2000, 0.35, 0.20, repeats), _viterbi("joint", 300, 0.12, 0.06, repeats)]


def _viterbi(name, n_sentences, required, aim, repeats):
    from ..data.features import log_edge
    from ..kernels.viterbi import viterbi_many
    from ..models.inference import node_scores
    from .crfsuite import train_tagger, viterbi_seconds
    from .work import attribute_strings

    work = load(name)
    test = work.test.head(n_sentences)
    tagger, _ = train_tagger(work, 20 if name == "chunking" else 5)
    rows = attribute_strings(test, work.template)
    corpus, w = work.encoder.transform(test, on_unknown_label="mark"), crfsuite_weights(work, tagger)
    node = node_scores(corpus, work.features, w)
    edge = log_edge(work.features, w, corpus.class_ptr, corpus.class_attr)
    path, score = np.zeros(corpus.n_tokens, np.int32), np.zeros(corpus.n_sequences)
    with _threads_one():
        took = race(
            {
                "crfsuite": lambda: Clocked(*viterbi_seconds(tagger, rows)),
                "ours": lambda: viterbi_many(node, edge, corpus.edge_class, corpus.seq_ptr, path, score),
            },
            repeats,
        )
    speed = corpus.n_tokens / took["ours"].median_cpu
    return Row(
        f"Viterbi alone, {work.features.n_labels} labels",
        took["ours"].median_cpu,
        took["crfsuite"].median_cpu,
        "CPU s",
        required,
        aim,
        f"{corpus.n_tokens:,} tokens; ours {speed / 1e6:.3g} M tokens/s; the same weights",
    )


def crfsuite_weights(work, tagger):
    """CRFsuite's weights in the order of `work.features` (absent ones, which it prunes, are 0)."""
    from .crfsuite import weights_of

    return weights_of(work, tagger)


def tagging(repeats=5):
    """The CoNLL-2000 test set from columns of strings to labels, one thread, the same weights."""
    from ..models.inference import decode
    from .crfsuite import train_tagger
    from .work import attribute_strings

    work = load("chunking")
    tagger, _ = train_tagger(work)
    w = crfsuite_weights(work, tagger)
    found = {}

    def ours():
        corpus = work.encoder.transform(work.test, on_unknown_label="mark")
        found["ours"] = work.encoder.decode(decode(corpus, work.features, w), corpus.seq_ptr)

    def crfsuite():
        found["crfsuite"] = [tagger.tag(rows) for rows in attribute_strings(work.test, work.template)]

    with _threads_one():
        took = race({"crfsuite": crfsuite, "ours": ours}, repeats)
    same = np.mean([a == b for a, b in zip(found["ours"], found["crfsuite"], strict=True)])
    return [
        Row(
            "tagging, columns of strings to labels",
            took["ours"].median_cpu,
            took["crfsuite"].median_cpu,
            "CPU s",
            0.50,
            0.25,
            f"{len(work.test):,} sentences; {same:.2%} of them tagged identically",
        )
    ]


def end_to_end(repeats=3):
    """Columns to corpus + 50 iterations of L-BFGS, each side in its own process; peak memory."""
    from .end_to_end import in_own_process

    done = {"crfsuite": [], "ours": []}

    def run(side):
        done[side].append(in_own_process(side))
        return Clocked(done[side][-1]["cpu"], done[side][-1]["wall"])

    took = race({side: lambda side=side: run(side) for side in done}, repeats)
    memory = {side: float(np.median([r["peak_mb"] for r in runs])) for side, runs in done.items()}
    values = {side: runs[-1]["objective"] for side, runs in done.items()}
    return [
        Row(
            "columns to corpus + fit 50 iterations",
            took["ours"].median_cpu,
            took["crfsuite"].median_cpu,
            "CPU s",
            0.50,
            0.35,
            f"objective: ours {values['ours']:.2f}, CRFsuite {values['crfsuite']:.2f}",
        ),
        Row("peak memory of that process", memory["ours"], memory["crfsuite"], "MB", 1.0, 0.7),
    ]


def optimum(repeats=1):
    """The optimum on CoNLL-2000, c2 = 1: ours, CRFsuite's far past its default stop,
    and both objectives there.
    """
    from ..optim.objective import Objective
    from ..optim.quasi_newton import minimize
    from .crfsuite import train_tagger

    work = load("chunking")
    tagger, log = train_tagger(work, None, epsilon=1e-9, delta=1e-12)
    objective = Objective(work.corpus, work.features, c2=1.0, n_threads=2)
    with _threads_one():
        found = minimize(objective, np.zeros(work.features.n_features), c2=1.0, tol=1e-8)
        there, gradient_there = objective(crfsuite_weights(work, tagger))
    gap = gradient_there @ gradient_there / 4.0
    return [
        Row(
            "optimum, CoNLL-2000, c2 = 1",
            found.objective,
            log["loss"],
            "nats",
            1 + 1e-6,
            None,
            f"{found.objective:.6f} against {log['loss']:.6f} after {log['num']} iterations of CRFsuite "
            f"(epsilon 1e-9, delta 1e-12); ours {found.n_iter}, {found.status}",
        ),
        Row(
            "our objective at CRFsuite's weights",
            there,
            log["loss"],
            "nats",
            1 + 1e-9,
            None,
            f"relative difference {abs(there / log['loss'] - 1):.1e}; the optimum lies at most {gap:.1e} below",
        ),
    ]


TASKS = {
    "gradient": gradient,
    "gradient-atis": gradient_atis,
    "gradient-joint": gradient_joint,
    "viterbi": viterbi,
    "tagging": tagging,
    "end-to-end": end_to_end,
    "optimum": optimum,  # chapters 02 and 03
    "losses": losses,
    "loss-training": loss_training,  # 04
    "perceptron": perceptron,
    "boosting": boosting,  # 05
    "fast": fast,
    "sgd": sgd,
    "stochastic-passes": stochastic_passes,
    "owlqn": owlqn,
    "l1-accuracy": l1_accuracy,  # 06
    "sparse": sparse,
    "sparse-choice": sparse_choice,
    "sparse-owlqn": sparse_owlqn,
    "sparse-tagging": sparse_tagging,  # 06
    "sbcd": sbcd,  # 07 to 09
}
