"""Stochastic dual coordinate ascent (SDCA), certified by a duality gap.

Each sequence has a dual distribution over its labellings. The weights are a sum over all of them. A visit
moves one distribution towards the model's, to (nearly) its best place. There is no learning rate.
Sequences whose gap was tiny at their last visit are skipped in most epochs.

    primal  P(w) = sum_i m_i (log Z_i(w) - w.S_i) + c2 |w|^2     S_i: features of the gold labels, m_i: weight
    dual    D(a) = sum_i m_i H(a_i) - c2 |w(a)|^2,   w(a) = 1/(2 c2) sum_i m_i (S_i - E_{a_i} S)
    P(w(a)) - D(a) = sum_i m_i KL(a_i || p(.|x_i; w(a))) >= 0             the gap: 0 only at the optimum

Each a_i is a chain, kept by its log potentials nu (of nodes, and of label pairs that have a weight) and its
marginals mu. With s the scores of the sequence at w(a), a step of size g goes along the geometric mixture,
which is a chain again:

    nu(g) = nu + g (s - nu),   mu(g) = marginals of nu(g),   H = log Z(nu) - nu.mu
    v = (s - nu).(mu(g) - mu),   q = |X'(mu(g) - mu)|^2 / (2 c2)          X' : from scores back to weights
    D rises by about  m (g v' - g^2 (v' + m q') / 2),  v' = v/g, q' = q/g^2;
    this is largest at  g* = v / (v + m q / g)

To first order in g, v/g is the variance of s - nu under a_i, so v/(2g) estimates the gap KL(a_i || p_i)
before the step. A step is kept if D, computed exactly, rises by RISE m v; else a shorter one is tried.
The next visit begins with g*.

`theta (C,)`, `layout` and the two sets of work arrays are explained in chain/sequence.py: the present scores
s of a sequence are in `work`, what is tried in `trial`. `memory` is a DualMemory.

Sources: Le Priol, Piche and Lacoste-Julien (2018), "Adaptive stochastic dual coordinate ascent for
conditional random fields"; the step along potentials, which keeps a chain a chain,
is the exponentiated gradient of Collins et al. (2008).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crfbook._checks import number, whole
from crfbook._jit import kernel
from crfbook.chain.objective import check_weights
from crfbook.chain.scores import value_of
from crfbook.chain.sequence import (
    feature_matrix,
    marginals_of,
    plain_marginals,
    score_sequence,
    sequence_marginals,
)
from crfbook.chain.token_layout import cells_of, epoch_order, sequence_work, weights_of
from crfbook.chain.vector_math import clear_table, copy_row, copy_table
from crfbook.data.constraints import Limits
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.learners.stochastic.averaged import Rememberer, check_need, edge_places, memory_bytes
from crfbook.training.certificate import Rules
from crfbook.training.interrupts import interruptible_stretches
from crfbook.training.loop import Callback, OptResult, State, run

WHOLE_EPOCHS = 3  # at the start: every sequence
SKIP_BELOW = 0.3  # times the mean gap: skipped later, ...
SKIP_AT_MOST = 3  # ... but not in more epochs in a row
RISE = 0.15  # of m v: a step of the best size gains v m / 2, one twice as long nothing
NEGLIGIBLE = 1e-11  # v, in nats, that is not worth a step
MAX_TRIALS = 30
SHORTEST = 1e-4  # step size
FIRST_RATE = 0.5  # step size of the second visit


class DualMemory(NamedTuple):
    """The dual distributions of S sequences (N tokens, K edge classes):
    log potentials nu and marginals mu of chains.
    """

    nu: np.ndarray  # (N, L), 0 where a label is forbidden
    mu: np.ndarray  # (N, L)
    edge_nu: np.ndarray  # (n_edge_memory,): for the label pairs that have a weight, see averaged.py
    edge_mu: np.ndarray  # (n_edge_memory,): sums of pair marginals over the tokens of a class
    edge_start: np.ndarray  # int64 (S+1,): those of sequence s
    pair_ptr: np.ndarray  # int64 (K+1,)
    pair: np.ndarray  # int64: label pairs previous * M + next of each class that have a weight
    square: np.ndarray  # (N,): |x_t|^2, edge attributes included
    entropy: np.ndarray  # (S,): nats
    gap: np.ndarray  # (S,): weight * KL(dual distribution || model) in nats, estimated at the last visit
    rate: np.ndarray  # (S,): step size of the next visit, 0 before the first


@kernel
def mix_potentials(s, g, layout, memory, work, trial):
    """Scores of `trial` <- nu + g (scores of `work` - nu); what is forbidden stays so.

    Arguments:
        s, layout, work : after `score_sequence`
        g : step size
        memory : what is remembered, see the top
    Out:
        trial : log_node, log_edge
    Cost: T L + L^2 an edge class.
    Source: Collins et al. (2008), section 4: exponentiated gradient steps of cliques.
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    L = memory.nu.shape[1]
    for t in range(n):
        u, out, old = work.log_node[t], trial.log_node[t], memory.nu[first + t]
        for y in range(L):
            out[y] = old[y] + g * (u[y] - old[y])
        for y in range(L, u.size):
            out[y] = -np.inf
    m = memory.edge_start[s]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        copy_table(work.log_edge, k, trial.log_edge)
        table = trial.log_edge[k].reshape(-1)
        for c in memory.pair[memory.pair_ptr[k] : memory.pair_ptr[k + 1]]:
            table[c] = memory.edge_nu[m] + g * (table[c] - memory.edge_nu[m])
            m += 1


@kernel
def rise_of_gold(p, a):
    """b = a (1 - mu'), mu' = 1 / (1 + exp(-b) (1 - p) / p), by Newton's method inside an interval.

    Arguments:
        p : probability of the gold label
        a : > 0
    Cost: an exp a step, few steps.
    Source: the first step of coordinate ascent with one token and its gold label alone, Le Priol et al.
    (2018).
    """
    p = min(max(p, 1e-300), 1.0)
    odds = (1.0 - p) / p
    low, high = 0.0, a
    b = 0.5 * min(a, 4.0)
    for _ in range(30):
        miss = odds / (odds + np.exp(min(b, 700.0)))  # 1 - mu'
        excess = b - a * miss
        low, high = (low, b) if excess > 0.0 else (b, high)
        new = b - excess / (1.0 + a * miss * (1.0 - miss))
        new = new if new > low and new < high else 0.5 * (low + high)
        done = abs(new - b) < 1e-3 * (1.0 + b)
        b = new
        if done:
            break
    return b


@kernel
def lean_to_gold(s, share, layout, memory, work, trial):
    """Scores of `trial` <- scores of `work`, the gold labels raised: potentials for a first visit,
    when mu is the gold labels.

    The best nu is s - X X'(mu' - mu) m / (2 c2). With one token and its gold label y alone, X X' = |x_t|^2,
    that is nu[t, y] = s[t, y] + b,  b of `rise_of_gold`,  a = share |x_t|^2.

    Arguments:
        s, layout : a sequence, an `OnlineLayout`
        share : m / (2 c2), more if that was not enough
        memory : its square
        work : scores of s, and its p_node
    Out:
        trial : log_node, log_edge
    Cost: T L, L^2 an edge class.
    Source: the first step of coordinate ascent, Le Priol et al. (2018).
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    for t in range(n):
        copy_row(work.log_node, t, trial.log_node, t)
        y = layout.labels[first + t]
        trial.log_node[t, y] += rise_of_gold(work.p_node[t, y], share * memory.square[first + t])
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        copy_table(work.log_edge, k, trial.log_edge)


@kernel
def compare_marginals(s, layout, memory, work, trial):
    """What a trial changes: work.p_node, work.edge_sum <- mu - mu(g); returns nu(g).mu(g), v and
    s.(mu(g) - mu). v has no meaning before the first visit.

    Arguments:
        s, layout : a sequence, an `OnlineLayout`
        memory : its nu, mu
        trial : nu(g) as scores, mu(g) in p_node, edge_sum
    Out:
        work : holds the scores of s; its p_node, edge_sum are overwritten
    Cost: T L, and the pairs with a weight of the classes used.
    Source: Le Priol et al. (2018), section 3.
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    L = memory.nu.shape[1]
    level = slope = score = 0.0
    for t in range(n):
        u, old, mu = work.log_node[t], memory.nu[first + t], memory.mu[first + t]
        new, p, delta = trial.log_node[t], trial.p_node[t], work.p_node[t]
        for y in range(L, delta.size):
            delta[y] = 0.0
        for y in range(L):
            change = p[y] - mu[y]
            delta[y] = -change
            if u[y] > -np.inf:  # forbidden labels have mu = 0 throughout
                level += new[y] * p[y]
                slope += (u[y] - old[y]) * change
                score += u[y] * change
    m = memory.edge_start[s]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        u_edge, new_edge = work.log_edge[k].reshape(-1), trial.log_edge[k].reshape(-1)
        p_edge, delta_edge = trial.edge_sum[k].reshape(-1), work.edge_sum[k].reshape(-1)
        for c in memory.pair[memory.pair_ptr[k] : memory.pair_ptr[k + 1]]:
            change = p_edge[c] - memory.edge_mu[m]
            delta_edge[c] = -change
            if u_edge[c] > -np.inf:
                level += new_edge[c] * p_edge[c]
                slope += (u_edge[c] - memory.edge_nu[m]) * change
                score += u_edge[c] * change
            m += 1
    return level, slope, score


@kernel
def remember_dual(s, layout, memory, trial):
    """nu, mu of sequence s <- those of the trial.

    Arguments:
        s, layout, trial
    Out:
        memory : what is remembered, see the top
    Forbidden labels keep nu = 0, mu = 0.
    Cost: T L, and the pairs with a weight of the classes used.
    Source: Le Priol et al. (2018), Algorithm 1.
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    for t in range(n):
        nu, mu, new, p = memory.nu[first + t], memory.mu[first + t], trial.log_node[t], trial.p_node[t]
        for y in range(nu.size):
            nu[y] = new[y] if new[y] > -np.inf else 0.0
            mu[y] = p[y]
    m = memory.edge_start[s]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        new_edge, p_edge = trial.log_edge[k].reshape(-1), trial.edge_sum[k].reshape(-1)
        for c in memory.pair[memory.pair_ptr[k] : memory.pair_ptr[k + 1]]:
            memory.edge_nu[m] = new_edge[c] if new_edge[c] > -np.inf else 0.0
            memory.edge_mu[m] = p_edge[c]
            m += 1


@kernel
def gold_score(s, layout, work):
    """s.S: the score of the gold labels of sequence s.

    Arguments:
        s, layout, work : after `score_sequence`
    Cost: T.
    Source: chapter 01.
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    score = work.log_node[0, layout.labels[first]]
    for t in range(1, n):
        k, yp, y = layout.edge_class[first + t], layout.labels[first + t - 1], layout.labels[first + t]
        score += work.log_node[t, y] + work.log_edge[k, yp, y]
    return score


@kernel
def move_weights(s, step, layout, work, theta):
    """`add_gradient`: theta <- theta + step * X'(work.p_node, work.edge_sum); returns the change of
    |theta|^2, too, which costs little.

    (theta + x)^2 - theta^2 = x (2 theta + x), summed as the cells are visited; a cell visited twice
    telescopes.

    Arguments:
        s, layout, work : as in `score_sequence`
        step : factor of the gradient
    Out:
        theta : (C,), added to
    Cost: one addition per stored (occurrence, weight) pair.
    Source: Sokolovska et al. (2010), eq. (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    dense, w, cell = theta[: H * M].reshape(H, M), theta[H * M :], work.p_node.reshape(-1)
    row_sum, change = np.zeros(M), 0.0
    for i in range(layout.dense_ptr[first], layout.dense_ptr[last]):
        h = layout.dense_id[i]
        row, exists, p = dense[h], layout.exists[h], work.p_node[layout.dense_row[i]]
        f = step * value_of(layout.dense_val, i)
        for y in range(M):
            x = f * p[y] * exists[y]
            row_sum[y] += x * (2.0 * row[y] + x)
            row[y] += x
    for y in range(M):
        change += row_sum[y]
    for i in range(layout.pair_ptr[first], layout.pair_ptr[last]):
        k = layout.pair_weight[i]
        x = step * cell[layout.pair_cell[i]] * value_of(layout.pair_val, i)
        change += x * (2.0 * w[k] + x)
        w[k] += x
    w_edge = theta[theta.size - layout.edge_cell.size :]
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        table = work.edge_sum[k].reshape(-1)
        for b in layout.class_attr[layout.class_ptr[k] : layout.class_ptr[k + 1]]:
            for e in range(layout.edge_ptr[b], layout.edge_ptr[b + 1]):
                x = step * table[layout.edge_cell[e]]
                change += x * (2.0 * w_edge[e] + x)
                w_edge[e] += x
    return change


@kernel
def sdca_epoch(order, c2, layout, memory, work, trial, theta):
    """One step for the dual distribution of each sequence of `order`; returns -1,
    or a sequence whose log Z is not finite (nothing of it is changed then).

    Arguments:
        order : int64 (n,), sequences that are not empty and have a weight > 0
        c2 : > 0
        layout : an `OnlineLayout`
    Out:
        memory : what is remembered, see the top
        theta : (C,)
    Work:
        work, trial : work arrays, see the top
    Cost for each: 3 T L^2 and two additions per stored (occurrence, weight) pair, more for trials that fail
    (one visit in twenty).
    Source: Le Priol et al. (2018), Algorithm 1; the path of steps is that of Collins et al. (2008).
    """
    for s in order:
        weight, is_first, g = layout.weight[s], memory.rate[s] == 0.0, memory.rate[s]
        share = weight / (2.0 * c2)
        lean = share
        first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
        used = layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]
        edge_class = layout.edge_class[first:last]
        u, u_trial = work.log_node[: last - first], trial.log_node[: last - first]
        score_sequence(s, theta, 1.0, layout, work)
        for _ in range(MAX_TRIALS):
            if is_first:
                log_z = sequence_marginals(u, work.log_edge, edge_class, used, work)
                lean_to_gold(s, lean, layout, memory, work, trial)
            else:
                log_z = 0.0
                mix_potentials(s, g, layout, memory, work, trial)
            log_z_trial = sequence_marginals(u_trial, trial.log_edge, edge_class, used, trial)
            if not (np.isfinite(log_z) and np.isfinite(log_z_trial)):
                return s
            level, v, score = compare_marginals(s, layout, memory, work, trial)
            entropy = log_z_trial - level
            memory.gap[s] = weight * (
                log_z - gold_score(s, layout, work) if is_first else max(0.0, v) / (2.0 * g)
            )
            if v <= NEGLIGIBLE and not is_first:
                break
            change = move_weights(s, share, layout, work, theta)
            rise = weight * (entropy - memory.entropy[s]) - c2 * change
            best = FIRST_RATE
            if not is_first:
                best = weight * v / (weight * v + 2.0 * (c2 * change + weight * score) / g)
            if rise >= (0.0 if is_first else RISE * weight * v):
                remember_dual(s, layout, memory, trial)
                memory.entropy[s], memory.rate[s] = entropy, min(max(best, SHORTEST), 1.0)
                break
            move_weights(s, -share, layout, work, theta)
            lean *= 3.0
            g *= min(max(best / g, 0.1), 0.5) if g > 0.0 else 0.0
    return -1


def sdca_epoch_plain(order, c2, w, memory, square, corpus, features):
    """The readable sister of `sdca_epoch`, on weights w (F,), moved, without hard constraints.

    order : sequences with a weight above 0.
    c2 : > 0, the penalty.
    memory : {sequence: (nu, mu, entropy, rate)} of the sequences visited so far, nu and mu of all cells of
        `feature_matrix`; filled. Before its first visit mu of a sequence are its gold labels.
    square : (N,): |x_t|^2 of each token, edge attributes included.
    Source: Le Priol et al. (2018), Algorithm 1; Collins et al. (2008), section 4.
    """
    for s in order:
        X, gold = feature_matrix(s, corpus, features)
        u, m, L = X @ w, corpus.weights[s], features.n_labels
        is_first = s not in memory
        nu, mu, entropy, g = memory.get(s, (u, gold, 0.0, 1.0))
        p_gold = plain_marginals(u, L)[1] * gold
        lean = m / (2.0 * c2)
        for _ in range(MAX_TRIALS):
            new = nu + g * (u - nu)
            # at the first visit: u, with the score of each gold label raised
            if is_first:
                for t in range(corpus.seq_ptr[s], corpus.seq_ptr[s + 1]):
                    cell = (t - corpus.seq_ptr[s]) * L + corpus.labels[t]
                    new[cell] += rise_of_gold(p_gold[cell], lean * square[t])
            log_z, p = plain_marginals(new, L)
            v = (u - nu) @ (p - mu)
            if not is_first and v <= NEGLIGIBLE:
                break
            step = X.T @ (mu - p) * m / (2.0 * c2)
            # of the dual: m times the entropy, less the penalty
            rise = m * (log_z - new @ p - entropy) - c2 * (2.0 * w + step) @ step
            best = FIRST_RATE if is_first else m * v / (m * v + 2.0 * c2 * step @ step / g)
            if rise >= (0.0 if is_first else RISE * m * v):
                w += step
                memory[s] = new, p, log_z - new @ p, min(max(best, SHORTEST), 1.0)
                break
            lean, g = 3.0 * lean, g * min(max(best / g, 0.1), 0.5)


@kernel
def start_at_gold(order, layout, memory, trial):
    """mu <- the gold labels of each sequence of `order`, whose entropy is 0:
    the dual point with w = 0 and D = 0.

    Arguments:
        order : int64 (n,)
        layout : an `OnlineLayout`
    Out:
        memory : what is remembered, see the top
    Work:
        trial : work arrays
    Cost: T L + L^2 an edge class.
    Source: Collins et al. (2008), section 4.
    """
    for s in order:
        first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
        for t in range(n):
            for y in range(trial.p_node.shape[1]):
                trial.log_node[t, y], trial.p_node[t, y] = 0.0, 0.0
        for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
            clear_table(k, trial.log_edge)
            clear_table(k, trial.edge_sum)
        for t in range(n):
            y = layout.labels[first + t]
            trial.p_node[t, y] = 1.0
            if t > 0:
                trial.edge_sum[layout.edge_class[first + t], layout.labels[first + t - 1], y] += 1.0
        remember_dual(s, layout, memory, trial)


@kernel
def start_at_scores(order, c2, layout, memory, work, trial, theta_0, theta):
    """a_i <- p(.|x_i; w_0) for each sequence of `order`, after `start_at_gold`, and theta <- w(a); -1,
    or a sequence without finite log Z.

    Arguments:
        order : int64 (n,)
        c2, layout : as in `sdca_epoch`
        theta_0 : (C,), w_0
    Out:
        memory : what is remembered, see the top
        theta : (C,), 0 before
    Work:
        work, trial : work arrays, see the top
    Cost: as one visit to each.
    Source: Le Priol et al. (2018), section 3.
    """
    for s in order:
        score_sequence(s, theta_0, 1.0, layout, work)
        mix_potentials(s, 1.0, layout, memory, work, trial)
        log_z = marginals_of(s, layout, trial)
        if not np.isfinite(log_z):
            return s
        level, _, _ = compare_marginals(s, layout, memory, work, trial)
        move_weights(s, layout.weight[s] / (2.0 * c2), layout, work, theta)
        remember_dual(s, layout, memory, trial)
        memory.entropy[s], memory.rate[s] = log_z - level, FIRST_RATE
        memory.gap[s] = np.inf
    return -1


def sdca(
    corpus: Corpus,
    features: FeatureSet,
    w0: ArrayLike | None = None,
    *,
    c2: float,
    tol: float = 1e-4,
    memory_limit: float = 2e9,
    constraints: Limits = None,
    max_iterations: int = 200,
    random_state: int = 0,
    callback: Callback = None,
    state: State = None,
) -> OptResult:
    """Minimise -log-likelihood + c2 |w|^2 by stochastic dual coordinate ascent.

    Parameters
    ----------
    corpus, features : S sequences, every token labelled; F weights.
        Sequences of length 0 or weight 0 are left out.
    w0 : (F,) weights whose distributions are the start,
        if their dual value is above that of the gold labels (0); default: those.
    c2 : > 0; the dual needs it.
    tol : stop when the duality gap is at most tol * max(1, objective):
        the objective is at most that far above its minimum.
    memory_limit : bytes that `sdca_memory` may reach.
    constraints : Constraints or None.
    max_iterations : epochs in all, those of `state` included.
    random_state : int, the seed.
    callback : called with (Step, w) after each epoch, w read-only; True stops.
    state : `OptResult.state` of an earlier call on the same problem; continues bit for bit and is not
        changed. After Ctrl-C the epoch that was cut short begins again, with what it had reached.

    Returns an `OptResult`. `Step.violation` is the gap and `Step.objective` the dual value plus the gap, both
    in nats: estimates from the last visits. Where they promise an end, one pass over the corpus gives the
    exact ones, which alone end it ("converged"). `n_evaluations` counts passes: visits / S, and such
    evaluations. Other statuses: "max_iterations", "stopped by callback", "interrupted",
    "non-finite objective".

    Raises MemoryError before anything is allocated, and ValueError for labels that are unknown or forbidden,
    weights that are not finite, parameters out of range.
    """
    check_memory(corpus, features, memory_limit)
    max_iterations = whole("max_iterations", max_iterations)
    arguments = corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations
    return run(DualAscent(*arguments), callback)


def sdca_memory(corpus, features):
    """Bytes that `sdca` will hold: 2 N L + 2 (label pairs of the sequences) doubles, layout of the corpus,
    vectors of weights.
    """
    return memory_bytes(corpus, features, remembered=2, vectors=1, works=2, per_token=48)


def check_memory(corpus, features, memory_limit):
    """MemoryError if `sdca_memory` is more than memory_limit bytes."""
    need = sdca_memory(corpus, features)
    check_need("sdca remembers a distribution for", need, memory_limit, "lbfgs")


class DualAscent(Rememberer):
    """The dual distributions, and the weights that follow from them.

    Until an epoch has ended the weights returned are w0, if it was given. A state holds those of the dual
    point, `w`: to go on from others would certify a wrong gap.
    """

    name, first = "sdca", "nu"
    kept = ("nu", "mu", "edge_nu", "edge_mu", "entropy", "gap", "rate")
    numbers = Rememberer.numbers | {"passes": 0.0}
    least, trust = 0.5, 0.9
    warm = None  # (F,): the weights of which `begin` takes the distributions
    evaluated = False  # those

    def __init__(
        self, corpus, features, w0, constraints, state, random_state, c2, tol, max_iterations=None
    ):  # fmt: skip
        number("c2", c2, above=0.0, note=" (the dual divides by it; for c2 = 0 use lbfgs or sag)")
        rules = Rules(0.0, c2, tol)
        super().__init__(corpus, features, w0, constraints, state, random_state, rules, max_iterations)
        if w0 is not None:
            self.start = check_weights(w0, features.n_features).copy()
        width = self.layout.exists.shape[1]
        self.work, self.trial = sequence_work(corpus, width), sequence_work(corpus, width)
        self.last = np.array(self.given.get("last", np.zeros(corpus.n_sequences, np.int64)))
        if state is None:
            self.warm = self.w if self.w.any() else None
            self._start_at_gold()
        else:
            self.memory, self.theta = self._empty_memory(), cells_of(self.cells, self.w)
            self.recall()

    @np.errstate(over="ignore")
    def _empty_memory(self):
        corpus, n = self.corpus, self.corpus.n_sequences
        places = edge_places(corpus, self.features, self.layout.exists.shape[1])
        nu, mu = np.zeros((2, corpus.n_tokens, self.features.n_labels))
        square = np.bincount(corpus.attr_token, corpus.values**2, minlength=corpus.n_tokens)
        square = square + np.diff(corpus.class_ptr)[corpus.edge_class].astype(np.float64)
        return DualMemory(nu, mu, *np.zeros((2, places[0][-1])), *places, square, *np.zeros((3, n)))

    def _start_at_gold(self):
        self.memory, self.w = self._empty_memory(), np.zeros_like(self.w)
        start_at_gold(self.sequences, self.layout, self.memory, self.trial)
        self.theta = cells_of(self.cells, self.w)

    def begin(self):
        """Dual distributions of w0 if they are worth more than the gold labels, else those."""
        if self.warm is not None:
            arrays = self.layout, self.memory, self.work, self.trial
            scores = cells_of(self.cells, self.warm)
            for part in interruptible_stretches(self.sequences):
                if start_at_scores(part, self.c2, *arrays, scores, self.theta) >= 0:
                    break
            self.passes += 1
            self.settle()
            if not self.dual() > 0.0:
                self._start_at_gold()
        self.evaluated = True

    def state(self):
        return super().state() | {"last": self.last}

    def visit(self, order):
        """One visit to each sequence of `order`: -1, or a sequence whose log Z is not finite."""
        arrays = self.layout, self.memory, self.work, self.trial
        return sdca_epoch(order, self.c2, *arrays, self.theta)

    def advance(self):
        """A visit to each sequence in random order; later only to those whose gap was not tiny,
        or that have waited long enough.
        """
        chosen, gap = self.sequences, self.memory.gap
        if self.iteration >= WHOLE_EPOCHS:
            large = gap[chosen] >= SKIP_BELOW * gap[chosen].sum() / max(1, len(chosen))
            chosen = chosen[large | (self.iteration - self.last[chosen] > SKIP_AT_MOST)]
        order = chosen[epoch_order(self.seed, self.iteration + 1, len(chosen))]
        for part in interruptible_stretches(order):
            if self.visit(part) >= 0:
                return "non-finite objective"
        self.last[chosen] = self.iteration
        self.iteration += 1
        self.passes += len(chosen) / max(1, len(self.sequences))
        self.settle()
        self.judge()
        return None

    def settle(self):
        """The weights of the present dual point. Every visit leaves it good, so nothing is undone."""
        self.w, self.exact = weights_of(self.cells, self.theta), None

    def final_objective(self):
        return super().final_objective() if self.evaluated else float("nan")

    def dual(self):
        """The dual value, in nats: a lower bound of the objective's minimum."""
        return float(self.layout.weight @ self.memory.entropy) - self.c2 * float(self.w @ self.w)

    def estimate(self):
        gap = float(self.memory.gap.sum())
        return self.dual() + gap, gap

    def certified(self, value, grad):
        return value, value - self.dual()
