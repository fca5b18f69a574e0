"""Chapter 14: the memory that training on dicts takes, phase by phase, beside python-crfsuite.

Each side is a process of its own, which tells its largest resident size (VmHWM) after each phase. Both hold
the dicts before the first phase: tutorial attributes, all strings and bools, or the length of the word as
well. What was free in the heap then has gone back to the system. The kernels were loaded by a short training.
"""

import ctypes
import gc
import math
import sys
from itertools import pairwise, product
from pathlib import Path

from .c14_wild import attributes
from .crfsuite import model_file, trainer
from .harness import Row, in_own_process, own_peak_mb, quiet, study
from .work import load_dataset

CORPORA = {  # (data set, task, column of the labels, sentences)
    "pos": ("conll2002", "esp", 1, 2500),
    "ner": ("conll2002", "esp", 2, 4000),
}
TRAINING = {"c1": 0.1, "c2": 0.1, "max_iterations": 30}
NUMBERS = {"strings": False, "strings, a number": True}
LIMITS = {"pos": (1.3, 1.0), "ner": (1.1, 1.0)}


def dicts(name, numbers):
    """(X, y): lists of lists of dicts, lists of labels. numbers : the length of a word goes along."""
    dataset, task, column, n = CORPORA[name]
    train = load_dataset(dataset, task).train
    sentences = list(train.sentences())[:n]
    labels = [[token[column] for token in sentence] for sentence in sentences]
    words = [[token[0] for token in sentence] for sentence in sentences]
    more = [[{"length": len(word)} if numbers else {} for word in sentence] for sentence in words]
    return [
        [attributes(w, None, i) | m[i] for i in range(len(w))] for w, m in zip(words, more, strict=True)
    ], labels


def settled():
    """The resident size in MB, once what is free has gone back to the system: sizes count anew from here."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return own_peak_mb()


def ours(name, numbers):
    """{phase: MB} of a `CRF`."""
    X, y = dicts(name, numbers)
    from crfbook import CRF
    from crfbook.chain.sparse.choice import never_tiny
    from crfbook.models import crf

    def told(*arguments):
        ready = training_set(*arguments)
        found["encoding"] = own_peak_mb()
        return ready

    def step(step, w):
        found.setdefault("layout, first iteration", own_peak_mb())

    found, training_set = {"imports": settled()}, crf.training_set
    with never_tiny(), quiet():
        CRF(**TRAINING | {"max_iterations": 3}).fit(X, y)
        found["kernels"], crf.training_set = settled(), told
        CRF(**TRAINING).fit(X, y, callback=step)
    return found | {"iterations": own_peak_mb()}


def crfsuite(name, numbers):
    """{phase: MB} of python-crfsuite; encoding is `append`."""
    X, y = dicts(name, numbers)
    import pycrfsuite  # noqa: F401 - counts as an import

    found = {"imports": settled()}
    read = trainer(X, y, **TRAINING)
    found["encoding"] = own_peak_mb()
    with model_file() as path:
        read.train(path)
    return found | {"iterations": own_peak_mb()}


@study()
def memory(repeats=1):
    """What `fit` on dicts adds to the largest resident size, phase by phase, and python-crfsuite."""
    for (name, limits), (kind, numbers) in product(LIMITS.items(), NUMBERS.items()):
        added = []
        for side in (ours, crfsuite):
            sizes = in_own_process(side, name, numbers)
            added.append({phase: size - old for (_, old), (phase, size) in pairwise(sizes.items())})
        mine, theirs = added
        for phase, size in mine.items():
            yield Row(f"{name}, {kind}: {phase}", size, theirs.get(phase, math.nan), "MB")
        without = sum(size for phase, size in mine.items() if phase != "kernels")
        yield Row(f"{name}, {kind}: all but kernels", without, sum(theirs.values()), "MB", *limits)
