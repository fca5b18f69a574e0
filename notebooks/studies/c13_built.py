"""Chapter 13: log Z of small two-chain models beside pgmpy, in a Python that the reader has made.

pgmpy's `BeliefPropagation` passes messages along a junction tree, so it is exact; loopy belief propagation it
has none. The same models go through ours: elimination's general sister, the junction tree, and sweeps of
loopy messages. Construction of trees, plans and graphs counts on both sides, reading does not.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from crfbook.dynamic import check_options, factor_graph, propagate
from crfbook.dynamic.junction import junction_plan
from crfbook.dynamic.messages import junction_log_z

from .c11 import jobs_of
from .harness import study, timed

NEEDS = (
    "bp_pgmpy: expected PGMPY_PYTHON, the path of a Python that has pgmpy (python -m venv, pip install pgmpy)"
)
SENTENCES = 20
SIZES = ((5, 4), 6), ((9, 9), 6), ((9, 9), 10)  # labels of the chains, tokens

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


def ours(cases, run):
    """(log Z of each, CPU seconds of all), after a first model that compiles."""
    run(cases[0])
    return timed(lambda: np.array([run(one) for one in cases]))


def pgmpy_rows(sizes, n_steps):
    """CPU seconds of SENTENCES models, and the largest difference of log Z."""
    python = os.environ.get("PGMPY_PYTHON", "")
    if not shutil.which(python):
        raise ValueError(NEEDS)
    cases = models(sizes, n_steps)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models.json").write_text(json.dumps(cases))
        (Path(folder) / "peer.py").write_text(PEER)
        command = [python, str(Path(folder) / "peer.py"), str(Path(folder) / "models.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    version, found = json.loads(done.stdout.splitlines()[-1])
    log_z, seconds = np.array(found).T
    rows = [
        {"program": f"pgmpy {version}, junction tree", "CPU s": seconds.sum(), "ratio": 1.0, "log Z": 0.0}
    ]
    for name, run in (("ours, junction tree", by_tree), ("ours, loopy messages", by_messages)):
        said, took = ours(cases, run)
        gap = float(np.abs(said - log_z).max())
        rows.append({"program": name, "CPU s": took, "ratio": seconds.sum() / took, "log Z": gap})
    return [{**row, "log Z": f"{row['log Z']:.2g}"} for row in rows]


@study("13_built.csv", frozen=("dynamic, memory", "dynamic, messages"))
def bp_pgmpy():
    """Exact log Z of small two-chain models beside pgmpy's; its Python is the reader's, see NEEDS."""
    named = {f"{' x '.join(map(str, sizes))}, {n} tokens": (sizes, n) for sizes, n in SIZES}

    def make(models):
        return pgmpy_rows(*named[models])

    yield "13_built.csv", jobs_of(make, ("models",), [(name,) for name in named]), []
