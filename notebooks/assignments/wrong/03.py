# wrong: the log-likelihood, not the loss | loss-test
def sentence_loss(X, y, W, log_edge, log_z):
    return (X @ W)[np.arange(len(y)), y].sum() + log_edge[y[:-1], y[1:]].sum() - log_z

# wrong: rows of the transitions taken for the next label | loss-test
def sentence_loss(X, y, W, log_edge, log_z):
    return log_z - (X @ W)[np.arange(len(y)), y].sum() - log_edge[y[1:], y[:-1]].sum()

# wrong: the pairs are left out | loss-test
def sentence_loss(X, y, W, log_edge, log_z):
    return log_z - (X @ W)[np.arange(len(y)), y].sum()

# wrong: empirical minus expected | gradient-test
def gradient(X, y, p_node, p_edge):
    Y = np.eye(p_node.shape[1])[y]
    return X.T @ (Y - p_node), Y[:-1].T @ Y[1:] - p_edge.sum(0)

# wrong: the gold pairs are forgotten | gradient-test
def gradient(X, y, p_node, p_edge):
    return X.T @ (p_node - np.eye(p_node.shape[1])[y]), p_edge.sum(0)

# wrong: pairs as [next, previous] | gradient-test
def gradient(X, y, p_node, p_edge):
    Y = np.eye(p_node.shape[1])[y]
    return X.T @ (p_node - Y), (p_edge.sum(0) - Y[:-1].T @ Y[1:]).T

# wrong: a value of an attribute counts as 1 | gradient-test
def gradient(X, y, p_node, p_edge):
    Y = np.eye(p_node.shape[1])[y]
    return (X != 0).T @ (p_node - Y), p_edge.sum(0) - Y[:-1].T @ Y[1:]

# wrong: the best labels for the expectation, a perceptron | gradient-test
def gradient(X, y, p_node, p_edge):
    Y, best = np.eye(p_node.shape[1])[y], np.eye(p_node.shape[1])[p_node.argmax(1)]
    return X.T @ (best - Y), best[:-1].T @ best[1:] - Y[:-1].T @ Y[1:]

# wrong: the bias is not penalised | penalised-test
def penalised(losses, grads, w, c2):
    pulled = np.where(np.arange(len(w)) > 0, w, 0.0)
    grad = grads.sum(0) + 2 * c2 * pulled
    return losses.sum() + c2 * (pulled @ pulled), grad, grad @ grad / (4 * c2)

# wrong: mean over sentences | penalised-test
def penalised(losses, grads, w, c2):
    grad = grads.mean(0) + 2 * c2 * w
    return losses.mean() + c2 * (w @ w), grad, grad @ grad / (4 * c2)

# wrong: half the penalty in the value | penalised-test
def penalised(losses, grads, w, c2):
    grad = grads.sum(0) + 2 * c2 * w
    return losses.sum() + c2 / 2 * (w @ w), grad, grad @ grad / (4 * c2)

# wrong: the bound from the gradient without the penalty | penalised-test
def penalised(losses, grads, w, c2):
    g = grads.sum(0)
    return losses.sum() + c2 * (w @ w), g + 2 * c2 * w, g @ g / (4 * c2)

# wrong: uphill | direction-test
def descent_direction(grad, s, y):
    q, shares = grad, []
    for s_i, y_i in zip(s[::-1], y[::-1]):
        shares.append((s_i @ q) / (s_i @ y_i))
        q = q - shares[-1] * y_i
    if len(s):
        q = q * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for s_i, y_i, a in zip(s, y, shares[::-1]):
        q = q + (a - (y_i @ q) / (s_i @ y_i)) * s_i
    return q

# wrong: the oldest pair first in the first loop | direction-test
def descent_direction(grad, s, y):
    q, shares = -grad, []
    for s_i, y_i in zip(s, y):
        shares.append((s_i @ q) / (s_i @ y_i))
        q = q - shares[-1] * y_i
    if len(s):
        q = q * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for s_i, y_i, a in zip(s, y, shares):
        q = q + (a - (y_i @ q) / (s_i @ y_i)) * s_i
    return q

# wrong: the shares are not turned round for the second loop | direction-test
def descent_direction(grad, s, y):
    q, shares = -grad, []
    for s_i, y_i in zip(s[::-1], y[::-1]):
        shares.append((s_i @ q) / (s_i @ y_i))
        q = q - shares[-1] * y_i
    if len(s):
        q = q * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for s_i, y_i, a in zip(s, y, shares):
        q = q + (a - (y_i @ q) / (s_i @ y_i)) * s_i
    return q

# wrong: the number of the oldest pair | direction-test
def descent_direction(grad, s, y):
    q, shares = -grad, []
    for s_i, y_i in zip(s[::-1], y[::-1]):
        shares.append((s_i @ q) / (s_i @ y_i))
        q = q - shares[-1] * y_i
    if len(s):
        q = q * (s[0] @ y[0]) / (y[0] @ y[0])
    for s_i, y_i, a in zip(s, y, shares[::-1]):
        q = q + (a - (y_i @ q) / (s_i @ y_i)) * s_i
    return q

# wrong: always steepest descent | direction-test
def descent_direction(grad, s, y):
    return -grad

# wrong: any fall is enough | armijo-test
def armijo(value, slope, tried):
    return next((0.5**k for k, found in enumerate(tried) if found < value), 0.0)

# wrong: the fall that is asked for does not shrink with the step | armijo-test
def armijo(value, slope, tried):
    return next((0.5**k for k, found in enumerate(tried) if found <= value + 1e-4 * slope), 0.0)

# wrong: the best step, not the first good one | armijo-test
def armijo(value, slope, tried):
    k = int(np.nanargmin(tried)) if not np.isnan(tried).all() else 0
    return 0.5**k if tried[k] <= value + 1e-4 * 0.5**k * slope else 0.0

# wrong: the number of halvings, not the step | armijo-test
def armijo(value, slope, tried):
    good = tried <= value + 1e-4 * 0.5 ** np.arange(len(tried)) * slope
    return float(good.argmax()) if good.any() else 0.0
