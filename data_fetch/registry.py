"""What can be fetched: `registry.json` as a dictionary, and look-ups with readable errors.

REGISTRY[name] has "task", "licence", "reference" and "files"; each file has "url" (pinned to a commit),
"bytes", "sha256", and where known "notes" (its format and oddities) and "counts" (what a reader of the
file must find: sentences, tokens, labels; for a zip under "members", by member name).
"""

import json
from importlib import resources

from .errors import FetchError

REGISTRY = json.loads(resources.files(__package__).joinpath("registry.json").read_text("utf-8"))

# Corpora that nobody may pass on: the reader's own copy is looked for, never fetched, never checked.
USER_SUPPLIED = {
    "conll2003": {
        "task": "Named entities in English Reuters newswire, CoNLL-2003 shared task",
        "licence": "Reuters text, by agreement with NIST only: bring your own files",
        "reference": "E. F. Tjong Kim Sang, F. De Meulder (2003). Introduction to the CoNLL-2003 shared "
        "task: language-independent named entity recognition. CoNLL-2003, 142-147.",
        "files": {"eng.train": {}, "eng.testa": {}, "eng.testb": {}},
    }
}


def dataset(name):
    """Entry of a data set; `FetchError` with the known names if there is none."""
    entry = (REGISTRY.get(name) or USER_SUPPLIED.get(name)) if isinstance(name, str) else None
    if entry is None:
        known = ", ".join(sorted([*REGISTRY, *USER_SUPPLIED]))
        one = "" if isinstance(name, str) else "expected the name of one data set: "
        raise FetchError(f"{one}there is no data set {name!r:.80}; known are {known}")
    return entry


def file_entry(name, filename):
    """Entry of one file of a data set. Only registered names pass, so none can point out of the cache."""
    files = dataset(name)["files"]
    if not isinstance(filename, str) or filename not in files:
        raise FetchError(f"data set {name!r} has no file {filename!r:.80}; its files are {', '.join(files)}")
    return files[filename]


def n_bytes(name):
    """Size of a data set in bytes, all its files together (0 where the reader brings them)."""
    return sum(entry.get("bytes", 0) for entry in dataset(name)["files"].values())
