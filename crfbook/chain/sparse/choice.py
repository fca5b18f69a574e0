"""Which form is the faster for a model at hand: seconds predicted from counts,
with coefficients measured once.

Training and marginals have a batched form (one product of matrices a step and class) and a sparse one (one
product for each stored pair); decoding has a dense and a sparse one. Seconds are sums of counts times
coefficients. Those below were fitted by the study `form-fit` to 300 random cases on one core of a 2.5 GHz
Xeon with AVX-512 (L from 10 to 120, 1 to 2,000 classes, 2,000 to 150,000 tokens, 0.5 to 60 per cent of the
pairs stored). In eight-fold cross-validation there the faster form was chosen in 96 % of the cases in
training (one within 5 % of it in 98 %; 0.2 % of the time lost) and in 97 % in decoding. Cases that the fit
did not see: notebooks/results/06_form_costs.csv. Those of the default forms come from 40 (training) and 60
random taggers of 20 to 2,500 labels (study `default-fit`; `decoding-choice` says how often decoding chooses
well). On another machine both give others; the argument `form` overrides the choice.
"""

from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np

from crfbook._checks import one_of
from crfbook.chain.packing import FEW_CLASSES, batch_rows, n_shards, n_stretches, padded
from crfbook.chain.sparse.potentials import TABLE_SHARE, active_edges, count_supports, distinct_columns
from crfbook.data.corpus import offsets

FORMS = ("auto", "batched", "sparse", "default", "numpy")
DECODING_FORMS = ("auto", "dense", "sparse", "default", "numpy")

# seconds of the dense form below which nothing else is considered: it takes hundreds of uses to save what
# compiling costs
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

SECONDS = {  # form: coefficients, in the order of `terms`
    "batched": (
        0.000638, 2.96e-09, 5.31e-09, 3.07e-05, 5.81e-09, 2.07e-10, 4.27e-08, 7.59e-07, 2.04e-13, 1.67e-09,
        1.78e-10, 1.9e-09,
    ),
    "sparse": (
        0.00124, 1.77e-08, 1.22e-08, 3.4e-06, 8.74e-07, 7.6e-09, 2.35e-09, 1.36e-09, 4.95e-10, 7.98e-08,
        9.37e-11, 2.39e-10, 1.3e-13, 1.01e-10, 5.45e-10, 8.57e-11, 3.08e-08, 2.43e-09, 3.58e-09, 1.34e-10,
        2.15e-09, 4.53e-09,
    ),
    "default": (0.00184, 9.36e-08, 1.3e-08, 0, 1.34e-09, 4.05e-07),
    "dense decoding": (
        0.000674, 3.77e-08, 8.68e-09, 1.74e-05, 5.39e-13, 2.74e-10, 3.59e-11, 2.43e-08, 4.05e-09, 2.09e-10,
    ),
    "sparse decoding": (
        0.000558, 1.63e-07, 1.41e-08, 2.27e-06, 7.4e-09, 4.87e-08, 7.03e-13, 3.96e-10, 1.17e-09, 2.76e-11,
    ),
    "default decoding": (0, 3.82e-08, 0, 1.2e-08, 1.38e-07, 4.64e-07, 0, 4.21e-09),
}  # fmt: skip


def is_tiny(corpus, features):
    """Is a problem so small that NumPy takes it (numpy_form.py)? A matter of sizes alone: the same problem is
    always computed in the same way, whatever has been compiled before.

    Seconds of an evaluation: calls of NumPy at each time step and class, and work at cells and pairs.
    """
    if features.n_attrs > TINY_ATTRS:
        return False
    cells = corpus.n_tokens * features.n_labels
    pairs, tables = cells * features.n_labels, corpus.n_classes * features.n_labels**2
    counts = corpus.longest, corpus.n_classes, cells, pairs, tables, len(corpus.attr_idx)
    return float(np.dot(TINY_COSTS, counts)) < TINY_SECONDS


@contextmanager
def never_tiny():
    """Context manager: no problem is tiny inside. For studies: what they time and warm up is kernels."""
    global TINY_SECONDS
    before, TINY_SECONDS = TINY_SECONDS, 0.0
    try:
        yield
    finally:
        TINY_SECONDS = before


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


def terms(form, s):
    """The counts that the seconds of a form are linear in: "batched", "sparse", "default", "dense decoding",
    "sparse decoding" or "default decoding".

    spill: the share of the tables of all classes that does not stay in the processor's cache. alone: 1 if no
    row shares its step and class with another. Decoding goes by stretches;
    labels that cannot win are left out (`pruned`) where a stretch is long.
    """
    cells = s.labels**2
    spill = 8 * s.classes * cells / (8 * s.classes * cells + CACHE_BYTES)
    alone = min(1.0, s.groups / max(1.0, s.tokens))
    stretches = float(n_stretches(s.tokens, s.labels))
    pruned = float(s.tokens / stretches > 4 * s.classes * s.labels)
    common = 1.0, s.tokens, s.tokens * s.labels, s.classes
    if form == "batched":  # a single class needs no sorting of rows
        return (
            *common,
            (s.classes > 1) * s.tokens * s.labels,
            s.tokens * cells,
            s.classes * cells,
            s.groups,
            s.groups * cells,
            s.groups * cells * spill,
            spill * s.classes * cells,
            s.groups * s.labels,
        )
    if form == "sparse":
        return (
            *common,
            s.groups,
            s.groups * s.labels,
            s.listed,
            s.listed * alone,
            s.based * s.listed,
            s.list_entries,
            s.based * s.tokens * cells,
            s.based * (1.0 - s.whole) * s.tokens * cells,
            s.tokens * cells * alone,
            s.table_tokens * cells,
            s.table_tokens * cells * alone,
            s.table_tokens * cells * spill,
            s.tables * cells,
            s.pairs,
            s.pairs * alone,
            s.whole * s.tokens * cells,
            s.whole * s.visits * cells,
            s.whole * s.visits * cells * spill,
        )
    if form == "dense decoding":
        return (
            *common,
            (1.0 - pruned) * s.tokens * cells,
            (1.0 - pruned) * s.tokens * cells * spill,
            pruned * s.tokens * cells,
            s.classes * cells,
            stretches * s.classes * cells,
            pruned * stretches * s.classes * cells * s.labels,
        )
    if form == "default":
        return 1.0, s.tokens, s.tokens * s.labels, s.tokens * s.cells, s.tokens * s.stored, s.stored
    if form == "default decoding":  # pairs: stored ones of a row, in all classes
        pairs = s.plain + s.entries / s.classes
        return (
            1.0,
            s.tokens,
            s.tokens * s.labels,
            s.tokens * s.cells,
            s.tokens * pairs / s.labels,
            s.classes * pairs,
            s.classes * s.cells,
            cells,
        )
    return (
        *common,
        s.products,
        s.entries,
        s.based * s.tokens * cells,
        s.based * s.products,
        s.based * stretches * cells * s.labels,
        (1.0 - s.based) * s.products / s.labels,
    )


def seconds(form, sizes):
    """Predicted seconds of `form`, one of those that `terms` knows."""
    return float(np.dot(SECONDS[form], terms(form, sizes)))


def choose_form(sizes, forms=("batched", "sparse")):
    """The form of those given that is predicted to be the fastest."""
    return min(forms, key=lambda form: seconds(form, sizes))


class FormChooser:
    """Chooses, at given weights, the form for a corpus. `form`: "auto",
    or the one to take whatever the weights are; `tiny`: it is "numpy". kernels: it must not be.

    Raises ValueError for another word, and for "default" where transitions depend on the text.
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
            # what is known without weights, and all that the forms with tables depend on
            width, n_classes = padded(features.n_labels), corpus.n_classes
            none = [0.0] * (len(Sizes._fields) - 5)
            self.data_sizes = Sizes(self.n_tokens, width, n_classes, *self._groups(), *none)

    def choose(self, w):
        """ "batched", "sparse" or "numpy". What takes milliseconds is batched, sparing the other
        form's compilation; large tables are not made.
        """
        if self.tiny or self.form != "auto":
            return "numpy" if self.tiny else self.form
        cells = len(self.rows) * padded(self.features.n_labels) ** 2
        if 8 * cells * (3 + self.n_pieces) > TABLE_BYTES:
            return self.forms[-1]
        if seconds("batched", self.data_sizes) < SMALL:
            return "batched"
        return choose_form(self.sizes(w), self.forms)

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
    """Is it cheaper to form the counts of a class as a table, one product,
    than pair by pair? See counts.py.

    rows: tokens of each class; visits: classes met, summed over the batches; pairs: weights of each class.
    Nanoseconds: a pair and row 1.8; a table 5 M^2 for filling and adding,
    and 0.1 M^2 for each row (measured at L = 51).
    """
    cells = padded(features.n_labels) ** 2
    return 1.8 * (rows @ pairs) > cells * (5.0 * visits + 0.1 * rows.sum())


DECODING = "dense decoding", "sparse decoding", "default decoding"


def decoding_form(form, corpus, features, w, constraints=None):
    """ "dense", "sparse", "default" or "numpy": `form` itself, or for "auto" the one that is predicted to be
    the fastest for Viterbi on a corpus; "numpy" if that is tiny.
    """
    if one_of("form", form, DECODING_FORMS) != "auto":
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
        return "default"  # what counts pairs for the sparse form has a cell for each
    sizes = chooser.sizes(np.asarray(w))
    able = DECODING[large : 3 if few else 2]
    return choose_form(sizes, able).partition(" ")[0]
