"""Chain blocks: exact without loops, the fixed point of plain belief propagation with them, gradients of what
they maximise, hard rules, scores that do not fit into scaled tables.
"""

from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np
import pytest
from helpers.corpora import random_corpus
from helpers.dynamic import DynamicProblem, dynamic_problem, factors_of
from helpers.factors import enumerate_factors, loopy_beliefs

import crfbook.dynamic.blocks as blocks_module
from crfbook.chain.forms import Problem
from crfbook.chain.inference import stretch_scores
from crfbook.chain.likelihood import Batch, make_work
from crfbook.chain.packing import pack
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import make_corpus
from crfbook.dynamic.block_sweeps import block_sweeps_plain
from crfbook.dynamic.blocks import ChainBlocks, block_chains
from crfbook.dynamic.inference import DynamicModel, ready_rows
from crfbook.dynamic.layout import dynamic_features, known_sets, lay_out_template
from crfbook.dynamic.loopy import OPTIONS
from crfbook.dynamic.objective import JointObjective, plain
from crfbook.dynamic.templates import Clique, factorial, linear, memory

pytestmark = pytest.mark.kernels
BLOCK = OPTIONS._replace(schedule="block")
SKIP = [*linear("a"), Clique(((0, "a"), (2, "a")))]  # its last table joins given tokens
LOOPY = ("two chains", "large first", "skew", "skew back", "three chains", "three, skew", "both skews")
TEXT = (
    [*linear("a", "b"), Clique(((0, "a"), (0, "b")), "all"), Clique(((1, "a"), (0, "b")))],
    (3, 2),
)


class Blocky(JointObjective):
    """log Z of chain blocks summed over a corpus, with its gradient."""

    _forms: ClassVar = {"batched": ChainBlocks}

    def __init__(self, problem, n_threads=1, sets=None, which=None, links=None, **options):
        corpus, layout = plain(problem.corpus), problem.layout
        sets = np.zeros((0, layout.n_cells), bool) if sets is None else sets
        corpus = corpus if which is None else corpus._replace(label_set=which)
        counts = np.zeros(problem.features.n_features)
        how = BLOCK._replace(**options)
        super().__init__(corpus, problem.features, layout, counts, sets, n_threads, 1, "block", how)
        self._options = {"layout": layout, "label_sets": sets, "limit": 1, "options": how, "links": links}

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


def run(problem, known=None, rows=16, links=None, **options):
    """(p (N, n_cells), log Z (S,), counts of tables, statistics), sequences weighing 1."""
    corpus, layout = problem.corpus, problem.layout
    ready = ready_rows(corpus, DynamicModel(layout, problem.features, problem.w, "elimination"), known)
    scores = stretch_scores(
        ready.corpus, ready.scores, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    )
    packing = pack(ready.corpus, rows, n_shards=1)
    none = np.zeros((0, layout.n_cells), bool)
    how = BLOCK._replace(**options), links
    form = ChainBlocks(Problem(problem.features, None, None, packing, None), layout, none, 1, *how)
    form.prepare(problem.w, "counts")
    work, sums = form.work(make_work(packing, scores.shape[1])), form.begin()
    p, log_z = np.zeros((corpus.n_tokens, layout.n_cells)), np.zeros(corpus.n_sequences)
    part = np.zeros(layout.n_tables)
    for b in range(packing.n_batches):
        batch, token = Batch(b, packing, work), packing.row_token[packing.rows(b)]
        found = np.full(len(batch.weight), np.inf)
        batch.p_node[:] = np.nan
        form.infer(batch, work, partial(np.copyto, batch.log_node, scores[token]), found, sums, part)
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


@pytest.mark.parametrize("name", EXACT)
def test_exact_without_loops(name, both):
    """Mean field, too, where no link is."""
    cliques, sizes, links = EXACT[name]
    problem = problem_of(cliques, sizes)
    wanted = described(problem, enumerate_factors, links=links)
    assert_same(run(problem, tol=1e-13, links=links), wanted, 1e-12)
    if all(len({chain for _, chain in table.at}) == 1 for table in problem.layout.tables):
        assert_same(run(problem, schedule="mean-field"), wanted, 1e-12)


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


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
@pytest.mark.parametrize("name", ["two chains", "skew back", "three, skew", "text", "links of two chains"])
def test_gradient_by_differences(name, schedule, both):
    """The gradient is counts minus beliefs, of log Z as it is said: Bethe's, or the bound."""
    lengths, links = (3, 1, 6, 2), None
    if name == "text":
        problem = problem_of(*TEXT, lengths=lengths)
    else:
        cliques = "two chains" if name.startswith("links") else name
        problem = dynamic_problem(cliques, size=0.6, lengths=lengths, weighted=True)
        links = some_links(problem) if name.startswith("links") else None
    objective = Blocky(problem, schedule=schedule, tol=1e-12, links=links)
    value, grad = objective(problem.w)
    assert objective.stats[:2] == [4, 0]
    for seed in range(2):
        step = 1e-5 * np.random.default_rng(seed).normal(size=len(grad))
        slope = objective(problem.w + step)[0] - objective(problem.w - step)[0]
        assert slope == pytest.approx(2.0 * grad @ step, rel=1e-7, abs=1e-10)
    assert np.isfinite(value)


@pytest.mark.parametrize("options", [{}, {"tol": 1e-12}, {"max_sweeps": 0}, {"max_sweeps": 1}])
@pytest.mark.parametrize("name", LOOPY)
def test_mean_field_is_a_lower_bound(name, options, both):
    for size in (0.3, 3.0):
        problem = dynamic_problem(name, size=size)
        log_z = run(problem, schedule="mean-field", **options)[1]
        assert (log_z <= described(problem, enumerate_factors)[1] + 1e-12).all()


@pytest.mark.parametrize("name", LOOPY)
def test_known_labels(name, both):
    """All but one label of each sequence are known: no loop is left. The rules hold, too."""
    problem = dynamic_problem(name, constrained=True)
    known = problem.labels.copy()
    known[problem.corpus.seq_ptr[:-1][problem.corpus.lengths > 0], 0] = -1
    found = run(problem, known, tol=1e-13)
    assert_same(found, described(problem, enumerate_factors, known), 1e-12)
    known[:, 1:] = -1
    assert_same(run(problem, known, tol=1e-13), described(problem, loopy_beliefs, known), 1e-9)


@pytest.mark.parametrize("name", ["independent", "one link", "a tree of links"])
def test_scores_of_a_thousand_nats(name):
    cliques, sizes, links = EXACT[name]
    problem = problem_of(cliques, sizes, size=1e3)
    found = run(problem, tol=1e-13, links=links)
    assert_same(found, described(problem, enumerate_factors, links=links), 1e-9)


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
@pytest.mark.parametrize("size", [30.0, 1e3])
@pytest.mark.parametrize("name", [*LOOPY, "text"])
def test_beliefs_stay_finite(name, size, schedule):
    """Where nothing converges, too: what did not is counted."""
    problem = problem_of(*TEXT, size=size) if name == "text" else dynamic_problem(name, size=size)
    p, log_z, part, stats = run(problem, schedule=schedule, max_sweeps=20)
    first, there = problem.layout.first, np.repeat(problem.corpus.lengths, problem.corpus.lengths) > 0
    for a, b in zip(first, first[1:], strict=False):
        np.testing.assert_allclose(p[there, a:b].sum(axis=1), 1.0, rtol=1e-9)
    assert np.isfinite(log_z).all() and np.isfinite(part).all() and (p >= 0.0).all()
    assert stats[0] == 5 and 0 <= stats[1] <= 4


def valued(cliques, values, lengths, constraints=None):
    """Two chains of two labels; one attribute, with these values; weights are 0."""
    layout = lay_out_template(cliques, "ab", {"a": [0, 1], "b": [0, 1]}, constraints)
    n = len(values)
    corpus = make_corpus(
        np.append(0, np.cumsum(lengths)), np.arange(n + 1), np.zeros(n, int), attr_val=values
    )
    labels = np.zeros((n, 2), np.int32)
    features = dynamic_features(layout, corpus, labels, 1)
    return DynamicProblem(corpus, labels, layout, features, np.zeros(features.n_features))


@pytest.mark.parametrize("gap", [10.0, 60.0, 100.0, 140.0, 250.0, 1e3])
def test_a_message_that_vanishes_and_wins(gap):
    """Two chains of one label each, tied at one token: what one gives up, the other decides.

    No score is far from the others; their sums are. A cavity that is lost unseen would hide it.
    """
    same = Constraints(np.eye(2, dtype=bool), np.ones(2, bool), np.ones(2, bool))
    limits = {"a": same, "b": same, ("a", "b"): np.eye(2, dtype=bool)}
    problem = valued(factorial("a", "b", node_features="all"), np.ones(6), [3, 1, 2], limits)
    problem.w[1], problem.w[3] = -gap, gap + 0.2  # label 1 of each
    tied = next(n for n, t in enumerate(problem.layout.tables) if len({c for _, c in t.at}) == 2)
    links = {tied: [[1, 1], [3, 3], [5, 4]]}
    found = run(problem, tol=1e-13, links=links)
    assert_same(found, described(problem, enumerate_factors, links=links), 1e-9)


def test_some_sequences_in_logarithms(monkeypatch, in_logs):
    """Their sums join those of the others, each once."""
    values = np.repeat([1.0, 3e3, 0.5, 2.0, 2e3], [4, 3, 3, 1, 1])
    problem = valued(factorial("a", "b", node_features="all"), values, [4, 3, 3, 1, 1])
    problem.w[:] = np.random.default_rng(0).normal(0.0, 1.0, len(problem.w))
    fast, flagged = blocks_module.sweep_blocks, []
    monkeypatch.setattr(
        blocks_module, "sweep_blocks", lambda *given: flagged.append(fast(*given)) or flagged[-1]
    )
    objective = Blocky(problem, tol=1e-12)
    value, grad = objective(problem.w)
    assert 0 < sum(flagged) < 5 and objective.stats[:2] == [5, 0]
    in_logs()
    wanted, slope = objective(problem.w)
    assert value == pytest.approx(wanted, rel=1e-12) and objective.stats[0] == 5
    np.testing.assert_allclose(grad, slope, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
def test_no_sweep_is_uniform_messages(schedule, both):
    """Each chain says what it would alone."""
    problem = dynamic_problem("three, skew")
    p, _, _, stats = run(problem, schedule=schedule, max_sweeps=0)
    alone = dynamic_problem("three, skew")
    for table in alone.layout.tables:
        if len({chain for _, chain in table.at}) == 2:
            start = alone.features.n_node + table.start
            alone.w[start : start + table.size] = 0.0
    np.testing.assert_allclose(p, described(alone, enumerate_factors)[0], atol=1e-12)
    n_steps = problem.corpus.lengths[problem.corpus.lengths > 0] - 1
    assert stats == [5, 5, 0, 3 * 2 * n_steps.sum()]


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
def test_what_is_sent_is_counted(schedule, both):
    """A chain's update is two messages an edge of it, and one along each of its links."""
    problem = dynamic_problem("two chains", size=2.0)
    stats = run(problem, schedule=schedule, tol=0.0, max_sweeps=3)[3]
    lengths = problem.corpus.lengths[problem.corpus.lengths > 0]
    along, links = 2 * 2 * (lengths - 1).sum(), 2 * lengths.sum()
    assert stats == [5, 5, 3 * 5, 3 * (along + links) + along]
    stats = run(problem, schedule=schedule, tol=1e-3, rows=4)[3]
    assert stats[1] == 0 and 5 <= stats[2] < 100
    if schedule == "block":
        skip = problem_of(SKIP, (3,), lengths=(3, 4, 1))
        stats = run(skip, tol=0.0, max_sweeps=2, links={2: [[0, 2], [3, 6], [6, 4]]})[3]
        assert stats == [3, 2, 1 + 2 * 2, 2 * (2 * 5 + 2 * 3) + 2 * 5]


def test_damping(both):
    """One token: after one sweep chain a has heard (1 - d) of what b says, and d of nothing."""
    problem = dynamic_problem("large first", lengths=(1,))
    p = run(problem, tol=0.0, max_sweeps=1, damping=0.3)[0][0]
    _, _, tables, _ = factors_of(problem, 0)
    a, b = (np.exp(tables[chain] + tables[2 + chain]) for chain in (0, 1))
    (pair,) = (t for t in problem.layout.tables if len(t.at) == 2 and t.span == 0)
    table = np.exp(tables[-1]).reshape(pair.shape)
    table = table if pair.at[0][1] == 0 else table.T
    heard = table @ b
    wanted = a * (0.7 * heard / heard.sum() + 0.3 / len(a))
    np.testing.assert_allclose(p[: len(a)], wanted / wanted.sum(), rtol=1e-12)


@pytest.mark.parametrize("name", LOOPY)
def test_rules_need_no_logarithms(name, monkeypatch):
    """Labels that are out of reach are closed before the first sweep."""
    monkeypatch.setattr(ChainBlocks, "redo", None)
    problem = dynamic_problem(name, constrained=True, seed=1)
    known = np.where(np.random.default_rng(0).random(problem.labels.shape) < 0.3, problem.labels, -1)
    run(problem, known.astype(np.int32))


def test_sequences_leave_one_by_one(both):
    """What is left of a batch is the same as those sequences by themselves."""
    lengths = (9, 7, 7, 4, 3, 3, 1, 1, 12, 2)
    problem = dynamic_problem("three chains", size=0.2, lengths=(2,))
    rng = np.random.default_rng(5)
    corpus = random_corpus(rng, lengths, 2, 5)
    for skip in (False, True):
        if skip:
            problem = problem_of(SKIP, (3,), lengths=(2,), size=0.6)
        labels = np.zeros((corpus.n_tokens, len(problem.layout.sizes)), np.int32)
        problem = problem._replace(corpus=corpus, labels=labels)
        links = some_links(problem) if skip else None
        whole = run(problem, tol=1e-12, rows=1000, links=links)
        small = run(problem, tol=1e-12, rows=1, links=links)
        assert whole[3][:2] == small[3][:2] == [10, 0]
        assert small[3][2] == whole[3][2]
        assert small[3][3] <= whole[3][3] < 1.2 * small[3][3]  # some wait until enough leave
        for one, other in zip(whole[:3], small[:3], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9)


def test_any_number_of_threads():
    rng = np.random.default_rng(0)
    problem = dynamic_problem("two chains", lengths=(2,))
    corpus = random_corpus(rng, rng.integers(1, 20, 200), 2, 5)
    labels = np.zeros((corpus.n_tokens, 2), np.int32)
    problem = problem._replace(corpus=corpus, labels=labels)
    found = [Blocky(problem, n_threads=n) for n in (1, 2)]
    (value, grad), (other, slope) = (objective(problem.w) for objective in found)
    assert value == other and (grad == slope).all()
    assert found[0]._packing.n_shards > 1 and found[0].stats == found[1].stats
    assert found[0].stats[0] == 200


def test_nothing_is_allowed():
    """A token without a label; known labels that a rule forbids are found one by one."""
    problem = dynamic_problem("two chains", constrained=True)
    known = np.full(problem.labels.shape, -1, np.int32)
    pair = next(t for t in problem.layout.tables if len({c for _, c in t.at}) == 2)
    cell = dict(zip((c for _, c in pair.at), np.argwhere(~pair.allowed)[0], strict=True))
    token = problem.corpus.seq_ptr[2]
    known[token] = [cell[0], cell[1]]
    for rows in (1, 100):
        p, log_z, _, _ = run(problem, known, rows=rows)
        assert log_z[2] == -np.inf and np.isfinite(np.delete(log_z, 2)).all()
        assert not p[problem.corpus.seq_ptr[2] : problem.corpus.seq_ptr[3]].any()
    which, sets = known_sets(problem.layout, known)
    with pytest.raises(ValueError, match="sequence 2: expected a path"):
        Blocky(problem, sets=sets, which=which)(problem.w)


TEXT_PAIRS = factorial("a", "b", features="supported")
REFUSED = {
    "three labels": ([*linear("a"), *memory("a", "m", "seen", (0,))], {}, "block", "one or two labels, got"),
    "transitions of the text": (TEXT_PAIRS, {}, "block", r"two tokens, got a\(t-1\), a\(t\) with attrib"),
    "links of the text": (TEXT_PAIRS[:2] + TEXT_PAIRS[4:], {2: [[0, 1]]}, "block", "two tokens, got a"),
    "skip-chain by mean field": (SKIP, {}, "mean-field", "links of two chains, got"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    cliques, links, schedule, match = REFUSED[name]
    chains = sorted({chain for clique in cliques for _, chain in clique.at})
    names = {chain: [False, True] if chain == "m" else [0, 1, 2] for chain in chains}
    layout = lay_out_template(cliques, tuple(chains), names)
    corpus = random_corpus(np.random.default_rng(0), (3, 1, 2, 4, 0, 1), 2, 5)
    labels = np.zeros((corpus.n_tokens, len(chains)), np.int32)
    features = dynamic_features(layout, corpus, labels, 5)
    problem = DynamicProblem(corpus, labels, layout, features, np.zeros(features.n_features))
    with pytest.raises(ValueError, match=match):
        run(problem, schedule=schedule, links=links)


def test_mean_field_needs_all_pairs_of_two_chains():
    layout = dynamic_problem("two chains", constrained=True).layout
    assert block_chains(layout) == ""
    assert "two chains allowed, got a(t), b(t)" in block_chains(layout, schedule="mean-field")
    layout = dynamic_problem("independent", constrained=True).layout
    assert "constraints of a and b" in block_chains(layout, schedule="mean-field")


def by_sister(problem, links, **options):
    """Beliefs of labels (N, labels of all chains), from `block_sweeps_plain`."""
    corpus, layout = problem.corpus, problem.layout
    ready = ready_rows(corpus, DynamicModel(layout, problem.features, problem.w, "elimination"), None)
    scores = stretch_scores(
        ready.corpus, ready.scores, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    )
    pairs = [n for n, table in enumerate(layout.tables) if len(table.at) == 2]
    along = {
        layout.tables[n].at[0][1]: ready.tables[n]
        for n in pairs
        if n not in links and layout.tables[n].at[0][1] == layout.tables[n].at[1][1]
    }
    p = np.zeros((corpus.n_tokens, layout.first[-1]))
    for lo, hi in zip(corpus.seq_ptr, corpus.seq_ptr[1:], strict=False):
        blocks = list(zip(layout.first, layout.first[1:], strict=False))
        chains = [
            (scores[lo:hi, a:b], along.get(k, np.zeros((b - a, b - a)))) for k, (a, b) in enumerate(blocks)
        ]
        found = []
        for n in pairs:
            (dt, a), (last, b) = layout.tables[n].at
            if n in links:
                ends = links[n][(links[n][:, 0] >= lo) & (links[n][:, 1] < hi)].T - lo
            elif a != b:
                ends = np.arange(hi - lo - (last - dt)) + np.array([[0], [last - dt]])
            else:
                continue
            found.append((a, b, ends, ready.tables[n]))
        if lo < hi:
            p[lo:hi] = np.hstack(block_sweeps_plain(chains, found, **options))
    return p


@pytest.mark.parametrize("schedule", ["block", "mean-field"])
@pytest.mark.parametrize("cliques", ["two chains", "skew", "three chains", "skip"])
@pytest.mark.parametrize("seed", range(2))
def test_the_readable_sister_has_the_same_beliefs(cliques, schedule, seed):
    """At the fixed point; of the first chain after a sweep, too."""
    problem, links = dynamic_problem("two chains", seed, size=0.6), {}
    if cliques == "skip" and schedule == "block":
        problem = problem_of(SKIP, (3,), seed, lengths=(5, 2, 1, 4, 0, 3), size=0.5)
        links = some_links(problem)
    elif cliques == "skip":  # mean field takes links of two chains alone
        links = some_links(problem)
    else:
        problem = dynamic_problem(cliques, seed, size=0.6)
    first = problem.layout.first
    for n_sweeps, stop, options in ((2, 1, {"tol": 0.0, "max_sweeps": 1}), (60, -1, {"tol": 1e-13})):
        found = run(problem, schedule=schedule, links=links, **options)[0][:, : first[stop]]
        wanted = by_sister(problem, links, n_sweeps=n_sweeps, mean_field=schedule == "mean-field")
        np.testing.assert_allclose(found, wanted[:, : first[stop]], rtol=0, atol=1e-10)


def test_the_readable_sister_takes_what_is_forbidden():
    """A pair of a link and a label are forbidden; with one link the graph is a tree, so beliefs are exact."""
    rng, T, sizes = np.random.default_rng(0), 3, (3, 2)
    chains = [(rng.normal(size=(T, n)), rng.normal(size=(n, n))) for n in sizes]
    link = rng.normal(size=sizes)
    link[1, 1] = chains[1][0][1, 0] = -np.inf  # so nothing is left for label 1 of the first chain
    wanted = [np.zeros((T, n)) for n in sizes]
    for paths in product(*(product(range(n), repeat=T) for n in sizes)):
        score = link[paths[0][1], paths[1][1]]
        for (log_node, log_pair), y in zip(chains, paths, strict=True):
            score += log_node[np.arange(T), y].sum() + log_pair[y[:-1], y[1:]].sum()
        for p, y in zip(wanted, paths, strict=True):
            p[np.arange(T), y] += np.exp(score)
    found = block_sweeps_plain(chains, [(0, 1, np.array([[1], [1]]), link)], n_sweeps=2)
    for p, q in zip(wanted, found, strict=True):
        np.testing.assert_allclose(q, p / p.sum(axis=1, keepdims=True), rtol=0, atol=1e-12)
