"""Random models at random sizes of scores, up to 1e100, against enumeration in exact fractions: what a form
says is right to 1e-6, or it is refused in one sentence, by all forms alike.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.attacks import attacks, one_sentence
from helpers.corpora import random_corpus, random_model

from crfbook.chain import inference
from crfbook.data.constraints import Constraints
from crfbook.decoding import kbest

pytestmark = pytest.mark.kernels
SIZES = [10.0**n for n in (0, 3, 6, 8, 9, 10, 12, 14, 15, 16, 17, 18, 20, 30, 60, 100)]
FORMS = "numpy", "batched", "sparse", "default"


def exact_scores(corpus, features, w, constraints, i):
    """{labelling: its score, a Fraction} of sequence i, forbidden ones left out."""
    node, edge = {}, {}
    for a in range(features.n_attrs):
        for j in range(*features.node_ptr[a : a + 2]):
            node[a, int(features.node_label[j])] = Fraction(float(w[j]))
    for b in range(features.n_edge_attrs):
        for j in range(*features.edge_ptr[b : b + 2]):
            place = b, int(features.edge_prev[j]), int(features.edge_next[j])
            edge[place] = Fraction(float(w[features.n_node + j]))
    first, n = int(corpus.seq_ptr[i]), int(corpus.lengths[i])
    values = [Fraction(float(x)) for x in corpus.values]
    found = {}
    for path in itertools.product(range(features.n_labels), repeat=n):
        if constraints is not None and not (
            constraints.start[path[0]]
            and constraints.end[path[-1]]
            and all(constraints.allowed[pair] for pair in itertools.pairwise(path))
        ):
            continue
        total = Fraction(0)
        for t, y in enumerate(path):
            for j in range(*corpus.attr_ptr[first + t : first + t + 2]):
                total += node.get((int(corpus.attr_idx[j]), y), 0) * values[j]
            if t > 0:
                k = corpus.edge_class[first + t]
                for b in corpus.class_attr[slice(*corpus.class_ptr[k : k + 2])]:
                    total += edge.get((int(b), path[t - 1], y), 0)
        found[path] = total
    return found


class Exact:
    """All that enumeration says of a sequence."""

    def __init__(self, scores, n_labels):
        top = max(scores.values())
        less = {path: float(max(score - top, Fraction(-(10**300)))) for path, score in scores.items()}
        log_z = math.log(math.fsum(map(math.exp, less.values())))
        self.log_proba = {path: score - log_z for path, score in less.items()}
        n = len(next(iter(scores)))
        self.p_node, self.p_edge = np.zeros((n, n_labels)), np.zeros((n - 1, n_labels, n_labels))
        for path, log_p in self.log_proba.items():
            for t, y in enumerate(path):
                self.p_node[t, y] += math.exp(log_p)
                if t > 0:
                    self.p_edge[t - 1, path[t - 1], y] += math.exp(log_p)


def made(rng):
    """(corpus, features, w, constraints) of one try: weights of one size, or of several."""
    n_classes, n_labels = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    lengths = tuple(rng.permutation([0, 1, 2, 4])[: rng.integers(1, 4)])
    corpus = random_corpus(rng, lengths, n_labels, 5, n_classes, valued=rng.random() < 0.3)
    features, w = random_model(rng, corpus, n_labels, 5)
    size, some = rng.one_of(SIZES), rng.random(len(w)) < rng.random()
    how = rng.one_of(["all", "some", "signs", "steps", "offset"])
    if how == "offset":  # a feature that all labels have alike
        a = int(rng.integers(features.n_attrs))
        w[slice(*features.node_ptr[a : a + 2])] += size
    else:
        large = {
            "all": w * size,
            "some": w * size,
            "signs": np.sign(w) * size,
            "steps": np.round(w) * size + w,
        }
        w = np.where(some | (how == "all"), large[how], w)
    if len(corpus.attr_val) and rng.random() < 0.5:  # large values in place of large weights
        corpus = corpus._replace(attr_val=corpus.attr_val * size)
        w = w / size
    constraints = None
    if rng.random() < 0.3:
        allowed = np.eye(n_labels, dtype=bool) | (rng.random((n_labels, n_labels)) < 0.6)
        constraints = Constraints(allowed, np.arange(n_labels) != 1, np.ones(n_labels, bool))
    return corpus, features, w, constraints


def said(question):
    """What it answers, or None where it refuses in one sentence."""
    try:
        return question()
    except ValueError as error:
        assert one_sentence(error)
        return None


def close(mine, exact, what):
    np.testing.assert_allclose(mine, exact, rtol=1e-6, atol=1e-6, err_msg=what)


def compare(model, try_):
    corpus, features, w, constraints = model
    exact = [
        Exact(exact_scores(*model, i), features.n_labels) if corpus.lengths[i] else None
        for i in range(corpus.n_sequences)
    ]
    filled = [i for i, part in enumerate(exact) if part]
    forms = [form for form in FORMS if form != "default" or corpus.n_classes == 1]
    p = {form: said(lambda form=form: inference.node_marginals(*model, form=form)) for form in forms}
    assert len({found is None for found in p.values()}) == 1, f"{try_}: forms disagree whether to refuse"
    for form, found in p.items():
        if found is not None and filled:
            close(found, np.concatenate([exact[i].p_node for i in filled]), f"{try_}: {form}")
    edges = said(lambda: list(inference.iter_edge_marginals(*model)))
    for i in filled if edges is not None else ():
        close(edges[i], exact[i].p_edge, f"{try_}: pairs of sequence {i}")
    log_p = said(lambda: inference.log_proba(*model))
    best = said(lambda: kbest(*model, k=3))
    for i in filled:
        tokens = slice(*corpus.seq_ptr[i : i + 2])
        if log_p is not None:
            want = exact[i].log_proba.get(tuple(corpus.labels[tokens].tolist()), -np.inf)
            close(log_p[i], want, f"{try_}: log p of sequence {i}")
        ranked = sorted(exact[i].log_proba.values(), reverse=True)
        for rank in range(best.found[i] if best is not None else 0):
            close(best.log_proba[i, rank], ranked[rank], f"{try_}: the best of rank {rank} of sequence {i}")
            want = exact[i].log_proba[tuple(best.path[tokens, rank].tolist())]
            close(best.log_proba[i, rank], want, f"{try_}: rank {rank} of sequence {i}")
        first = int(try_.integers(corpus.lengths[i]))
        labels = tuple(try_.integers(0, features.n_labels, try_.integers(1, corpus.lengths[i] - first + 1)))
        span = said(
            lambda i=i, f=first, y=labels: inference.span_log_proba(
                corpus, features, w, [(i, f, y)], constraints
            )
        )
        inside = [v for path, v in exact[i].log_proba.items() if path[first : first + len(labels)] == labels]
        if span is not None:
            want = np.logaddexp.reduce(inside) if inside else -np.inf
            close(span[0], want, f"{try_}: span {labels} at {first} of sequence {i}")
    return p["numpy"] is None


def test_probabilities_are_right_or_refused():
    refused = [compare(made(rng), rng) for rng in attacks("scores")]
    assert 0 < sum(refused) < 0.5 * len(refused)
