"""A trained model that only tags: from a file, from a `CRF`, or from a file of CRFsuite.

Opening one imports none of scikit-learn, pandas and SciPy, and numba only once it pays (tagging/model.py).
Models and sentences that `SentenceModel` cannot serve are tagged by chain/inference.py, with all of these but
scikit-learn and pandas.
Its methods are those that programs call on a `pycrfsuite.Tagger`, and those that it lacks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np

from crfbook._checks import ModelFileError, file_name, shown, whole
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import without_zeros
from crfbook.data.crfsuite import MAGIC, read_crfsuite
from crfbook.data.features import FeatureSet
from crfbook.data.files import check_layout, load_arrays
from crfbook.encoding.encoder import Encoder
from crfbook.encoding.tag_dictionary import LabelSets, free_blocked
from crfbook.tagging.model import SentenceModel
from crfbook.tagging.predictor import Predictor


class Chain(Predictor):
    """A trained chain as a tagger holds it. parts : see `chain_parts`."""

    _kind, _most_sequences = "CRF", np.inf

    def __init__(self, parts, kernels):
        self._kernels = kernels
        self.encoder_, self.features_, self.weights_, self.constraints_, self.label_sets_ = parts
        self._sentences = SentenceModel.of(*parts, frozen=True, kernels=kernels)

    def __reduce__(self):
        return Chain, (chain_parts(self), self._kernels)

    def _sentence_model(self):
        return self._sentences

    def _known(self, X, y=None, unknown="mark"):
        corpus = without_zeros(self.encoder_.transform(X))
        if self.label_sets_ is None:
            return corpus
        corpus = corpus._replace(label_set=self.label_sets_.label_set(X, self.encoder_.columns_))
        return free_blocked(corpus, self.constraints_)

    def _model(self):
        return self.features_, self.weights_, self.constraints_, 1


class Tagger:
    """Tags one sentence a call, or many.

    source : path of a file that `CRF.save`, a `Trainer` or CRFsuite wrote; a fitted `CRF`, whose weights are
        copied; None: `open` follows.
    kernels : True: compiled from the start. False: NumPy alone. None: compiled where numba is loaded and the
        kernels are on disk, and after 25,000 tokens (fewer where labels are many): as long as loading takes.
    trust : see `CRF.load`.

    A sentence is a list of tokens, one element of X of `CRF.predict`: an attribute dict or a list of strings
    each, or the cells of a template's columns. Unknown attributes are ignored. Nothing changes the model, and
    each thread has a sentence of its own (`set`), so threads may share a tagger. Raises what `CRF.load` and
    `CRF.predict` raise; ValueError before `open`.
    """

    def __init__(self, source: Any = None, *, kernels: bool | None = None, trust: bool = False) -> None:
        self._kernels, self._trust, self._state = kernels, trust, threading.local()
        self._model: Any = None  # a `Chain`
        if source is not None:
            self.open(source)

    def open(self, source: Any) -> Self:
        """Take up a model, see the class; returns the tagger. The one before is forgotten."""
        if isinstance(source, (str, bytes, os.PathLike)):
            parts = _opened(source, self._trust)
        else:
            encoder, features, w, *limits = chain_parts(source)
            parts = encoder, features, w.copy(), *limits
        self._model = Chain(parts, self._kernels)
        return self

    def close(self) -> None:
        """Forget the model."""
        self._model = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:  # a copy has the model, and no sentence
        return partial(Tagger, kernels=self._kernels, trust=self._trust), (self._model,)

    def labels(self) -> list[Any]:
        """The labels of the model, in its order: sorted, or that of CRFsuite's file."""
        return list(self._chain().encoder_.labels_)

    def set(self, xseq: Any) -> None:
        """Take up a sentence, for `tag`, `probability` and `marginal` of this thread."""
        self._take(xseq)

    def tag(self, xseq: Any = None) -> list[Any]:
        """The labels of the sentence, as `CRF.predict_single` has them. None: the sentence that was set."""
        tokens, sentences, read = self._taken() if xseq is None else self._take(xseq)
        found = None if read is None else sentences.tag(read)
        return self._chain()._labels([tokens])[0] if found is None else found

    def tag_many(self, X: Iterable[Any]) -> list[list[Any]]:
        """`tag` of each sentence."""
        chain, X = self._chain(), list(X)
        found = chain._one_by_one(X, SentenceModel.tag)
        return chain._labels(X) if found is None else found

    def marginals(self, xseq: Any = None) -> list[dict[Any, float]]:
        """p(y_t = label | x) as a dict {label: probability} for each token."""
        if xseq is not None:
            self.set(xseq)
        labels = self._chain().encoder_.labels_
        return [dict(zip(labels, row, strict=True)) for row in self._p_node().tolist()]

    def marginal(self, y: Hashable, pos: int) -> float:
        """p(y_pos = y | x) of the sentence that was set or tagged."""
        state, sentences = self._state, self._current()
        p_node = getattr(state, "p_node", None)
        if p_node is None or sentences is None or state.taken[1] is not sentences:
            p_node = self._p_node()
        if sentences is not None and pos.__class__ is int and pos >= 0:
            try:  # as programs ask, label by label
                return p_node.item(pos, sentences.number[y])
            except (IndexError, KeyError, TypeError):
                pass
        if not isinstance(pos, Integral) or not 0 <= pos < len(p_node):
            raise ValueError(f"expected a token in 0..{len(p_node) - 1}, got {shown(pos)}")
        return p_node.item(int(pos), self._number(y))

    def probability(self, yseq: Sequence[Hashable]) -> float:
        """p(yseq | x) of the sentence that was set or tagged."""
        tokens = self._taken()[0]
        if len(yseq) != _n_tokens(tokens):
            raise ValueError(f"expected {_n_tokens(tokens)} labels, one for each token, got {len(yseq)}")
        return float(np.exp(self.span_log_proba(tokens, [(0, yseq)])[0])) if len(yseq) else 1.0

    def kbest(self, xseq: Any, k: int = 10) -> list[tuple[list[Any], float]]:
        """The k most probable labellings, best first, with their log probabilities in nats; see
        `CRF.predict_kbest`. Needs the kernels.
        """
        k = whole("k", k, 1)
        return self._chain().predict_kbest([self._take(xseq)[0]], k)[0]

    def span_log_proba(
        self, xseq: Any, spans: Iterable[tuple[Any, ...]], scheme: str | None = None
    ) -> np.ndarray:
        """log p(these labels from this token on | x) of spans, (n,) in nats.

        spans : (first token, labels) each: (5, ["B-PER", "I-PER"]). With a scheme: (first token, token after
        the last one, type), as for `CRF.span_log_proba`. Raises ValueError for a span outside the sentence,
        and for a label or a type that the model does not know.
        """
        n = _n_tokens(xseq)
        if scheme is not None:
            asked = [(0, *span) for span in spans]
            return self._chain()._chunk_log_proba([xseq], asked, scheme, [n])
        ids = [(first, [self._number(y) for y in labels]) for first, labels in spans]
        for i, (first, labels) in enumerate(ids):
            if not 0 <= first < first + len(labels) <= n:
                got = f"{len(labels)} from token {first} on"
                raise ValueError(f"span {i}: expected some of the {n:,} tokens, got {got}")
        return self._chain()._span_log_proba([xseq], [(0, *span) for span in ids])

    # ---- what all methods ask for ----

    def _chain(self):
        """The `Predictor`."""
        if self._model is None:
            raise ValueError("the tagger has no model: call open, with the path of one, first")
        return self._model

    def _weights(self):
        return self._chain().weights_

    def _current(self):
        """Its `SentenceModel`, or None."""
        return (self._model or self._chain())._sentences

    def _take(self, xseq):
        """(tokens, `SentenceModel` or None, what it has read or None) of a sentence, kept for this thread."""
        state, sentences = self._state, self._current()
        if type(xseq) is not list and not hasattr(xseq, "__len__"):
            xseq = xseq.items() if hasattr(xseq, "items") else list(xseq)
        state.p_node = None
        if sentences is None:  # then the array of weights tells one model from another
            state.weights = self._weights()
        state.taken = taken = xseq, sentences, None if sentences is None else sentences.read(xseq)
        return taken

    def _taken(self):
        """`_take` of the sentence that this thread has set, read for the model as it stands."""
        sentences = self._current()
        try:
            taken = self._state.taken
        except AttributeError:
            raise ValueError("the tagger has no sentence: call set, or give one") from None
        same = taken[1] is sentences and (sentences or self._state.weights is self._weights())
        return taken if same else self._take(taken[0])

    def _number(self, label):
        sentences = self._current()
        try:
            return (
                self._chain().encoder_.labels_.index(label) if sentences is None else sentences.number[label]
            )
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"expected a label of the model, got {shown(label)}") from None

    def _p_node(self):
        """Marginals (T, L) of the sentence."""
        (tokens, sentences, read), state = self._taken(), self._state
        if state.p_node is None:
            found = None if read is None else sentences.marginals(read)
            if found is None:
                found = self._chain().predict_marginals_array([tokens])
            state.p_node = found[0]
        return state.p_node


class LiveTagger(Tagger):
    """A `Tagger` of a `CRF` that follows it: what changes there, weights in place included, is seen when the
    next sentence is set or tagged. It opens nothing else.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._crf = model

    def __reduce__(self):
        return LiveTagger, (self._crf,)

    def open(self, source: Any) -> Self:
        """ValueError: see the class."""
        raise ValueError("tagger_ follows its model: crfbook.Tagger opens others")

    def _weights(self):
        return self._crf.weights_

    def _current(self):
        return self._crf._sentence_model()

    def _chain(self):
        chain_parts(self._crf)  # of the present fit
        return self._crf


def chain_parts(model):
    """(encoder, features, weights, constraints, label_sets) of a fitted `CRF`. TypeError for other models."""
    parts = tuple(
        getattr(model, f"{name}_", None) for name in ("encoder", "features", "weights", "constraints")
    )
    if not (getattr(model, "_kind", None) == "CRF" and isinstance(parts[0], Encoder)):
        raise TypeError(f"Tagger: expected a path or a CRF fitted on text, got {shown(model)}")
    return *parts, getattr(model, "label_sets_", None)


def _n_tokens(tokens):
    return tokens.shape[0] if hasattr(tokens, "shape") else len(tokens)


def _opened(path, trust):
    """`chain_parts` of a file."""
    path = file_name(path, "Tagger")
    with open(path, "rb") as file:
        foreign = file.read(len(MAGIC)) == MAGIC
    header, arrays = read_crfsuite(path) if foreign else load_arrays(path, "CRF")
    try:
        groups = by_group(arrays, ("encoder", "features", "constraints", "dictionary", "history", "state"))
        encoder = Encoder.from_state({"header": header["encoder"], "arrays": groups["encoder"]}, trust)
        return encoder, *chain_of(header, groups, encoder, arrays["weights"])
    except KeyError as error:  # an intact file that no `save` wrote
        raise ModelFileError(f"{path}: refused, {error} is missing, or no part of a model") from None
    except Exception as error:
        raise ModelFileError(f"{path}: refused, {error}") from None


def by_group(arrays, groups):
    """{group: {name: array}} of the arrays of a file that are called "group.name". KeyError for another."""
    found = {group: {} for group in groups}
    for key, array in arrays.items():
        group, _, name = key.partition(".")
        if name:
            found[group][name] = array
    return found


def chain_of(header, groups, encoder, w):
    """(features, w, constraints, label_sets) of a file's header and arrays. ValueError unless all fit."""
    features = FeatureSet(**header["features"], **groups["features"])
    constraints = Constraints(**groups["constraints"]) if groups["constraints"] else None
    check_layout(features, w, encoder, constraints)
    if "dictionary" not in header:
        return features, w, constraints, None
    if not (constraints and hasattr(encoder, "columns_")):
        raise ValueError("tag dictionary: expected constraints and columns of words with it, got none")
    sets = LabelSets.from_state(header["dictionary"], groups["dictionary"], constraints.label_sets)
    return features, w, constraints, sets
