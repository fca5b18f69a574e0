"""Chapter 12, speed: elimination beside chains of joint labels, Viterbi, training; and how time grows."""

import time
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crfbook import Encoder, Objective, TokenColumns, make_corpus, minimize
from crfbook.chain.ready import stretch_scores
from crfbook.data.corpus import take_sequences
from crfbook.data.features import observed
from crfbook.data.vocabulary import number_labels
from crfbook.dynamic import DynamicModel, DynamicObjective, dynamic_features, factorial, lay_out_template
from crfbook.dynamic.inference import ready_rows
from crfbook.dynamic.viterbi import chains_viterbi, max_chains, two_chains_viterbi

from .harness import Row, cpu_row, race, study, timed
from .records import rounded
from .work import dataset

C2 = 0.05
SUBSET = 447  # sentences of the paper's Table 3
CHAINS = "pos", "chunk"


class Problem(NamedTuple):
    """A factorial CRF on sentences of CoNLL-2000: words two to each side, the template "words"."""

    corpus: object
    labels: np.ndarray  # int32 (N, 2)
    layout: object
    features: object
    w: np.ndarray  # (F,)


def words_of(columns):
    """Words alone, all with one label."""
    return TokenColumns({"word": columns.columns["word"]}, columns.seq_ptr, [0] * columns.n_tokens)


@cache
def encoder():
    """`Encoder` of the words of all training sentences."""
    return Encoder("words").fit(words_of(dataset("chunking").train))


@cache
def problem(chunks, n_sentences=None):
    """chunks : "all", or "NP": B-NP, I-NP, O. n_sentences : a random subset; None: all."""
    columns = dataset("chunking").train
    named = [y if chunks == "all" or y.endswith("-NP") else "O" for y in columns.labels]
    corpus, numbers, names = encoder().transform(words_of(columns)), [], {}
    for name, column in zip(CHAINS, (columns.columns["pos"], named), strict=True):
        ids, names[name] = number_labels(column, len(column), columns.seq_ptr)
        numbers.append(ids)
    labels = np.stack(numbers, axis=1)
    if n_sentences is not None:
        kept = np.random.default_rng(1).permutation(corpus.n_sequences)[:n_sentences]
        labels = np.concatenate([labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]] for i in kept])
        corpus = take_sequences(corpus, kept)
    return made(corpus, labels, factorial(*CHAINS), names)


def made(corpus, labels, cliques, names):
    """`Problem` with random weights of a tenth of a nat."""
    layout = lay_out_template(cliques, tuple(names), names)
    features = dynamic_features(layout, corpus, labels, int(corpus.attr_idx.max()) + 1)
    w = np.random.default_rng(0).normal(0.0, 0.1, features.n_features)
    return Problem(corpus, labels, layout, features, w)


def objective_of(one, n_threads=1):
    return DynamicObjective(one.corpus, one.labels, one.layout, one.features, c2=C2, n_threads=n_threads)


def joint_chain(one, whole, every):
    """(objective, weights, number of labels) of the chain of joint labels: those that occur in whole, the
    problem of the same labels on all sentences, or every pair.
    """
    joint, everywhere = (np.ravel_multi_index(p.labels.T, one.layout.sizes) for p in (one, whole))
    seen = np.unique(everywhere)
    n_labels = int(np.prod(one.layout.sizes)) if every else len(seen)
    labels = joint if every else np.searchsorted(seen, joint)
    corpus = one.corpus._replace(labels=labels.astype(np.int32))
    features = observed(corpus, n_labels, one.features.n_attrs, 1)
    w = np.random.default_rng(0).normal(0.0, 0.1, features.n_features)
    return Objective(corpus, features, c2=C2, form="batched"), w, n_labels


def viterbi_runs(one):
    """{name: callable}: Viterbi from given scores, with and without back pointers."""
    corpus, layout = one.corpus, one.layout
    ready = ready_rows(corpus, DynamicModel(layout, one.features, one.w, "elimination"))
    rows = stretch_scores(ready.corpus, ready.scores, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens))
    chains, axes = max_chains(layout, ready.tables)
    n_cells, longest = len(chains.beside), corpus.longest
    path, score = np.zeros((corpus.n_tokens, 2), np.int32), np.zeros(corpus.n_sequences)
    work = np.empty((longest, n_cells)), np.empty((2, n_cells))
    blocks = [np.ascontiguousarray(rows[:, a:b]) for a, b in pairwise(layout.first)]
    tables = dict(zip((table.at for table in layout.tables), ready.tables, strict=True))
    beside = tables.get(((0, 0), (0, 1)))
    beside = tables[(0, 1), (0, 0)].T.copy() if beside is None else beside
    pairs = (tables[(0, chain), (1, chain)] for chain in (0, 1))
    given, back = (*pairs, beside), np.empty((2, longest, *layout.sizes), np.int16)
    other, totals = np.zeros((corpus.n_tokens, 2), np.int32), np.zeros(corpus.n_sequences)

    def with_pointers():
        for i, (a, b) in enumerate(pairwise(corpus.seq_ptr)):
            totals[i] = two_chains_viterbi(*(u[a:b] for u in blocks), *given, other[a:b], *back)

    without = partial(chains_viterbi, rows, chains, corpus.seq_ptr, path, score, *work)
    with_pointers()
    without()
    np.testing.assert_allclose(score, totals, rtol=1e-12)
    np.testing.assert_array_equal(path, other[:, axes])
    return {"without": without, "with": with_pointers}


@study("12_targets.csv")
def dcrf_targets(repeats=5):
    """What exact inference and training of factorial CRFs must reach, in one run; a quarter of an hour."""
    few = problem("all", SUBSET)
    ours, whole = objective_of(few), problem("all")
    (flat, w_flat, n_flat), (product, *pairs) = (joint_chain(few, whole, every) for every in (False, True))
    took = race({"ours": partial(ours, few.w), "flat": partial(flat, w_flat)}, repeats)
    seconds = took["ours"].median_cpu
    work = f"POS x chunk, {SUBSET} sentences: value and gradient / "
    yield cpu_row(work + f"chain of {n_flat} labels", took, 1.4, 0.9, reference="flat")
    took = race({"ours": partial(ours, few.w), "product": partial(product, pairs[0])}, max(1, repeats // 2))
    yield cpu_row(work + f"chain of {pairs[1]} labels", took, 1 / 6, 1 / 8, reference="product")
    yield Row(f"POS x chunk, {SUBSET} sentences: value and gradient", seconds, 1.0, "CPU s", 0.20, 0.12)
    memory = sum(array.nbytes for array in work_arrays(ours)) / 1e6
    yield Row("POS x chunk: work memory", memory, 1.0, "MB", 20, 10, f"{few.corpus.n_tokens:,} tokens")
    for one, name, limits in (
        (whole, "POS x chunk, all sentences", (4.5, 3.0)),
        (problem("NP", SUBSET), f"POS x NP, {SUBSET} sentences", (0.06, 0.035)),
        (problem("NP"), "POS x NP, all sentences", (1.2, 0.8)),
    ):
        took = race({"run": partial(objective_of(one), one.w)}, repeats)["run"].median_cpu
        note = f"{' x '.join(map(str, one.layout.sizes))}, {one.features.n_features:,} weights"
        yield Row(name + ": value and gradient", took, 1.0, "CPU s", *limits, note)
    took = race(viterbi_runs(few), repeats)
    note = f"{few.corpus.n_sequences / took['without'].median_cpu:,.0f} sentences a second"
    yield cpu_row("POS x chunk: Viterbi / with back pointers", took, 0.35, 0.25, note, "without", "with")
    found, took = timed(minimize, ours, np.zeros_like(few.w), c2=C2, tol=1e-4)
    note = f"{found.status}, {found.n_iter} iterations, objective {found.objective:.2f}"
    yield Row(f"POS x chunk, {SUBSET} sentences: training to 1e-4", took, 1.0, "CPU s", 40, 20, note)
    yield training_row(problem("NP"))


def training_row(one):
    """Training on all sentences with two threads, wall minutes."""
    objective, start = objective_of(one, n_threads=2), time.perf_counter()
    found = minimize(objective, np.zeros_like(one.w), c2=C2, tol=1e-4)
    minutes = (time.perf_counter() - start) / 60
    note = f"{found.status}, {found.n_iter} iterations, objective {found.objective:.2f}"
    return Row("POS x NP, all sentences: training to 1e-4, two threads", minutes, 1.0, "minutes", 8, 3, note)


def work_arrays(objective):
    """What elimination writes on its way, of one thread."""
    objective(np.zeros(objective.features.n_features))
    return objective.free.work_arrays()


def growth_row(sizes, longest, n_tokens, n_repeats):
    """CPU us a token of a value and gradient on random labels, beside the products of theory."""
    rng, names = np.random.default_rng(0), {f"c{k}": list(range(n)) for k, n in enumerate(sizes)}
    n_tokens = max(longest, n_tokens)
    seq_ptr = np.arange(0, n_tokens + 1, longest)
    attr_ptr = np.arange(seq_ptr[-1] + 1)
    corpus = make_corpus(seq_ptr, attr_ptr, rng.integers(0, 50, seq_ptr[-1]))
    labels = np.stack([rng.integers(0, n, corpus.n_tokens) for n in sizes], axis=1).astype(np.int32)
    one = made(corpus, labels, factorial(*names), names)
    took = race({"run": partial(objective_of(one), one.w)}, n_repeats)["run"].median_cpu
    us, products = 1e6 * took / corpus.n_tokens, 3 * int(np.prod(sizes)) * sum(sizes)
    return {"us a token": us, "products a token": products, "products a us": products / us}


GROWTH = (  # labels of each chain, tokens of a sentence
    *(((n, 22), 24) for n in (5, 11, 22, 44, 88)), *(((44, n), 24) for n in (3, 6, 12, 24, 48)),
    *(((44, 22), n) for n in (3, 12, 48, 192)),
    ((22,), 24), ((22, 11), 24), ((22, 11, 6), 24), ((22, 11, 6, 3), 24),
)  # fmt: skip


@study("12_growth.csv", frozen=("dynamic",))
def dcrf_growth(n_tokens=4000, n_repeats=3):
    """Microseconds a token of a value and gradient against labels, tokens and chains; minutes."""
    jobs, make = [], partial(rounded(growth_row), n_tokens=n_tokens, n_repeats=n_repeats)
    for sizes, longest in GROWTH:
        key = {"chains": " x ".join(map(str, sizes)), "tokens of a sentence": longest}
        jobs.append((key, partial(make, sizes=sizes, longest=longest)))
    yield "12_growth.csv", jobs, []
