"""What marginals of tokens and of pairs of neighbours say of one sequence: entropy, samples, spans of labels.

A chain is Markov: p(y) = p(y_0) prod_t p(y_t | y_(t-1)). So `p_node` (T, L) and `p_edge` (T-1, L, L),
whatever form has computed them, are the whole distribution. Nothing here has a recursion over scores.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crfbook.chain.inference import iter_edge_marginals, node_marginals

NEVER = 1e-12  # spans below are not listed


def iter_marginals(corpus, features, w, constraints=None, n_threads=1):
    """Yield (p_node (T, L), p_edge (T-1, L, L)) of each sequence; errors as `inference` has them."""
    p_node = node_marginals(corpus, features, w, constraints, n_threads)
    edges = iter_edge_marginals(corpus, features, w, constraints)
    for (start, stop), p_edge in zip(pairwise(corpus.seq_ptr.tolist()), edges, strict=True):
        yield p_node[start:stop], p_edge


def given_previous(p_edge):
    """p(y_t | y_(t-1)) as [t-1, previous, next]; rows of labels of probability 0 are 0."""
    total = p_edge.sum(axis=2, keepdims=True)
    return np.divide(p_edge, total, out=np.zeros_like(p_edge), where=total > 0)


def token_entropy(p_node):
    """H(y_t) of each token (T,), in nats."""
    return _nats(p_node, p_node).sum(axis=1)


def sequence_entropy(p_node, p_edge):
    """H(y) = H(y_0) + sum_t H(y_t | y_(t-1)) of one sequence, in nats; 0 for an empty one.

    No term is negative, so no digit is lost, however large log Z is. Source: the chain rule of entropy; as a
    recursion over the tokens Hernando, Crespi and Cybenko (2005).
    """
    return float(_nats(p_node[:1], p_node[:1]).sum() + _nats(p_edge, given_previous(p_edge)).sum())


def _nats(p, q):
    """-p log q; 0 where p is 0."""
    return -p * np.log(q, out=np.zeros_like(q), where=q > 0).clip(max=0.0)


def draw(p_node, p_edge, uniform):
    """Labellings int64 (n, T), each with its probability, from numbers in [0, 1) (n, T).

    y_0 from p(y_0), then each y_t from p(y_t | y_(t-1)), by inversion. What has probability 0 is never drawn.
    """
    path = np.zeros(uniform.shape, np.int64)
    for t in range(len(p_node)):
        rows = (
            p_edge[t - 1][path[:, t - 1]] if t else np.broadcast_to(p_node[0], (len(path), p_node.shape[1]))
        )
        sums = rows.cumsum(axis=1)
        chosen = (sums <= uniform[:, t, None] * sums[:, -1:]).sum(axis=1)
        most = rows.shape[1] - 1 - (rows[:, ::-1] > 0).argmax(axis=1)  # where a product is rounded up
        path[:, t] = np.minimum(chosen, most)
    return path


class Spans(NamedTuple):
    """n spans of one sequence."""

    kind: np.ndarray  # int64 (n,): number of the type
    start: np.ndarray  # int64 (n,)
    stop: np.ndarray  # int64 (n,): token after the last one
    p: np.ndarray  # (n,): the probability that a labelling has the chunk


def span_tables(p_node, p_edge, ways, least=NEVER, longest=None):
    """[p (T-n+1, K) of the chunks of n tokens, for n = 1, 2, ...]: [start, type].

    p(chunk) = sum over ways of p(before, first) prod p(inner | previous) p(last | previous) p(after | last)

    ways : `chunk_ways` of the scheme. The list ends where no longer chunk has a probability of at least
    `least`, or with n = `longest`. Cost: K L for each token, and K for each span.
    """
    n_tokens, step = len(p_node), given_previous(p_edge)
    longest = n_tokens if longest is None else min(longest, n_tokens)
    tables = []
    for way in ways:

        def move(a, b):  # p(b | a) as (T-1, K), 0 where there is no such label
            return step[:, a, b] * ((a >= 0) & (b >= 0))

        def begin(label, way=way):
            p = p_node[:, label] * (label >= 0)
            if way.before is not None:
                p[1:] = np.einsum("txk,kx->tk", p_edge[:, :, label], way.before) * (label >= 0)
            p[:1] *= way.opens
            return p

        def end(label, way=way):
            p = np.ones((n_tokens, len(label)))
            if way.after is not None:
                p[:-1] = np.einsum("tkx,kx->tk", step[:, label], way.after)
            return p

        found, opened = [begin(way.only) * end(way.only)], begin(way.first)
        inner, last, ended = move(way.first, way.inner), move(way.first, way.last), end(way.last)
        for n in range(2, longest + 1):
            opened = opened[: n_tokens - n + 1]
            found.append(opened * last[n - 2 :] * ended[n - 1 :])
            opened = opened * inner[n - 2 :]
            if n == 2:
                inner, last = move(way.inner, way.inner), move(way.inner, way.last)
            if not opened.max(initial=0.0) >= least:
                break
        for n, p in enumerate(found[: max(longest, 0)]):
            if n == len(tables):
                tables.append(p)
            else:
                tables[n] = tables[n] + p
    return [np.minimum(p, 1.0) for p in tables]  # above 1 is rounding


def list_spans(tables, least=NEVER):
    """`Spans` of `span_tables` with a probability of at least `least`, by start, stop and type."""
    places = [np.nonzero(p >= least) for p in tables]
    start, kind = (np.concatenate([[], *(place[k] for place in places)]).astype(np.int64) for k in (0, 1))
    length = np.repeat(np.arange(1, len(tables) + 1), [len(place[0]) for place in places])
    p = np.concatenate([np.zeros(0), *(table[place] for table, place in zip(tables, places, strict=True))])
    order = np.lexsort((kind, start + length, start))
    return Spans(kind[order], start[order], (start + length)[order], p[order])


def best_span_sets(spans, n_expected):
    """([places of the chosen spans of each sequence], F): non-overlapping sets with the largest

        F = 2 sum p / (number of chosen spans + n_expected),

    the ratio of the expectations of what F1 is the ratio of, over all sequences together. It is no
    expectation of F1, but near it for large samples. Exact: for a value f the sets with the largest sum of
    2 p - f are taken (`best_separate`); f rises at each step until it is F.

    spans : [`Spans`]; n_expected : sum of the probabilities of all spans. Source: Dinkelbach (1967).
    """
    chosen = [np.flatnonzero(some.p > 0.5) for some in spans]  # these never overlap
    value, best = -1.0, chosen
    while True:
        total = sum(float(some.p[places].sum()) for some, places in zip(spans, chosen, strict=True))
        n = sum(map(len, chosen)) + n_expected
        better = 2.0 * total / n if n > 0 else 0.0
        if not better > value:
            return best, max(value, 0.0)
        value, best = better, chosen
        chosen = [best_separate(some, 2.0 * some.p - value) for some in spans]


def best_separate(spans, gain):
    """int64: places of the non-overlapping spans with the largest sum of gains (n,); none below 0 is taken.

    best[t] = max(best[t-1], max over spans that stop at t of best[start] + gain)
    """
    worth = np.flatnonzero(gain > 0)
    worth = worth[np.argsort(spans.stop[worth], kind="stable")]
    stops, best = [0], [(0.0, None)]  # the best sums up to each stop, and (the span before, this span)
    for i in worth.tolist():
        at = int(np.searchsorted(stops, spans.start[i], side="right")) - 1
        total = best[at][0] + float(gain[i])
        if total > best[-1][0]:
            new = total, (best[at][1], i)
            if stops[-1] == spans.stop[i]:
                best[-1] = new
            else:
                stops.append(int(spans.stop[i]))
                best.append(new)
    chain, found = best[-1][1], []
    while chain is not None:
        chain, i = chain
        found.append(i)
    return np.array(found[::-1], np.int64)
