"""The tables of Altun, Johnson and Hofmann (2003): their corpora as we have them, one function a row, and a
record that an interrupted run goes on with. Chapters 04 and 05 fill and show them.

    setup = set_up("ner", "s2", 600)                         # Spanish CoNLL-2002, features S2, the first 600 sentences
    result, seconds = fit_loss(setup, "exp", variance=10.0)
    row = row_of(setup, result.w, seconds)                  # F1 on testa and testb, active weights, seconds
"""

import time
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..data import templates
from ..data.constraints import Constraints
from ..data.corpus import Corpus, take_sequences
from ..data.datasets import load_dataset
from ..data.encoder import Encoder
from ..data.features import FeatureSet, observed
from ..data.tag_dictionary import TagDictionary
from ..evaluation import chunk_report
from ..models import inference
from ..optim.loss_path import minimize_loss
from ..optim.losses import LOSSES
from .records import read_record, write_record

VARIANCES = (0.1, 1.0, 10.0, 100.0)  # of the Gaussian prior: c2 = 1 / (2 variance)
SIZES = {
    "pos": (300, 800, 1600, None),
    "ner": (300, 1000, 3000, None),
}  # sentences of the learning curves; None: all
TEMPLATES = {"pos": ("s1", "s2"), "ner": ("s1", "s2", "s3")}
STOP = {"tol": 1e-4, "relative_change": (10, 1e-4), "max_iterations": 300}  # of each stage
ROUGH = {"tol": 1e-3, "relative_change": (10, 1e-3), "max_iterations": 100}  # to choose a variance
WARM_UP = 5  # sentences


class Task(NamedTuple):
    """A corpus of the paper: name and task of the data set, its held-out parts {column of the table: split},
    what is scored.
    """

    dataset: str
    task: str
    parts: dict
    measure: str  # "F1" of phrases or "accuracy" of tokens, per cent
    tag_dictionary: int | None  # words seen this often take only the labels seen with them


TASKS = {
    "pos": Task("treebank", "pos", {"dev": "dev", "test": "test"}, "accuracy", 5),
    "ner": Task("conll2002", "esp", {"testa": "dev", "testb": "test"}, "F1", None),
    "wnut17": Task(
        "wnut17", "ner", {"dev": "dev", "test": "test"}, "F1", None
    ),  # of chapter 09, as is the next
    "conll2003": Task("conll2003", "ner", {"testa": "dev", "testb": "test"}, "F1", None),
}


class Setup(NamedTuple):
    """Training data with one set of features, encoded, and the held-out parts as {name: (Corpus,
    gold labels)}.
    """

    task: Task
    encoder: Encoder
    corpus: Corpus
    features: FeatureSet
    constraints: Constraints | None
    parts: dict


@cache
def _data(task):
    return load_dataset(TASKS[task].dataset, TASKS[task].task, verbose=False)


@cache
def set_up(task, template, n_sentences=None, held_out=False):
    """`Setup` of a task ("pos", "ner") with a shipped template ("s1", "s2",
    "s3") on the first `n_sentences` (None: all).

    held_out: the last tenth of them (other articles than the rest, but for one) is put aside and is the only
    held-out part, "tenth"; no other part is scored.
    """
    about, data = TASKS[task], _data(task)
    train = data.train if n_sentences is None else data.train.head(n_sentences)
    parts = {name: data.splits[split] for name, split in about.parts.items()}
    if held_out:
        n = len(train) - len(train) // 10
        train, parts = train[:n], {"tenth": train[n:]}
    encoder = Encoder(templates.load(template))
    corpus, constraints = encoder.fit_transform(train), None
    held = {name: encoder.transform(part, on_unknown_label="mark") for name, part in parts.items()}
    if about.tag_dictionary:
        sets = TagDictionary.learn(train, min_count=about.tag_dictionary).encode(encoder.labels_)
        corpus, constraints = corpus._replace(label_set=sets.label_set(train)), sets.constrain(None)
        held = {name: part._replace(label_set=sets.label_set(parts[name])) for name, part in held.items()}
    features = observed(corpus, encoder.n_labels, encoder.n_attrs)
    held = {name: (part, parts[name].labels_by_sequence()) for name, part in held.items()}
    return Setup(about, encoder, corpus, features, constraints, held)


def scores(setup, w):
    """{part: F1 or accuracy in per cent} of the weights on the held-out parts."""
    found = {}
    for name, (corpus, gold) in setup.parts.items():
        path = inference.decode(corpus, setup.features, w, setup.constraints)
        report = chunk_report(gold, setup.encoder.decode(path, corpus.seq_ptr))
        found[name] = 100 * (report.f1 if setup.task.measure == "F1" else report.accuracy)
    return found


def row_of(setup, w, seconds, **more):
    """A row of a table: scores, weights that are not zero, what `more` says, CPU seconds of training."""
    percent = {name: f"{value:.2f}" for name, value in scores(setup, w).items()}
    return {**percent, "active": int(np.count_nonzero(w)), **more, "seconds": f"{seconds:.1f}"}


def fit_loss(setup, loss, variance, w0=None, stop=STOP):
    """Minimise one of `LOSSES` under a Gaussian prior of that variance, from w0 or by way of the log loss:
    (OptResult, CPU seconds).

    Some steps on a few sentences come before the clock starts: compilation, or its cache's reading,
    does not count.
    """
    few = take_sequences(setup.corpus, range(min(WARM_UP, setup.corpus.n_sequences)))
    fit = partial(minimize_loss, loss=loss, c2=0.5 / variance, constraints=setup.constraints, starts=("log",))
    fit(few, setup.features, w0, **{**stop, "max_iterations": 3})
    clock = time.process_time()
    result = fit(setup.corpus, setup.features, w0, **stop)
    return result, time.process_time() - clock


def loss_row(task, template, loss, n_sentences, variance):
    """Scores of one loss trained on the first sentences: a row of Table 1 or 2,
    or a point of a learning curve.
    """
    setup = set_up(task, template, n_sentences)
    result, seconds = fit_loss(setup, loss, variance)
    return row_of(setup, result.w, seconds, iterations=result.n_iter, status=result.status)


def peer_row(task, template, tool, variance):
    """Log loss, all training sentences: our row (tool "crfbook"),
    or python-crfsuite's on the same attributes and labels.
    """
    setup = set_up(task, template)
    if tool == "crfbook":
        result, seconds = fit_loss(setup, "log", variance)
        return {
            **scores(setup, result.w),
            "objective": result.objective,
            "iterations": result.n_iter,
            "seconds": seconds,
        }
    from .crfsuite import tagger_of

    rows, gold = attribute_rows(setup.corpus), setup.encoder.decode(setup.corpus.labels, setup.corpus.seq_ptr)
    clock = time.process_time()
    tagger, end = tagger_of(rows, gold, c2=0.5 / variance)
    seconds, found = time.process_time() - clock, {}
    for name, (corpus, gold) in setup.parts.items():
        report = chunk_report(gold, [tagger.tag(sentence) for sentence in attribute_rows(corpus)])
        found[name] = 100 * (report.f1 if setup.task.measure == "F1" else report.accuracy)
    return {**found, "objective": float(end["loss"]), "iterations": int(end["num"]), "seconds": seconds}


def attribute_rows(corpus):
    """Attributes of every token of every sequence, as strings of digits: what a peer reads."""
    names, ptr = [str(a) for a in corpus.attr_idx.tolist()], corpus.attr_ptr
    tokens = [names[i:j] for i, j in pairwise(ptr.tolist())]
    return [tokens[i:j] for i, j in pairwise(corpus.seq_ptr.tolist())]


def variance_row(task, template, loss):
    """Scores on a tenth of the training data for each of `VARIANCES` (each run starts at the solution
    before), and the best.
    """
    setup = set_up(task, template, held_out=True)
    tried, w = {}, None
    for variance in VARIANCES:
        w = fit_loss(setup, loss, variance, w, ROUGH)[0].w
        tried[variance] = scores(setup, w)["tenth"]
    best = max(tried, key=tried.get)  # the first of equals: the smallest variance
    return {**{f"{variance:g}": f"{score:.2f}" for variance, score in tried.items()}, "chosen": f"{best:g}"}


def fill(path, jobs, *, datasets=()):
    """Do the jobs that the record lacks, written as soon as each is done. Returns the path.

    jobs: list of (key, make): key a dict whose values name the job, make() -> dict of the other columns of
    its row, or a list of them. An unfinished record is kept beside the finished one as `*.part.csv`: an
    interrupted run goes on with it, a finished one begins anew.
    """
    path = Path(path)
    part = path.with_suffix(".part.csv")
    about, rows = read_record(part) if part.exists() else ({"seconds": "0"}, [])
    clock = time.perf_counter() - float(about["seconds"])
    for key, make in jobs:
        key = {name: str(value) for name, value in key.items()}
        if not any(key.items() <= row.items() for row in rows):
            made = make()
            for more in made if isinstance(made, list) else [made]:
                rows.append({**key, **{name: str(value) for name, value in more.items()}})
            write_record(
                part,
                rows,
                seconds=time.perf_counter() - clock,
                datasets=datasets,
                begun_at=about.get("commit"),
            )
    return part.replace(path)


def fill_losses(task, folder):
    """Tables 1 ("pos") and 2 ("ner") of the paper with their learning curves, in `folder`: hours on one core,
    row by row.

    Writes 04_variance_<task>.csv, then 04_<task>.csv with the variances chosen there. Returns the two paths.
    """
    folder, data = Path(folder), [_data(task)]
    cells = [{"template": template, "loss": loss} for template in TEMPLATES[task] for loss in LOSSES]
    chosen = fill(
        folder / f"04_variance_{task}.csv",
        [(cell, lambda cell=cell: variance_row(task, **cell)) for cell in cells],
        datasets=data,
    )
    best = {(row["template"], row["loss"]): float(row["chosen"]) for row in read_record(chosen)[1]}
    jobs = []
    for n in SIZES[task][::-1]:  # the paper's tables first, then the learning curves
        for cell in cells:
            more = {"n_sentences": n, "variance": best[tuple(cell.values())]}
            key = {**cell, "sentences": n or len(data[0].train), "variance": f"{more['variance']:g}"}
            jobs.append((key, lambda cell=cell, more=more: loss_row(task, **cell, **more)))
    return chosen, fill(folder / f"04_{task}.csv", jobs, datasets=data)


def fill_peer(folder, variance=0.5):
    """04_peer_ner.csv in `folder`: the log loss of S2 and S3 at c2 = 1, by us and by CRFsuite; some minutes.
    Returns the path.
    """
    cells = [
        {"template": template, "tool": tool}
        for template in ("s2", "s3")
        for tool in ("crfbook", "python-crfsuite")
    ]
    form = {"testa": ".2f", "testb": ".2f", "objective": ".3f", "iterations": "d", "seconds": ".1f"}
    jobs = [
        (
            {**cell, "c2": f"{0.5 / variance:g}"},
            lambda cell=cell: {
                name: format(value, form[name])
                for name, value in peer_row("ner", **cell, variance=variance).items()
            },
        )
        for cell in cells
    ]
    return fill(Path(folder) / "04_peer_ner.csv", jobs, datasets=[_data("ner")])


def clear():
    """Forget the data sets and encodings that were kept for the next row."""
    set_up.cache_clear()
    _data.cache_clear()
