# wrong: the end of the span is open | by_listing-test
def by_listing(psi_node, psi_edge, start, stop):
    part = whole = 0.0
    for y in product(range(3), repeat=len(psi_node)):
        weight = psi_node[0, y[0]]
        for t in range(1, len(y)):
            weight = weight * psi_edge[y[t - 1], y[t]] * psi_node[t, y[t]]
        whole += weight
        if y[start:stop] == (1,) + (2,) * (stop - start - 1):
            part += weight
    return part / whole


# wrong: the table of pairs is read as [next, previous] | by_listing-test
def by_listing(psi_node, psi_edge, start, stop):
    part = whole = 0.0
    for y in product(range(3), repeat=len(psi_node)):
        weight = psi_node[0, y[0]]
        for t in range(1, len(y)):
            weight = weight * psi_edge[y[t], y[t - 1]] * psi_node[t, y[t]]
        whole += weight
        if y[start:stop] == (1,) + (2,) * (stop - start - 1) and y[stop : stop + 1] != (2,):
            part += weight
    return part / whole


# wrong: no division by Z | by_listing-test
def by_listing(psi_node, psi_edge, start, stop):
    part = 0.0
    for y in product(range(3), repeat=len(psi_node)):
        weight = psi_node[0, y[0]]
        for t in range(1, len(y)):
            weight = weight * psi_edge[y[t - 1], y[t]] * psi_node[t, y[t]]
        if y[start:stop] == (1,) + (2,) * (stop - start - 1) and y[stop : stop + 1] != (2,):
            part += weight
    return part


# wrong: the sum out of the span has all labels | span_probability-test
def span_probability(psi_node, psi_edge, start, stop):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = alpha[start, 1]
    for t in range(start + 1, stop):
        p = p * psi_edge[1 if t == start + 1 else 2, 2] * psi_node[t, 2]
    return p * beta[stop - 1, 1 if stop == start + 1 else 2] / alpha[-1].sum()


# wrong: the product of token marginals | span_probability-test
def span_probability(psi_node, psi_edge, start, stop):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = alpha * beta / alpha[-1].sum()
    out = p[stop, :2].sum() if stop < T else 1.0
    return p[start, 1] * p[start + 1 : stop, 2].prod() * out


# wrong: the edge out leaves from I, in spans of one token, too | span_probability-test
def span_probability(psi_node, psi_edge, start, stop):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = alpha[start, 1]
    for t in range(start + 1, stop):
        p = p * psi_edge[1 if t == start + 1 else 2, 2] * psi_node[t, 2]
    if stop < T:
        p = p * (psi_edge[2, :2] @ (psi_node[stop] * beta[stop])[:2])
    return p / alpha[-1].sum()


# wrong: the edge into the span is lost | span_probability-test
def span_probability(psi_node, psi_edge, start, stop):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = (alpha[start - 1].sum() if start else 1.0) * psi_node[start, 1]
    for t in range(start + 1, stop):
        p = p * psi_edge[1 if t == start + 1 else 2, 2] * psi_node[t, 2]
    if stop < T:
        last = 1 if stop == start + 1 else 2
        p = p * (psi_edge[last, :2] @ (psi_node[stop] * beta[stop])[:2])
    return p / alpha[-1].sum()


# wrong: alpha is computed in place of the scores | span_probability-test
def span_probability(psi_node, psi_edge, start, stop):
    T = len(psi_node)
    alpha, beta = psi_node, np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = alpha[start, 1]
    for t in range(start + 1, stop):
        p = p * psi_edge[1 if t == start + 1 else 2, 2] * psi_node[t, 2]
    if stop < T:
        last = 1 if stop == start + 1 else 2
        p = p * (psi_edge[last, :2] @ (psi_node[stop] * beta[stop])[:2])
    return p / alpha[-1].sum()


# wrong: each token from its marginal | draw-test
def draw(psi_node, psi_edge, u):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    sums = np.cumsum(alpha * beta, axis=1)
    return [int(np.argmax(row > number * row[-1])) for row, number in zip(sums, u)]


# wrong: the row of the next label, not its column | draw-test
def draw(psi_node, psi_edge, u):
    T = len(psi_node)
    alpha = np.array(psi_node, float)
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    y = [0] * T
    for t in range(T - 1, -1, -1):
        weights = alpha[t] * (psi_edge[y[t + 1]] if t + 1 < T else 1.0)
        sums = np.cumsum(weights)
        y[t] = int(np.argmax(sums > u[t] * sums[-1]))
    return y


# wrong: the most probable label at each step | draw-test
def draw(psi_node, psi_edge, u):
    T = len(psi_node)
    alpha = np.array(psi_node, float)
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    y = [0] * T
    for t in range(T - 1, -1, -1):
        y[t] = int(np.argmax(alpha[t] * (psi_edge[:, y[t + 1]] if t + 1 < T else 1.0)))
    return y


# wrong: at least, not above: weights of 0 are drawn when u is 0 | draw-test
def draw(psi_node, psi_edge, u):
    T = len(psi_node)
    alpha = np.array(psi_node, float)
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    y = [0] * T
    for t in range(T - 1, -1, -1):
        weights = alpha[t] * (psi_edge[:, y[t + 1]] if t + 1 < T else 1.0)
        sums = np.cumsum(weights)
        y[t] = int(np.argmax(sums >= u[t] * sums[-1]))
    return y


# wrong: forward by alpha, as if the rest of the sentence did not matter | draw-test
def draw(psi_node, psi_edge, u):
    y = []
    for t, node in enumerate(psi_node):
        weights = node * (psi_edge[y[-1]] if t else 1.0)
        sums = np.cumsum(weights)
        y.append(int(np.argmax(sums > u[t] * sums[-1])))
    return y


# wrong: the entropies of the tokens, added | entropy-test
def entropy(psi_node, psi_edge):
    T = len(psi_node)
    alpha, beta = np.array(psi_node, float), np.ones((T, 3))
    for t in range(1, T):
        alpha[t] = (alpha[t - 1] @ psi_edge) * psi_node[t]
    for t in range(T - 2, -1, -1):
        beta[t] = psi_edge @ (psi_node[t + 1] * beta[t + 1])
    p = (alpha * beta / alpha[-1].sum()).ravel()
    return -sum(q * np.log(q) for q in p if q > 0)


# wrong: in bits | entropy-test
def entropy(psi_node, psi_edge):
    alpha, H = np.array(psi_node[0], float), np.zeros(3)

    def mean_surprise(q, rest):
        return sum(a * (b - np.log2(a)) for a, b in zip(q, rest) if a > 0)

    for t in range(1, len(psi_node)):
        joint = alpha[:, None] * psi_edge * psi_node[t]
        alpha = joint.sum(axis=0)
        H = np.array([mean_surprise(joint[:, y] / alpha[y], H) if alpha[y] > 0 else 0.0 for y in range(3)])
    return mean_surprise(alpha / alpha.sum(), H)


# wrong: 0 log 0 is no number | entropy-test
def entropy(psi_node, psi_edge):
    alpha, H = np.array(psi_node[0], float), np.zeros(3)
    with np.errstate(all="ignore"):
        for t in range(1, len(psi_node)):
            joint = alpha[:, None] * psi_edge * psi_node[t]
            alpha = joint.sum(axis=0)
            q = joint / alpha
            H = (q * (H[:, None] - np.log(q))).sum(axis=0)
        last = alpha / alpha.sum()
        return (last * (H - np.log(last))).sum()


# wrong: the label of the last token is taken as known | entropy-test
def entropy(psi_node, psi_edge):
    alpha, H = np.array(psi_node[0], float), np.zeros(3)

    def mean_surprise(q, rest):
        return sum(a * (b - np.log(a)) for a, b in zip(q, rest) if a > 0)

    for t in range(1, len(psi_node)):
        joint = alpha[:, None] * psi_edge * psi_node[t]
        alpha = joint.sum(axis=0)
        H = np.array([mean_surprise(joint[:, y] / alpha[y], H) if alpha[y] > 0 else 0.0 for y in range(3)])
    return alpha @ H / alpha.sum()


# wrong: the largest gains first, as long as they fit | best_separate-test
def best_separate(spans, gain, T):
    free, total = [True] * T, 0.0
    for j in sorted(range(len(spans)), key=lambda j: -gain[j]):
        a, b = spans[j]
        if gain[j] > 0 and all(free[a:b]):
            total += gain[j]
            free[a:b] = [False] * (b - a)
    return total


# wrong: spans that touch count as overlapping | best_separate-test
def best_separate(spans, gain, T):
    best = [0.0]
    for b in range(1, T + 1):
        ends = [(best[a - 1] if a else 0.0) + g for (a, stop), g in zip(spans, gain) if stop == b]
        best.append(max([best[-1], *ends]))
    return best[-1]


# wrong: a span must be taken wherever one ends | best_separate-test
def best_separate(spans, gain, T):
    best = [0.0]
    for b in range(1, T + 1):
        ends = [best[a] + g for (a, stop), g in zip(spans, gain) if stop == b]
        best.append(max(ends) if ends else best[-1])
    return best[-1]


# wrong: the largest gain alone | best_separate-test
def best_separate(spans, gain, T):
    return max([0.0, *gain])


# wrong: the mean of the bins, whatever their sizes | calibration-test
def calibration(p, right, n_bins):
    place = np.minimum((p * n_bins).astype(int), n_bins - 1)
    parts = [abs((right - p)[place == k].mean()) for k in range(n_bins) if (place == k).any()]
    return sum(parts) / len(parts)


# wrong: the middle of a bin in place of its mean probability | calibration-test
def calibration(p, right, n_bins):
    place = np.minimum((p * n_bins).astype(int), n_bins - 1)
    return sum(
        (place == k).sum() * abs(right[place == k].mean() - (k + 0.5) / n_bins)
        for k in range(n_bins)
        if (place == k).any()
    ) / len(p)


# wrong: each prediction is its own bin | calibration-test
def calibration(p, right, n_bins):
    return abs(right - p).mean()


# wrong: all predictions in one bin | calibration-test
def calibration(p, right, n_bins):
    return abs(right.mean() - p.mean())


# wrong: a probability of 1 has no bin | calibration-test
def calibration(p, right, n_bins):
    place = (p * n_bins).astype(int)
    return sum(abs((right - p)[place == k].sum()) for k in range(n_bins)) / len(p)


# wrong: a limit belongs to the bin below it | calibration-test
def calibration(p, right, n_bins):
    place = np.maximum(np.ceil(p * n_bins).astype(int) - 1, 0)
    return sum(abs((right - p)[place == k].sum()) for k in range(n_bins)) / len(p)
