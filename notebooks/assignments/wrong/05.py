# wrong: pairs read as [next, previous] | correction-test
def correction(X, y, best, L):
    change, A = {}, X.shape[1]
    for path, sign in ((y, 1), (best, -1)):
        for t in range(len(X)):
            cells = [(a * L + path[t], X[t, a]) for a in range(A)]
            cells += [(A * L + path[t] * L + path[t - 1], 1)] if t else []
            for cell, much in cells:
                change[int(cell)] = change.get(int(cell), 0) + sign * much
    return {cell: amount for cell, amount in change.items() if amount}

# wrong: cells that cancel stay with the amount 0 | correction-test
def correction(X, y, best, L):
    change, A = {}, X.shape[1]
    for path, sign in ((y, 1), (best, -1)):
        for t in range(len(X)):
            cells = [(a * L + path[t], X[t, a]) for a in range(A) if X[t, a]]
            cells += [(A * L + path[t - 1] * L + path[t], 1)] if t else []
            for cell, much in cells:
                change[int(cell)] = change.get(int(cell), 0) + sign * much
    return change

# wrong: only the pair that leads into a wrong token, not the one that leaves it | correction-test
def correction(X, y, best, L):
    change, A = {}, X.shape[1]
    for t in np.flatnonzero(y != best):
        for path, sign in ((y, 1), (best, -1)):
            cells = [(a * L + path[t], X[t, a]) for a in range(A)]
            cells += [(A * L + path[t - 1] * L + path[t], 1)] if t else []
            for cell, much in cells:
                change[int(cell)] = change.get(int(cell), 0) + sign * much
    return {cell: amount for cell, amount in change.items() if amount}

# wrong: towards the mistake | correction-test
def correction(X, y, best, L):
    def counts(path):
        Y = np.eye(L)[path]
        return np.concatenate([(X.T @ Y).ravel(), (Y[:-1].T @ Y[1:]).ravel()])
    dS = counts(best) - counts(y)
    return {int(k): dS[k] for k in np.flatnonzero(dS)}

# wrong: an attribute counts once, however often a token has it | correction-test
def correction(X, y, best, L):
    def counts(path):
        Y = np.eye(L)[path]
        return np.concatenate([((X > 0).T @ Y).ravel(), (Y[:-1].T @ Y[1:]).ravel()])
    dS = counts(y) - counts(best)
    return {int(k): dS[k] for k in np.flatnonzero(dS)}

# wrong: the weights stand still during an epoch (the batch perceptron) | online-test
def online(tables, epochs):
    w = np.zeros(tables[0][0].shape[1])
    vectors = [w]
    for _ in range(epochs):
        fixed = w
        for S, right in tables:
            w = w + S[right] - S[np.argmax(S @ fixed)]
            vectors.append(w)
    return np.array(vectors)

# wrong: a vector after mistakes only | online-test
def online(tables, epochs):
    w = np.zeros(tables[0][0].shape[1])
    vectors = [w]
    for S, right in tables * epochs:
        guess = np.argmax(S @ w)
        if guess != right:
            w = w + S[right] - S[guess]
            vectors.append(w)
    return np.array(vectors)

# wrong: w_0 is left out | online-test
def online(tables, epochs):
    w, vectors = np.zeros(tables[0][0].shape[1]), []
    for S, right in tables * epochs:
        w = w + S[right] - S[np.argmax(S @ w)]
        vectors.append(w)
    return np.array(vectors)

# wrong: all rows are one array, which goes on changing | online-test
def online(tables, epochs):
    w = np.zeros(tables[0][0].shape[1])
    vectors = [w]
    for S, right in tables * epochs:
        w += S[right] - S[np.argmax(S @ w)]
        vectors.append(w)
    return np.array(vectors)

# wrong: of equal scores the last in the list | online-test
def online(tables, epochs):
    w = np.zeros(tables[0][0].shape[1])
    vectors = [w]
    for S, right in tables * epochs:
        guess = len(S) - 1 - np.argmax((S @ w)[::-1])
        w = w + S[right] - S[guess]
        vectors.append(w)
    return np.array(vectors)

# wrong: the mean of m vectors, not of m + 1 | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    w, w_sum = np.zeros(F), np.zeros(F)
    np.add.at(w, cell, amount)
    np.add.at(w_sum, cell, when * amount)
    return w, w - w_sum / m

# wrong: c - 1 in the sum, c in the division | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    w, w_sum = np.zeros(F), np.zeros(F)
    np.add.at(w, cell, amount)
    np.add.at(w_sum, cell, (when - 1) * amount)
    return w, w - w_sum / (m + 1)

# wrong: corrections without their counter | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    w = np.zeros(F)
    np.add.at(w, cell, amount)
    return w, w - w / (m + 1)

# wrong: no averaging of anything: the last vector twice | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    w = np.zeros(F)
    np.add.at(w, cell, amount)
    return w, w

# wrong: of a cell that is named twice only one entry counts | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    w, w_sum = np.zeros(F), np.zeros(F)
    w[cell] += amount
    w_sum[cell] += when * amount
    return w, w - w_sum / (m + 1)

# wrong: a list of all vectors, which has no room | lazy-mean-test
def lazy_mean(F, when, cell, amount, m):
    vectors = np.zeros((m + 1, F))
    for j, k, much in zip(when, cell, amount):
        vectors[j:, k] += much
    return vectors[-1], vectors.mean(0)

# wrong: the length of u is left in the margin | most-mistakes-test
def most_mistakes(u, D):
    margin = (D @ u).min()
    return (D**2).sum(1).max() / margin**2 if margin > 0 else np.inf

# wrong: the largest margin for the least | most-mistakes-test
def most_mistakes(u, D):
    margin = (D @ u).max() / np.sqrt(u @ u)
    return (D**2).sum(1).max() / margin**2 if (D @ u).min() > 0 else np.inf

# wrong: a u that does not separate gets a number | most-mistakes-test
def most_mistakes(u, D):
    margin = (D @ u).min()
    return (D**2).sum(1).max() * (u @ u) / margin**2 if margin else np.inf

# wrong: R / gamma, not squared | most-mistakes-test
def most_mistakes(u, D):
    margin = (D @ u).min()
    return np.sqrt((D**2).sum(1).max() * (u @ u)) / margin if margin > 0 else np.inf

# wrong: the answer of the shown example | most-mistakes-test
def most_mistakes(u, D):
    return 100.0 if (D @ u).min() > 0 else np.inf

# wrong: each wrong labelling weighs the same | boost-steps-test
def boost_steps(Phi, score):
    m, low, high = Phi.mean(0), Phi.min(0), Phi.max(0)
    usable = (low < 0) & (high > 0)
    low, high, m = np.where(usable, low, -1.0), np.where(usable, high, 1.0), np.where(usable, m, 0.0)
    a = (m - low) / (high - low)
    step = np.log(-(1 - a) * low / (a * high)) / (high - low)
    return step, (1 - a) * np.exp(step * low) + a * np.exp(step * high)

# wrong: large scores overflow | boost-steps-test
def boost_steps(Phi, score):
    share = np.exp(score)
    m, low, high = share @ Phi / share.sum(), Phi.min(0), Phi.max(0)
    usable = (low < 0) & (high > 0)
    low, high, m = np.where(usable, low, -1.0), np.where(usable, high, 1.0), np.where(usable, m, 0.0)
    a = (m - low) / (high - low)
    step = np.log(-(1 - a) * low / (a * high)) / (high - low)
    return step, (1 - a) * np.exp(step * low) + a * np.exp(step * high)

# wrong: uphill | boost-steps-test
def boost_steps(Phi, score):
    share = np.exp(score - score.max())
    m, low, high = share @ Phi / share.sum(), Phi.min(0), Phi.max(0)
    usable = (low < 0) & (high > 0)
    low, high, m = np.where(usable, low, -1.0), np.where(usable, high, 1.0), np.where(usable, m, 0.0)
    a = (m - low) / (high - low)
    step = -np.log(-(1 - a) * low / (a * high)) / (high - low)
    return step, (1 - a) * np.exp(step * low) + a * np.exp(step * high)

# wrong: the step is not divided by the width | boost-steps-test
def boost_steps(Phi, score):
    share = np.exp(score - score.max())
    m, low, high = share @ Phi / share.sum(), Phi.min(0), Phi.max(0)
    usable = (low < 0) & (high > 0)
    low, high, m = np.where(usable, low, -1.0), np.where(usable, high, 1.0), np.where(usable, m, 0.0)
    a = (m - low) / (high - low)
    step = np.log(-(1 - a) * low / (a * high))
    return step, (1 - a) * np.exp(step * low) + a * np.exp(step * high)

# wrong: features of one sign become nan | boost-steps-test
def boost_steps(Phi, score):
    share = np.exp(score - score.max())
    m, low, high = share @ Phi / share.sum(), Phi.min(0), Phi.max(0)
    a = (m - low) / (high - low)
    step = np.log(-(1 - a) * low / (a * high)) / (high - low)
    return step, (1 - a) * np.exp(step * low) + a * np.exp(step * high)
