"""Chapter 14: two chains over a sentence, whose scores are given: our inference beside GRMM's (MALLET 2.0.8).

Scores are random, of each token's tags and chunks, of neighbours in each chain, of a token's tag and chunk
together. Sentences have the lengths of the first ones of CoNLL-2000. CPU seconds begin with the scores, end
with log Z and the marginals of all labels, or with the best labelling: graphs, plans and trees count, but for
"graph kept": GRMM again, on a graph that has its tree. Max-product along loops seldom settles on random
scores: best labellings are those of exact inference alone.

**Equality first**: log Z and best scores of all sentences are held against ours by elimination. GRMM is a
program of its own, GrmmPairs.java; MALLET_CLASSPATH names its classes, see c14_tools.py.
"""

import json
from functools import cache, partial

import numpy as np

from crfbook import dynamic, make_corpus
from crfbook.data.corpus import offsets
from crfbook.data.features import from_keys

from .c13 import engine_of
from .c14_tools import mallet, new_folder, seen, there
from .harness import in_own_process, own_peak_mb, race, study
from .records import cells, each, rounded
from .work import dataset

SIZES, SCALE = {"44 x 22": (44, 22), "44 x 3": (44, 3)}, 0.5  # the standard deviation of scores
FEW, WARM = 12, 6  # sentences; GRMM meets so many before it is timed
OURS = {f"crfbook, {name}": name for name in ("exact", "block", "random", "tree", "tree, GRMM's stop")}
GRMM = {"GRMM, junction tree": "tree", "GRMM, TRP": "TRP"}
GRMM |= {f"{tool}, logs": f"{name}, logs" for tool, name in GRMM.items()}  # as its own CRFs have scores
MOST = 1000  # trees of TRP, then it gives up


def scores(sizes, n_sentences):
    """(lengths, tables of tags, of chunks, of both, scores of each token (N, tags and chunks))."""
    rng, lengths = np.random.default_rng(0), np.diff(dataset("chunking").train.seq_ptr[: n_sentences + 1])
    a, b = SIZES[sizes]
    shapes = (a, a), (b, b), (a, b), (lengths.sum(), a + b)
    return lengths, *(rng.normal(scale=SCALE, size=shape) for shape in shapes)


def ours(lengths, tags, chunks, both, node):
    """(corpus, `DynamicModel`): each token has an attribute of its own, whose weights are its scores."""
    names = {"tag": range(len(tags)), "chunk": range(len(chunks))}
    layout, n = dynamic.lay_out_template(dynamic.factorial(*names), tuple(names), names), len(node)
    tables = {(0, 0): tags, (1, 1): chunks, (0, 1): both, (1, 0): both.T}
    chains = [tuple(chain for _, chain in table.at) for table in layout.tables]
    w = [tables.get(key, np.zeros(table.size)) for key, table in zip(chains, layout.tables, strict=True)]
    keys = np.arange(n * layout.n_cells), np.zeros(0, np.int64)
    features = dynamic.with_tables(from_keys(layout.n_cells, n, 1, *keys), layout)
    corpus = make_corpus(offsets(lengths), np.arange(n + 1), np.arange(n))
    w = np.concatenate([node.ravel(), *map(np.ravel, w)])
    return corpus, dynamic.DynamicModel(layout, features, w, "elimination")


@cache
def of_crfbook(sizes, name, n_sentences):
    """log Z and best score of each sentence, sweeps of one, those that did not settle, CPU seconds, MB."""
    corpus, model = ours(*scores(sizes, n_sentences))
    if name != "exact":
        engine, options = engine_of(name)
        model = model._replace(engine=engine, options=options)
    stats, found = np.zeros(4, np.int64), {}
    log_z = dynamic.marginals(corpus, model, stats=stats)[1].tolist()  # compiles, too
    spent = [race({"": partial(dynamic.marginals, corpus, model)}, 3)[""].median_cpu, np.nan]
    if name == "exact":
        found["best"] = dynamic.decode(corpus, model)[1].tolist()
        spent.append(race({"": partial(dynamic.decode, corpus, model)}, 3)[""].median_cpu)
    found |= {"log Z": log_z, "sweeps": stats[2] / n_sentences, "unsettled": int(stats[1])}
    return found | {"CPU s": spent, "MB": own_peak_mb()}


def of_grmm(sizes, name, n_sentences):
    """The same of GRMM."""
    (lengths, *given), here = scores(sizes, n_sentences), new_folder()
    parts = SIZES[sizes], [n_sentences], lengths, *map(np.ravel, given)
    np.concatenate(parts).astype(">f8").tofile(here / "scores")
    peak = seen(mallet("GrmmPairs", here / "scores", here / "answer", name, WARM))["MB"]
    (log_z, _, best, trees), spent = json.loads((here / "answer").read_text(encoding="utf-8"))
    found = {"best": best, "CPU s": spent} if "tree" in name else {"CPU s": spent[:2]}
    failed = sum(n >= MOST for n in trees)
    return found | {"log Z": log_z, "sweeps": sum(trees) / n_sentences, "unsettled": failed, "MB": peak}


def row(process, sizes, tool, n_sentences):
    """log Z in all, largest distances from exact inference, CPU microseconds a token."""
    right, key = of_crfbook(sizes, "exact", n_sentences), (sizes, (OURS | GRMM)[tool], n_sentences)
    found = in_own_process(of_crfbook, *key) if tool in OURS else of_grmm(*key)
    n = int(scores(sizes, n_sentences)[0].sum())
    us = [1e6 * spent / n for spent in found["CPU s"]]
    off = {x: f"{np.abs(np.subtract(found[x], right[x])).max():.1e}" for x in ("log Z", "best") if x in found}
    return {
        "tokens": n, "log Z": f"{sum(found['log Z']):.6f}", "log Z off": off["log Z"],
        "best off": off.get("best", ""), "sweeps": found["sweeps"], "unsettled": found["unsettled"],
        "us a token": us[0], "us, graph kept": us[1] if tool in GRMM else "",
        "us, decoding": us[2] if "best" in found else "", "MB": found["MB"],
    }  # fmt: skip


@study("14_chains.csv", frozen=("dynamic", "dynamic, block", "dynamic, random", "dynamic, tree"))
def chains(sizes=tuple(SIZES), n_sentences=FEW, processes=3):
    """Inference of two chains with given scores, ours beside GRMM's; ten minutes."""
    tools = [*OURS, *(name for _ in there(["MALLET"]) for name in GRMM)]
    keys = cells(process=range(1, processes + 1), sizes=sizes, tool=tools)
    keys = [key for key in keys if key["process"] == 1 or "logs" not in key["tool"]]  # slow, for context
    yield "14_chains.csv", each(rounded(row), keys, n_sentences=n_sentences), [dataset("chunking")]
