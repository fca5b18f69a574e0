"""Chain blocks: exact without loops, the fixed point of plain belief propagation with them, gradients of what
they maximise, hard rules, scores that do not fit into scaled tables.
"""

from typing import ClassVar

import numpy as np
import pytest
from helpers.corpora import random_corpus
from helpers.dynamic import DynamicProblem, dynamic_problem, factors_of
from helpers.factors import enumerate_factors, loopy_beliefs

import crfbook.dynamic.blocks as blocks_module
from crfbook.chain.batch import Batch, make_work
from crfbook.chain.forms import Problem
from crfbook.chain.inference import stretch_scores
from crfbook.chain.packing import pack
from crfbook.dynamic.blocks import ChainBlocks, block_chains
from crfbook.dynamic.inference import DynamicModel, ready_rows
from crfbook.dynamic.layout import dynamic_features, known_sets, lay_out_template
from crfbook.dynamic.objective import Lattice, plain
from crfbook.dynamic.templates import Clique, factorial, linear, memory

pytestmark = pytest.mark.kernels
SKIP = [*linear("a"), Clique(((0, "a"), (2, "a")))]  # its last table joins given tokens
LOOPY = ("two chains", "large first", "skew", "skew back", "three chains", "three, skew", "both skews")
TEXT = (
    [*linear("a", "b"), Clique(((0, "a"), (0, "b")), "all"), Clique(((1, "a"), (0, "b")))],
    (3, 2),
)


class Blocky(Lattice):
    """log Z of chain blocks summed over a corpus, with its gradient."""

    _forms: ClassVar = {"batched": ChainBlocks}

    def __init__(self, problem, n_threads=1, sets=None, which=None, **options):
        corpus, layout = plain(problem.corpus), problem.layout
        sets = np.zeros((0, layout.n_cells), bool) if sets is None else sets
        corpus = corpus if which is None else corpus._replace(label_set=which)
        counts = np.zeros(problem.features.n_features)
        super().__init__(corpus, problem.features, layout, counts, sets, n_threads, 1, "elimination")
        self._options = {**self._options, **options}

    @property
    def stats(self):
        return self._made["batched"][0].stats.sum(axis=0).tolist()


def problem_of(cliques, sizes, seed=0, lengths=(3, 1, 2, 4, 0, 1), size=0.7):
    rng = np.random.default_rng(seed)
    names = {chain: list(range(n)) for chain, n in zip("abc", sizes, strict=False)}
    layout = lay_out_template(cliques, tuple(names), names)
    corpus = random_corpus(rng, lengths, 2, 5, weighted=True)
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    features = dynamic_features(layout, corpus, labels, 5)
    return DynamicProblem(corpus, labels, layout, features, rng.normal(0.0, size, features.n_features))


def run(problem, known=None, rows=16, **options):
    """(p (N, n_cells), log Z (S,), counts of tables, statistics), sequences weighing 1."""
    corpus, layout = problem.corpus, problem.layout
    ready = ready_rows(corpus, DynamicModel(layout, problem.features, problem.w, "elimination"), known)
    scores = stretch_scores(
        ready.corpus, ready.scores, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    )
    packing = pack(ready.corpus, rows, n_shards=1)
    none = np.zeros((0, layout.n_cells), bool)
    form = ChainBlocks(Problem(problem.features, None, None, packing, None), layout, none, 1, **options)
    form.prepare(problem.w, "counts")
    work, sums = form.work(make_work(packing, scores.shape[1])), form.begin()
    p, log_z = np.zeros((corpus.n_tokens, layout.n_cells)), np.zeros(corpus.n_sequences)
    part = np.zeros(layout.n_tables)
    for b in range(packing.n_batches):
        batch, token = Batch(b, packing, work), packing.row_token[packing.rows(b)]
        found = np.full(len(batch.weight), np.inf)
        batch.p_node[:] = np.nan
        batch.log_node[:] = scores[token]
        if form.batch_sums(batch, work, found, sums):
            batch.log_node[:] = scores[token]
        for r in np.flatnonzero(np.isnan(found)):
            form.redo(batch, r, found, part)
        log_z[packing.sequence[batch.slots]] = found
        p[token] = batch.p_node[:, : layout.n_cells]
    form.finish(sums, part)
    return p, log_z, part, form.stats.sum(axis=0).tolist()


def described(problem, found_of, known=None, links=None):
    """What `run` finds, from `found_of(cards, scopes, log_tables)`: log Z and p_tables of a sequence."""
    corpus, layout = problem.corpus, problem.layout
    p, log_z = np.zeros((corpus.n_tokens, layout.n_cells)), np.zeros(corpus.n_sequences)
    part, m = np.zeros(layout.n_tables), len(layout.sizes)
    for i in np.flatnonzero(corpus.lengths):
        cards, scopes, tables, where = factors_of(problem, i, links=links)
        if known is not None:
            held = known[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]].reshape(-1)
            for v in np.flatnonzero(held >= 0):
                tables[v][np.arange(cards[v]) != held[v]] = -np.inf
        found = found_of(cards, scopes, np.concatenate(tables))
        log_z[i], start = found.log_z, 0
        for number, (scores, (table, t)) in enumerate(zip(tables, where, strict=True)):
            q, start = found.p_tables[start : start + len(scores)], start + len(scores)
            if table is None:
                first = layout.first[number % m]
                p[corpus.seq_ptr[i] + t, first : first + len(q)] = q
                continue
            if table.row >= 0:
                p[corpus.seq_ptr[i] + t, table.row : table.row + len(q)] = q
            if table.start >= 0:
                part[table.start : table.start + len(q)] += q
    return p, log_z, part


def assert_same(found, wanted, atol):
    p, log_z, part, stats = found
    np.testing.assert_allclose(p, wanted[0], rtol=0.0, atol=atol)
    np.testing.assert_allclose(log_z, wanted[1], rtol=1e-12, atol=atol)
    np.testing.assert_allclose(part, wanted[2], rtol=0.0, atol=10.0 * atol)
    assert stats[1] == 0


def some_links(problem, table=-1, seed=3):
    """Links of half of the pairs of tokens of each sequence."""
    corpus, rng = problem.corpus, np.random.default_rng(seed)
    pairs = [
        (s, t)
        for lo, hi in zip(corpus.seq_ptr, corpus.seq_ptr[1:], strict=False)
        for s in range(lo, hi)
        for t in range(s + 1, hi)
        if rng.random() < 0.5
    ]
    number = len(problem.layout.tables) + table
    return {number: np.array(pairs, np.int64)}


@pytest.fixture
def in_logs(monkeypatch):
    """Every sequence is done again in logarithms."""

    def flag_all(*given):
        given[6][:], given[7][:] = np.nan, 0.0
        return len(given[6])

    def switch():
        monkeypatch.setattr(blocks_module, "sweep_blocks", flag_all)

    return switch


@pytest.fixture(params=["scaled", "logs"])
def both(request, in_logs):
    if request.param == "logs":
        in_logs()


EXACT = {
    "one chain": (linear("a"), (3,), {}),
    "independent": (linear("a", "b"), (3, 2), {}),
    "no transitions": ([*linear("b"), Clique(((0, "a"),), "all")], (3, 2), {}),
    "one link": ([*linear("a", "b"), Clique(((0, "a"), (0, "b")))], (3, 2), {4: [[2, 1], [6, 6]]}),
    "a tree of links": (
        [Clique(((0, "a"),), "all"), *linear("b"), Clique(((0, "a"), (0, "b")))], (3, 2), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_without_loops(name, schedule, both):
    cliques, sizes, links = EXACT[name]
    problem = problem_of(cliques, sizes)
    if schedule == "mean-field" and len(problem.layout.tables) > 4 - (name == "a tree of links"):
        pytest.skip("a link is no mean field")
    found = run(problem, schedule=schedule, tol=1e-13, links=links)
    assert_same(found, described(problem, enumerate_factors, links=links), 1e-12)


@pytest.mark.parametrize("name", LOOPY)
def test_exact_where_there_is_one_token_or_no_coupling(name, both):
    problem = dynamic_problem(name, lengths=(1, 0, 1, 1))
    assert_same(run(problem, tol=1e-13), described(problem, enumerate_factors), 1e-12)
    problem = dynamic_problem(name)
    for table in problem.layout.tables:
        if len({chain for _, chain in table.at}) == 2:
            start = problem.features.n_node + table.start
            problem.w[start : start + table.size] = 0.0
    assert_same(run(problem, tol=1e-13), described(problem, enumerate_factors), 1e-12)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("name", LOOPY)
def test_the_fixed_point_of_plain_belief_propagation(name, constrained, both):
    problem = dynamic_problem(name, size=0.7, constrained=constrained)
    found = run(problem, tol=1e-13, rows=5)
    assert_same(found, described(problem, loopy_beliefs), 1e-9)


@pytest.mark.parametrize("cliques", ["text", "skip", "links of two chains"])
def test_the_same_fixed_point_with_links_and_tables_of_the_text(cliques, both):
    links = None
    if cliques == "text":
        problem = problem_of(*TEXT)
    elif cliques == "skip":
        problem = problem_of(SKIP, (3,), lengths=(5, 2, 1, 4, 0, 3), size=0.5)
        links = some_links(problem)
    else:
        problem = problem_of(factorial("a", "b", skew=True), (3, 2), size=0.5)
        links = some_links(problem)
    found = run(problem, tol=1e-13, links=links, damping=0.2)
    assert_same(found, described(problem, loopy_beliefs, links=links), 1e-9)
