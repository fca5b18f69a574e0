# wrong: cliques stick out at the end | unroll-test
def unroll(template, T):
    return [(c, t) for c, clique in enumerate(template) for t in range(T)]

# wrong: the last token is left out | unroll-test
def unroll(template, T):
    return [(c, t) for c, clique in enumerate(template) for t in range(T - len(clique))]

# wrong: the steps of the clique's last label decide, not the largest | unroll-test
def unroll(template, T):
    return [(c, t) for c, clique in enumerate(template) for t in range(T - clique[-1][0])]

# wrong: the number of labels decides, not their steps | unroll-test
def unroll(template, T):
    return [(c, t) for c, clique in enumerate(template) for t in range(T - len(clique) + 1)]

# wrong: axes of the chains swapped | join-test
def join(u, v, q):
    return (u[:, None, :] + v[:, :, None] + np.swapaxes(q, 1, 2))

# wrong: the score of both labels is left out at the first token | join-test
def join(u, v, q):
    return u[:, :, None] + v[:, None] + q * (np.arange(len(q)) > 0)[:, None, None]

# wrong: written into q | join-test
def join(u, v, q):
    q += u[:, :, None] + v[:, None]
    return q

# wrong: not transposed | step-test
def step(alpha, N, P1, P2):
    return N * (P1 @ (alpha @ P2))

# wrong: token too early | step-test
def step(alpha, N, P1, P2):
    return P1.T @ (N * (alpha @ P2))

# wrong: no largest score subtracted | log-z-test
def log_z(node, edge1, edge2):
    P1, P2, alpha = np.exp(edge1), np.exp(edge2), np.exp(node[0])
    for scores in node[1:]:
        alpha = np.exp(scores) * (P1.T @ alpha @ P2)
    return np.log(alpha.sum())

# wrong: the scale of the last token is lost | log-z-test
def log_z(node, edge1, edge2):
    total = 0.0
    for t, scores in enumerate(node):
        if t:
            total += np.log(alpha.sum())
        alpha = np.exp(scores - scores.max()) * ((np.exp(edge1).T @ (alpha / alpha.sum()) @ np.exp(edge2)) if t else 1)
        total += scores.max()
    return total

# wrong: the best labelling for the sum | log-z-test
def log_z(node, edge1, edge2):
    delta = node[0]
    for scores in node[1:]:
        both = delta[:, :, None, None] + edge1[:, None, :, None] + edge2[None, :, None, :]
        delta = scores + both.max((0, 1))
    return delta.max()

# wrong: next before previous | neighbours-test
def neighbours(alpha, N, beta, P1, P2):
    p = P1 * ((alpha @ P2) @ (N * beta).T)
    return p.T / p.sum()

# wrong: not normalised | neighbours-test
def neighbours(alpha, N, beta, P1, P2):
    return P1 * ((alpha @ P2) @ (N * beta).T)

# wrong: the token's own scores are left out | neighbours-test
def neighbours(alpha, N, beta, P1, P2):
    p = P1 * ((alpha @ P2) @ beta.T)
    return p / p.sum()

# wrong: the skew edge is left out | skew-test
def skew_step(alpha, N, P1, P2, S):
    return N * (P1.T @ (alpha @ P2))

# wrong: askew too late, when the tag before is gone | skew-test
def skew_step(alpha, N, P1, P2, S):
    return N * (P1.T @ (alpha @ P2)) * S

# wrong: askew too early, on the phrase label before | skew-test
def skew_step(alpha, N, P1, P2, S):
    return N * (P1.T @ ((alpha * S) @ P2))

# wrong: the word's own scores between the two sums | skew-test
def skew_step(alpha, N, P1, P2, S):
    return P1.T @ ((alpha @ P2) * S * N)
