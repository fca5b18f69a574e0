"""The numbers of the examination's key, computed."""

from fractions import Fraction
from itertools import product
from pathlib import Path

import nbformat
import numpy as np
import pytest

KEY = (Path(__file__).parents[2] / "notebooks" / "teaching" / "exam_key.md").read_text()
PSI_NODE, PSI_EDGE = np.array([[2, 1], [1, 3]]), np.array([[1, 2], [1, 1]])


def said(question, *texts):
    """All of `texts` stand in the answer to a question."""
    answer = " ".join(KEY.split(f"**{question}.**")[1].split("\n\n**")[0].split())
    return all(text in answer for text in texts)


def test_1_and_3_two_tokens_two_labels():
    mass = {y: PSI_NODE[0, y[0]] * PSI_EDGE[y] * PSI_NODE[1, y[1]] for y in product((0, 1), repeat=2)}
    listed = ", ".join("AB"[a] + "AB"[b] + f" {m}" for (a, b), m in mass.items())
    z = sum(mass.values())
    assert said(1, listed, f"$Z = {z}$", f"$p(A, B) = {Fraction(int(mass[0, 1]), int(z))}$")
    alpha = [PSI_NODE[0], PSI_NODE[1] * (PSI_NODE[0] @ PSI_EDGE)]
    beta = [PSI_EDGE @ PSI_NODE[1], np.ones(2, int)]
    assert [int(a @ b) for a, b in zip(alpha, beta, strict=True)] == [z, z]
    shown = [f"_{t} = ({a[0]}, {a[1]})$" for t, a in enumerate(alpha)]
    shown += [f"_{t} = ({b[0]}, {b[1]})$" for t, b in enumerate(beta)]
    assert said(3, *shown, *(f"${Fraction(int(a), int(z))}$" for a in alpha[1]))


def test_4_a_sum_of_large_exponentials():
    assert said(4, f"$1000 + \\log 2 = {np.logaddexp(1000, 1000):.4f}$")


def where(ended, psi_node, psi_edge, most=1000):
    """The token, counted from 1, from which on the sum of alpha is what `ended` says."""
    with np.errstate(over="ignore"):
        alpha = psi_node(0)
        for t in range(1, most):
            alpha = psi_node(t) * (alpha @ psi_edge)
            if ended(alpha.sum()):
                return t + 1


def test_4_without_its_maxima_a_chain_leaves_at_both_ends():
    turns = np.array([[1, 0.1], [0.1, 1]])
    large = where(np.isinf, lambda t: np.ones(3), np.ones((3, 3)))
    small = where(lambda total: total == 0, lambda t: turns[t % 2], turns)
    assert said(4, f"infinite from the {large}th token on", f"it is 0 from the {small}th token on")


def test_5_best_path_and_best_labels():
    p = {("A", "B"): 0.45, ("B", "A"): 0.3, ("B", "C"): 0.25}
    marginal = [{y: sum(q for path, q in p.items() if path[t] == y) for y in "ABC"} for t in (0, 1)]
    best, labels = max(p, key=p.get), tuple(max(m, key=m.get) for m in marginal)
    right = [sum(m[y] for m, y in zip(marginal, guess, strict=True)) for guess in (best, labels)]
    assert best == ("A", "B") and labels == ("B", "B") and labels not in p
    assert right == pytest.approx([0.9, 1.0]) and said(5, "Viterbi: (A, B)", "= 0.9", "= 1.0", "(B, B)")
    assert (marginal[0]["B"], marginal[1]["B"]) == pytest.approx((0.55, 0.45))
    assert said(5, "B first (0.55); second B (0.45)")


def test_6_the_certificate():
    assert 2**2 / (4 * 0.5) == 2 and said(6, "= 2$")


def test_7_four_losses():
    words, whole = np.array([0.9, 0.9, 0.5]), 0.4
    losses = [-np.log(whole), 1 / whole - 1, -np.log(words).sum(), (1 / words - 1).sum()]
    assert said(7, *(f"= {loss:.3f}$" for loss in losses))


def chapters_mean(updates):
    """The last weight and its mean by chapter 05's own `perceptron_numpy`, told what to correct."""
    (path,) = (Path(__file__).parents[2] / "notebooks").glob("05_*.ipynb")
    (source,) = (
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code" and cell.source.startswith("def perceptron_numpy(")
    )
    space = {
        "np": np,
        "viterbi": lambda log_node, log_edge: False,
        "counts": lambda X, y, L: np.array([X[0, 0] * y, 0]),
    }
    exec(source, space)
    w, mean = space["perceptron_numpy"]([(np.array([[d]]), True) for d in updates], 1, 1, 1)
    return w[0], mean[0]


def test_8_the_average():
    updates = (2, 0, -1)
    w = np.concatenate([[0], np.cumsum(updates)])
    assert chapters_mean(updates) == pytest.approx((w[-1], w.mean()))
    shown = ", ".join(str(one) for one in w)
    assert said(8, f"The vectors are {shown}; mean ${Fraction(int(w.sum()), len(w))}$")


@pytest.mark.parametrize("updates", [(2, 0, -1), (1, 0, 0), (1, 0, -1), (0, 1, 1, 0, 3)])
def test_8_the_mean_without_the_vectors(updates):
    """Both ways of counting that the key accepts; that of the chapter is the first."""
    w, n = np.concatenate([[0], np.cumsum(updates)]), len(updates)
    counted = w[-1] - Fraction(sum(c * d for c, d in enumerate(updates, 1)), n + 1)
    assert counted == Fraction(int(w.sum()), n + 1) and chapters_mean(updates)[1] == pytest.approx(
        float(counted)
    )
    without = w[-1] - Fraction(sum(c * d for c, d in enumerate(updates)), n)
    assert without == Fraction(int(w[1:].sum()), n)
    if updates == (2, 0, -1):
        second = sum(c * d for c, d in enumerate(updates, 1))
        assert said(8, f"- 3 \\cdot 1 = {second}$, $c = {n + 1}$", f"$1 + 1/4 = {counted}$", f"${without}$")


def test_9_the_soft_threshold():
    grid = np.linspace(-3, 3, 60001)
    least = [grid[np.argmin((grid - 1.5) ** 2 + c1 * np.abs(grid))] for c1 in (1.0, 4.0)]
    assert least == pytest.approx([1.0, 0.0], abs=1e-4) and said(9, "(b) [3] 1 and 0.")


def test_10_one_standard_error():
    errors = {4: 12.0, 2: 10.0, 1: 9.5, 0.5: 9.6}
    chosen = max(c1 for c1, error in errors.items() if error <= min(errors.values()) + 0.7)
    assert chosen == 2 and said(10, "the largest $c_1$ is 2")


def test_12_tables_of_two_chains():
    cards = {("tag", 0): 4, ("phrase", 0): 3, ("tag", 1): 4, ("phrase", 1): 3}
    links = [{("tag", t), ("phrase", t)} for t in (0, 1)] + [
        {(kind, 0), (kind, 1)} for kind in ("tag", "phrase")
    ]
    largest = []
    for order in ([("tag", 0), ("phrase", 0)], [("phrase", 0), ("tag", 0)]):
        scopes, sizes = list(links), []
        for variable in order:
            joined = set().union(*(scope for scope in scopes if variable in scope))
            sizes.append(int(np.prod([cards[one] for one in joined])))
            scopes = [scope for scope in scopes if variable not in scope] + [joined - {variable}]
        largest.append(max(sizes))
    assert largest == [48, 48] and (4 * 3) ** 2 == 144
    assert said(12, "= 48$ cells", "$12^2 = 144$")
