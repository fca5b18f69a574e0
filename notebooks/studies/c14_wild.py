"""Chapter 14: what users of sklearn-crfsuite run, beside python-crfsuite: dicts, few labels, L1 and L2.

Each side of a comparison goes from dicts to a fitted model and its predictions in a process of its own. The
caller holds the dicts on both sides; making them lies outside the clock, and so does compiling: a run of a
few iterations on the same corpus comes first.
"""

import time
from statistics import median

from .crfsuite import reached, seconds_and_losses, train, trainer
from .harness import Row, clocked, cpu_row, in_own_process, own_peak_mb, quiet, race_processes, study, timed
from .work import load_dataset

CORPORA = {  # (data set, task, column of tags or None); NER but for the last two
    "esp": ("conll2002", "esp", "pos"),
    "ned": ("conll2002", "ned", "pos"),
    "wnut17": ("wnut17", "ner", None),
    "fewnerd": ("fewnerd-inter", None, None),
    "ewt": ("ud-english-ewt", "upos", None),
    "atis": ("atis", "slots", None),
}
WILD = {"c1": 0.1, "c2": 0.1, "max_iterations": 100, "all_possible_transitions": True}
SETTINGS = {
    "wild": WILD,
    "exact": WILD | {"max_iterations": 1000},  # ours ends where its certificate is met; CRFSUITE_MOST
    "stop": {"c1": 0.0, "c2": 1.0},  # each to its own default stop
}
WORK = {
    "wild": "c1 = c2 = 0.1, 100 iterations", "threads": "the same, two threads",
    "stop": "c2 = 1, each to its default stop", "close": "c1 = c2 = 0.1, to 1e-4 above the optimum",
}  # fmt: skip
CLOSE = 1e-4  # relative, above the lowest objective that either tool reaches
CRFSUITE_MOST = 300  # iterations; where it has not come close by then, its time is what they took
TAGGINGS = 5  # of the test part, in each process
COMPILING = 12  # iterations that compile whatever a setting needs
FAR = {"period": 10, "delta": 1e-9, "epsilon": 1e-9}  # CRFsuite's stops, out of the way


def attributes(words, tags, i):
    """What sklearn-crfsuite's tutorial tells of token i: form and tag, also those of its neighbours."""
    word = words[i]
    found = {
        "bias": 1.0, "word.lower()": word.lower(), "word[-3:]": word[-3:], "word[-2:]": word[-2:],
        "word.isupper()": word.isupper(), "word.istitle()": word.istitle(), "word.isdigit()": word.isdigit(),
    }  # fmt: skip
    if tags:
        found |= {"postag": tags[i], "postag[:2]": tags[i][:2]}
    for shift, end in ((-1, "BOS"), (1, "EOS")):
        if not 0 <= i + shift < len(words):
            found[end] = True
            continue
        near, name = words[i + shift], f"{shift:+d}:"
        found |= {f"{name}word.lower()": near.lower(), f"{name}word.istitle()": near.istitle()}
        found[f"{name}word.isupper()"] = near.isupper()
        if tags:
            found |= {f"{name}postag": tags[i + shift], f"{name}postag[:2]": tags[i + shift][:2]}
    return found


def tokens(columns, tag=None):
    """`attributes` of each token of each sentence; tag: the name of the column of tags."""
    words = columns.by_sequence(next(iter(columns.columns)))
    tags = columns.by_sequence(tag) if tag else [None] * len(words)
    return [[attributes(w, t, i) for i in range(len(w))] for w, t in zip(words, tags, strict=True)]


def dicts(name):
    """(X, y, X of the test part, description) of a corpus: lists of lists of dicts."""
    dataset, task, tag = CORPORA[name]
    data = load_dataset(dataset, task)
    about = f"{data.source}, {data.train.n_tokens:,} tokens, {len(set(data.train.labels)):,} labels"
    return tokens(data.train, tag), data.train.labels_by_sequence(), tokens(data.test, tag), about


def _crfsuite(X, y, setting, jobs):
    """(CPU seconds and objective of each iteration, the tagging of sentences)."""
    far = FAR | {"max_iterations": CRFSUITE_MOST}
    params = SETTINGS[setting] | (far if setting == "exact" else {})
    params["feature.possible_transitions"] = params.pop("all_possible_transitions", False)
    clock = time.process_time()
    tagger, log = train(trainer(X, y, **params))
    path = seconds_and_losses(log)
    reading = time.process_time() - clock - path[-1][0]
    return [(reading + spent, loss) for spent, loss in path], lambda new: [tagger.tag(x) for x in new]


def _ours(X, y, setting, jobs):
    """The same, by `CRF`; jobs 0: COMPILING iterations on one thread."""
    from crfbook.models.crf import CRF

    clock, path = time.process_time(), []
    few = {} if jobs else {"max_iterations": COMPILING}
    model = CRF(n_jobs=jobs or 1, **SETTINGS[setting] | few)
    model.fit(X, y, callback=lambda step, w: path.append((time.process_time() - clock, step.objective)))
    return path, model.predict


SIDES = {"crfsuite": _crfsuite, "ours": _ours}


def one_side(side, name, setting, jobs):
    """Train and tag: seconds, objectives, and the memory of the process when it had trained."""
    X, y, new, about = dicts(name)
    train = SIDES[side]
    with quiet():  # of a first fit that is thrown away: it may compile
        if side == "ours":
            from crfbook.chain.sparse.choice import never_tiny

            with never_tiny():
                train(X[:60], y[:60], setting, jobs)[1](X[:60])
    (path, tag), spent = clocked(train, X, y, setting, jobs)
    peak, tagging = own_peak_mb(), median(timed(tag, new)[1] for _ in range(TAGGINGS))
    return {**spent, "tagging": tagging, "peak_mb": peak, "path": path, "about": about}


def _raced(name, setting, repeats, jobs=1, sides=SIDES):
    """(Timings of the sides, what each returned)."""
    return race_processes(one_side, {side: (side, name, setting, jobs) for side in sides}, repeats, False)


def _middle(done, what):
    return [median(run[what] for run in done[side]) for side in ("ours", "crfsuite")]


@study("14_wild_{}.csv", of=tuple(CORPORA))
def wild_on(name, repeats=3):
    """Dicts to a model and to labels, as users of sklearn-crfsuite run it, on one corpus."""
    for setting in SETTINGS:
        in_own_process(one_side, "ours", name, setting, 0)
    took, done = _raced(name, "wild", repeats)
    ends = {side: done[side][0]["path"][-1][1] for side in SIDES}
    yield cpu_row(f"{name}: {WORK['wild']}", took, 0.6, 0.4, done["ours"][0]["about"])
    yield Row(f"{name}: its objective", ends["ours"], ends["crfsuite"], "nats", 1.0)
    yield Row(f"{name}: peak memory", *_middle(done, "peak_mb"), "MB", 1.3, 1.0)
    yield Row(f"{name}: labels of the test part", *_middle(done, "tagging"), "CPU s", 1.0, 0.7)
    ours = _raced(name, "wild", repeats, jobs=2, sides=["ours"])[0]["ours"]
    wall = ours.median_wall, took["crfsuite"].median_wall
    yield Row(f"{name}: {WORK['threads']}", *wall, "wall s")
    took, done = _raced(name, "stop", repeats)
    iterations = {side: len(done[side][0]["path"]) for side in SIDES}
    ends = {side: done[side][0]["path"][-1][1] for side in SIDES}
    note = f"ours {iterations['ours']} iterations to {ends['ours']:.1f}, "
    note += f"CRFsuite {iterations['crfsuite']} to {ends['crfsuite']:.1f}"
    yield cpu_row(f"{name}: {WORK['stop']}", took, 0.6, 0.35, note)
    _, done = _raced(name, "exact", 1)
    paths = {side: done[side][0]["path"] for side in SIDES}
    best = min(path[-1][1] for path in paths.values())
    seconds = [reached(paths[side], best * (1.0 + CLOSE)) for side in ("ours", "crfsuite")]
    note = f"lowest objective {best:.2f}"
    if seconds[1] == float("inf"):  # it took at least what it took without having got there
        seconds[1], stands = paths["crfsuite"][-1]
        note += f"; CRFsuite stands at {stands:.2f} after {len(paths['crfsuite'])} iterations"
    yield Row(f"{name}: {WORK['close']}", *seconds, "CPU s", note=note)


@study()
def wild(repeats=3):
    """The same on six corpora; hours."""
    for name in CORPORA:
        yield from wild_on(name, repeats)
