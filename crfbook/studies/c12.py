"""Chapter 12: Table 1 and Figure 3 of Sutton, Rohanimanesh and McCallum (2004), parts of speech and chunks.

Several ways to label both learn from the same random sentences of CoNLL-2000, under the same prior and to
the same certificate. The gold parts of speech are those of the file, which the Brill tagger made, as in the
paper. Its lists of first and last names, companies and places are not to be had: no arm has them.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from crfbook import CRF
from crfbook.data.columns import TokenColumns
from crfbook.evaluation import paired_test

from .harness import each, study, timed
from .work import dataset

C2 = 0.05  # a prior of variance 10, as in the paper
TRAINING = {"algorithm": "lbfgs", "c2": C2, "tol": 1e-4, "max_iterations": 1000}  # of every arm
SIZES = (223, 447, 670, 894, 2234, 8936)  # sentences; the last are all
MOST_WITH_PAIRS = 447  # sentences for which attributes have weights with pairs of labels
SEEDS = (1, 2, 3, 4, 5)  # of the random subsets
FOLDS = 5
REACH = 3  # tokens to each side
TWICE = 2  # a word has a tag in the lexicon if it was seen with it so often

# The paper's Table 2. A list of numbers stands in for its lists that we do not have.
PATTERNS = {
    "Aa": r"[A-Z][a-z]+", "A": r"[A-Z]", "AA": r"[A-Z]+", "AaAa": r"[A-Z]+[a-z]+[A-Z]+[a-z]",
    "0": r".*[0-9].*",
}  # fmt: skip
LISTS = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon. Tue. Tues. Wed. Thu. Thurs. Fri. "
    "Sat. Sun.",
    "month": "January February March April May June July August September October November December Jan. "
    "Feb. Mar. Apr. Aug. Sep. Sept. Oct. Nov. Dec.",
    "number": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred "
    "thousand million billion trillion dozen half",
}
LISTED = {name: set(words.split()) for name, words in LISTS.items()}


class Setting(NamedTuple):
    """What is labelled, and what arms are told.

    chunks : "NP" (B-NP, I-NP, O) or "all". alone : the lexicon of arms that label one thing at a time, one of
    `LEXICA`; joint : that of arms that label both at once. pairs : attributes have weights with pairs of
    labels, too.
    """

    chunks: str
    alone: str
    joint: str
    pairs: bool = False


LEXICA = ("none", "subset", "training", "everything")  # everything: the test part, too
SETTINGS = {
    "NP, lexicon of the subset": Setting("NP", "subset", "subset"),
    "NP, lexicon of all training sentences": Setting("NP", "training", "training"),
    "NP, lexicon of everything": Setting("NP", "everything", "everything"),
    "NP, no lexicon": Setting("NP", "none", "none"),
    "NP, lexicon of both-at-once alone": Setting("NP", "none", "training"),
    "NP, lexicon of everything for both-at-once alone": Setting("NP", "subset", "everything"),
    "NP, lexicon of the subset, pairs": Setting("NP", "subset", "subset", True),
    "NP, lexicon of all training sentences, pairs": Setting("NP", "training", "training", True),
    "chunks, lexicon of the subset": Setting("all", "subset", "subset"),
    "chunks, lexicon of all training sentences": Setting("all", "training", "training"),
}


def template(pos=False, pairs=False):
    """The paper's Table 2 as a template: words, marks, and with pos tags, from 3 tokens before to 3 after."""
    cells = ["%x[{0},word]", "%each[{0},marks]", *["%x[{0},pos]"] * pos]
    lines = [
        f"{'*' if pairs else 'U'}{d}:" + cell.format(d) for cell in cells for d in range(-REACH, REACH + 1)
    ]
    return "\n".join(["U", *lines, ""])


def lexicon(parts):
    """{word: its tags, in their order}: tags seen with the word at least `TWICE` in columns word and pos."""
    seen, tags = Counter(), {}
    for part in parts:
        seen.update(zip(part.columns["word"], part.columns["pos"], strict=True))
    for (word, tag), n in sorted(seen.items()):
        if n >= TWICE:
            tags.setdefault(word, []).append(tag)
    return tags


def marks(word, tags):
    """Patterns that the word matches, lists that it is in, and its tags, divided by blanks."""
    found = [name for name, pattern in PATTERNS.items() if re.fullmatch(pattern, word)]
    found += [name for name, words in LISTED.items() if word in words or word.lower() in words]
    return " ".join([*found, *(f"has:{tag}" for tag in tags)])


def two_columns(columns, chunks):
    """Columns word, pos and chunk of the corpus, no labels."""
    chunk = columns.labels if chunks == "all" else [y if y.endswith("-NP") else "O" for y in columns.labels]
    return TokenColumns({**columns.columns, "chunk": chunk}, columns.seq_ptr)


def with_column(columns, name, values):
    """The columns, this one replaced by values: a list of lists."""
    flat = [value for sentence in values for value in sentence]
    return TokenColumns({**columns.columns, name: flat}, columns.seq_ptr)


class Trained(NamedTuple):
    """A fitted estimator and its CPU seconds."""

    model: object
    seconds: float


class Labelled(NamedTuple):
    """What an arm says of the test part, lists of lists (pos None: it says nothing), and its models."""

    pos: list | None
    chunk: list
    models: list  # of `Trained`


@dataclass(frozen=True, eq=False)
class Task:
    """A setting on the random sentences of a seed; what several arms need is made once."""

    setting: Setting
    size: int
    seed: int

    @cached_property
    def all_training(self):
        return two_columns(dataset("chunking").train, self.setting.chunks)

    @cached_property
    def test(self):
        """Columns word, pos and chunk."""
        return two_columns(dataset("chunking").test, self.setting.chunks)

    @cached_property
    def train(self):
        whole = self.all_training
        return whole.take(np.random.default_rng(self.seed).permutation(len(whole))[: self.size])

    def marked(self, source):
        """(training, test) columns with `marks`, the lexicon from a source of `LEXICA`."""
        parts = self.train, self.test
        tags = lexicon({
            "none": [], "subset": parts[:1], "training": [self.all_training],
            "everything": [self.all_training, self.test],
        }[source])  # fmt: skip
        of = {word: marks(word, tags.get(word, ())) for part in parts for word in part.columns["word"]}
        return [
            TokenColumns({**part.columns, "marks": [of[w] for w in part.columns["word"]]}, part.seq_ptr)
            for part in parts
        ]

    @cached_property
    def alone(self):
        """(training, test) of arms with a chain for one kind of label."""
        return self.marked(self.setting.alone)

    @cached_property
    def joint(self):
        """(training, test) of arms that label both at once."""
        return self.marked(self.setting.joint)

    @cached_property
    def tagger(self):
        """The first CRF of a cascade, which all of them share."""
        return self.chain(self.alone[0], "pos")

    def chain(self, columns, labels, pos=False):
        """A linear-chain CRF trained on columns. labels : the name of a column, or a list of labels; pos: may
        it read the column of that name?
        """
        read = columns.select(("word", "marks", *["pos"] * pos), labels, "label")
        return learn(CRF(**TRAINING, template=template(pos, self.setting.pairs)), read)


def learn(model, columns):
    """`Trained`. Two iterations go ahead, as kernels may have to be compiled there."""
    iterations = model.get_params()["max_iterations"]
    model.set_params(max_iterations=2).fit(columns)
    model.set_params(max_iterations=iterations)
    return Trained(*timed(model.fit, columns))


# ---- arms ----


def cascade(task, tags=None):
    """CRF+CRF: chunks from the tags that the first CRF finds. tags : those of the second one's training part,
    lists of lists; None: the file's.
    """
    train, test = task.alone
    train = train if tags is None else with_column(train, "pos", tags)
    pos = task.tagger.model.predict(test)
    second = task.chain(train, "chunk", pos=True)
    return Labelled(pos, second.model.predict(with_column(test, "pos", pos)), [task.tagger, second])


def predicted_cascade(task):
    """The second CRF learns from what the first one says of its own training sentences."""
    return cascade(task, task.tagger.model.predict(task.alone[0]))


def jackknifed_cascade(task):
    """The second CRF learns from tags of taggers that have not seen the sentence: 5 folds."""
    train, tags, taggers = task.alone[0], [None] * len(task.train), []
    for fold in range(FOLDS):
        inside, outside = (
            [i for i in range(len(train)) if (i % FOLDS == fold) == out] for out in (False, True)
        )
        taggers.append(task.chain(train.take(inside), "pos"))
        for i, said in zip(outside, taggers[-1].model.predict(train.take(outside)), strict=True):
            tags[i] = said
    found = cascade(task, tags)
    return found._replace(models=[*taggers, *found.models])


def brill(task):
    """Brill+CRF: chunks from the tags of the file, in training and test."""
    train, test = task.alone
    second = task.chain(train, "chunk", pos=True)
    return Labelled(None, second.model.predict(test), [second])


def independent(task):
    """Chunks from the text, whatever the tags."""
    train, test = task.alone
    one = task.chain(train, "chunk")
    return Labelled(None, one.model.predict(test), [one])


def flat(task):
    """One chain whose labels are pairs of a tag and a chunk label."""
    train, test = task.joint
    pairs = [f"{p} {c}" for p, c in zip(train.columns["pos"], train.columns["chunk"], strict=True)]
    one = task.chain(train, pairs)
    said = [[label.split() for label in labels] for labels in one.model.predict(test)]
    return Labelled(*([[pair[k] for pair in labels] for labels in said] for k in (0, 1)), [one])


BASE = "CRF+CRF"  # the others are tested against it
ARMS = {
    BASE: cascade,
    "CRF+CRF, predicted": predicted_cascade,
    "CRF+CRF, jackknifed": jackknifed_cascade,
    "Brill+CRF": brill,
    "independent": independent,
    "flat": flat,
}


# ---- rows ----


def measured(test, said):
    """{column: (gold, labels, metric)} of what an arm says; labels None where it does not say it."""
    gold = {name: test.by_sequence(name) for name in ("pos", "chunk")}
    joint = [[f"{p} {c}" for p, c in zip(*both, strict=True)] for both in zip(*gold.values(), strict=True)]
    both = said.pos and [
        [f"{p} {c}" for p, c in zip(*labels, strict=True)]
        for labels in zip(said.pos, said.chunk, strict=True)
    ]
    return {
        "POS": (gold["pos"], said.pos, "accuracy"),
        "chunk": (gold["chunk"], said.chunk, "accuracy"),
        "joint": (joint, both, "accuracy"),
        "F1": (gold["chunk"], said.chunk, "f1"),
    }


def subset_rows(setting, size, seed, arms):
    """Rows of Table 1 of a subset: each arm's scores in per cent, p of a paired test over sentences against
    CRF+CRF, and what training was.
    """
    task = Task(SETTINGS[setting], size, seed)
    found = {arm: ARMS[arm](task) for arm in dict.fromkeys([BASE, *arms])}
    rows, base = [], measured(task.test, found[BASE])
    for arm in arms:
        row, p_values = {"arm": arm, "sentences": len(task.train)}, {}
        for name, (gold, labels, metric) in measured(task.test, found[arm]).items():
            test = labels and paired_test(gold, base[name][1], labels, metric)
            row[name] = f"{100 * test.value_b:.2f}" if test else ""
            p_values[f"p {name}"] = f"{test.p_value:.4f}" if test and arm != BASE else ""
        models = [one.model for one in found[arm].models]
        rows.append({
            **row, **p_values, "weights": sum(len(model.weights_) for model in models),
            "training CPU s": f"{sum(one.seconds for one in found[arm].models):.1f}",
            "iterations": " + ".join(str(model.n_iter_) for model in models),
            "status": " + ".join(dict.fromkeys(model.status_ for model in models)),
            "objective": " + ".join(f"{model.objective_:.2f}" for model in models),
            "above its minimum, at most": " + ".join(
                f"{model.history_['violation'].iloc[-1]:.3g}" for model in models
            ),
        })  # fmt: skip
    return rows


@study("12_table.csv")
def dcrf_table(settings=tuple(SETTINGS), sizes=SIZES, seeds=SEEDS, arms=None):
    """Table 1 and Figure 3 of Sutton et al. (2004): tags, then chunks, or both at once; an hour a setting."""
    data, cells = dataset("chunking"), []
    for size in sizes:  # the small ones of all settings first
        whole = size >= len(data.train)
        cells += [
            {"setting": setting, "size": size, "seed": seed}
            for setting in settings
            if size <= MOST_WITH_PAIRS or not SETTINGS[setting].pairs
            for seed in (seeds[:1] if whole else seeds)
        ]
    yield "12_table.csv", each(subset_rows, cells, arms=arms or tuple(ARMS)), [data]
