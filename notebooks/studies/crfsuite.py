"""python-crfsuite on the same work (extra `peers`): its own clock, its tagger, its weights.

tagger, log = train(trainer(*sentences(work), c2=1.0))       # its L-BFGS, on our attributes as strings
w = weights_of(work, tagger)                                 # in the order of work.features
"""

import os
import tempfile
import time
from contextlib import contextmanager
from itertools import accumulate, pairwise

import numpy as np


def sentences(work, numbers=False):
    """(attributes, labels) of every training sentence, as strings; numbers: attributes by their numbers."""
    rows = attribute_numbers(work.corpus) if numbers else attribute_strings(work.columns, work.template)
    return rows, work.columns.labels_by_sequence()


def attribute_numbers(corpus):
    """Attributes of every token of every sequence, as strings of digits."""
    names, ptr = [str(a) for a in corpus.attr_idx.tolist()], corpus.attr_ptr
    tokens = [names[i:j] for i, j in pairwise(ptr.tolist())]
    return [tokens[i:j] for i, j in pairwise(corpus.seq_ptr.tolist())]


def label_numbers(corpus):
    """Labels of every token of every sequence, as strings of digits."""
    return [part.tolist() for part in np.split(corpus.labels.astype(str), corpus.seq_ptr[1:-1])]


def attribute_strings(columns, template):
    """Attribute lists as a user of CRFsuite builds them: f-strings, token by token.

    The patterns are those of the shipped templates "chunking" and "words"; cells outside the sentence
    are `_B-1`, `_B+1`, ... as in the templates, so that the features are the same ones.
    """
    names = list(columns.columns)
    out = []
    for sentence in columns.sentences():
        word = ["_B-2", "_B-1", *(token[0] for token in sentence), "_B+1", "_B+2"]
        rows = [
            [f"w-2={a}", f"w-1={b}", f"w0={c}", f"w+1={d}", f"w+2={e}", f"w-1|0={b}|{c}", f"w0|1={c}|{d}"]
            for a, b, c, d, e in (word[t : t + 5] for t in range(len(sentence)))
        ]
        if template == "chunking":
            pos = ["_B-2", "_B-1", *(token[names.index("pos")] for token in sentence), "_B+1", "_B+2"]
            for t, row in enumerate(rows):
                a, b, c, d, e = pos[t : t + 5]
                row += [f"p-2={a}", f"p-1={b}", f"p0={c}", f"p+1={d}", f"p+2={e}"]
                row += [f"p-2|-1={a}|{b}", f"p-1|0={b}|{c}", f"p0|1={c}|{d}", f"p1|2={d}|{e}"]
                row += [f"p-2..0={a}|{b}|{c}", f"p-1..1={b}|{c}|{d}", f"p0..2={c}|{d}|{e}"]
        out.append(rows)
    return out


def trainer(rows, labels, algorithm="lbfgs", **params):
    """A `pycrfsuite.Trainer` that holds the data; L-BFGS with c1 = 0 and c2 = 1 unless told."""
    import pycrfsuite

    peer = pycrfsuite.Trainer(algorithm=algorithm, verbose=False)
    for x, y in zip(rows, labels, strict=True):
        peer.append(x, y)
    peer.set_params({"c1": 0.0, "c2": 1.0, **params} if algorithm == "lbfgs" else params)
    return peer


@contextmanager
def model_file():
    """The path of a file for a model, which is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "model")


def train(peer):
    """(`pycrfsuite.Tagger`, log: `.iterations`, `.last_iteration`) of a trainer."""
    import pycrfsuite

    tagger = pycrfsuite.Tagger()
    with model_file() as path:
        peer.train(path)
        tagger.open(path)  # the file is read into memory; POSIX keeps it until it is closed
    return tagger, peer.logparser


def train_tagger(work, iterations=20, **params):
    """(`pycrfsuite.Tagger`, log of its last iteration) trained on `work`; iterations None: to its stop."""
    if iterations is not None:
        params["max_iterations"] = iterations
    tagger, log = train(trainer(*sentences(work), **params))
    return tagger, log.last_iteration


def seconds_and_losses(log):
    """[(CPU seconds so far, objective)] of each iteration, by CRFsuite's own clock."""
    spent = accumulate(float(step["time"]) for step in log.iterations)
    return list(zip(spent, (step["loss"] for step in log.iterations), strict=True))


def reached(path, goal):
    """Seconds until an objective of `seconds_and_losses` is at most `goal`; inf: never."""
    return next((seconds for seconds, objective in path if objective <= goal), float("inf"))


def seconds_per_evaluation(peer, iterations=8):
    """CPU seconds of objective + gradient from CRFsuite's own log: iterations with one line-search trial.

    An iteration is one evaluation and L-BFGS's vector operations, which take a few per cent of it.
    """
    peer.set_params({"max_iterations": iterations})
    _, log = train(peer)
    steps = log.iterations[1:]
    single = [float(step["time"]) for step in steps if int(step.get("linesearch_trials", 1)) == 1]
    if not single:
        raise RuntimeError("CRFsuite's log holds no iteration with a single line-search trial")
    return sorted(single)[len(single) // 2]


def viterbi_seconds(tagger, rows):
    """(CPU, wall) seconds of Viterbi alone: attributes are set outside the clock, `tag()` inside it."""
    cpu = wall = 0.0
    for row in rows:
        tagger.set(row)
        c, w = time.process_time(), time.perf_counter()
        tagger.tag()
        cpu += time.process_time() - c
        wall += time.perf_counter() - w
    return cpu, wall


def weights_of(work, tagger, numbers=False):
    """CRFsuite's weights in the order of `work.features` (F,); features it pruned (weight 0) stay 0.

    numbers : as in `sentences`.
    """
    info, features, labels = tagger.info(), work.features, [str(y) for y in work.encoder.labels_]
    names = [str(a) for a in range(features.n_attrs)] if numbers else attribute_names(work)
    node, edge = info.state_features, info.transitions
    row = np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr)).tolist()
    pairs = zip(features.edge_prev.tolist(), features.edge_next.tolist(), strict=True)
    w = [node.get((names[a], labels[y]), 0.0) for a, y in zip(row, features.node_label.tolist(), strict=True)]
    return np.array(w + [edge.get((labels[yp], labels[y]), 0.0) for yp, y in pairs])


def attribute_names(work):
    """CRFsuite's string of each of our attributes, read off the tokens where both occur.

    Both sides list a token's attributes in the order of the template's patterns; the pattern of an attribute
    is the part of its name before the first colon.
    """
    corpus, names = work.corpus, {}
    prefix = [name.split(":", 1)[0] for name in work.encoder.attribute_names()]
    place = {p: i for i, p in enumerate(sorted(set(prefix)))}
    strings = (row for rows in attribute_strings(work.columns, work.template) for row in rows)
    for (first, last), row in zip(pairwise(corpus.attr_ptr.tolist()), strings, strict=True):
        for a in corpus.attr_idx[first:last].tolist():
            if a not in names:
                names[a] = row[place[prefix[a]]]
    return names
