"""The form without kernels: the numbers of the kernels, for problems that sizes alone declare tiny."""

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from helpers.chains import (
    overtaking_mass,
    random_chain,
    returning_mass,
    run_log,
    run_viterbi_many,
    unreachable_label,
)
from helpers.corpora import random_corpus, random_model
from helpers.problems import CASES, case, constraints_for, problem

from crfbook.chain import inference
from crfbook.chain.numpy_form import ScaledBatch, Steps, viterbi_by_steps
from crfbook.chain.objective import Objective
from crfbook.chain.packing import step_major
from crfbook.chain.sparse import choice
from crfbook.chain.viterbi import viterbi_many
from crfbook.data.corpus import take_sequences

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def wide_case(seed):
    """(corpus, features, w, constraints) of more tokens and labels than enumeration could do."""
    rng = np.random.default_rng(seed)
    n_labels, n_classes = (3, 5, 22)[seed % 3], (1, 4)[seed % 2]
    lengths = tuple(rng.integers(0, 12, 12))
    corpus = random_corpus(rng, lengths, n_labels, 7, n_classes, valued=seed % 4 == 1, weighted=seed % 3 == 1)
    features, w = random_model(rng, corpus, n_labels, 7, all_transitions=seed % 3 > 0)
    return corpus, features, w, constraints_for(corpus, n_labels) if seed % 4 == 3 else None


@pytest.mark.parametrize("seed", range(12))
def test_value_gradient_and_curvature_are_those_of_kernels(seed):
    corpus, features, w, constraints = wide_case(seed)
    forms, options = ("numpy", "batched"), {"c2": 0.3, "constraints": constraints}
    mine, theirs = (Objective(corpus, features, form=form, **options) for form in forms)
    for found, wanted in zip((*mine(w), mine.curvature(w)), (*theirs(w), theirs.curvature(w)), strict=True):
        np.testing.assert_allclose(found, wanted, **EXACT)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1.0, 50.0])
def test_marginals_paths_and_log_z_are_those_of_kernels(monkeypatch, seed, size):
    corpus, features, w, constraints = wide_case(seed)
    model = corpus, features, size * w, constraints
    found = []
    for seconds, forward, decoder in ((np.inf, "numpy", "numpy"), (0.0, "batched", "dense")):
        monkeypatch.setattr(choice, "TINY_SECONDS", seconds)
        edges = [np.ravel(p) for p in inference.iter_edge_marginals(*model)]
        sums = inference.node_marginals(*model, form=forward), inference.log_partition(*model, form=forward)
        scores = inference.sequence_scores(*model), inference.node_scores(*model[:3])
        found.append([*sums, *scores, np.concatenate(edges), inference.decode(*model, form=decoder)])
    np.testing.assert_array_equal(found[0].pop(), found[1].pop())
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, **EXACT)


def scaled_of(chain):
    steps = Steps(np.arange(len(chain.log_node) + 1), chain.edge_class, len(chain.log_edge))
    return ScaledBatch(steps, chain.log_node, chain.log_edge)


@pytest.mark.parametrize(
    "chain",
    [returning_mass(100.0, 20), overtaking_mass(), unreachable_label()]
    + [random_chain(np.random.default_rng(seed), 6, 3, 2, 1e4, 0.2) for seed in range(8)],
)
def test_no_mass_is_lost_where_scores_leave_the_range_of_float64(chain):
    scaled, wanted = scaled_of(chain), run_log(chain)
    np.testing.assert_allclose(scaled.log_z, [wanted.log_z], rtol=1e-13)
    if np.isfinite(wanted.log_z):
        for found, exact in ((scaled.p_node, wanted.p_node), (scaled.p_edge(), wanted.p_edge)):
            np.testing.assert_allclose(found, exact, rtol=0, atol=1e-10)  # of exponents of 1e5 nats
    else:
        assert not scaled.p_node.any() and not scaled.p_edge().any()


@pytest.mark.parametrize("gap", [60.0, 80.0, 90.0, 100.0, 140.0])
def test_squares_of_edge_marginals_stay_within_float64(gap):
    """A label comes back that is e^-4gap behind: of that the square was 0, of its way on infinite."""
    chain = returning_mass(gap, 4)
    scaled = scaled_of(chain)
    p_edge, weight = run_log(chain).p_edge[1:], np.full(len(chain.log_node), 2.5)
    for power in (1, 2):
        with np.errstate(over="raise", invalid="raise"):
            found = scaled.edge_sums(weight, squares=power == 2)
        np.testing.assert_allclose(found[0], 2.5 * (p_edge**power).sum(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 300.0])
@pytest.mark.filterwarnings("error")
def test_label_sets_and_attributes_that_no_weight_knows(size):
    for seed in range(4):
        corpus, features, w, constraints = problem(seed, constrained=True, valued=True, weighted=True)
        corpus = corpus._replace(
            attr_idx=np.where(corpus.attr_idx == 2, 99, corpus.attr_idx).astype(np.int32)
        )
        forms = [
            Objective(corpus, features, constraints=constraints, form=form) for form in ("numpy", "batched")
        ]
        for found, wanted in zip(*(form(size * w) for form in forms), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10 * size)
        marginals = [
            inference.node_marginals(corpus, features, size * w, constraints, form=form)
            for form in ("numpy", "batched")
        ]
        np.testing.assert_allclose(*marginals, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("error")
def test_scores_beyond_float64_are_a_sentence_and_no_warning():
    corpus, features, w = case("values")
    corpus = corpus._replace(attr_val=1e10 * corpus.attr_val)
    for call in (Objective(corpus, features, form="numpy"), lambda w: inference.decode(corpus, features, w)):
        with pytest.raises(ValueError, match="float64"):
            call(1e300 * w)


@pytest.mark.parametrize("form", ["numpy", "batched"])
def test_no_curvature_is_negative(form):
    """p (1 - p) of a p that was rounded up is -1e-16: its root would be NaN weights."""
    for seed in range(30):
        corpus, features, w, _ = wide_case(seed)
        assert Objective(corpus, features, form=form).curvature(30.0 * w).min() >= 0.0


def test_only_what_is_unsafe_is_done_again():
    """Two sequences of one batch: the marginals of the one have the bits that they have alone."""
    rng = np.random.default_rng(0)
    calm, wild = random_chain(rng, 5, 3), overtaking_mass()
    step_ptr, order = step_major(np.array([0, len(wild.log_node)]), np.array([len(wild.log_node), 5]))
    log_node = np.concatenate([wild.log_node, calm.log_node])[order]
    scaled = ScaledBatch(Steps(step_ptr, np.zeros(len(order), np.int32), 1), log_node, wild.log_edge)
    assert [len(rows) for rows, _ in scaled.again] == [len(wild.log_node)]
    np.testing.assert_allclose(scaled.log_z[0], run_log(wild).log_z, rtol=1e-13)
    alone = scaled_of(calm._replace(log_edge=wild.log_edge))
    np.testing.assert_array_equal(scaled.p_node[order >= len(wild.log_node)], alone.p_node)


@pytest.mark.parametrize("seed", range(20))
def test_viterbi_has_the_bits_of_the_kernel_and_its_ties(seed):
    rng = np.random.default_rng(seed)
    chains = [random_chain(rng, n, 4, 2, 1.0, 0.2 * (seed % 2)) for n in (5, 1, 3, 5)]
    chains = [c._replace(log_node=np.rint(c.log_node), log_edge=np.rint(chains[0].log_edge)) for c in chains]
    score, paths = run_viterbi_many(chains)
    lengths = [len(c.log_node) for c in chains]
    seq_ptr = np.concatenate([[0], np.cumsum(lengths)])
    found, mine = np.full(sum(lengths), -9, np.int32), np.full(4, np.nan)
    log_node = np.concatenate([chain.log_node for chain in chains])
    edge_class = np.concatenate([chain.edge_class for chain in chains])
    viterbi_by_steps(log_node, chains[0].log_edge, 4, edge_class, seq_ptr, found, mine)
    np.testing.assert_array_equal(mine, score)
    np.testing.assert_array_equal(found, np.concatenate(paths))
    log_node[:5] = -np.inf  # no path at all, and a sequence without tokens: as the kernel leaves them
    both = [(np.full(len(log_node), -9, np.int32), np.full(5, np.nan)) for _ in range(2)]
    seq_ptr, log_edge = np.append(seq_ptr, seq_ptr[-1]), chains[0].log_edge
    viterbi_by_steps(log_node, log_edge, 4, edge_class, seq_ptr, *both[0])
    viterbi_many(log_node, log_edge, edge_class, seq_ptr, *both[1])
    for mine, theirs in zip(*both, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", CASES)
def test_other_losses_and_threads(name):
    corpus, features, w = case(name)
    tiny = Objective(corpus, features, c2=0.2, form="numpy", n_threads=2)
    np.testing.assert_array_equal(tiny(w)[1], Objective(corpus, features, c2=0.2, form="numpy")(w)[1])
    for loss, form in product(("exp", "pointwise-log"), ("numpy", "batched")):
        value, grad = Objective(corpus, features, c2=0.2, loss=loss, form=form)(w)
        other = tiny.with_loss(loss)
        np.testing.assert_allclose(other(w)[0], value, rtol=1e-12)
        np.testing.assert_allclose(other.with_loss("log")(w)[1], tiny(w)[1], **EXACT)


def test_sizes_alone_decide():
    corpus, features, _ = case("plain")
    assert choice.is_tiny(corpus, features)
    many = take_sequences(corpus, list(range(5)) * 2000)
    assert not choice.is_tiny(many, features)
    assert not choice.is_tiny(corpus, features._replace(n_attrs=10**6))
    none = take_sequences(corpus, [])  # tables of all pairs of labels are made for it all the same
    assert choice.is_tiny(none, features) and not choice.is_tiny(none, features._replace(n_labels=5000))
    assert Objective(corpus, features)._chooser.tiny and not Objective(many, features)._chooser.tiny


TINY_RUN = """
from crfbook import CRF, load_dataset
train = load_dataset("conll2000", source="builtin", verbose=False).train[:20]
for algorithm in ("lbfgs", "auto"):
    model = CRF(algorithm=algorithm, template="chunking", max_iterations=5).fit(train)
    model.predict(train), model.predict_marginals(train), model.log_proba(train), model.score(train)
    list(model.predict_edge_marginals(train))
"""


def test_a_tiny_problem_compiles_no_kernel(tmp_path):
    environment = {**os.environ, "CRFBOOK_KERNEL_CACHE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", TINY_RUN], env=environment, check=True)
    assert [path.name for path in tmp_path.rglob("*.nbi")] == []
