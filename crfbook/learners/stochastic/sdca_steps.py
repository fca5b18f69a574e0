"""Stochastic dual coordinate ascent for chains: one sequence's dual distribution at a time moves towards the
model's.

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

`theta (C,)` and `layout` are explained in chain/sequence.py. `memory` is a DualMemory of dual.py, with nu and
mu of tokens and of the label pairs that have a weight. The present scores s of a sequence are in `work`, what
is tried in `trial`: two sets of the work arrays of chain/sequence.py.
"""

import numpy as np

from crfbook._jit import kernel
from crfbook.chain.sequence import marginals_of, score_sequence, sequence_marginals
from crfbook.chain.vector_math import clear_table, copy_row, copy_table

RISE = 0.15  # of m v: a step of the best size gains v m / 2, one twice as long nothing
NEGLIGIBLE = 1e-11  # v, in nats, that is not worth a step
MAX_TRIALS = 30
SHORTEST = 1e-4  # step size
FIRST_RATE = 0.5  # step size of the second visit


@kernel
def mix_potentials(s, g, layout, memory, work, trial):
    """Scores of `trial` <- nu + g (scores of `work` - nu); what is forbidden stays so.

    Arguments: s, layout, work after `score_sequence`; g: step size; memory; out: trial: log_node, log_edge.
    Cost: T L + L^2 an edge class. Source: Collins et al.
    (2008), section 4: exponentiated gradient steps of cliques.
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
def lean_to_gold(s, share, layout, memory, work, trial):
    """Scores of `trial` <- scores of `work`, the gold labels raised: potentials for a first visit,
    when mu is the gold labels.

    The best nu is s - X X'(mu' - mu) m / (2 c2). With one token and its gold label y alone, X X' = |x_t|^2,
    that is nu[t, y] = s[t, y] + b,  b = a (1 - mu'),  mu' = 1 / (1 + exp(-b) (1 - p) / p),
    a = share |x_t|^2, solved by Newton.

    Arguments: s, layout; share = m / (2 c2), more if that was not enough; memory: square; work: scores, and
    p_node, marginals there; out: trial: log_node, log_edge. Cost: T L, L^2 an edge class. Source: the first
    step of coordinate ascent, Le Priol et al. (2018).
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    for t in range(n):
        copy_row(work.log_node, t, trial.log_node, t)
        y, a = layout.labels[first + t], share * memory.square[first + t]
        p = min(max(work.p_node[t, y], 1e-300), 1.0)
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
        trial.log_node[t, y] += b
    for k in layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]]:
        copy_table(work.log_edge, k, trial.log_edge)


@kernel
def compare_marginals(s, layout, memory, work, trial):
    """What a trial changes: work.p_node, work.edge_sum <- mu - mu(g); returns nu(g).mu(g), v and
    s.(mu(g) - mu). v has no meaning before the first visit.

    Arguments: s, layout; memory: nu, mu; work: the scores s, and out; trial: nu(g) as scores, mu(g) in
    p_node, edge_sum. Cost: T L, and the pairs with a weight of the classes used. Source: Le Priol et al.
    (2018), section 3.
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
    """nu, mu of sequence s <- those of the trial. Arguments: s, layout, trial; out: memory. Forbidden labels
    keep nu = 0, mu = 0. Cost: T L, and the pairs with a weight of the classes used. Source: Le Priol et al.
    (2018), Algorithm 1."""
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
    """s.S: the score of the gold labels of sequence s. Arguments: s, layout, work after `score_sequence`.
    Cost T. Source: chapter 01.
    """
    first, n = layout.seq_ptr[s], layout.seq_ptr[s + 1] - layout.seq_ptr[s]
    score = work.log_node[0, layout.labels[first]]
    for t in range(1, n):
        y = layout.labels[first + t]
        score += (
            work.log_node[t, y] + work.log_edge[layout.edge_class[first + t], layout.labels[first + t - 1], y]
        )
    return score


@kernel
def move_weights(s, step, layout, work, theta):
    """`add_gradient`: theta <- theta + step * X'(work.p_node, work.edge_sum); returns the change of
    |theta|^2, too, which costs little.

    (theta + x)^2 - theta^2 = x (2 theta + x), summed as the cells are visited; a cell visited twice
    telescopes. Arguments: s, layout, work as in `score_sequence`; step; out: theta (C,), added to. Cost: one
    addition per stored (occurrence, weight) pair. Source: Sokolovska et al. (2010), eq. (5).
    """
    first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
    H, M = layout.exists.shape
    dense, w, cell = theta[: H * M].reshape(H, M), theta[H * M :], work.p_node.reshape(-1)
    row_sum, change = np.zeros(M), 0.0
    for i in range(layout.dense_ptr[first], layout.dense_ptr[last]):
        h = layout.dense_id[i]
        row, exists, p = dense[h], layout.exists[h], work.p_node[layout.dense_row[i]]
        f = step * layout.dense_val[i] if layout.dense_val.size else step
        for y in range(M):
            x = f * p[y] * exists[y]
            row_sum[y] += x * (2.0 * row[y] + x)
            row[y] += x
    for y in range(M):
        change += row_sum[y]
    for i in range(layout.pair_ptr[first], layout.pair_ptr[last]):
        k = layout.pair_weight[i]
        x = step * cell[layout.pair_cell[i]] * (layout.pair_val[i] if layout.pair_val.size else 1.0)
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

    Arguments: order int64 (n,): not empty, weight > 0; c2 > 0; layout; out: memory, theta (C,); work: work,
    trial. Cost for each: 3 T L^2 and two additions per stored (occurrence, weight) pair, more for trials that
    fail (one visit in twenty). Source: Le Priol et al. (2018), Algorithm 1; the path of steps is that of
    Collins et al. (2008).
    """
    for s in order:
        weight, is_first, g = layout.weight[s], memory.rate[s] == 0.0, memory.rate[s]
        share = weight / (2.0 * c2)
        lean = share
        first, last = layout.seq_ptr[s], layout.seq_ptr[s + 1]
        used, edge_class = (
            layout.used[layout.used_ptr[s] : layout.used_ptr[s + 1]],
            layout.edge_class[first:last],
        )
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
            best = (
                weight * v / (weight * v + 2.0 * (c2 * change + weight * score) / g)
                if not is_first
                else FIRST_RATE
            )
            if rise >= (0.0 if is_first else RISE * weight * v):
                remember_dual(s, layout, memory, trial)
                memory.entropy[s], memory.rate[s] = entropy, min(max(best, SHORTEST), 1.0)
                break
            move_weights(s, -share, layout, work, theta)
            lean *= 3.0
            g *= min(max(best / g, 0.1), 0.5) if g > 0.0 else 0.0
    return -1


@kernel
def start_at_gold(order, layout, memory, trial):
    """mu <- the gold labels of each sequence of `order`, whose entropy is 0:
    the dual point with w = 0 and D = 0.

    Arguments: order int64 (n,); layout; out: memory; work: trial. Cost: T L + L^2 an edge class. Source:
    Collins et al. (2008), section 4.
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

    Arguments: order int64 (n,), c2, layout as in `sdca_epoch`; theta_0 (C,): w_0; out: memory, theta (C,), 0
    before; work: work, trial. Cost: as one visit to each. Source: Le Priol et al. (2018), section 3.
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
