"""The figures' helpers return the numbers they drew;
what was drawn is read back from the axes and compared.
"""

import subprocess
import sys
import warnings
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
from matplotlib import pyplot as plt  # noqa: E402

from crfbook import plotting  # noqa: E402

WORDS, LABELS = ["The", "old", "man", "boats", "."], ["B-NP", "I-NP", "O"]


@pytest.fixture
def ax():
    figure, ax = plt.subplots(figsize=(5, 3))
    yield ax
    figure.canvas.draw()  # a figure that cannot be rendered fails here
    plt.close(figure)


@pytest.fixture
def marginals():
    rng = np.random.default_rng(0)
    edges = rng.dirichlet(np.ones(9) * 0.5, 4).reshape(4, 3, 3)
    return np.vstack([edges[0].sum(1), edges.sum(1)]), edges


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_import_loads_no_matplotlib():
    code = "import sys, crfbook.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("draw", [
    lambda: plotting.lattice(WORDS, LABELS),
    lambda: plotting.weight_matrix(np.eye(3), LABELS),
    lambda: plotting.timing_growth([1, 2], {"a": [1, 2]}),
])  # fmt: skip
def test_without_axes_a_figure_of_its_own(draw):
    before = plt.get_fignums()
    draw()
    assert len(plt.get_fignums()) == len(before) + 1
    plt.close()


def test_lattice_draws_what_it_returns(ax, marginals):
    nodes, edges = marginals
    pruned = np.zeros((5, 3), bool)
    pruned[1, 2] = True
    drawn = plotting.lattice(WORDS, LABELS, nodes, edges, {"Viterbi": [0, 1, 1, 1, 2]}, pruned, ax=ax)
    assert drawn["nodes"][1, 2] == 0 and np.delete(drawn["nodes"], 5) == pytest.approx(np.delete(nodes, 5))
    assert not drawn["edges"][0, :, 2].any() and not drawn["edges"][1, 2].any(), (
        "no line through a pruned node"
    )
    assert drawn["edges"][2:] == pytest.approx(edges[2:])
    # Discs: area in proportion to probability, the first label on top, one column a word.
    rings, discs = ax.collections[1], ax.collections[2]
    t, y = np.nonzero(~pruned)
    assert discs.get_sizes() / rings.get_sizes()[0] == pytest.approx(nodes[t, y])
    np.testing.assert_allclose(discs.get_offsets(), np.column_stack([t, 2 - y]))
    # Lines: from [previous] to [next].
    segments, widths = ax.collections[0].get_segments(), ax.collections[0].get_linewidths()
    wide = segments[int(np.argmax(widths))]
    at, previous, following = np.unravel_index(drawn["edges"].argmax(), drawn["edges"].shape)
    np.testing.assert_allclose(wide, np.array([[at, 2 - previous], [at + 1, 2 - following]]))
    assert list(ax.lines[0].get_ydata()) == [2, 1, 1, 1, 0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == WORDS
    assert [tick.get_text() for tick in ax.get_yticklabels()] == LABELS
    legend = {text.get_text() for text in ax.get_legend().get_texts()}
    assert legend == {"Viterbi", "area: probability", "width: pair probability", "pruned"}


def test_lattice_prints_the_numbers(ax, marginals):
    plotting.lattice(WORDS, LABELS, marginals[0], numbers=True, ax=ax)
    assert [float(text) for text in texts(ax)] == pytest.approx(marginals[0].ravel(), abs=0.00501)


@pytest.mark.parametrize(("n_words", "n_labels"), [(1, 1), (1, 4), (6, 1)])
def test_lattice_of_odd_sizes(ax, n_words, n_labels):
    drawn = plotting.lattice(["w"] * n_words, list(range(n_labels)), path=[0] * n_words, ax=ax)
    assert drawn["edges"].shape == (n_words - 1, n_labels, n_labels)


def test_lattice_names_what_does_not_fit(ax, marginals):
    nodes, edges = marginals
    with pytest.raises(ValueError, match=r"nodes: expected an array of shape \(5, 3\), got \(3, 5\)"):
        plotting.lattice(WORDS, LABELS, nodes.T, ax=ax)
    with pytest.raises(ValueError, match=r"nodes\[0, 0\]: expected a number from 0 to 1, got nan"):
        plotting.lattice(WORDS, LABELS, np.full((5, 3), np.nan), ax=ax)
    with pytest.raises(ValueError, match=r"best path\[4\]: expected a label id from 0 to 2, got 3"):
        plotting.lattice(WORDS, LABELS, nodes, path=[0, 0, 0, 0, 3], ax=ax)
    with pytest.raises(ValueError, match="0 words"):
        plotting.lattice([], LABELS, ax=ax)


def test_weight_matrix_keeps_previous_by_next(ax):
    weights = np.array([[1.5, -0.25, 0.0], [-np.inf, -3.0, 12.0], [0.07, np.nan, 1.0]])
    out = plotting.weight_matrix(weights, LABELS, ax=ax)
    np.testing.assert_array_equal(out, weights)
    np.testing.assert_array_equal(
        ax.images[0].get_array().filled(np.nan), np.where(np.isinf(weights), np.nan, weights)
    )
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("previous label", "next label")
    assert ax.images[0].get_clim() == (-12, 12), "zero is the middle of the colours"
    assert [patch.get_xy() for patch in ax.patches] == [(-0.5, 0.5)], "hatched: row 1, column 0"
    assert texts(ax) == ["1.5", "-.25", "0", "-3.0", "12", ".07", "1.0"]


def test_heatmap_of_zeros_and_of_nothing_finite(ax):
    plotting.heatmap(np.zeros((2, 3)), ["a", "b"], ["x", "y", "z"], ax=ax)
    plotting.weight_matrix(np.full((2, 2), -np.inf), ["a", "b"], ax=ax)


def test_confusion_counts(ax):
    gold = [["A", "A", "A", "B"], [], ["B", "C"]]
    predicted = [["A", "B", "A", "B"], [], ["C", "C"]]
    labels, counts, shares = plotting.confusion(gold, predicted, ax=ax)
    assert labels == ["A", "B", "C"]
    np.testing.assert_array_equal(counts, [[2, 1, 0], [0, 1, 1], [0, 0, 1]])
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0], [0, 0.5, 0.5], [0, 0, 1]])
    assert ax.images[0].get_clim() == (0, 50), "colours span the errors"
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("gold label", "predicted label")


def test_confusion_keeps_the_labels_most_confused(ax):
    gold, predicted = [0] * 50 + [1] * 9 + [2] * 8 + [3], [0] * 50 + [2] * 9 + [1] * 7 + [0] + [3]
    labels, counts, shares = plotting.confusion(gold, predicted, most=2, ax=ax)
    assert labels == [1, 2]
    np.testing.assert_array_equal(counts, [[0, 9], [7, 0]])
    assert shares[1].sum() == pytest.approx(7 / 8), "shares are of all gold tokens of the label"
    assert plotting.confusion(gold, predicted, labels=[3, 0], ax=ax)[0] == [3, 0]
    with pytest.raises(ValueError, match="label 7 occurs neither"):
        plotting.confusion(gold, predicted, labels=[7], ax=ax)
    with pytest.raises(ValueError, match=r"as gold ones \(68\), got 67"):
        plotting.confusion(gold, predicted[1:], ax=ax)


def test_label_bars(ax, marginals):
    names, shares = plotting.label_bars(WORDS, LABELS, marginals[0], ax=ax)
    assert names == LABELS
    np.testing.assert_allclose(shares, marginals[0])
    heights = [[bar.get_height() for bar in bars] for bars in ax.containers]
    np.testing.assert_allclose(heights, shares.T)
    with pytest.raises(ValueError, match=r"marginals\[3\]: expected a row that adds to 1, got 0.5"):
        plotting.label_bars(WORDS, LABELS, marginals[0] * np.array([1, 1, 1, 0.5, 1])[:, None], ax=ax)


def test_label_bars_gather_the_rest(ax):
    p = np.random.default_rng(1).dirichlet(np.ones(30), 4)
    names, shares = plotting.label_bars(WORDS[:4], list(range(30)), p, most=3, ax=ax)
    assert len(names) == 4 and names[-1] == "other"
    np.testing.assert_allclose(shares.sum(1), 1)
    heaviest = np.argsort(-p.sum(0))[:3]
    assert names[:3] == [str(i) for i in heaviest]
    np.testing.assert_allclose(shares[:, :3], p[:, heaviest])


def test_learning_curve_reads_every_kind_of_history(ax):
    Step = namedtuple("Step", "iteration objective seconds")
    steps = [Step(i, 10.0 - i, 0.5 * i) for i in range(4)]
    frame = pytest.importorskip("pandas").DataFrame(steps)
    runs = {
        "steps": steps,
        "result": SimpleNamespace(history=steps),
        "fitted": SimpleNamespace(history_=frame),
        "arrays": (range(4), [10, 9, 8, 7]),
    }
    for xs, ys in plotting.learning_curve(runs, ax=ax).values():
        assert list(xs) == [0, 1, 2, 3] and list(ys) == [10, 9, 8, 7]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("iteration", "objective (nats)")
    assert list(plotting.learning_curve({"a": steps}, x="seconds", ax=ax)["a"][0]) == [0, 0.5, 1, 1.5]
    assert ax.get_xlabel() == "time (s)"


def test_learning_curve_above_the_best(ax):
    _, ys = plotting.learning_curve({"a": ([1, 2, 3], [12.0, 10.5, 10.0])}, best=10.0, ax=ax)["a"]
    assert ys[:2] == pytest.approx([2, 0.5]) and ys[2] > 0, "zero has no place on a logarithmic axis"
    assert ax.get_yscale() == "log" and "above the best" in ax.get_ylabel()


def test_timing_growth_fits_the_power(ax):
    n = np.array([1, 2, 4, 8, 16, 32])
    seconds = {
        "dense": 3e-6 * n**2.0,
        "overhead": 1e-6 * n + (n < 4),
        "holes": np.where(n == 8, np.nan, 1e-3 * n**1.5),
    }
    powers = plotting.timing_growth(n, seconds, fit_from=4, ax=ax)
    assert powers == pytest.approx({"dense": 2.0, "overhead": 1.0, "holes": 1.5})
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylabel()) == ("log", "log", "time (s)")
    with pytest.raises(ValueError, match="dense: expected at least two different sizes"):
        plotting.timing_growth(n, seconds, fit_from=20, ax=ax)
    with pytest.raises(ValueError, match="above 0"):
        plotting.timing_growth(n, {"a": 0 * n}, ax=ax)


TEXT = [["The", "old", "man", "boats", "."], ["Yes"]]
CHUNKED = [["B-NP", "I-NP", "I-NP", "B-VP", "O"], ["O"]]


def test_tagged_text_draws_what_it_returns(ax):
    sure = [np.array([1, 0.7, 0.9, 1, 1]), np.array([0.5])]
    drawn = plotting.tagged_text(TEXT, CHUNKED, sure, width=12, ax=ax)
    assert drawn == [(0, "NP", 0, 3, 0.7), (0, "VP", 3, 4, 1.0)]
    assert texts(ax) == ["The", "old", "man", "boats", ".", "NP", "VP", "Yes"]
    words = [text for text in ax.texts if text.get_text() in ("The", "man", "Yes")]
    assert [text.get_position() for text in words] == [(0, 0), (0, 1), (0, 3)], (
        "12 characters a line; a sentence begins a line"
    )
    assert len(ax.patches) == 3, "the NP stands on two lines"
    doubtful = [line for line in ax.lines if line.get_color() == plotting.style.COLOURS[1]]
    assert [line.get_xdata()[1] - line.get_xdata()[0] for line in doubtful] == pytest.approx(
        [0.7 * 3, 0.5 * 3]
    )


def test_tagged_text_draws_what_people_type(ax):
    row = ["x" * 30, "🍕", "❤\ufe0f", "cafe\u0301", "$x$", "\u200d"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a glyph that is missing, an axis that has no room
        assert plotting.tagged_text([row, []], [["O"] * 6, []], width=12, ax=ax) == []
        ax.figure.canvas.draw()
    assert texts(ax) == ["x" * 11 + "…", "▯", "❤", "café", "$x$", "▯"]
    assert not any(text.get_parse_math() for text in ax.texts)
    assert plotting.tagged_text([], [], [], ax=ax) == []


def test_a_word_fills_its_columns():
    plotting.tagged_text([["x" * 70, "short"]], [["O", "O"]])
    ax = plt.gca()
    ax.figure.canvas.draw()
    box = ax.texts[0].get_window_extent().transformed(ax.transData.inverted())
    assert (box.x0, box.x1) == pytest.approx(
        (0, 62), abs=1
    )  # glyph widths are whole pixels; shrunken axes: 20 columns off
    plt.close(ax.figure)


def test_tagged_text_reads_every_scheme(ax):
    words = [["a", "b", "c"]]
    for labels, scheme in (
        (["U_X", "B_X", "L_X"], "auto"),
        (["X-I", "X-B", "X-I"], "IOB1"),
        (["S-X", "B-X", "E-X"], "BIOES"),
    ):
        drawn = plotting.tagged_text(words, [labels], scheme=scheme, ax=ax)
        assert [chunk[1:4] for chunk in drawn] == [("X", 0, 1), ("X", 1, 3)]
    assert len(plotting.tagged_text(words, [["B-X", "I-X", "I-Y"]], scheme="BIO", strict=True, ax=ax)) == 1
    assert plotting.tagged_text(words, [["DET", "NN", "O"]], strict=True, ax=ax) == []
    with pytest.raises(ValueError, match="scheme='BIO': expected labels"):
        plotting.tagged_text(words, [["DET", "NN", "O"]], scheme="BIO", ax=ax)


def test_tagged_text_refuses(ax):
    assert plotting.tagged_text(TEXT, CHUNKED, ax=ax)[0] == (0, "NP", 0, 3, None)
    with pytest.raises(ValueError, match="sequence 1: expected 1 labels, one for each token, got 0"):
        plotting.tagged_text(TEXT, [CHUNKED[0], []], ax=ax)
    with pytest.raises(ValueError, match="got 2 and 1"):
        plotting.tagged_text(TEXT, CHUNKED[:1], ax=ax)
    with pytest.raises(ValueError, match=r"confidence\[0\]"):
        plotting.tagged_text(TEXT, CHUNKED, [[2.0] * 5, [1.0]], ax=ax)


def test_graph_draws_what_it_returns(ax):
    places = {"y_0": (0, 1), "y_1": (1, 1), "x_1": (1, 0)}
    look = dict(observed=["x_1"], marked=["y_0", ("y_0", "y_1")], texts={(0.5, 2): "two"})
    drawn = plotting.graph(
        places, [("y_0", "y_1", 0.4)], [("y_1", "x_1")], [("y_0",), ("y_0", "x_1")], ax=ax, **look
    )
    assert drawn["factors"] == {("y_0",): (0.0, 0.38), ("y_0", "x_1"): (0.5, 0.5)}
    assert texts(ax) == ["$y_0$", "$y_1$", "$x_1$", "two"] and len(ax.lines) == 2
    circles = [patch for patch in ax.patches if hasattr(patch, "get_radius")]
    assert [patch.center for patch in circles] == list(places.values())
    assert [patch.get_facecolor()[:3] != (1, 1, 1) for patch in circles] == [False, False, True]
    lines = [patch for patch in ax.patches if patch not in circles]
    assert len(lines) == 2 + 3, "a link, an arrow, and a line from a square to each variable"
    ax.figure.canvas.draw()
    ends = [line.get_path().vertices[[0, -1]] for line in lines]
    np.testing.assert_allclose(np.hypot(*(ends[0] - [(0, 1), (1, 1)]).T), 0.26, atol=0.02)
    assert ends[0][0, 1] < 1, "bent to the right"
    np.testing.assert_allclose(ends[1][0], (1, 0.74), atol=0.02, err_msg="from the edge of the circle")


def test_a_graph_of_its_own_is_vectors():
    first, again = (plotting.graph({"y": (0, 0)}, names={"y": "<&"}) for _ in range(2))
    assert first._repr_svg_().count("<svg") == 1 and first.svg == again.svg and not plt.get_fignums()
    assert repr(first) == "Graph of 1 variables, 0 lines, 0 factors"
    assert plotting.graph({}).svg and plotting.graph({"y": (0, 0)}, ax=plt.gca())._repr_svg_() is None
    plt.close()
    with pytest.raises(ValueError, match="'z' has no place; there are 'y'"):
        plotting.graph({"y": (0, 0)}, [("y", "z")])
    with pytest.raises(ValueError, match="'z' has no place"):
        plotting.graph({"y": (0, 0)}, factors=[("z",)])
    with pytest.raises(ValueError, match="place of 'y': expected two finite numbers, got"):
        plotting.graph({"y": (float("nan"), 0)})
    with pytest.raises(ValueError, match=r"place of 'y': expected an array of shape \(2,\), got \(3,\)"):
        plotting.graph({"y": (0, 0, 0)})
    with pytest.raises(ValueError, match="marked: expected a variable, a line or a factor, got 'z'"):
        plotting.graph({"y": (0, 0)}, marked=["z"])
