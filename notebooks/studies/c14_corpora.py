"""Chapter 14: other corpora, crfbook and CRFsuite alone; how an evaluation grows with N, L and A.

Both tools get the same lists of strings, and go from them to a model and to labels of the test part, in a
process of their own. CRFsuite's time grows with the squared number of labels: of a corpus with many of them
the first sentences are learnt from, as many as keep an evaluation within CELLS.
"""

from functools import cache, partial
from itertools import product
from statistics import median

import numpy as np

from crfbook import CRF, Objective, make_corpus
from crfbook.chain.sparse.choice import never_tiny
from crfbook.data.features import observed

from . import crfsuite
from .c10 import LETTERS, WORDS
from .c14_wild import SIDES
from .claims.judge import slope
from .harness import clocked, follow, in_own_process, quiet, race, race_processes, study, timed, with_memory
from .records import RESULTS, cells, each, read_record, rounded
from .work import TEST, Task, dataset, encode, load, load_dataset

CORPORA = {
    "Dutch names": Task("conll2002", "ned", "s3", TEST), "WNUT-17": Task("wnut17", "ner", "ner", TEST),
    "ATIS": Task("atis", "slots", "words", TEST),
    "letters": Task("nettalk", "phonemes", WORDS + LETTERS + "B\n", TEST, "accuracy"),
    "Turkish morphology": Task("ud-turkish-imst", "morph", "pos", TEST, "accuracy"),
    "supertags": Task("ud-english-ewt", "supertag", "pos", TEST, "accuracy"),
}  # fmt: skip
CELLS = 8e8  # tokens times label pairs
C2 = 1.0
GAPS = 1e-2, 1e-3, 1e-4  # relative, above the lowest objective that any of the tools reaches
PROCESSES, WARM = 3, 60  # for each row; sentences of a first training


@cache
def work_of(name, most):
    """`Work` of one of CORPORA."""
    task, labels = CORPORA[name], set()
    data = load_dataset(task.dataset, task.task)
    for n, sentence in enumerate(data.train.labels_by_sequence(), 1):
        labels.update(sentence)
        if data.train.seq_ptr[n] * len(labels) ** 2 > most:
            break
    return encode(task, task.template, data.train.head(n), {"test": data.test})


def ours(algorithm, X, y):
    """(CPU seconds and objective of each iteration, the tagging of sentences), as CRFsuite's of SIDES."""
    run = follow(CRF(algorithm, c2=C2).fit, X, y)
    return [(tick.cpu, tick.step.objective) for tick in run.ticks], run.result.predict


TOOLS = {
    "crfbook": partial(ours, "lbfgs"), "crfbook, auto": partial(ours, "auto"),
    "CRFsuite": lambda X, y: SIDES["crfsuite"](X, y, "stop", 1),
}  # fmt: skip


@never_tiny()
def one_side(tool, name, most):
    """In a process of its own: the way of a tool to its default stop, seconds of tagging, score, memory."""
    setup, learn = work_of(name, most), TOOLS[tool]
    (X, y), new = crfsuite.sentences(setup, numbers=True), crfsuite.attribute_numbers(setup.held)
    with quiet():
        learn(X[:WARM], y[:WARM])[1](X[:WARM])  # kernels
        ((path, tag), spent), added = with_memory(clocked, learn, X, y)
        labels, tagging = timed(tag, new)
    sizes = {"sentences": len(X), "tokens": setup.corpus.n_tokens, "labels": len(setup.encoder.labels_)}
    found = {"score": setup.scores({"test": labels})["test"], "tagged": setup.held.n_tokens / tagging}
    return spent | found | {"MB": added, "path": path, "sizes": sizes}


def tool_rows(corpus, repeats, most):
    """A row for each tool, medians of processes; its seconds are those of its own clock."""
    _, done = race_processes(one_side, {tool: (tool, corpus, most) for tool in TOOLS}, repeats, False)
    best, rows = min(run["path"][-1][1] for some in done.values() for run in some), []
    for tool, some in done.items():
        path, ends = some[0]["path"], [run["path"][-1][0] for run in some]
        when = {gap: [crfsuite.reached(run["path"], best * (1 + gap)) for run in some] for gap in GAPS}
        to = {f"s to {gap:g}": median(seconds) for gap, seconds in when.items()}
        rows.append({
            "tool": tool, **some[0]["sizes"], **to, "s to its stop": median(ends), "least": min(ends),
            "most": max(ends), "iterations": len(path), "objective": f"{path[-1][1]:.10g}",
            "gap there": path[-1][1] / best - 1.0, "measure": CORPORA[corpus].measure,
            "score": some[0]["score"], "MB added": median(run["MB"] for run in some),
            "tokens tagged a second": median(run["tagged"] for run in some),
        })  # fmt: skip
    return rows


@study("14_corpora.csv", frozen=("lbfgs", "auto", "objective, default"))
def other_corpora(corpora=tuple(CORPORA), processes=PROCESSES, most=CELLS):
    """Six more corpora, crfbook and CRFsuite: seconds to a gap and to the own stop, memory; an hour."""
    jobs = each(rounded(tool_rows), cells(corpus=corpora), repeats=processes, most=most)
    yield "14_corpora.csv", jobs, [load_dataset(*CORPORA[name][:2]) for name in corpora]


# ---- growth ----

SIZES = {
    "N": (500, 1000, 2000, 4000, 8000),  # sentences of CoNLL-2000
    "L": (10, 20, 40, 80, 160, 320),  # labels; 20,000 tokens of 10 attributes
    "A": (2, 4, 8, 16, 32, 64),  # attributes a token; 20,000 tokens, 20 labels
}


def grown(n_labels, n_attrs, seed, n_tokens=20_000):
    """A corpus, 20 tokens a sentence: a label has seven successors, an attribute stands with three labels."""
    rng, y = np.random.default_rng([n_labels, n_attrs, seed]), np.zeros(n_tokens, int)
    for t, step in enumerate(rng.integers(0, 7, n_tokens - 1), 1):
        y[t] = (3 * y[t - 1] + step) % n_labels
    stem = (y[:, None] + rng.integers(0, 3, (n_tokens, n_attrs))) % n_labels
    kind = np.arange(n_attrs) * n_labels * 20
    ids = np.unique(kind + 20 * stem + rng.integers(0, 20, stem.shape), return_inverse=True)[1]
    ends = np.arange(0, n_tokens + 1, 20), np.arange(0, n_tokens * n_attrs + 1, n_attrs)
    return make_corpus(*ends, ids.ravel(), labels=y)


def evaluations(axis, size, process):
    """In a process of its own: CPU us a token of an objective and its gradient, by both tools."""
    n_labels, n_attrs = (size, 10) if axis == "L" else (20, size)
    corpus = load("chunking", n_sentences=size).corpus if axis == "N" else grown(n_labels, n_attrs, process)
    features = observed(corpus, int(corpus.labels.max()) + 1, int(corpus.attr_idx.max()) + 1, 1)
    peer = crfsuite.trainer(crfsuite.attribute_numbers(corpus), crfsuite.label_numbers(corpus), c2=C2)
    with never_tiny():
        w = np.random.default_rng(0).normal(scale=0.1, size=features.n_features)
        mine = race({"ours": partial(Objective(corpus, features, c2=C2), w)}, 5)["ours"].median_cpu
    us, theirs = 1e6 / corpus.n_tokens, crfsuite.seconds_per_evaluation(peer)
    return {"tokens": corpus.n_tokens, "crfbook": us * mine, "CRFsuite": us * theirs}


def exponent_rows(rows):
    """The power with which time grows, and half of its 95 % interval, by regression: over all sizes, and over
    the larger half. Each size of 14_growth.csv has processes of its own; the older records have one.
    """
    series = {}
    for row, tool in product(rows, ("crfbook", "CRFsuite")):
        point = float(row["size"]), float(row[tool]) * (float(row["tokens"]) if row["axis"] == "N" else 1.0)
        series.setdefault(("14_growth", row["axis"], f"evaluation, {tool}"), []).append(point)
    for name, what in (("10_growth", "form"), ("11_growth", "decoder")):
        for row in read_record(RESULTS / f"{name}.csv")[1]:
            points = series.setdefault((name, "L", row[what]), [])
            points.append((float(row["labels"]), float(row["us a token"])))
    found = []
    for (record, axis, what), points in series.items():
        for least in (0.0, median(x for x, _ in points)):
            used = [(x, y) for x, y in points if x >= least and y > 0.0]  # CRFsuite's clock has milliseconds
            power, about = slope(*np.transpose(used)), {"from": min(used)[0], "to": max(used)[0]}
            about |= {"points": len(used), "exponent": power.value, "error": power.error}
            found.append({"record": record, "axis": axis, "what": what, **about})
    return found


@study("14_growth.csv", "14_exponents.csv", frozen=("objective, batched", "objective, default"))
def evaluation_growth(sizes=SIZES, processes=PROCESSES):
    """An evaluation against sentences, labels and attributes a token, with exponents; ten minutes."""
    keys = [{"process": n, "axis": a, "size": s} for n in range(processes) for a in sizes for s in sizes[a]]
    jobs = each(rounded(partial(in_own_process, evaluations)), keys)
    rows = yield "14_growth.csv", jobs, [dataset("chunking")]
    yield "14_exponents.csv", [({}, partial(rounded(exponent_rows), rows=rows))], []
