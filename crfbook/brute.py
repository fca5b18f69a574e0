"""The definition of every quantity of a linear chain, by listing all L^T labellings. Plain Python and NumPy.

``log_node`` (T, L), ``log_edge`` (K, L, L) as [class, previous, next], ``edge_class`` (T,): class of the
transition into token t (the first entry is not used). Everything here costs T L^T: it is an oracle for tests
and for the book, for T <= 6 or so. Source: Sokolovska, Lavergne, Cappe and Yvon (2010), equations 1 to 5.
"""

import itertools
import math

import numpy as np


def all_paths(n_tokens, n_labels):
    """Every labelling, as an integer array (L^T, T), in lexicographic order."""
    paths = list(itertools.product(range(n_labels), repeat=n_tokens))
    return np.array(paths, dtype=np.int64).reshape(len(paths), n_tokens)


def path_score(log_node, log_edge, edge_class, path):
    """score(y) = sum_t log_node[t, y_t] + sum_{t>=1} log_edge[edge_class[t], y_{t-1}, y_t]."""
    score = 0.0
    for t, y in enumerate(path):
        score += log_node[t, y]
        if t > 0:
            score += log_edge[edge_class[t], path[t - 1], y]
    return float(score)


def all_scores(log_node, log_edge, edge_class):
    """(paths (L^T, T), scores (L^T,)) of every labelling."""
    paths = all_paths(*np.shape(log_node))
    return paths, np.array([path_score(log_node, log_edge, edge_class, path) for path in paths])


def tuple_counts(paths, token_attrs, tuples):
    """(P, G): how often each of G tuples (b, labels) ends at a token t with b in token_attrs[t],
    along each of P paths.

    A model with weights nu (G,) on label tuples scores all_scores + tuple_counts @ nu.
    """
    counts = np.zeros((len(paths), len(tuples)))
    for g, (attr, labels) in enumerate(tuples):
        for p, path in enumerate(paths):
            for t in range(len(labels) - 1, len(path)):
                counts[p, g] += attr in token_attrs[t] and tuple(path[t - len(labels) + 1 : t + 1]) == tuple(
                    labels
                )
    return counts


def log_z(log_node, log_edge, edge_class):
    """log sum_y exp score(y); -inf if every labelling is forbidden."""
    scores = all_scores(log_node, log_edge, edge_class)[1]
    top = scores.max()
    if top == -np.inf:
        return -np.inf
    return float(top + math.log(math.fsum(np.exp(scores - top))))


def path_probabilities(log_node, log_edge, edge_class):
    """(paths, p(y|x) of each). ValueError if every labelling is forbidden."""
    paths, scores = all_scores(log_node, log_edge, edge_class)
    total = log_z(log_node, log_edge, edge_class)
    if total == -np.inf:
        raise ValueError("expected at least one labelling with a finite score, got none")
    return paths, np.exp(scores - total)


def log_proba(log_node, log_edge, edge_class, path):
    """log p(path | x) = score(path) - log Z."""
    return path_score(log_node, log_edge, edge_class, path) - log_z(log_node, log_edge, edge_class)


def node_marginals(log_node, log_edge, edge_class):
    """p_node (T, L): probability that token t has label y."""
    p_node = np.zeros(np.shape(log_node))
    for path, p in zip(*path_probabilities(log_node, log_edge, edge_class), strict=True):
        for t, y in enumerate(path):
            p_node[t, y] += p
    return p_node


def edge_marginals(log_node, log_edge, edge_class):
    """p_edge (T, L, L): p_edge[t, yp, y] = p(y_{t-1} = yp, y_t = y); p_edge[0] is zero."""
    n_tokens, n_labels = np.shape(log_node)
    p_edge = np.zeros((n_tokens, n_labels, n_labels))
    for path, p in zip(*path_probabilities(log_node, log_edge, edge_class), strict=True):
        for t in range(1, n_tokens):
            p_edge[t, path[t - 1], path[t]] += p
    return p_edge


def edge_marginal_sums(log_node, log_edge, edge_class):
    """(K, L, L): expected number of transitions of each class, the edge marginals summed class by class."""
    sums = np.zeros(np.shape(log_edge))
    for t, p in enumerate(edge_marginals(log_node, log_edge, edge_class)):
        if t > 0:
            sums[edge_class[t]] += p
    return sums


def best_paths(log_node, log_edge, edge_class, rtol=1e-12):
    """(best score, all paths whose score reaches it within rtol, in lexicographic order).

    The first path returned need not be the one a decoder picks among ties, but that one is in the list.
    Score -inf and no path if every labelling is forbidden.
    """
    paths, scores = all_scores(log_node, log_edge, edge_class)
    best = scores.max()
    if best == -np.inf:
        return -np.inf, paths[:0]
    return float(best), paths[scores >= best - rtol * max(1.0, abs(best))]


def negative_log_likelihood(log_node, log_edge, edge_class, path):
    """(-log p(path|x), its gradient with respect to log_node (T, L), to log_edge (K, L, L)).

    The gradient is expected minus observed counts. It needs no weights: the chain rule gives their gradient.
    """
    grad_node = node_marginals(log_node, log_edge, edge_class)
    grad_edge = edge_marginal_sums(log_node, log_edge, edge_class)
    for t, y in enumerate(path):
        grad_node[t, y] -= 1.0
        if t > 0:
            grad_edge[edge_class[t], path[t - 1], y] -= 1.0
    return -log_proba(log_node, log_edge, edge_class, path), grad_node, grad_edge


def agreeing(paths, sets):
    """bool (P,): the paths (P, T) that have at each token a label of its set; sets bool (T, L)."""
    return np.asarray(sets)[np.arange(paths.shape[1]), paths].all(axis=1)


def partial_loss(log_node, log_edge, edge_class, sets):
    """(-log p(a labelling of these sets | x), its gradient by log_node (T, L), and by log_edge (K, L, L)).

    sets bool (T, L): the labels that may be right, at least one labelling of which is possible. The gradient
    is E[S] - E[S | sets], S the counts. Source: Tsuboi et al. (2008).
    """
    paths, p = path_probabilities(log_node, log_edge, edge_class)
    right = agreeing(paths, sets)
    total = math.fsum(p[right])
    grad_node, grad_edge = np.zeros(np.shape(log_node)), np.zeros(np.shape(log_edge))
    for y, c in zip(paths, p - np.where(right, p, 0.0) / total, strict=True):
        for t in range(len(y)):
            grad_node[t, y[t]] += c
            if t > 0:
                grad_edge[edge_class[t], y[t - 1], y[t]] += c
    return -math.log(total), grad_node, grad_edge


def entropy(log_node, log_edge, edge_class):
    """H = -sum_y p(y) log p(y) of the labelling, in nats."""
    p = path_probabilities(log_node, log_edge, edge_class)[1]
    return -math.fsum(q * math.log(q) for q in p.tolist() if q > 0.0)


def span_probabilities(log_node, log_edge, edge_class, chunks_of):
    """{chunk: probability that the labelling has it}; chunks_of : labelling (T,) -> its chunks."""
    found = {}
    for path, p in zip(*path_probabilities(log_node, log_edge, edge_class), strict=True):
        for chunk in chunks_of(path):
            found[chunk] = found.get(chunk, 0.0) + float(p)
    return found


def most_right_tokens(log_node, log_edge, edge_class, allowed):
    """(expected number of right tokens, path) of the best among the allowed paths (P, T), the first of
    equals.
    """
    p_node = node_marginals(log_node, log_edge, edge_class)
    right = p_node[np.arange(len(p_node)), allowed].sum(axis=1)
    return float(right.max()), allowed[right.argmax()]


def best_expected_f1(spans):
    """The largest 2 sum p / (n + sum of all p) of a set of n spans that do not overlap.

    spans : [{(type, start, stop): probability} of a sequence, ...]. All sets are listed.
    """
    pool, best = [(i, *chunk, p) for i, some in enumerate(spans) for chunk, p in some.items()], 0.0
    n_expected = math.fsum(p for *_, p in pool)
    for size in range(1, len(pool) + 1):
        for chosen in itertools.combinations(pool, size):
            pairs = itertools.combinations(chosen, 2)
            if all(a[0] != b[0] or a[3] <= b[2] or b[3] <= a[2] for a, b in pairs):
                best = max(best, 2.0 * math.fsum(p for *_, p in chosen) / (size + n_expected))
    return best


def phi(u, loss, clamp=None):
    """(loss, slope) as functions of u = -log p: u for a log loss; e^u - 1 for an exp loss,
    linear where u exceeds `clamp`.
    """
    if not loss.endswith("exp"):
        return u, 1.0
    if clamp is not None and u > clamp:
        return math.exp(clamp) * (1.0 + u - clamp) - 1.0, math.exp(clamp)
    return math.expm1(u), math.exp(u)


def loss_of(log_node, log_edge, edge_class, path, loss="log", clamp=None):
    """(value, gradient (T, L) by log_node, gradient (K, L, L) by log_edge) of one of the losses of `path`.

    "log": -log p(path|x);  "exp": sum over all other paths y of exp(score(y) - score(path)) = 1/p - 1;
    "pointwise-log", "pointwise-exp": the same with p(y_t = path[t] | x), summed over t.
    Gradients: a (E[S] - S(path)) and sum_t a_t (E[S] - E[S | y_t = path[t]]), a = d loss/d(-log p), S the
    counts. Source: Altun, Johnson and Hofmann (2003), eq. (1) to (4).
    """
    paths, p = path_probabilities(log_node, log_edge, edge_class)
    path = np.asarray(path)
    # one row an event
    agrees = (paths == path).T if loss.startswith("pointwise") else (paths == path).all(axis=1)[None]
    value, coefficient = 0.0, np.zeros(len(paths))
    for event in agrees:
        q = float(p[event].sum())
        v, slope = phi(-math.log(q), loss, clamp)
        value += v
        coefficient += slope * (p - np.where(event, p, 0.0) / q)
    grad_node, grad_edge = np.zeros(np.shape(log_node)), np.zeros(np.shape(log_edge))
    for y, c in zip(paths, coefficient, strict=True):
        for t in range(len(y)):
            grad_node[t, y[t]] += c
            if t > 0:
                grad_edge[edge_class[t], y[t - 1], y[t]] += c
    return value, grad_node, grad_edge
