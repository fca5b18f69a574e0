"""The study of speed of chapter 12, on the built-in twin: what it times is the same thing on both sides."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from crfbook.chain.inference import node_scores
from crfbook.dynamic import DynamicModel, decode
from crfbook.dynamic.layout import log_tables
from studies import c12 as study
from studies import work

pytestmark = [pytest.mark.kernels, pytest.mark.usefixtures("on_twins")]

SOME = 30  # sentences


@pytest.fixture
def small():
    study.problem.cache_clear()
    yield study.problem("NP", SOME)
    study.problem.cache_clear()


def kept():
    """Columns of the sentences of `small`."""
    train = work.dataset("chunking").train
    return train.take(np.random.default_rng(1).permutation(len(train))[:SOME])


def pairs_of(columns):
    """(tag, chunk label) of each token, noun phrases alone."""
    chunks = [y if y.endswith("-NP") else "O" for y in columns.labels]
    return list(zip(columns.columns["pos"], chunks, strict=True))


def names_of(whole):
    """[tags, chunk labels] in the order of their numbers, from all sentences."""
    strings = pairs_of(work.dataset("chunking").train)
    found = [
        dict(zip(whole.labels[:, k].tolist(), column, strict=True))
        for k, column in enumerate(zip(*strings, strict=True))
    ]
    assert [tuple(found[k][y] for k, y in enumerate(pair)) for pair in whole.labels.tolist()] == strings
    return [[names[y] for y in range(len(names))] for names in found]


def weights(n, seed=3):
    return np.random.default_rng(seed).normal(0.0, 0.5, n)


def loss_of_chain(node, edge, gold, w, seq_ptr):
    """Penalised loss of a chain, by logarithms: node (N, L), edge (L, L) [previous, next], gold (N,)."""
    loss = study.C2 * (w @ w)
    for a, b in zip(seq_ptr, seq_ptr[1:], strict=False):
        alpha = node[a]
        for t in range(a + 1, b):
            alpha = np.logaddexp.reduce(alpha[:, None] + edge, axis=0) + node[t]
        loss += np.logaddexp.reduce(alpha) - node[np.arange(a, b), gold[a:b]].sum()
        loss -= edge[gold[a : b - 1], gold[a + 1 : b]].sum()
    return loss


def check_slope(objective, w):
    """The gradient along a random direction, by central differences."""
    direction, h = weights(len(w), 4), 1e-5
    slope = (objective(w + h * direction)[0] - objective(w - h * direction)[0]) / (2 * h)
    assert objective(w)[1] @ direction == pytest.approx(slope, rel=1e-6)


def test_a_problem_has_the_text_of_its_sentences(small):
    names = names_of(study.problem("NP"))
    assert pairs_of(kept()) == [
        tuple(names[k][y] for k, y in enumerate(pair)) for pair in small.labels.tolist()
    ]
    assert small.layout.sizes == tuple(map(len, names))
    np.testing.assert_array_equal(small.corpus.seq_ptr, kept().seq_ptr)
    words, seen = kept().columns["word"], {}
    for word, a, b in zip(words, small.corpus.attr_ptr, small.corpus.attr_ptr[1:], strict=False):
        seen[word] = seen.get(word, set(small.corpus.attr_idx[a:b])) & set(small.corpus.attr_idx[a:b])
    assert all(seen.values()) and len(set(map(frozenset, seen.values()))) == len(seen)  # each its own
    assert study.problem("NP").corpus.n_sequences > SOME


@pytest.mark.parametrize("every", [False, True])
def test_the_chain_of_joint_labels_is_the_same_text(small, every):
    """Its loss at random weights, from pairs of strings numbered here and sums of scores written here."""
    whole = study.problem("NP")
    objective, w, n_labels = study.joint_chain(small, whole, every)
    names, occur = list(product(*names_of(whole))), set(pairs_of(work.dataset("chunking").train))
    assert len(occur) < len(names)
    names = [name for name in names if every or name in occur]
    assert objective.features.n_labels == n_labels == len(names)
    gold = np.array([names.index(pair) for pair in pairs_of(kept())])
    features, w = objective.features, weights(len(w))
    node, edge = np.zeros((small.corpus.n_tokens, n_labels)), np.zeros((n_labels, n_labels))
    for t in range(small.corpus.n_tokens):
        for a in small.corpus.attr_idx[small.corpus.attr_ptr[t] : small.corpus.attr_ptr[t + 1]]:
            own = slice(features.node_ptr[a], features.node_ptr[a + 1])
            node[t, features.node_label[own]] += w[own]
            assert gold[t] in features.node_label[own]
    edge[features.edge_prev, features.edge_next] = w[features.n_node :]
    assert objective(w)[0] == pytest.approx(
        loss_of_chain(node, edge, gold, w, small.corpus.seq_ptr), rel=1e-10
    )
    check_slope(objective, w)


def test_the_factorial_crf_is_a_chain_of_pairs(small):
    """Its loss at random weights is that of a chain whose scores are sums of those of its cliques."""
    objective, w = study.objective_of(small), weights(len(small.w))
    rows, tables = node_scores(small.corpus, small.features, w), log_tables(small.layout, small.features, w)
    of = {table.at: scores for table, scores in zip(small.layout.tables, tables, strict=True)}
    (L1, L2), n = small.layout.sizes, len(rows)
    node = rows[:, :L1, None] + of[((0, 0),)][:, None] + rows[:, None, L1 : L1 + L2] + of[((0, 1),)]
    beside = of[(0, 0), (0, 1)] if small.layout.axes == (0, 1) else of[(0, 1), (0, 0)].T
    node = (node + beside).reshape(n, L1 * L2)
    pairs = of[(0, 0), (1, 0)][:, None, :, None] + of[(0, 1), (1, 1)][None, :, None, :]
    gold = small.labels[:, 0] * L2 + small.labels[:, 1]
    expected = loss_of_chain(node, pairs.reshape(L1 * L2, -1), gold, w, small.corpus.seq_ptr)
    assert objective(w)[0] == pytest.approx(expected, rel=1e-10)
    check_slope(objective, w)


def test_the_search_that_is_timed_is_the_decoder_s(small, monkeypatch):
    small, found = small._replace(w=weights(len(small.w))), {}

    def chains_viterbi(*given):
        found["path"], found["score"] = given[3:5]
        return search(*given)

    search = study.chains_viterbi
    monkeypatch.setattr(study, "chains_viterbi", chains_viterbi)
    study.viterbi_run(small)()
    model = DynamicModel(small.layout, small.features, small.w, "elimination")
    path, score = decode(small.corpus, model)
    np.testing.assert_allclose(found["score"], score, rtol=1e-10)
    np.testing.assert_array_equal(found["path"][:, np.argsort(small.layout.axes)], path)


def test_targets_are_of_what_they_say(monkeypatch):
    """One run on few sentences; training is left out."""
    whole, raced = study.problem.__wrapped__, {}
    monkeypatch.setattr(study, "FEW", 8)
    monkeypatch.setattr(study, "problem", lambda chunks, n=SOME: whole(chunks, n))
    stopped = SimpleNamespace(status="stopped", n_iter=0, objective=0.0)
    monkeypatch.setattr(study, "minimize", lambda *_, **options: stopped)

    def race(candidates, repeats):
        """Seconds by name."""
        for name, run in candidates.items():
            raced.setdefault(name, run)
            run()
        return {name: SimpleNamespace(median_cpu=seconds[name]) for name in candidates}

    seconds = {"ours": 1.0, "flat": 2.0, "product": 4.0, "run": 1.0}
    monkeypatch.setattr(study, "race", race)
    rows = list(study.dcrf_targets(1))
    few, n_seen = whole("all", 8), len(set(map(tuple, whole("all", SOME).labels.tolist())))
    assert raced["ours"].func.features.n_features == few.features.n_features
    for name, n_labels in (("flat", n_seen), ("product", np.prod(few.layout.sizes))):
        loss = raced[name].func
        value, _ = loss(np.zeros(loss.features.n_features))
        assert value == pytest.approx(few.corpus.n_tokens * np.log(n_labels))
    assert [rows[k].ratio for k in (0, 1)] == [1 / 2, 1 / 4]
    assert rows[0].work.endswith(f"/ chain of {n_seen} labels") and len(rows) == 10
    assert rows[1].work.endswith(f"/ chain of {np.prod(few.layout.sizes)} labels")
    assert rows[3].note == f"{few.corpus.n_tokens} tokens" and rows[3].ours > 0
    assert all(row.ratio > 0 and bool(row.verdict) != row.work.endswith("Viterbi") for row in rows)


def test_growth_is_of_a_token(monkeypatch):
    monkeypatch.setattr(study, "race", lambda runs, n: {"run": SimpleNamespace(median_cpu=runs["run"]()[0])})
    monkeypatch.setattr(study, "objective_of", lambda one: lambda w: (0.08, one.corpus.n_tokens))
    row = study.growth_row((4, 3), 5, 40, 1)
    assert row["products a token"] == 3 * 12 * 7
    assert row["us a token"] == pytest.approx(1e6 * 0.08 / 40)
    assert row["products a us"] == pytest.approx(row["products a token"] / row["us a token"])
