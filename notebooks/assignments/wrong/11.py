# wrong: half a gain, from the stored pairs of y' alone | alive-test
def alive(delta, edge):
    q = delta.argmax()
    gain = np.where(edge != 0, edge - edge[q], -np.inf).max(1)
    return ~(delta + np.maximum(gain, 0.0) < delta[q])

# wrong: the leader's own pairs are left out | alive-test
def alive(delta, edge):
    return ~(delta + edge.max(1) < delta.max())

# wrong: the best label alone | alive-test
def alive(delta, edge):
    return delta == delta.max()

# wrong: columns for rows | alive-test
def alive(delta, edge):
    q = delta.argmax()
    return delta + (edge - edge[:, [q]]).max(0) >= delta[q]

# wrong: the least gain, not the largest | alive-test
def alive(delta, edge):
    q = delta.argmax()
    return delta + (edge - edge[q]).min(1) >= delta[q]

# wrong: z has the mean of its labels | collapse-test
def collapse(scores, size, axis):
    first, rest = np.split(scores, [size], axis)
    return np.concatenate([first, rest.mean(axis, keepdims=True)], axis) if rest.size else first

# wrong: z covers one label too many | collapse-test
def collapse(scores, size, axis):
    first, rest = np.split(scores, [size], axis)
    return np.concatenate([first, scores.max(axis, keepdims=True)], axis) if rest.size else first

# wrong: a z that covers nothing | collapse-test
def collapse(scores, size, axis):
    first, rest = np.split(scores, [size], axis)
    z = rest.max(axis, keepdims=True, initial=-np.inf)
    return np.concatenate([first, z], axis)

# wrong: greedy, from left to right | best-path-test
def best_path(columns, pairs):
    path = [int(columns[0].argmax())]
    for u, s in zip(columns[1:], pairs):
        path.append(int((u + s[path[-1]]).argmax()))
    return path

# wrong: each label's best score, without going back | best-path-test
def best_path(columns, pairs):
    delta, path = columns[0], [int(columns[0].argmax())]
    for u, s in zip(columns[1:], pairs):
        delta = u + (delta[:, None] + s).max(0)
        path.append(int(delta.argmax()))
    return path

# wrong: the path comes out backwards | best-path-test
def best_path(columns, pairs):
    delta, back = columns[0], []
    for u, s in zip(columns[1:], pairs):
        back.append((delta[:, None] + s).argmax(0))
        delta = u + (delta[:, None] + s).max(0)
    path = [int(delta.argmax())]
    for came in reversed(back):
        path.append(int(came[path[-1]]))
    return path

# wrong: sizes exceed L | grow-test
def grow(sizes, path, L, by_column):
    used = [a == b for a, b in zip(sizes, path)]
    return [2 * n if z or (any(used) and not by_column) else n for n, z in zip(sizes, used)]

# wrong: all columns double although the path has no z | grow-test
def grow(sizes, path, L, by_column):
    return [min(2 * n, L) if n == y or not by_column else n for n, y in zip(sizes, path)]

# wrong: z is taken for the last label of its own | grow-test
def grow(sizes, path, L, by_column):
    used = [y == n - 1 for n, y in zip(sizes, path)]
    return [min(2 * n, L) if z or (any(used) and not by_column) else n for n, z in zip(sizes, used)]
