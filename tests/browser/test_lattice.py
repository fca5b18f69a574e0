"""The lattice in Chromium, on a page without a kernel: its JavaScript is enumeration; mouse and keyboard."""

import numpy as np
import pytest

from crfbook import brute
from crfbook.widgets import Lattice, encoded, lattice

INFER = """models => models.map(([node, edge]) => {
  const {logZ, pNode, pEdge, viterbi, posterior, bestScore, alpha, beta} = crfbookLattice.infer(node, edge);
  return {logZ, pNode, pEdge, viterbi, posterior, bestScore, alpha, beta};
})"""


def models(n=100, seed=0):
    """Small random models, asymmetric, some scores forbidden."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        T, L = rng.integers(1, 6), rng.integers(1, 5)
        node, edge = rng.normal(0, 3, (T, L)), rng.normal(0, 3, (L, L))
        if i % 2:
            node[rng.random((T, L)) < 0.15] = -np.inf
            edge[rng.random((L, L)) < 0.25] = -np.inf
        if i % 10 == 0:
            node *= 100
        yield node, edge


def held(found, node, edge):
    """JavaScript's quantities of one model against those by enumeration."""
    chain = node, edge[None], np.zeros(len(node), np.int64)
    best, paths = brute.best_paths(*chain)
    log_z = brute.log_z(*chain)
    if log_z == -np.inf:
        assert found["logZ"] == found["bestScore"] == -np.inf and not np.any(found["pNode"])
        return 0
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(found["logZ"], log_z, **close)
    np.testing.assert_allclose(found["pNode"], brute.node_marginals(*chain), **close)
    np.testing.assert_allclose(found["pEdge"], brute.edge_marginals(*chain), **close)
    np.testing.assert_allclose(found["bestScore"], best, **close)
    assert found["viterbi"] in paths.tolist()
    sums = np.array(found["alpha"]) + np.array(found["beta"])
    np.testing.assert_allclose(np.logaddexp.reduce(sums, axis=1), log_z, **close)
    p_node = np.array(found["pNode"])
    assert np.all(p_node[np.arange(len(node)), found["posterior"]] >= p_node.max(axis=1) - 1e-9)
    return 1


WORDS, LABELS = ["There", "were", "many"], ["A", "B"]
NODE = np.array([[0.0, 0.3], [0.5, 0.0], [0.0, 0.4]])
EDGE = np.array([[-np.inf, 1.0], [0.2, 0.0]])


@pytest.fixture
def shown(page, tmp_path):
    """A page with one lattice, as a static page has it."""
    path = tmp_path / "lattice.html"
    found = Lattice(lattice(WORDS, LABELS, NODE, EDGE).model)
    path.write_text(
        f'<!doctype html><html lang="en"><title>x</title><main>{found._repr_html_()}</main>', "utf-8"
    )
    page.goto(path.as_uri())
    page.locator(".crfbook-lattice svg").wait_for()
    return page


def test_javascript_is_enumeration(shown):
    tried = list(models())
    answers = shown.evaluate(INFER, [[encoded(node), encoded(edge)] for node, edge in tried])
    possible = sum(held(found, *model) for found, model in zip(answers, tried, strict=True))
    assert len(tried) == 100 and 80 <= possible < 100, "some have no labelling"


def test_a_wrong_quantity_is_seen(shown):
    node, edge = NODE, EDGE.T.copy()
    (found,) = shown.evaluate(INFER, [[encoded(NODE), encoded(EDGE)]])
    with pytest.raises(AssertionError):
        held(found, node, edge)


def log_z(page):
    return page.evaluate("document.querySelector('.crfbook-lattice').found.logZ")


def test_all_of_it_is_reached_by_keyboard(shown):
    """Tab order, arrows on the sliders, Space on the boxes and Enter on the buttons."""
    controls = shown.locator(".crfbook-lattice :is(select, input, button)")
    names = controls.evaluate_all("all => all.map(one => one.labels?.[0]?.textContent || one.textContent)")
    assert all(names) and len(names) == 12
    before = log_z(shown)
    score = shown.get_by_label("score of a label")
    score.focus()
    for _ in range(5):
        shown.keyboard.press("ArrowRight")
    node = NODE.copy()
    node[0, 0] += 0.5
    chain = node, EDGE[None], np.zeros(3, np.int64)
    assert log_z(shown) == pytest.approx(brute.log_z(*chain), abs=1e-9) and log_z(shown) != before
    shown.get_by_role("slider", name="step").focus()
    shown.keyboard.press("Home")
    assert "forward message at There" in shown.locator("[role=status]").text_content()
    forward = shown.get_by_role("button", name="Forward")
    forward.focus()
    shown.keyboard.press("Enter")
    assert "forward message at were" in shown.locator("[role=status]").text_content()
    shown.keyboard.press("Tab")
    shown.keyboard.press("Enter")  # Start again
    assert log_z(shown) == before
    boxes = shown.get_by_role("checkbox", name="forbidden")
    for label in ("0", "1"):
        shown.locator("select").nth(1).select_option(label)
        boxes.first.focus()
        shown.keyboard.press("Space")
    assert log_z(shown) == -np.inf
    assert "every labelling is forbidden" in shown.locator(".results").text_content()


def test_a_node_is_dragged(shown):
    circle = shown.locator(".crfbook-lattice circle").first
    box = circle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    shown.mouse.move(x, y)
    shown.mouse.down()
    shown.mouse.move(x, y - 40)
    shown.mouse.up()
    node = NODE.copy()
    node[0, 0] += 2
    assert log_z(shown) == pytest.approx(brute.log_z(node, EDGE[None], np.zeros(3, np.int64)), abs=1e-9)


def test_it_says_where_viterbi_and_posterior_decoding_part(shown):
    rng = np.random.default_rng(3)
    for _ in range(200):
        node, edge = rng.normal(0, 1, (3, 2)), rng.normal(0, 2, (2, 2))
        (found,) = shown.evaluate(INFER, [[encoded(node), encoded(edge)]])
        if found["viterbi"] != found["posterior"]:
            break
    shown.set_content(f"<main>{Lattice(lattice(WORDS, LABELS, node, edge).model)._repr_html_()}</main>")
    shown.locator(".crfbook-lattice svg").wait_for()
    apart = [i for i in range(3) if found["viterbi"][i] != found["posterior"][i]]
    assert "They part" in shown.locator(".results").text_content()
    assert shown.locator("tr.apart th").all_text_contents() == [WORDS[i] for i in apart]
