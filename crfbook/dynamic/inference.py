"""What a dynamic CRF says about a corpus: best labels, marginals, log Z. Arrays only, no strings.

Common arguments: corpus (S sequences, N tokens); model, a `DynamicModel`; known: int32 (N, m), -1 where a
label may be any, or None; n_threads.
"""

import heapq
from functools import partial, reduce
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from crfbook._checks import whole
from crfbook.chain.forms import Problem
from crfbook.chain.inference import in_stretches, large_sequences, ready_model, stretch_scores, stretches
from crfbook.chain.likelihood import Batch, make_work
from crfbook.chain.numpy_form import LARGE
from crfbook.chain.objective import check_paths
from crfbook.chain.packing import pack
from crfbook.data.corpus import slice_sequences
from crfbook.data.features import FeatureSet
from crfbook.dynamic.dual import dual_chains, dual_sequences
from crfbook.dynamic.graphs import layout_graph, rows_scores
from crfbook.dynamic.junction import LIMIT, sequence_best
from crfbook.dynamic.layout import TemplateLayout, known_sets, log_tables, row_bounds
from crfbook.dynamic.loopy import OPTIONS, Options, max_marginals
from crfbook.dynamic.objective import batch_rows, component_engines, linked_tables, make_form, plain
from crfbook.dynamic.viterbi import best_and_second, chains_viterbi, max_chains


class DynamicModel(NamedTuple):
    """A template with its weights, and the engine: a name of `objective.FORMS`."""

    layout: TemplateLayout
    features: FeatureSet
    w: np.ndarray  # (F,)
    engine: str
    limit: int = LIMIT  # cells of the largest clique of a junction tree
    options: Options = OPTIONS  # of an approximation

    def components(self, known=None):
        """Yield (`Component`, its model, its columns of known); nothing where all chains are joined."""
        for part, engine in component_engines(self.layout, self.engine):
            features, place = part.features(self.features)
            own = self._replace(layout=part.layout, features=features, w=self.w[place], engine=engine)
            yield part, own, None if known is None else known[:, part.chains]


class DualBest(NamedTuple):
    """The best labelling of each sequence, and how much better one could be."""

    labels: np.ndarray  # int32 (N, 2); -1 where no allowed labelling was found
    score: np.ndarray  # (S,): -inf there
    bound: np.ndarray  # (S,): no labelling of the sequence has more
    sweeps: np.ndarray  # int64 (S,): pairs of sweeps, forwards and backwards
    pruned: np.ndarray  # bool (S,): True: no certificate was met, pruning and elimination finished


class Ready(NamedTuple):
    """A corpus and what its scores are made of."""

    corpus: object
    scores: object  # of `ready_model`
    tables: list

    def run(self, call, n_threads):
        """[call(rows (n, M), _, seq_ptr, sequences, tokens), ...] of all stretches, see `in_stretches`."""
        scores = partial(stretch_scores, self.corpus, self.scores)
        return in_stretches(self.corpus, self.scores.features.n_labels, scores, call, n_threads)


def ready_rows(corpus, model, known=None):
    """`Ready`: a corpus with what its rows of scores are made of, see `stretch_scores`."""
    layout, sets = model.layout, np.zeros((0, model.layout.n_cells), bool)
    corpus = plain(corpus)._replace(seq_weight=np.zeros(0))
    if known is not None:
        which, sets = known_sets(layout, known)
        corpus = corpus._replace(label_set=which)
    free = corpus._replace(label_set=corpus.label_set[:0])
    scores = ready_model(free, model.features, model.w, None, tiny=False, padding=False)
    tables = log_tables(layout, model.features, model.w)
    scores = scores._replace(bounds=row_bounds(layout, tables, sets))
    return Ready(corpus, scores, tables)


def decode(corpus, model, known=None, n_threads=1):
    """(labels int32 (N, m), score (S,)): the best labelling of each sequence; of equally good ones, one.

    Raises ValueError naming the first sequence all of whose labellings are forbidden.
    """
    layout = model.layout
    path, score = np.zeros((corpus.n_tokens, len(layout.sizes)), np.int32), np.zeros(corpus.n_sequences)
    for part, own, held in model.components(known):
        path[:, part.chains], best = decode(corpus, own, held, n_threads)
        score += best
    if layout.components:
        return path, score
    ready = ready_rows(corpus, model, known)
    chains = max_chains(layout, ready.tables) if model.engine == "elimination" else None

    def stretch(rows, _, seq_ptr, sequences, tokens):
        labels, best = path[tokens], score[sequences]
        if chains is None:
            for i, (lo, hi) in enumerate(zip(seq_ptr[:-1], seq_ptr[1:], strict=True)):
                if hi > lo:
                    labels[lo:hi], best[i] = sequence_best(layout, ready.tables, rows[lo:hi], model.limit)
            return
        tables, axes = chains
        n_cells, longest = len(tables.beside), int(np.diff(seq_ptr).max(initial=1))
        found, delta, buf = np.zeros_like(labels), np.empty((longest, n_cells)), np.empty((2, n_cells))
        chains_viterbi(rows, tables, seq_ptr, found, best, delta, buf)
        labels[:, axes] = found

    ready.run(stretch, n_threads)
    check_paths(score, np.arange(len(score)), True)
    return path, score


def max_product(corpus, model, known=None, n_threads=1, schedule="sweep"):
    """(labels int32 (N, m), score (S,), converged bool (S,)) by max-product belief propagation.

    Each label has the largest max-marginal, the smaller one of a tie. Exact on trees with one best labelling;
    else the score, which is that of the labels, may fall short, or be -inf where they break a rule.
    schedule : one of SCHEDULES; otherwise the messages are those of model.options.
    """
    ready, layout = ready_rows(corpus, model, known), model.layout
    path, score = np.zeros((corpus.n_tokens, len(layout.sizes)), np.int32), np.zeros(corpus.n_sequences)
    converged = np.zeros(corpus.n_sequences, bool)
    links, cuts = linked_tables(layout, corpus), stretches(corpus.seq_ptr, layout.n_cells)
    stream = {sequences.start: i for i, (sequences, _) in enumerate(cuts)}
    damping = model.options.damping if schedule == "sync" else 0.0
    options = model.options._replace(schedule=schedule, damping=damping)

    def stretch(log_node, _, seq_ptr, sequences, tokens):
        place = np.arange(len(log_node)), corpus.sequence[tokens] - sequences.start, corpus.position[tokens]
        inside = {
            number: pairs[(pairs[:, 0] >= tokens.start) & (pairs[:, 0] < tokens.stop)].T - tokens.start
            for number, pairs in links.items()
        }
        rows = layout_graph(layout, place, sequences.stop - sequences.start, inside)
        scores = rows_scores(layout, rows, ready.tables, log_node)
        found = max_marginals(rows.graph, *scores, options, stream[sequences.start])
        path[tokens] = found.labels.reshape(-1, path.shape[1])
        score[sequences], converged[sequences] = found.score, found.converged

    ready.run(stretch, n_threads)
    return path, score, converged


def decode_dual(corpus, model, known=None, n_threads=1, max_sweeps=2, prune=True):
    """`DualBest`: the best labelling of each sequence of a two-chain factorial CRF, by dual decomposition.

    Where bound - score is at most 1e-9 of the bound, the labelling is the best one. For other sequences
    prune=True finishes exactly after max_sweeps, of which 2 are about the fastest: the first ones lower the
    bound most. prune=False keeps the best labelling found, and the bound; 30 sweeps are worth trying.
    Raises ValueError for templates that `check_dual` refuses, and as `decode` does.
    """
    check_dual(model.layout)
    max_sweeps = whole("max_sweeps", max_sweeps, 1)
    ready = ready_rows(corpus, model, known)
    chains, axes = max_chains(model.layout, ready.tables)
    S = corpus.n_sequences
    found = np.full((corpus.n_tokens, 2), -1, np.int32)
    about = np.zeros(S), np.zeros(S), np.zeros(S, np.int64), np.zeros(S, bool)

    def stretch(rows, _, seq_ptr, sequences, tokens):
        one, two = dual_chains(chains, int(np.diff(seq_ptr).max(initial=1)))
        out = found[tokens], *(numbers[sequences] for numbers in about)
        dual_sequences(rows, seq_ptr, one, two, max_sweeps, int(prune), *out)

    ready.run(stretch, n_threads)
    best = DualBest(np.empty_like(found), *about)
    best.labels[:, axes] = found
    check_paths(best.bound, np.arange(S), True)
    return best


def check_dual(layout):
    """ValueError unless `decode_dual` fits: two chains, transitions, and potentials of a token's two labels,
    none with weights that depend on the text.
    """
    m = len(layout.sizes)
    came = f"{m} chain{'s' * (m > 1)}" if m != 2 else ""
    for table in layout.tables if m == 2 else ():
        chains, dts = {chain for _, chain in table.at}, sorted(dt for dt, _ in table.at)
        if len(dts) > 1 and table.row >= 0:
            came = f"weights of {table.name} that depend on the text"
        elif table.linked or dts not in ([0], [0, 0], [0, 1]) or dts == [0, 1] and len(chains) > 1:
            came = f"the clique {table.name}"
    if not (came or layout.axes):
        came = f"{layout.sizes[0]} x {layout.sizes[1]} labels"
    if came:
        raise ValueError(
            "decode_dual: expected a template of two chains whose transitions, and potentials of a token's "
            f"two labels, do not depend on the text, got {came}"
        )


def marginals(corpus, model, known=None, n_threads=1, rows=True, stats=None):
    """(p (N, n_cells), log Z (S,)): probabilities of the cells of rows, the labels of each chain first.

    rows : how many cells of each row are wanted: True for all, False for none (p is None). Labels come first,
        and cells of cliques that depend on the text can be many. log Z is in nats, 0 for no token.
    stats : int64 (4,), what an approximation's `stats` say is added to it; of components, the larger number
        of sequences.
    Raises ValueError naming a sequence whose scores are so large that probabilities would lose their digits.
    """
    layout = model.layout
    width = layout.n_cells if rows is True else int(rows)
    p = np.empty((corpus.n_tokens, width)) if width else None
    log_z = np.zeros(corpus.n_sequences)
    for part, own, held in model.components(known):
        kept, seen = np.flatnonzero(part.cells < width), np.zeros(4, np.int64)
        found, own_z = marginals(corpus, own, held, n_threads, kept.max(initial=-1) + 1, seen)
        log_z += own_z
        if len(kept):
            p[:, part.cells[kept]] = found[:, kept]
        if stats is not None:
            stats[:2], stats[2:] = np.maximum(stats[:2], seen[:2]), stats[2:] + seen[2:]
    if layout.components:
        return p, log_z
    ready = ready_rows(corpus, model, known)
    for i in large_sequences(ready.corpus, model.features, model.w, 1 + len(layout.tables))[:1]:
        raise ValueError(
            f"sequence {i}: expected scores of at most {LARGE:g} nats in all, which float64 adds up to "
            "1e-7, got larger ones: scale values or weights down"
        )

    def stretch(rows, _, seq_ptr, sequences, tokens):
        part = slice_sequences(ready.corpus, sequences.start, sequences.stop)
        packing = pack(part, batch_rows(layout, model.engine), n_shards=1)
        problem = Problem(model.features, None, None, packing, None)
        how = model.limit, model.engine, model.options, linked_tables(layout, part)
        form = make_form(problem, layout, np.zeros((0, layout.n_cells), bool), *how)
        form.prepare(model.w, "counts")
        work, sums = form.work(make_work(packing, rows.shape[1])), form.begin() if width else None
        for b in range(packing.n_batches):
            batch, token = Batch(b, packing, work), packing.row_token[packing.rows(b)]
            found, fill = np.zeros(len(batch.weight)), partial(np.copyto, batch.log_node, rows[token])
            form.infer(batch, work, fill, found, sums, np.zeros(layout.n_tables))
            log_z[sequences.start + packing.sequence[batch.slots]] = found
            if width:
                p[tokens.start + token] = batch.p_node[:, :width]
        return form.stats.sum(axis=0)

    done = ready.run(stretch, n_threads)
    if stats is not None:
        stats += sum(done)
    if known is None:
        check_paths(log_z, np.arange(len(log_z)), True)
    return p, log_z


def kbest(corpus, model, k, n_threads=1):
    """For each sequence a list of at most k pairs (labels int32 (T, m), score), best first. Exact.

    The best of all labellings but those found: each found one splits the rest into parts, one for each place
    where a labelling can leave it. The best of each part waits in a queue, see `_ranked`.
    Cost, K joint labels: elimination: one decoding, then (m + 2) K T operations a labelling; junction trees:
    m T decodings a labelling. Of components each is ranked alone: the best k sums are taken.
    Source: Lawler (1972), A procedure for computing the k best solutions of discrete optimization problems;
    Nilsson and Goldberger (2001), see `best_and_second`.
    """
    m = len(model.layout.sizes)
    if model.layout.components:
        parts = [(part.chains, kbest(corpus, own, k, n_threads)) for part, own, _ in model.components()]
        chains, found = zip(*parts, strict=True)
        order, join = np.argsort(np.concatenate(chains)), partial(_best_sums, k=k)
        ranked = (reduce(join, lists) for lists in zip(*found, strict=True))
        return [[(labels[:, order], score) for labels, score in best] for best in ranked]
    ready = ready_rows(corpus, model, None)
    chains = max_chains(model.layout, ready.tables) if model.engine == "elimination" else None
    out = [None] * corpus.n_sequences

    def stretch(log_node, _, seq_ptr, sequences, tokens):
        for s, lo, hi in zip(range(sequences.start, sequences.stop), seq_ptr, seq_ptr[1:], strict=False):
            rows = log_node[lo:hi]
            if len(rows) == 0:
                out[s] = [(np.zeros((0, m), np.int32), 0.0)]
            elif chains is None:
                out[s] = _ranked(*_parts_by_decoding(rows, model, ready.tables), k)
            else:
                out[s] = _ranked(*_parts_by_prefixes(rows, *chains), k)

    ready.run(stretch, n_threads)
    return out


def _ranked(score, part, split, k):
    """At most k pairs (labels, score) of a part of all labellings, best first; score is that of its best one.

    split : f(score, part): (the best labelling of a part, pairs (score, part) of what else is in it).
    """
    number, found, queue = count(), [], []
    rest = [(score, part)]
    while len(found) < k:
        for score, part in rest:
            if score > -np.inf:
                heapq.heappush(queue, (-score, next(number), part))
        left = k - len(found)
        if len(queue) > 2 * left:  # none of the others can be among the k best; a sorted list is a heap
            queue.sort()
            del queue[left:]
        if not queue:
            break
        score, _, part = heapq.heappop(queue)
        labels, rest = split(-score, part)
        found.append((labels, -score))
    return found


def _parts_by_prefixes(rows, chains, axes):
    """What `_ranked` needs, from the best score of each prefix: no part is decoded.

    A part (cells, t, cell): labellings that end in cells[t+1:], with the joint label `cell` at t or one that
    follows it in the order of `best_and_second`.
    """
    T, n_cells = len(rows), len(chains.beside)
    delta, buf = np.empty((T, n_cells)), np.empty((2, n_cells))
    labels, score = np.zeros((T, len(axes)), np.int32), np.zeros(1)
    chains_viterbi(rows, chains, np.array([0, T]), labels, score, delta, buf)

    def split(score, part):
        cells, t, cell = part
        cells, second, gap = cells.copy(), np.empty(t + 1, np.int64), np.empty(t + 1)
        cells[t] = cell
        best_and_second(rows, chains, delta, cells, second, gap, buf[0])
        labels = np.empty((T, len(axes)), np.int32)
        labels[:, axes] = cells[:, None] // chains.after % chains.size
        others = enumerate(zip(gap.tolist(), second.tolist(), strict=True))
        return labels, ((score + g, (cells, t, c)) for t, (g, c) in others)

    return float(score[0]), (np.zeros(T, np.int64), T - 1, int(np.argmax(delta[-1]))), split


def _best_sums(one, two, k):
    """The k best of two independent components together, from those of each: scores add up, labels stand side
    by side. The i-th of one can only go with the first k / i of two: all pairs before would be better.
    """
    pairs = ((a[1] + b[1], a[0], b[0]) for i, a in enumerate(one, 1) for b in two[: k // i])
    best = heapq.nlargest(k, pairs, key=itemgetter(0))
    return [(np.concatenate(labels, axis=1), score) for score, *labels in best]


def _parts_by_decoding(rows, model, tables):
    """What `_ranked` needs, each part decoded by a junction tree.

    A part (path, n_fixed, closed): labellings with the first n_fixed labels of its best one, `path`, whose
    next label is not in `closed`.
    """
    first, m = model.layout.first, len(model.layout.sizes)

    def best(fixed, closed):
        held = rows.copy()
        for v, label in enumerate(fixed):
            block = held[v // m, first[v % m] : first[v % m + 1]]
            kept = block[label]
            block[:] = -np.inf
            block[label] = kept
        held[len(fixed) // m, first[len(fixed) % m] + np.array(sorted(closed), np.int64)] = -np.inf
        path, score = sequence_best(model.layout, tables, held, model.limit)
        return score, (path, len(fixed), closed)

    def split(score, part):
        path, n_fixed, closed = part
        flat = path.reshape(-1)
        return path, (
            best(flat[:v], {int(flat[v])} | (closed if v == n_fixed else set()))
            for v in range(n_fixed, flat.size)
        )

    return *best([], set()), split
