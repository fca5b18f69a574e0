# wrong: rows of the transitions taken for the next label | score-test
def score(path, log_node, log_edge):
    pairs = sum(log_edge[b, a] for a, b in zip(path, path[1:]))
    return sum(log_node[t, y] for t, y in enumerate(path)) + pairs

# wrong: the last pair is missing | score-test
def score(path, log_node, log_edge):
    pairs = sum(log_edge[path[t - 1], path[t]] for t in range(1, len(path) - 1))
    return sum(log_node[t, y] for t, y in enumerate(path)) + pairs

# wrong: the product, not the score | score-test
def score(path, log_node, log_edge):
    nodes = np.prod([np.exp(log_node[t, y]) for t, y in enumerate(path)])
    return nodes * np.prod([np.exp(log_edge[a, b]) for a, b in zip(path, path[1:])])

# wrong: a forbidden pair is skipped | score-test
def score(path, log_node, log_edge):
    pairs = [log_edge[a, b] for a, b in zip(path, path[1:])]
    return sum(log_node[t, y] for t, y in enumerate(path)) + sum(s for s in pairs if s > -np.inf)

# wrong: the largest score is not taken out | log-partition-test
def log_partition(log_node, log_edge):
    T, L = log_node.shape
    paths = labellings(T, L)
    scores = log_node[np.arange(T), paths].sum(1) + log_edge[paths[:, :-1], paths[:, 1:]].sum(1)
    return np.log(np.exp(scores).sum())

# wrong: Z for its logarithm | log-partition-test
def log_partition(log_node, log_edge):
    T, L = log_node.shape
    paths = labellings(T, L)
    scores = log_node[np.arange(T), paths].sum(1) + log_edge[paths[:, :-1], paths[:, 1:]].sum(1)
    return np.exp(scores).sum()

# wrong: the best labelling for the sum | log-partition-test
def log_partition(log_node, log_edge):
    T, L = log_node.shape
    paths = labellings(T, L)
    scores = log_node[np.arange(T), paths].sum(1) + log_edge[paths[:, :-1], paths[:, 1:]].sum(1)
    return scores.max()

# wrong: T labels for L labels | log-partition-test
def log_partition(log_node, log_edge):
    T, L = log_node.shape
    paths = np.array([path for path in itertools.product(range(min(T, L)), repeat=T)])
    scores = log_node[np.arange(T), paths].sum(1) + log_edge[paths[:, :-1], paths[:, 1:]].sum(1)
    return scores.max() + np.log(np.exp(scores - scores.max()).sum())

# wrong: counts labellings, whatever their probability | node-marginals-test
def node_marginals(paths, p, L):
    return np.array([np.bincount(column, minlength=L) for column in paths.T]) / len(paths)

# wrong: labels in rows | node-marginals-test
def node_marginals(paths, p, L):
    return np.array([[p[paths[:, t] == y].sum() for t in range(paths.shape[1])] for y in range(L)])

# wrong: the largest term for the sum | node-marginals-test
def node_marginals(paths, p, L):
    columns = range(paths.shape[1])
    return np.array([[p[paths[:, t] == y].max(initial=0) for y in range(L)] for t in columns])

# wrong: normalised without the edge | memm-test
def log_p_memm(path, log_node, log_edge):
    total = log_node[0, path[0]] - np.logaddexp.reduce(log_node[0])
    for t in range(1, len(path)):
        total += log_node[t, path[t]] + log_edge[path[t - 1], path[t]]
        total -= np.logaddexp.reduce(log_node[t])
    return total

# wrong: the first token is not normalised | memm-test
def log_p_memm(path, log_node, log_edge):
    total = log_node[0, path[0]]
    for t in range(1, len(path)):
        row = log_node[t] + log_edge[path[t - 1]]
        total += row[path[t]] - np.logaddexp.reduce(row)
    return total

# wrong: probabilities multiplied, the largest score not taken out | memm-test
def log_p_memm(path, log_node, log_edge):
    def share(row, y):
        return np.exp(row[y]) / np.exp(row).sum()
    p = share(log_node[0], path[0])
    for t in range(1, len(path)):
        p *= share(log_node[t] + log_edge[path[t - 1]], path[t])
    return np.log(p)

# wrong: one division for the whole sentence, a CRF | memm-test
def log_p_memm(path, log_node, log_edge):
    alpha = log_node[0]
    for row in log_node[1:]:
        alpha = row + np.logaddexp.reduce(alpha[:, None] + log_edge, axis=0)
    total = sum(log_node[t, y] for t, y in enumerate(path))
    return total + sum(log_edge[q] for q in zip(path, path[1:])) - np.logaddexp.reduce(alpha)

# wrong: normalised at the same token | move-test
def move_normalisers(log_node, log_edge):
    moved = log_node.copy()
    moved[0] -= np.logaddexp.reduce(log_node[0])
    for t in range(1, len(log_node)):
        moved[t] -= np.logaddexp.reduce(log_node[t] + log_edge, axis=1)
    return moved

# wrong: summed over the label before | move-test
def move_normalisers(log_node, log_edge):
    moved = log_node.copy()
    moved[0] -= np.logaddexp.reduce(log_node[0])
    for t in range(1, len(log_node)):
        moved[t - 1] -= np.logaddexp.reduce(log_node[t] + log_edge, axis=0)
    return moved

# wrong: normalisers of rows that are normalised already | move-test
def move_normalisers(log_node, log_edge):
    moved = log_node.copy()
    for t in range(len(log_node) - 1, 0, -1):
        moved[t - 1] -= np.logaddexp.reduce(moved[t] + log_edge, axis=1)
    moved[0] -= np.logaddexp.reduce(moved[0])
    return moved
