"""Chapter 04: the four losses, what a gradient costs and where training leads; Tables 1 and 2; wrong labels.

The tables are those of Altun, Johnson and Hofmann (2003), on their corpora as we have them. The variance of
the Gaussian prior is the one that is best on the last tenth of the training data, chosen for each cell and
size along half decades until the best is inside; then all of it is learnt from, or its first sentences. Every
fit ends by its rule, or its row says that it does not.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.optimize import minimize as scipy_minimize

from crfbook import Objective, TokenColumns, minimize
from crfbook.chain.inference import node_marginals
from crfbook.chain.losses import LOSSES
from crfbook.chain.sparse.choice import never_tiny
from crfbook.data.corpus import take_sequences
from crfbook.evaluation import paired_test
from crfbook.learners.quasi_newton.loss_path import minimize_loss

from . import crfsuite
from .harness import cpu_row, race, study, timed
from .records import cells, each
from .work import columns_of, dataset, encode, load, set_up

REQUIRED = {"exp": 1.1, "pointwise-log": 2.2, "pointwise-exp": 2.2}  # times the log loss's seconds
CLAMP = 40.0
HALF_DECADES = tuple(float(f"{digit}e{k}") for k in range(-7, 7) for digit in (1, 3))
VARIANCES = HALF_DECADES[10:]  # of the Gaussian prior, from 0.01 on: c2 = 1 / (2 variance)
ENOUGH = 10.0  # the path goes so far, and then on while its last value is the best
SIZES = {"pos": (None,), "ner": (1000, None)}  # sentences learnt from; None: all
TEMPLATES = {"pos": ("s1", "s2"), "ner": ("s1", "s2", "s3")}
STOP = {"tol": 1e-4, "max_iterations": 20_000}  # of each stage; tol bounds what is left of a convex loss
ON_PATH = {"tol": 1e-3, "max_iterations": 5000}  # where a variance is chosen
ROUGH = {"epsilon": 1e-3, "max_iterations": 150}  # on a path of few sentences: |gradient| <= 1e-3 |w|
FROZEN = ("lbfgs", "lbfgs, BIO and a tag dictionary", "exp", "pointwise-log", "pointwise-exp")
FROZEN += ("decoding, dense", "marginals, batched")
WARM_UP = 5  # sentences


@study("04_benchmarks.csv", frozen=("objective, batched", "objective, exp", "objective, pointwise-log"))
def losses(repeats=9):
    """Loss + gradient of three losses against the log loss: CoNLL-2000, 22 labels, ATIS, 121; one thread."""
    for name in ("chunking", "atis"):
        work = load(name, verbose=True)
        log, w = Objective(work.corpus, work.features, c2=1.0), work.random_weights()
        others = {loss: log.with_loss(loss, CLAMP if loss.endswith("exp") else None) for loss in REQUIRED}
        took = race({loss: partial(fun, w) for loss, fun in {"log": log, **others}.items()}, repeats)
        for loss, required in REQUIRED.items():
            note = f"largest u = -log p: {others[loss].largest_u:.0f} nats"
            line = f"{loss} loss + gradient, {work.features.n_labels} labels, 1 thread"
            asked = required if name == "chunking" else None
            yield cpu_row(line, took, asked, None, note, ours=loss, reference="log")


# ---- Tables 1 and 2 ----


def row_of(setup, w, seconds, **more):
    """A row of a table: scores, weights that are not zero, what `more` says, CPU seconds of training."""
    percent = {name: f"{value:.2f}" for name, value in setup.scores(w).items()}
    return {**percent, "active": int(np.count_nonzero(w)), **more, "seconds": f"{seconds:.1f}"}


@never_tiny()
def fit_loss(setup, loss, variance, w0=None, stop=STOP):
    """Minimise one of `LOSSES` under a Gaussian prior of that variance: (OptResult, CPU seconds).

    From w0, or by way of the log loss. Some steps on a few sentences come before the clock starts:
    compilation, or its cache's reading, does not count.
    """
    few = take_sequences(setup.corpus, range(min(WARM_UP, setup.corpus.n_sequences)))
    fit = partial(minimize_loss, loss=loss, c2=0.5 / variance, constraints=setup.constraints, starts=("log",))
    fit(few, setup.features, w0, **{**stop, "max_iterations": 3})
    return timed(fit, setup.corpus, setup.features, w0, **stop)


def distance(setup, loss, variance, w):
    """The objective at w, its gradient's norm and, for a convex loss, what that certifies: at most this part
    of the objective is left (|g|^2 / 4 c2, as the penalty makes it 2 c2 strongly convex)."""
    c2 = 0.5 / variance
    value, grad = Objective(setup.corpus, setup.features, c2=c2, constraints=setup.constraints, loss=loss)(w)
    gap = "" if loss.startswith("pointwise") else f"{grad @ grad / (4.0 * c2 * value):.1e}"
    return {"objective": f"{value:.3f}", "gap": gap, "gradient": f"{np.linalg.norm(grad):.2g}"}


def answers(setup, w):
    """{part: (labels by Viterbi, each word's most probable label)}, lists of lists."""
    found = {}
    for part, (corpus, _) in setup.parts.items():
        p_node = node_marginals(corpus, setup.features, w, setup.constraints)
        found[part] = setup.guess(w, part), setup.encoder.decode(p_node.argmax(1), corpus.seq_ptr)
    return found


def measures(setup):
    """(column, part, metric): the score of each part; of the last, single words and whole sentences too."""
    parts = list(setup.parts)
    usual = [(part, part, {"F1": "f1"}.get(setup.task.measure, "accuracy")) for part in parts]
    return [*usual, ("words", parts[-1], "accuracy"), ("whole", parts[-1], "sentence_accuracy")]


def compared(setup, ours, logs):
    """Both decoders' scores, and p-values of paired tests: against the log loss with the same decoder, and
    of the second decoder against Viterbi. ours, logs: `answers`."""
    scores, tests = {}, {}
    for column, part, metric in measures(setup):
        gold = setup.parts[part].gold
        for d, decoder in enumerate(("", " posterior")):
            found = paired_test(gold, logs[part][d], ours[part][d], metric)
            scores[column + decoder] = f"{100 * found.value_b:.2f}"
            tests[f"p {column}{decoder}"] = "" if ours is logs else f"{found.p_value:.4f}"
        tests[f"p {column} of decoders"] = f"{paired_test(gold, *ours[part], metric).p_value:.4f}"
    return scores | tests


def loss_rows(task, template, n_sentences, variances):
    """Rows of Table 1 or 2: all losses, {loss: variance}, trained on the first sentences (None: all)."""
    setup, rows, logs = set_up(task, template, n_sentences), [], None
    for loss, variance in variances.items():
        result, seconds = fit_loss(setup, loss, variance)
        ours = answers(setup, result.w)
        logs = logs or ours
        more = compared(setup, ours, logs) | distance(setup, loss, variance, result.w)
        more |= {"iterations": result.n_iter, "status": result.status}
        rows.append({"loss": loss, "variance": f"{variance:g}", **row_of(setup, result.w, seconds, **more)})
    return rows


def along_variances(setup, loss, variances, part, stop):
    """({variance: score of a held-out part, per cent}, how many fits ended by their rule, CPU seconds).

    Each starts at the solution before; beyond `ENOUGH` they go on while the last is the best.
    """
    setup = replace(setup, parts={part: setup.parts[part]})  # no other part is scored
    scores, w, n_ended, spent = {}, None, 0, 0.0
    for variance in variances:
        if variance > ENOUGH and max(scores, key=scores.get) < max(scores):
            break
        result, seconds = fit_loss(setup, loss, variance, w, stop)
        w, n_ended = result.w, n_ended + (result.status != "max_iterations")
        scores[variance], spent = setup.scores(w)[part], spent + seconds
    return scores, n_ended, spent


def variance_rows(task, template, n_sentences):
    """Scores of each loss on the last tenth of the training data along `VARIANCES`, and the best of them.

    Learnt from are the other nine tenths, or their first sentences.
    """
    train, rows = columns_of(task)[1], []
    nine = len(train) - len(train) // 10
    setup = encode(task, template, train[: min(n_sentences or nine, nine)], {"tenth": train[nine:]})
    for loss in LOSSES:
        tried, n_ended, spent = along_variances(setup, loss, VARIANCES, "tenth", ON_PATH)
        best = max(tried, key=tried.get)
        scores = {f"{v:g}": f"{tried[v]:.2f}" if v in tried else "" for v in VARIANCES}
        about = {"chosen": f"{best:g}", "inside": min(tried) < best < max(tried)}
        about |= {"ended": f"{n_ended} of {len(tried)}", "seconds": f"{spent:.1f}"}
        rows.append({"loss": loss, **scores, **about})
    return rows


@study("04_variance_{}.csv", "04_{}.csv", of=("pos", "ner"), frozen=FROZEN)
def loss_table(task):
    """Table 1 (pos) or 2 (ner) at two sizes, variances chosen before: an hour."""
    data = [dataset(task)]
    sizes = [(template, n) for n in SIZES[task][::-1] for template in TEMPLATES[task]]
    keys = [{"template": template, "sentences": n or len(data[0].train)} for template, n in sizes]
    jobs = [(key, partial(variance_rows, task, *size)) for key, size in zip(keys, sizes, strict=True)]
    rows = yield f"04_variance_{task}.csv", jobs, data
    best = {tuple(map(str, key.values())): {} for key in keys}
    for row in rows:
        best[row["template"], row["sentences"]][row["loss"]] = float(row["chosen"])
    rows = zip(keys, sizes, best.values(), strict=True)
    jobs = [(key, partial(loss_rows, task, *size, chosen)) for key, size, chosen in rows]
    yield f"04_{task}.csv", jobs, data


def peer_row(template, tool, variance):
    """Log loss, all Spanish names: our row (tool "crfbook"), or python-crfsuite's on the same attributes.

    The objective is ours at the weights of either; `reported` is what the tool says of it.
    """
    setup = set_up("ner", template)
    if tool == "crfbook":
        found, seconds = fit_loss(setup, "log", variance)
        w, reported, iterations = found.w, found.objective, found.n_iter
    else:
        sentences = crfsuite.sentences(setup, numbers=True)
        fitted, seconds = timed(lambda: crfsuite.train(crfsuite.trainer(*sentences, c2=0.5 / variance)))
        w, last = crfsuite.weights_of(setup, fitted[0], numbers=True), fitted[1].last_iteration
        reported, iterations = float(last["loss"]), int(last["num"])
    more = {"reported": f"{reported:.3f}", **distance(setup, "log", variance, w), "iterations": iterations}
    return row_of(setup, w, seconds, **more)


@study("04_peer_ner.csv", frozen=("lbfgs", "decoding, dense"))
def loss_table_peer(variance=0.5):
    """The log loss of S2 and S3 on Spanish names at c2 = 1, by us and by CRFsuite; some minutes."""
    keys = cells(template=("s2", "s3"), tool=("crfbook", "python-crfsuite"))
    rows, c2 = each(peer_row, keys, variance=variance), f"{0.5 / variance:g}"
    yield "04_peer_ner.csv", [({**key, "c2": c2}, make) for key, make in rows], [dataset("ner")]


# ---- the quasi-Newton method beside conjugate gradients ----

N_RACED, N_SUBSETS = 400, 5  # sentences of a random subset, and subsets
NEAR = 1e-4  # of the minimum, above it: where a method has arrived


def until_near(setup, loss, variance=1.0):
    """{method: evaluations until the objective is within `NEAR` of the lowest that any method found}.

    Our L-BFGS, and SciPy's nonlinear conjugate gradients (Polak-Ribiere with a strong Wolfe search). Both
    start at the minimum of the log loss, for log itself at 0.
    """
    c2, paths = 0.5 / variance, {"L-BFGS": [], "conjugate gradients": []}
    problem = Objective(setup.corpus, setup.features, c2=c2, loss=loss)
    w0 = np.zeros(setup.features.n_features) if loss == "log" else fit_loss(setup, "log", variance)[0].w

    def watched(method, w):
        value, grad = problem(w)
        paths[method].append(value)
        return value, grad.copy()

    minimize(partial(watched, "L-BFGS"), w0, c2=c2, tol=NEAR / 10)
    other = partial(watched, "conjugate gradients")
    scipy_minimize(other, w0, jac=True, method="CG", options={"gtol": 1e-3, "maxiter": 10_000})
    goal = min(map(min, paths.values())) * (1.0 + NEAR)
    return {method: int(np.argmax(np.array(path) <= goal)) + 1 for method, path in paths.items()}


def method_rows(loss, subset):
    """One row: evaluations of both methods on a random subset of the Spanish names, and their ratio."""
    _, train, _ = columns_of("ner")
    chosen = np.random.default_rng(subset).permutation(len(train))[:N_RACED]
    found = until_near(encode("ner", "s2", train.take(chosen)), loss)
    return {**found, "ratio": f"{found['conjugate gradients'] / found['L-BFGS']:.3f}"}


@study("04_methods.csv", frozen=("lbfgs", "exp", "pointwise-log", "pointwise-exp"))
def loss_methods():
    """Evaluations of L-BFGS and of conjugate gradients to 1e-4 of the minimum, four losses; five minutes."""
    yield "04_methods.csv", each(method_rows, cells(loss=LOSSES, subset=range(N_SUBSETS))), [dataset("ner")]


# ---- wrong labels in the training text, in several draws ----

RATES, DRAWS = (0.0, 0.02, 0.05, 0.1), 5  # shares of wrong labels; nothing is drawn where it is 0
N_SENTENCES = 200
NOISY_VARIANCES = HALF_DECADES[:20]


def with_wrong_labels(columns, rate, draw=0):
    """(columns with a share of the labels replaced by other ones at random, which tokens (N,) these are)."""
    rng, labels = np.random.default_rng(draw), np.array(columns.labels)
    names, number = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"columns: expected two labels or more, of which one can be wrong, got {len(names)}")
    wrong = rng.random(len(labels)) < rate
    number = np.where(wrong, number + rng.integers(1, len(names), len(labels)), number) % len(names)
    return TokenColumns(columns.columns, columns.seq_ptr, names[number].tolist()), wrong


def noise_rows(wrong, draw, n_sentences=N_SENTENCES):
    """All losses trained on one draw, each with the variance that is best on dev, whose labels are right.

    wrong : share of wrong labels. p : paired test on the test part, against the log loss.
    """
    _, train, parts = columns_of("pos", n_sentences)
    setup, rows, logs = encode("pos", "s2", with_wrong_labels(train, wrong, draw)[0], parts), [], None
    for loss in LOSSES:
        tried, *_ = along_variances(setup, loss, NOISY_VARIANCES, "dev", ROUGH)
        best = max(tried, key=tried.get)
        result, seconds = fit_loss(setup, loss, best)
        ours = setup.guess(result.w, "test")
        logs = logs or ours
        tested = ours is not logs and paired_test(setup.parts["test"].gold, logs, ours, "accuracy")
        scores = {name: f"{value:.2f}" for name, value in setup.scores(result.w).items()}
        along = {f"{v:g}": f"{tried[v]:.2f}" if v in tried else "" for v in NOISY_VARIANCES}
        ends = {"inside": min(tried) < best < max(tried), "status": result.status}
        of_end = distance(setup, loss, best, result.w)
        rows.append({"loss": loss, **scores, "p": f"{tested.p_value:.4f}" if tested else "",
                     "variance": f"{best:g}", **ends, **of_end, **along,
                     "iterations": result.n_iter, "seconds": f"{seconds:.1f}"})  # fmt: skip
    return rows


@study("04_noise.csv", frozen=("lbfgs, BIO and a tag dictionary", "exp", "pointwise-log", "pointwise-exp"))
def label_noise(n_sentences=N_SENTENCES):
    """Wrong labels in the first 200 sentences of the treebank, five draws of each share; some minutes."""
    keys = [{"wrong": rate, "draw": draw} for rate in RATES for draw in range(DRAWS if rate else 1)]
    yield "04_noise.csv", each(noise_rows, keys, n_sentences=n_sentences), [dataset("pos")]
