# wrong: gold counts are not taken off | block-test
def block_sums(where, y, p_node, p_edge):
    p = np.concatenate([p_node[where], p_edge[where].reshape(len(where), -1)], axis=1)
    return p.sum(0), (p * (1 - p)).sum(0)

# wrong: the curvature of the sum, not the sum of curvatures | block-test
def block_sums(where, y, p_node, p_edge):
    L = p_node.shape[1]
    g = np.concatenate([p_node[where].sum(0), p_edge[where].sum(0).ravel()])
    h = g * (1 - g)
    for t in where:
        g[y[t]] -= 1
        if t > 0:
            g[L + y[t - 1] * L + y[t]] -= 1
    return g, h

# wrong: pairs as [next, previous] | block-test
def block_sums(where, y, p_node, p_edge):
    L = p_node.shape[1]
    g, h = np.zeros((2, L + L * L))
    for t in where:
        p = np.concatenate([p_node[t], p_edge[t].T.ravel()])
        g, h = g + p, h + p * (1 - p)
        g[y[t]] -= 1
        if t > 0:
            g[L + y[t] * L + y[t - 1]] -= 1
    return g, h

# wrong: the first token has a pair with the last | block-test
def block_sums(where, y, p_node, p_edge):
    L = p_node.shape[1]
    g, h = np.zeros((2, L + L * L))
    for t in where:
        p = np.concatenate([p_node[t], p_edge[t].ravel()])
        g, h = g + p, h + p * (1 - p)
        g[y[t]] -= 1
        g[L + y[t - 1] * L + y[t]] -= 1
    return g, h

# wrong: all tokens, not those of the letter | block-test
def block_sums(where, y, p_node, p_edge):
    L = p_node.shape[1]
    g, h = np.zeros((2, L + L * L))
    for t in range(len(y)):
        p = np.concatenate([p_node[t], p_edge[t].ravel()])
        g, h = g + p, h + p * (1 - p)
        g[y[t]] -= 1
        if t > 0:
            g[L + y[t - 1] * L + y[t]] -= 1
    return g, h

# wrong: the threshold is not of the gradient's scale | step-test
def block_step(w, g, h, c1, c2):
    z = w - g / h
    return np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) * h / (h + 2 * c2)

# wrong: uphill | step-test
def block_step(w, g, h, c1, c2):
    z = h * w + g
    return np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) / (h + 2 * c2)

# wrong: half of c2, as if its penalty had a half | step-test
def block_step(w, g, h, c1, c2):
    z = h * w - g
    return np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) / (h + c2)

# wrong: the bend of c2 without its slope: c2 only shortens the step | step-test
def block_step(w, g, h, c1, c2):
    z = (h + 2 * c2) * w - g
    return np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) / (h + 2 * c2)

# wrong: damped outside the threshold | step-test
def block_step(w, g, h, c1, c2):
    z = h * w - g
    u = np.sign(z) * np.maximum(np.abs(z) - c1, 0.0) / (h + 2 * c2)
    return w + 0.5 * (u - w)

# wrong: the loss must fall | judge-test
def judge(before, after, g, h, d, factor):
    taken = bool(after <= before + 1e-12 * abs(before))
    return taken, max(0.5, 0.8 * factor) if taken else 2.0 * factor

# wrong: the factor is not in the model | judge-test
def judge(before, after, g, h, d, factor):
    taken = bool(after <= before + g @ d + h @ d**2 / 2 + 1e-12 * abs(before))
    return taken, max(0.5, 0.8 * factor) if taken else 2.0 * factor

# wrong: the model without its half | judge-test
def judge(before, after, g, h, d, factor):
    taken = bool(after <= before + g @ d + factor * (h @ d**2) + 1e-12 * abs(before))
    return taken, max(0.5, 0.8 * factor) if taken else 2.0 * factor

# wrong: refused steps make the factor smaller | judge-test
def judge(before, after, g, h, d, factor):
    taken = bool(after <= before + g @ d + factor / 2 * (h @ d**2) + 1e-12 * abs(before))
    return taken, 2.0 * factor if taken else max(0.5, 0.8 * factor)

# wrong: the factor falls without end | judge-test
def judge(before, after, g, h, d, factor):
    taken = bool(after <= before + g @ d + factor / 2 * (h @ d**2) + 1e-12 * abs(before))
    return taken, 0.8 * factor if taken else 2.0 * factor

# wrong: zeros and others alike | violation-test
def violation(w, g, c1, c2):
    return np.maximum(np.abs(g + 2 * c2 * w) - c1, 0.0).max()

# wrong: the slope of c2 is left out | violation-test
def violation(w, g, c1, c2):
    active = np.abs(g + c1 * np.sign(w))
    return np.where(w != 0, active, np.maximum(np.abs(g) - c1, 0.0)).max()

# wrong: zeros may be negative violations | violation-test
def violation(w, g, c1, c2):
    active = np.abs(g + 2 * c2 * w + c1 * np.sign(w))
    return np.where(w != 0, active, np.abs(g) - c1).max()

# wrong: weights that are zero are not asked | violation-test
def violation(w, g, c1, c2):
    return np.where(w != 0, np.abs(g + 2 * c2 * w + c1 * np.sign(w)), 0.0).max()

# wrong: the answer of the shown example | violation-test
def violation(w, g, c1, c2):
    return 0.25

# wrong: all blocks see the weights of before the sweep | sweep-test
def sweep(text, W, c1, c2):
    new = W.copy()
    for a in range(len(W)):
        safe = float(sum((x == a).sum() ** 2 for x, _ in text))
        if safe > 0:
            new[a] = lowest(W[a], gradient(text, a, W), safe, c1, c2)
    return new

# wrong: occurrences are counted, not their squares | sweep-test
def sweep(text, W, c1, c2):
    W = W.copy()
    for a in range(len(W)):
        safe = float(sum((x == a).sum() for x, _ in text))
        if safe > 0:
            W[a] = lowest(W[a], gradient(text, a, W), safe, c1, c2)
    return W

# wrong: the square of the sum over words | sweep-test
def sweep(text, W, c1, c2):
    W = W.copy()
    for a in range(len(W)):
        safe = float(sum((x == a).sum() for x, _ in text) ** 2)
        if safe > 0:
            W[a] = lowest(W[a], gradient(text, a, W), safe, c1, c2)
    return W

# wrong: from the last letter to the first | sweep-test
def sweep(text, W, c1, c2):
    W = W.copy()
    for a in reversed(range(len(W))):
        safe = float(sum((x == a).sum() ** 2 for x, _ in text))
        if safe > 0:
            W[a] = lowest(W[a], gradient(text, a, W), safe, c1, c2)
    return W

# wrong: letters of no word lose their weights | sweep-test
def sweep(text, W, c1, c2):
    W = W.copy()
    for a in range(len(W)):
        safe = float(sum((x == a).sum() ** 2 for x, _ in text))
        W[a] = lowest(W[a], gradient(text, a, W), max(safe, 1e-9), c1, c2)
    return W
