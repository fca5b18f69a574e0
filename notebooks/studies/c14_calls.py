"""Chapter 14: one sentence a call, and dicts with floats, beside python-crfsuite.

Both sides open one model, which python-crfsuite trained, so that labels are the same ones. Sentences are
tagged for the first time; those of "unknown" hold words that the model does not know. Making what either side
is given lies outside the clock. Each side runs in a process of its own.
"""

import os
import tempfile
import time
from functools import partial
from statistics import median

import numpy as np

from .c14_wild import tokens
from .crfsuite import attribute_strings, train, trainer
from .harness import Row, in_own_process, quiet, study, timed
from .work import load_dataset

N_CALLS = 600
FLOATS = "floats1", "floats10", "floats50"
WORDS = "CRF(template='words'), 25 words"
STREETS = "Street Avenue Road Lane Drive Court Place Square Terrace Way".split()
KINDS = "number name kind occupancy unit town state zip corner building".split()


def address(rng, unknown=False):
    """(words, labels) of an invented address; a third of its words is unknown if asked for."""

    def name(n):
        n += 10**6 * (unknown and rng.random() < 1 / 3)
        return f"Name{n}"

    parts = [(str(rng.integers(1, 2000)), "number"), (name(min(rng.zipf(1.3), 5000)), "name")]
    parts += [(STREETS[rng.integers(len(STREETS))], "kind")]
    if rng.random() < 0.5:
        parts += [("Apt", "occupancy"), (str(rng.integers(1, 99)), "unit")]
    parts += [(name(min(rng.zipf(1.3), 2000)), "town"), (f"S{rng.integers(50)}", "state")]
    parts += [(str(10000 + rng.integers(90000)), "zip")]
    return [word for word, _ in parts], [f"{label}{rng.integers(3)}" for _, label in parts]


def strings(words):
    """Three attribute strings a token."""
    return [[f"w={word}", f"end={word[-2:]}", f"first={i == 0}"] for i, word in enumerate(words)]


def nested(words):
    """Dicts within dicts, as parsers of addresses and of names make them."""
    own = [
        {
            "abbrev": word.endswith("."), "digits": "all" if word.isdigit() else "none", "word": word.lower(),
            "trailing.zeros": "00" if word.endswith("00") else False, "length": f"w:{len(word)}",
            "endsinpunc": False, "directional": False, "street_name": word in STREETS, "vowels": "a" in word,
        }
        for word in words
    ]  # fmt: skip
    rows = [dict(row) for row in own]
    for i, row in enumerate(rows):
        row |= {"previous": own[i - 1]} if i else {"address.start": True}
        row |= {"next": own[i + 1]} if i + 1 < len(own) else {"address.end": True}
    return rows


def with_floats(words, n, rng):
    """A word and n floats a token."""
    numbers = rng.normal(size=(len(words), n)).tolist()
    told = [{f"f{j}": x for j, x in enumerate(row)} for row in numbers]
    return [{"word": word} | row for word, row in zip(words, told, strict=True)]


def sentences(kind):
    """(X, y of a training text, new X) of one kind of input."""
    rng = np.random.default_rng(0)
    if kind in ("tutorial", "words"):
        data = load_dataset("conll2000")
        told = tokens if kind == "tutorial" else partial(attribute_strings, template="words")
        X, new = map(told, (data.train, data.test))
        return X, data.train.labels_by_sequence(), [x for x in new if 20 <= len(x) <= 30][:N_CALLS]
    addresses, make = [address(rng) for _ in range(2000)], nested if kind == "nested" else strings
    if kind in FLOATS:
        addresses, make = addresses[:600], partial(with_floats, n=int(kind[6:]), rng=rng)
    X, y = [make(words) for words, _ in addresses], [labels for _, labels in addresses]
    return X, y, [make(address(rng, kind == "unknown")[0]) for _ in range(N_CALLS)]


def asked(kind, tagger, model, peer, words):
    """{what is asked: (ours, theirs)}, functions of one sentence."""

    def theirs_best(x):
        return [peer.marginal(y, t) for t, y in enumerate(peer.tag(x))]

    def ours_best(x):
        return [tagger.marginal(y, t) for t, y in enumerate(tagger.tag(x))]

    def theirs_all(x):
        peer.set(x)
        return [{y: peer.marginal(y, t) for y in peer.labels()} for t in range(len(x))]

    if kind == "words":
        return {WORDS: (lambda x: words.predict_single([t[2][3:] for t in x]), peer.tag)}
    calls = {"Tagger.tag": (tagger.tag, peer.tag), "tagger_.tag": (model.tagger_.tag, peer.tag)}
    calls |= {"CRF.predict([x])": (lambda x: model.predict([x]), peer.tag)}
    calls |= {"predict_single": (model.predict_single, peer.tag)}
    if not kind.startswith(("unknown", "floats")):
        calls["marginals of the best labels"] = ours_best, theirs_best
    if kind == "known":
        calls["all marginals as dicts"] = tagger.marginals, theirs_all
    return calls


def prepare(kind, folder):
    """Train and write the peer's model, and call every kernel once."""
    X, y, new = sentences(kind)
    trainer(X, y, c1=0.1, c2=0.1, max_iterations=30).train(os.path.join(folder, kind))
    called(kind, folder, 3)


def called(kind, folder, n=None):
    """{what is asked: [CPU seconds a call of ours, of theirs]}, each sentence for the first time."""
    import pycrfsuite

    from crfbook import CRF, Tagger

    X, y, new = sentences(kind)
    path, peer, words, found = os.path.join(folder, kind), pycrfsuite.Tagger(), None, {}
    peer.open(path)
    if kind == "words":
        data = load_dataset("conll2000")
        with quiet():
            words = CRF(template="words", max_iterations=10).fit(data.train)
    for what in asked(kind, Tagger(path), CRF.from_crfsuite(path), peer, words):
        model = CRF.from_crfsuite(path)  # nothing is remembered of what was asked before
        tagger = Tagger(path, kernels=True)
        ours, theirs = asked(kind, tagger, model, peer, words)[what]
        ours(X[0])  # opens, and loads kernels
        spent = np.zeros(2)
        for i in range(0, len(new[:n]), 50):
            for side, call in enumerate((ours, theirs)):
                start = time.process_time()
                for x in new[:n][i : i + 50]:
                    call(x)
                spent[side] += time.process_time() - start
        if kind != "words" and "tag" in what:
            assert all(ours(x) == theirs(x) for x in new[:50])
        found[what] = (spent / len(new[:n])).tolist()
    return found


def medians(run, kinds, repeats):
    """Yield (kind, what, CPU seconds of ours, of theirs), medians of processes, of all that `run` times."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            in_own_process(prepare, kind, folder)
            done = [in_own_process(run, kind, folder) for _ in range(repeats)]
            for what in done[0]:
                yield kind, what, *(median(one[what][side] for one in done) for side in (0, 1))


@study()
def calls(repeats=3):
    """One sentence a call: labels, marginals, by a `Tagger` and by a `CRF`, of six kinds of input."""
    kinds = "known", "unknown", "nested", "tutorial", "words", *FLOATS
    for kind, what, *seconds in medians(called, kinds, repeats):
        yield Row(f"{kind}: {what}", *(1e6 * one for one in seconds), "CPU us")


def batch(kind, folder):
    """{what: [CPU seconds of ours, of theirs]} of a whole text at once: reading, tagging, and a fit."""
    import pycrfsuite

    from crfbook import CRF

    X, y, new = sentences(kind)
    path, peer = os.path.join(folder, kind), pycrfsuite.Tagger()
    peer.open(path)
    model = CRF.from_crfsuite(path)
    model.predict(X[:100])
    setting = {"c1": 0.0, "c2": 1.0, "max_iterations": 100}
    with quiet():
        CRF(**setting | {"max_iterations": 3}).fit(X, y)  # compiles
    works = {
        "reading": (lambda: model.encoder_.transform(X), lambda: [pycrfsuite.ItemSequence(x) for x in X]),
        "batch tagging": (lambda: model.predict(X), lambda: [peer.tag(x) for x in X]),
        "fit, c2 = 1": (lambda: CRF(**setting).fit(X, y), lambda: train(trainer(X, y, **setting))),
    }
    with quiet():
        return {what: [median(timed(f)[1] for _ in range(3)) for f in both] for what, both in works.items()}


@study()
def dicts(repeats=3):
    """Dicts of a whole text: nested, those of a tutorial, and with 1, 10 and 50 floats a token."""
    for kind, what, *seconds in medians(batch, ("nested", "tutorial", *FLOATS), repeats):
        yield Row(f"{kind}: {what}", *seconds, "CPU s")
