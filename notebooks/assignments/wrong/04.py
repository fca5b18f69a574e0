# wrong: flat above the clamp, no tangent | phi-test
def phi(u, kind, clamp):
    if kind == "log":
        return u, np.ones_like(u)
    low = np.minimum(u, clamp)
    return np.expm1(low), np.exp(low)

# wrong: no clamp | phi-test
def phi(u, kind, clamp):
    return (u, np.ones_like(u)) if kind == "log" else (np.expm1(u), np.exp(u))

# wrong: 1 / p, not 1 / p - 1 | phi-test
def phi(u, kind, clamp):
    if kind == "log":
        return u, np.ones_like(u)
    low = np.minimum(u, clamp)
    return np.exp(low) * (1 + u - low), np.exp(low)

# wrong: tiny surprises lose their digits | phi-test
def phi(u, kind, clamp):
    if kind == "log":
        return u, np.ones_like(u)
    low = np.minimum(u, clamp)
    return np.exp(low) * (1 + u - low) - 1, np.exp(low)

# wrong: 1/p forgotten in the reward | pointwise-test
def pointwise(p_node, gold, kind):
    p = p_node[np.arange(len(gold)), gold]
    a = np.ones_like(p) if kind == "log" else 1 / p
    value = -np.log(p) if kind == "log" else 1 / p - 1
    return value.sum(), a.sum(), np.eye(p_node.shape[1])[gold] * a[:, None]

# wrong: the slope of exp is taken for 1 | pointwise-test
def pointwise(p_node, gold, kind):
    p = p_node[np.arange(len(gold)), gold]
    value = -np.log(p) if kind == "log" else 1 / p - 1
    return value.sum(), float(len(p)), np.eye(p_node.shape[1])[gold] / p[:, None]

# wrong: bits for nats | pointwise-test
def pointwise(p_node, gold, kind):
    p = p_node[np.arange(len(gold)), gold]
    a = np.ones_like(p) if kind == "log" else 1 / p
    value = -np.log2(p) if kind == "log" else 1 / p - 1
    return value.sum(), a.sum(), np.eye(p_node.shape[1])[gold] * (a / p)[:, None]

# wrong: the probability of the whole, as if words were independent | pointwise-test
def pointwise(p_node, gold, kind):
    p = p_node[np.arange(len(gold)), gold]
    a = np.ones_like(p) if kind == "log" else 1 / p
    value = -np.log(p.prod()) if kind == "log" else 1 / p.prod() - 1
    return value, a.sum(), np.eye(p_node.shape[1])[gold] * (a / p)[:, None]

# wrong: only the reward of the word itself | messages-test
def reward_messages(alpha, beta, step, d):
    return d * alpha, d * beta

# wrong: step read as [next, previous] | messages-test
def reward_messages(alpha, beta, step, d):
    Ah, Bh = d * alpha, d * beta
    for t in range(1, len(d)):
        Ah[t] += step[t] @ Ah[t - 1]
    for t in range(len(d) - 1, 0, -1):
        Bh[t - 1] += Bh[t] @ step[t]
    return Ah, Bh

# wrong: the reward at t is not in Bh | messages-test
def reward_messages(alpha, beta, step, d):
    Ah, Bh = d * alpha, np.zeros_like(beta)
    for t in range(1, len(d)):
        Ah[t] += Ah[t - 1] @ step[t]
    for t in range(len(d) - 1, 0, -1):
        Bh[t - 1] = step[t] @ (Bh[t] + d[t] * beta[t])
    return Ah, Bh

# wrong: the matrix of the token before | messages-test
def reward_messages(alpha, beta, step, d):
    Ah, Bh = d * alpha, d * beta
    for t in range(1, len(d)):
        Ah[t] += Ah[t - 1] @ step[t - 1]
    for t in range(len(d) - 1, 0, -1):
        Bh[t - 1] += step[t - 1] @ Bh[t]
    return Ah, Bh

# wrong: the reward at t counted twice | node-gradient-test
def node_gradient(alpha, beta, Ah, Bh, d, a_tot):
    return a_tot * alpha * beta - (Ah * beta + alpha * Bh)

# wrong: Ah and Bh swapped | node-gradient-test
def node_gradient(alpha, beta, Ah, Bh, d, a_tot):
    return a_tot * alpha * beta - (alpha * Ah + Bh * beta - d * alpha * beta)

# wrong: uphill | node-gradient-test
def node_gradient(alpha, beta, Ah, Bh, d, a_tot):
    return Ah * beta + alpha * Bh - d * alpha * beta - a_tot * alpha * beta

# wrong: the number of words for the sum of slopes | node-gradient-test
def node_gradient(alpha, beta, Ah, Bh, d, a_tot):
    return len(d) * alpha * beta - (Ah * beta + alpha * Bh - d * alpha * beta)

# wrong: the last pair is missing | edge-gradient-test
def edge_gradient(alpha, beta, step, Ah, Bh, a_tot):
    def total(left, right):
        return np.einsum("ti,tij,tj->ij", left[:-2], step[1:-1], right[1:-1])
    return a_tot * total(alpha, beta) - total(Ah, beta) - total(alpha, Bh)

# wrong: pairs as [next, previous] | edge-gradient-test
def edge_gradient(alpha, beta, step, Ah, Bh, a_tot):
    def total(left, right):
        return np.einsum("ti,tij,tj->ji", left[:-1], step[1:], right[1:])
    return a_tot * total(alpha, beta) - total(Ah, beta) - total(alpha, Bh)

# wrong: rewards from the second word on are left out | edge-gradient-test
def edge_gradient(alpha, beta, step, Ah, Bh, a_tot):
    def total(left, right):
        return np.einsum("ti,tij,tj->ij", left[:-1], step[1:], right[1:])
    return a_tot * total(alpha, beta) - total(Ah, beta)
