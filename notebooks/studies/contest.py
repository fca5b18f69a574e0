"""A contest of taggers on the same sentences, each under a budget of CPU seconds: for a class or a paper.

    from crfbook import CRF
    from studies.contest import compete

    taggers = {"CRF": CRF(c2=0.1), "perceptron": CRF("perceptron"), "mine": MyTagger()}
    found = compete(taggers, ["esp", "wnut17"], seconds=60)    # in notebooks/; a new process for each run
    found.table()                           # medians of three processes; tests against the first tagger
    found.figure()                          # quality against CPU seconds of training
    found.record("../build/contest.csv")    # a row a run, under commit, versions and data
    assert found.beats("mine", "CRF")       # what the grader of an exercise asks

A tagger has `fit(X, y)` and `predict(X)`, as a CRF has; or it is a class or function that makes one from a
seed; or a `Command`. Corpora are names of c14_wild.CORPORA (their tokens are the tutorial's dicts), or
{name: (X, y, X_test, y_test)}. Processes are forked, which POSIX alone has, so a class of a notebook will do.
"""

import copy
import itertools
import math
import multiprocessing
import os
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from crfbook.chain.sparse.choice import never_tiny
from crfbook.evaluation import holm, paired_test

from . import c14_wild
from .harness import own_peak_mb, quiet
from .records import write_record
from .work import load_dataset

WARM = 60  # sentences of a first fit, which may compile; it lies outside the clock
GRACE = 10  # CPU seconds, beside as many as the budget, to save what there is and to tag
NUMBERS = "CPU s", "tagging CPU s", "MB added"  # of a run


class Texts(NamedTuple):
    """Sequences of tokens and of labels, to learn from and to be tested on."""

    X: list
    y: list
    X_test: list
    y_test: list
    data: tuple = ()  # the `Dataset`s behind them

    @property
    def metric(self):
        """F1 of chunks where labels mark chunks, else accuracy of tokens."""
        return "f1" if any(str(label).startswith("B-") for row in self.y for label in row) else "accuracy"


def texts(name):
    """`Texts` of a name of c14_wild.CORPORA."""
    data = load_dataset(*c14_wild.CORPORA[name][:2])
    X, y, new, _ = c14_wild.dicts(name)
    return Texts(X, y, new, data.test.labels_by_sequence(), (data,))


@dataclass
class Command:
    """A program as a tagger: two lines of words, without a shell.

    train, tag : with {data}, a file: a token a line, attributes and last the label, divided by tabs, an empty
        line after each sentence; and {model}, a file that `train` writes. `tag` prints a line a token, last
        the label found. In its {data} all labels are that of the first token learnt from.
    """

    train: str
    tag: str

    def fit(self, X, y):
        self.folder, self.label = tempfile.TemporaryDirectory(), y[0][0]
        self._run(self.train, X, y)
        return self

    def predict(self, X):
        out = self._run(self.tag, X, [[self.label] * len(x) for x in X]).splitlines()
        found = (line.split()[-1] for line in out if line.strip())
        return [list(itertools.islice(found, len(x))) for x in X]

    def _run(self, line, X, y):
        files = {name: str(Path(self.folder.name) / name) for name in ("data", "model")}
        with open(files["data"], "w", encoding="utf-8") as out:
            for sentence in zip(X, y, strict=True):
                for x, label in zip(*sentence, strict=True):
                    cells = [f"{k}={v}" for k, v in x.items()] if isinstance(x, dict) else x
                    out.write("\t".join("_".join(cell.split()) for cell in (*cells, label)) + "\n")
                out.write("\n")
        words = [word.format(**files) for word in shlex.split(line)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            why = f"{words[0]}: {done.stderr.strip()[-200:] or done.returncode}"
            raise KeyboardInterrupt if done.returncode == -signal.SIGXCPU else RuntimeError(why)
        return done.stdout


# ---- one run ----


def _made(tagger, seed):
    """A tagger of its own for a run."""
    if isinstance(tagger, type) or not hasattr(tagger, "fit"):
        return tagger(seed)
    made = copy.deepcopy(tagger)
    return made.set_params(random_state=seed) if hasattr(made, "random_state") else made


def _spent():
    """CPU seconds of this process, and of the programs that it ran."""
    return sum(os.times()[:4])


def _limit(seconds):
    """The moment that so many CPU seconds are spent is Ctrl-C, once; the list returned tells whether it was.
    Later the system kills what never asks for signals.
    """
    import resource  # not on every system

    rung, now = [], math.ceil(_spent())

    def ring(number, frame):
        rung.append(number)
        if len(rung) == 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGXCPU, ring)
    resource.setrlimit(resource.RLIMIT_CPU, (now + seconds, now + 2 * seconds + GRACE))
    return rung


def _learn(pipe, tagger, seed, X, y, new, seconds):
    """Send what a run found: status, seconds, memory; and the labels, or None."""
    found, labels = dict.fromkeys(NUMBERS, math.nan), None
    try:
        with quiet(), never_tiny():
            _made(tagger, seed).fit(X[:WARM], y[:WARM]).predict(X[:WARM])
            model, before, rung, clock = _made(tagger, seed), own_peak_mb(), _limit(seconds), _spent()
            model.fit(X, y)
            status, found["CPU s"] = "stopped by the budget" if rung else "ended", _spent() - clock
            labels = list(map(list, model.predict(new)))
            found |= {"tagging CPU s": _spent() - clock - found["CPU s"], "MB added": own_peak_mb() - before}
    except KeyboardInterrupt:
        status, found["CPU s"] = f"not ended in {seconds:g} CPU s", _spent() - clock
    except Exception as error:  # of a tagger, which is anybody's
        status = f"failed: {type(error).__name__}: {error}"
    pipe.send(({"status": status, **found}, labels))


def _in_a_fork(*run):
    """What `_learn` finds in a process of its own."""
    context = multiprocessing.get_context("fork")  # no pickling: a class of a notebook will do
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_learn, args=(theirs, *run))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return {"status": "killed: it did not heed its limit", **dict.fromkeys(NUMBERS, math.nan)}, None
    finally:
        process.join()


# ---- all of them ----


@dataclass
class Contest:
    """What `compete` found. rows : a dict for each run. labels : {(corpus, tagger): labels of the run of the
    middle score}; a tagger without a run that ended has none. seconds : of all, by the clock on the wall.
    """

    rows: list
    labels: dict
    corpora: dict
    seconds: float

    def tests(self, base=None):
        """A row for each corpus and tagger but `base` (the first): points above it, p of the paired test over
        sentences, and that with Holm's correction for all rows.
        """
        base, found = base or self.rows[0]["tagger"], {}
        for corpus, tagger in self.labels:
            if tagger != base and (corpus, base) in self.labels:
                of, both = self.corpora[corpus], (self.labels[corpus, one] for one in (base, tagger))
                found[corpus, tagger] = paired_test(of.y_test, *both, of.metric)[:2]
        keys = pd.MultiIndex.from_tuples(list(found), names=["corpus", "tagger"])
        table = pd.DataFrame(list(found.values()), keys, ["points", "p"], float)
        return table.assign(**{"points": 100 * table["points"], "p, Holm": holm(table["p"])})

    def beats(self, tagger, base, level=0.05):
        """Is it above `base` on every corpus, p with Holm's correction for the corpora at most `level`?"""
        tests = self.tests(base).query("tagger == @tagger")
        everywhere = len(tests) == len(self.corpora) and (tests["points"] > 0).all()
        return bool(everywhere and (holm(tests["p"]) <= level).all())

    def table(self, base=None):
        """A row for each corpus and tagger: medians over processes, the range of CPU seconds, `tests`."""
        runs = pd.DataFrame(self.rows).groupby(["corpus", "tagger"], sort=False)
        table = runs.median(numeric_only=True).drop(columns="seed")
        table["least CPU s"], table["most CPU s"] = runs["CPU s"].min(), runs["CPU s"].max()
        table["status"] = runs["status"].agg(lambda said: "; ".join(dict.fromkeys(said)))
        return table.join(self.tests(base))

    def figure(self):
        """Quality against CPU seconds of training, a panel a corpus, a mark a run. Returns the figure."""
        from matplotlib import pyplot as plt

        from crfbook.plotting.style import COLOURS, MARKERS, plain

        figure, panels = plt.subplots(1, len(self.corpora), figsize=(7.5, 3.1), layout="tight", squeeze=False)
        of_corpora = pd.DataFrame(self.rows).groupby("corpus", sort=False)
        for ax, (corpus, rows) in zip(panels[0], of_corpora, strict=True):
            for k, (name, of) in enumerate(rows.groupby("tagger", sort=False)):
                seen = of["CPU s"].clip(0.01), of["score"]  # the clock's step; 0 has no place on this axis
                ax.plot(*seen, MARKERS[k % 8], color=COLOURS[k % 8], label=name)
            score = f"{self.corpora[corpus].metric} (%)"
            ax.set(xscale="log", xlabel="CPU seconds of training", ylabel=score, title=corpus)
            plain(ax)
        panels[0][0].legend(frameon=False)
        return figure

    def record(self, path):
        """Write the rows under a header of commit, versions and data. Returns the path."""
        data = {"datasets": [one for of in self.corpora.values() for one in of.data]}
        return write_record(path, self.rows, seconds=self.seconds, **data)


def compete(taggers, corpora, seconds=60, processes=3):
    """`Contest` of {name: tagger} on corpora: each learns in `processes` processes of its own, with the seeds
    0, 1, ..., in turn with the others, in at most so many CPU seconds (a whole number). A kernel that is new
    to a machine compiles inside the clock of the first process; medians leave it out.
    """
    corpora = {name: Texts(*corpora[name]) if isinstance(corpora, dict) else texts(name) for name in corpora}
    clock, rows, said = time.perf_counter(), [], {}
    for corpus, seed, name in itertools.product(corpora, range(processes), taggers):
        of, score = corpora[corpus], math.nan
        found, labels = _in_a_fork(taggers[name], seed, *of[:3], seconds)
        if labels:
            score = 100 * paired_test(of.y_test, labels, labels, of.metric, n_samples=1).value_a
            said.setdefault((corpus, name), []).append((score, seed, labels))
        rows.append({"corpus": corpus, "tagger": name, "seed": seed, "score": score, **found})
    middle = {key: sorted(runs)[(len(runs) - 1) // 2][2] for key, runs in said.items()}
    return Contest(rows, middle, corpora, time.perf_counter() - clock)
