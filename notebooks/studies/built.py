"""Programs that the reader builds: CRF++, MALLET (chapter 10, as Jeong, Lin, Lee, 2009), pgmpy (chapter 13).

Each learns from a text file in a process of its own, on one thread, under the penalty of `active_peers`:
|w|^2 times c2 for ours, 1 / (2 C) for CRF++, 1 / (2 variance) for MALLET. An evaluation is a value and
gradient with its share of L-BFGS. Start-up, reading and writing do not count:

    CRF++    a weight for every attribute and label, and for every pair of labels. It evaluates once an
             iteration. CPU seconds of a run less those of a run of one iteration, over the evaluations
             between.
    MALLET   weights of the attributes and labels seen together, and a bias, a start and an end of each
             label; a weight for every pair of labels, or ("pairs seen") for those seen, where the others
             are impossible, and cost nothing. It skips a sequence then whose first label follows no label
             anywhere. Its command for taggers has no such model: Peer.java asks the library. Median of the
             CPU seconds of the process between evaluations, after WARM, in which Java compiles.
    ours     CPU seconds of L-BFGS over its evaluations, form "auto", on the same sequences: with the
             program's weights (MALLET's biases apart), and with those of what was seen alone. Other pairs
             have the weight 0.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crfbook import Objective, minimize
from crfbook.data.features import observed
from crfbook.dynamic import check_options, factor_graph, propagate
from crfbook.dynamic.junction import junction_log_z, junction_plan

from .c10 import C2, encoded
from .crfsuite import attribute_numbers, label_numbers
from .harness import timed

PAD = "_"  # fills a row of CRF++, whose tokens have equally many columns: one more attribute, often repeated
WARM = 3  # evaluations
VARIANCE = 1.0 / (2.0 * C2)
NEEDS = {
    "CRF++": "CRF++: expected the program crf_learn on PATH; build its sources with "
    "./configure and make, and add the folder of crf_learn to PATH",
    "MALLET": "MALLET: expected java on PATH, and in MALLET_CLASSPATH the class path of MALLET 2.0.8: "
    "compile its src/cc/mallet/fst with javac, and name the folder of the classes and lib/*.jar there",
    "pgmpy": "bp_pgmpy: expected PGMPY_PYTHON, the path of a Python that has pgmpy "
    "(python -m venv, pip install pgmpy)",
}


def require(programs):
    """RuntimeError with one sentence for the first program that is not there."""
    mallet = shutil.which("java") and os.environ.get("MALLET_CLASSPATH")
    there = {"CRF++": shutil.which("crf_learn"), "MALLET": mallet}
    for program in programs:
        if program not in PROGRAMS:
            raise ValueError(f"programs: expected names among {'; '.join(PROGRAMS)}; got {program}")
        if not there[name := program.partition(",")[0]]:
            raise RuntimeError(NEEDS[name])


# ---- files ----


def rows_of(corpus):
    """Lists of columns of each sequence: attributes of a token, by number, and its label, by number."""
    pairs = zip(attribute_numbers(corpus), label_numbers(corpus), strict=True)
    return [[[*a, y] for a, y in zip(tokens, labels, strict=True)] for tokens, labels in pairs]


def write_text(path, rows, width=0):
    """Write rows of sequences, a token a line, an empty line after each sequence.

    width : PADs stand before the label of a row of fewer columns.
    """
    with open(path, "w", encoding="ascii") as file:
        for sequence in rows:
            for row in sequence:
                print(*row[:-1], *[PAD] * (width - len(row)), row[-1], file=file)
            print(file=file)


def write_template(path, width):
    """Write CRF++'s template: all columns but the label share one identifier, as a bag of words; plain
    bigrams.
    """
    lines = [f"U:%x[0,{i}]" for i in range(width - 1)]
    Path(path).write_text("\n".join([*lines, "", "B", ""]), encoding="ascii")


# ---- programs ----


def said(*command):
    """(what a program printed, its CPU seconds); RuntimeError with its last line if it fails."""
    import resource  # not on every system

    def spent():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout, spent() - before


def read_crfpp(log):
    """(weights, evaluations) of what `crf_learn` printed."""
    return int(re.search(r"Number of features: *(\d+)", log)[1]), len(re.findall(r"^iter=\d+", log, re.M))


def read_mallet(log):
    """(weights, evaluations, CPU seconds of one) of what Peer.java printed."""
    clock = [float(t) for t in re.findall(r"^evaluation (\S+) ", log, re.M)]
    if len(clock) < WARM + 2:
        raise RuntimeError(f"MALLET: expected at least {WARM + 2} evaluations, got {len(clock)}")
    seconds = np.diff(clock[WARM:])
    return int(re.search(r"^weights (\d+)", log, re.M)[1]), len(seconds), float(np.median(seconds))


def crfpp(corpus, folder, n_evaluations):
    """(weights, evaluations timed, CPU seconds of one) of CRF++."""
    rows, (text, template, model) = rows_of(corpus), (folder / name for name in ("text", "template", "model"))
    width = max(len(row) for sequence in rows for row in sequence)
    write_text(text, rows, width)
    write_template(template, width)
    options = "-p", 1, "-c", VARIANCE, "-e", 1e-12  # of the objective: no iteration changes it by less
    runs = [said("crf_learn", *options, "-m", n, template, text, model) for n in (1, 1 + n_evaluations)]
    (n_weights, first), (_, last) = (read_crfpp(log) for log, _ in runs)
    return n_weights, last - first, (runs[1][1] - runs[0][1]) / (last - first)


def mallet(corpus, folder, n_evaluations, pairs="seen"):
    """The same of MALLET, with "all" pairs of labels or those "seen"."""
    text, source = folder / "text", Path(__file__).with_name("Peer.java")
    write_text(text, rows_of(corpus))
    options = (
        "-XX:+UseSerialGC",
        "-XX:ActiveProcessorCount=1",
        "-Xmx3g",
        "-cp",
        os.environ["MALLET_CLASSPATH"],
    )
    return read_mallet(said("java", *options, source, text, VARIANCE, WARM + 1 + n_evaluations, pairs)[0])


def ours(corpus, features, n_iterations=20):
    """CPU seconds of an evaluation in our L-BFGS."""
    objective, calls = Objective(corpus, features, c2=C2), []

    def counted(w):
        calls.append(w)
        return objective(w)

    for w in (np.zeros(features.n_features), np.full(features.n_features, 1e-3)):  # compiles
        objective(w)
    limits = {"c2": C2, "tol": 0.0, "max_iterations": n_iterations}
    seconds = timed(minimize, counted, np.zeros(features.n_features), **limits)[1]
    return seconds / len(calls)


class Program(NamedTuple):
    """How a program is run, and the weights that it has beside those of what was seen.

    run : (corpus, folder, n_evaluations) -> (weights, evaluations timed, CPU seconds of one)
    """

    run: Callable
    all_states: bool
    all_transitions: bool
    n_evaluations: int  # that are timed


PROGRAMS = {
    "CRF++": Program(crfpp, True, True, 4),
    "MALLET": Program(partial(mallet, pairs="all"), False, True, 3),
    "MALLET, pairs seen": Program(mallet, False, False, 10),
}
FEWER = {"atis": 500, "simulated 120": 200, "simulated 279": 60}  # sequences, where all pairs are too slow


def built_row(corpus, program, n_train, fewer):
    """CPU seconds of an evaluation of a program, and of ours."""
    peer = PROGRAMS[program]
    n = min(fewer.get(corpus, n_train), n_train) if peer.all_transitions else n_train
    setup = encoded(corpus, n)
    seen = observed(setup.train, *setup.sizes)
    more = {"all_states": peer.all_states, "all_transitions": peer.all_transitions}
    same = observed(setup.train, *setup.sizes, **more)
    with tempfile.TemporaryDirectory() as folder:
        n_weights, n_timed, theirs = peer.run(setup.train, Path(folder), peer.n_evaluations)
    seconds = ours(setup.train, same)
    seconds_seen = ours(setup.train, seen) if peer.all_transitions else seconds
    return {
        "labels": seen.n_labels, "sequences": setup.train.n_sequences, "tokens": setup.train.n_tokens,
        "evaluations": n_timed, "weights": n_weights, "CPU s": theirs,
        "our weights": same.n_features, "ours": seconds, "ratio": theirs / seconds,
        "our weights, seen": seen.n_features, "ours, seen": seconds_seen,
        "ratio, seen": theirs / seconds_seen,
    }  # fmt: skip


# ---- log Z of small two-chain models beside pgmpy ----

# pgmpy's `BeliefPropagation` passes messages along a junction tree: it is exact, and there is no loopy one.
# The same models go through ours: elimination's general sister, the junction tree, and sweeps of loopy
# messages. Construction of trees, plans and graphs counts on both sides, reading does not.

SENTENCES = 20

PEER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from pgmpy.factors.discrete import DiscreteFactor
from pgmpy.inference import BeliefPropagation
from pgmpy.models import DiscreteMarkovNetwork
import pgmpy

found = []
for one in json.load(open(sys.argv[1])):
    cards, clock = one["cards"], time.process_time()
    model = DiscreteMarkovNetwork()
    model.add_nodes_from(range(len(cards)))
    model.add_edges_from([s for s in one["scopes"] if len(s) == 2])
    model.add_factors(*(
        DiscreteFactor(s, [cards[v] for v in s], np.exp(t)) for s, t in zip(one["scopes"], one["tables"])
    ))
    run = BeliefPropagation(model)
    run.calibrate()
    beliefs = run.get_clique_beliefs()
    log_z = float(np.log(next(iter(beliefs.values())).values.sum()))
    found.append([log_z, time.process_time() - clock])
print(json.dumps([pgmpy.__version__, found]))
"""


def models(sizes, n_steps):
    """SENTENCES random ladders: dicts of cards, scopes (single variables first) and log tables, flat."""
    rng, found = np.random.default_rng(0), []
    for _ in range(SENTENCES):
        cards = [*sizes] * n_steps
        scopes = [(v,) for v in range(2 * n_steps)] + [(2 * t, 2 * t + 1) for t in range(n_steps)]
        scopes += [(v, v + 2) for v in range(2 * n_steps - 2)]
        tables = [rng.normal(size=int(np.prod([cards[v] for v in scope]))).tolist() for scope in scopes]
        found.append({"cards": cards, "scopes": scopes, "tables": tables})
    return found


def by_tree(one):
    """log Z by our junction tree, and all marginals."""
    plan = junction_plan(one["cards"], one["scopes"])
    log_tables = np.concatenate(one["tables"])
    work = np.empty(plan.cells), np.empty((2, int(plan.message_ptr[-1])))
    return junction_log_z(plan, log_tables, np.empty_like(log_tables), *work)


def by_messages(one):
    """Bethe's log Z by sweeps."""
    pairs = [k for k, scope in enumerate(one["scopes"]) if len(scope) == 2]
    graph = factor_graph(one["cards"], [one["scopes"][k] for k in pairs])
    phi = np.full((len(one["cards"]), graph.width), -np.inf)
    for scope, table in zip(one["scopes"], one["tables"], strict=True):
        if len(scope) == 1:
            phi[scope[0], : len(table)] = table
    tables = np.concatenate([one["tables"][k] for k in pairs])
    return float(propagate(graph, phi, tables, check_options("sweep")).log_z[0])


def log_z_of(cases, run):
    """(log Z of each, CPU seconds of all), after a first model that compiles."""
    run(cases[0])
    return timed(lambda: np.array([run(one) for one in cases]))


def pgmpy_rows(sizes, n_steps):
    """CPU seconds of SENTENCES models, and the largest difference of log Z."""
    python = os.environ.get("PGMPY_PYTHON", "")
    if not shutil.which(python):
        raise ValueError(NEEDS["pgmpy"])
    cases = models(sizes, n_steps)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models.json").write_text(json.dumps(cases))
        (Path(folder) / "peer.py").write_text(PEER)
        command = [python, str(Path(folder) / "peer.py"), str(Path(folder) / "models.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    version, found = json.loads(done.stdout.splitlines()[-1])
    log_z, seconds = np.array(found).T
    program = f"pgmpy {version}, junction tree"
    rows = [{"program": program, "CPU s": seconds.sum(), "ratio": 1.0, "log Z": 0.0}]
    for name, run in (("ours, junction tree", by_tree), ("ours, loopy messages", by_messages)):
        said, took = log_z_of(cases, run)
        gap = float(np.abs(said - log_z).max())
        rows.append({"program": name, "CPU s": took, "ratio": seconds.sum() / took, "log Z": gap})
    return [{**row, "log Z": f"{row['log Z']:.2g}"} for row in rows]
