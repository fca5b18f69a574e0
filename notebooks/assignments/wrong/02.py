# wrong: no largest entry subtracted | log-sum-exp-test
def log_sum_exp(v, axis):
    return np.log(np.exp(v).sum(axis=axis))

# wrong: nan where all are minus infinity | log-sum-exp-test
def log_sum_exp(v, axis):
    m = v.max(axis=axis, keepdims=True)
    return np.log(np.exp(v - m).sum(axis=axis)) + m.squeeze(axis)

# wrong: the axis is kept | log-sum-exp-test
def log_sum_exp(v, axis):
    return np.logaddexp.reduce(v, axis=axis, keepdims=True)

# wrong: rows of the transitions taken for the next label | forward-test
def forward(log_node, log_edge):
    log_alpha = log_node.copy()
    for t in range(1, len(log_node)):
        log_alpha[t] += np.logaddexp.reduce(log_alpha[t - 1] + log_edge, axis=1)
    return log_alpha

# wrong: weights, not logarithms | forward-test
def forward(log_node, log_edge):
    alpha = np.exp(log_node)
    for t in range(1, len(log_node)):
        alpha[t] *= alpha[t - 1] @ np.exp(log_edge)
    return np.log(alpha)

# wrong: the largest term for the sum | forward-test
def forward(log_node, log_edge):
    log_alpha = log_node.copy()
    for t in range(1, len(log_node)):
        log_alpha[t] += (log_alpha[t - 1][:, None] + log_edge).max(axis=0)
    return log_alpha

# wrong: the last token is missing | forward-test
def forward(log_node, log_edge):
    log_alpha = log_node.copy()
    for t in range(1, len(log_node) - 1):
        log_alpha[t] += np.logaddexp.reduce(log_alpha[t - 1][:, None] + log_edge, axis=0)
    return log_alpha

# wrong: the word's own scores are in beta | backward-test
def backward(log_node, log_edge):
    log_beta = log_node.copy()
    for t in range(len(log_node) - 1, 0, -1):
        log_beta[t - 1] += np.logaddexp.reduce(log_edge + log_beta[t], axis=1)
    return log_beta

# wrong: summed over the label before | backward-test
def backward(log_node, log_edge):
    log_beta = np.zeros_like(log_node)
    for t in range(len(log_node) - 1, 0, -1):
        table = log_edge + (log_node[t] + log_beta[t])[:, None]
        log_beta[t - 1] = np.logaddexp.reduce(table, axis=0)
    return log_beta

# wrong: the scores of word t for those of word t + 1 | backward-test
def backward(log_node, log_edge):
    log_beta = np.zeros_like(log_node)
    for t in range(len(log_node) - 1, 0, -1):
        log_beta[t - 1] = np.logaddexp.reduce(log_edge + log_node[t - 1] + log_beta[t], axis=1)
    return log_beta

# wrong: Z as a number overflows | marginals-test
def marginals(log_node, log_edge, log_alpha, log_beta):
    z = np.exp(log_alpha[-1]).sum()
    pairs = log_alpha[:-1, :, None] + log_edge + (log_node + log_beta)[1:, None, :]
    return np.exp(log_alpha + log_beta) / z, np.exp(pairs) / z

# wrong: pairs as [next, previous] | marginals-test
def marginals(log_node, log_edge, log_alpha, log_beta):
    log_z = np.logaddexp.reduce(log_alpha[-1])
    pairs = log_alpha[:-1, :, None] + log_edge + (log_node + log_beta)[1:, None, :] - log_z
    return np.exp(log_alpha + log_beta - log_z), np.exp(pairs).swapaxes(1, 2)

# wrong: the scores of the second word are left out of the pair | marginals-test
def marginals(log_node, log_edge, log_alpha, log_beta):
    log_z = np.logaddexp.reduce(log_alpha[-1])
    pairs = np.exp(log_alpha[:-1, :, None] + log_edge + log_beta[1:, None, :] - log_z)
    return np.exp(log_alpha + log_beta - log_z), pairs

# wrong: the label after, not the label before | best-scores-test
def best_scores(log_node, log_edge):
    delta, back = log_node.copy(), np.zeros(log_node.shape, int)
    for t in range(1, len(log_node)):
        table = delta[t - 1][:, None] + log_edge
        back[t], delta[t] = table.argmax(axis=1), delta[t] + table.max(axis=0)
    return delta, back

# wrong: the largest of several best labels | best-scores-test
def best_scores(log_node, log_edge):
    delta, back = log_node.copy(), np.zeros(log_node.shape, int)
    for t in range(1, len(log_node)):
        table = delta[t - 1][:, None] + log_edge
        back[t] = len(log_edge) - 1 - table[::-1].argmax(axis=0)
        delta[t] += table.max(axis=0)
    return delta, back

# wrong: each word's best label, arrows not followed | follow-test
def follow(last, back):
    return [int(np.argmax(last))] * len(back)

# wrong: last token first | follow-test
def follow(last, back):
    path = [int(np.argmax(last))]
    for t in range(len(back) - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return path

# wrong: the arrows of the token before | follow-test
def follow(last, back):
    path = [int(np.argmax(last))]
    for t in range(len(back) - 2, -1, -1):
        path.insert(0, int(back[t, path[0]]))
    return path

# wrong: the answer of the shown example, by heart | follow-test
def follow(last, back):
    path = [int(np.argmax(some_last))]
    for t in range(len(some_back) - 1, 0, -1):
        path.insert(0, int(some_back[t, path[0]]))
    return path

# wrong: the largest of several best last labels | follow-test
def follow(last, back):
    path = [len(last) - 1 - int(np.argmax(last[::-1]))]
    for t in range(len(back) - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return path[::-1]
