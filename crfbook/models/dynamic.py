"""Dynamic conditional random fields as a scikit-learn estimator: several label columns, labelled at once.

    p(y | x) = 1/Z(x) prod_c prod_t Psi_c(y_c,t, x, t),   the cliques c of a template, at all tokens t

Source: Sutton, Rohanimanesh and McCallum (2004), eq. (3).
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from crfbook import dynamic
from crfbook._checks import Stored, check_arrays, number, one_of, pointers, shown, whole
from crfbook.data.columns import Data
from crfbook.data.constraints import Constraints, constraints_from, table_by_name
from crfbook.data.features import FeatureSet
from crfbook.data.vocabulary import encode_labels, number_labels
from crfbook.dynamic import EXACT, Clique
from crfbook.encoding.templates import TemplateLike
from crfbook.models.fitting import fit_by_lbfgs, warn_unconverged
from crfbook.models.inputs import (
    IntegerAlphabet,
    below_one,
    known_corpus,
    label_columns,
    listed,
    refuse_given,
    same_lengths,
    training_corpus,
    weighted,
    with_links,
    without_labels,
)
from crfbook.models.parameters import given, thread_count
from crfbook.models.prediction import Sequences
from crfbook.models.saving import SCALARS, Saved
from crfbook.training.loop import Callback

DECODERS = "auto", "exact", "max-product", "dual", "posterior"
PRESETS = {"factorial": dynamic.factorial, "linear": dynamic.linear}


class SavedDCRF(Saved):
    """What of a `DCRF` goes into a file, and how it comes out again."""

    _kind, _groups = "DCRF", ("limits",)
    _rebuilt = "cliques", "labels", "template", "constraints"

    def _stored(self):
        for name, labels in self._classes.items():
            for label in labels:
                if not isinstance(label, str | int | float | None):
                    raise TypeError(
                        f"column {name!r}: expected labels that are strings or numbers, got {shown(label)}"
                    )
        arrays = {"node_ptr": self.features_.node_ptr, "node_label": self.features_.node_label}
        for i, limits in enumerate(self._limits.values()):
            parts = limits[:3] if isinstance(limits, Constraints) else (limits,)
            arrays |= {f"limits.{i}.{j}": part for j, part in enumerate(parts)}
        header = {
            "labels": list(self._columns), "classes": self._classes, "limits": list(self._limits),
            "cliques": [list(clique) for clique in self._cliques], "engine": self.engine_,
            "unconverged": self.n_unconverged_,
        }  # fmt: skip
        return header, arrays

    def _take_up(self, header, arrays, part):
        self.cliques = self._cliques = [
            Clique(tuple((dt, chain) for dt, chain in at), features, rule, tuple(labels))
            for at, features, rule, labels in header["cliques"]
        ]
        self.labels = tuple(header["labels"])
        self._classes, self._limits, self._columns = header["classes"], {}, self._names()
        check_classes(self._classes, [*self._columns, *dynamic.memories_of(self.cliques)])
        check_arrays(part["limits"], {n: Stored(bool, array.shape) for n, array in part["limits"].items()})
        for i, key in enumerate(header["limits"]):
            parts = [part["limits"][f"{i}.{j}"] for j in range(3 if isinstance(key, str) else 1)]
            self._limits[key if isinstance(key, str) else tuple(key)] = (
                Constraints(*parts) if len(parts) > 1 else parts[0]
            )
        chains = tuple(self._classes)
        self.layout_ = dynamic.lay_out_template(self.cliques, chains, self._classes, self._limits)
        check_sizes(self.layout_, self.encoder_, arrays)
        n_attrs = len(arrays["node_ptr"]) - 1
        none = np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32)
        nodes = FeatureSet(self.layout_.n_cells, n_attrs, 1, arrays["node_ptr"], arrays["node_label"], *none)
        self.features_ = dynamic.with_tables(nodes, self.layout_)
        check_arrays({"node_keys": nodes.node_keys}, {"node_keys": Stored(np.int64, order="rising")})
        self.engine_ = dynamic.check_stored(self.layout_, header["engine"])
        corpora = isinstance(self.encoder_, IntegerAlphabet)  # which have links of their own
        if dynamic.reads_links(self.cliques) and not (corpora or isinstance(self.link, str)):
            raise ValueError(f"link: expected the name of a column, got {shown(self.link)}")
        self.n_unconverged_ = whole("unconverged", header.get("unconverged", 0), 0)
        self.constraints = self._limits or None


def check_classes(classes, names):
    """ValueError unless {column: its labels} of a file has the columns `names`, each label once."""
    if list(classes) != names:
        raise ValueError(f"classes: expected the columns {', '.join(names)}, got {', '.join(classes)}")
    for name, labels in classes.items():
        plain = type(labels) is list and all(isinstance(label, SCALARS) for label in labels)
        if not plain or not labels or len(set(labels)) < len(labels):
            raise ValueError(f"column {name!r}: expected different labels, got {shown(labels)}")


def check_sizes(layout, encoder, arrays):
    """ValueError where the arrays of a file do not fit its template and its attributes, before more is made
    of them.
    """
    n_attrs, n_node = max(encoder.n_attrs, 1), arrays["node_label"].size
    check_arrays(
        arrays,
        {
            "node_ptr": pointers(n_attrs, n_node),
            "node_label": Stored(np.int32, (n_node,), 0, layout.n_cells),
            "weights": Stored(np.float64, (n_node + layout.n_tables,)),
        },
    )


class DCRF(SavedDCRF):
    """Dynamic CRF: one probability for all label columns of a sentence.

    Minimises sum_i sample_weight_i * -log p(y_i | x_i) + c1 * |w|_1 + c2 * |w|_2^2, in nats, as `CRF` does.
    Where some labels are None, p sums over them.

    Parameters
    ----------
    cliques : "factorial", "linear" (columns that know nothing of each other), or a list of `Clique`: see
        `crfbook.dynamic`, which has presets: factorial with skew edges, second_order, memory, hierarchical.
    labels : names of the label columns, in the order of the labels of a token.
    template, min_freq, c1, c2, max_iterations, tol, num_memories, max_linesearch, verbose, n_jobs : as in
        `CRF`.
    warm_start : `fit` starts from the weights of the fit before, where they are weights of the same names.
    constraints : None, or {column: what `CRF` takes, (column, other): which labels go together, a boolean
        table (labels of the first, labels of the other) or a DataFrame with their names}.
    inference : "exact": "elimination" where the cliques are those of neighbouring labels of chains, else
        "junction" (junction trees), which can be asked for by name. Approximations, by belief propagation:
        "block" (each chain at once), or message by message "sweep", "random", "tree", "residual", "sync";
        "mean-field" is a lower bound. "auto": exact where max_cells allow it, else "block", else "tree".
    max_cells : joint labels of the largest clique of a junction tree; more is refused before training.
    bp_tol, max_sweeps, damping, random_state : of approximations. Sweeps of a sentence end when no message
        (its sum is 1) changes by bp_tol or more, or after max_sweeps of them. damping : share of the old
        message in a new one, for "sync" and "block". random_state : an integer, the seed of random orders.
    link : None, or the column of a TokenColumns X that links tokens, for `skip` cliques: a token and the next
        one of its sentence with the same string in it. An empty string links nothing.

    Attributes
    ----------
    classes_ : {column: its labels}. weights_ (F,), laid out by features_ and layout_.
    engine_ : the engine that was chosen. Components are groups of columns that cliques join. Where they have
    different engines: all their names, with ", " between.
    objective_, n_iter_, status_, history_ : as in `CRF`. Of an
    approximation, objective_ has its log Z; status_ counts the sentences whose messages did not converge at
    the end, n_unconverged_.

    X is what `CRF.fit` takes; y has for each sequence a list of tuples, one label a column, None where it is
    not known; or is {column: sequences of its labels}. Without y, X is a TokenColumns that has the columns of
    labels. With unknown labels the objective has local minima: training ends where the gradient vanishes.
    """

    def __init__(
        self, cliques: str | list[Clique] = "factorial", labels: tuple[str, ...] = ("a", "b"),
        c1: float = 0.0, c2: float | None = None, max_iterations: int | None = None, tol: float | None = None,
        min_freq: float = 0, *, template: TemplateLike = None, constraints: dict[Any, Any] | None = None,
        inference: str = "auto", max_cells: int = dynamic.LIMIT, bp_tol: float = 1e-3, max_sweeps: int = 1000,
        damping: float = 0.0, random_state: int = 0, link: str | None = None, num_memories: int | None = None,
        max_linesearch: int | None = None, n_jobs: int | None = None, warm_start: bool = False,
        verbose: bool | int = False,
    ) -> None:  # fmt: skip
        self.cliques, self.labels, self.template, self.constraints = cliques, labels, template, constraints
        self.c1, self.c2, self.max_iterations, self.tol, self.min_freq = c1, c2, max_iterations, tol, min_freq
        self.inference, self.max_cells, self.num_memories = inference, max_cells, num_memories
        self.bp_tol, self.max_sweeps, self.damping = bp_tol, max_sweeps, damping
        self.random_state, self.link = random_state, link
        self.max_linesearch, self.n_jobs, self.warm_start = max_linesearch, n_jobs, warm_start
        self.verbose = verbose

    def fit(
        self, X: Data, y: Any = None, *, sample_weight: ArrayLike | None = None, callback: Callback = None
    ) -> Self:
        """Train on sentences with several labels a token.

        sample_weight (S,), callback : as in `CRF.fit`. Returns self. Raises ValueError or TypeError in one
        sentence that names sequence, token and column; ValueError before training for a template that is too
        wide for exact inference, with its cost, and with "exact" in `inference`.
        """
        c1, c2, tol = (given(self, *pair) for pair in (("c1",), ("c2", 1.0), ("tol", 1e-6)))
        memory, search = given(self, "num_memories", 10 if c1 else 6), given(self, "max_linesearch", 20)
        most, cells = given(self, "max_iterations"), whole("max_cells", self.max_cells, 1)
        engine = one_of("inference", self.inference, ("auto", "exact", *dynamic.FORMS))
        X, names, cliques = listed(X), self._names(), self._template()
        seq_ptr, columns = label_columns(X, y, names)
        numbers, classes = [], {}
        for name, column in zip(names, columns, strict=True):
            ids, classes[name] = number_labels(column, len(column), seq_ptr)
            if not classes[name]:
                raise ValueError(f"column {name!r}: expected some labels, got {len(column)} unknown ones")
            numbers.append(ids)
        numbers = dynamic.add_memories(cliques, classes, np.stack(numbers, axis=1), seq_ptr)
        zeros = [[0] * int(n) for n in np.diff(seq_ptr)]
        X = without_labels(X, names)
        encoder, corpus = training_corpus(X, zeros, sample_weight, self.template)
        corpus = with_links(X, corpus, dynamic.reads_links(cliques), self.link)
        limits = limits_of(self.constraints, classes)
        layout = dynamic.lay_out_template(cliques, tuple(classes), classes, limits)
        engine = dynamic.check_engine(layout, corpus, engine, cells)
        options = self._options(engine)
        if self.inference == "auto" and not (dynamic.is_exact(engine) or dynamic.reads_links(cliques)):
            warnings.warn(
                f"inference='auto': exact inference needs more than max_cells={cells:,} for this template; "
                f"{engine!r} is taken, an approximation", UserWarning, stacklevel=2,
            )  # fmt: skip
        if self.verbose:
            print(dynamic.engine_cost(layout, corpus, engine, cells), flush=True)
        n_attrs = max(encoder.n_attrs, 1)
        with np.errstate(over="ignore", invalid="ignore"):  # `early_end` names the numbers
            features = dynamic.dynamic_features(layout, corpus, numbers, n_attrs, given(self, "min_freq"))
            objective = dynamic.DynamicObjective(
                corpus, numbers, layout, features, c2=c2, n_threads=thread_count(self.n_jobs), engine=engine,
                limit=cells, options=options,
            )  # fmt: skip
        w0 = np.zeros(features.n_features)
        if self.warm_start and hasattr(self, "weights_") and classes == self._classes:
            old = self.features_._asdict()
            if all(np.array_equal(array, old[name]) for name, array in features._asdict().items()):
                w0 = self.weights_
        rules = {"c1": c1, "c2": c2 if objective.is_convex else 0.0, "tol": tol, "memory": memory}
        rules |= {"max_iterations": most, "max_linesearch": search}
        fit_by_lbfgs(self, corpus, objective, w0, callback, **rules)
        self.encoder_, self.layout_, self.features_, self.engine_ = encoder, layout, features, engine
        self.n_unconverged_ = self.n_dropped_ = 0
        if not dynamic.is_exact(engine):
            objective(self.weights_)
            n, self.n_unconverged_ = objective.unconverged
            if self.n_unconverged_:
                self.status_ += f"; no fixed point in {self.n_unconverged_} of {n} sequences"
                warn_unconverged(self.n_unconverged_, n, engine, stacklevel=3)
        self._classes, self._cliques, self._limits, self._columns = classes, cliques, limits, names
        return self

    def predict(self, X: Data, form: str = "auto", *, given: None = None) -> list[list[tuple[Any, ...]]]:
        """The most probable labels of each sentence: a list of tuples, one label a column.

        form : "exact"; "max-product" (belief propagation with maxima, an approximation); "dual" (two chains:
        dual decomposition, exact); "posterior" (of each label the most probable one by its marginal); "auto":
        exact where max_cells allow it, whatever was trained with; else "max-product".
        given : None; ValueError for anything else, which `CRF` alone takes.
        """
        corpus, model = self._ready(X, given)
        path = self._decoded(corpus, model, form)
        return Sequences(self._named(path[a:b]) for a, b in pairwise(corpus.seq_ptr))

    def predict_kbest(self, X: Data, k: int = 10) -> list[list[tuple[list[tuple[Any, ...]], float]]]:
        """The k most probable labellings of each sentence: pairs (labels, log probability), best first.

        Fewer where fewer are allowed. A labelling costs less than a decoding if engine_ is "elimination", and
        up to m T decodings if it is "junction" (m columns, T tokens). Raises ValueError for an approximation.
        """
        corpus, model = self._ready(X)
        k, n_threads = whole("k", k, 1), thread_count(self.n_jobs)
        if not dynamic.is_exact(model.engine):
            raise ValueError(f"predict_kbest: expected exact inference, got {model.engine!r}")
        [(_, log_z)] = self._marginals(corpus, model, rows=False)
        ranked = dynamic.kbest(corpus, model, k, n_threads)
        return [
            [(self._named(path), min(score - z, 0.0)) for path, score in found]
            for found, z in zip(ranked, log_z.tolist(), strict=True)
        ]

    def predict_marginals(self, X: Data, *, given: None = None) -> list[list[dict[str, dict[Any, float]]]]:
        """p(label | x) of each token and column: {column: {label: probability}}. given : see `predict`."""
        found = self.predict_marginals_array(X, given=given)
        return Sequences(
            [
                {
                    name: dict(zip(self._classes[name], row, strict=True))
                    for name, row in zip(found, rows, strict=True)
                }
                for rows in zip(*(table.tolist() for table in tables), strict=True)
            ]
            for tables in zip(*found.values(), strict=True)
        )

    def predict_marginals_array(self, X: Data, *, given: None = None) -> dict[str, list[np.ndarray]]:
        """The same as {column: arrays (T, L)}, in the order of classes_."""
        corpus, model = self._ready(X, given)
        first = self.layout_.first
        [(p, _)] = self._marginals(corpus, model, rows=int(first[-1]))
        return {
            name: np.split(p[:, first[i] : first[i + 1]], corpus.seq_ptr[1:-1]) if corpus.n_sequences else []
            for i, name in enumerate(self._columns)
        }

    def log_proba(self, X: Data, y: Any = None) -> np.ndarray:
        """log p(y | x) in nats (S,), summed over what is None in y; -inf for a forbidden labelling. With an
        approximation's log Z.
        """
        corpus, model, columns = self._with_labels(X, y)
        known = np.full((corpus.n_tokens, len(self._classes)), -1, np.int32)
        for i, (name, column) in enumerate(zip(self._columns, columns, strict=True)):
            known[:, i] = encode_labels(column, len(column), self._classes[name], corpus.seq_ptr, "raise")
        (_, held), (_, free) = self._marginals(corpus, model, (known, None), rows=False)
        return np.minimum(held - free, 0.0)  # above 0 is rounding

    def score(self, X: Data, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Share of tokens all of whose labels are right. None in y is not looked at, and a token without any
        label does not count.
        """
        corpus, model, columns = self._with_labels(X, y)
        found = self._named(self._decoded(corpus, model, "auto"))
        gold = list(zip(*columns, strict=True))
        right = [
            all(a is None or a == b for a, b in zip(labels, guess, strict=True))
            for labels, guess in zip(gold, found, strict=True)
        ]
        counts = [any(a is not None for a in labels) for labels in gold]
        weight = below_one(weighted(corpus, sample_weight).token_weights * counts)
        if not weight.any():
            raise ValueError("score: expected at least one token with a label and a weight, got none")
        return float(np.average(right, weights=weight))

    @property
    def classes_(self) -> dict[str, list[Any]]:
        """{column: its labels}, those of memories too."""
        check_is_fitted(self, "weights_")
        return {name: list(labels) for name, labels in self._classes.items()}

    def table(self, clique: int | str) -> np.ndarray:
        """The weights of a clique that do not depend on the text, an axis a label: by number or name."""
        check_is_fitted(self, "weights_")
        tables = {key: table for i, table in enumerate(self.layout_.tables) for key in (i, table.name)}
        table = tables[one_of("clique", clique, tables)]
        if table.start < 0:
            return np.zeros(table.shape)
        first = self.features_.n_node + table.start
        return self.weights_[first : first + table.size].reshape(table.shape)

    def _names(self):
        several = isinstance(self.labels, tuple | list)
        names = (self.labels,) if isinstance(self.labels, str) else tuple(self.labels) if several else ()
        if not names or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"labels: expected different names of columns, got {shown(self.labels)}")
        return names

    def _template(self):
        if isinstance(self.cliques, str):
            return PRESETS[one_of("cliques", self.cliques, PRESETS)](*self._names())
        return dynamic.check_cliques(self.cliques)

    def _options(self, engine):
        tol, seed = number("bp_tol", self.bp_tol), whole("random_state", self.random_state)
        schedule = next((name for name in engine.split(", ") if name not in EXACT), "sync")
        return dynamic.check_options(schedule, tol, self.max_sweeps, self.damping, seed)

    def _ready(self, X, given=None):
        refuse_given(given)
        check_is_fitted(self, "weights_")
        X = without_labels(listed(X), self._columns)
        corpus = known_corpus(self.encoder_, X, unknown="mark")
        corpus = with_links(X, corpus, dynamic.reads_links(self._cliques), self.link)
        cells = whole("max_cells", self.max_cells, 1)
        how = self.engine_, cells, self._options(self.engine_)
        return corpus, dynamic.DynamicModel(self.layout_, self.features_, self.weights_, *how)

    def _marginals(self, corpus, model, known=(None,), rows=True):
        """What `marginals` says, for each of `known`; one warning where messages did not converge."""
        stats, n_threads = np.zeros((len(known), 4), np.int64), thread_count(self.n_jobs)
        found = [
            dynamic.marginals(corpus, model, which, n_threads, rows, part)
            for which, part in zip(known, stats, strict=True)
        ]
        n, failed = stats[:, :2].max(axis=0)
        if failed:
            warn_unconverged(failed, n, model.engine, stacklevel=4)
        return found

    def _decoded(self, corpus, model, form):
        """Label ids (N, m)."""
        form, n_threads = one_of("form", form, DECODERS), thread_count(self.n_jobs)
        if form == "posterior":
            first = self.layout_.first
            [(p, _)] = self._marginals(corpus, model, rows=int(first[-1]))
            found = [p[:, a:b].argmax(axis=1) for a, b in pairwise(first)]
            return np.stack(found, axis=1)
        if form in ("auto", "exact") and not dynamic.is_exact(model.engine):
            wanted = dynamic.check_engine(self.layout_, corpus, form, model.limit)
            model = model._replace(engine=wanted)
        if form == "max-product" or form == "auto" and not dynamic.is_exact(model.engine):
            path, _, converged = dynamic.max_product(corpus, model, n_threads=n_threads)
            if not converged.all():
                warn_unconverged(np.sum(~converged), len(corpus.filled), "max-product", stacklevel=4)
            return path
        search = dynamic.decode_dual if form == "dual" else dynamic.decode
        return search(corpus, model, n_threads=n_threads)[0]

    def _with_labels(self, X, y):
        """(corpus, model, labels of all tokens, a list a column) of X and y."""
        X = listed(X)
        corpus, model = self._ready(X)
        seq_ptr, columns = label_columns(X, y, self._columns)
        same_lengths(corpus.lengths, np.diff(seq_ptr))
        return corpus, model, columns

    def _named(self, path):
        """Rows of label ids as tuples of the labels of the columns."""
        names = [self._classes[name] for name in self._columns]
        columns = zip(names, path.T.tolist(), strict=False)  # memories come last
        return list(zip(*(map(labels.__getitem__, ids) for labels, ids in columns), strict=True))


def limits_of(spec, classes):
    """{column: Constraints, (column, other): bool table} of what a user writes; of memories: their start."""
    if not (spec is None or isinstance(spec, dict)):
        raise ValueError(
            f"constraints: expected {{column: constraints, (column, other): table}}, got {shown(spec)}"
        )
    found = {}
    for key, value in (spec or {}).items():
        names = key if isinstance(key, tuple) else (key,)
        for name in names:
            one_of("constraints", name, classes)
        if value is None:
            continue
        if len(names) == 1:
            found[names[0]] = limits = constraints_from(value, classes[names[0]])
            if limits.label_sets is not None:
                raise ValueError(f"constraints of {names[0]!r}: expected no label_sets, got {shown(value)}")
        else:
            table = table_by_name(value, *(classes[name] for name in names[:2])) if len(names) == 2 else None
            dynamic.check_pair(names, table, classes)
            found[names] = table
    return found
