"""Sizes, seconds of compiling, and speeds of several commits, measured in one run.

    python -m tools.over_commits COMMIT [COMMIT ...] [--what sizes,compile,speed] [--repeats 11] [--cold 1]

Every commit is checked out in a temporary worktree, and the checkouts take turns. Each measurement is a
process of its own. The table goes to build/over_commits.csv, its picture to build/over_commits.png.
Seconds are CPU seconds. "compile" counts a whole process, and those that it starts, with an empty kernel
cache. "speed" counts one call, the median of five after a warm-up. What a commit lacks is "not there".
"""

import argparse
import ast
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from tools.chapters import ROOT

TABLE = ROOT / "build" / "over_commits.csv"
HEAD = "what", "case", "commit", "median", "least", "most", "n"

BEGIN = """import time, timeit, crfbook, numpy as np
data = crfbook.load_dataset("conll2000", source="builtin", verbose=False)
train, test = data.train, data.test
"""
SHORT = 'template="chunking", max_iterations=3'
MODELS = {"CRF": 'CRF(template="chunking")', "HMM": 'HMM(template="words")', "MEMM": f"MEMM({SHORT})"}
for _name in "perceptron pa arow sgd sag sdca boosting auto".split():
    MODELS[_name] = f'CRF("{_name}", {SHORT})'
for _name in "owlqn sgd-l1 sbcd cd".split():
    MODELS[_name] = f'CRF("{_name}", {SHORT}, c1=1.0)'
MODELS["active"] = f'CRF(inference="active", {SHORT})'
MODELS["DCRF"] = f'DCRF(dynamic.factorial("pos", "chunk"), ("pos", "chunk"), {SHORT})'.replace(
    "chunking", "words"
)
FEWER = {"cd": 20, "DCRF": 400}  # sentences of 2,000
COMPILE = {
    name: f"{BEGIN}crfbook.{model}.fit(train[: {FEWER.get(name)}]).predict(test)"
    for name, model in MODELS.items()
}
COMPILE["DCRF"] = "from crfbook import dynamic\n" + COMPILE["DCRF"]
COMPILE["warm --all"] = 'from crfbook import warm\nraise SystemExit(warm.main(["--all"]))'

CLOCKED = """{}from crfbook.chain.inference import decode
from crfbook.data.features import observed
from crfbook.learners import coordinate, online, stochastic
encoder = crfbook.Encoder("chunking")
corpus = encoder.fit_transform(train)
features = observed(corpus, encoder.n_labels, encoder.n_attrs)
w, few = 0.1 * np.random.default_rng(0).normal(size=features.n_features), {{"max_iterations": 3}}
{}
run()
print(sorted(timeit.repeat(run, timer=time.process_time, repeat=5, number=1))[2])
"""
DECODE = "run = lambda: decode(corpus, features, w)"
TAGGER = f"""try:
    from studies.work import zipf_tagger
except ImportError:
    from crfbook.studies.work import zipf_tagger
corpus, features, w = zipf_tagger(np.random.default_rng(0), 2322, 5000)
{DECODE}"""
SPEED = {
    "gradient": "objective = crfbook.Objective(corpus, features)\nrun = lambda: objective(w)",
    "Viterbi": DECODE,
    "perceptron, 3 epochs": "run = lambda: online.perceptron(corpus, features, **few)",
    "SDCA, 3 epochs": "run = lambda: stochastic.sdca(corpus, features, c2=1.0, **few)",
    "SBCD, 3 sweeps": "run = lambda: coordinate.coordinate_descent(corpus, features, c1=1.0, c2=0.1, **few)",
    "decoding, 2,322 labels": TAGGER,
}
SPEED = {name: CLOCKED.format(BEGIN, run) for name, run in SPEED.items()}


def code_lines(text):
    """How many lines of a source are code: no docstrings, comments or empty lines."""
    docs = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body and ast.get_docstring(node) is not None else None
            docs |= set(range(first.lineno, first.end_lineno + 1)) if first else set()
    lines = enumerate(text.splitlines(), 1)
    return sum(n not in docs and line.strip()[:1] not in ("", "#") for n, line in lines)


def one(text):
    return 1


STUDIES = "notebooks/studies", "crfbook/studies"  # now, and before
SIZES = {
    "crfbook, code lines": (code_lines, "crfbook"), "crfbook, files": (one, "crfbook"),
    "studies, code lines": (code_lines, *STUDIES), "studies, files": (one, *STUDIES),
}  # fmt: skip
CASES = {"sizes": SIZES, "compile": COMPILE, "speed": SPEED}


def size(checkout, count, *folders):
    """The sum of count(text) over the Python files of the first of these folders that is there, or None."""
    files = next(filter(None, ([*(checkout / folder).rglob("*.py")] for folder in folders)), [])
    return sum(count(file.read_text()) for file in files) or None


def seconds(checkout, kind, code):
    """CPU seconds of `code`, run by a process that sees this checkout alone, or None where it fails."""
    with tempfile.TemporaryDirectory() as empty:
        own = {
            "PYTHONPATH": os.pathsep.join([str(checkout), str(checkout / "notebooks")]),
            "CRFBOOK_KERNEL_CACHE": empty if kind == "compile" else f"{checkout}-kernels",
            "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        before = sum(os.times()[2:4])  # of ended processes, and of those that they started
        command, environment = [sys.executable, "-c", code], os.environ | own
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{checkout.name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return sum(os.times()[2:4]) - before if kind == "compile" else float(done.stdout.split()[-1])


def measured(checkout, kind, case):
    return size(checkout, *SIZES[case]) if kind == "sizes" else seconds(checkout, kind, CASES[kind][case])


def rows(kind, found, repeats):
    """Rows of the table, {column: value}, case after case; found: {commit: folder}."""
    for case in CASES[kind]:
        turns = [
            {commit: measured(path, kind, case) for commit, path in found.items()} for _ in range(repeats)
        ]
        for commit in found:
            some = [turn[commit] for turn in turns]
            three = ["not there"] * 3 if None in some else [statistics.median(some), min(some), max(some)]
            yield dict(zip(HEAD, (kind, case, commit, *three, repeats), strict=True))


@contextlib.contextmanager
def checkouts(commits):
    """{commit: folder}: a worktree of each, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        found = {commit: Path(folder) / f"{n}-{commit.replace('/', '-')}" for n, commit in enumerate(commits)}
        try:
            for commit, path in found.items():
                add = ["git", "worktree", "add", "--quiet", "--detach", path, commit]
                subprocess.run(add, cwd=ROOT, check=True)
            yield found
        finally:
            for path in filter(Path.exists, found.values()):
                subprocess.run(["git", "worktree", "remove", "--force", path], cwd=ROOT)


def draw(table, path):
    """A panel for each kind: a line for each case, in units of its first commit."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, table.what.nunique(), figsize=(15, 5), squeeze=False, layout="tight")
    for axis, (kind, some) in zip(axes[0], table.groupby("what", sort=False), strict=True):
        some = some[some["median"] != "not there"].astype({"median": float})
        lines = some.pivot(index="commit", columns="case", values="median").reindex(table.commit.unique())
        (lines / lines.bfill().iloc[0]).plot(ax=axis, marker="o", title=kind)
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--what", default="sizes,compile,speed", help="some of sizes,compile,speed")
    parser.add_argument("--repeats", type=int, default=11, help="of a speed")
    parser.add_argument("--cold", type=int, default=1, help="repeats of compiling, which takes minutes each")
    options, table = parser.parse_args(argv), []
    repeats = {"sizes": 1, "compile": options.cold, "speed": options.repeats}
    TABLE.parent.mkdir(exist_ok=True)
    with checkouts(options.commits) as found:
        for kind in options.what.split(","):
            for row in rows(kind, found, repeats[kind]):
                print(*row.values(), sep="\t", flush=True)
                table.append(row)
                pd.DataFrame(table).to_csv(TABLE, index=False)
    draw(pd.DataFrame(table), TABLE.with_suffix(".png"))


if __name__ == "__main__":
    sys.exit(main())
