# wrong: the sign is lost | soft-test
def soft(z, c):
    return np.maximum(np.abs(z) - c, 0.0)

# wrong: a cut, not a threshold: what is left is not moved | soft-test
def soft(z, c):
    return np.where(np.abs(z) > c, z, 0.0)

# wrong: moved past zero | soft-test
def soft(z, c):
    return z - c * np.sign(z)

# wrong: the answer of the shown example | soft-test
def soft(z, c):
    return np.array([2.0, 0.0, -1.0])

# wrong: a zero weight has the plain gradient | pseudo-test
def pseudo_gradient(w, g, c1):
    return g + c1 * np.sign(w)

# wrong: the sides of the kink are swapped | pseudo-test
def pseudo_gradient(w, g, c1):
    at_zero = np.where(np.abs(g) > c1, g + c1 * np.sign(g), 0.0)
    return np.where(w != 0, g + c1 * np.sign(w), at_zero)

# wrong: the penalty pulls away from zero | pseudo-test
def pseudo_gradient(w, g, c1):
    at_zero = np.where(g + c1 < 0, g + c1, np.where(g - c1 > 0, g - c1, 0.0))
    return np.where(w != 0, g - c1 * np.sign(w), at_zero)

# wrong: weights below 1e-9 are taken for zero | pseudo-test
def pseudo_gradient(w, g, c1):
    at_zero = np.where(g + c1 < 0, g + c1, np.where(g - c1 > 0, g - c1, 0.0))
    return np.where(np.abs(w) > 1e-9, g + c1 * np.sign(w), at_zero)

# wrong: no component is dropped | orthant-test
def orthant_step(w, pg, d, step):
    orthant = np.where(w != 0, np.sign(w), -np.sign(pg))
    new = w + step * d
    return np.where(new * orthant > 0, new, 0.0)

# wrong: weights may cross zero | orthant-test
def orthant_step(w, pg, d, step):
    return w + step * np.where(d * pg < 0, d, 0.0)

# wrong: a zero weight never leaves | orthant-test
def orthant_step(w, pg, d, step):
    new = w + step * np.where(d * pg < 0, d, 0.0)
    return np.where(new * np.sign(w) > 0, new, 0.0)

# wrong: the orthant of a zero weight is that of the slope | orthant-test
def orthant_step(w, pg, d, step):
    new = w + step * np.where(d * pg < 0, d, 0.0)
    return np.where(new * np.where(w != 0, np.sign(w), np.sign(pg)) > 0, new, 0.0)

# wrong: tau is not limited to 1 | gap-test
def gap(value, w, g, c1):
    tau = c1 / max(np.abs(g).max(), 1e-300)
    return value + c1 * np.abs(w).sum() - tau * (value - g @ w)

# wrong: the penalty of w is left out | gap-test
def gap(value, w, g, c1):
    tau = min(1.0, c1 / max(np.abs(g).max(), 1e-300))
    return value - tau * (value - g @ w)

# wrong: g.w with the other sign | gap-test
def gap(value, w, g, c1):
    tau = min(1.0, c1 / max(np.abs(g).max(), 1e-300))
    return value + c1 * np.abs(w).sum() - tau * (value + g @ w)

# wrong: rows and columns of the pairs are swapped | forward-test
def sparse_forward(psi_node, rows, columns, gain):
    alpha, log_z = np.empty_like(psi_node), 0.0
    for t in range(len(psi_node)):
        mass = np.ones(psi_node.shape[1])
        if t:
            np.add.at(mass, rows, alpha[t - 1][columns] * gain)
        alpha[t] = psi_node[t] * mass
        log_z += np.log(alpha[t].sum())
        alpha[t] /= alpha[t].sum()
    return alpha, log_z

# wrong: of several pairs into a label only the last counts | forward-test
def sparse_forward(psi_node, rows, columns, gain):
    alpha, log_z = np.empty_like(psi_node), 0.0
    for t in range(len(psi_node)):
        mass = np.ones(psi_node.shape[1])
        if t:
            mass[columns] += alpha[t - 1][rows] * gain
        alpha[t] = psi_node[t] * mass
        log_z += np.log(alpha[t].sum())
        alpha[t] /= alpha[t].sum()
    return alpha, log_z

# wrong: nothing is divided out, and long words overflow | forward-test
def sparse_forward(psi_node, rows, columns, gain):
    alpha = psi_node.copy()
    for t in range(1, len(psi_node)):
        mass = np.full(psi_node.shape[1], alpha[t - 1].sum())
        np.add.at(mass, columns, alpha[t - 1][rows] * gain)
        alpha[t] *= mass
    return alpha / alpha.sum(1, keepdims=True), np.log(alpha[-1].sum())

# wrong: pairs that are not stored are forbidden | forward-test
def sparse_forward(psi_node, rows, columns, gain):
    alpha, log_z = np.empty_like(psi_node), 0.0
    for t in range(len(psi_node)):
        mass = np.full(psi_node.shape[1], 1e-300 if t else 1.0)
        if t:
            np.add.at(mass, columns, alpha[t - 1][rows] * (1 + gain))
        alpha[t] = psi_node[t] * mass
        log_z += np.log(alpha[t].sum())
        alpha[t] /= alpha[t].sum()
    return alpha, log_z

# wrong: the leader counts with weight zero although it is stored | best-test
def best_scores(before, rows, columns, weight):
    best = np.full(len(before), before.max())
    np.maximum.at(best, columns, before[rows] + weight)
    return best

# wrong: stored pairs alone | best-test
def best_scores(before, rows, columns, weight):
    best = np.full(len(before), -1e30)
    np.maximum.at(best, columns, before[rows] + weight)
    return best

# wrong: the table is read as [next, previous] | best-test
def best_scores(before, rows, columns, weight):
    table = np.zeros((len(before), len(before)))
    table[columns, rows] = weight
    return (before[:, None] + table).max(0)

# wrong: where all pairs are stored, the leader counts with weight zero | best-test
def best_scores(before, rows, columns, weight):
    order, best = np.argsort(-before), np.empty(len(before))
    for y in range(len(before)):
        asks = rows[columns == y]
        free = [k for k in order if k not in asks] or order
        best[y] = max([before[free[0]], *(before[asks] + weight[columns == y])])
    return best
