"""A small assignment of three functions, built here: what the graders are tried on."""

import nbformat

NAME = "99_trial"
GIVEN = """\
import numpy as np
seed = 0
rng = np.random.default_rng(seed)
log_node = rng.normal(size=(3, 2)).round(2)
log_edge = rng.normal(size=(2, 2)).round(2)
def chain(rng, T, L):
    return rng.normal(size=(T, L)), rng.normal(size=(L, L))"""
RIGHT = {
    "score": """\
def score(path, log_node, log_edge):
    ### BEGIN SOLUTION
    t = np.arange(len(path))  # the secret of score
    return log_node[t, path].sum() + log_edge[path[:-1], path[1:]].sum()
    ### END SOLUTION""",
    "log_z": """\
def log_z(log_node, log_edge):
    ### BEGIN SOLUTION
    a = log_node[0]  # the secret of log_z
    for u in log_node[1:]:
        s = a[:, None] + log_edge
        a = u + s.max(0) + np.log(np.exp(s - s.max(0)).sum(0))
    return a.max() + np.log(np.exp(a - a.max()).sum())
    ### END SOLUTION""",
    "sums": """\
def sums(log_node):
    ### BEGIN SOLUTION
    return {"rows": log_node.sum(1), "all": (log_node.sum(), log_node.shape)}  # the secret of sums
    ### END SOLUTION""",
}
TESTS = {
    "score": """\
example(score, np.array([0, 1, 1]), log_node, log_edge)
### BEGIN HIDDEN TESTS
hidden = np.random.default_rng([seed, 1])
for T in (1, 4):
    case(score, hidden.integers(3, size=T), *chain(hidden, T, 3))
### END HIDDEN TESTS""",
    "log_z": """\
example(log_z, log_node, log_edge)
### BEGIN HIDDEN TESTS
hidden = np.random.default_rng([seed, 2])
for scale in (1, 1e3):
    node, edge = chain(hidden, 5, 3)
    case(log_z, scale * node, edge)
### END HIDDEN TESTS""",
    "sums": """\
example(sums, log_node)
### BEGIN HIDDEN TESTS
case(sums, np.array([[123456.0, -7.0]]), by=lambda found: sorted(found))
case(sums, np.array([[123456.0, -7.0]]))
### END HIDDEN TESTS""",
}
POINTS = {"score": 2, "log_z": 3, "sums": 1}
WRONG = """\
# wrong: swapped axes | score-test
def score(path, log_node, log_edge):
    t = np.arange(len(path))
    return log_node[t, path].sum() + log_edge[path[1:], path[:-1]].sum()

# wrong: no max | log_z-test
def log_z(log_node, log_edge):
    a = np.exp(log_node[0])
    for u in log_node[1:]:
        a = np.exp(u) * (a @ np.exp(log_edge))
    return np.log(a.sum())
"""


def named(name, grade=False, solution=False, locked=True, **more):
    about = {"grade": grade, "grade_id": name, "locked": locked, "schema_version": 3, "solution": solution}
    return {"nbgrader": {**about, "task": False, **more}}


def trial():
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    cells = [text("# 99. Trial"), code(GIVEN, metadata=named("given"))]
    for name, solution in RIGHT.items():
        cells += [
            text(f"## Write `{name}`"),
            code(solution, metadata=named(name, solution=True, locked=False)),
        ]
        cells.append(code(TESTS[name], metadata=named(f"{name}-test", grade=True, points=POINTS[name])))
    asked = named("why", grade=True, solution=True, locked=False, points=2)
    cells += [text("Why the largest?"), text("Because of overflow: the model answer.", metadata=asked)]
    cells.append(code("import time\nlooked = time.time()\nprint(looked)"))
    return nbformat.v4.new_notebook(cells=cells)
