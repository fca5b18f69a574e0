"""Blockwise coordinate descent on NetTalk: sweeps over letter tests, pseudo 3-grams, and 140 million virtual n-gram weights."""

import resource
import sys
import time

import numpy as np

from . import Row

# The references are what was asked for; Wapiti's blockwise coordinate descent takes 97 CPU seconds a sweep over the pseudo 3-grams.
PATH = (30.0, 10.0, 5.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3)  # of c1, two sweeps each
C2 = 0.0005


def sbcd(repeats=1):
    """Blockwise coordinate descent on NetTalk, one thread: seconds a sweep, test error; a path over virtual n-grams."""
    from .tasks import _threads_one

    with _threads_one():
        return [*_sweeps("letter_tests", 30, 0.5), *_sweeps("pseudo_ngrams_3", 5, 5.0), *_path()]


def _work(template):
    from ..data import templates
    from ..data.datasets import load_dataset
    from ..data.encoder import Encoder

    data = load_dataset("nettalk", verbose=False)
    encoder = Encoder(templates.load(template))
    corpus = encoder.fit_transform(data.train)
    options = {"sizes": (encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs), "c2": C2}
    if template == "letter_tests":
        options["edge_attrs"] = np.arange(1, encoder.n_edge_attrs)
    return corpus, encoder.transform(data.test), options


def _sweeps(template, n, target):
    from ..optim.coordinate_descent import coordinate_descent

    corpus, test, options = _work(template)
    coordinate_descent(corpus, c1=1e3, max_iterations=1, **options)  # compiles
    clock, seconds = [0.0], []

    def watch(step, w):
        seconds.append(time.process_time() - clock[0])
        clock[0] = time.process_time()

    clock[0] = time.process_time()
    found = coordinate_descent(corpus, c1=1.0, tol=0.0, max_iterations=n, callback=watch, **options)
    name = template.replace("_", " ")
    note = (f"after {n} sweeps: objective {found.objective:,.0f}, {found.features.n_features:,} active weights, "
            f"{token_error(found, test):.2f} % test error")
    return [Row(f"SBCD, {name}, a sweep", float(np.median(seconds[1:])), target, "CPU s", 1.0, None, note)]


def _path():
    from ..optim.coordinate_path import solve_path

    corpus, test, options = _work("ngrams_5")
    start = time.process_time()
    last = solve_path(corpus, c1=PATH, sweeps=2, tol=0.0, keep=False, **options)[-1].result
    seconds = time.process_time() - start
    unit = 1e6 if sys.platform == "darwin" else 1e3
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    n_labels, n_attrs, n_edge_attrs = options["sizes"]
    virtual = (n_attrs * n_labels + n_edge_attrs * n_labels**2) / 1e6
    error = token_error(last, test)
    return [Row("SBCD, n-grams, a path of 20 sweeps to c1 = 0.3", seconds, 120.0, "CPU s", 1.0, None,
                f"{virtual:,.1f} million virtual weights, {last.features.n_features:,} active; {error:.2f} % test error"),
            Row("its peak memory, the data and compiled code included", peak, 800.0, "MB", 1.0),
            Row("its test error", error, 7.9, "%", 1.0)]


def token_error(found, test):
    """Per cent of the tokens of `test` that Viterbi labels wrong, class by class without a table for each."""
    features, w = found.features, found.w
    n_labels, wrong = features.n_labels, 0
    mu = np.zeros((features.n_attrs, n_labels))
    mu[np.repeat(np.arange(features.n_attrs), np.diff(features.node_ptr)), features.node_label] = w[:features.n_node]
    node = np.zeros((test.n_tokens, n_labels))
    np.add.at(node, np.repeat(np.arange(test.n_tokens), np.diff(test.attr_ptr)), mu[test.attr_idx])
    for first, last in zip(test.seq_ptr[:-1].tolist(), test.seq_ptr[1:].tolist(), strict=True):
        wrong += int((_decode(node[first:last], test.edge_class[first:last], test, features, w) != test.labels[first:last]).sum())
    return 100.0 * wrong / test.n_tokens


def _decode(node, edge_class, corpus, features, w):
    delta, back = node[0], []
    for scores, k in zip(node[1:], edge_class[1:].tolist(), strict=True):
        table = np.zeros((features.n_labels, features.n_labels))
        for b in corpus.class_attr[corpus.class_ptr[k]:corpus.class_ptr[k + 1]].tolist():
            row = slice(features.edge_ptr[b], features.edge_ptr[b + 1])
            table[features.edge_prev[row], features.edge_next[row]] += w[features.n_node:][row]
        move = delta[:, None] + table
        back.append(move.argmax(axis=0))
        delta = move.max(axis=0) + scores
    path = [int(delta.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return np.array(path[::-1])
