# wrong: counts the attribute, whatever the label | count-test
def count(has, y, L):
    return np.repeat(has.sum(0)[:, None], L, axis=1)

# wrong: one column for each label that occurs, not for each label | count-test
def count(has, y, L):
    return has.astype(int).T @ (y[:, None] == np.unique(y)).astype(int)

# wrong: one cell of four | information-test
def information(n11, n_u, n_v, n):
    p = n11 / n
    expected = np.outer(n_u / n, n_v / n)
    return np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / np.maximum(expected, 1e-300)), 0.0)

# wrong: empty cells give nan | information-test
def information(n11, n_u, n_v, n):
    a, b, total = n_u[:, None], n_v, 0.0
    for cell, u, v in ((n11, a, b), (a - n11, a, n - b), (b - n11, n - a, b), (n - a - b + n11, n - a, n - b)):
        total = total + cell / n * (np.log(cell / n) - np.log(u / n) - np.log(v / n))
    return total

# wrong: bits for nats | information-test
def information(n11, n_u, n_v, n):
    a, b, total = n_u[:, None], n_v, 0.0
    for cell, u, v in ((n11, a, b), (a - n11, a, n - b), (b - n11, n - a, b), (n - a - b + n11, n - a, n - b)):
        share = np.maximum(cell, 1e-300) / np.maximum(u / n * v, 1e-300)
        total = total + np.where(cell > 0, cell / n * np.log2(share), 0.0)
    return total

# wrong: the worst k | keep-best-test
def keep_best(score, k, exempt):
    first = np.argsort(np.where(exempt, -np.inf, score), kind="stable")[:k]
    return np.isin(np.arange(len(score)), first)

# wrong: all that tie with the last one are kept | keep-best-test
def keep_best(score, k, exempt):
    score = np.where(exempt, np.inf, score)
    return score >= np.sort(score)[::-1][k - 1] if k else np.zeros(len(score), bool)

# wrong: exempt features come on top of the k | keep-best-test
def keep_best(score, k, exempt):
    first = np.argsort(-score, kind="stable")[:k]
    return np.isin(np.arange(len(score)), first) | exempt

# wrong: ranks by the size of the weight | drop-cheap-test
def drop_cheap(w, H, budget):
    order = np.argsort(np.abs(w))
    gone = order[np.cumsum(0.5 * (H * w**2)[order]) <= budget]
    return np.where(np.isin(np.arange(len(w)), gone), 0.0, w)

# wrong: the budget holds for each weight, not for the sum | drop-cheap-test
def drop_cheap(w, H, budget):
    return np.where(0.5 * H * w**2 <= budget, 0.0, w)

# wrong: one-sided | p-value-test
def p_value(a, b, swaps):
    change = b - a
    return (1 + np.sum(np.where(swaps, -change, change).sum(1) >= change.sum())) / (1 + len(swaps))

# wrong: does not count the sample at hand | p-value-test
def p_value(a, b, swaps):
    change = b - a
    return np.mean(np.abs(np.where(swaps, -change, change).sum(1)) >= abs(change.sum()))

# wrong: equal differences do not count | p-value-test
def p_value(a, b, swaps):
    change = b - a
    return (1 + np.sum(np.abs(np.where(swaps, -change, change).sum(1)) > abs(change.sum()))) / (1 + len(swaps))
