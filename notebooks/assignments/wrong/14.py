# wrong: the time from which on it stays below the goal | seconds-test
def seconds_to(traces, best, goals):
    found = []
    for trace in traces:
        found.append([])
        for goal in goals:
            reached = np.inf
            for s, value in reversed(trace):
                if not value <= (1 + goal) * best:
                    break
                reached = s
            found[-1].append(reached)
    return np.median(found, axis=0)

# wrong: goals in nats | seconds-test
def seconds_to(traces, best, goals):
    found = [
        [next((s for s, value in trace if value <= best + goal), np.inf) for goal in goals]
        for trace in traces
    ]
    return np.median(found, axis=0)

# wrong: processes that never reach a goal are left out | seconds-test
def seconds_to(traces, best, goals):
    medians = []
    for goal in goals:
        found = [next((s for s, value in trace if value <= (1 + goal) * best), None) for trace in traces]
        found = [s for s in found if s is not None]
        medians.append(np.median(found) if found else np.inf)
    return medians

# wrong: never is the last second of the trace | seconds-test
def seconds_to(traces, best, goals):
    ends = [trace[-1][0] if trace else 0.0 for trace in traces]
    found = [
        [next((s for s, value in trace if value <= (1 + goal) * best), end) for goal in goals]
        for trace, end in zip(traces, ends)
    ]
    return np.median(found, axis=0)

# wrong: the mean of the processes | seconds-test
def seconds_to(traces, best, goals):
    found = [
        [next((s for s, value in trace if value <= (1 + goal) * best), np.inf) for goal in goals]
        for trace in traces
    ]
    return np.mean(found, axis=0)

# wrong: below a goal, not at it | seconds-test
def seconds_to(traces, best, goals):
    found = [
        [next((s for s, value in trace if value < (1 + goal) * best), np.inf) for goal in goals]
        for trace in traces
    ]
    return np.median(found, axis=0)

# wrong: the bound divides by 8 c2 | certificate-test
def certificate(value, grad, c2):
    bound = grad @ grad / (8 * c2)
    return bound, bound / (value - bound) if bound < value else np.inf

# wrong: the length of the gradient, not its square | certificate-test
def certificate(value, grad, c2):
    bound = np.linalg.norm(grad) / (4 * c2)
    return bound, bound / (value - bound) if bound < value else np.inf

# wrong: a share of F, not of the smallest possible minimum | certificate-test
def certificate(value, grad, c2):
    bound = grad @ grad / (4 * c2)
    return bound, bound / value if bound < value else np.inf

# wrong: a negative distance is proven | certificate-test
def certificate(value, grad, c2):
    bound = grad @ grad / (4 * c2)
    return bound, bound / (value - bound) if bound != value else np.inf

# wrong: p without the sample at hand | paired-test
def paired(a, b, flips):
    change = b - a
    shuffled = (change * (1 - 2 * flips)).sum(axis=1)
    return change.sum(), (abs(shuffled) >= abs(change.sum())).mean()

# wrong: equal shuffles do not count | paired-test
def paired(a, b, flips):
    change = b - a
    shuffled = (change * (1 - 2 * flips)).sum(axis=1)
    return change.sum(), (1 + (abs(shuffled) > abs(change.sum())).sum()) / (1 + len(flips))

# wrong: in one direction alone | paired-test
def paired(a, b, flips):
    change = b - a
    shuffled = (change * (1 - 2 * flips)).sum(axis=1)
    return change.sum(), (1 + (shuffled >= change.sum()).sum()) / (1 + len(flips))

# wrong: a swapped sentence is left out | paired-test
def paired(a, b, flips):
    change = b - a
    shuffled = (change * (1 - flips)).sum(axis=1)
    return change.sum(), (1 + (abs(shuffled) >= abs(change.sum())).sum()) / (1 + len(flips))

# wrong: each p-value times m | holm-test
def holm(p):
    return np.minimum(1.0, len(p) * p)

# wrong: without the running maximum | holm-test
def holm(p):
    corrected = np.empty(len(p))
    for rank, place in enumerate(np.argsort(p)):
        corrected[place] = min(1.0, (len(p) - rank) * p[place])
    return corrected

# wrong: in the order of size | holm-test
def holm(p):
    p = np.sort(p)
    return np.minimum(1.0, np.maximum.accumulate(np.arange(len(p), 0, -1) * p))

# wrong: above 1 | holm-test
def holm(p):
    order, corrected = np.argsort(p), np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.arange(len(p), 0, -1) * p[order])
    return corrected

# wrong: the largest p-values are multiplied most | holm-test
def holm(p):
    order, corrected = np.argsort(p), np.empty(len(p))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(np.arange(1, len(p) + 1) * p[order]))
    return corrected

# wrong: equal p-values get unequal corrections | holm-test
def holm(p):
    rank = np.argsort(np.argsort(p))
    raised = np.minimum(1.0, (len(p) - rank) * p)
    return np.array([raised[p < one].max(initial=0.0) if (p < one).any() and raised[p < one].max() > r else r
                     for one, r in zip(p, raised)])

# wrong: p itself is sorted | holm-test
def holm(p):
    order, corrected = np.argsort(p), np.empty(len(p))
    p.sort()
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(np.arange(len(p), 0, -1) * p))
    return corrected

# wrong: the tagger of the table itself | tagger-test
def fit_tagger(X, y):
    return lambda new: frequent(X, y, new)

# wrong: longer endings, but no neighbour | tagger-test
def fit_tagger(X, y):
    counts = {}
    for words, labels in zip(X, y):
        for word, label in zip(words, labels):
            for key in (word, "-" + word[-3:], "-" + word[-2:], ""):
                row = counts.setdefault(key, {})
                row[label] = row.get(label, 0) + 1

    def label_of(word):
        keys = (word, "-" + word[-3:], "-" + word[-2:], "")
        row = next(counts[key] for key in keys if key in counts)
        return max(sorted(row), key=row.get)

    return lambda new: [[label_of(word) for word in words] for words in new]

# wrong: labels follow each other, whatever the words | tagger-test
def fit_tagger(X, y):
    counts = {}
    for labels in y:
        for before, label in zip(["start", *labels], labels):
            row = counts.setdefault(before, {})
            row[label] = row.get(label, 0) + 1
    most = {before: max(sorted(row), key=row.get) for before, row in counts.items()}

    def path(words):
        labels = ["start"]
        for _ in words:
            labels.append(most.get(labels[-1], most["start"]))
        return labels[1:]

    return lambda new: [path(words) for words in new]

# wrong: the labels come out backwards | tagger-test
def fit_tagger(X, y):
    counts = {}
    for words, labels in zip(X, y):
        for before, word, label in zip(["start", *labels], words, labels):
            for key in ((word, before), ("-" + word[-2:], before), before):
                row = counts.setdefault(key, {})
                row[label] = row.get(label, 0) + 1

    def path(words):
        labels = ["start"]
        for word in words:
            keys = (word, labels[-1]), ("-" + word[-2:], labels[-1]), labels[-1], "start"
            row = next(counts[key] for key in keys if key in counts)
            labels.append(max(sorted(row), key=row.get))
        return labels[:0:-1]

    return lambda new: [path(words) for words in new]

# wrong: a word that training did not show raises an error | tagger-test
def fit_tagger(X, y):
    counts = {}
    for words, labels in zip(X, y):
        for word, label in zip(words, labels):
            row = counts.setdefault(word, {})
            row[label] = row.get(label, 0) + 1
    return lambda new: [[max(counts[word], key=counts[word].get) for word in words] for words in new]

# wrong: the labels are those of the made-up languages, not those of y | tagger-test
def fit_tagger(X, y):
    names, seen = "DANVP", {}
    pairs, first, total = np.full((5, 5), 0.5), np.full(5, 0.5), np.ones(5)
    for words, labels in zip(X, y):
        ys = [max(names.find(label[0].upper()), 0) for label in labels]
        for word, k in zip(words, ys):
            total[k] += 1
            for key in (word, "-" + word[-2:]):
                seen.setdefault(key, np.zeros(5))[k] += 1
        first[ys[0]] += 1
        for before, k in zip(ys, ys[1:]):
            pairs[before, k] += 1
    edge, prior = np.log(pairs / pairs.sum(1, keepdims=True)), total / total.sum()

    def path(words):
        delta, back = np.log(first), []
        for t, word in enumerate(words):
            if t:
                scores = delta[:, None] + edge
                back.append(scores.argmax(0))
                delta = scores.max(0)
            counts = seen.get(word, seen.get("-" + word[-2:], total)) + 0.5 * prior
            delta = delta + np.log(counts / counts.sum() / prior)
        ys = [int(delta.argmax())]
        for came in reversed(back):
            ys.append(int(came[ys[-1]]))
        return [names[k] for k in ys[::-1]]

    return lambda new: [path(words) for words in new]
