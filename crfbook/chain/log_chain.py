"""Forward-backward of one sequence in logarithms, in NumPy: for scores so large that float64 has few digits
left for their differences.

At 1e16 nats float64 knows a score to 1 nat. So each row of scores, and each vector of the recursions, is
normalised by itself: what is large and the same for all labels is taken out before anything is added. What
is left may still be known too badly; `LogChain.off` bounds by how much, and who asks refuses.
"""

import numpy as np

LARGE = 1e8  # nats: sequences whose weights add up to more come here; all forms keep 7 digits up to there
DEAD = 800.0  # nats below the best: a probability of 0
MOST_OFF = 1e-6  # nats that a log probability may be off


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
        return _shares(self.a + self.b, 1)

    @np.errstate(all="ignore")
    def p_edge(self):
        """(T, L, L) as [t, previous, next], zeros first."""
        out = np.zeros((*self.u.shape, self.u.shape[1]))
        out[1:] = self.a[:-1, :, None] + self.table[self.edge_class[1:]] + (self.u + self.b)[1:, None]
        out[1:] = _shares(out[1:], (1, 2))
        return out

    @np.errstate(all="ignore")
    def log_proba(self, labels, first=0):
        """log p(y_first = labels[0], y_(first+1) = labels[1], ...) in nats: log p(y_first) and the
        log p(y_t | y_(t-1)), none of which is above 0.
        """
        ways, total = self.a[first] + self.b[first], 0.0
        for t, y in enumerate(labels, first):
            if t > first:
                ways = self.table[self.edge_class[t], labels[t - first - 1]] + (self.u[t] + self.b[t])
            total += min(0.0, ways[y] - _lse(ways, 0)) if ways[y] > -np.inf else -np.inf
        return float(total)

    def path_off(self, labels, first=0):
        """A bound of the rounding error of `log_proba`, in nats, also for labels that are DEAD."""
        places = list(enumerate(labels, first))
        pairs = zip(places[:-1], places[1:], strict=True)
        nodes = sum(self.node_off[t, y] for t, y in places)
        return (
            self.rounding + nodes + sum(self.edge_off[self.edge_class[t], a, b] for (_, a), (t, b) in pairs)
        )


def finite_max(scores, axis):
    """The largest score, 0 where all are -inf."""
    top = scores.max(axis=axis, initial=-np.inf)
    return np.where(top > -np.inf, top, 0.0)


def _lse(scores, axis):
    return np.logaddexp.reduce(scores, axis=axis)


def _shares(scores, axis):
    """exp of scores, divided by its sum over the axes; 0 where all are -inf."""
    p = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.nan_to_num(p / p.sum(axis=axis, keepdims=True))
