"""The three forms of forward-backward on the same chains: dense one by one, dense batched,
sparse (Figure 5 of Sokolovska et al., 2010).

Scores of the tokens are ready when the clock starts; each form ends with log Z, all node marginals and the
expected counts of the edge weights. "One by one" is the textbook's order of work, sequence after sequence,
its inner loops vector code; "batched" takes one product of matrices (BLAS) for all sequences that are at the
same step and class; "sparse" one product for each stored pair.
"""

import time
from pathlib import Path

import numpy as np

from ..kernels.forward_backward import forward_backward_many
from ..models.inference import node_scores
from ..optim.batch import Batch
from ..optim.cost_model import TABLE_SHARE
from ..optim.edges import padded, table_edges
from ..optim.forecast import batch_rows
from ..optim.packing import pack
from ..optim.sparse_chain import sparse_edges
from ..optim.sparse_shards import SparseBatch, SparseTransitions
from ..optim.work import make_work
from . import Clocked, race

EDGE_WEIGHTS = (500, 1000, 2000, 3600, 5000, 7000, 10_000, 15_000, 20_000, 30_000, 45_000, 67_626)
# sequences that the dense form one by one takes at a time, so that what it writes stays in the cache, as in a
# batch
STRETCH = 256
FORMS = ("one by one", "batched", "sparse", "sparse, lists only")


def random_support(features, n_edge, seed=0):
    """(FeatureSet, w): all node weights and n_edge edge weights of the attributes b > 0,
    random ones of random size.
    """
    from ..data.features import select

    rng = np.random.default_rng(seed)
    w, first = rng.normal(scale=0.3, size=features.n_features), features.n_node + int(features.edge_ptr[1])
    keep = np.arange(features.n_features) < features.n_node
    keep[first + rng.permutation(features.n_features - first)[:n_edge]] = True
    return select(features, keep), w[keep]


class ChainForms:
    """Forward-backward of a corpus (N tokens) at the weights w (F,), in the forms of `FORMS`;
    nothing but the kernels is timed.

    `run(form)` returns the CPU and wall seconds spent in kernels; log_z (S',) in packed order, p_node (N, M)
    by packed rows and n_products int64 (2,), products with stored pairs forward and backward,
    are those of the form that ran last.
    """

    def __init__(self, corpus, features, w):
        width = padded(features.n_labels)
        self.corpus, self.features = corpus, features
        self.packing = pack(corpus, batch_rows(corpus.n_classes), n_shards=1, grouped=True)
        self.tables = table_edges(features, w, corpus.class_ptr, corpus.class_attr)
        classes = corpus.class_ptr, corpus.class_attr
        self.sparse = {
            FORMS[2]: sparse_edges(features, w, *classes, table_share=TABLE_SHARE),
            FORMS[3]: sparse_edges(features, w, *classes, table_share=1.0),
        }
        self.transitions = SparseTransitions(features, classes, None, self.packing, 0)
        log_node = np.full((corpus.n_tokens, width), -np.inf)
        log_node[:, : features.n_labels] = node_scores(corpus, features, w)
        self.log_node, self.rows = log_node, log_node[self.packing.row_token]
        self.work = make_work(self.packing, width)
        self.spare = np.empty_like(self.work.log_node), *np.empty((3, width, width))
        self.log_z, self.p_node = np.zeros(len(self.packing.sequence)), np.empty_like(self.rows)
        self.table_sum, self.base_sum = np.empty_like(self.tables.log_edge), np.empty((width, width))
        self.grad, self.n_products = np.empty(features.n_edge), np.zeros(2, np.int64)

    def run(self, form):
        """`Clocked` seconds of one forward-backward over the corpus."""
        self.n_products[:], self.grad[:], self.base_sum[:], self.table_sum[:] = 0, 0.0, 0.0, 0.0
        if form == FORMS[0]:
            return self._one_by_one()
        cpu = wall = 0.0
        for b in range(len(self.packing.row_ptr) - 1):
            rows = slice(self.packing.row_ptr[b], self.packing.row_ptr[b + 1])
            n = rows.stop - rows.start
            self.work.log_node[:n] = self.rows[rows]
            start = time.process_time(), time.perf_counter()
            self._batched(b) if form == FORMS[1] else self._sparse(b, self.sparse[form])
            cpu, wall = cpu + time.process_time() - start[0], wall + time.perf_counter() - start[1]
            self.p_node[rows] = self.work.p_node[:n]
        return Clocked(cpu, wall)

    def _one_by_one(self):
        edges, corpus = self.tables, self.corpus
        log_z, p_node, part = (
            np.empty(corpus.n_sequences),
            np.empty_like(self.log_node),
            np.empty_like(self.table_sum),
        )
        p_part = np.empty_like(p_node[: np.diff(corpus.seq_ptr[::STRETCH], append=corpus.n_tokens).max()])
        cpu = wall = 0.0
        for first in range(0, corpus.n_sequences, STRETCH):
            seq_ptr = corpus.seq_ptr[first : first + STRETCH + 1]
            tokens = slice(seq_ptr[0], seq_ptr[-1])
            out = log_z[first : first + STRETCH], p_part[: tokens.stop - tokens.start], part
            start = time.process_time(), time.perf_counter()
            forward_backward_many(
                self.log_node[tokens],
                edges.psi_edge,
                edges.psi_edge_t,
                edges.edge_max,
                edges.edge_spread[0],
                corpus.edge_class[tokens],
                seq_ptr - seq_ptr[0],
                *out,
            )
            cpu, wall = cpu + time.process_time() - start[0], wall + time.perf_counter() - start[1]
            p_node[tokens] = out[1]
            self.table_sum += part
        self.log_z[:], self.p_node[:] = log_z[self.packing.sequence], p_node[self.packing.row_token]
        return Clocked(cpu, wall)

    def _batched(self, b):
        batch = Batch(b, self.packing, self.work)
        batch.forward_backward(self.tables, np.ones(len(batch.flags)), self.log_z, self.table_sum)

    def _sparse(self, b, edges):
        batch = SparseBatch(b, self.packing, self.work)
        batch.forward_backward(edges, np.ones(len(batch.flags)), self.spare[0], self.log_z, self.n_products)
        self.transitions.add_edge_counts(batch, edges, self.spare, (self.grad, self.base_sum))


def form_row(corpus, features, n_edge, repeats):
    """A row of Figure 5: products and median CPU seconds of each form, of whole evaluations too,
    with n_edge edge weights.
    """
    from ..optim.objective import Objective

    part, w = random_support(features, n_edge)
    chains = ChainForms(corpus, part, w)
    wholes = {form: Objective(corpus, part, form=form) for form in ("batched", "sparse")}
    runs = {form: lambda form=form: chains.run(form) for form in FORMS}
    runs |= {f"evaluation, {form}": lambda fun=fun: fun(w) and None for form, fun in wholes.items()}
    took = race(runs, repeats)
    chains.run(FORMS[3])
    row = {"edge weights": part.n_edge, "products": int(chains.n_products[0])}
    row["stored pairs"] = int(
        np.diff(chains.sparse[FORMS[3]].entry_ptr)[chains.packing.row_class[_inner(chains.packing)]].sum()
    )
    row["chosen"] = Objective(corpus, part)._forms.choose(w)
    return row | {form: f"{timing.median_cpu:.4f}" for form, timing in took.items()}


def _inner(packing):
    """Rows of a packing that are not the first token of their sequence."""
    first = np.zeros(len(packing.row_token), bool)
    for b in range(len(packing.row_ptr) - 1):
        first[packing.row_ptr[b] : packing.row_ptr[b] + packing.slot_ptr[b + 1] - packing.slot_ptr[b]] = True
    return ~first


def steady(seconds, reference):
    """`seconds` as if the machine had been equally busy in all rows: `reference`, the same work in each,
    takes its median there.
    """
    reference = np.asarray(reference, float)
    return np.asarray(seconds, float) * np.median(reference) / reference


def affine_fit(x, y):
    """(constant, slope, R^2) of the least-squares line y = constant + slope x."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    slope, constant = np.polyfit(x, y, 1)
    return constant, slope, 1.0 - np.sum((constant + slope * x - y) ** 2) / np.sum((y - y.mean()) ** 2)


def break_even(n_edge, ratio):
    """Edge weights at which `ratio` of seconds (rising with n_edge) reaches 1, between the points;
    infinite if it never does.
    """
    for i in range(1, len(ratio)):
        if ratio[i - 1] < 1.0 <= ratio[i]:
            share = np.log(1.0 / ratio[i - 1]) / np.log(ratio[i] / ratio[i - 1])
            return float(n_edge[i - 1] * (n_edge[i] / n_edge[i - 1]) ** share)
    return np.inf


def fill_forms(folder, repeats=7):
    """06_sparse_forms.csv in `folder`: Figure 5 on NetTalk's letters, one thread; two minutes.
    Returns the path.
    """
    from .records import write_record
    from .sparse_tasks import LETTERS, nettalk
    from .tasks import _threads_one

    start = time.perf_counter()
    data, _, corpus, features = nettalk(LETTERS, all_states=True, all_transitions=True)
    with _threads_one():
        rows = [form_row(corpus, features, n_edge, repeats) for n_edge in EDGE_WEIGHTS]
    return write_record(
        Path(folder) / "06_sparse_forms.csv", rows, seconds=time.perf_counter() - start, datasets=[data]
    )
