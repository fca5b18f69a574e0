"""python-crfsuite on the same work (extra `peers`): its own clock per iteration, its tagger, its weights."""

import os
import tempfile
import time

from .work import attribute_strings


def trainer(rows, labels, **params):
    """A `pycrfsuite.Trainer` that holds the data, with c1 = 0 and c2 = 1 unless told."""
    import pycrfsuite

    it = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, y in zip(rows, labels, strict=True):
        it.append(x, y)
    it.set_params({"c1": 0.0, "c2": 1.0, **params})
    return it


def model_file():
    """A path for a model file; the caller removes it."""
    handle, path = tempfile.mkstemp(suffix=".crfsuite")
    os.close(handle)
    return path


def seconds_per_evaluation(it, iterations=8):
    """CPU seconds of objective + gradient from CRFsuite's own log: iterations with one line-search trial.

    An iteration is one evaluation and L-BFGS's vector operations, which take a few per cent of it.
    """
    it.set_params({"max_iterations": iterations})
    path = model_file()
    try:
        it.train(path)
    finally:
        os.unlink(path)
    log = it.logparser.iterations
    single = [float(step["time"]) for step in log[1:] if int(step.get("linesearch_trials", 1)) == 1]
    if not single:
        raise RuntimeError("CRFsuite's log holds no iteration with a single line-search trial")
    return sorted(single)[len(single) // 2]


def train_tagger(work, iterations=20, **params):
    """`tagger_of` on `work`; iterations None: to its own stop."""
    if iterations is not None:
        params["max_iterations"] = iterations
    return tagger_of(
        attribute_strings(work.columns, work.template), work.columns.labels_by_sequence(), **params
    )


def tagger_of(rows, labels, **params):
    """(`pycrfsuite.Tagger`, log of its last iteration) trained on attributes and labels of every sequence."""
    import pycrfsuite

    it = trainer(rows, labels, **params)
    path = model_file()
    it.train(path)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    os.unlink(path)  # the file is read into memory; POSIX keeps it until it is closed
    return tagger, it.logparser.last_iteration


def viterbi_seconds(tagger, sequences):
    """(CPU, wall) seconds of Viterbi alone: attributes are set outside the clock, `tag()` inside it."""
    cpu = wall = 0.0
    for sequence in sequences:
        tagger.set(sequence)
        c, w = time.process_time(), time.perf_counter()
        tagger.tag()
        cpu += time.process_time() - c
        wall += time.perf_counter() - w
    return cpu, wall


def weights_of(work, tagger):
    """CRFsuite's weights in the order of `work.features` (F,); features it pruned (weight 0) stay 0.

    Attributes are matched by building, for each attribute of ours, the string that `attribute_strings`
    makes of it: both sides list a token's attributes in the order of the template.
    """
    import numpy as np

    info = tagger.info()
    features, labels = work.features, [str(y) for y in work.encoder.labels_]
    name = attribute_names(work)
    w = np.zeros(features.n_features)
    row = np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr))
    known = info.state_features
    for k, (a, y) in enumerate(zip(row.tolist(), features.node_label.tolist(), strict=True)):
        w[k] = known.get((name[a], labels[y]), 0.0)
    for k, (yp, y) in enumerate(zip(features.edge_prev.tolist(), features.edge_next.tolist(), strict=True)):
        w[features.n_node + k] = info.transitions.get((labels[yp], labels[y]), 0.0)
    return w


def attribute_names(work):
    """CRFsuite's string of each of our attributes, read off the tokens where both occur."""
    corpus, names = work.corpus, {}
    strings = (row for rows in attribute_strings(work.columns, work.template) for row in rows)
    patterns = pattern_of_attributes(work)
    for t, row in enumerate(strings):
        for a in corpus.attr_idx[corpus.attr_ptr[t] : corpus.attr_ptr[t + 1]].tolist():
            if a not in names:
                names[a] = row[patterns[a]]
    return names


def pattern_of_attributes(work):
    """Number of the template's pattern that each attribute comes from: the part before its first colon."""
    order = {}
    found = [name.split(":", 1)[0] for name in work.encoder.attribute_names()]
    for prefix in sorted(set(found)):
        order[prefix] = len(order)
    return [order[prefix] for prefix in found]
