"""What a trained model says: of new sequences labels and probabilities, of itself the weights by name.

A Viterbi score is not a confidence. `predict_marginals` gives probabilities of tokens, `log_proba` that of a
whole labelling. Dictionaries and tables leave out weights that are exactly zero, as CRFsuite's model files
do: they score as if they did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from crfbook._checks import number, one_of, shown, unexpected, whole
from crfbook.chain import inference
from crfbook.data.columns import Data
from crfbook.data.constraints import Constraints, describe_violations
from crfbook.data.corpus import Corpus, without_zeros
from crfbook.data.features import FeatureSet
from crfbook.data.partial import conflicts
from crfbook.data.vocabulary import Labels
from crfbook.decoding import BEAM_WIDTH, decode, pairs
from crfbook.encoding.tag_dictionary import LabelSets, free_blocked, hold_freed
from crfbook.evaluation.schemes import SCHEMES, chunk_lists, chunk_ways, reading, refuse_sets
from crfbook.models.inputs import (
    below_one,
    known_corpus,
    known_labels,
    listed,
    require_labels,
    same_lengths,
    sequence_weights,
)
from crfbook.models.parameters import Seed, seed, thread_count
from crfbook.tagging.model import SentenceModel
from crfbook.tagging.predictor import Predictor, by_sequence

if TYPE_CHECKING:
    from pandas import DataFrame


T = TypeVar("T")


class Sequences(list):
    """A list of lists that NumPy turns into a one-dimensional array of lists, whatever their lengths.

    A plain list of lists would be refused, or become a table where all happen to be equally long;
    scikit-learn's `cross_val_predict` joins its folds in this way.
    """

    def __array__(self, dtype=None, copy=None):
        array = np.empty(len(self), dtype=object)
        for i, sequence in enumerate(self):
            array[i] = sequence
        return array


class Predictions(Predictor, BaseEstimator):
    """The part of an estimator that predicts. Needs encoder_, and of `CRF` all of `Fitted`, and n_jobs.

    X is what `fit` takes, or a Corpus encoded with this model's encoder_. Attributes that training did not
    know have no weight and are ignored. Nothing here changes the model: several threads may share it. Every
    method raises NotFittedError before `fit`, and ValueError naming the sequence where the constraints forbid
    all its paths.
    """

    @property
    def classes_(self) -> list[Any]:
        """The labels; index = label id in every array."""
        check_is_fitted(self, "encoder_")
        return list(self.encoder_.labels_)

    def predict(
        self, X: Data, form: str = "auto", *, given: Labels | None = None, beam_width: int = BEAM_WIDTH
    ) -> list[list[Any]]:
        """The most probable labelling of each sequence (Viterbi), as a list of lists of labels;
        [] for an empty one.

        Of equally good labels the first in classes_ is taken, from the last token to the first. form : how
        the labelling is found. All forms but "beam" are exact, and all hold to the constraints. CarpeDiem and
        staggered decoding may take another labelling that is equally good.

            "auto"               "dense", "sparse", "default" or "numpy": what should take least time
            "dense"              all label pairs, less those that cannot win: up to some hundred labels
            "sparse"             plain transitions, and pairs with a weight: many different edge attributes
            "default"            pairs with a weight alone, others score 0: hundreds of labels and more
            "numpy"              all label pairs, and no compiled code: a few sentences
            "plain"              all label pairs, none left out: what speed is measured against
            "carpediem"          labels from the best score down: where attributes settle most labels
            "carpediem-tight"    the same, with a bound for each label
            "staggered"          frequent labels first, and one stand-in for the rest, until it loses
            "staggered-columns"  the same, with more labels only where the best path needs them
            "beam"               the beam_width best labels of each token: an approximation
            "posterior"          another aim: the allowed labelling with the most right tokens expected

        given : what is known already: for each sequence of X a list with a label, a set of labels or None
            (nothing) for each token; for TokenColumns one list of all tokens will do. The labelling is the
            most probable one that agrees with it. Constraints hold; a tag dictionary gives way, where it
            must. ValueError, naming the token, where no labelling is left.
            `predict(X, given=[[None, "B-PER", None]])` keeps a person's correction.
        beam_width : read by "beam" alone. "plain" and what follows make tables of all label pairs, of at most
        1 GiB, "dense", "numpy" and "sparse" of at most 8: ValueError beyond. Where edge attributes are many,
        "staggered" and "staggered-columns" make one table alone. Chapter 11 compares them.
        """
        if given is not None:
            corpus, model = self._held(X, given)
            path = decode(corpus, *model, form=form, beam_width=beam_width)
            return Sequences(self.encoder_.decode(path, corpus.seq_ptr))
        usual = form == "auto" and type(beam_width) is int and beam_width >= 1
        found = self._one_by_one(X, SentenceModel.tag) if usual else None
        return Sequences(self._labels(X, form, beam_width=beam_width) if found is None else found)

    def predict_single(
        self, xseq: Any, form: str = "auto", *, given: Any = None, beam_width: int = BEAM_WIDTH
    ) -> list[Any]:
        """`predict` for one sequence: a list of labels. given : what is known of its tokens."""
        return self.predict([xseq], form, given=None if given is None else [given], beam_width=beam_width)[0]

    def predict_array(self, X: Data, form: str = "auto", *, beam_width: int = BEAM_WIDTH) -> list[np.ndarray]:
        """`predict` as a list of int32 arrays (T,) of label ids, positions in classes_."""
        corpus = self._known(X)
        return by_sequence(self._decode(corpus, form, beam_width=beam_width), corpus)

    def predict_marginals(
        self, X: Data, form: str = "auto", *, given: Labels | None = None
    ) -> list[list[dict[Any, float]]]:
        """p(y_t = label | x): for each sequence a list with a dict {label: probability} for each token.

        form : "batched", "sparse", "default" (plain transitions, many labels), "numpy", or "auto": what takes
        less time. They agree but for rounding.
        given : what is known already, see `predict`: probabilities given that.
        """
        return self._named(self.predict_marginals_array(X, form, given=given))

    def predict_marginals_array(
        self, X: Data, form: str = "auto", *, given: Labels | None = None
    ) -> list[np.ndarray]:
        """`predict_marginals` as a list of arrays (T, L), columns in the order of classes_."""
        if given is None:
            return super().predict_marginals_array(X, form)
        corpus, model = self._held(X, given)
        return by_sequence(inference.node_marginals(corpus, *model, form=form), corpus)

    def predict_marginals_single(self, xseq: Any, *, given: Any = None) -> list[dict[Any, float]]:
        """`predict_marginals` for one sequence: a list of dicts. given : what is known of its tokens."""
        return self.predict_marginals([xseq], given=None if given is None else [given])[0]

    def predict_edge_marginals(self, X: Data) -> Iterator[np.ndarray]:
        """p(y_{t-1} = a, y_t = b | x) as an iterator: for each sequence one array (max(T-1, 0), L, L), [t-1,
        a, b].

        Labels in the order of classes_. One sequence at a time,
        since all of them would rarely fit into memory.
        """
        corpus = self._known(X)
        features, w, constraints, _ = self._model()
        return inference.iter_edge_marginals(corpus, features, w, constraints)

    def span_log_proba(
        self, X: Data, spans: Iterable[tuple[Any, ...]], scheme: str | None = None
    ) -> np.ndarray:
        """log p(these labels at these tokens | x) of spans, (n,) in nats: how sure the model is of an entity.

        spans : (sequence, first token in it, labels) each: (3, 5, ["B-PER", "I-PER"]). With a scheme:
            (sequence, first token, token after the last one, type) each, (3, 5, 7, "PER").
        scheme : name of the scheme of the labels, or "auto". The probability is that of the labellings in
            which this chunk stands, written as the scheme says, and not a longer one: of B-PER I-PER and then
            any label but I-PER. -inf where the model lacks a label that the chunk needs.

        Raises ValueError for a span outside its sequence, a label that the model does not know, and a type of
        which it knows no label.
        """
        check_is_fitted(self, "weights_")
        if scheme is not None:
            return self._chunk_log_proba(X, list(spans), scheme, self._known(X).lengths)
        number = {label: i for i, label in enumerate(self.encoder_.labels_)}
        found = []
        for i, (sequence, first, labels) in enumerate(spans):
            labels = list(labels)
            unknown = [label for label in labels if label not in number]
            if unknown:
                raise ValueError(f"span {i}: expected labels of the model, got {shown(unknown[0])}")
            found.append((sequence, first, [number[label] for label in labels]))
        return self._span_log_proba(X, found)

    def log_proba(self, X: Data, y: Labels | None = None) -> np.ndarray:
        """log p(y | x) of given labellings in nats, (S,); 0 for an empty sequence,
        -inf for a forbidden labelling.

        Raises ValueError for a label that the model does not know, naming it and its place.
        """
        corpus = require_labels(self._known(X, y, "raise"))
        return np.minimum(inference.log_proba(corpus, *self._model()), 0.0)  # above 0 is rounding

    def score(self, X: Data, y: Labels | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Token accuracy. A label that the model does not know counts as an error, None not at all.

        sample_weight : (S,) weights of the sequences, default 1. Raises ValueError without any token.
        """
        found = self.predict(X)
        gold = gold_labels(X, y)
        refuse_sets(gold)
        same_lengths([len(labels) for labels in found], [len(labels) for labels in gold])
        length = np.array([sum(label is not None for label in labels) for labels in gold], float)
        pairs = zip(gold, found, strict=True)
        right = np.array([sum(bool(x == z) for x, z in zip(a, b, strict=True)) for a, b in pairs], float)
        weight = np.ones(len(found))
        if sample_weight is not None:
            weight = below_one(sequence_weights(sample_weight, len(found)))
        total = float(weight @ length)
        if not total > 0:
            raise ValueError(
                f"score: expected at least one token that counts, got {len(found)} sequences without any"
            )
        return float(weight @ right) / total

    def _named(self, tables):
        """Arrays (T, L) of probabilities as lists of {label: probability}."""
        return Sequences(
            [dict(zip(self.encoder_.labels_, row, strict=True)) for row in table.tolist()] for table in tables
        )

    def _known(self, X, y=None, unknown="mark"):
        check_is_fitted(self, "weights_")
        corpus = without_zeros(known_corpus(self.encoder_, X, y, unknown, self.label_sets_))
        return corpus if self.label_sets_ is None else free_blocked(corpus, self.constraints_)

    def _held(self, X, given) -> tuple[Corpus, tuple[FeatureSet, np.ndarray, Constraints | None, int]]:
        """(corpus, what `_model` says) of X, held to what is known."""
        X, given = listed(X), listed(given, "given")
        corpus, (features, w, constraints, n_threads) = self._known(X), self._model()
        corpus, partial = known_labels(X, corpus, given, self.encoder_.labels_)
        corpus, held = hold_freed(corpus, constraints, partial, self.label_sets_)
        if found := conflicts(corpus, constraints, held, self.encoder_.labels_):
            raise ValueError(f"given: {describe_violations(found)}")
        return corpus._replace(label_set=held.row), (features, w, held.limits(constraints), n_threads)

    def _model(self) -> tuple[FeatureSet, np.ndarray, Constraints | None, int]:
        return self.features_, self.weights_, self.constraints_, thread_count(self.n_jobs)


class Span(NamedTuple):
    """A chunk that may be in a labelling, tokens start:stop, and the probability that it is."""

    type: str
    start: int
    stop: int
    probability: float


class Uncertain(Predictions):
    """The part of `CRF` that says how sure it is of more than tokens. Exact: sums over all labellings."""

    constraints: Any

    def predict_spans(
        self, X: Data, decode: str = "viterbi", *, scheme: str = "auto", least: float = 0.01
    ) -> list[list[Span]]:
        """Entities of each sequence: a list of `Span` (type, start, stop, probability), by start.

        The probability is that the labelling has this chunk, of this type and with these ends: the sum over
        all labellings that are read so, strictly, in the scheme.

        decode : which of them.
            "viterbi"      those of the labelling of `predict`
            "expected-f1"  the non-overlapping ones with the largest ratio of expectations
                           2 E[right] / (E[predicted] + E[gold]), over all of X together: found exactly
            "all"          all whose probability is at least `least` > 0; they may overlap
        scheme : of the labels, a name; "auto": that of `constraints`, if it is a name, or of the labels.

        `model.predict_spans([["old", "Ada", "Li"]])` gives `[[Span("PER", 1, 3, 0.93)]]`. Memory: L^2 numbers
        for each token of one sequence. Raises ValueError for another word, and labels of no scheme.
        """
        one_of("decode", decode, ("viterbi", "expected-f1", "all"))
        least = number("least", least, above=0.0)
        name = self.constraints if scheme == "auto" and isinstance(self.constraints, str) else scheme
        corpus, labels = self._known(X), self.encoder_.labels_
        read = reading(labels, name)
        if read.scheme is None:
            raise unexpected("scheme", f"{', '.join(SCHEMES)} or labels of one", shown(scheme))
        parts = list(map(read.split, labels))
        kinds = sorted({kind for tag, kind in parts if tag != "O"})
        ways, found = chunk_ways(read.scheme, kinds, parts), []
        if decode == "viterbi":
            rows = self.encoder_.decode(self._decode(corpus, "auto", beam_width=BEAM_WIDTH), corpus.seq_ptr)
            for chunks, pair in zip(chunk_lists(rows, read, strict=True), self._pairs(corpus), strict=True):
                longest = max((stop - start for _, start, stop in chunks), default=0)
                p = pairs.span_tables(*pair, ways, 0.0, longest)
                found.append([Span(k, a, b, float(p[b - a - 1][a, kinds.index(k)])) for k, a, b in chunks])
            return found
        listed, n_expected = [], 0.0
        for pair in self._pairs(corpus):
            tables = pairs.span_tables(*pair, ways, min(least, pairs.NEVER))
            n_expected += sum(float(p.sum()) for p in tables)
            listed.append(pairs.list_spans(tables, least if decode == "all" else pairs.NEVER))
        chosen = [np.arange(len(some.p)) for some in listed]
        if decode == "expected-f1":
            chosen, _ = pairs.best_span_sets(listed, n_expected)
        for some, places in zip(listed, chosen, strict=True):
            rows = zip(*(column[places].tolist() for column in some), strict=True)
            found.append([Span(kinds[kind], *rest) for kind, *rest in rows])
        return found

    def sample(self, X: Data, n: int = 1, random_state: Seed = None) -> list[list[list[Any]]]:
        """n labellings of each sequence, drawn independently from p(y | x): a list of n lists of labels each.

        random_state : as in scikit-learn. `model.sample(X, 100, 0)` estimates what has no formula: the share
        of samples in which something holds.
        """
        n, rng, found = whole("n", n, 1), np.random.default_rng(seed(random_state)), []
        for p_node, p_edge in self._pairs(self._known(X)):
            path = pairs.draw(p_node, p_edge, rng.random((n, len(p_node))))
            found.append([[self.encoder_.labels_[y] for y in row] for row in path.tolist()])
        return found

    def entropy(self, X: Data) -> np.ndarray:
        """Entropy of p(y | x) of each sequence (S,), in nats: 0 where the labelling is certain.

        `model.entropy(X).argsort()[::-1]` has the sentences first that a person should look at.
        """
        return np.array([pairs.sequence_entropy(*pair) for pair in self._pairs(self._known(X))])

    def token_entropy(self, X: Data) -> list[np.ndarray]:
        """Entropy of the label of each token, in nats: an array (T,) for each sequence. These add up to at
        least `entropy`: neighbours tell of each other.
        """
        return [pairs.token_entropy(p_node) for p_node in self.predict_marginals_array(X)]

    def _pairs(self, corpus) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return pairs.iter_marginals(corpus, *self._model())


class Fitted(BaseEstimator):
    """What a trained model has, for the parts of the estimators that read it."""

    encoder_: Any  # Encoder, or IntegerAlphabet
    features_: FeatureSet
    weights_: np.ndarray  # (F,)
    constraints_: Constraints | None
    label_sets_: LabelSets | None
    _history: dict[str, np.ndarray]
    _learner: tuple[str, dict[str, Any] | None]  # the algorithm, and the state that it goes on from
    _n_seen: int  # sequences that it was trained on

    @property
    def history_(self) -> DataFrame:
        """The iterations as a pandas DataFrame, made when asked for: training does not need pandas."""
        import pandas

        check_is_fitted(self, "weights_")
        return pandas.DataFrame(self._history)


def none_before_fit(get: Callable[[Any], T]) -> T:
    """A property that is None before `fit`, as sklearn-crfsuite has it."""

    @wraps(get)
    def value(self):
        return get(self) if hasattr(self, "weights_") else None

    return property(value)  # type: ignore[return-value]


class OneByOne(Fitted):
    """The part of an estimator that answers for short inputs one sentence a call."""

    @none_before_fit
    def classes_(self) -> list[Any]:
        """The labels; index = label id in every array. None before `fit`."""
        return list(self.encoder_.labels_)

    def _sentence_model(self) -> SentenceModel | None:
        of: Any = self.__dict__
        try:  # as each call asks
            encoder, features, w, limits, sets = of["_sentences"][0]
            if (
                of["weights_"] is w
                and of["encoder_"] is encoder
                and of["features_"] is features
                and of.get("constraints_") is limits
                and of.get("label_sets_") is sets
            ):
                return of["_sentences"][1]
        except KeyError:
            pass
        w, features, *rest = (
            of.get(f"{name}_") for name in ("weights", "features", "constraints", "label_sets")
        )
        parts = of.get("encoder_"), features, w, *rest
        right = isinstance(w, np.ndarray) and w.dtype == np.float64 and w.shape == (features.n_features,)
        found = SentenceModel.of(*parts) if right and np.isfinite(w).all() else None
        self.__dict__["_sentences"] = parts, found
        return found


class WeightNames(Fitted):
    """The part of an estimator that gives its weights by name. As in sklearn-crfsuite, what needs no table is
    None before `fit`.
    """

    @none_before_fit
    def attributes_(self) -> list[Any]:
        """Names of the attributes that have a weight other than zero, most frequent first."""
        names = self.encoder_.attribute_names()
        attrs = self.features_.node_attr[self.weights_[: self.features_.n_node] != 0]
        return [names[a] for a in np.unique(attrs)]

    @none_before_fit
    def num_attributes_(self) -> int:
        """How many attributes have a weight other than zero."""
        return len(self.attributes_)

    @none_before_fit
    def state_features_(self) -> dict[tuple[Any, Any], float]:
        """{(attribute, label): weight}."""
        names, labels = self.encoder_.attribute_names(), self.encoder_.labels_
        attrs, ids = self.features_.node_attr.tolist(), self.features_.node_label.tolist()
        weights = self.weights_[: self.features_.n_node].tolist()
        return {(names[a], labels[y]): w for a, y, w in zip(attrs, ids, weights, strict=True) if w}

    @none_before_fit
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """{(label_from, label_to): weight} of the plain transitions.

        A pair that is missing has weight 0. That does not forbid it: only `constraints` forbid.
        """
        return {(p, n): w for (b, p, n), w in self._edges() if b == 0}

    @property
    def edge_features_(self) -> dict[tuple[Any, Any, Any], float]:
        """{(edge attribute, label_from, label_to): weight} of the transitions that depend on the text
        (bigram patterns of a template)."""
        check_is_fitted(self, "weights_")
        names = self.encoder_.edge_attribute_names()
        return {(names[b], p, n): w for (b, p, n), w in self._edges() if b}

    def weights_to_frame(self) -> DataFrame:
        """All weights other than zero as a pandas DataFrame, largest magnitude first.

        Columns: kind ("state", "transition" or "edge"), attribute, from, label, weight. `from` is the
        previous label of a transition and missing for a state feature;
        `attribute` is missing for a plain transition.
        """
        import pandas

        check_is_fitted(self, "weights_")
        rows = [("state", a, None, y, w) for (a, y), w in self.state_features_.items()]
        rows += [("transition", None, p, n, w) for (p, n), w in self.transition_features_.items()]
        rows += [("edge", b, p, n, w) for (b, p, n), w in self.edge_features_.items()]
        frame = pandas.DataFrame(rows, columns=["kind", "attribute", "from", "label", "weight"])
        return frame.sort_values("weight", key=abs, ascending=False, kind="stable", ignore_index=True)

    def _edges(self):
        check_is_fitted(self, "weights_")
        labels, features = self.encoder_.labels_, self.features_
        columns = features.edge_attr, features.edge_prev, features.edge_next, self.weights_[features.n_node :]
        for b, p, n, w in zip(*(column.tolist() for column in columns), strict=True):
            if w:
                yield (b, labels[p], labels[n]), w


def gold_labels(X, y):
    """Labels as a list of lists, from y or from what X carries."""
    if y is not None:
        return listed(y, "y")
    if hasattr(X, "labels_by_sequence"):
        return X.labels_by_sequence()
    if hasattr(X, "attr_ptr"):
        return [[None if y < 0 else y for y in part.tolist()] for part in by_sequence(X.labels, X)]
    raise ValueError("expected labels y, one sequence of labels for each sequence of X, got none")
