"""Anderson extrapolation of sweeps: the slow tail of coordinate descent is nearly linear, so a few of its points tell where it goes.

After every `memory` sweeps, the point  w = sum_k c_k w_k  of the last ones, with c the combination of their differences that is shortest
(sum c = 1), restricted to the weights that are active now, is taken if the objective is lower there.
Source: Bertrand and Massias (2021), Anderson acceleration of coordinate descent; as in skglm.
"""

import numpy as np

from crfbook.optim.coordinate_run import Sparse


class Accelerator:
    """Points of the last sweeps of a `Run`."""

    def __init__(self, run, memory=5):
        self.run, self.memory, self.points = run, memory, []
        self.taken = self.tried = 0

    def improve(self, objective):
        """After a sweep: the objective, lower where an extrapolation was taken."""
        self.points.append(_keyed(self.run.export()))
        if len(self.points) <= self.memory:
            return objective
        keys, last = self.points[-1]
        rows = np.zeros((len(self.points), len(keys)))
        for row, (some, w) in zip(rows, self.points, strict=True):
            at = np.minimum(np.searchsorted(some, keys), max(0, len(some) - 1))
            if len(some):
                row[:] = np.where(some[at] == keys, w[at], 0.0)
        self.points = []
        if not len(keys):
            return objective
        move = np.diff(rows, axis=0)
        gram = move @ move.T
        gram += 1e-10 * np.trace(gram) * np.eye(len(gram))
        if not np.trace(gram) > 0.0:
            return objective
        share = np.linalg.solve(gram, np.ones(len(gram)))
        point = (share / share.sum()) @ rows[1:]
        return self._try(point, last, objective)

    def _try(self, point, last, objective):
        run = self.run
        here = run.export()
        point = np.where(np.sign(point) == np.sign(last), point, 0.0)  # signs are those of an orthant: the penalty is smooth there
        self.tried += 1
        run.load(Sparse(here.features, point))
        found = run.renew()
        if found < objective:
            self.taken += 1
            return found
        run.load(here)
        return run.renew()


def _keyed(sparse):
    """(keys of the active weights, rising; w)."""
    features, w = sparse
    n_labels = features.n_labels
    node = np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr)) * n_labels + features.node_label
    edge = np.repeat(np.arange(features.n_edge_attrs), np.diff(features.edge_ptr)) * n_labels**2
    edge = edge + features.edge_prev.astype(np.int64) * n_labels + features.edge_next
    return np.concatenate([node, features.n_attrs * n_labels + edge]), w
