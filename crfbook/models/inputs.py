"""What an estimator may be given as X, y and sample_weight, and how it becomes a `Corpus`."""

import contextlib
import warnings
from itertools import compress, zip_longest
from typing import Any, NamedTuple

import numpy as np

from crfbook._checks import check_fields, shown, unexpected, whole
from crfbook.data.columns import TokenColumns
from crfbook.data.constraints import Constraints, constraints_from, describe_violations, violations
from crfbook.data.corpus import Corpus, make_corpus, offsets, ragged_index, take_sequences, without_zeros
from crfbook.data.features import FeatureSet, empirical_counts, from_keys, observed, select
from crfbook.data.partial import Held, Partial, check_sets, conflicts, make_partial, spelled_out, split_sets
from crfbook.data.vocabulary import encode_labels, flat_labels, in_order, number_labels
from crfbook.encoding.encoder import Encoder
from crfbook.encoding.given_attributes import is_columns
from crfbook.encoding.tag_dictionary import LabelSets, TagDictionary, hold_freed
from crfbook.evaluation.schemes import SCHEMES, SETS, refuse_sets
from crfbook.models.parameters import ALGORITHMS

MOST_LABELS = 1_000_000  # of a file without their names, so that a number in it allocates little


class IntegerAlphabet:
    """Stands in for the `Encoder` where the corpus comes ready: labels and attributes are their own names."""

    kind = "integers"

    def __init__(self, n_labels, n_attrs, n_edge_attrs):
        self.labels_ = list(range(n_labels))
        self.n_labels, self.n_attrs, self.n_edge_attrs = n_labels, n_attrs, n_edge_attrs

    @classmethod
    def of(cls, corpus):
        """Sizes as large as the ids in `corpus`."""
        ids = corpus.labels, corpus.attr_idx, corpus.class_attr
        n_labels, n_attrs, n_edge_attrs = (int(part.max(initial=-1)) + 1 for part in ids)
        return cls(n_labels, n_attrs, max(1, n_edge_attrs))

    def transform(self, X, y=None, on_unknown_label=None):
        raise ValueError(
            "this model was trained on a ready Corpus, without an encoder: expected a Corpus, "
            f"got {type(X).__name__}"
        )

    def attribute_names(self):
        return list(range(self.n_attrs))

    def edge_attribute_names(self):
        return list(range(self.n_edge_attrs))

    decode = Encoder.decode


class TrainingSet(NamedTuple):
    """What a `CRF` makes of X and y before it trains."""

    encoder: Any
    corpus: Any  # Corpus, labelled; its labels obey the constraints; -1: none is known, see `held`
    constraints: Constraints
    label_sets: LabelSets | None  # of the tag dictionary
    features: FeatureSet
    n_dropped: int  # sequences left out: on_violation="drop"
    held: Held | None = None  # what is known of the labels; None: all of them


def training_set(model, settings, X, y, sample_weight, classes=None):
    """`TrainingSet` of a CRF with a new encoder, which knows what occurs in X and y, and `classes`.

    Raises ValueError, naming the token, for a label that is not known where the algorithm needs it.
    """
    X = listed(X)
    encoder, corpus, sets = encoded(X, y, sample_weight, model.template)
    corpus = with_classes(encoder, corpus, classes, sets)
    corpus, partial = make_partial(corpus, sets, encoder.labels_)
    row = ALGORITHMS[settings.algorithm]
    if partial is not None and not (row.partial and settings.loss == "log" and settings.eps is None):
        able = " or ".join(repr(name) for name, other in ALGORITHMS.items() if other.partial)
        got = f"algorithm={settings.algorithm!r}, loss={settings.loss!r}, inference={settings.inference!r}"
        needs = f"labels known in part need algorithm={able}, loss='log', inference='exact', got {got}"
        raise ValueError(f"{_first_unknown(corpus, sets)}; {needs}")
    return restricted(model, settings, X, encoder, corpus, partial=partial)


def _first_unknown(corpus, sets):
    token = int(np.flatnonzero(corpus.labels < 0)[0])
    got = next((shown(sorted(labels, key=repr)) for place, labels in sets if place == token), "none")
    return f"{corpus.place(token)}: expected a label, got {got}"


def restricted(model, settings, X, encoder, corpus, label_sets=None, partial=None):
    """`TrainingSet` of a corpus that stands for X: what may be labelled how, and which weights there are.

    label_sets : of the tag dictionary that the model has already; None: of the one that its parameter asks
        for. Warns of sequences that are left out.
    partial : `Partial` of its tokens; None: all labels are known.
    """
    constraints, held = constraints_from(model.constraints, encoder.labels_), None
    if label_sets is None and model.tag_dictionary is not None:
        label_sets = _dictionary(model, X, corpus, encoder, partial).encode(encoder.labels_)
    if label_sets is not None:
        corpus = corpus._replace(label_set=label_sets.label_set(X, encoder.columns_))
        constraints = label_sets.constrain(constraints)
    if partial is not None:
        corpus, held = hold_freed(corpus, constraints, partial, label_sets)
    kept = lawful(corpus, constraints, encoder.labels_, settings.on_violation == "drop", held, partial)
    n_dropped = corpus.n_sequences - len(kept)
    if n_dropped:
        warnings.warn(
            f"{n_dropped} training sequences violate the constraints and were left out",
            UserWarning,
            stacklevel=4,
        )
        tokens, _ = ragged_index(corpus.seq_ptr, kept)
        corpus, held = take_sequences(corpus, kept), held and held._replace(row=held.row[tokens])
    if held is not None:
        corpus = corpus._replace(labels=held.labels(corpus))
        if not held.spoken(corpus.sequence, corpus.n_sequences).any():
            wanted = "a token of which more is known than the constraints say"
            raise unexpected("nothing to learn from", wanted, "none")
    features = choose_features(corpus, encoder, settings, constraints, held)
    return TrainingSet(encoder, without_zeros(corpus), constraints, label_sets, features, n_dropped, held)


def choose_features(corpus, encoder, settings, constraints, held=None):
    """FeatureSet for training, and CRFsuite's cut-off: the counts (of sums of attribute values, not of
    sample weights) must reach `min_freq`. Transitions that the constraints forbid get no weight. Where all
    weights exist virtually (`Settings.virtual`): one of the same sizes without any. Of a token known as a set
    of labels all of them count, see `spelled_out`."""
    sizes = len(encoder.labels_), encoder.n_attrs, encoder.n_edge_attrs
    if settings.virtual:
        return from_keys(*sizes, *np.zeros((2, 0), np.int64))
    corpus = corpus._replace(seq_weight=np.zeros(0)) if held is None else spelled_out(corpus, held)
    every = dict(all_states=settings.all_possible_states, all_transitions=settings.all_possible_transitions)
    features, counts = observed(corpus, *sizes, **every), None
    if settings.min_freq > 0:
        counts = empirical_counts(corpus, features)
    return kept_weights(features, counts, settings.min_freq, constraints)


def kept_weights(features, counts, min_freq, constraints):
    """FeatureSet without transitions that the constraints forbid, and without weights whose counts (F,) do
    not reach min_freq (counts None: all do).
    """
    keep = np.ones(features.n_features, dtype=bool)
    if constraints is not None:
        keep[features.n_node :] = constraints.allowed[features.edge_prev, features.edge_next]
    if counts is not None:
        keep &= counts >= min_freq
    return features if keep.all() else select(features, keep)


def _dictionary(model, X, corpus, encoder, partial=None):
    """The TagDictionary that was given, or learnt from the training columns;
    it allows all that these show.
    """
    if model.template is None:
        raise ValueError("tag_dictionary: expected columns of words with a template, got attributes")
    known = [*encoder.labels_, None]  # -1 is the last place
    gold = [known[y] for y in corpus.labels.tolist()]
    learnt = given = model.tag_dictionary
    if not isinstance(given, TagDictionary):
        learnt = TagDictionary.learn(X, [gold], whole("tag_dictionary", given, 1, wrong=TypeError))
        if partial is None:
            return learnt
    if partial is not None:
        meant = [None if row.all() else frozenset(compress(encoder.labels_, row)) for row in partial.sets]
        gold = [meant[r] for r in partial.row.tolist()]
    return learnt.allowing(X, gold)


def with_classes(encoder, corpus, classes, sets=()):
    """The corpus with label ids of an alphabet that has `classes` too, and the labels of sets [(token, set)];
    the encoder is changed."""
    if classes is None and not sets:
        return corpus
    classes = [] if classes is None else list(classes)
    n_classes, tokens = len(classes), [token for token, labels in sets for _ in labels]
    classes += [label for _, labels in sets for label in labels]
    if isinstance(encoder, IntegerAlphabet):
        encoder.n_labels = max(encoder.n_labels, 1 + max(classes, default=0))
        encoder.labels_ = list(range(encoder.n_labels))
        return corpus
    both = [*classes, *encoder.labels_]
    tokens += [int(np.argmax(corpus.labels == y)) for y in range(len(encoder.labels_))]
    named = [*(f"classes[{i}]" for i in range(n_classes)), *map(corpus.place, tokens)]
    ids, encoder.labels_ = number_labels(both, len(both), None, named.__getitem__)
    number = np.append(ids[len(classes) :], -1)  # an unknown label, -1, is the last place
    return corpus._replace(labels=number[corpus.labels].astype(np.int32))


def training_corpus(X, y, sample_weight, template):
    """(encoder, corpus) for `fit`; the encoder is new and knows what occurs in X and y.

    Raises ValueError: no token at all, X and y of different lengths, a token without a label, weights that
    are not finite and >= 0; and what the encoder raises, naming sequence and token.
    """
    encoder, corpus, sets = encoded(X, y, sample_weight, template)
    if (corpus.labels < 0).any():
        raise ValueError(_first_unknown(corpus, sets))
    return encoder, corpus


def encoded(X, y, sample_weight, template):
    """(encoder, corpus, sets): as `training_corpus`, where labels may be None or sets of labels.

    sets : [(token, set)]; the corpus has -1 there, and the encoder need not know their labels.
    """
    X, y = _given(X, y)
    X, y, sets = without_sets(X, y)
    if isinstance(X, Corpus):
        corpus = _checked(X, y)
        encoder = IntegerAlphabet.of(corpus)
    else:
        if y is None and getattr(X, "labels", None) is None:
            named = ", or columns read with label=" if is_columns(X) else ""
            raise unexpected("fit", f"labels y, one sequence of labels for each sequence of X{named}", "none")
        encoder = Encoder(template)
        corpus = encoder.fit_transform(X, y)
    if corpus.n_tokens == 0:
        raise ValueError(f"nothing to learn from: X has {corpus.n_sequences} sequences and no token")
    check_sets(corpus, sets, isinstance(X, Corpus))
    if not (sets or (corpus.labels >= 0).any()):
        raise ValueError(_first_unknown(corpus, sets))
    return encoder, weighted(corpus, sample_weight), sets


def without_sets(X, y):
    """(X, y, [(token, set)]): None in place of sets of labels among those of y, or of the columns of X."""
    own, flat = getattr(X, "labels", None), is_columns(X)
    if y is None:
        if own is None or not flat:
            return X, y, []
        (labels,), sets = split_sets([own])
        return X.select(X.names, labels) if sets else X, y, sets
    flat &= not any(hasattr(row, "__len__") and not isinstance(row, (str, bytes, *SETS)) for row in y)
    labels, sets = split_sets([list(y)] if flat else y)
    return X, (labels[0] if flat else labels) if sets else y, sets


def weighted(corpus, sample_weight):
    """The corpus with weights of its sequences (None: as it is).
    Raises TypeError or ValueError for weights that are none.
    """
    if sample_weight is None:
        return corpus
    return corpus._replace(seq_weight=sequence_weights(sample_weight, corpus.n_sequences))


def below_one(weight):
    """Weights times a power of two, for shares of their sum: that of large ones leaves float64."""
    return np.ldexp(weight, -np.frexp(weight.max(initial=1.0))[1])


def encoder_state(encoder):
    """(JSON-able header, dict of arrays) of an `Encoder` or an `IntegerAlphabet`, for saving."""
    if isinstance(encoder, IntegerAlphabet):
        sizes = [encoder.n_labels, encoder.n_attrs, encoder.n_edge_attrs]
        return {"kind": encoder.kind, "sizes": sizes}, {}
    state = encoder.get_state()
    return state["header"], dict(state["arrays"])


def encoder_from_state(header, arrays, trust):
    """The inverse of `encoder_state`. ValueError for what it never gives.
    trust : see `Encoder.from_state`.
    """
    if header.get("kind") == IntegerAlphabet.kind:
        sizes = dict(zip(("n_labels", "n_attrs", "n_edge_attrs"), header["sizes"], strict=True))
        check_fields(sizes, {name: ((int,), least) for name, least in zip(sizes, (1, 0, 1), strict=True)})
        if sizes["n_labels"] > MOST_LABELS:
            raise ValueError(f"n_labels: expected at most {MOST_LABELS:,}, got {sizes['n_labels']:,}")
        return IntegerAlphabet(**sizes)
    return Encoder.from_state({"header": header, "arrays": arrays}, trust)


def known_corpus(encoder, X, y=None, unknown="raise", label_sets=None):
    """Corpus of new text for a trained model. Attributes that the model does not know are left out.

    unknown : a label that the model does not know raises ValueError naming sequence and token ("raise"), or
        becomes -1 ("mark").
    label_sets : `LabelSets` of its tag dictionary, or None; a ready Corpus keeps the label_set that it has.
    """
    X, y = _given(X, y)
    if isinstance(X, Corpus):
        corpus = _without_unknown(_checked(X, y), encoder.n_attrs, encoder.n_edge_attrs)
        unseen = corpus.labels >= len(encoder.labels_)
        if unknown == "mark":
            corpus = corpus._replace(labels=np.where(unseen, np.int32(-1), corpus.labels))
        elif unseen.any():
            where = int(np.argmax(unseen))
            wanted = f"label ids 0..{len(encoder.labels_) - 1}"
            raise unexpected(corpus.place(where), wanted, corpus.labels[where])
        return corpus
    corpus = encoder.transform(X, y, on_unknown_label=unknown)
    if label_sets is None:
        return corpus
    return corpus._replace(label_set=label_sets.label_set(X, encoder.columns_))


def known_labels(X, corpus, y, alphabet):
    """(corpus with these labels, `Partial`) of X and y: labels, sets of labels or None, as `fit` takes them.

    Raises ValueError or TypeError that begins with "given", and names sequence and token.
    """
    try:
        _, y, sets = without_sets(X, y)
        flat, n = flat_labels(y, corpus.seq_ptr, is_columns(X), "given"), corpus.n_tokens
        labels = encode_labels(flat, n, alphabet, corpus.seq_ptr, "raise")
        corpus = corpus._replace(labels=labels)
        check_sets(corpus, sets)
        corpus, partial = make_partial(corpus, sets, alphabet)
    except (TypeError, ValueError) as error:
        raise type(error)(f"given: {error}") from None
    return corpus, partial or Partial(corpus.labels, np.eye(len(alphabet), dtype=bool))


def refuse_given(given):
    """ValueError unless `given`, which `CRF` alone reads, is None."""
    if given is not None:
        raise unexpected("given", "None: CRF alone takes labels that are known", shown(given))


def require_labels(corpus):
    """The corpus; ValueError naming the first token that has no label."""
    unknown = np.flatnonzero(corpus.labels < 0)
    if len(unknown):
        raise ValueError(f"{corpus.place(unknown[0])}: expected a label, got none")
    return corpus


def obey(corpus, constraints, labels, drop):
    """(the sequences whose labels obey the constraints, number of the others): see `lawful`."""
    kept = lawful(corpus, constraints, labels, drop)
    n_dropped = corpus.n_sequences - len(kept)
    return take_sequences(corpus, kept) if n_dropped else corpus, n_dropped


def lawful(corpus, constraints, labels, drop, held=None, partial=None):
    """int64: the sequences whose labels, or what is known of them (`Held`, `Partial`), obey the constraints.

    Raises ValueError listing the first violations unless `drop` (None: a model that cannot drop), and in any
    case if nothing is left.
    """
    given = corpus, constraints
    found = violations(*given, labels) if held is None else conflicts(*given, held, labels)
    if not found:
        return np.arange(corpus.n_sequences)
    guilty = sorted({sequence for sequence, _, _ in found})
    said = describe_violations(found) + _obeyed(corpus, constraints, labels, partial)
    if not drop:
        remedy = "" if drop is None else " (on_violation='drop' leaves them out)"
        count = f"{len(guilty)} of {corpus.n_sequences}"
        raise ValueError(f"{count} training sequences violate the constraints{remedy}: {said}")
    kept = np.setdiff1d(np.arange(corpus.n_sequences), guilty)
    if not corpus.lengths[kept].any():
        raise ValueError(f"all training sequences with tokens violate the constraints: {said}")
    return kept


def _obeyed(corpus, constraints, labels, partial):
    """What to say of a scheme that all sequences obey; "" where not the transitions are at fault.

    partial : `Partial`: some labelling that agrees with it has to obey; None: all labels are known.
    """
    free = corpus._replace(label_set=np.zeros(0, np.int32))
    partial = partial or Partial(corpus.labels, np.eye(len(labels), dtype=bool))

    def clashes(limits):
        return conflicts(free, limits, hold_freed(free, limits, partial, None)[1], labels)

    for name in SCHEMES if clashes(constraints) else ():
        with contextlib.suppress(ValueError):  # labels that it does not read
            if not clashes(constraints_from(name, labels)):
                return f"; constraints={name!r} allows all of them"
    return ""


def label_columns(X, y, names):
    """(seq_ptr, [labels of all tokens, a list a column]) of y, or of the columns of X.

    Raises ValueError naming sequence, token and column.
    """
    if y is None:
        if not isinstance(X, TokenColumns):
            raise ValueError(
                f"expected labels y, tuples of {', '.join(names)}, or TokenColumns that have them"
            )
        columns = dict(X.columns) | ({X.label_name: X.labels} if X.labels is not None else {})
        missing = [name for name in names if name not in columns]
        if missing:
            there = ", ".join(map(repr, columns))
            raise unexpected("labels", f"columns among {there}", repr(missing[0]))
        return X.seq_ptr, [columns[name] for name in names]
    if isinstance(y, dict):
        if set(y) != set(names):
            raise ValueError(f"y: expected the columns {', '.join(names)}, got {', '.join(map(str, y))}")
        y = {name: [_sentence(labels, i) for i, labels in enumerate(listed(y[name], "y"))] for name in names}
        lengths = [[len(labels) for labels in y[name]] for name in names]
        for name, other in zip(names, lengths, strict=True):
            for i, (a, b) in enumerate(zip_longest(lengths[0], other)):
                if a != b:
                    wanted = f"as many labels of {name!r} as of {names[0]!r}"
                    raise unexpected(f"sequence {i}", wanted, f"{b} and {a}")
        return offsets(lengths[0]), [[label for labels in y[name] for label in labels] for name in names]
    rows, seq_ptr = [], [0]
    for i, sentence in enumerate(listed(y, "y")):
        for t, labels in enumerate(_sentence(sentence, i)):
            if not isinstance(labels, tuple | list) or len(labels) != len(names):
                wanted = f"{len(names)} labels ({', '.join(names)})"
                raise unexpected(f"sequence {i}, token {t}", wanted, shown(labels))
            rows.append(labels)
        seq_ptr.append(len(rows))
    return np.array(seq_ptr, np.int64), [[row[j] for row in rows] for j in range(len(names))]


def _sentence(labels, i):
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise TypeError(f"sequence {i}: expected a list of labels, got {shown(labels)}")
    return list(in_order(labels, f"sequence {i}", "a list of labels"))


def same_lengths(lengths, found):
    """ValueError unless labels of so many tokens (S,) are those of sequences of these lengths (S,)."""
    if len(lengths) != len(found):
        both = f"{len(lengths)} in X and {len(found)} in y"
        raise unexpected("X and y", "as many sequences in both", both)
    for i, (length, n_labels) in enumerate(zip(lengths, found, strict=True)):
        if length != n_labels:
            raise unexpected(f"sequence {i}", f"{length} labels, one for each token of X", n_labels)


def without_labels(X, names):
    """X without columns that are labels: a template must not read them."""
    if not isinstance(X, TokenColumns):
        return X
    return TokenColumns({n: column for n, column in X.columns.items() if n not in names}, X.seq_ptr)


def with_links(X, corpus, wanted, name):
    """The corpus with the links that column `name` of X, a text without labels, has; wanted : whether the
    model reads links.
    """
    if not wanted:
        if name is not None:
            raise ValueError(f"link: expected None where no clique is one of `skip`, got {shown(name)}")
        return corpus
    if isinstance(X, Corpus) and len(corpus.link):
        return corpus
    if not (isinstance(X, TokenColumns) and isinstance(name, str) and name in X.columns):
        columns = ", ".join(map(repr, X.columns)) if isinstance(X, TokenColumns) else "no TokenColumns"
        raise ValueError(f"link: expected the name of a column of X, got {shown(name)} and {columns}")
    numbers = {"": -1}
    column = (numbers.setdefault(value or "", len(numbers)) for value in X.columns[name])
    return corpus._replace(link=np.fromiter(column, np.int32, corpus.n_tokens))


def _given(X, y):
    """X and y as lists; TypeError if there is no X."""
    X, y = listed(X), listed(y, "y")
    if X is None:
        raise TypeError("X: expected a list of sequences, got None")
    return X, y


def listed(sequences, name="X"):
    """Generators and other one-time iterables as lists; anything else as it is.
    TypeError for what holds no sequences, tables among them.
    """
    held = any(hasattr(sequences, name) for name in ("__iter__", "__getitem__", "seq_ptr"))
    if sequences is not None and not held:
        raise TypeError(f"{name}: expected a list of sequences, got {shown(sequences)}")
    in_order(sequences, name)
    one_time = hasattr(sequences, "__iter__") and not hasattr(sequences, "__len__")
    return list(sequences) if one_time else sequences


def _checked(corpus, y):
    """A ready corpus may have been put together by hand: check its bounds again, and put `y` in its place."""
    corpus = make_corpus(**corpus._asdict())
    if y is None:
        return corpus
    refuse_sets(y)
    same_lengths(corpus.lengths, [len(labels) for labels in y])
    flat = [-1 if label is None else label for labels in y for label in labels]
    return make_corpus(**corpus._replace(labels=np.array(flat) if flat else None)._asdict())


def _without_unknown(corpus, n_attrs, n_edge_attrs):
    """The corpus without attributes and edge attributes beyond these numbers."""
    known, own, val = corpus.attr_idx < n_attrs, corpus.class_attr < n_edge_attrs, corpus.attr_val
    if known.all() and own.all():
        return corpus
    return corpus._replace(
        attr_ptr=offsets(known)[corpus.attr_ptr],
        attr_idx=corpus.attr_idx[known],
        attr_val=val[known] if len(val) else val,
        class_ptr=offsets(own)[corpus.class_ptr],
        class_attr=corpus.class_attr[own],
    )


def sequence_weights(sample_weight, n_sequences):
    """float64 (S,); TypeError or ValueError for what are no weights."""
    try:
        weight = np.asarray(sample_weight)
        weight = weight.astype(np.float64) if weight.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError):
        weight = None
    if weight is None:
        raise TypeError(f"sample_weight: expected numbers, got {shown(sample_weight)}")
    if weight.shape != (n_sequences,):
        wanted = f"one weight for each of the {n_sequences} sequences"
        raise unexpected("sample_weight", wanted, f"shape {weight.shape}")
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if len(bad):
        got = f"{weight[bad[0]]} for sequence {bad[0]}"
        raise unexpected("sample_weight", "finite numbers >= 0", got)
    if n_sequences and not weight.any():
        raise ValueError("sample_weight: expected a weight above 0, got only zeros")
    return np.ascontiguousarray(weight)
