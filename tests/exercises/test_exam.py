"""The numbers of the examination's key, computed."""

from fractions import Fraction
from itertools import product
from pathlib import Path

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


def test_5_best_path_and_best_labels():
    p = {("A", "B"): 0.4, ("B", "A"): 0.3, ("B", "C"): 0.3}
    marginal = [{y: sum(q for path, q in p.items() if path[t] == y) for y in "ABC"} for t in (0, 1)]
    best, labels = max(p, key=p.get), tuple(max(m, key=m.get) for m in marginal)
    right = [sum(m[y] for m, y in zip(marginal, guess, strict=True)) for guess in (best, labels)]
    assert best == ("A", "B") and labels == ("B", "B") and labels not in p
    assert right == pytest.approx([0.8, 1.0]) and said(5, "Viterbi: (A, B)", "= 0.8", "= 1.0", "(B, B)")


def test_6_the_certificate():
    assert 2**2 / (4 * 0.5) == 2 and said(6, "= 2$")


def test_7_four_losses():
    words, whole = np.array([0.9, 0.9, 0.5]), 0.4
    losses = [-np.log(whole), 1 / whole - 1, -np.log(words).sum(), (1 / words - 1).sum()]
    assert said(7, *(f"= {loss:.3f}$" for loss in losses))


def test_8_the_average():
    assert Fraction(1 + 1 + 0, 3) == Fraction(2, 3) and said(8, "mean $2/3$")


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
