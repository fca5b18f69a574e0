"""The self-test before chapter 01: it runs unsolved, accepts right solutions, and says what others lack."""

import re

import nbformat
import pytest

from tests.contract.test_formulas import formulas
from tools import chapters as book
from tools.formulas import to_mathml

PATH = book.NOTEBOOKS / "teaching" / "prerequisites.ipynb"

RIGHT = {
    "shares": "return counts / counts.sum(axis=1, keepdims=True)",
    "pair_tables": "return before[:-1, :, None] + edge + node[1:, None, :]",
    "summed_pairs": "return np.einsum('ti,tj->ij', left, right)",
    "weight_of_three": "a, b, c = psi_node; return np.einsum('i,ij,j,jk,k->', a, psi_edge, b, psi_edge, c)",
    "log_sum": "return v.max() + np.log(np.exp(v - v.max()).sum())",
    "log_sum_axis": """
        m = v.max(axis=axis, keepdims=True)
        m = np.where(np.isfinite(m), m, 0.0)
        return m.squeeze(axis) + np.log(np.exp(v - m).sum(axis=axis))""",
    "best_previous": "return score.argmax(axis=0)",
    "path_score": "return node[np.arange(len(y)), y].sum() + edge[y[:-1], y[1:]].sum()",
    "follow": """
        path = np.full(len(back), last)
        for t in range(len(back) - 1, 0, -1):
            path[t - 1] = back[t, path[t]]
        return path""",
    "slopes": "return np.array([(f(w + e) - f(w - e)) / (2 * step) for e in step * np.eye(len(w))])",
    "verbs_in_s": "return np.array([3 / 16, 2 / 3])",
    "nouns_in_two": "return 0.3 - 0.4 * 0.5, 0.4 * 0.6 + 0.5 * 0.5 + 2 * 0.1",
}
# (name, its wrong body, what the check says of it)
WRONG = [
    ("shares", "return counts / counts.sum(axis=1)", r"entry \[0, 1\] of your result is 0.3, expected 0.75"),
    ("shares", "return counts / counts.sum(axis=0, keepdims=True)", "is 0.333333, expected 0.25"),
    ("shares", "counts /= counts.sum(axis=1, keepdims=True); return counts", "changes one of its arguments"),
    ("pair_tables", "return before[:-1, None, :] + edge + node[1:, :, None]", "expected"),
    ("pair_tables", "return before[:-1] + edge + node[1:]", r"has shape \(2, 2\), expected \(1, 2, 2\)"),
    ("summed_pairs", "return np.einsum('ti,tj->ji', left, right)", r"entry \[0, 1\] .* is 0, expected 9"),
    ("summed_pairs", "return left @ right", "stops with ValueError|expected"),
    ("weight_of_three", "return np.prod(psi_node.sum(axis=1))", "case 2 of 3: your result is 8, expected 0"),
    ("weight_of_three", RIGHT["weight_of_three"].replace("ij", "ji").replace("jk", "kj"), "46, expected 40"),
    ("log_sum", "return np.log(np.exp(v).sum())", "case 2 of 4: your result is inf, expected 1000.69"),
    ("log_sum", "return v.max() + np.log(np.exp(v).sum())", "case 2"),
    ("log_sum_axis", RIGHT["log_sum_axis"].replace("np.where(np.isfinite(m), m, 0.0)", "m"),
     "is nan, expected -inf"),
    ("log_sum_axis", "return np.log(np.exp(v).sum(axis=axis))", "case 2 of 3: .* is inf, expected 801.099"),
    ("best_previous", "return score.argmax(axis=1)", "expected"),
    ("best_previous", "return len(score) - 1 - score[::-1].argmax(axis=0)", "is 2, expected 1"),
    ("best_previous", "return score.max(axis=0)", "floats, expected whole numbers"),
    ("path_score", "return node[:, y].sum() + edge[y[:-1], y[1:]].sum()", "expected 71"),
    ("path_score", "return node[np.arange(len(y)), y].sum() + edge[y[1:], y[:-1]].sum()", "81, expected 71"),
    ("follow", "return back[np.arange(len(back)), last]", "expected"),
    ("follow", RIGHT["follow"].replace("path[t - 1] = back[t, ", "path[t - 1] = back[t - 1, "), "expected"),
    ("slopes", "return np.array([(f(w + e) - f(w)) / step for e in step * np.eye(len(w))])", "expected 6"),
    ("slopes", "return (f(w + step) - f(w - step)) / (2 * step)", r"has shape \(\), expected \(2,\)"),
    ("verbs_in_s", "return 3 / 16, 1 / 2", r"entry \[1\] of your result is 0.5, expected 0.666667"),
    ("verbs_in_s", "return 2 / 3", r"has shape \(\), expected \(2,\)"),
    ("nouns_in_two", "return 0.1, 0.49", r"entry \[1\] of your result is 0.49, expected 0.69"),
    ("nouns_in_two", "return 0.3, 0.69", "is 0.3, expected 0.1"),
]  # fmt: skip


def run(solutions):
    """What the notebook prints, as a list of lines, with these bodies of its functions."""
    space, lines = {}, []
    space["print"] = lambda *words: lines.append(" ".join(map(str, words)))
    for cell in nbformat.read(PATH, 4).cells:
        if cell.cell_type == "code":
            source = cell.source
            for name, body in solutions.items():
                if source.startswith(f"def {name}("):
                    assert "raise NotImplementedError" in source
                    source = source.replace("raise NotImplementedError", body.strip().replace("\n    ", "\n"))
            exec(source, space)
    return lines


def test_unsolved_it_runs_and_says_so():
    said = run({})
    assert said[:12] == [f"task {task}: not yet written" for task in range(1, 13)]
    assert said[-1].split(maxsplit=1) == ["together", "0 of 12 right"] and len(said) == 19


def test_right_solutions_are_right():
    said = run(RIGHT)
    assert said[:12] == [f"task {task}: right" for task in range(1, 13)]
    assert [re.search(r"(\d+) of (\d+) right", line).group(1, 2) for line in said[12:]] == [
        ("2", "2"), ("2", "2"), ("2", "2"), ("3", "3"), ("1", "1"), ("2", "2"), ("12", "12")
    ]  # fmt: skip


@pytest.mark.parametrize("name, body, said", WRONG)
def test_a_wrong_solution_is_told_what_is_wrong(name, body, said):
    task = list(RIGHT).index(name)
    lines = run({**RIGHT, name: body})
    assert re.search(said, lines[task]) and lines.pop(task).startswith(f"task {task + 1}: case ")
    assert lines[:11] == [f"task {n}: right" for n in range(1, 13) if n != task + 1]
    assert lines[-1].endswith("11 of 12 right")


@pytest.mark.parametrize("body", ["pass", "return ...", "raise NotImplementedError", "return None"])
def test_what_is_not_written_is_no_error(body):
    assert run({**RIGHT, "log_sum": body})[4] == "task 5: not yet written"


def test_every_topic_has_a_wrong_solution():
    space = {}
    for cell in nbformat.read(PATH, 4).cells[:3]:
        if cell.cell_type == "code":
            exec(cell.source, space)
    tried = {list(RIGHT).index(name) + 1 for name, *_ in WRONG}
    assert all(tried & set(tasks) for tasks in space["TOPICS"].values()) and len(RIGHT) == 12


def test_an_absent_function_is_named():
    source = "\n".join(c.source for c in nbformat.read(PATH, 4).cells[:4] if c.cell_type == "code")
    said = []
    exec(source + "\ncheck(3, 'nothing', [])", {"print": said.append})
    assert said == ["task 3: there is no function nothing: run the cell above"]


def test_it_is_stored_as_it_runs_unsolved():
    cells = [cell for cell in nbformat.read(PATH, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert all((output.output_type, output.name) == ("stream", "stdout") for output in outputs)
    assert "".join(output.text for output in outputs).splitlines() == run({})


def test_the_file_is_clean():
    nb = nbformat.read(PATH, 4)
    nbformat.validate(nb)
    assert nb.metadata["kernelspec"]["name"] == "python3" and set(nb.metadata) == {
        "kernelspec",
        "language_info",
    }
    assert all(cell.metadata in ({}, {"tags": ["hide-input"]}) for cell in nb.cells)
    code = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")
    assert re.findall(r"^\s*(?:from|import) .*", code, re.M) == ["import numpy as np"]
    assert max(map(len, code.splitlines())) <= 110
    for cell in nb.cells:
        for tex in formulas(cell.source) if cell.cell_type == "markdown" else ():
            assert "unread-formula" not in to_mathml(tex, True), tex
