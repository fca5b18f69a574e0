"""Chapter 08: what weights of three phonemes buy beside pairs, under L1, in models that converged; targets.

Weights of triples of phonemes join the tests of single letters of Table 2, or the trigrams of letters of
Table 3. The models are those of the first `N_WORDS` training words, since an evaluation with tuples is dear.
c1 is chosen anew for each model, on the last tenth of these words (c08.py). The chosen ones are trained until
the largest violation is NEAR of c1, which bounds the gap over all candidates; the gap is a column. Those that
c1 is chosen from end at ten times this violation. At the end stands what SBCD and tagging must reach.
"""

from functools import cache, partial
from typing import NamedTuple

import numpy as np

from crfbook import Objective
from crfbook.chain.inference import decode
from crfbook.chain.sparse.potentials import sparsify
from crfbook.datasets.simulated import SPARSE_HMM, sample
from crfbook.learners.coordinate import coordinate_descent, solve_path
from crfbook.learners.quasi_newton.l1 import pseudo_gradient
from crfbook.learners.tuples.automaton import Tuples, tuple_occurrences
from crfbook.learners.tuples.tuple_chain import TupleObjective, decode_tuples, train_tuples
from crfbook.training.certificate import duality_gap

from .c07 import LENGTH, replicated
from .c08 import PATH, chosen, set_up, tested
from .harness import Row, clocked, cpu_row, follow, peak_mb, race, study, timed
from .records import each
from .work import LETTERS_C2, dataset, descend, error_of, load, model_error

N_WORDS = 1000
STRENGTHS = (2.0, 1.0, 0.5, 0.25, 1 / 8, 1 / 16, 1 / 32)  # c1, each from the solution of the one before
NEAR = 0.01  # a violation of this share of c1 is small enough
LIMITS = {"max_rounds": 10, "max_iterations": 600}  # far more than it takes
NOTHING = Tuples(np.zeros(0, np.int32), np.zeros((0, 4), np.int32)), np.zeros(0)


class Memory(NamedTuple):
    """A kind of model: labels in the longest tuple, less one; the model it is tested against."""

    template: str
    order: int
    before: str | None = None


MODELS = {
    "letters, pairs": Memory("letter_tests", 1),
    "letters, triples": Memory("letter_tests", 2, "letters, pairs"),
    "3-grams, pairs": Memory("ngrams_3", 1),
    "3-grams, triples": Memory("ngrams_3", 2, "3-grams, pairs"),
}


class Found(NamedTuple):
    """A trained model, and what training it took; violation: the largest, of all candidates."""

    w: np.ndarray
    tuples: Tuples
    nu: np.ndarray
    objective: float
    violation: float
    evaluations: int
    seconds: float


def candidates(setup, memory):
    """FeatureSet of labels and pairs: all of them for letters, those that were seen for trigrams."""
    return setup.everything if memory.template == "letter_tests" else setup.features


def train(setup, memory, c1, start=None, near=NEAR):
    """`Found` at c1, from `start` (a Found of the same or a lower order, or None: zeros)."""
    features, how = candidates(setup, memory), {"c1": c1, "tol_gradient": near * c1}
    if memory.order == 1:
        how["max_iterations"] = 3 * LIMITS["max_iterations"]
        found, seconds = timed(descend, setup.corpus, features, None if start is None else start.w, **how)
        grad = Objective(setup.corpus, features)(found.w)[1]
        violation = pseudo_gradient(found.w, grad, c1, np.empty_like(grad))[1]
        return Found(found.w, *NOTHING, found.objective, violation, found.n_evaluations, seconds)
    known = None if start is None else (start.w, start.tuples, start.nu)
    how |= {"order": memory.order, "start": known, **LIMITS}
    found, seconds = timed(train_tuples, setup.corpus, features, **how)
    n = sum(one.get("evaluations", 0) + 1 for one in found.rounds)
    return Found(found.w, found.tuples, found.nu, found.objective, found.violation, n, seconds)


def certified(setup, memory, found, c1):
    """(number of candidate tuples, certified gap in per cent of the objective) over all candidates."""
    features, (tuples, counts) = candidates(setup, memory), NOTHING
    if memory.order > 1:
        tuples, counts = tuple_occurrences(setup.corpus, memory.order, (0,))
    nu, place = np.zeros(len(counts)), {tuple(z): i for i, z in enumerate(tuples.labels.tolist())}
    for z, value in zip(found.tuples.labels.tolist(), found.nu, strict=True):
        nu[place[tuple(z)]] = value
    w = np.concatenate([found.w, nu])
    value, grad = TupleObjective(setup.corpus, features, tuples, counts)(w)
    return len(counts), 100 * duality_gap(value, grad, w, c1) / found.objective


def labels_of(setup, memory, found):
    """The labels (N,) of the held words."""
    features = candidates(setup, memory)
    if memory.order == 1:
        return decode(setup.held, features, found.w)
    return decode_tuples(setup.held, features, found.w, found.tuples, found.nu)


def choice_rows(template, n_words):
    """Error on the last tenth of the words along a falling path of c1; template: the name of a model."""
    memory, rows, found = MODELS[template], [], None
    setup = set_up(memory.template, n_words, held_out=True)
    if memory.before:
        found = train(setup, MODELS[memory.before], STRENGTHS[0], near=10 * NEAR)
    for c1 in STRENGTHS:
        found = train(setup, memory, c1, found, near=10 * NEAR)
        wrong = labels_of(setup, memory, found) != setup.held.labels
        error, deviation, _ = error_of(setup.held, wrong)
        scores = {"c1": f"{c1:g}", "error": f"{error:.2f}", "standard error": f"{deviation:.2f}"}
        rows.append({**scores, **training_cost(found, c1)})
    return rows


class Longer:
    """The models at their c1, {name: c1}, those with tuples from the one without."""

    def __init__(self, c1, n_words):
        self.c1, self.n_words = c1, n_words

    @cache  # noqa: B019 - one object a run
    def found(self, name):
        memory = MODELS[name]
        before = None if memory.before is None else self.found(memory.before)
        return train(set_up(memory.template, self.n_words), memory, self.c1[name], before)

    def row(self, model):
        """The row of 08_longer_memory.csv."""
        memory, found, c1 = MODELS[model], self.found(model), self.c1[model]
        setup, p = set_up(memory.template, self.n_words), ""
        labels, (n, gap) = labels_of(setup, memory, found), certified(setup, memory, found, c1)
        error, deviation, words = error_of(setup.held, labels != setup.held.labels)
        if memory.before:
            other = labels_of(setup, MODELS[memory.before], self.found(memory.before))
            p = f"{tested(setup, other, labels)[1]:.4f}"
        return {
            "c1": f"{c1:g}", "error": f"{error:.2f}", "standard error": f"{deviation:.2f}", "p": p,
            "words": f"{words:.2f}", "mu and lambda": int(np.count_nonzero(found.w)), "candidates": n,
            "tuples": len(found.nu), **evaluation_cost(setup, memory, found),
            "dense products": setup.sizes[0] ** (memory.order + 1), "objective": f"{found.objective:.1f}",
            "certified gap %": f"{gap:.2f}", **training_cost(found, c1),
        }  # fmt: skip


def training_cost(found, c1):
    """{column: value}: the largest violation as a share of c1, and what it took to get there."""
    end = {"violation / c1": f"{found.violation / c1:.4f}"}
    return end | {"evaluations": found.evaluations, "seconds": f"{found.seconds:.0f}"}


def evaluation_cost(setup, memory, found, repeats=3):
    """{column: value}: states of a model, products of a token, CPU seconds of value and gradient."""
    fun = TupleObjective(setup.corpus, candidates(setup, memory), found.tuples, np.zeros(len(found.nu)))
    x = np.concatenate([found.w, found.nu])
    seconds = np.median([timed(fun, x)[1] for _ in range(repeats)])
    inner = setup.corpus.n_tokens - setup.corpus.n_sequences
    contexts = [len(z) for z in fun.automaton.contexts]
    products = setup.sizes[0] ** 2 + fun.n_products[0] / inner
    states = {"pairs as states": contexts.count(2), "triples as states": contexts.count(3)}
    return states | {"products": f"{products:.0f}", "evaluation": f"{seconds:.2f}"}


def heaviest_tuples(encoder, found, n=10):
    """The n tuples with the largest |weight|: (labels as text, weight)."""
    order, labels = np.argsort(-np.abs(found.nu))[:n], found.tuples.labels
    return [(" ".join(encoder.labels_[y] for y in labels[i] if y >= 0), found.nu[i]) for i in order]


@study("08_memory_choice.csv", "08_longer_memory.csv", frozen=("tuples", "owlqn", "decoding, dense"))
def longer_memory(n_words=N_WORDS):
    """What triples of phonemes buy beside pairs, under L1, converged; half an hour."""
    data, cells = [dataset("nettalk")], [{"template": name} for name in MODELS]
    rows = yield "08_memory_choice.csv", each(choice_rows, cells, n_words=n_words), data
    at = Longer({name: chosen(rows, name) for name in MODELS}, n_words)
    yield "08_longer_memory.csv", each(at.row, [{"model": name} for name in MODELS]), data


# ---- what coordinate descent and sparse tagging must reach ----

# The references are what was asked for; Wapiti's blockwise coordinate descent takes 97 CPU seconds a sweep
# over the pseudo 3-grams.
N_GRAMS = "*0:%x[0,0]\n*3:%x[-1,0]/%x[0,0]/%x[1,0]\n*5:%x[-2,0]/%x[-1,0]/%x[0,0]/%x[1,0]/%x[2,0]\n"


@study("08_sbcd_targets.csv", frozen=("sbcd", "sbcd, virtual weights", "path, sbcd"))
def sbcd(repeats=1):
    """Blockwise coordinate descent on NetTalk: sweeps, the slow tail, a path over virtual n-grams, passes."""
    path = list(_path())  # first: the peak of memory is that of the process so far
    yield from (*_letters(), *_pseudo_ngrams(), *path, _passes())


def _run(work, n, **more):
    """`Run` of at most n sweeps at c1 = 1; more: options, `look`."""
    return follow(coordinate_descent, work.corpus, c1=1.0, max_iterations=n, **work.options, **more)


def _sweep_row(name, run, target, size):
    found, n = run.result, len(run.ticks)
    median = float(np.median(np.diff([0.0, *(tick.cpu for tick in run.ticks)])[1:]))
    note = f"after {n} sweeps: objective {found.objective:,.0f}, {size:,} active"
    return Row(f"SBCD, {name}, a sweep", median, target, "CPU s", 1.0, None, note)


def _letters():
    work = load("nettalk", "letter_tests")
    coordinate_descent(work.corpus, c1=1e3, max_iterations=1, **work.options)  # compiles
    run = _run(work, 30, tol=0.0)
    found = run.result
    yield _sweep_row("letter tests", run, 0.5, found.features.n_features)
    error, note = model_error(work.held, found)[0], "asked for: 18.9 +- 0.3"
    yield Row("its test error after 30 sweeps", error, 19.2, "%", 1.0, None, note)

    how = {"c1": 1.0, "c2": LETTERS_C2, "tol": 1e-4, "max_iterations": 1000}
    best, seconds = timed(descend, work.corpus, work.everything, **how)
    fast = _run(work, 300, tol=3e-4, accelerate=True)
    end = fast.result
    note = f"{end.n_iter} sweeps, {end.status}, certified gap {end.history[-1].violation:.1f} nats; "
    note += f"OWL-QN: {best.status} after {best.n_iter} iterations, {seconds:.0f} CPU s"
    line = "SBCD, letter tests, accelerated: objective"
    yield Row(line, end.objective, best.objective, "nats", 1.001, 1.0001, note)

    lowest = min(best.objective, end.objective)
    goal = (1 + 1e-4) * lowest
    there = next(tick.cpu for tick in fast.ticks if tick.step.objective <= goal)

    def stop(step, w, seconds):
        return step.objective <= goal or (seconds > 4.05 * there and step.iteration >= 300)

    plain = _run(work, 3000, tol=0.0, look=stop)
    above, after = (tick.step.objective / lowest - 1 for tick in (plain.ticks[-1], plain.ticks[:300][-1]))
    note = f"plain sweeps are then {above:.1e} above it, {after:.1e} after 300"
    line = "SBCD, letter tests, accelerated, to 1e-4 above the minimum"
    yield Row(line, there, plain.ticks[-1].cpu, "CPU s", 0.25, None, note)


def _pseudo_ngrams():
    work, runs, wall = load("nettalk", "pseudo_ngrams_3"), [], []
    coordinate_descent(work.corpus, c1=1e3, max_iterations=1, **work.options)  # compiles
    for threads in (1, 2):
        run, spent = clocked(_run, work, 5, tol=0.0, n_threads=threads)
        runs.append(run)
        wall.append(spent["wall"])
    one, two = (run.result for run in runs)
    yield _sweep_row("pseudo ngrams 3", runs[0], 5.0, len(one.w))
    error = model_error(work.held, one)[0]
    yield Row("its test error after 5 sweeps", error, 12.2, "%", 1.0)
    note = f"the same bits: {np.array_equal(one.w, two.w)}"
    yield Row("5 sweeps on 2 threads, wall clock against 1", *wall[::-1], "s", None, None, note)


def _path():
    work = load("nettalk", "ngrams_5")
    few = load("nettalk", "ngrams_5", 20)
    coordinate_descent(few.corpus, c1=1e3, max_iterations=1, **few.options)  # compiles
    how = {"c1": PATH, "sweeps": 2, "tol": 0.0, "keep": False}
    points, seconds = timed(solve_path, work.corpus, **how, **work.options)
    last, peak = points[-1].result, peak_mb()
    error = model_error(work.held, last)[0]
    note = f"{work.n_candidates / 1e6:,.1f} million virtual weights, {last.features.n_features:,} active; "
    note += f"{error:.2f} % test error"
    line = "SBCD, n-grams, a path of 20 sweeps to c1 = 0.3"
    yield Row(line, seconds, 120.0, "CPU s", 1.0, None, note)
    yield Row("its peak memory, the data and compiled code included", peak, 800.0, "MB", 1.0)
    yield Row("its test error", error, 7.9, "%", 1.0)


def _passes():
    """Simulated data of section 6.1: 6 labels, blocks of 6 + 36 weights."""
    labels, symbols = sample(SPARSE_HMM, [LENGTH] * 100)
    how = {"sizes": (6, 5, 6), "c1": 1.0, "c2": 0.001, "screening": False, "max_iterations": 3}
    corpus = replicated(symbols, labels, 1, 5)
    many, one = (coordinate_descent(corpus, blocks=blocks, **how).counts for blocks in (False, True))
    ratio = many["gradient_visits"] / one["gradient_visits"]
    note = f"step-rule passes apart: {many['step_visits']:,} and {one['step_visits']:,}"
    return Row("Algorithm 1 against 2, gradient passes", ratio, 42.0, "x", 1.0, None, note)


@study("08_tagging_targets.csv", frozen=("owlqn", "decoding, dense", "decoding, sparse"))
def sparse_tagging(repeats=5):
    """Words to phonemes with letters, trigrams and pentagrams, 100,000 weights: sparse against dense."""
    work, labels = load("nettalk", N_GRAMS), {}

    def tag(form):
        words = work.encoder.transform(work.words, on_unknown_label="mark")
        labels[form] = decode(words, *model, form=form)

    limits = {"l1_method": "owlqn", "max_iterations": 25}
    found = descend(work.corpus, work.features, c1=0.1, **limits)
    model = sparsify(work.features, found.w)
    took = race({form: partial(tag, form) for form in ("dense", "sparse")}, repeats)
    same = "the same labels" if np.array_equal(labels["dense"], labels["sparse"]) else "OTHER LABELS"
    error = 100 * np.mean(labels["sparse"] != work.held.labels)
    note = f"{work.corpus.n_classes:,} edge classes in training, {len(model[1]):,} active weights, "
    note += f"{error:.2f} % errors; {same}"
    yield cpu_row("tagging, strings to phonemes", took, 0.5, None, note, "sparse", "dense")
