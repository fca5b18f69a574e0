# wrong: one after the other | tree-test
def tree(x):
    total = x[0]
    for part in x[1:]:
        total = total + part
    return total

# wrong: the first half and the second half, not pairs | tree-test
def tree(x):
    if len(x) == 1:
        return x[0]
    middle = (len(x) + 1) // 2
    return tree(x[:middle]) + tree(x[middle:])

# wrong: the last one that is left over is lost | tree-test
def tree(x):
    x = list(x)
    while len(x) > 1:
        x = [a + b for a, b in zip(x[::2], x[1::2])]
    return x[0]

# wrong: added in place | tree-test
def tree(x):
    x = list(x)
    while len(x) > 1:
        for a, b in zip(x[::2], x[1::2]):
            a += b
        x = x[::2]
    return x[0]

# wrong: what is left over is added to the last pair at once | tree-test
def tree(x):
    x = list(x)
    while len(x) > 1:
        odd = x.pop() if len(x) % 2 else None
        x = [a + b for a, b in zip(x[::2], x[1::2])]
        if odd is not None:
            x[-1] = x[-1] + odd
    return x[0]

# wrong: all that a worker has is one branch | branches-test
def branches(start, stop, n):
    return [(start, stop - start)] if stop > start else []

# wrong: each shard by itself | branches-test
def branches(start, stop, n):
    return [(i, 1) for i in range(start, stop)]

# wrong: powers of two, wherever they begin | branches-test
def branches(start, stop, n):
    found = []
    while start < stop:
        size = 1
        while start + 2 * size <= stop:
            size *= 2
        found.append((start, size))
        start += size
    return found

# wrong: the right end of the tree is left in parts | branches-test
def branches(start, stop, n):
    found = []
    while start < stop:
        size = 1
        while start % (2 * size) == 0 and start + 2 * size <= stop:
            size *= 2
        found.append((start, size))
        start += size
    return found

# wrong: any neighbours are joined | join-test
def join(found, n):
    total = found[0][2]
    for _, _, part in found[1:]:
        total = total + part
    return [(found[0][0], sum(size for _, size, _ in found), total)]

# wrong: equal sizes are joined wherever they begin | join-test
def join(found, n):
    stack = []
    for branch in found:
        stack.append(tuple(branch))
        while len(stack) > 1 and stack[-2][1] == stack[-1][1]:
            (a, p, left), (b, q, right) = stack[-2:]
            stack[-2:] = [(a, p + q, left + right)]
    return stack

# wrong: smaller branches at the right end stay apart | join-test
def join(found, n):
    stack = []
    for branch in found:
        stack.append(tuple(branch))
        while len(stack) > 1:
            (a, p, left), (b, q, right) = stack[-2:]
            if p != q or a % (2 * p):
                break
            stack[-2:] = [(a, p + q, left + right)]
    return stack

# wrong: one pass from left to right | join-test
def join(found, n):
    left = []
    for start, size, total in found:
        if left and left[-1][1] == size and left[-1][0] % (2 * size) == 0:
            a, _, first = left.pop()
            left.append((a, 2 * size, first + total))
        else:
            left.append((start, size, total))
    return left

# wrong: the penalty in each shard | objective-test
def objective(found, w, c2):
    grad = np.zeros(len(w))
    value = 0.0
    for loss, places, slope in found:
        value += loss + c2 * (w @ w)
        grad[places] += slope
        grad += 2 * c2 * w
    return value, grad

# wrong: the mean of the shards | objective-test
def objective(found, w, c2):
    grad = np.zeros(len(w))
    for loss, places, slope in found:
        grad[places] += slope
    return np.mean([loss for loss, _, _ in found]) + c2 * (w @ w), grad / len(found) + 2 * c2 * w

# wrong: the last shard that has a weight replaces the others | objective-test
def objective(found, w, c2):
    grad = 2 * c2 * w
    for loss, places, slope in found:
        grad[places] = slope + 2 * c2 * w[places]
    return sum(loss for loss, _, _ in found) + c2 * (w @ w), grad

# wrong: half of c2 | objective-test
def objective(found, w, c2):
    grad = c2 * w
    for _, places, slope in found:
        grad[places] += slope
    return sum(loss for loss, _, _ in found) + c2 * (w @ w) / 2, grad

# wrong: the weights themselves are changed | objective-test
def objective(found, w, c2):
    value = sum(loss for loss, _, _ in found) + c2 * (w @ w)
    w *= 2 * c2
    for _, places, slope in found:
        w[places] += slope
    return value, w

# wrong: words cost the same whatever the workers | crossing-test
def crossing(N, tau, F, r, by_tree):
    W = 2
    while 16 * F / r * (np.log2(W) if by_tree else W) <= N * tau:
        W += 1
        if W > 100_000:
            break
    return W

# wrong: vectors only go out | crossing-test
def crossing(N, tau, F, r, by_tree):
    W = 2
    while 8 * F / r * (np.log2(W) if by_tree else W) <= N * tau / W:
        W += 1
    return W

# wrong: the last one at which the network is no longer | crossing-test
def crossing(N, tau, F, r, by_tree):
    W = 2
    while 16 * F / r * (np.log2(W) if by_tree else W) <= N * tau / W:
        W += 1
    return W - 1

# wrong: natural logarithms | crossing-test
def crossing(N, tau, F, r, by_tree):
    W = 2
    while 16 * F / r * (np.log(W) if by_tree else W) <= N * tau / W:
        W += 1
    return W

# wrong: a tie counts | crossing-test
def crossing(N, tau, F, r, by_tree):
    W = 2
    while 16 * F / r * (np.log2(W) if by_tree else W) < N * tau / W:
        W += 1
    return W
