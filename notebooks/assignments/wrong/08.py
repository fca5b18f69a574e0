# wrong: windows run into the next word | index-test
def index(words, k):
    line, held = "".join(words), {}
    padded = "_" * (k // 2) + line + "_" * (k // 2)
    for t in range(len(line)):
        held.setdefault(padded[t : t + k], []).append(t)
    return held

# wrong: the letter is the first of its window, not the middle one | index-test
def index(words, k):
    held, t = {}, 0
    for word in words:
        padded = word + "_" * (k - 1)
        for i in range(len(word)):
            held.setdefault(padded[i : i + k], []).append(t)
            t += 1
    return held

# wrong: each word counts its letters from zero | index-test
def index(words, k):
    held = {}
    for word in words:
        padded = "_" * (k // 2) + word + "_" * (k // 2)
        for i in range(len(word)):
            held.setdefault(padded[i : i + k], []).append(i)
    return held

# wrong: of a window that occurs twice only the last place is kept | index-test
def index(words, k):
    held, t = {}, 0
    for word in words:
        padded = "_" * (k // 2) + word + "_" * (k // 2)
        for i in range(len(word)):
            held[padded[i : i + k]] = [t]
            t += 1
    return held

# wrong: gold cells alone, no candidate that the text does not show | entry-test
def entry(where, gold, first, L):
    largest = []
    for at in where:
        n, inside = np.bincount(gold[at], minlength=L), at[~first[at]]
        m = np.bincount(gold[inside - 1] * L + gold[inside], minlength=L * L)
        node, edge = np.abs(len(at) / L - n)[n > 0], np.abs(len(inside) / L**2 - m)[m > 0]
        largest.append(max([*node, *edge]))
    return np.array(largest)

# wrong: first letters have pairs, with the last letter of the word before | entry-test
def entry(where, gold, first, L):
    largest = []
    for at in where:
        node = len(at) / L - np.bincount(gold[at], minlength=L)
        edge = len(at) / L**2 - np.bincount(gold[at - 1] * L + gold[at], minlength=L * L)
        largest.append(max(np.abs(node).max(), np.abs(edge).max()))
    return np.array(largest)

# wrong: labels alone, no pairs | entry-test
def entry(where, gold, first, L):
    return np.array([np.abs(len(at) / L - np.bincount(gold[at], minlength=L)).max() for at in where])

# wrong: the largest gradient, not the largest size | entry-test
def entry(where, gold, first, L):
    largest = []
    for at in where:
        node = len(at) / L - np.bincount(gold[at], minlength=L)
        inside = at[~first[at]]
        edge = len(inside) / L**2 - np.bincount(gold[inside - 1] * L + gold[inside], minlength=L * L)
        largest.append(max(node.max(), edge.max()))
    return np.array(largest)

# wrong: the bound by count for the gradient | entry-test
def entry(where, gold, first, L):
    return np.array([float(len(at)) for at in where])

# wrong: the pair has the probability 1 / L | entry-test
def entry(where, gold, first, L):
    largest = []
    for at in where:
        node = len(at) / L - np.bincount(gold[at], minlength=L)
        inside = at[~first[at]]
        edge = len(inside) / L - np.bincount(gold[inside - 1] * L + gold[inside], minlength=L * L)
        largest.append(max(np.abs(node).max(), np.abs(edge).max()))
    return np.array(largest)

# wrong: adds up p, not 1 - p | screen-test
def screen(where, p_gold, active, c1):
    n = np.array([len(at) for at in where])
    doubt = np.array([p_gold[at].sum() for at in where])
    return np.where(active, 2, np.where(n <= c1, 0, np.where(doubt <= c1, 1, 2)))

# wrong: active blocks are screened, too | screen-test
def screen(where, p_gold, active, c1):
    n = np.array([len(at) for at in where])
    doubt = np.array([(1 - p_gold[at]).sum() for at in where])
    return np.where(n <= c1, 0, np.where(doubt <= c1, 1, 2))

# wrong: less than c1, where at most c1 is enough | screen-test
def screen(where, p_gold, active, c1):
    n = np.array([len(at) for at in where])
    doubt = np.array([(1 - p_gold[at]).sum() for at in where])
    return np.where(active, 2, np.where(n < c1, 0, np.where(doubt < c1, 1, 2)))

# wrong: the mean doubt for the sum | screen-test
def screen(where, p_gold, active, c1):
    n = np.array([len(at) for at in where])
    doubt = np.array([(1 - p_gold[at]).mean() for at in where])
    return np.where(active, 2, np.where(n <= c1, 0, np.where(doubt <= c1, 1, 2)))

# wrong: a block that both rules screen is given to doubt | screen-test
def screen(where, p_gold, active, c1):
    n = np.array([len(at) for at in where])
    doubt = np.array([(1 - p_gold[at]).sum() for at in where])
    return np.where(active, 2, np.where(doubt <= c1, 1, np.where(n <= c1, 0, 2)))

# wrong: the penalty pulls away from zero | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, abs(g[k] + 2 * c2 * w - c1 * np.sign(w)))
        violators = [int(k) for k in np.flatnonzero(np.abs(g) > c1) if k not in active]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: c2 with a half | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, abs(g[k] + c2 * w + c1 * np.sign(w)))
        violators = [int(k) for k in np.flatnonzero(np.abs(g) > c1) if k not in active]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: the excess alone: a weight that should shrink is overlooked | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, g[k] + 2 * c2 * w + c1 * np.sign(w))
        violators = [int(k) for k in np.flatnonzero(np.abs(g) > c1) if k not in active]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: positive gradients of zeros are overlooked | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, abs(g[k] + 2 * c2 * w + c1 * np.sign(w)))
        violators = [int(k) for k in np.flatnonzero(-g > c1) if k not in active]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: active weights are told to enter | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, abs(g[k] + 2 * c2 * w + c1 * np.sign(w)))
        violators = [int(k) for k in np.flatnonzero(np.abs(g) > c1)]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: a zero that is exactly at its limit must enter | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, g in slopes.items():
        active = weights.get(a, {})
        for k, w in active.items():
            worst = max(worst, abs(g[k] + 2 * c2 * w + c1 * np.sign(w)))
        violators = [int(k) for k in np.flatnonzero(np.abs(g) >= c1) if k not in active]
        if violators:
            enter[a] = violators
    return worst, enter

# wrong: blocks without weights are frozen for good | full-pass-test
def full_pass(weights, slopes, c1, c2):
    worst, enter = 0.0, {}
    for a, active in weights.items():
        if active:
            g = slopes[a]
            worst = max([worst, *(abs(g[k] + 2 * c2 * w + c1 * np.sign(w)) for k, w in active.items())])
            violators = [int(k) for k in np.flatnonzero(np.abs(g) > c1) if k not in active]
            if violators:
                enter[a] = violators
    return worst, enter

# wrong: each penalty begins with no weights | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    notes = []
    for c1 in grid:
        weights = {}
        kept = {a: held for a, held in fires.items() if len(held) > c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: nothing is screened | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in grid:
        for _ in range(sweeps):
            weights = sweep(text, L, fires, weights, c1, c2)
        notes.append((len(fires), sum(map(len, weights.values())), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: what the first penalty screens never comes back | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    kept = {a: held for a, held in fires.items() if len(held) > grid[0]}
    for c1 in grid:
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: tests are counted, not weights | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in grid:
        kept = {a: held for a, held in fires.items() if len(held) > c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), len(weights), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: the loss without the penalty of L1 | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in grid:
        kept = {a: held for a, held in fires.items() if len(held) > c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, 0.0, c2)))
    return np.array(notes, float), weights

# wrong: up, not down | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in sorted(grid):
        kept = {a: held for a, held in fires.items() if len(held) > c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: tests that fire exactly c1 times stay in | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in grid:
        kept = {a: held for a, held in fires.items() if len(held) >= c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, c1, c2)))
    return np.array(notes, float), weights

# wrong: the objective at the last penalty for all rows | walk-test
def walk(text, L, fires, grid, c2, sweeps):
    weights, notes = {}, []
    for c1 in grid:
        kept = {a: held for a, held in fires.items() if len(held) > c1}
        for _ in range(sweeps):
            weights = sweep(text, L, kept, weights, c1, c2)
        notes.append((len(kept), sum(map(len, weights.values())), objective(text, weights, L, grid[-1], c2)))
    return np.array(notes, float), weights
