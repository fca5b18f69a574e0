"""Chapter 06: sparse forms of forward-backward beside dense ones; OWL-QN on them, what forms cost; L1.

Figure 5 of Sokolovska, Lavergne, Cappe and Yvon (2010) compares forms of forward-backward on the same chains.
Scores of the tokens are ready when the clock starts; each form ends with log Z, all node marginals and the
expected counts of the edge weights. "One by one" is the textbook's order of work, sequence after sequence,
its inner loops vector code; "batched" takes one product of matrices (BLAS) for all sequences that are at the
same step and class; "sparse" one product for each stored pair.
"""

import json
from collections import Counter
from functools import partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective, minimize
from crfbook._jit import kernel
from crfbook.chain.forms import Problem, table_edges
from crfbook.chain.forward_backward import exp_nodes, forward_backward_scaled, log_z_scaled
from crfbook.chain.inference import decode, node_scores
from crfbook.chain.likelihood import Batch, make_work, sparse_work
from crfbook.chain.packing import batch_rows, pack, padded
from crfbook.chain.sparse.choice import SECONDS, TABLE_SHARE, FormChooser, Sizes, choose_form, terms
from crfbook.chain.sparse.form import PairSums, SparseBatch, SparsePairs
from crfbook.chain.sparse.potentials import sparse_edges
from crfbook.evaluation import bootstrap_interval, paired_test
from crfbook.learners.coordinate.arrays import scatter
from crfbook.learners.coordinate.descent import prepare
from crfbook.learners.quasi_newton import minimize_on_support
from crfbook.learners.quasi_newton.l1 import pseudo_gradient
from crfbook.learners.stochastic.fast import fast_fit
from crfbook.training.certificate import duality_gap
from crfbook.training.loop import OptResult

from . import crfsuite
from .c08 import set_up, walk
from .harness import Clocked, Row, Run, affine_fit, break_even, clocked, follow, race, steady, study, timed
from .work import LETTERS_C2, columns_of, dataset, descend, encode, load, random_chains, random_support

# ---- forms of forward-backward ----

EDGE_WEIGHTS = (500, 1000, 2000, 3600, 5000, 7000, 10_000, 15_000, 20_000, 30_000, 45_000, 67_626)
# sequences that the dense form one by one takes at a time, so that what it writes stays in the cache, as in a
# batch
STRETCH = 256
FORMS = ("one by one", "batched", "sparse", "sparse, lists only")
LETTERS = "*0:%x[0,0]\n"
# 161 tests: letters and `_B-1`, `_B+1`
PSEUDO_3_GRAMS = "".join(f"*{i}:%x[{row},0]\n" for i, row in enumerate((-1, 0, 1)))


@kernel
def forward_backward_many(
    log_node, psi_edge, psi_edge_t, edge_max, edge_spread, edge_class, seq_ptr, log_z, p_node, edge_sum
):
    """`forward_backward_scaled` sequence by sequence: log Z,
    node marginals and summed edge marginals of a corpus.

    Arguments:
        log_node : (N, L)
        psi_edge, psi_edge_t : (K, L, L)
        edge_max : (K,)
        edge_spread : of exp_edges
        edge_class : (N,)
        seq_ptr : (S+1,)
    Out:
        log_z : (S,), NaN where the log form is needed (such a sequence adds nothing else)
        p_node : (N, L)
        edge_sum : (K, L, L)
    Cost: 3 N L^2 multiply-adds, N L exps.
    Source: Rabiner (1989), section V.A.
    """
    longest, L = max(1, np.diff(seq_ptr).max()), log_node.shape[1]
    psi_node, alpha, beta = np.empty((longest, L)), np.empty((longest, L)), np.empty((longest, L))
    node_max, scale = np.empty(longest), np.empty(longest)
    edge_sum[:] = 0.0
    log_z[:] = 0.0
    for s in np.flatnonzero(np.diff(seq_ptr)):
        lo, T = seq_ptr[s], seq_ptr[s + 1] - seq_ptr[s]
        classes = edge_class[lo : lo + T]
        spread = edge_spread + exp_nodes(log_node[lo : lo + T], psi_node[:T], node_max[:T])
        if forward_backward_scaled(
            psi_node[:T], psi_edge, psi_edge_t, classes, spread, alpha[:T], beta[:T], scale[:T]
        ):
            log_z[s] = np.nan
            continue
        log_z[s] = log_z_scaled(scale[:T], node_max[:T], edge_max, classes)
        for t in range(T):
            v = beta[t]
            for y in range(L):
                p_node[lo + t, y] = alpha[t, y] * v[y]
                v[y] *= psi_node[t, y] / scale[t]
            for yp in range(L if t > 0 else 0):
                a, row = alpha[t - 1, yp], edge_sum[classes[t], yp]
                for y in range(L):
                    row[y] += a * v[y]
    edge_sum *= psi_edge


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
        for sums in (self.table_sum, *self.sums[:3]):
            sums[:] = 0
        parts = self._one_by_one() if form == FORMS[0] else self._batches(form)
        spent = [clocked(kernels)[1] for kernels in parts]
        return Clocked(*(sum(one[clock] for one in spent) for clock in ("cpu", "wall")))

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
        run = partial(self._sparse, self.sparse[form]) if form in self.sparse else self._batched
        for b in range(self.packing.n_batches):
            rows = self.packing.rows(b)
            n = rows.stop - rows.start
            self.work.log_node[:n] = self.rows[rows]
            yield partial(run, b)
            self.p_node[rows] = self.work.p_node[:n]

    def _batched(self, b):
        batch = Batch(b, self.packing, self.work)
        batch.forward_backward(self.tables, self.log_z, self.table_sum)

    def _sparse(self, edges, b):
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


# ---- what forms cost: the coefficients in chain/sparse/seconds.json ----

LARGE = {"smallest": 20_000, "largest": 150_000}  # arguments of `random_chains`
FORM_SETS = {"training": ("batched", "sparse"), "decoding": ("dense decoding", "sparse decoding")}


class Case(NamedTuple):
    """A random case: its `Sizes` for training and for decoding, and the time of each form."""

    training: Sizes
    decoding: Sizes
    took: dict  # {form: CPU seconds}

    def terms(self, form):
        """Terms of the cost of a form."""
        return terms(form, self.decoding if "decoding" in form else self.training)


def case_sizes(corpus, features, w):
    """`Sizes` for training and for decoding; kernels have them for a tiny case too."""
    training, decoding = (FormChooser(features, corpus, "auto", n, kernels=True) for n in (None, 1))
    return training.sizes(w), decoding.sizes(w)


def runs_of(forms, corpus, features, w):
    """{form: callable}: a value and gradient at w, or, by the form's name, decoding."""
    return {
        form: partial(decode, corpus, features, w, form=form.partition(" ")[0]) if "decoding" in form
        else partial(Objective(corpus, features, form=form), w) for form in forms
    }  # fmt: skip


def time_cases(draw, runs, n_cases, seed, repeats):
    """A list of `Case`s: models (corpus, features, w) of draw(rng), timed in the forms of runs(*model).

    Of each form the least CPU seconds count: what others on the machine add is left out.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_cases):
        model = draw(rng)
        took = race(runs(*model), repeats)
        found.append(Case(*case_sizes(*model), {form: float(min(one.cpu)) for form, one in took.items()}))
    return found


def time_forms(n_cases, seed, **sizes):
    """`Case`s of `random_chains`, whose arguments are `sizes`."""
    runs = partial(runs_of, sum(FORM_SETS.values(), ()))
    return time_cases(partial(random_chains, **sizes), runs, n_cases, seed, 4)


def print_fit(fitted):
    """Print {form: coefficients} as chain/sparse/seconds.json has them, by the names of the counts."""
    named = {
        form: {count: float(f"{value:.3g}") for count, value in zip(SECONDS[form], values, strict=True)}
        for form, values in fitted.items()
    }
    print(json.dumps(named, indent=2))


def fit_form(cases, form, least=0.0):
    """Coefficients >= 0 of a form, in chain/sparse/seconds.json: least squares of relative errors.

    least : no count has a smaller share in the seconds than this, of the largest one.
    """
    from scipy.optimize import nnls  # 15 MB, which would count in studies of memory

    rows = np.array([case.terms(form) for case in cases])
    took = np.array([case.took[form] for case in cases])
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    parts = nnls(rows / scale / took[:, None], np.ones(len(took)))[0]
    return np.maximum(parts, least * parts.max()) / scale


def fit_forms(cases):
    """{form: coefficients}: what predicts best how the two forms of a case compare.

    Both forms of a case are slowed down alike by whatever else the machine does, so their ratio is what can
    be measured. Cases near the break-even weigh most; the times themselves have little weight.
    """
    out = {}
    for forms in FORM_SETS.values():
        start = {form: fit_form(cases, form, 1e-4) for form in forms}
        out |= move_fit([(forms, cases)], 0.01, start, of_times=0.2)
    return out


def move_fit(groups, strength, start=None, of_times=0.5):
    """{form: coefficients}: those of `start`, moved to predict better how the forms of a case compare.

    groups : (forms, cases). start : {form: coefficients}; None: those of `SECONDS`. Minimised are squared
    errors of logarithms: of the first form's time against each other one, with weight `of_times` of the
    times, and with weight `strength` the moves.
    """
    from scipy.optimize import least_squares

    names = list(dict.fromkeys(form for forms, _ in groups for form in forms))
    start = start or {form: np.maximum(list(SECONDS[form].values()), 1e-16) for form in names}
    ends, data = np.cumsum([len(start[form]) for form in names]), []
    for forms, cases in groups:
        rows = {form: np.array([case.terms(form) for case in cases]) for form in forms}
        data.append((rows, np.log([[case.took[form] for case in cases] for form in forms])))

    def moved(log_move):
        moves = zip(names, np.split(log_move, ends[:-1]), strict=True)
        return {form: start[form] * np.exp(move) for form, move in moves}

    def residuals(log_move):
        now, out = moved(log_move), [strength * log_move]
        for rows, took in data:
            said = np.array([np.log(x @ now[form]) for form, x in rows.items()])
            ratio = took[1:] - took[0]
            out += [of_times * (said - took).ravel()]
            out += [((said[1:] - said[0] - ratio) / np.sqrt(0.15 + np.abs(ratio))).ravel()]
        return np.concatenate(out)

    how = {"loss": "soft_l1", "f_scale": 0.3, "max_nfev": 200}
    return moved(least_squares(residuals, np.zeros(ends[-1]), **how).x)


def held_out(first, second):
    """Rows for "training" and "decoding": how often the faster form is chosen, how often timings disagree.

    first, second: the same cases, timed twice. Per cent of the cases: the faster form (by the lesser of both
    timings) is chosen; a form within 5 and 10 per cent of it; a form that is the faster in one of the
    timings; the timings disagree which it is. Last the time that is lost against always taking the faster.
    """
    rows = []
    for kind, forms in FORM_SETS.items():
        chosen = np.array([forms.index(choose_form(getattr(case, kind), forms)) for case in first])
        both = np.array([[[one.took[form] for form in forms] for one in some] for some in (first, second)])
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
    """Cases that the coefficients in chain/sparse/seconds.json were not fitted to, most of them small."""
    return time_forms(60, seed=5) + time_forms(20, seed=4, **LARGE)


@study("06_form_costs.csv", frozen=("objective, auto", "decoding, sparse", "decoding, dense"))
def form_costs():
    """How often the cost model chooses the faster form, on 80 random models not in its fit; ten minutes."""
    yield "06_form_costs.csv", [({}, lambda: held_out(new_cases(), new_cases()))]


@study()
def form_fit():
    """The coefficients of chain/sparse/seconds.json, measured and fitted anew: printed only; some minutes."""
    cases = time_forms(160, 0) + time_forms(80, 1) + time_forms(60, 3, **LARGE)
    print_fit(fit_forms(cases))
    yield from ()


# ---- what sparsity saves in training ----

# The paper says of its Table 2 that a sweep of coordinate descent costs less where fewer weights are active.
# A sweep, and an evaluation as a batch method needs it, are timed in parts at models down a path of c1.

PATH = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.0)  # of c1
SWEEPS = 4  # at each
PARTS = {"extend": "sweep, recursion", "gradient": "sweep, gradient"}


def sweep_parts(setup, c1, model, repeats):
    """{column: CPU seconds} of a sweep at a model: in all, in the recursions, in the derivatives."""
    learner = prepare(setup.corpus, w0=model, c1=c1, tol=0.0, **setup.options)
    learner.begin()
    sweeper, spent = learner.sweeper, Counter()
    sweeper.compiled, visit = False, sweeper._by_parts  # a visit in parts: these can be timed
    type(visit).n_by_parts = 0  # however many of them this process has made before
    for method, name in PARTS.items():
        setattr(visit, method, partial(_clocked, spent, name, getattr(visit, method)))
    sweeper.sweep()
    spent.clear()
    for _ in range(repeats):
        spent["sweep"] += timed(sweeper.sweep)[1]
    return {name: spent[name] / repeats for name in ("sweep", *PARTS.values())}


def _clocked(spent, name, run, *arguments):
    found, seconds = timed(run, *arguments)
    spent[name] += seconds
    return found


def training_row(setup, c1, model, repeats):
    """The row of a trained model: CPU seconds of a sweep, of evaluations, of the recursions alone."""
    chains, w = ChainForms(setup.corpus, *model), scatter(model, setup.everything)
    runs = {f"recursion, {form}": partial(chains.run, form) for form in FORMS[:3]}
    for form in ("batched", "sparse"):
        fun = Objective(setup.corpus, setup.everything, c2=LETTERS_C2, form=form)
        runs[f"evaluation, {form}"] = partial(fun, w)
    took = {name: timing.median_cpu for name, timing in race(runs, repeats).items()}
    took = sweep_parts(setup, c1, model, repeats) | took
    n_mu, n = (int(np.count_nonzero(part)) for part in (model.w[: model.features.n_node], model.w))
    sizes = {"c1": f"{c1:g}", "mu": n_mu, "lambda": n - n_mu}
    return sizes | {name: f"{seconds:.4f}" for name, seconds in took.items()}


def training_rows(repeats, n_words):
    setup = set_up("letter_tests", n_words)
    models = walk(setup, PATH, SWEEPS, lambda *_: None)[1]
    return [training_row(setup, c1, model, repeats) for c1, model in models.items()]


@study("06_training_speed.csv", frozen=("sbcd", "path, sbcd", "objective, batched", "objective, sparse"))
def training_speed(n_repeats=3, n_words=None):
    """A sweep and a gradient of trained models, few to all weights active, in parts; some minutes."""
    jobs = [({"data": "NetTalk"}, partial(training_rows, n_repeats, n_words))]
    yield "06_training_speed.csv", jobs, [dataset("nettalk")]


# ---- L1 on CoNLL-2000, beside CRFsuite, and beside L2 down a path of c1 ----

# c1, each from the solution of the one before
STRENGTHS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.06, 0.03, 0.015, 0.0075)
RIDGES = (1.0, 0.3, 0.1, 0.05, 0.03)  # c2
NEAR = 0.05  # on the path training ends where no pseudo-gradient exceeds this share of c1
HELD_OUT = 10  # every tenth training sentence chooses c1, and c2


def train_l1(work, c1, start=None, **settings):
    """`Run` of `minimize_on_support`, or of `minimize` if `settings` name an l1_method; with the layout."""
    learner = descend if "l1_method" in settings else minimize_on_support
    start = np.zeros(work.features.n_features) if start is None else start
    return follow(learner, work.corpus, work.features, start, c1=c1, **settings)


def crfsuite_l1(work, c1):
    """CRFsuite's OWL-QN on the same features, to its own stop: a `Run` without steps."""
    peer = crfsuite.trainer(*crfsuite.sentences(work), c1=c1, c2=0.0)
    (tagger, log), seconds = timed(crfsuite.train, peer)
    trials = sum(int(step.get("linesearch_trials", 1)) for step in log.iterations)
    w, objective = crfsuite.weights_of(work, tagger), float(log.iterations[-1]["loss"])
    return Run(OptResult(w, objective, "its own stop", len(log.iterations), [], {}, trials), seconds, [])


@study("06_benchmarks.csv", frozen=("owlqn", "lbfgs, elastic net", "objective, auto"))
def owlqn(repeats=1):
    """L1 to the certificate, CoNLL-2000, c1 = 1, against CRFsuite's OWL-QN to its own stop; minutes."""
    work = load("chunking", verbose=True)
    train_l1(work, 1.0, max_iterations=30)  # machine code
    (theirs, seconds, _), (ours, our_seconds, ticks) = crfsuite_l1(work, 1.0), train_l1(work, 1.0)
    goal, n, n_theirs = theirs.objective, np.count_nonzero(ours.w), np.count_nonzero(theirs.w)

    def stop(step, w, seconds):
        return step.objective <= goal

    plain = train_l1(work, 1.0, l1_method="owlqn", max_iterations=1500, look=stop)
    value, grad = Objective(work.corpus, work.features)(ours.w)
    largest = pseudo_gradient(ours.w, grad, 1.0, np.empty_like(grad))[1]
    note = f"{ours.status}: largest pseudo-gradient {largest:.1e} (at most 1e-3 asked), "
    note += f"duality gap at most {duality_gap(value, grad, ours.w, 1.0):.3g} nats; "
    note += f"{ours.n_evaluations} evaluations against {theirs.n_evaluations}"
    line = "L1, c1 = 1, until certified, 1 thread"
    yield Row(line, our_seconds, seconds, "CPU s", 0.5, 0.3, note)
    note = f"{ours.objective:.4f} with {n:,} weights, {goal:.4f} with {n_theirs:,}; "
    note += "test F1 {:.2f} and {:.2f}".format(*(work.scores(found.w)["test"] for found in (ours, theirs)))
    yield Row("the same: objective", ours.objective, goal, "nats", 1.0, None, note)
    there = [(i, tick.cpu) for i, tick in enumerate(ticks, 1) if tick.step.objective <= goal]
    note, level = (f"{there[0][0]} iterations", there[0][1]) if there else ("never", float("nan"))
    yield Row("the same: until CRFsuite's objective", level, seconds, "CPU s", 0.5, 0.3, note)
    end = plain.result
    note = f"{end.n_iter} iterations, {end.n_evaluations} evaluations, {end.objective:.2f}, memory 10"
    line = "textbook OWL-QN until CRFsuite's objective"
    yield Row(line, plain.seconds, seconds, "CPU s", None, None, note)


def penalty_path(strengths=STRENGTHS, ridges=RIDGES):
    """Two lists of dicts: for each c1, each from the one before, and for each c2 of L2 alone, from zeros.

    F1 on dev is that of a model trained without every tenth sentence, on these; all else of a model of all.
    violation: the largest pseudo-gradient, at most NEAR of c1 where c1 > 0. gain, p: F1 on test less that of
    the c2 that is best on dev, and its paired test.
    """
    template, train, parts = columns_of("chunking", verbose=True)
    whole, held = encode("chunking", template, train, parts), np.arange(len(train)) % HELD_OUT == 0
    rest, dev = (train.take(np.flatnonzero(keep)) for keep in (~held, held))
    part, w, tables = encode("chunking", template, rest, {"dev": dev}), [None, None], ([], [])
    for c1 in strengths:
        starts = zip((part, whole), w, strict=True)
        runs = [train_l1(work, c1, start, tol_gradient=NEAR * c1) for work, start in starts]
        w = [run.result.w for run in runs]
        tables[0].append(_path_row(c1, 0.0, part, whole, *runs))
    for c2 in ridges:
        runs = [follow(fast_fit, work.corpus, work.features, c2=c2, tol=1e-5) for work in (part, whole)]
        tables[1].append(_path_row(0.0, c2, part, whole, *runs))
    best = max(tables[1], key=lambda row: float(row["dev F1"]))["guess"]
    for row in sum(tables, []):
        test = paired_test(whole.parts["test"].gold, best, row.pop("guess"))
        row |= {"gain": f"{100 * test.difference:+.2f}", "p": f"{test.p_value:.4f}"}
    return tables


def _path_row(c1, c2, part, whole, tried, run):
    gold, found = whole.parts["test"].gold, run.result
    guess = whole.guess(found.w, "test")
    value, low, high = (f"{100 * x:.2f}" for x in bootstrap_interval(gold, guess))
    grad = Objective(whole.corpus, whole.features, c2=c2)(found.w)[1]
    return {
        "c1": c1, "c2": c2, "offered": whole.features.n_features, "not zero": int(np.count_nonzero(found.w)),
        "objective": f"{found.objective:.4f}",
        "violation": f"{pseudo_gradient(found.w, grad, c1, np.empty_like(grad))[1]:.1e}",
        "evaluations": found.n_evaluations, "dev F1": f"{part.scores(tried.result.w)['dev']:.2f}",
        "test F1": value, "95 % from": low, "to": high, "CPU seconds": f"{run.seconds:.1f}", "guess": guess,
    }  # fmt: skip


@study("06_l1_path.csv", frozen=("owlqn", "auto", "lbfgs", "decoding, dense"))
def l1_path(**strengths):
    """CoNLL-2000: F1 and size of models for falling c1, and for several c2; half an hour."""
    yield "06_l1_path.csv", [({}, lambda: sum(penalty_path(**strengths), []))], [dataset("chunking")]
