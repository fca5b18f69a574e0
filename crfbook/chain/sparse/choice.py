"""Which form is the faster for a model at hand: seconds predicted from counts, with coefficients fitted once.

Training and marginals have a batched form (one product of matrices a step and class) and a sparse one (one
product for each stored pair); decoding has a dense and a sparse one. Where few pairs have a weight at all,
both have a default form too. Seconds are sums of counts times coefficients. seconds.json names both: a count
is a product of the factors that `factors` knows.

There are two sets of coefficients, for vector registers of 8 doubles (AVX-512) and of 4: with the former,
products of matrices take a third less time. The studies `form-fit` and `default-fit` fitted the first ones,
to 300 random chains (L from 10 to 120, 1 to 2,000 classes, 2,000 to 150,000 tokens, 0.5 to 60 per cent of the
pairs stored) and 100 random taggers. The study `register-fit` moved them, on one Xeon, with AVX-512 and
without it (OPENBLAS_CORETYPE=Haswell, NUMBA_CPU_NAME=haswell), on 60 chains and 70 taggers.

On 56 new cases of each kind, half of them decoded, the fastest form was chosen in 91 % with AVX-512 (88 %
before the move), the worst choice taking 1.16 times as long (1.28); without it in 96 % (86 %), the worst
taking 1.07 (1.51). Other machines give other coefficients; the argument `form` overrides the choice.
"""

import json
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llvmlite.binding import get_host_cpu_features

from crfbook._checks import one_of
from crfbook.chain.packing import FEW_CLASSES, batch_rows, n_shards, n_stretches, padded
from crfbook.chain.sparse.potentials import TABLE_SHARE, active_edges, count_supports, distinct_columns
from crfbook.data.corpus import offsets

FORMS = ("auto", "batched", "sparse", "default", "numpy")
DECODING_FORMS = ("auto", "dense", "sparse", "default", "numpy")
DECODING = "dense decoding", "sparse decoding", "default decoding"


def register_doubles():
    """Doubles in a vector register of this processor: 8 with AVX-512, else 4."""
    try:
        return 8 if get_host_cpu_features().get("avx512f") else 4
    except RuntimeError:  # LLVM does not know the processor
        return 4


# {doubles in a register: {form: {count: seconds}}}, and those of this processor
FITTED = json.loads(Path(__file__).with_name("seconds.json").read_text(encoding="utf-8"))
SECONDS = FITTED[f"{register_doubles()} doubles"]
# seconds of the dense form: below, no other form is considered, as it takes hundreds of uses to repay
# compiling
SMALL = 0.05
# Where an evaluation takes NumPy less than this, no kernel is compiled (30 s). 0: kernels always. Measured on
# two busy cores, chunking, 286 tokens of 20, 815 of 50 and 1,512 of 100 sentences, 13 to 16 labels: whole
# fits of 15, 23 and 29 iterations take NumPy 0.11, 0.30 and 0.39 s, warm kernels 0.07, 0.18 and 0.33 s.
TINY_SECONDS = 0.0025
# seconds for each time step, class, token and label, token and pair of labels, cell of the tables of all
# classes, occurrence of an attribute
TINY_COSTS = 2e-5, 5e-5, 5e-8, 2e-9, 2e-8, 1e-8
TINY_ATTRS = 8_000  # a model with more of them was trained with kernels, and predicts with them
TABLE_BYTES = 1 << 30  # tables of all classes larger than this are not made
LANES_BYTES = 128  # of lanes.py, for each label and step of the longest sequence
CACHE_BYTES = 2e6  # tables much larger than this are read from memory, not from the cache
_kernels_only = ContextVar("kernels_only", default=False)


def is_tiny(corpus, features):
    """Is a problem so small that NumPy takes it (numpy_form.py)?

    Sizes alone decide: the same problem is always computed in the same way, whatever is compiled already.
    Seconds of an evaluation: calls of NumPy at each time step and class, and work at cells and pairs.
    """
    if _kernels_only.get() or features.n_attrs > TINY_ATTRS:
        return False
    cells = corpus.n_tokens * features.n_labels
    pairs, tables = cells * features.n_labels, corpus.n_classes * features.n_labels**2
    counts = corpus.longest, corpus.n_classes, cells, pairs, tables, len(corpus.attr_idx)
    return float(np.dot(TINY_COSTS, counts)) < TINY_SECONDS


@contextmanager
def never_tiny():
    """Context manager: in this thread no problem is tiny inside. Studies time kernels, and warm them up."""
    token = _kernels_only.set(True)
    try:
        yield
    finally:
        _kernels_only.reset(token)


class Sizes(NamedTuple):
    """What the time of a form depends on."""

    tokens: float  # N
    labels: float  # M, padded
    classes: float  # K
    groups: float  # runs of rows of one step and class, over all steps of all batches
    visits: float  # classes met, summed over the batches
    products: float  # stored pairs of each token's class, summed over the tokens
    entries: float  # stored pairs, summed over the classes
    listed: float  # products of the classes that are not kept as tables,
    list_entries: float  # their entries,
    table_tokens: float  # tokens of the classes kept as tables,
    tables: float  # and those classes
    based: float  # 1 if there are plain transitions
    # edge weights of each token's class, summed over the tokens; 0 if they are counted as whole tables
    pairs: float
    whole: float  # 1 if they are
    plain: float  # plain transitions with a weight
    cells: float  # (group, previous label) pairs of default.py: M without hard constraints
    stored: float  # plain transitions of the feature set, whatever their weights


def factors(s):
    """{name: number}: what the counts of seconds.json are products of, at `Sizes` s: its fields, and others.

    spill: the share of the tables of all classes that does not stay in the processor's cache. alone: 1 if no
    row shares its step and class with another. several: 1 if there is more than one class, so that rows are
    sorted. pruned: 1 if a stretch that is decoded is so long that labels which cannot win are left out.
    row_pairs: stored pairs in a row of default.py.
    """
    square = s.labels**2
    stretches = float(n_stretches(s.tokens, s.labels))
    pruned = float(s.tokens > 4 * s.classes * s.labels)
    return s._asdict() | {
        "evaluation": 1.0,
        "square": square,
        "per_label": 1.0 / s.labels,
        "several": float(s.classes > 1),
        "spill": 8 * s.classes * square / (8 * s.classes * square + CACHE_BYTES),
        "alone": min(1.0, s.groups / max(1.0, s.tokens)),
        "unbased": 1.0 - s.based,
        "by_pairs": 1.0 - s.whole,
        "row_pairs": s.plain + s.entries / s.classes,
        "stretches": stretches,
        "pruned": pruned,
        "unpruned": 1.0 - pruned,
    }


def terms(form, sizes):
    """The counts that the seconds of a form of seconds.json are linear in, in the order of that file."""
    known = factors(sizes)
    return [prod(known[name] for name in count.split(" * ")) for count in SECONDS[form]]


def seconds(form, sizes):
    """Predicted seconds of a form of seconds.json."""
    return float(np.dot(list(SECONDS[form].values()), terms(form, sizes)))


def choose_form(sizes, forms=("batched", "sparse")):
    """The form of those given that is predicted to be the fastest."""
    return min(forms, key=lambda form: seconds(form, sizes))


def base_is_shared(corpus, features, form="auto"):
    """Whether the sparse form can serve: it adds the weights of edge attribute 0 to every edge class.

    Raises ValueError for form "sparse" where it cannot.
    """
    n = corpus.n_classes - np.count_nonzero(corpus.class_attr == 0)
    if form == "sparse" and n and features.edge_ptr[1]:
        raise ValueError(
            "form='sparse': expected edge attribute 0, which has weights, in every edge class; "
            f"got {n:,} of {corpus.n_classes:,} classes without it; other forms take these"
        )
    return not n or not features.edge_ptr[1]


class FormChooser:
    """Chooses, at given weights, the form for a corpus.

    form : "auto", or the form for all weights.
    kernels : True: "numpy" is not among the choices.

    The attribute `tiny` says whether the form is "numpy".

    Raises ValueError for another word, for "default" where transitions depend on the text, and for "sparse"
    as `base_is_shared`.
    """

    def __init__(self, features, corpus, form, n_pieces=None, kernels=False, constraints=None):
        plain = corpus.n_classes == 1 and features.n_edge_attrs == 1
        if form == "default" and not plain:
            raise ValueError(
                "form='default': expected plain transitions alone, got transitions of "
                f"{features.n_edge_attrs:,} edge attributes; 'sparse' and 'batched' take any number"
            )
        lane_bytes = LANES_BYTES * corpus.longest * features.n_labels
        self.forms = ("batched", "sparse", "default")[: 3 if plain and lane_bytes <= TABLE_BYTES else 2]
        if not base_is_shared(corpus, features, form):
            self.forms = ("batched",)
        self.constraints = constraints
        form = "auto" if one_of("form", form, FORMS) == "numpy" and kernels else form
        self.form, self.features = form, features
        self.tiny = not kernels and (form == "numpy" or form == "auto" and is_tiny(corpus, features))
        if form == "auto" and not self.tiny:
            self.class_ptr, self.class_attr = corpus.class_ptr, corpus.class_attr
            self.rows = np.bincount(corpus.edge_class[corpus.inner], minlength=corpus.n_classes)
            self.n_sequences, self.n_tokens = max(1, corpus.n_sequences), corpus.n_tokens
            self.n_pieces = n_pieces or n_shards(corpus.n_tokens, features.n_node)
            self.pairs = class_pairs(features, corpus.class_ptr, corpus.class_attr)
            # the sizes that do not depend on weights: the forms with tables need no others
            width, n_classes = padded(features.n_labels), corpus.n_classes
            none = [0.0] * (len(Sizes._fields) - 5)
            self.data_sizes = Sizes(self.n_tokens, width, n_classes, *self._groups(), *none)

    def choose(self, w):
        """The form at the weights w (F,).

        What takes milliseconds is batched, so that no other form is compiled. Large tables are not made.
        """
        if self.tiny or self.form != "auto":
            return "numpy" if self.tiny else self.form
        cells = len(self.rows) * padded(self.features.n_labels) ** 2
        if 8 * cells * (3 + self.n_pieces) > TABLE_BYTES:
            return self.forms[-1]
        if seconds("batched", self.data_sizes) < SMALL:
            return "batched"
        return choose_form(self.sizes(w), self.forms)

    def reason(self, w):
        """In a few words what `choose` says at the weights w (F,), and why."""
        if self.tiny or self.form != "auto":
            return f"form {self.choose(w)!r}, " + ("for tiny data" if self.tiny else "as asked")
        times = ", ".join(f"{form} {seconds(form, self.sizes(w)):.2g} s" for form in self.forms)
        small = seconds("batched", self.data_sizes) < SMALL
        why = f"below {SMALL:g} s no other form is compiled" if small else "the least of all"
        predicted = f"predicted: {times} an evaluation, {register_doubles()} doubles in a register"
        return f"form {self.choose(w)!r} while no weight is zero ({why}; {predicted})"

    def sizes(self, w):
        """`Sizes` at the weights w (F,)."""
        features, rows = self.features, self.rows
        count = count_supports(active_edges(features, w, self.class_ptr, self.class_attr))
        table = count > TABLE_SHARE * features.n_labels**2
        first = features.n_node
        whole = counts_as_tables(features, rows, self.data_sizes.visits, self.pairs)
        return self.data_sizes._replace(
            products=rows @ count,
            entries=count.sum(),
            listed=rows[~table] @ count[~table],
            list_entries=count[~table].sum(),
            table_tokens=rows[table].sum(),
            tables=np.count_nonzero(table),
            based=float(w[first : first + int(features.edge_ptr[1])].any()),
            pairs=0.0 if whole else rows @ self.pairs,
            whole=float(whole),
            plain=float(np.count_nonzero(w[first : first + int(features.edge_ptr[1])])),
            cells=self.n_cells,
            stored=float(features.edge_ptr[1]),
        )

    @cached_property
    def n_cells(self):
        """Pairs of a group of next labels and a label that may come before."""
        if self.constraints is None:
            return float(padded(self.features.n_labels))
        return float(distinct_columns(self.constraints.allowed)[1].sum())

    def _groups(self):
        """Expected (groups, visits): how many different classes the rows of a step, and of a batch, have."""
        n, share = max(1, self.rows.sum()), self.rows / max(1, self.rows.sum())
        batch = min(batch_rows(len(self.rows)), -(-self.n_tokens // self.n_pieces))
        step = max(1.0, batch * self.n_sequences / max(1, self.n_tokens))

        def distinct(size):
            return -np.expm1(-share * size).sum()

        return min(n, n / step * distinct(step)), self.n_tokens / max(1, batch) * distinct(batch)


def class_pairs(features, class_ptr, class_attr):
    """int64 (K,): edge weights of the attributes of each class, attribute 0 left out."""
    known = (class_attr < features.n_edge_attrs) & (class_attr > 0)
    size = np.where(known, np.diff(features.edge_ptr)[np.where(known, class_attr, 0)], 0)
    return np.diff(offsets(size)[class_ptr])


def counts_as_tables(features, rows, visits, pairs):
    """Is it cheaper to form the counts of a class as a table, one product, than pair by pair?

    See `edge_counts`. rows : tokens of each class. visits : classes met, summed over the batches. pairs :
    weights of each class. A pair and row cost 1.8 nanoseconds; a table costs 5 M^2 for filling and adding,
    and 0.1 M^2 for each row (measured at L = 51).
    """
    cells = padded(features.n_labels) ** 2
    return 1.8 * (rows @ pairs) > cells * (5.0 * visits + 0.1 * rows.sum())


def decoding_form(form, corpus, features, w, constraints=None):
    """The form of Viterbi for a corpus: `form` itself, or for "auto" the one predicted to be the fastest.

    It is "numpy" if the corpus is tiny. Raises ValueError for another word.
    """
    shared = base_is_shared(corpus, features, one_of("form", form, DECODING_FORMS))
    if form != "auto":
        return form
    if is_tiny(corpus, features):
        return "numpy"
    chooser = FormChooser(features, corpus, "auto", 1, True, constraints)
    sizes = chooser.data_sizes
    large = 24 * sizes.classes * sizes.labels**2 > TABLE_BYTES
    if not large and seconds(DECODING[0], sizes) < SMALL:
        return "dense"
    few = sizes.classes <= FEW_CLASSES  # default.py has rows for each class
    if few and 20 * features.n_labels**2 > TABLE_BYTES:
        return "default"  # counting pairs for the sparse form would need a cell for each
    sizes = chooser.sizes(np.asarray(w))
    able = [name for name in DECODING[large : 3 if few else 2] if shared or not name.startswith("sparse")]
    return choose_form(sizes, able or DECODING[2:]).partition(" ")[0]
