"""Chapter 14: a neural tagger for context (bilstm.py), on two corpora, with three seeds.

It learns from the training part but its last tenth, which says when to stop. CRFBOOK_PEERS_PYTHON names a
Python with torch, if this one has none.
"""

import json

from .c14_tools import HERE, new_folder, program, seen
from .harness import study
from .records import cells, each, rounded
from .work import columns_of, dataset, set_up

CORPORA, PATIENCE = ("ner", "chunking"), 5


def texts(task, n_sentences):
    """{"train", "dev", "test"} of sentences as (words, labels); test: the last held-out part."""
    _, train, parts = columns_of(task, n_sentences)
    n = len(train) - len(train) // 10
    parts = {"train": train[:n], "dev": train[n:], "test": list(parts.values())[-1]}

    def pairs(columns):
        words, ends = columns.columns["word"], columns.seq_ptr.tolist()
        rows = zip(ends, ends[1:], columns.labels_by_sequence(), strict=False)
        return [(list(words[i:j]), list(y)) for i, j, y in rows]

    return {name: pairs(part) for name, part in parts.items()}


def neural_row(task, seed, n_sentences):
    """A training to its own stop: epochs, CPU seconds, MB, weights; F1 and speed of tagging the test part."""
    folder, setup = new_folder(), set_up(task, None, n_sentences)
    parts = texts(task, n_sentences)
    (folder / "texts").write_text(json.dumps(parts), encoding="utf-8")
    command = program("torch"), "-P", HERE / "bilstm.py", folder / "texts", folder / "answer", seed, PATIENCE
    seen(command)
    found = json.loads((folder / "answer").read_text(encoding="utf-8"))
    curve, best, part = found["curve"], found["best"], list(setup.parts)[-1]
    labels = {name: held.gold for name, held in setup.parts.items()} | {part: found["labels"]}
    return {
        "epochs": len(curve), "best": best, "accuracy when stopped": 100 * curve[best - 1][1],
        "CPU s": curve[-1][0], "weights": found["weights"], "MB": found["MB"],
        "tagging CPU s": found["tagging"], "F1": setup.scores(labels)[part], "version": found["version"],
    }  # fmt: skip


@study("14_neural.csv")
def neural(tasks=CORPORA, seeds=(0, 1, 2), n_sentences=None):
    """A BiLSTM-CRF in PyTorch on two corpora, three seeds, one thread; hours."""
    if program("torch") is None:
        raise RuntimeError("neural: expected PyTorch here, or in the Python that CRFBOOK_PEERS_PYTHON names")
    keys = cells(task=tasks, seed=seeds)
    yield "14_neural.csv", each(rounded(neural_row), keys, n_sentences=n_sentences), [*map(dataset, tasks)]
