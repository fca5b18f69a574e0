"""Chapter 06: sparse forms of forward-backward beside dense ones; OWL-QN on them, what forms cost.

Figure 5 of Sokolovska, Lavergne, Cappe and Yvon (2010) compares forms of forward-backward on the same chains.
Scores of the tokens are ready when the clock starts; each form ends with log Z, all node marginals and the
expected counts of the edge weights. "One by one" is the textbook's order of work, sequence after sequence,
its inner loops vector code; "batched" takes one product of matrices (BLAS) for all sequences that are at the
same step and class; "sparse" one product for each stored pair.
"""

import time
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook.chain.batch import Batch, make_work, sparse_work
from crfbook.chain.forms import Problem, table_edges
from crfbook.chain.forward_backward import forward_backward_many
from crfbook.chain.inference import decode, node_scores
from crfbook.chain.objective import Objective
from crfbook.chain.packing import batch_rows, pack, padded
from crfbook.chain.sparse.choice import TABLE_SHARE, FormChooser, Sizes, choose_form, terms
from crfbook.chain.sparse.form import PairSums, SparseBatch, SparsePairs
from crfbook.chain.sparse.potentials import sparse_edges
from crfbook.learners.quasi_newton.lbfgs import minimize

from .harness import Clocked, Row, affine_fit, break_even, race, steady, study, timed
from .work import LARGE, dataset, load, random_chains, random_support

# ---- forms of forward-backward ----

EDGE_WEIGHTS = (500, 1000, 2000, 3600, 5000, 7000, 10_000, 15_000, 20_000, 30_000, 45_000, 67_626)
# sequences that the dense form one by one takes at a time, so that what it writes stays in the cache, as in a
# batch
STRETCH = 256
FORMS = ("one by one", "batched", "sparse", "sparse, lists only")
LETTERS = "*0:%x[0,0]\n"
# 161 tests: letters and `_B-1`, `_B+1`
PSEUDO_3_GRAMS = "".join(f"*{i}:%x[{row},0]\n" for i, row in enumerate((-1, 0, 1)))


class ChainForms:
    """Forward-backward of a corpus (N tokens, weights of sequences all 1) at w (F,), in the forms of `FORMS`.

    `run(form)` returns the CPU and wall seconds spent in kernels, nothing else is timed; log_z (S',) in
    packed order, p_node (N, M) by packed rows and n_products int64 (2,), products with stored pairs forward
    and backward, are those of the form that ran last.
    """

    def __init__(self, corpus, features, w):
        width, classes = padded(features.n_labels), (corpus.class_ptr, corpus.class_attr)
        self.corpus = corpus
        self.packing = pack(corpus, batch_rows(corpus.n_classes), n_shards=1, grouped=True)
        self.tables = table_edges(features, w, *classes)
        shares = zip(FORMS[2:], (TABLE_SHARE, 1.0), strict=True)
        self.sparse = {form: sparse_edges(features, w, *classes, table_share=share) for form, share in shares}
        self.pairs = SparsePairs(Problem(features, classes, None, self.packing, None))
        self.log_node = np.full((corpus.n_tokens, width), -np.inf)
        self.log_node[:, : features.n_labels] = node_scores(corpus, features, w)
        self.rows = self.log_node[self.packing.row_token]
        self.work = sparse_work(make_work(self.packing, width))
        self.log_z, self.p_node = np.zeros(len(self.packing.sequence)), np.empty_like(self.rows)
        self.table_sum = np.empty_like(self.tables.log_edge)
        self.n_products = np.zeros(2, np.int64)
        self.sums = PairSums(np.empty(features.n_edge), np.empty((width, width)), self.n_products)

    def run(self, form):
        """`Clocked` seconds of one forward-backward over the corpus."""
        for sums in (self.table_sum, *self.sums):
            sums[:] = 0
        cpu = wall = 0.0
        for kernels in self._one_by_one() if form == FORMS[0] else self._batches(form):
            start = time.process_time(), time.perf_counter()
            kernels()
            cpu, wall = cpu + time.process_time() - start[0], wall + time.perf_counter() - start[1]
        return Clocked(cpu, wall)

    def _one_by_one(self):
        edges, corpus = self.tables, self.corpus
        tables = edges.psi_edge, edges.psi_edge_t, edges.edge_max, edges.edge_spread[0]
        log_z, p_node = np.empty(corpus.n_sequences), np.empty_like(self.log_node)
        longest = np.diff(corpus.seq_ptr[::STRETCH], append=corpus.n_tokens).max()
        part, p_part = np.empty_like(self.table_sum), np.empty_like(p_node[:longest])
        for first in range(0, corpus.n_sequences, STRETCH):
            seq_ptr = corpus.seq_ptr[first : first + STRETCH + 1]
            tokens = slice(seq_ptr[0], seq_ptr[-1])
            out = log_z[first : first + STRETCH], p_part[: tokens.stop - tokens.start], part
            chains = corpus.edge_class[tokens], seq_ptr - seq_ptr[0]
            yield partial(forward_backward_many, self.log_node[tokens], *tables, *chains, *out)
            p_node[tokens] = out[1]
            self.table_sum += part
        self.log_z[:], self.p_node[:] = log_z[self.packing.sequence], p_node[self.packing.row_token]

    def _batches(self, form):
        for b in range(self.packing.n_batches):
            rows = self.packing.rows(b)
            n = rows.stop - rows.start
            self.work.log_node[:n] = self.rows[rows]
            sparse = form in self.sparse
            yield partial(self._sparse, b, self.sparse[form]) if sparse else partial(self._batched, b)
            self.p_node[rows] = self.work.p_node[:n]

    def _batched(self, b):
        batch = Batch(b, self.packing, self.work)
        batch.forward_backward(self.tables, self.log_z, self.table_sum)

    def _sparse(self, b, edges):
        batch = SparseBatch(b, self.packing, self.work)
        batch.forward_backward(edges, self.log_z, self.sums)
        self.pairs.add_counts(batch, edges, self.sums)


def form_row(corpus, features, n_edge, repeats):
    """A row of Figure 5: products and median CPU seconds of each form, of whole evaluations too.

    off: the largest difference, of any sequence or marginal, between lists only and batched.
    """
    part, w = random_support(features, n_edge)
    chains = ChainForms(corpus, part, w)
    runs = {form: partial(chains.run, form) for form in FORMS}
    for form in ("batched", "sparse"):
        runs[f"evaluation, {form}"] = partial(Objective(corpus, part, form=form), w)
    took, packing = race(runs, repeats), chains.packing
    chains.run("batched")
    dense = chains.log_z.copy(), chains.p_node.copy()
    chains.run(FORMS[3])
    found = zip((chains.log_z, chains.p_node), dense, strict=True)
    off = [np.abs(sparse - known).max() for sparse, known in found]
    inner = np.ones(len(packing.row_token), bool)  # rows that are not the first token of their sequence
    for first, width in zip(packing.row_ptr[:-1], np.diff(packing.slot_ptr), strict=True):
        inner[first : first + width] = False
    pairs = np.diff(chains.sparse[FORMS[3]].entry_ptr)[packing.row_class[inner]].sum()
    row = {"edge weights": part.n_edge, "products": int(chains.n_products[0]), "stored pairs": int(pairs)}
    row |= {"log Z off": f"{off[0]:.1e}", "marginals off": f"{off[1]:.1e}"}
    row["chosen"] = FormChooser(part, corpus, "auto", kernels=True).choose(w)
    return row | {form: f"{timing.median_cpu:.4f}" for form, timing in took.items()}


def form_rows(repeats):
    """(`Work` of NetTalk's letters, rows of Figure 5)."""
    work = load("nettalk", LETTERS)
    return work, [form_row(work.corpus, work.everything, n_edge, repeats) for n_edge in EDGE_WEIGHTS]


@study("06_sparse_forms.csv", frozen=("objective, batched", "objective, sparse"))
def sparse_forms(n_repeats=7):
    """Figure 5 on NetTalk's letters: forms of forward-backward with 500 to 67,626 weights; two minutes."""
    yield "06_sparse_forms.csv", [({}, lambda: form_rows(n_repeats)[1])], [dataset("nettalk")]


@study("06_sparse_targets.csv", frozen=("objective, batched", "objective, sparse"))
def sparse(repeats=5):
    """Forward-backward with 500 to 67,626 edge weights in 26 blocks: sparse against dense, NetTalk."""
    work, table = form_rows(repeats)
    column = {name: np.array([float(row[name]) for row in table]) for name in table[0] if name != "chosen"}
    n_edge, products, lists = column["edge weights"], column["products"], column[FORMS[3]]
    note = "forward-backward and expected counts alone, one thread"
    for dense, what in zip(FORMS[:2], ("one by one", "batched BLAS"), strict=True):
        line = f"{EDGE_WEIGHTS[0]} edge weights: sparse / dense {what}"
        yield Row(line, column["sparse"][0], column[dense][0], "CPU s", 1 / 3, None, note)
    pairs, note = column["stored pairs"], f"counted at {len(table)} supports"
    worst = np.maximum(products / pairs, pairs / products).max()
    yield Row("products with stored pairs / their number", worst, 1.0, "times nnz", 1.0, None, note)
    calm, short = steady(lists, column[FORMS[0]]), n_edge <= 10_000
    constant, slope, fit = affine_fit(products, calm)
    note = f"seconds = {constant:.3f} + {1e9 * slope:.2f}e-9 a product, "
    note += f"{products[0]:,.0f} to {products[-1]:,.0f} products; "
    note += f"up to 10,000 weights R^2 = {affine_fit(products[short], calm[short])[2]:.3f}; "
    note += "rows scaled to equal times of dense one by one"
    yield Row("time affine in nnz, lists only: 1 - R^2", 1.0 - fit, 1.0, "share", 0.05, None, note)
    for dense in FORMS[:2]:
        even = break_even(n_edge, lists / column[dense])
        share = np.interp(even, n_edge, products) / work.corpus.n_tokens / work.sizes[0] ** 2
        line, note = f"lists break even with dense {dense}", f"{share:.0%} of all pairs of a token"
        yield Row(line, even, n_edge[-1], "weights", None, None, note)
    for row in table:
        line = f"{row['edge weights']:,} edge weights: sparse / batched"
        note = f"one by one {row[FORMS[0]]}, lists only {row[FORMS[3]]}; whole evaluation: sparse "
        note += f"{row['evaluation, sparse']}, batched {row['evaluation, batched']}, {row['chosen']} chosen"
        yield Row(line, float(row["sparse"]), float(row["batched"]), "CPU s", None, None, note)


@study("06_owlqn_targets.csv", frozen=("owlqn", "lbfgs, elastic net", "objective, auto"))
def sparse_owlqn(repeats=1, max_iterations=40):
    """Pseudo 3-grams, c1 = 1, OWL-QN and proximal steps: Wapiti's OWL-QN takes 3.1 s an evaluation."""
    work = load("nettalk", PSEUDO_3_GRAMS)
    corpus, features = work.corpus, work.everything
    zero, objective = np.zeros(features.n_features), Objective(corpus, features)
    objective(zero), objective.curvature(zero)  # machine code
    for method, what in (("owlqn", "OWL-QN"), ("proximal", "proximal quasi-Newton")):
        how = {"c1": 1.0, "l1_method": method, "max_iterations": max_iterations}
        found, seconds = timed(minimize, objective, zero, **how)
        sizes = f"{corpus.n_classes:,} classes, {features.n_features:,} weights, "
        sizes += f"{np.count_nonzero(found.w):,} active "
        line, each = f"{what}, pseudo 3-grams: an evaluation", seconds / found.n_evaluations
        yield Row(line, each, 3.1, "CPU s", 1.5 / 3.1, None, f"{sizes}after {found.n_iter} iterations")
        note = f"{found.objective:,.0f} after {found.n_evaluations} evaluations"
        yield Row("the same: objective", found.objective, 42_051, "nats", 41_900 / 42_051, None, note)


# ---- what forms cost: the coefficients in chain/sparse/choice.py ----

FORM_SETS = {"training": ("batched", "sparse"), "decoding": ("dense decoding", "sparse decoding")}


class Case(NamedTuple):
    """A random case: its `Sizes` for training and for decoding, and the time of each form."""

    training: Sizes
    decoding: Sizes
    took: dict  # {form: CPU seconds}


def case_sizes(corpus, features, w):
    """`Sizes` for training and for decoding; kernels have them for a tiny case too."""
    training, decoding = (FormChooser(features, corpus, "auto", n, kernels=True) for n in (None, 1))
    return training.sizes(w), decoding.sizes(w)


def time_forms(n_cases, seed, **sizes):
    """A list of `Case`s; `sizes`: arguments of `random_chains`.

    Of each form the least CPU seconds count: what others on the machine add is left out.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_cases):
        corpus, features, w = random_chains(rng, **sizes)
        runs = {form: partial(Objective(corpus, features, form=form), w) for form in FORM_SETS["training"]}
        for form in FORM_SETS["decoding"]:
            runs[form] = partial(decode, corpus, features, w, form=form.removesuffix(" decoding"))
        found.append(
            Case(
                *case_sizes(corpus, features, w),
                {form: float(min(run.cpu)) for form, run in race(runs, 4).items()},
            )
        )
    return found


def fit_forms(cases):
    """{form: coefficients}: what predicts best how the two forms of a case compare.

    Both forms of a case are slowed down alike by whatever else the machine does, so their ratio is what can
    be measured. Minimised is the squared error of its logarithm, cases near the break-even weighing most,
    and, with little weight, that of the times themselves.
    """
    out = {}
    for kind, forms in FORM_SETS.items():
        rows = [np.array([terms(form, getattr(case, kind)) for case in cases]) for form in forms]
        log_took = np.log([[case.took[form] for form in forms] for case in cases]).T
        out |= dict(zip(forms, _fit_pair(rows, log_took), strict=True))
    return out


def _fit_pair(rows, log_took):
    """Coefficients > 0 of two forms, for rows (cases, terms) and log seconds (cases,) of each."""
    from scipy.optimize import least_squares, nnls  # 15 MB, which would count in studies of memory

    size = [np.where(x.max(axis=0) > 0, x.max(axis=0), 1.0) for x in rows]
    scaled = [x / s for x, s in zip(rows, size, strict=True)]
    start = [nnls(x / np.exp(y)[:, None], np.ones(len(y)))[0] for x, y in zip(scaled, log_took, strict=True)]
    start = np.concatenate([np.log(np.maximum(c, 1e-4 * c.max())) for c in start])
    n, ratio = scaled[0].shape[1], log_took[1] - log_took[0]
    weight = 1.0 / np.sqrt(0.15 + np.abs(ratio))

    def residuals(log_c):
        low, high = (np.log(x @ np.exp(c)) for x, c in zip(scaled, (log_c[:n], log_c[n:]), strict=True))
        times = 0.2 * (low - log_took[0]), 0.2 * (high - log_took[1])
        return np.concatenate([weight * (high - low - ratio), *times, 0.01 * (log_c - start)])

    found = np.exp(least_squares(residuals, start, loss="soft_l1", f_scale=0.3, max_nfev=200).x)
    return found[:n] / size[0], found[n:] / size[1]


def held_out(first, second):
    """Rows for "training" and "decoding": how often the faster form is chosen, how often timings disagree.

    first, second: the same cases, timed twice. Per cent of the cases: the faster form (by the lesser of both
    timings) is chosen; a form within 5 and 10 per cent of it; a form that is the faster in one of the
    timings; the timings disagree which it is. Last the time that is lost against always taking the faster.
    """
    rows = []
    for kind, forms in FORM_SETS.items():
        chosen = np.array([forms.index(choose_form(getattr(case, kind), forms)) for case in first])
        both = np.array(
            [[[case.took[form] for form in forms] for case in cases] for cases in (first, second)]
        )
        fastest, least = both.argmin(axis=2), both.min(axis=0)
        ratio = least[np.arange(len(first)), chosen] / least.min(axis=1)
        shares = {
            "faster form": ratio <= 1.0, "within 5 %": ratio <= 1.05, "within 10 %": ratio <= 1.1,
            "faster in one timing": (fastest == chosen).any(axis=0),
            "timings disagree": fastest[0] != fastest[1], "time lost": ratio - 1.0,
        }  # fmt: skip
        shares = {name: f"{100 * np.mean(share):.1f}" for name, share in shares.items()}
        rows.append({"forms for": kind, "cases": len(first), **shares})
    return rows


def new_cases():
    """Cases that the coefficients in chain/sparse/choice.py were not fitted to, most of them small."""
    return time_forms(60, seed=2) + time_forms(20, seed=4, **LARGE)


@study("06_form_costs.csv", frozen=("objective, auto", "decoding, sparse", "decoding, dense"))
def form_costs():
    """How often the cost model chooses the faster form, on 80 random models not in its fit; ten minutes."""
    yield "06_form_costs.csv", [({}, lambda: held_out(new_cases(), new_cases()))]


@study()
def form_fit():
    """The coefficients of chain/sparse/choice.py, measured and fitted anew: printed only; some minutes."""
    cases = time_forms(160, 0) + time_forms(80, 1) + time_forms(60, 3, **LARGE)
    for form, values in fit_forms(cases).items():
        print(f'    "{form}": ({", ".join(f"{v:.3g}" for v in values)}),')
    yield from ()


@study()
def sparse_choice(repeats=1):
    """How often the cost model chooses the slower form, on 80 random models not in its fit; ten minutes."""
    for row in held_out(new_cases(), new_cases()):
        kind, cases = row.pop("forms for"), row.pop("cases")
        note = f"{cases} cases: " + ", ".join(f"{name} {value} %" for name, value in row.items())
        slower = (100 - float(row["faster form"])) / 100
        yield Row(f"{kind}: the slower form is chosen", slower, 1.0, "share", 0.05, None, note)
