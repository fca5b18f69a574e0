# wrong: forbidden labels score 0 | masked-test
def masked(log_node, sets):
    return np.where(sets, log_node, 0.0)

# wrong: a mask of probabilities, added | masked-test
def masked(log_node, sets):
    return log_node + sets

# wrong: scores times the mask | masked-test
def masked(log_node, sets):
    return log_node * sets

# wrong: the logarithm of the mask in place of the scores | masked-test
def masked(log_node, sets):
    return np.where(sets, 0.0, -np.inf)

# wrong: written into the argument | masked-test
def masked(log_node, sets):
    log_node[~sets] = -np.inf
    return log_node

# wrong: rows of the transitions taken for the next label | log-sum-test
def log_sum(log_node, log_edge):
    log_alpha = log_node[0]
    for row in log_node[1:]:
        log_alpha = row + np.logaddexp.reduce(log_alpha[:, None] + log_edge.T, axis=0)
    return float(np.logaddexp.reduce(log_alpha))

# wrong: the best labelling, not the sum | log-sum-test
def log_sum(log_node, log_edge):
    log_alpha = log_node[0]
    for row in log_node[1:]:
        log_alpha = row + (log_alpha[:, None] + log_edge).max(axis=0)
    return float(log_alpha.max())

# wrong: the first token has transitions, too | log-sum-test
def log_sum(log_node, log_edge):
    log_alpha = np.zeros(log_node.shape[1])
    for row in log_node:
        log_alpha = row + np.logaddexp.reduce(log_alpha[:, None] + log_edge, axis=0)
    return float(np.logaddexp.reduce(log_alpha))

# wrong: the other way round | loss-test
def loss(log_node, log_edge, sets):
    return log_sum(masked(log_node, sets), log_edge) - log_sum(log_node, log_edge)

# wrong: the allowed lattice alone | loss-test
def loss(log_node, log_edge, sets):
    return -log_sum(masked(log_node, sets), log_edge)

# wrong: the allowed lattice divided by itself | loss-test
def loss(log_node, log_edge, sets):
    held = masked(log_node, sets)
    return log_sum(held, log_edge) - log_sum(held, log_edge)

# wrong: a probability, not its logarithm | loss-test
def loss(log_node, log_edge, sets):
    return 1 - np.exp(log_sum(masked(log_node, sets), log_edge) - log_sum(log_node, log_edge))

# wrong: counts of the set in place of the expectation | slopes-test
def slopes(log_node, log_edge, sets):
    alpha, beta = log_node.copy(), np.zeros(log_node.shape)
    for t in range(1, len(alpha)):
        alpha[t] += np.logaddexp.reduce(alpha[t - 1][:, None] + log_edge, axis=0)
    for t in range(len(beta) - 1, 0, -1):
        beta[t - 1] = np.logaddexp.reduce(log_edge + log_node[t] + beta[t], axis=1)
    p = np.exp(alpha + beta - np.logaddexp.reduce(alpha[-1]))
    return p - sets / sets.sum(axis=1, keepdims=True)

# wrong: the mask without the neighbours | slopes-test
def slopes(log_node, log_edge, sets):
    alpha, beta = log_node.copy(), np.zeros(log_node.shape)
    for t in range(1, len(alpha)):
        alpha[t] += np.logaddexp.reduce(alpha[t - 1][:, None] + log_edge, axis=0)
    for t in range(len(beta) - 1, 0, -1):
        beta[t - 1] = np.logaddexp.reduce(log_edge + log_node[t] + beta[t], axis=1)
    p = np.exp(alpha + beta - np.logaddexp.reduce(alpha[-1]))
    return p - p * sets / (p * sets).sum(axis=1, keepdims=True)

# wrong: the sign | slopes-test
def slopes(log_node, log_edge, sets):
    def marginals(log_node):
        alpha, beta = log_node.copy(), np.zeros(log_node.shape)
        for t in range(1, len(alpha)):
            alpha[t] += np.logaddexp.reduce(alpha[t - 1][:, None] + log_edge, axis=0)
        for t in range(len(beta) - 1, 0, -1):
            beta[t - 1] = np.logaddexp.reduce(log_edge + log_node[t] + beta[t], axis=1)
        return np.exp(alpha + beta - np.logaddexp.reduce(alpha[-1]))

    return marginals(np.where(sets, log_node, -np.inf)) - marginals(log_node)

# wrong: what is known is written over the best free labelling | complete-test
def complete(log_node, log_edge, given):
    T, L = log_node.shape
    delta, back = log_node.copy(), np.zeros((T, L), int)
    for t in range(1, T):
        table = delta[t - 1][:, None] + log_edge
        back[t], delta[t] = table.argmax(axis=0), delta[t] + table.max(axis=0)
    path = np.zeros(T, int)
    path[-1] = delta[-1].argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return np.where(given < 0, path, given)

# wrong: each token by itself | complete-test
def complete(log_node, log_edge, given):
    return np.where(given < 0, log_node.argmax(axis=1), given)

# wrong: an unknown label, -1, is read as the last label | complete-test
def complete(log_node, log_edge, given):
    T, L = log_node.shape
    free = np.zeros((T, L), bool)
    free[np.arange(T), given] = True
    delta, back = np.where(free, log_node, -np.inf), np.zeros((T, L), int)
    for t in range(1, T):
        table = delta[t - 1][:, None] + log_edge
        back[t], delta[t] = table.argmax(axis=0), delta[t] + table.max(axis=0)
    path = np.zeros(T, int)
    path[-1] = delta[-1].argmax()
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path

# wrong: no correction | verdicts-test
def verdicts(gain, p, level):
    return np.where(p <= level, np.sign(gain), 0).astype(int)

# wrong: all multiplied by n | verdicts-test
def verdicts(gain, p, level):
    return np.where(p * len(p) <= level, np.sign(gain), 0).astype(int)

# wrong: corrected values may fall below that of a smaller one | verdicts-test
def verdicts(gain, p, level):
    order, corrected = np.argsort(p), np.empty(len(p))
    corrected[order] = np.sort(p) * np.arange(len(p), 0, -1)
    return np.where(corrected <= level, np.sign(gain), 0).astype(int)

# wrong: in the order of the values, not of the rows | verdicts-test
def verdicts(gain, p, level):
    corrected = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.where(corrected <= level, np.sign(gain), 0).astype(int)
