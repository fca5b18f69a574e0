"""The dual distribution of one sequence in coordinate ascent (sdca_steps.py):
a chain with potentials nu and marginals mu.

It stands in `memory` (DualMemory of dual.py), for tokens and for the label pairs that have a weight.
The present scores s of the sequence are in `work`, what is tried in `trial`: two sets of the work arrays of
chain/sequence.py, where `layout` is explained.
"""

import numpy as np

from crfbook._jit import kernel


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
        trial.log_edge[k] = work.log_edge[k]
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
        trial.log_node[t] = work.log_node[t]
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
        trial.log_edge[k] = work.log_edge[k]


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
        delta[L:] = 0.0
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
