# wrong: the product underflows | message-test
def message(phi, incoming, psi):
    m = np.prod([phi, *incoming], axis=0) @ psi
    return m / m.sum()

# wrong: not normalised | message-test
def message(phi, incoming, psi):
    view = phi.astype(float)
    for m in incoming:
        view = view * m / (view * m).sum()
    return view @ psi

# wrong: the largest term for the sum | message-test
def message(phi, incoming, psi):
    view = phi.astype(float)
    for m in incoming:
        view = view * m / (view * m).sum()
    m = (view[:, None] * psi).max(0)
    return m / m.sum()

# wrong: receiver and sender swapped | pair-belief-test
def pair_belief(phi_u, phi_v, into_u, into_v, psi):
    u, v = np.prod([phi_u, *into_u], axis=0), np.prod([phi_v, *into_v], axis=0)
    b = (u[:, None] * psi * v).T
    return b / b.sum()

# wrong: single scores left out | pair-belief-test
def pair_belief(phi_u, phi_v, into_u, into_v, psi):
    u = np.prod([np.ones(len(phi_u)), *into_u], axis=0)
    v = np.prod([np.ones(len(phi_v)), *into_v], axis=0)
    b = u[:, None] * psi * v
    return b / b.sum()

# wrong: each row has the sum 1, not the table | pair-belief-test
def pair_belief(phi_u, phi_v, into_u, into_v, psi):
    u, v = np.prod([phi_u, *into_u], axis=0), np.prod([phi_v, *into_v], axis=0)
    b = u[:, None] * psi * v
    return b / b.sum(1, keepdims=True)

# wrong: echo, the message contains what the receiver said | sweep-test
def sweep(log_phi, log_tables, msg):
    new = {}
    for u, v in msg:
        table = log_tables[u, v] if (u, v) in log_tables else log_tables[v, u].T
        m = np.prod([np.exp(log_phi[u]), *(msg[w, x] for w, x in msg if x == u)], axis=0) @ np.exp(table)
        new[u, v] = m / m.sum()
    return new

# wrong: from the newest messages | sweep-test
def sweep(log_phi, log_tables, msg):
    msg = dict(msg)
    for u, v in msg:
        table = log_tables[u, v] if (u, v) in log_tables else log_tables[v, u].T
        near = [msg[w, x] for w, x in msg if x == u and w != v]
        m = np.prod([np.exp(log_phi[u]), *near], axis=0) @ np.exp(table)
        msg[u, v] = m / m.sum()
    return msg

# wrong: the sender's own scores left out | sweep-test
def sweep(log_phi, log_tables, msg):
    new = {}
    for u, v in msg:
        table = log_tables[u, v] if (u, v) in log_tables else log_tables[v, u].T
        near = [msg[w, x] for w, x in msg if x == u and w != v]
        m = np.prod([np.ones(len(log_phi[u])), *near], axis=0) @ np.exp(table)
        new[u, v] = m / m.sum()
    return new

# wrong: only in the direction in which a pair stands | sweep-test
def sweep(log_phi, log_tables, msg):
    new = dict(msg)
    for u, v in log_tables:
        near = [msg[w, x] for w, x in msg if x == u and w != v]
        m = np.prod([np.exp(log_phi[u]), *near], axis=0) @ np.exp(log_tables[u, v])
        new[u, v] = m / m.sum()
    return new

# wrong: the entropy of variables counted once each | bethe-test
def bethe(log_phi, log_tables, p, pairs):
    def part(b, s):
        return (b[b > 0] * (s[b > 0] - np.log(b[b > 0]))).sum()
    return sum(part(pairs[e], log_tables[e]) for e in pairs) + sum(part(b, s) for b, s in zip(p, log_phi))

# wrong: the sign of the entropy | bethe-test
def bethe(log_phi, log_tables, p, pairs):
    def mean(b, s):
        return (b[b > 0] * s[b > 0]).sum()
    def entropy(b):
        return mean(b, np.log(np.maximum(b, 1e-300)))
    total = sum(mean(pairs[e], log_tables[e]) + entropy(pairs[e]) for e in pairs)
    for v, (b, s) in enumerate(zip(p, log_phi)):
        total += mean(b, s) + (1 - sum(v in e for e in pairs)) * entropy(b)
    return total

# wrong: nan where a belief is 0 | bethe-test
def bethe(log_phi, log_tables, p, pairs):
    total = sum((pairs[e] * (log_tables[e] - np.log(pairs[e]))).sum() for e in pairs)
    for v, (b, s) in enumerate(zip(p, log_phi)):
        total += (b * s).sum() - (1 - sum(v in e for e in pairs)) * (b * np.log(b)).sum()
    return total

# wrong: only towards the root | tree-order-test
def tree_order(n, edges, root):
    near, away, seen = [[] for _ in range(n)], [], [root]
    for u, v in edges:
        near[u].append(v)
        near[v].append(u)
    for u in seen:
        new = [v for v in near[u] if v not in seen]
        seen += new
        away += [(u, v) for v in new]
    return [(v, u) for u, v in reversed(away)]

# wrong: first away from the root, then back | tree-order-test
def tree_order(n, edges, root):
    near, away, seen = [[] for _ in range(n)], [], [root]
    for u, v in edges:
        near[u].append(v)
        near[v].append(u)
    for u in seen:
        new = [v for v in near[u] if v not in seen]
        seen += new
        away += [(u, v) for v in new]
    return away + [(v, u) for u, v in reversed(away)]

# wrong: the pairs as they are given, then turned round | tree-order-test
def tree_order(n, edges, root):
    return [tuple(pair) for pair in edges] + [(v, u) for u, v in reversed(edges)]

# wrong: towards the root in the order of going away | tree-order-test
def tree_order(n, edges, root):
    near, away, seen = [[] for _ in range(n)], [], [root]
    for u, v in edges:
        near[u].append(v)
        near[v].append(u)
    for u in seen:
        new = [v for v in near[u] if v not in seen]
        seen += new
        away += [(u, v) for v in new]
    return [(v, u) for u, v in away] + away

# wrong: it calls itself for each variable | tree-order-test
def tree_order(n, edges, root):
    near = [[] for _ in range(n)]
    for u, v in edges:
        near[u].append(v)
        near[v].append(u)
    def inwards(u, but):
        return [way for v in near[u] if v != but for way in [*inwards(v, u), (v, u)]]
    there = inwards(root, None)
    return there + [(v, u) for u, v in reversed(there)]

# wrong: one quiet turn is enough once all pairs have been in a tree | stop-test
def stop_after(turns, edges, tol):
    ever = set()
    for number, (pairs, change) in enumerate(turns, 1):
        ever |= set(pairs)
        if change < tol and ever >= set(edges):
            return number
    return 0

# wrong: the tree of a turn that changed something counts | stop-test
def stop_after(turns, edges, tol):
    covered = set()
    for number, (pairs, change) in enumerate(turns, 1):
        covered = covered | set(pairs) if change < tol else set(pairs)
        if change < tol and covered >= set(edges):
            return number
    return 0

# wrong: the first quiet turn | stop-test
def stop_after(turns, edges, tol):
    return next((n for n, (_, change) in enumerate(turns, 1) if change < tol), 0)

# wrong: a change of exactly tol is none | stop-test
def stop_after(turns, edges, tol):
    covered = set()
    for number, (pairs, change) in enumerate(turns, 1):
        covered = covered | set(pairs) if change <= tol else set()
        if covered >= set(edges):
            return number
    return 0
