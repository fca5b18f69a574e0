"""Chapter 14: tools side by side, on the same attributes, with the penalty C2 |w|_2^2, by L-BFGS.

A tool is a program of its own on one thread: c14_peers.py has those in Python, MalletChain.java MALLET's.
Candidates take turns, and again in each round: errors cover processes. Seconds are CPU seconds: of a program
from its start, where it reads a text of attributes and labels; of Python from the lists of that text.

    observed   weights of the attributes with labels, and of the label pairs, that training has
    dense      weights of all of them: Wapiti and CRF++ have no others

**Equality first**: the weights of a tool's model enter our objective on our corpus, and a weight that is none
of ours is an error.

Programs that the reader builds, and packages in another Python, are named by environment variables: `NEEDS`.
Wapiti and CRF++ are built by make; of MALLET javac compiles src/cc/mallet, of which GRMM is a part.
"""

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crfbook import Encoder
from crfbook.data.features import find

from .crfsuite import reached
from .harness import in_own_process, study
from .records import cells, each, rounded
from .work import Work, columns_of, dataset, encode

# of the corpora whose shipped template has not, as CRF++ needs, equally many attributes for each token
SPELLING = """U00:%x[-2,0]\nU01:%x[-1,0]\nU02:%x[0,0]\nU03:%x[1,0]\nU04:%x[2,0]\nU05:%x[-1,0]/%x[0,0]
U06:%x[0,0]/%x[1,0]\nU10:%lower[0,0]\nU11:%shape[0,0]\nU12:%shortshape[-1,0]\nU13:%shortshape[1,0]
U14:%m[0,0,"^.{1,2}"]\nU15:%m[0,0,"^.{1,3}"]\nU16:%m[0,0,".{1,2}$"]\nU17:%m[0,0,".{1,3}$"]
U18:%m[0,0,".{1,4}$"]\nU19:%m[-1,0,".{1,2}$"]\nU20:%m[1,0,".{1,2}$"]"""
CORPORA = {"chunking": "chunking", "names": "ner", "ewt": "ewt", "joint": "joint"}  # tasks of work.py
C2, GOALS = 1.0, (1e-2, 1e-3, 1e-4)  # the penalty; goals above the optimum, relative
LIMIT, FEW = 300, 1  # CPU seconds of a training; iterations of one for its weights alone
LAYERS, MOST_LABELS = 500, 100  # sentences of layers; labels of torch-struct, whose tables have L^3 numbers
ONCE = {"names": ("MALLET",), "joint": ("Wapiti",)}  # far from the end at LIMIT: so once
SETS = "observed", "dense"
PAD = "_"  # in place of the attributes that a token has not
HERE = Path(__file__).parent


class Ready(NamedTuple):
    """The work, the folder of its texts, the strings of attributes and labels in them, the penalty."""

    work: Work
    folder: Path
    attributes: list
    labels: list
    c2: float = C2

    def features(self, which):
        return self.work.everything if which == "dense" else self.work.features


@cache
def ready(corpus, n_sentences=None):
    """The first sentences (None: all) of a corpus and of its last held-out part, encoded and written."""
    task = CORPORA[corpus]
    template, train, parts = columns_of(task, n_sentences)
    test = list(parts.values())[-1][:n_sentences]
    work = encode(task, SPELLING if task in ("ner", "ewt") else template, train, {"test": test})
    here = Ready(work, new_folder(), written(work.encoder), [str(y) for y in work.encoder.labels_])
    if len(set(here.attributes)) < len(here.attributes) or re.search(r"\s", "".join(here.labels)):
        raise ValueError(f"{corpus}: an attribute or label cannot be written between blanks")
    unseen = Encoder(work.encoder.template)  # has the attributes that training has not
    test, known = (unseen.fit_transform(test), written(unseen), None), (work.corpus, *here[2:4])
    for name, text in {"train": known, "dev": known, "test": test, "one": test}.items():
        write(here.folder / name, *text, most=1 if name in ("dev", "one") else None)
    write_template(here.folder / "template", work.corpus)
    return here


def new_folder():
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def written(encoder):
    """The attributes as all tools can read them."""
    return [re.sub(r"\s", "_", f"u{name[1:]}") for name in encoder.attribute_names()]


def write(path, corpus, attributes, labels, most=None, width=0):
    """A token a line: "b", which means pairs of labels to Wapiti, attributes, label; then an empty line.

    width : so many attributes each token gets; PADs stand after its own.
    """
    with open(path, "w", encoding="utf-8") as file:
        for i, j in list(pairwise(corpus.seq_ptr.tolist()))[:most]:
            for t in range(i, j):
                own = corpus.attr_idx[corpus.attr_ptr[t] : corpus.attr_ptr[t + 1]].tolist()
                label = [labels[corpus.labels[t]]] if labels else []
                pads = [PAD] * (width - len(own))
                print("b", *map(attributes.__getitem__, own), *pads, *label, file=file)
            print(file=file)


def write_template(path, corpus):
    """CRF++'s: all columns between the first and the label are one bag of words; plain bigrams. The width."""
    width = int(np.diff(corpus.attr_ptr).max())
    columns = [f"U:%x[0,{i + 1}]" for i in range(width)]
    path.write_text("\n".join([*columns, "", "B", ""]), encoding="utf-8")
    return width


# ---- the weights of a model ----


def of_python(path):
    """(attributes, labels, (attribute, label, weight), (label, next, weight)) of crfbook or CRFsuite."""
    from crfbook import CRF

    is_ours = path.read_bytes()[:4] != b"lCRF"
    model = CRF.load(path) if is_ours else CRF.from_crfsuite(path)
    its, (node, edge) = model.features_, np.split(model.weights_, [model.features_.n_node])
    sides = (its.node_attr, its.node_label, node), (its.edge_prev, its.edge_next, edge)
    return model.encoder_.attribute_names(), model.classes_, *sides


def of_all(names, labels, w, pairs):
    """The same of weights name by name, each with all labels; of the name `pairs` with all pairs of them."""
    n, at = len(labels), names.index(pairs)
    span, shapes = slice(at * n, (at + n) * n), ((len(names) - 1, n), (n, n))
    node, edge = (np.indices(shape).reshape(2, -1) for shape in shapes)
    return names[:at] + names[at + 1 :], labels, (*node, np.delete(w, span)), (*edge, w[span])


def of_wapiti(path):
    """The same of Wapiti's text: lists of labels, of attributes, and number=weight where it is not 0."""
    lines = path.read_text(encoding="utf-8").splitlines()
    heads = [(i + 1, i + 1 + int(line[5:])) for i, line in enumerate(lines) if line.startswith("#qrk#")]
    labels, names = ([line.partition(":")[2][:-1] for line in lines[i:j]] for i, j in heads)
    w = np.zeros((len(names) - 1 + len(labels)) * len(labels))
    for line in lines[heads[1][1] :]:
        place, _, weight = line.partition("=")
        w[int(place)] = float.fromhex(weight)
    return of_all(names, labels, w, "b")


def of_crfpp(path):
    """The same of the text that CRF++ writes beside its model: parts between empty lines."""
    parts = Path(f"{path}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    _, labels, _, names, w = (part.split("\n") for part in parts)
    names = sorted((line.split(" ") for line in names), key=lambda pair: int(pair[0]))
    return of_all([name.removeprefix("U:") for _, name in names], labels, np.array(w, float), "B")


def of_mallet(path):
    """The same of the text beside its model: "node" or "pair", two names, weight."""
    lines = Path(f"{path}.txt").read_text(encoding="utf-8").splitlines()
    what, first, second, w = np.array([line.split(" ") for line in lines], object).T
    node, w = what == "node", w.astype(float)
    (attributes, a), (labels, y) = (np.unique(x, return_inverse=True) for x in (first[node], second))
    pair = np.searchsorted(labels, first[~node]), y[~node], w[~node]
    return attributes.tolist(), labels.tolist(), (a, y[node], w[node]), pair


def in_our_order(here, features, attributes, labels, node, edge):
    """Those weights in the order of `features` (F,); ValueError for one, not 0, that is none of ours."""

    def places(ours, theirs):
        known = {name: i for i, name in enumerate(ours)}
        return np.array([known.get(name, -1) for name in theirs])

    a, y, w = places(here.attributes, attributes), places(here.labels, labels), np.zeros(features.n_features)
    sides = (features.node_keys, a, node, w), (features.edge_keys, y, edge, w[features.n_node :])
    for keys, rows, (row, label, weight), out in sides:
        place, hit = find(keys, rows[row] * features.n_labels + y[label])
        if n := np.count_nonzero(weight[~hit]):
            raise ValueError(f"{n} weights of the model are none of ours")
        out[place[hit]] = weight[hit]
    return w


# ---- tools ----

PYTHON = ("crfbook", "python-crfsuite", "sklearn-crfsuite", "chaine"), ("pytorch-crf", "torch-struct")
NEEDS = {  # the environment variable, and what it names
    "Wapiti": ("CRFBOOK_WAPITI", "the program wapiti 1.5.0"),
    "CRF++": ("CRFBOOK_CRFPP", "the folder of crf_learn and crf_test 0.59, if that is not on PATH"),
    "MALLET": ("MALLET_CLASSPATH", "classes and lib/*.jar of MALLET 2.0.8; on PATH java and javac"),
}
ANOTHER = "CRFBOOK_PEERS_PYTHON", "a Python from 3.11 on that has it"  # of packages that this Python lacks


@cache
def program(tool):
    """Where a tool is: a path; of MALLET a class path that includes the programs here; None: nowhere."""
    named = os.environ.get(NEEDS.get(tool, ANOTHER)[0])
    if tool == "Wapiti":
        return shutil.which(named or "")
    if tool == "CRF++":
        return shutil.which("crf_learn", path=named)
    if tool == "MALLET":
        if not (named and shutil.which("java") and shutil.which("javac")):
            return None
        folder = new_folder()
        programs = HERE.glob("*.java")
        command = "javac", "-nowarn", "-cp", named, "-d", folder, *programs
        subprocess.run(command, check=True, capture_output=True)
        return f"{folder}{os.pathsep}{named}"
    has = f"from importlib.metadata import version; version({tool!r})"
    for python in filter(None, (sys.executable, named)):
        if not subprocess.run([python, "-c", has], capture_output=True).returncode:
            return python
    return None


def needs(tool):
    """What to say of a tool that is nowhere."""
    variable, what = NEEDS.get(tool, ANOTHER)
    return f"{tool}: expected in {variable} {what}"


def there(names):
    """Those that can be run; a line for each of the others."""
    for tool in names:
        if program(tool):
            yield tool
        else:
            print(f"{needs(tool)}; left out")


def python(tool, what, *more):
    return program(tool), "-P", HERE / "c14_peers.py", what, tool, *more


def mallet(*more):
    machine = "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1", "-Xmx6g", "-Dfile.encoding=UTF-8"
    return "java", *machine, "-cp", program("MALLET"), *more


def train_python(tool, here, model, which, stop):
    far = {"tol": 1e-12} if tool == "crfbook" else {"epsilon": 1e-9, "delta": 1e-12}
    params = {"own": {}, "none": far}.get(stop, {"max_iterations": stop}) | {"c1": 0.0, "c2": here.c2}
    params |= dict.fromkeys(["all_possible_states", "all_possible_transitions"], which == "dense")
    return python(tool, "train", here.folder / "train", model, json.dumps(params))


def train_wapiti(here, model, which, stop):  # it counts errors in each iteration, here of one sentence
    stops = {"own": (), "none": ("-w", 0, "-e", 0, "-d", here.folder / "dev")}.get(stop, ("-i", stop))
    penalty = "-a", "l-bfgs", "-1", 0, "-2", 2 * here.c2, "-t", 1
    return program("Wapiti"), "train", *penalty, *stops, here.folder / "train", model


def tag_wapiti(text, model, out):
    return program("Wapiti"), "label", "-l", "-m", model, text, out


def train_crfpp(here, model, which, stop):  # after -m iterations its weights are not those that it judged
    stops = "-e", {"own": 1e-4, "none": 1e-12}.get(stop, 1e9)
    texts = here.folder / "template", here.folder / "train"
    return program("CRF++"), "-c", 1 / (2 * here.c2), "-p", 1, "-t", *stops, *texts, model


def tag_crfpp(text, model, out):
    return Path(program("CRF++")).with_name("crf_test"), "-m", model, "-o", out, text


def train_mallet(here, model, which, stop):
    stops = {"own": (1e-4, 10**6), "none": (0, 10**6)}.get(stop, (1e-4, stop))
    return mallet("MalletChain", here.folder / "train", model, 1 / (2 * here.c2), *stops)


def tag_mallet(text, model, out):
    tagger = mallet("cc.mallet.fst.SimpleTagger", "--model-file", model, text)
    return "sh", "-c", 'out="$0"; exec "$@" >"$out"', out, *tagger


class Tool(NamedTuple):
    """Its commands, the weights of its model, the line of an iteration, the sets of weights that it has."""

    train: Callable  # (Ready, model, set, stop); stop: its "own", "none", or after so many iterations
    tag: Callable  # (text, model, file for the answer)
    weights: Callable
    line: str = r"(?i:loss): (\S+)"
    sets: tuple = SETS


TOOLS = {x: Tool(partial(train_python, x), partial(python, x, "tag"), of_python) for x in PYTHON[0]}
TOOLS |= {x: TOOLS[x]._replace(sets=("observed",)) for x in PYTHON[0][2:]}  # CRFsuite in other clothes
TOOLS["Wapiti"] = Tool(train_wapiti, tag_wapiti, of_wapiti, r" obj=(\S+)", ("dense",))
TOOLS["CRF++"] = Tool(train_crfpp, tag_crfpp, of_crfpp, r" obj=(\S+)", ("dense",))
TOOLS["MALLET"] = Tool(train_mallet, tag_mallet, of_mallet, r"evaluation (\S+)", ("observed",))


def seen(command, **options):
    """What `watch` saw of a command; RuntimeError where it failed, other than by the watch."""
    told = json.dumps({"command": [str(word) for word in command], **options})
    watcher = [sys.executable, "-I", "-S", str(HERE / "c14_peers.py"), "watch", told]
    found = json.loads(subprocess.run(watcher, stdout=subprocess.PIPE, check=True).stdout)
    if found["code"] not in (0, -signal.SIGKILL, -signal.SIGXCPU):
        raise RuntimeError(f"{command[0]} failed: {found['said']}")
    return found


# ---- rows ----


def optimum(corpus, features, n_sentences):
    """Our L-BFGS to a certificate: the objective, and how far at most it lies above the lowest."""
    from crfbook.chain.objective import Objective
    from crfbook.learners.quasi_newton.lbfgs import minimize

    here = ready(corpus, n_sentences)
    layout, text = here.features(features), here.work.corpus
    found = minimize(Objective(text, layout, c2=C2), np.zeros(layout.n_features), c2=C2, tol=1e-8)
    row = {"tokens": text.n_tokens, "labels": layout.n_labels, "attributes": layout.n_attrs}
    row |= {"weights": layout.n_features, "optimum": f"{found.objective:.6f}"}
    return row | {"gap": f"{found.history[-1].violation:.2g}"}


def lowest(trace):
    return min((objective for _, objective in trace), default=np.inf)


def train(corpus, n_sentences, features, tool, stop, **options):
    """(the file of its model, what was seen)."""
    here, its = ready(corpus, n_sentences), TOOLS[tool]
    model = here.folder / f"{tool} {features}{' far' * (stop == 'none')}"
    return model, seen(its.train(here, model, features, stop), line=its.line, **options)


begun = cache(partial(train, stop=FEW))  # of those that do not come to an end


def tool_row(process, features, tool, corpus, best, n_sentences, limit):
    """Training to the tool's own stop, and without stops where that is early; its weights; tagging."""
    from crfbook.chain.objective import Objective

    what, here, best = (corpus, n_sentences, features, tool), ready(corpus, n_sentences), best[features]
    model, own = train(*what, "own", limit=limit)
    trace, done, goal = own["trace"], own["code"] == 0, best * (1 + GOALS[-1])
    row = {"stop": "its own" if done else f"not finished in {limit} s", "iterations": len(trace)}
    row |= {"CPU s": trace[-1][0] if trace else own["cpu"], "MB": own["MB"]}
    row["above"] = lowest(trace) / best - 1
    early = done and lowest(trace) > goal
    far = train(*what, "none", limit=limit, goal=goal)[1]["trace"] if early else trace
    row |= {f"to {share:g}": reached(far, best * (1 + share)) for share in GOALS}  # inf: never
    row |= {"nearest": lowest(far) / best - 1, "goals of": "a run without stops" if early else "this run"}
    trace = trace if done else begun(*what)[1]["trace"]
    layout, said = here.features(features), trace[-1][1]
    w = in_our_order(here, layout, *TOOLS[tool].weights(model))
    value = Objective(here.work.corpus, layout, c2=C2)(w)[0]
    row |= {"equality after": len(trace), "it says": f"{said:.6f}", "ours": f"{value:.6f}"}
    row |= {"differs": f"{said / value - 1:.1e}", "model MB": model.stat().st_size / 1e6}
    return row | tagging(here, TOOLS[tool], model, done)


def tagging(here, its, model, done):
    """Per cent of the test text, if training came to an end; CPU seconds to an answer; sentences a second."""
    out, n = here.folder / "answer", len(here.work.words)
    spent = [seen(its.tag(here.folder / text, model, out))["cpu"] for text in ("one", "test")]
    text = out.read_text(encoding="utf-8")
    if text.startswith("{"):
        found = json.loads(text)
    else:
        labels = [[line.split()[-1] for line in block.splitlines()] for block in text.strip().split("\n\n")]
        found = {"start": spent[0], "whole": spent[1] - spent[0], "labels": labels}
    score = here.work.scores({"test": found["labels"]})["test"] if done else ""
    speeds = {f"sentences/s, {x}": n / found[x] if x in found else "" for x in ("whole", "one", "Viterbi")}
    about = {"version": found.get("version", ""), here.work.task.measure: score}
    return about | {"first answer": found["start"], **speeds}


def layer_row(process, tool, corpus, n_sentences):
    """log p of random scores, and tokens per CPU second: of it with its gradient, of Viterbi."""
    here, rng = ready(corpus, n_sentences), np.random.default_rng(0)
    ptr, n = here.work.corpus.seq_ptr[: LAYERS + 1], here.work.features.n_labels
    given = {"node": rng.normal(size=(ptr[-1], n)), "edge": rng.normal(size=(n, n)), "seq_ptr": ptr}
    scores, out = here.folder / "scores.npz", here.folder / "answer"
    np.savez(scores, **given, labels=here.work.corpus.labels[: ptr[-1]].astype(np.int64))
    peak = seen(python(tool, "layer", scores, out))["MB"]
    found = json.loads(out.read_text(encoding="utf-8"))
    speeds = {f"tokens/s, {x}": ptr[-1] / found[x] for x in ("pass", "Viterbi")}
    return {"version": found["version"], "log p": f"{found['log p']:.6f}", **speeds, "MB": peak}


FILES = "14_optimum_{}.csv", "14_layers_{}.csv", "14_tools_{}.csv"


@study(*FILES, of=tuple(CORPORA), frozen=("objective, batched", "decoding, dense"))
def tools(corpus, n_sentences=None, processes=3, limit=LIMIT, sets=SETS, names=tuple(TOOLS)):
    """The tools on one corpus: same features, same penalty, the objective first, then seconds."""
    data, options = [dataset(CORPORA[corpus])], {"corpus": corpus, "n_sentences": n_sentences}
    optima, layers, rows = (name.format(corpus) for name in FILES)
    jobs = [({"features": x}, partial(in_own_process, optimum, corpus, x, n_sentences)) for x in sets]
    found = yield optima, jobs, data
    best = {row["features"]: float(row["optimum"]) for row in found}
    few = int(found[0]["labels"]) <= MOST_LABELS
    rounds = range(1, processes + 1)
    keys = cells(process=rounds, tool=there(("crfbook", *PYTHON[1][: 1 + few])))
    yield layers, each(rounded(layer_row), keys, **options), data
    keys = cells(process=rounds, features=sets, tool=there(names))  # at the end: hours that resume
    keys = [key for key in keys if key["features"] in TOOLS[key["tool"]].sets]
    once = ONCE.get(corpus, ("CRF++", "MALLET"))
    keys = [key for key in keys if key["process"] == 1 or key["tool"] not in once]
    yield rows, each(rounded(tool_row), keys, best=best, limit=limit, **options), data
