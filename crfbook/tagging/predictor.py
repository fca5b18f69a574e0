"""What a trained chain says of new text: few short sentences one by one, others as a corpus.

`Predictor` is the part that estimators and taggers share. The way of one sentence is `SentenceModel`. The way
of a corpus needs numba and SciPy, so they are imported where it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from crfbook._checks import shown, unexpected
from crfbook.data.columns import Data
from crfbook.data.constraints import Constraints
from crfbook.data.corpus import Corpus
from crfbook.data.features import FeatureSet
from crfbook.evaluation.schemes import SCHEMES, Reading, chunk_patterns, reading
from crfbook.tagging.model import MOST_RANKS, SentenceModel


class Predictor:
    """A subclass has encoder_, and says what these are."""

    encoder_: Any  # Encoder, or IntegerAlphabet
    _known: Callable[..., Corpus]  # of X
    _model: Callable[[], tuple[FeatureSet, np.ndarray, Constraints | None, int]]  # and threads
    _most_sequences: float = 64  # that are answered one by one: more repay what a corpus costs

    def predict_kbest(self, X: Data, k: int = 10, form: str = "auto") -> list[list[tuple[list[Any], float]]]:
        """The k most probable labellings of each sequence, best first: for each sequence a list of pairs
        (labels, log probability); shorter where fewer labellings are allowed.

        The first one is that of `predict`; [([], 0.0)] for an empty sequence. Exact; constraints hold. Log
        probabilities are in nats; a perceptron's scores are not trained to be any.
        form : "dense", "default" (time grows with the label pairs that are stored), or "auto". Both give the
        same. Other forms of `predict` keep the best labelling alone.
        """
        if form == "auto" and type(k) is int and 1 <= k <= MOST_RANKS:
            found = self._one_by_one(X, SentenceModel.kbest, k)
            if found is not None:
                names = self.encoder_.labels_
                return [[([names[y] for y in path], p) for path, p in best] for best in found]
        corpus = self._known(X)
        best = self._kbest(corpus, k, form)
        names, ptr = self.encoder_.decode, corpus.seq_ptr
        labels = [names(np.ascontiguousarray(path), ptr) for path in best.path.T]
        log_proba = np.minimum(best.log_proba, 0.0).tolist()  # above 0 is rounding
        return [
            [(labels[j][i], log_proba[i][j]) for j in range(n)] for i, n in enumerate(best.found.tolist())
        ]

    def predict_marginals_array(self, X: Data, form: str = "auto") -> list[np.ndarray]:
        """`predict_marginals` as a list of arrays (T, L), columns in the order of classes_."""
        found = self._one_by_one(X, SentenceModel.marginals) if form == "auto" else None
        if found is not None:
            return [p_node for p_node, _ in found]
        from crfbook.chain import inference

        corpus = self._known(X)
        return by_sequence(inference.node_marginals(corpus, *self._model(), form=form), corpus)

    def _labels(self, X, form="auto", **options):
        """The best labellings by the way of a corpus, a list of lists. options : as for `decoding.decode`."""
        corpus = self._known(X)
        return self.encoder_.decode(self._decode(corpus, form, **options), corpus.seq_ptr)

    def _span_log_proba(self, X, spans):
        """`predict`'s `span_log_proba` of spans (sequence, first token in it, ids as in `log_proba`)."""
        if type(X) is list and all(_is_inside(X, *span) for span in spans):
            out, places = np.empty(len(spans)), {}
            for i, (sequence, *_) in enumerate(spans):
                places.setdefault(sequence, []).append(i)
            for sequence, mine in places.items():
                asked = [spans[i][1:] for i in mine]
                found = self._one_by_one([X[sequence]], SentenceModel.log_proba, asked)
                if found is None:
                    break
                out[mine] = found[0]
            else:
                return out
        from crfbook.chain import inference

        corpus, (features, w, constraints, n_threads) = self._known(X), self._model()
        return inference.span_log_proba(corpus, features, w, spans, constraints, n_threads)

    def _chunk_log_proba(self, X, spans, scheme, lengths):
        """The same of chunks (sequence, first token, token after the last one, type)."""
        read = Reading(None) if scheme == "conlleval" else reading(self.encoder_.labels_, scheme)
        asked, owner = [], []
        if read.scheme is None:
            raise ValueError(f"scheme: expected {', '.join(SCHEMES)} or labels of one, got {scheme!r:.80}")
        parts = list(map(read.split, self.encoder_.labels_))
        types = [kind for tag, kind in parts if tag != "O"]
        for i, span in enumerate(spans):
            try:
                (sequence, start, stop), (kind,) = map(index, span[:3]), span[3:]
            except (TypeError, ValueError):
                wanted = "(sequence, first token, token after the last, type), three integers and a string"
                raise unexpected(f"span {i}", wanted, shown(span)) from None
            n = int(lengths[sequence]) if 0 <= sequence < len(lengths) else 0
            if not 0 <= start < stop <= n:
                some = f"some of the {n:,} tokens of sequence {sequence}"
                raise unexpected(f"span {i}", some, f"{start}:{stop}")
            if kind not in types:
                raise unexpected(f"span {i}", "a type that the model has labels for", shown(kind))
            found = chunk_patterns(read.scheme, (kind, start, stop), n, parts)
            asked += [(sequence, *pattern) for pattern in found]
            owner += [i] * len(found)
        out = np.full(len(spans), -np.inf)
        np.logaddexp.at(out, owner, self._span_log_proba(X, asked))
        return np.minimum(out, 0.0)

    def _one_by_one(self, X, ask, *more):
        """[ask(`SentenceModel`, sentence, *more)] of few short sequences; None: see tagging/model.py."""
        if type(X) is not list or len(X) > self._most_sequences:
            return None
        sentences, found = self._sentence_model(), []
        if sentences is None:
            return None
        for tokens in X:
            read = sentences.read(tokens)
            found.append(None if read is None else ask(sentences, read, *more))
            if found[-1] is None:
                return None
        return found

    def _sentence_model(self) -> SentenceModel | None:
        """`SentenceModel` of the model as it stands; None: it has none."""
        return None

    def _decode(self, corpus, form, **options):
        """Label ids int32 (N,)."""
        from crfbook.decoding import decode

        return decode(corpus, *self._model(), form, **options)

    def _kbest(self, corpus, k, form):
        """`KBest`."""
        from crfbook.decoding import kbest

        features, w, constraints, n_threads = self._model()
        return kbest(corpus, features, w, constraints, k, n_threads, form)


def _is_inside(X, sequence, first, ids):
    """Whether a span of labels lies inside its sequence, which is a list of tokens."""
    tokens = X[sequence] if 0 <= sequence < len(X) else ()
    return isinstance(tokens, (list, tuple)) and 0 <= first < first + len(ids) <= len(tokens)


def by_sequence(rows, corpus):
    """Rows of tokens as a list of arrays, one a sequence."""
    return np.split(rows, corpus.seq_ptr[1:-1]) if corpus.n_sequences else []
