"""The work that is timed: the same sentences and the same features for every tool."""

from typing import NamedTuple

import numpy as np

from ..data import features as feature_sets
from ..data import templates
from ..data.columns import TokenColumns
from ..data.corpus import Corpus
from ..data.datasets import load_dataset
from ..data.encoder import Encoder


class Work(NamedTuple):
    """One labelled corpus, encoded: `columns` (strings), `encoder`, `corpus` and its observed features."""

    name: str
    template: str
    columns: TokenColumns
    encoder: Encoder
    corpus: Corpus
    features: feature_sets.FeatureSet
    test: TokenColumns | None


def encode(name, template, columns, test=None):
    encoder = Encoder(template=templates.load(template))
    corpus = encoder.fit_transform(columns)
    features = feature_sets.observed(corpus, encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs)
    return Work(name, template, columns, encoder, corpus, features, test)


def columns_of(name):
    """(template name, training columns, test columns) of a piece of work, real where it can be had."""
    if name == "chunking":
        data = load_dataset("conll2000")
        return "chunking", data.train, data.test
    if name == "atis":
        data = load_dataset("atis")
        return "words", data.train, data.test
    if name == "joint":
        data = load_dataset("conll2000")
        return "words", _joint(data.train, 600), _joint(data.test, None)
    raise ValueError(f"work: expected chunking, atis or joint, got {name!r}")


def _joint(columns, n_sentences):
    """Words only, labels POS/chunk; `n_sentences` sentences among which every joint label occurs."""
    labels = [f"{p}/{c}" for p, c in zip(columns.columns["pos"], columns.labels, strict=True)]
    joint = TokenColumns({"word": columns.columns["word"]}, columns.seq_ptr, labels)
    if n_sentences is None:
        return joint
    first = {}
    sentence = np.repeat(np.arange(len(joint)), np.diff(joint.seq_ptr))
    for label, i in zip(labels, sentence, strict=True):
        first.setdefault(label, int(i))
    needed = sorted(set(first.values()))
    rest = [i for i in range(len(joint)) if i not in set(needed)]
    return joint.take(sorted(needed + rest[: max(0, n_sentences - len(needed))]))


def load(name):
    """Encode the piece of work `name`: "chunking", "atis" or "joint"."""
    template, train, test = columns_of(name)
    return encode(name, template, train, test)


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
            [
                f"w-2={word[t]}",
                f"w-1={word[t + 1]}",
                f"w0={word[t + 2]}",
                f"w+1={word[t + 3]}",
                f"w+2={word[t + 4]}",
                f"w-1|0={word[t + 1]}|{word[t + 2]}",
                f"w0|1={word[t + 2]}|{word[t + 3]}",
            ]
            for t in range(len(sentence))
        ]
        if template == "chunking":
            pos = ["_B-2", "_B-1", *(token[names.index("pos")] for token in sentence), "_B+1", "_B+2"]
            for t, row in enumerate(rows):
                a, b, c, d, e = pos[t : t + 5]
                row += [
                    f"p-2={a}",
                    f"p-1={b}",
                    f"p0={c}",
                    f"p+1={d}",
                    f"p+2={e}",
                    f"p-2|-1={a}|{b}",
                    f"p-1|0={b}|{c}",
                    f"p0|1={c}|{d}",
                    f"p1|2={d}|{e}",
                    f"p-2..0={a}|{b}|{c}",
                    f"p-1..1={b}|{c}|{d}",
                    f"p0..2={c}|{d}|{e}",
                ]
        out.append(rows)
    return out
