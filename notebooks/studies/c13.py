"""Chapter 13: belief propagation: schedules, training, best labellings, skip chains.

The model of chapter 12 labels tags and all phrases (44 x 22) of 447 sentences of CoNLL-2000, as
`c12.problem`. Table 3 of Sutton, Rohanimanesh and McCallum (2004) has tags and noun phrases, and the
features of c12.py.
"""

import json
import os
import shutil
import subprocess
from functools import cache, partial

import numpy as np

from crfbook import DCRF, TokenColumns, dynamic, minimize
from crfbook.chain.forms import Problem as FormProblem
from crfbook.chain.inference import stretch_scores
from crfbook.chain.likelihood import Batch, make_work
from crfbook.chain.packing import pack
from crfbook.data.corpus import slice_sequences
from crfbook.dynamic.inference import ready_rows
from crfbook.dynamic.junction import junction_log_z, junction_plan
from crfbook.dynamic.objective import batch_rows, make_form
from crfbook.evaluation import paired_test

from . import c12
from .c12 import C2, FEW, encoder, objective_of, problem, words_of
from .harness import Row, cpu_row, quiet, race, study, timed
from .records import cells, each, rounded
from .work import dataset, load_dataset

TEST = 300  # sentences
PARTS = "train", "test"
EXACT_TO = 1e-10  # messages of the fixed point that others are held against
THREE = {"tol": 0.0, "max_sweeps": 3}  # the paper's variants that stop early
SCHEDULES = {
    "block": {}, "sweep": {}, "random": {}, "tree": {}, "tree, GRMM's stop": {"early_stop": True},
    "residual": {}, "sync": {}, "mean-field": {},
    "random (3)": THREE, "tree (3)": THREE, "block (3)": THREE,
}  # fmt: skip


def engine_of(name):
    """(engine, `Options`) of a name of SCHEDULES."""
    engine = name.partition(",")[0].partition(" (")[0]
    return engine, dynamic.OPTIONS._replace(schedule=engine, **SCHEDULES[name])


@cache
def trained(chunks="all"):
    """`Problem` of c12 with the weights of exact training to 1e-4; 46 seconds."""
    one = problem(chunks, FEW)
    return one._replace(w=minimize(objective_of(one), np.zeros_like(one.w), c2=C2, tol=1e-4).w)


@cache
def part_of(part):
    """Corpus of the training sentences, or of the first test sentences."""
    if part == "train":
        return trained().corpus
    test = encoder().transform(words_of(dataset("chunking").test))
    return slice_sequences(test, 0, min(TEST, test.n_sequences))


def model_of(engine, options=dynamic.OPTIONS):
    one = trained()
    return dynamic.DynamicModel(one.layout, one.features, one.w, engine, options=options)


@cache
def exact_of(part):
    return dynamic.marginals(part_of(part), model_of("elimination"))


@cache
def fixed_point(part):
    options = dynamic.OPTIONS._replace(tol=EXACT_TO, max_sweeps=5000)
    return dynamic.marginals(part_of(part), model_of("block", options))


# ---- inference ----


def sums_run(corpus, engine, options=dynamic.OPTIONS):
    """A callable that computes marginals of all cells from given scores, without what features cost."""
    one = trained()
    ready = ready_rows(corpus, model_of(engine))
    whole = slice(0, corpus.n_sequences), slice(0, corpus.n_tokens)
    scores = stretch_scores(ready.corpus, ready.scores, *whole)
    packing = pack(ready.corpus, batch_rows(one.layout, engine), n_shards=1)
    free = np.zeros((0, one.layout.n_cells), bool)
    given = FormProblem(one.features, None, None, packing, None), one.layout, free
    form = make_form(*given, 1 << 20, engine, options, {})
    work = form.work(make_work(packing, scores.shape[1]))
    batches = [scores[packing.row_token[packing.rows(b)]] for b in range(packing.n_batches)]

    def run():
        form.prepare(one.w, "counts")
        sums, part = form.begin(), np.zeros(one.layout.n_tables)
        for b, rows in enumerate(batches):
            batch = Batch(b, packing, work)
            fill = partial(np.copyto, batch.log_node, rows)
            form.infer(batch, work, fill, np.zeros(len(batch.weight)), sums, part)
        form.finish(sums, part)
        return form

    return run


def us_a_token(corpus, run):
    """The least CPU microseconds a token of three calls of run()."""
    return 1e6 * min(timed(run)[1] for _ in range(3)) / corpus.n_tokens


def schedule_row(part, schedule):
    """One line of 13_schedules.csv."""
    corpus, (engine, options) = part_of(part), engine_of(schedule)
    run, stats = sums_run(corpus, engine, options), np.zeros(4, np.int64)
    run()  # compiles
    us = us_a_token(corpus, run)
    p, log_z = dynamic.marginals(corpus, model_of(engine, options), stats=stats)
    (right, exact), (fixed, _) = exact_of(part), fixed_point(part)
    error = np.abs(p - right)
    return {
        "messages a token": stats[3] / corpus.n_tokens, "sweeps": stats[2] / stats[0],
        "without a fixed point": int(stats[1]),
        "from the fixed point": np.abs(p - fixed).max() if engine != "mean-field" else np.nan,
        "log Z less exact, a token": (log_z - exact).sum() / corpus.n_tokens,
        "largest error of a marginal": error.max(),
        "mean error of a token": error.sum() / corpus.n_tokens / 2 / len(trained().layout.sizes),
        "us a token": us,
    }  # fmt: skip


@study("13_schedules.csv", frozen=("dynamic", "dynamic, messages"))
def bp_schedules(schedules=tuple(SCHEDULES)):
    """Messages, distance to the fixed point and error of every schedule, on training and test sentences."""

    def make(part, schedule):
        if schedule != "exact":
            return schedule_row(part, schedule)
        run = sums_run(part_of(part), "elimination")
        run()
        us = us_a_token(part_of(part), run)
        return dict.fromkeys(schedule_row(part, "block"), "") | {"us a token": us}

    keys = cells(part=PARTS, schedule=("exact", *schedules))
    yield "13_schedules.csv", each(rounded(make), keys), [dataset("chunking")]


# ---- best labellings ----


def decoded_row(part, decoder):
    """Share of sentences whose best labelling is found, of those proved, and microseconds a token."""
    corpus, name, _, sweeps = part_of(part), *decoder.partition(" ")
    best, model = dynamic.decode(corpus, model_of("elimination"))[1], model_of("elimination")
    proved = converged = np.nan

    def run():
        if name == "max-product":
            return dynamic.max_product(corpus, model_of("sweep", dynamic.OPTIONS._replace(max_sweeps=200)))
        if name == "dual":
            most, *prune = sweeps.split()
            return dynamic.decode_dual(corpus, model, max_sweeps=int(most), prune=bool(prune))
        return dynamic.decode(corpus, model)

    found, us = run(), us_a_token(corpus, run)
    score = found.score if name == "dual" else found[1]
    if name == "dual":
        proved = np.mean(~found.pruned & near(found.bound, found.score))
    if name == "max-product":
        converged = np.mean(found[2])
    shares = {"exact": np.mean(near(best, score)), "certified": proved, "converged": converged}
    return shares | {"us a token": us}


def near(bound, score):
    """Where a score is no less than its bound, but for rounding."""
    return bound - score <= 1e-9 * np.maximum(1.0, np.abs(bound))


DECODED = (
    "elimination", "max-product", "dual 1", "dual 2", "dual 5", "dual 30", "dual 2 pruned", "dual 30 pruned",
)  # fmt: skip


@study("13_map.csv", frozen=("dynamic", "dynamic, messages"))
def bp_map():
    """Best labellings: elimination, max-product, dual decomposition with its certificate, and pruned."""
    jobs = each(rounded(decoded_row), cells(part=PARTS, decoder=DECODED))
    yield "13_map.csv", jobs, [dataset("chunking")]


# ---- training: Table 3 ----

TRAINED = {"exact": {}, "block": {}, "random": {}, "tree": {}, "mean-field": {"max_sweeps": 100}}
TRAINED |= dict.fromkeys(("random (3)", "tree (3)", "block (3)"), {"bp_tol": 0.0, "max_sweeps": 3})


def training_row(seed, inference):
    """One line of Table 3: what training by an approximation finds, judged by exact inference."""
    task = c12.Task(c12.SETTINGS[c12.ALL], FEW, seed)
    train, test = task.marked
    engine = inference.partition(" (")[0]
    options = {"template": c12.template(constant=False), **c12.TRAINING, **TRAINED[inference]}
    model = DCRF(dynamic.factorial("pos", "chunk"), ("pos", "chunk"), inference=engine, **options)
    with quiet():
        one = c12.learn(model, train)
        said = c12.both_of(model.predict(test), one)  # exactly
    model.engine_ = "elimination"
    exact = model.c2 * (model.weights_ @ model.weights_) - model.log_proba(train).sum()
    found = {}
    for name, (gold, labels, metric) in c12.measured(task.test, said).items():
        found[name] = 100 * paired_test(gold, labels, labels, metric).value_b
    row = {"own objective": model.objective_, "exact objective": exact, **found}
    return row | {"iterations": model.n_iter_, "status": model.status_, "CPU s": one.seconds}


@study("13_training.csv", frozen=("dynamic", "dynamic, block", "dynamic, random", "dynamic, tree"))
def bp_training(seeds=c12.SEEDS, inferences=tuple(TRAINED)):
    """Table 3 of Sutton et al. (2004): training with exact and with approximate inference; an hour."""
    jobs = each(rounded(training_row), cells(seed=seeds, inference=inferences))
    yield "13_training.csv", jobs, [dataset("chunking")]


# ---- skip chains ----


@cache
def documents():
    """{split: TokenColumns of whole documents} of Dutch CoNLL-2002; column `link`: capitalised words that are
    not first in their sentence.
    """
    data, found = load_dataset("conll2002", "ned", verbose=True), {}
    for name in ("train", "dev", "test"):
        part = getattr(data, name)
        words, first = part.columns["word"], set(part.seq_ptr[:-1].tolist())
        start = [t for t in sorted(first) if words[t] == "-DOCSTART-"]
        first |= {t + 1 for t in start}
        link = [word if word[:1].isupper() and t not in first else "" for t, word in enumerate(words)]
        ptr = np.array([0, *(t for t in start if t), len(words)], np.int64)
        found[name] = TokenColumns({**part.columns, "link": link, "entity": part.labels}, ptr)
    return found


DAMPING = 0.2  # without it two of the training documents swing, and spoil the line search


def chain_and_skip(arm, c2, n_documents=None):
    """`Trained` on the first documents: a linear chain, or one with skip edges and the engine of its name."""
    train = documents()["train"]
    train = train.take(range(min(n_documents or len(train), len(train))))
    skipping = arm != "chain"
    cliques = [*dynamic.linear("entity"), *dynamic.skip("entity") * skipping]
    more = {"link": "link", "inference": arm.removeprefix("skip, "), "damping": DAMPING} if skipping else {}
    common = {"template": "s3", "c2": c2, "tol": 1e-4, "max_iterations": 500}
    with quiet():
        return c12.Trained(*timed(DCRF(cliques, ("entity",), **common, **more).fit, train))


def entities(model, columns, form="auto"):
    """Labels of each document, lists of lists."""
    with quiet():
        return [[y for (y,) in labels] for labels in model.predict(columns, form)]


@cache
def skipped(arm, c2, n_documents=None):
    """(model, CPU seconds, {split: labels})."""
    one = chain_and_skip(arm, c2, n_documents)
    said = {name: entities(one.model, documents()[name]) for name in ("dev", "test")}
    return one.model, one.seconds, said


def skip_row(arm, c2, n_documents=None):
    """F1 of an arm on both held-out parts, with p against the chain of the same c2."""
    model, seconds, said = skipped(arm, c2, n_documents)
    chain, row = skipped("chain", c2, n_documents)[2], {}
    for name in ("dev", "test"):
        gold = documents()[name].by_sequence("entity")
        test = paired_test(gold, chain[name], said[name])
        row |= {f"F1 {name}": 100 * test.value_b, f"p {name}": test.p_value if arm != "chain" else ""}
    table = model.table(2) if arm != "chain" else np.zeros((1, 1))
    return {
        **row, "objective": model.objective_, "iterations": model.n_iter_, "status": model.status_,
        "CPU s": seconds, "weight of equal labels": np.diag(table).mean(),
        "of others": (table.sum() - np.trace(table)) / max(1, table.size - len(table)),
    }  # fmt: skip


SKIPPING = "chain", "skip, block"  # "skip, tree" takes ten times as long
VARIANCES = 0.1, 0.3


@study("13_skip.csv", frozen=("dynamic", "dynamic, links"))
def skip_chain(arms=SKIPPING, variances=VARIANCES, n_documents=None):
    """Names in Dutch documents: a chain, and one with edges between equal words; half an hour."""
    keys = [{"arm": arm, "c2": c2} for c2 in variances for arm in arms]
    jobs = each(rounded(skip_row), keys, n_documents=n_documents)
    yield "13_skip.csv", jobs, [load_dataset("conll2002", "ned")]


def jump_rows(n_documents, c2):
    """How log Z changes, in nats, a little beside the weights where training of skip edges ended: five steps
    in random directions. Score and penalty are smooth.

    distance : Euclidean, of the weights. A smooth function's change falls with it.
    """
    model, rng, rows = chain_and_skip("skip, block", c2, n_documents).model, np.random.default_rng(0), []
    corpus, ready = model._ready(documents()["train"].take(range(n_documents)))
    stats = np.zeros(4, np.int64)  # the second number: documents whose messages did not settle

    def log_z(w):
        return dynamic.marginals(corpus, ready._replace(w=w), None, 1, False, stats)[1]

    w = model.weights_
    end, before = {"status": model.status_, "objective": model.objective_}, log_z(w)
    for distance in (1e-10, 1e-8, 1e-6, 1e-4):
        steps = rng.normal(size=(5, len(w)))
        changes = np.array([log_z(w + distance * step / np.linalg.norm(step)) for step in steps]) - before
        moved, total = np.abs(changes) > JUMP, changes.sum(axis=1)
        rows.append({
            "distance": distance, **end, "least change": total.min(), "most": total.max(),
            "steps with a jump": int(moved.any(axis=1).sum()),
            "documents that jump": int(moved.any(axis=0).sum()), "unsettled": int(stats[1]),
        })  # fmt: skip
    return rows


JUMP = 0.01  # nats


@study("13_jump.csv", frozen=("dynamic, links",))
def skip_jump(n_documents=40, c2=0.1):
    """Why training of skip edges ends early: log Z beside the end, first 40 documents; minutes."""
    keys = [{"n_documents": n_documents, "c2": c2}]
    yield "13_jump.csv", each(rounded(jump_rows), keys), [load_dataset("conll2002", "ned")]


# ---- targets ----


def ladder(sizes, n_steps, n_sentences, seed=0):
    """(graph, log_phi, log_tables) of random two-chain models that share their tables."""
    rng, scopes, cards, table_of = np.random.default_rng(seed), [], [], []
    for _ in range(n_sentences):
        base = len(cards)
        cards += [*sizes] * n_steps
        scopes += [(base + 2 * t, base + 2 * t + 1) for t in range(n_steps)]
        scopes += [(base + 2 * t + k, base + 2 * t + 2 + k) for t in range(n_steps - 1) for k in (0, 1)]
        table_of += [0] * n_steps + [1, 2] * (n_steps - 1)
    graph = dynamic.factor_graph(cards, scopes, table_of)
    phi = np.full((len(cards), graph.width), -np.inf)
    for v, n in enumerate(cards):
        phi[v, :n] = rng.normal(size=n)
    return graph, phi, 0.5 * rng.normal(size=graph.cell_ptr[-1])


def message_ns(sizes, repeats):
    """CPU nanoseconds a message of synchronous sweeps, less what a call costs beside them."""
    model = ladder(sizes, 24, 50)
    few, many = (dynamic.check_options("sync", 0.0, n) for n in (1, 21))
    runs = [partial(dynamic.propagate, *model, options, None, False) for options in (few, many)]
    took = race(dict(zip(("few", "many"), runs, strict=True)), repeats)
    sent = [run().n_messages for run in runs]
    return 1e9 * (took["many"].median_cpu - took["few"].median_cpu) / (sent[1] - sent[0])


@study("13_targets.csv")
def bp_targets(repeats=7):
    """What belief propagation must reach, in one run; a few minutes after the training of the model."""
    corpus = part_of("train")
    runs = {name: sums_run(corpus, name) for name in ("block", "elimination")}
    took = race(runs, repeats)
    note = " and ".join(f"{1e6 * took[name].median_cpu / corpus.n_tokens:.1f}" for name in runs)
    work = "chain blocks / exact elimination, inference alone"
    yield cpu_row(work, took, 0.6, 0.4, f"{note} us a token", "block", "elimination")
    sent = {name: schedule_row("train", name) for name in ("block", "random")}
    a_token = (sent[name]["messages a token"] for name in ("block", "random"))
    yield Row("messages a token to 1e-3: blocks / random", *a_token, "messages", 0.65, 0.5)
    for sizes, limits in (((42, 18), (600, 350)), ((9, 9), (180, 120))):
        work = f"general engine, {sizes[0]} x {sizes[1]}: a message"
        yield Row(work, message_ns(sizes, repeats), 1.0, "ns", *limits)
    for part in PARTS:
        for name in ("block", "sweep", "random", "tree", "residual", "sync"):
            far = schedule_row(part, name)["from the fixed point"]
            yield Row(f"{part}: distance from the fixed point, {name}", far, 1.0, "", 3e-2, 2e-3)
    for part, decoder, required in (("train", "dual 30", 0.99), ("test", "dual 2 pruned", 1.0)):
        found = decoded_row(part, decoder)
        share = found["exact"] if "pruned" in decoder else found["certified"]
        work = f"{part}: best labellings not found by {decoder}"
        yield Row(work, 1.0 - share, 1.0, "share", 1.0 - required + 1e-12)


# ---- log Z of small two-chain models beside pgmpy ----

# pgmpy's `BeliefPropagation` passes messages along a junction tree: it is exact, and there is no loopy one.
# The same models go through ours: elimination's general sister, the junction tree, and sweeps of loopy
# messages. Construction of trees, plans and graphs counts on both sides, reading does not.

NEEDS = "bp_pgmpy: expected PGMPY_PYTHON, a Python that has pgmpy (python -m venv, pip install pgmpy)"
SENTENCES = 20

PEER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from pgmpy.factors.discrete import DiscreteFactor
from pgmpy.inference import BeliefPropagation
from pgmpy.models import DiscreteMarkovNetwork
import pgmpy

found = []
for one in json.load(sys.stdin):
    cards, clock = one["cards"], time.process_time()
    model = DiscreteMarkovNetwork()
    model.add_nodes_from(range(len(cards)))
    model.add_edges_from([s for s in one["scopes"] if len(s) == 2])
    model.add_factors(*(
        DiscreteFactor(s, [cards[v] for v in s], np.exp(t)) for s, t in zip(one["scopes"], one["tables"])
    ))
    run = BeliefPropagation(model)
    run.calibrate()
    beliefs = run.get_clique_beliefs()
    log_z = float(np.log(next(iter(beliefs.values())).values.sum()))
    found.append([log_z, time.process_time() - clock])
print(json.dumps([pgmpy.__version__, found]))
"""


def models(sizes, n_steps):
    """SENTENCES random ladders: dicts of cards, scopes (single variables first) and log tables, flat."""
    rng, found = np.random.default_rng(0), []
    for _ in range(SENTENCES):
        cards = [*sizes] * n_steps
        scopes = [(v,) for v in range(2 * n_steps)] + [(2 * t, 2 * t + 1) for t in range(n_steps)]
        scopes += [(v, v + 2) for v in range(2 * n_steps - 2)]
        tables = [rng.normal(size=int(np.prod([cards[v] for v in scope]))).tolist() for scope in scopes]
        found.append({"cards": cards, "scopes": scopes, "tables": tables})
    return found


def by_tree(one):
    """log Z by our junction tree, and all marginals."""
    plan = junction_plan(one["cards"], one["scopes"])
    log_tables = np.concatenate(one["tables"])
    work = np.empty(plan.cells), np.empty((2, int(plan.message_ptr[-1])))
    return junction_log_z(plan, log_tables, np.empty_like(log_tables), *work)


def by_messages(one):
    """Bethe's log Z by sweeps."""
    pairs = [k for k, scope in enumerate(one["scopes"]) if len(scope) == 2]
    graph = dynamic.factor_graph(one["cards"], [one["scopes"][k] for k in pairs])
    phi = np.full((len(one["cards"]), graph.width), -np.inf)
    for scope, table in zip(one["scopes"], one["tables"], strict=True):
        if len(scope) == 1:
            phi[scope[0], : len(table)] = table
    tables = np.concatenate([one["tables"][k] for k in pairs])
    return float(dynamic.propagate(graph, phi, tables, dynamic.check_options("sweep")).log_z[0])


def log_z_of(cases, run):
    """(log Z of each, CPU seconds of all), after a first model that compiles."""
    run(cases[0])
    return timed(lambda: np.array([run(one) for one in cases]))


def pgmpy_rows(sizes, n_steps):
    """CPU seconds of SENTENCES models, and the largest difference of log Z."""
    python = os.environ.get("PGMPY_PYTHON", "")
    if not shutil.which(python):
        raise ValueError(NEEDS)
    cases = models(sizes, n_steps)
    given = {"input": json.dumps(cases), "capture_output": True, "text": True, "check": True}
    done = subprocess.run([python, "-c", PEER], **given)
    version, found = json.loads(done.stdout.splitlines()[-1])
    log_z, seconds = np.array(found).T
    program = f"pgmpy {version}, junction tree"
    rows = [{"program": program, "CPU s": seconds.sum(), "ratio": 1.0, "log Z": 0.0}]
    for name, run in (("ours, junction tree", by_tree), ("ours, loopy messages", by_messages)):
        said, took = log_z_of(cases, run)
        gap = float(np.abs(said - log_z).max())
        rows.append({"program": name, "CPU s": took, "ratio": seconds.sum() / took, "log Z": gap})
    return [{**row, "log Z": f"{row['log Z']:.2g}"} for row in rows]


PGMPY_SIZES = ((5, 4), 6), ((9, 9), 6), ((9, 9), 10)  # labels of the chains, tokens


@study("13_built.csv", frozen=("dynamic, memory", "dynamic, messages"))
def bp_pgmpy():
    """Exact log Z of small two-chain models beside pgmpy's; its Python is the reader's, see NEEDS."""
    jobs = []
    for sizes, n in PGMPY_SIZES:
        key = {"models": f"{' x '.join(map(str, sizes))}, {n} tokens"}
        jobs.append((key, partial(rounded(pgmpy_rows), sizes=sizes, n_steps=n)))
    yield "13_built.csv", jobs, []
