"""The Python side of the lattice; tests/browser/test_lattice.py holds its JavaScript against enumeration."""

import html
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from crfbook import widgets
from crfbook.widgets import decoded, encoded, lattice, source


def test_scores_survive_json_with_what_they_forbid():
    scores = np.array([[0.1, -np.inf], [1e-300, -3.0]])
    text = json.dumps(encoded(scores), allow_nan=False)
    assert text == "[[0.1, null], [1e-300, -3.0]]"
    np.testing.assert_array_equal(decoded(json.loads(text)), scores)


@pytest.mark.parametrize("kernel", [True, False])
def test_a_lattice_has_its_scores_and_a_page_without_a_kernel(kernel, monkeypatch):
    if kernel:
        pytest.importorskip("anywidget")
    else:
        monkeypatch.setattr(widgets, "_synchronised", lambda: widgets.Lattice)
    found = lattice(["a<b", '"x"'], ["N", "V&"], [[0, -np.inf], [1, 2]], np.eye(2))
    assert repr(found) == "Lattice of 2 words and 2 labels"
    page = found._repr_html_()
    (model,) = re.findall(r'data-model="([^"]*)"', page)
    assert json.loads(html.unescape(model)) == found.model
    assert found.model["node"] == [[0.0, None], [1.0, 2.0]] and source() in page
    found.model = {**found.model, "edge": [[None, 1], [2, 3]]}  # what dragging does
    np.testing.assert_array_equal(found.log_edge, [[-np.inf, 1], [2, 3]])
    np.testing.assert_array_equal(found.log_node, [[0, -np.inf], [1, 2]])
    if kernel:
        data, _ = found._repr_mimebundle_()
        assert data["text/html"] == found._repr_html_() and "application/vnd.jupyter.widget-view+json" in data


@pytest.mark.parametrize(
    "words, labels, node, edge, said",
    [
        ([], ["N"], np.zeros((0, 1)), [[0]], "at least 1"),
        (["a"], ["N", "V"], np.zeros((1, 3)), np.zeros((2, 2)), "expected log_node"),
        (["a"], ["N", "V"], np.zeros((1, 2)), np.zeros((2, 3)), "log_edge"),
        (["a"] * 31, ["N", "V"], np.zeros((31, 2)), np.zeros((2, 2)), "at most 60"),
        (["a"], ["N", "V"], [[np.nan, 0]], np.zeros((2, 2)), "nan or"),
        (["a"], ["N", "V"], np.zeros((1, 2)), [[np.inf, 0], [0, 0]], "inf"),
    ],
)
def test_what_is_no_lattice_is_refused(words, labels, node, edge, said):
    with pytest.raises(ValueError, match=said):
        lattice(words, labels, node, edge)


def test_the_script_needs_nothing_else_and_keeps_its_size():
    lines = [line for line in source().splitlines() if line.strip() and not line.strip().startswith("//")]
    assert len(lines) <= 350 and "</script" not in source()
    assert not re.search(r"\bimport\b|https?://(?!www\.w3\.org/2000/svg)|\bfetch\(|\beval\(", source())


def test_importing_widgets_does_not_load_anywidget():
    code = "import sys, crfbook.widgets; print('anywidget' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
