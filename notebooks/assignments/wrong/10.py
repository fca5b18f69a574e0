# wrong: the gold label may leave | active-set-test
def active_set(alpha, eps, gold):
    order = np.argsort(-alpha)
    active = np.zeros(len(alpha), bool)
    active[order[: np.searchsorted(np.cumsum(alpha[order]), 1 - eps) + 1]] = True
    return active

# wrong: stops one label early | active-set-test
def active_set(alpha, eps, gold):
    order = np.argsort(-alpha)
    active = np.arange(len(alpha)) == gold
    active[order[np.cumsum(alpha[order]) < 1 - eps]] = True
    return active

# wrong: each label with a share of eps, not a set of mass 1 - eps | active-set-test
def active_set(alpha, eps, gold):
    return (alpha >= eps) | (np.arange(len(alpha)) == gold)

# wrong: of several pairs into a label only the last counts | default-step-test
def default_step(alpha, previous, following, score):
    a = np.full(len(alpha), alpha.sum())
    a[following] += alpha[previous] * np.expm1(score)
    return a

# wrong: adds the potential, not the gain | default-step-test
def default_step(alpha, previous, following, score):
    return alpha.sum() + np.bincount(following, alpha[previous] * np.exp(score), len(alpha))

# wrong: previous and next swapped, as in (9) of the paper | default-step-test
def default_step(alpha, previous, following, score):
    return alpha.sum() + np.bincount(previous, alpha[following] * np.expm1(score), len(alpha))

# wrong: no largest score subtracted | active-log-z-test
def active_log_z(node, edge, sets, outside):
    a, gain = np.exp(node[0]), np.expm1(edge)
    for t in range(1, len(node)):
        kept = a * sets[t - 1]
        a = np.exp(node[t]) * ((a if outside else kept).sum() + kept @ gain)
    return np.log(a.sum())

# wrong: the sets of the next token, not of the previous one | active-log-z-test
def active_log_z(node, edge, sets, outside):
    log_z, gain, a = 0.0, np.expm1(edge), None
    for t, u in enumerate(node):
        x = np.ones(len(u))
        if t:
            kept = a * sets[t]
            x = (a if outside else kept).sum() + kept @ gain
        a = np.exp(u - u.max()) * x
        log_z, a = log_z + u.max() + np.log(a.sum()), a / a.sum()
    return log_z

# wrong: labels outside are forbidden under both rules | active-log-z-test
def active_log_z(node, edge, sets, outside):
    log_z, a = 0.0, None
    for t, u in enumerate(node):
        a = np.exp(u - u.max()) * ((a * sets[t - 1]) @ np.exp(edge) if t else 1.0)
        log_z, a = log_z + u.max() + np.log(a.sum()), a / a.sum()
    return log_z

# wrong: (8) with alpha not normalised: plus one | active-log-z-test
def active_log_z(node, edge, sets, outside):
    top = node.max()
    a, gain = np.exp(node[0] - top), np.expm1(edge)
    for t in range(1, len(node)):
        kept = a * sets[t - 1]
        a = np.exp(node[t] - top) * ((1.0 if outside else kept.sum()) + kept @ gain)
    return np.log(a.sum()) + top * len(node)

# wrong: pairs that repel are not clipped to 0 | upper-test
def upper(before, gain, active):
    out = np.where(active, 0.0, before)
    h = np.minimum(out.sum() * gain.max(0), out.max() * gain.sum(0))
    return before.sum() + (before - out) @ gain + h

# wrong: the looser of the two bounds | upper-test
def upper(before, gain, active):
    out, plus = np.where(active, 0.0, before), np.maximum(gain, 0.0)
    return before.sum() + (before - out) @ gain + np.maximum(out.sum() * plus.max(0), out.max() * plus.sum(0))

# wrong: rows for columns | upper-test
def upper(before, gain, active):
    out, plus = np.where(active, 0.0, before), np.maximum(gain, 0.0)
    h = np.minimum(out.sum() * plus.max(1), out.max() * plus.sum(1))
    return before.sum() + gain @ (before - out) + h

# wrong: pairs that start inactive are counted, too | slope-test
def slope(node, edge, sets, outside):
    psi, found = np.exp(node - node.max(1, keepdims=True)), np.zeros(edge.shape)
    steps = [np.where(active[:, None], np.exp(edge), outside) for active in sets[:-1]]
    alpha = [psi[0] / psi[0].sum()]
    for step, v in zip(steps, psi[1:]):
        a = v * (alpha[-1] @ step)
        alpha.append(a / a.sum())
    beta = np.ones(len(edge))
    for t in range(len(node) - 1, 0, -1):
        ahead = psi[t] * beta
        p = alpha[t - 1][:, None] * steps[t - 1] * ahead
        found += p / p.sum()
        beta = steps[t - 1] @ ahead
        beta = beta / beta.max()
    return found

# wrong: the sets of the token itself, not of the one before | slope-test
def slope(node, edge, sets, outside):
    psi, found = np.exp(node - node.max(1, keepdims=True)), np.zeros(edge.shape)
    steps = [np.where(active[:, None], np.exp(edge), outside) for active in sets[1:]]
    alpha = [psi[0] / psi[0].sum()]
    for step, v in zip(steps, psi[1:]):
        a = v * (alpha[-1] @ step)
        alpha.append(a / a.sum())
    beta = np.ones(len(edge))
    for t in range(len(node) - 1, 0, -1):
        ahead = psi[t] * beta
        p = alpha[t - 1][:, None] * steps[t - 1] * ahead
        found += np.where(sets[t][:, None], p / p.sum(), 0.0)
        beta = steps[t - 1] @ ahead
        beta = beta / beta.max()
    return found

# wrong: no backward pass | slope-test
def slope(node, edge, sets, outside):
    psi, found = np.exp(node - node.max(1, keepdims=True)), np.zeros(edge.shape)
    alpha = psi[0] / psi[0].sum()
    for active, v in zip(sets, psi[1:]):
        step = np.where(active[:, None], np.exp(edge), outside)
        p = alpha[:, None] * step * v
        found += np.where(active[:, None], p / p.sum(), 0.0)
        alpha = v * (alpha @ step)
        alpha = alpha / alpha.sum()
    return found

# wrong: nothing is scaled | slope-test
def slope(node, edge, sets, outside):
    psi, found = np.exp(node), np.zeros(edge.shape)
    steps = [np.where(active[:, None], np.exp(edge), outside) for active in sets[:-1]]
    alpha = [psi[0]]
    for step, v in zip(steps, psi[1:]):
        alpha.append(v * (alpha[-1] @ step))
    beta = np.ones(len(edge))
    for t in range(len(node) - 1, 0, -1):
        p = alpha[t - 1][:, None] * steps[t - 1] * psi[t] * beta
        found += np.where(sets[t - 1][:, None], p / p.sum(), 0.0)
        beta = steps[t - 1] @ (psi[t] * beta)
    return found

# wrong: under Method 1 a label that is left out sets the scale | active-log-z-test
def active_log_z(node, edge, sets, outside):
    gain, log_z = np.expm1(edge), 0.0
    for t, u in enumerate(node):
        a = 1.0
        if t > 0:
            kept = np.where(sets[t - 1], alpha, 0.0)
            a = (alpha.sum() if outside else kept.sum()) + kept @ gain
        alpha = np.exp(u - u.max()) * a
        log_z += u.max() + np.log(alpha.sum())
        alpha = alpha / alpha.sum()
    return log_z

# wrong: the same in the gradient | slope-test
def slope(node, edge, sets, outside):
    psi, found = np.exp(node - node.max(1, keepdims=True)), np.zeros(edge.shape)
    steps = [np.where(active[:, None], np.exp(edge), outside) for active in sets[:-1]]
    alpha = [psi[0] / psi[0].sum()]
    for step, v in zip(steps, psi[1:]):
        a = v * (alpha[-1] @ step)
        alpha.append(a / a.sum())
    beta = np.ones(len(edge))
    for t in range(len(node) - 1, 0, -1):
        ahead = psi[t] * beta
        p = alpha[t - 1][:, None] * steps[t - 1] * ahead
        found += np.where(sets[t - 1][:, None], p / p.sum(), 0.0)
        beta = steps[t - 1] @ ahead
        beta = beta / beta.max()
    return found
