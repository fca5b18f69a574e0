"""What trains a MEMM: the penalised likelihood of each label given the gold label before it."""

from typing import ClassVar

from crfbook.chain.forms import Tables
from crfbook.chain.objective import Objective
from crfbook.models.directed.factors import shard_local_likelihood


class LocalTables(Tables):
    """One classifier a token, given the gold label before it: no recursion."""

    offers = ("counts",)
    sums: ClassVar = {"counts": shard_local_likelihood}


class LocalObjective(Objective):
    """Penalised negative log-likelihood of local classifiers; arguments, value and gradient as `Objective`.

        value(w) = sum_t weight_t (log Z[t, y_{t-1}] - log_node[t, y_t] - log_edge[y_{t-1}, y_t]) + c2 |w|^2

    Forbidden labels are left out of the sum of each Z[t, yp].

    Source: McCallum, Freitag and Pereira (2000), with a Gaussian prior and L-BFGS in place of GIS.
    """

    _forms: ClassVar = {"batched": LocalTables}
