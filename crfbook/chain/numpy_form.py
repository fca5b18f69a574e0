"""Forward-backward and Viterbi without kernels, in NumPy: for tiny problems, and for huge scores.

`StepTables` trains a tiny problem before a kernel is compiled. `is_tiny` (sparse/choice.py) decides what is
tiny. Sequences are packed step by step as for the kernels (packing.py). One batch holds them all. Each time
step is a few calls of NumPy. `ScaledBatch` computes scaled sums. `LogChain` computes a sequence again in the
log domain where a lost number might count.

`LogChain` also serves scores so large that float64 has few digits left for their differences: at 1e16 nats
it knows a score to 1 nat. So each row of scores, and each vector of the recursions, is normalised by itself:
a part that all labels share is taken out before anything is added. The rest may still be known too badly.
`LogChain.off` bounds the error, and callers refuse scores whose bound is too large.
"""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from crfbook.chain.forms import Form
from crfbook.chain.packing import Layout, step_major
from crfbook.data.corpus import owners, ragged_index
from crfbook.data.features import edge_gradient, log_edge

# What is multiplied with a number below 1e-307, which is lost, stays below this: neither their product nor
# that of their squares (of numbers below 1e-154) counts, and no square exceeds float64.
REACH = 1e140

LARGE = 1e8  # nats: sequences whose weights add up to more come here; all forms keep 7 digits up to there
DEAD = 800.0  # nats below the best: a probability of 0
MOST_OFF = 1e-6  # nats that a log probability may be off


def attribute_pairs(corpus, features, tokens):
    """(weight, cell, value) of each weight that counts at tokens (n,); cell: row * L + label."""
    items, ptr = ragged_index(corpus.attr_ptr, tokens)
    known = corpus.attr_idx[items] < features.n_attrs
    items, row = items[known], owners(ptr)[known]
    weight, ptr = ragged_index(features.node_ptr, corpus.attr_idx[items])
    item = owners(ptr)
    return weight, row[item] * features.n_labels + features.node_label[weight], corpus.values[items][item]


def add_attribute_scores(corpus, features, w, tokens, log_node):
    """log_node (n, >= L) += scores of the attributes of tokens (n,); see `list_scores` of scores.py."""
    weight, cell, value = attribute_pairs(corpus, features, tokens)
    sums = np.bincount(cell, value * w[weight], minlength=len(tokens) * features.n_labels)
    log_node[:, : features.n_labels] += sums.reshape(-1, features.n_labels)


def list_all(corpus, features, packing):
    """The `Layout` of a single batch in which every weight is a pair."""
    none, zero = np.zeros(0, np.int32), np.zeros(1, np.int64)
    pairs = attribute_pairs(corpus, features, packing.row_token)
    ends = np.array([0, len(pairs[0])])
    return Layout(zero, zero[:0], zero, none, none, None, None, ends, *pairs, None, None)


def edge_scores(features, w, class_ptr, class_attr, bounds):
    """log_edge (K, L, L), forbidden transitions at -inf; bounds: of at least L labels."""
    out = log_edge(features, w, class_ptr, class_attr)
    out[:, bounds.edge[: features.n_labels, : features.n_labels] < 0.0] = -np.inf
    return out


def open_scores(steps, row_set, bounds, n_labels):
    """log_node (n, L) before any attribute is added: hard constraints alone; see `open_rows`."""
    out = np.tile(bounds.middle[:n_labels], (steps.n, 1))
    out[: steps.width] = bounds.start[:n_labels]
    out[steps.last] += bounds.end[:n_labels]
    if len(row_set):
        out += bounds.label_sets[row_set, :n_labels]
    return out


class Steps:
    """One batch: step_ptr (T+1,), row_class (n,); n rows of B sequences, K edge classes."""

    def __init__(self, step_ptr, row_class, n_classes):
        self.row_class, self.n, self.width = row_class, int(step_ptr[-1]), int(step_ptr[1])
        self.spans = list(pairwise(step_ptr.tolist()))
        self.slot = np.arange(self.n) - np.repeat(step_ptr[:-1], np.diff(step_ptr))
        self.inner = np.arange(self.width, self.n)  # rows that have a predecessor
        self.before = self.slot[self.inner] + np.repeat(step_ptr[:-2], np.diff(step_ptr)[1:])
        self.last = np.setdiff1d(np.arange(self.n), self.before)
        inner_class = row_class[self.inner]
        order = np.argsort(inner_class, kind="stable")
        cuts = np.searchsorted(inner_class[order], np.arange(n_classes + 1))
        self.by_class = [(k, order[a:b]) for k, (a, b) in enumerate(pairwise(cuts)) if a < b]
        self.n_classes = n_classes

    def moves(self):
        """(first, last row of a step, first row of the step before, classes), for all but the first step."""
        for (before, _), (lo, hi) in pairwise(self.spans):
            yield lo, hi, before, self.row_class[lo:hi]

    def rows(self, slot):
        """The rows of one sequence."""
        return np.array([lo + slot for lo, hi in self.spans if lo + slot < hi])


class LogChain:
    """log_node (T, L), log_edge (K, L, L), edge_class (T,): scores in nats, -inf forbids; T >= 1.

        a[t,y] = u[t,y] + LSE_yp(a[t-1,yp] + s[yp,y]) - gain[t],    max_y a[t,y] = 0
        b[t-1,yp] = LSE_y(s[yp,y] + u[t,y] + b[t,y]) - back[t-1],   max_yp b[t-1,yp] = 0

    u, s : the scores less the largest of each row and class. log_z : -inf where every path is forbidden.
    off : nats, a bound of the rounding error of log probabilities that are not DEAD; 0 where each token has
        one label that is not, whatever rounding does. rounding : the bound all the same.
    node_off (T, L), edge_off (K, L, L): how far the scores may be off; None: not at all, and off is 0.
    Cost: 2 T L^2 exps, twice with errors. Source: Rabiner (1989), section V.A, in logarithms.
    """

    @np.errstate(all="ignore")
    def __init__(self, log_node, log_edge, edge_class, node_off=None, edge_off=None):
        top, edge_top = finite_max(log_node, 1), finite_max(log_edge, (1, 2))
        self.edge_class, self.u = edge_class, log_node - top[:, None]
        self.table = log_edge - edge_top[:, None, None]
        self.a, self.b = self.u.copy(), np.zeros_like(self.u)
        self.gain, self.back = np.zeros((2, len(top)))
        for t, k in enumerate(edge_class):
            if t > 0:
                self.a[t] += _lse(self.a[t - 1][:, None] + self.table[k], 0)
            self.gain[t] = finite_max(self.a[t], 0)
            self.a[t] -= self.gain[t]
        for t in range(len(top) - 1, 0, -1):
            self.b[t - 1] = _lse(self.table[edge_class[t]] + (self.u[t] + self.b[t]), 1)
            self.back[t - 1] = finite_max(self.b[t - 1], 0)
            self.b[t - 1] -= self.back[t - 1]
        self.log_z = float((top + self.gain).sum() + edge_top[edge_class[1:]].sum() + _lse(self.a[-1], 0))
        self.off, self.rounding, self.node_off, self.edge_off = 0.0, 0.0, node_off, edge_off
        if node_off is not None:
            bold = LogChain(log_node + node_off, log_edge + edge_off, edge_class)
            self.rounding, alone = bold._bound(node_off, edge_off)
            self.off = 0.0 if alone else self.rounding

    def _bound(self, node_off, edge_off):
        """(`rounding`, whether one label of each token is alive), where the scores are the largest that they
        may be.

        No term of a recursion is above 0, so three additions round by less than 2 eps times their result,
        |a| + |gain| (or |b| + |back|). On the way to a cell that is alive |a| + |b| is at most that of cells
        alive and DEAD. A cell is surely dead where it is so by 4 T times that bound.
        """
        size = -(self.a + self.b)
        gap, n = size - size.min(axis=1, keepdims=True), len(size)
        alive = gap <= DEAD
        largest = size.max(axis=1, where=alive, initial=0.0).sum() + np.abs([self.gain, self.back]).sum()
        off = 2.0 * np.finfo(float).eps * (largest + n * DEAD)
        off += node_off.max(axis=1, where=alive, initial=0.0).sum()
        for t, k in enumerate(self.edge_class[1:].tolist(), 1):
            off += edge_off[k][np.ix_(alive[t - 1], alive[t])].max(initial=0.0)
        alone = ((gap <= DEAD + 4.0 * n * off).sum(axis=1) == 1).all()
        return float(off), alone

    @property
    @np.errstate(all="ignore")
    def p_node(self):
        """(T, L): rows sum to one, or are 0 where every path is forbidden."""
        return shares(self.a + self.b, 1)

    @np.errstate(all="ignore")
    def p_edge(self):
        """(T, L, L) as [t, previous, next], zeros first."""
        out = np.zeros((*self.u.shape, self.u.shape[1]))
        out[1:] = self.a[:-1, :, None] + self.table[self.edge_class[1:]] + (self.u + self.b)[1:, None]
        out[1:] = shares(out[1:], (1, 2))
        return out

    @np.errstate(all="ignore")
    def log_proba(self, labels, first=0):
        """log p(y_first = labels[0], y_(first+1) = labels[1], ...) in nats: log p(y_first) and the
        log p(y_t | y_(t-1)), none of which is above 0. labels : for each token an id, or several, of which it
        has one.
        """
        before, total, ways = None, np.zeros(1), (self.a[first] + self.b[first])[None]
        for t, ids in enumerate(map(np.atleast_1d, labels), first):
            if t > first:
                ways = self.table[self.edge_class[t]][before] + (self.u[t] + self.b[t])
            log_p = np.where(ways > -np.inf, np.minimum(0.0, ways - _lse(ways, 1)[:, None]), -np.inf)
            total, before = _lse(total[:, None] + log_p[:, ids], 0), ids
        return min(0.0, float(_lse(total, 0)))

    def path_off(self, labels, first=0):
        """A bound of the rounding error of `log_proba`, in nats, also for labels that are DEAD."""
        places = list(enumerate(map(np.atleast_1d, labels), first))
        nodes = sum(self.node_off[t, ids].max() for t, ids in places)
        edges = (self.edge_off[self.edge_class[t]][np.ix_(a, b)].max() for (_, a), (t, b) in pairwise(places))
        return self.rounding + nodes + sum(edges)


def finite_max(scores, axis):
    """The largest score, 0 where all are -inf."""
    top = scores.max(axis=axis, initial=-np.inf)
    return np.where(top > -np.inf, top, 0.0)


def _lse(scores, axis):
    return np.logaddexp.reduce(scores, axis=axis)


def shares(scores, axis):
    """exp of scores, divided by its sum over the axes; 0 where all are -inf."""
    p = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.nan_to_num(p / p.sum(axis=axis, keepdims=True))


class ScaledBatch:
    """Forward-backward of a batch: log_z (B,), p_node (n, L), and what sums of edge marginals are made of.

        alpha[t,y] = psi_node[t,y] sum_yp alpha[t-1,yp] psi_edge[yp,y] / gain[t]
        v[t,y] = psi_node[t,y] beta[t,y] / gain[t],  beta[t-1,yp] = sum_y psi_edge[yp,y] v[t,y]
        p_node = alpha beta,  p_edge[t,yp,y] = alpha[t-1,yp] psi_edge[yp,y] v[t,y]

    steps: a `Steps`; log_node (n, L), log_edge (K, L, L). A sequence without a path has log_z = -inf and
    marginals of 0. Cost: 3 n L^2 multiply-adds. Source: Rabiner (1989), section V.A; chapter 02.
    """

    @np.errstate(all="ignore")
    def __init__(self, steps, log_node, log_edge):
        self.steps = steps
        node_max, edge_max = finite_max(log_node, 1), finite_max(log_edge, (1, 2))
        psi_node, psi_edge = np.exp(log_node - node_max[:, None]), np.exp(log_edge - edge_max[:, None, None])
        alpha, beta, gain = psi_node.copy(), np.ones_like(psi_node), np.empty(steps.n)
        scale = slice(0, steps.width)
        gain[scale] = alpha[scale].sum(axis=1)
        alpha[scale] /= gain[scale, None]
        for lo, hi, before, classes in steps.moves():
            a = alpha[lo:hi]
            a *= _times(alpha[before : before + hi - lo], psi_edge, classes)
            gain[lo:hi] = a.sum(axis=1)
            a /= gain[lo:hi, None]
        v, psi_edge_t = psi_node / gain[:, None], psi_edge.transpose(0, 2, 1)
        for lo, hi, before, classes in reversed(list(steps.moves())):
            v[lo:hi] *= beta[lo:hi]
            beta[before : before + hi - lo] = _times(v[lo:hi], psi_edge_t, classes)
        self.alpha, self.psi_edge, self.v, self.p_node = alpha, psi_edge, v, alpha * beta
        gained = np.log(gain) + node_max
        gained[steps.inner] += edge_max[steps.row_class[steps.inner]]
        self.log_z = np.bincount(steps.slot, gained, minlength=steps.width)
        unsafe = ~((beta / gain[:, None]).max(axis=1) < REACH)
        self.again = [
            (rows, self._redo(rows, log_node, log_edge))
            for rows in map(steps.rows, np.unique(steps.slot[unsafe]))
        ]

    def _redo(self, rows, log_node, log_edge):
        """p_edge (T, L, L) of one sequence by sums in the log domain; its other results are overwritten."""
        chain = LogChain(log_node[rows], log_edge, self.steps.row_class[rows])
        self.log_z[rows[0]], self.alpha[rows], self.v[rows] = chain.log_z, 0.0, 0.0
        self.p_node[rows] = chain.p_node
        return chain.p_edge()

    def edge_sums(self, weight, squares=False):
        """(K, L, L): sum of weight (n,) times p_edge, or its square, over the rows of each class."""
        steps, (alpha, psi, v) = self.steps, (self.alpha, self.psi_edge, self.v)
        alpha, v, out = alpha[steps.before], v[steps.inner], np.zeros_like(psi)
        if squares:
            alpha, psi, v = alpha**2, psi**2, v**2
        v *= weight[steps.inner, None]
        for k, rows in steps.by_class:
            out[k] = psi[k] * (alpha[rows].T @ v[rows])
        for rows, p_edge in self.again:
            share = weight[rows, None, None] * (p_edge**2 if squares else p_edge)
            np.add.at(out, steps.row_class[rows[1:]], share[1:])
        return out

    def p_edge(self):
        """(T, L, L), zeros first: the edge marginals of a batch of one sequence."""
        if self.again:
            return self.again[0][1]
        out, inner = np.zeros((self.steps.n, *self.psi_edge.shape[1:])), self.steps.inner
        psi = self.psi_edge[self.steps.row_class[inner]]
        out[1:] = self.alpha[:-1, :, None] * psi * self.v[1:, None]
        return out


def _times(rows, tables, classes):
    """rows (n, L) times the table (L, L) of its class each."""
    if len(tables) == 1:
        return rows @ tables[0]
    return np.matmul(rows[:, None], tables[classes])[:, 0]


@np.errstate(over="ignore")  # a path whose score exceeds float64 has the score inf
def viterbi_by_steps(log_node, log_edge, n_labels, edge_class, seq_ptr, path, score):
    """`viterbi_many` of viterbi.py: the same paths, and scores with the same bits. log_node (n, >= L)."""
    lengths = np.diff(seq_ptr)
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    path[:], score[:] = 0, 0.0
    if not len(order):
        return
    step_ptr, row_token = step_major(seq_ptr[order], lengths[order])
    steps = Steps(step_ptr, edge_class[row_token], len(log_edge))
    delta, found = log_node[row_token, :n_labels], np.zeros(steps.n, np.int32)
    back = np.zeros(delta.shape, np.int32)
    log_edge_t = np.ascontiguousarray(log_edge.transpose(0, 2, 1))  # maxima run along the last axis
    for lo, hi, before, classes in steps.moves():
        tables = log_edge_t if len(log_edge_t) == 1 else log_edge_t[classes]
        ways = delta[before : before + hi - lo, None] + tables
        back[lo:hi] = ways.argmax(axis=2)
        delta[lo:hi] += ways.max(axis=2)
    found[steps.last] = delta[steps.last].argmax(axis=1)
    for lo, hi, before, _ in reversed(list(steps.moves())):
        rows = np.arange(lo, hi)
        found[before : before + hi - lo] = back[rows, found[rows]]
    score[order[steps.slot[steps.last]]] = delta[steps.last].max(axis=1)
    path[row_token] = np.where(score[order[steps.slot]] > -np.inf, found, 0)


class StepTables(Form):
    """Transitions as tables (K, L, L), and node scores as one sparse matrix times the weights."""

    offers = ("counts", "variances")

    def __init__(self, problem):
        super().__init__(problem)
        features, packing = problem.features, problem.packing
        if packing.n_batches:
            self.steps = Steps(packing.steps(0), packing.row_class, len(problem.classes[0]) - 1)
            self.weight = packing.weight[self.steps.slot]
            self.open = open_scores(self.steps, packing.row_set, problem.bounds, features.n_labels)
            self.cells = self._cells(problem.layout.pair_val)
            self.of_weights = self.cells.T.tocsr()

    def _cells(self, values):
        """The matrix from weights to scores (n * L, n_node) with these values of the pairs."""
        layout, shape = self.problem.layout, (self.open.size, self.problem.features.n_node)
        return csr_array((values, (layout.pair_cell, layout.pair_weight)), shape=shape)

    def prepare(self, w, what):
        self.log_edge = edge_scores(self.problem.features, w, *self.problem.classes, self.problem.bounds)

    def run(self, what, shard, w, dense, work, counts):
        squares, n_node = what == "variances", self.problem.features.n_node
        with np.errstate(over="ignore", invalid="ignore"):
            log_node = self.open + (self.cells @ w[:n_node]).reshape(self.open.shape)
        scaled = ScaledBatch(self.steps, log_node, self.log_edge)
        p, values, self.edge_sum = scaled.p_node, self.of_weights, scaled.edge_sums(self.weight)
        if squares:
            p, values = p - p**2, self._cells(self.problem.layout.pair_val**2).T
            self.edge_sum -= scaled.edge_sums(self.weight, squares=True)
        counts.grad[:] = values @ (self.weight[:, None] * p).ravel()
        counts.log_z[:] = scaled.log_z
        lost = np.flatnonzero(~np.isfinite(scaled.log_z))
        return int(lost[0]) if len(lost) else -1

    def collect(self, total):
        edge_gradient(self.problem.features, self.edge_sum, *self.problem.classes, total)
