"""Chapter 12: Table 1 and Figure 3 of Sutton, Rohanimanesh and McCallum (2004), parts of speech and chunks.

Several ways to label both learn from the same random sentences of CoNLL-2000, under the same prior and to
the same certificate. The gold parts of speech are those of the file, which the Brill tagger made, as in the
paper. Its lists of first and last names, companies and places are not to be had: no arm has them.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from crfbook import CRF, DCRF, TokenColumns
from crfbook.dynamic import Clique, factorial, memory
from crfbook.evaluation import paired_test

from .harness import study, timed
from .work import dataset

C2 = 0.05  # a prior of variance 10, as in the paper
TRAINING = {"c2": C2, "tol": 1e-4, "max_iterations": 1000}  # of every arm, by L-BFGS
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

    chunks : "NP" (B-NP, I-NP, O) or "all". lexicon : one of `LEXICA`: whose tags a word is marked with.
    pairs : the paper's eq. (4): attributes have weights with pairs of labels alone, in all arms.
    memory : FCRF knows the last label that was not O.
    """

    chunks: str
    lexicon: str
    pairs: bool = False
    memory: bool = False


LEXICA = ("none", "subset", "training", "everything")  # everything: the test part, too
SETTINGS = {
    "NP, no lexicon": Setting("NP", "none"),
    "NP, lexicon of the subset": Setting("NP", "subset"),
    "NP, lexicon of all training sentences": Setting("NP", "training"),
    "NP, lexicon of everything": Setting("NP", "everything"),
    "NP, lexicon of everything, pairs": Setting("NP", "everything", pairs=True),
    "NP, lexicon of all training sentences, pairs": Setting("NP", "training", pairs=True),
    "NP, lexicon of all training sentences, memory": Setting("NP", "training", memory=True),
    "chunks, lexicon of all training sentences": Setting("all", "training"),
}
NONE, SUBSET, ALL, EVERYTHING, PAIRS, ALL_PAIRS, MEMORY, CHUNKS = SETTINGS
PLAN = (  # settings, sizes, seeds, in the order of the record; lexica are compared over rows
    ((ALL, SUBSET, NONE, EVERYTHING), (223,), SEEDS), ((ALL,), (447,), SEEDS), ((PAIRS,), (223,), SEEDS),
    ((EVERYTHING, NONE, SUBSET), (447,), SEEDS[:3]), ((ALL,), (670, 894, 2234), SEEDS),
    ((PAIRS,), (447, 670), SEEDS), ((CHUNKS,), (223,), SEEDS), ((ALL_PAIRS,), (223,), SEEDS[:3]),
    ((ALL,), (8936,), SEEDS[:1]), ((CHUNKS,), (447,), SEEDS[:3]), ((PAIRS,), (894,), SEEDS),
    ((PAIRS,), (2234,), SEEDS[:1]), ((SUBSET,), (894,), SEEDS[:3]), ((MEMORY,), (223,), SEEDS[:3]),
)  # fmt: skip


def template(pos=False, constant=True):
    """The paper's Table 2 as a template: words, marks, and with pos tags, from 3 tokens before to 3 after.

    constant : an attribute of every token. A DCRF goes without, as its cliques have a weight of each label.
    """
    cells = ["%x[{0},word]", "%each[{0},marks]", *["%x[{0},pos]"] * pos]
    lines = [f"U{d}:" + cell.format(d) for cell in cells for d in range(-REACH, REACH + 1)]
    return "\n".join([*["U"] * constant, *lines, ""])


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

    @cached_property
    def marked(self):
        """(training, test) columns with `marks`, too."""
        parts = self.train, self.test
        tags = lexicon({
            "none": [], "subset": parts[:1], "training": [self.all_training],
            "everything": [self.all_training, self.test],
        }[self.setting.lexicon])  # fmt: skip
        of = {word: marks(word, tags.get(word, ())) for part in parts for word in part.columns["word"]}
        return [with_column(part, "marks", [[of[w] for w in part.columns["word"]]]) for part in parts]

    @cached_property
    def tagger(self):
        """The first CRF of a cascade, which all of them share."""
        return self.chain(self.marked[0], "pos")

    def chain(self, columns, labels, pos=False):
        """A linear-chain CRF trained on columns. labels : the name of a column, or a list of labels; pos: may
        it read the column of that name?
        """
        read = columns.select(("word", "marks", *["pos"] * pos), labels, "label")
        if self.setting.pairs:
            edges = [Clique(((0, "label"), (1, "label")), "supported")]
            return learn(OneChain(edges, ("label",), template=template(pos, False), **TRAINING), read)
        return learn(CRF("lbfgs", **TRAINING, template=template(pos)), read)


class OneChain(DCRF):
    """A linear chain as a dynamic CRF, whose labels are no tuples."""

    def predict(self, X):
        return [[label for (label,) in labels] for labels in super().predict(X)]


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
    train, test = task.marked
    train = train if tags is None else with_column(train, "pos", tags)
    pos = task.tagger.model.predict(test)
    second = task.chain(train, "chunk", pos=True)
    return Labelled(pos, second.model.predict(with_column(test, "pos", pos)), [task.tagger, second])


def predicted_cascade(task):
    """The second CRF learns from what the first one says of its own training sentences."""
    return cascade(task, task.tagger.model.predict(task.marked[0]))


def jackknifed_cascade(task):
    """The second CRF learns from tags of taggers that have not seen the sentence: 5 folds."""
    train, tags, taggers = task.marked[0], [None] * len(task.train), []
    for fold in range(FOLDS):
        outside = list(range(fold, len(train), FOLDS))
        inside = sorted({*range(len(train))} - {*outside})
        taggers.append(task.chain(train.take(inside), "pos"))
        for i, said in zip(outside, taggers[-1].model.predict(train.take(outside)), strict=True):
            tags[i] = said
    found = cascade(task, tags)
    return found._replace(models=[*taggers, *found.models])


def brill(task):
    """Brill+CRF: chunks from the tags of the file, in training and test."""
    train, test = task.marked
    second = task.chain(train, "chunk", pos=True)
    return Labelled(None, second.model.predict(test), [second])


def independent(task):
    """Chunks from the text, whatever the tags."""
    train, test = task.marked
    one = task.chain(train, "chunk")
    return Labelled(None, one.model.predict(test), [one])


def flat(task):
    """One chain whose labels are pairs of a tag and a chunk label."""
    train, test = task.marked
    pairs = [f"{p} {c}" for p, c in zip(train.columns["pos"], train.columns["chunk"], strict=True)]
    one = task.chain(train, pairs)
    return both_of([[label.split() for label in labels] for labels in one.model.predict(test)], one)


def both_of(said, one):
    """`Labelled` of a model that says a tag and a chunk label of each token: lists of lists of pairs."""
    return Labelled(*([[pair[k] for pair in labels] for labels in said] for k in (0, 1)), [one])


def two_chains(task, **cliques):
    """FCRF: a chain of tags, one of chunk labels, and potentials between them. cliques : of `factorial`.

    With pairs, single labels have no weight, and attributes one with the pairs of each clique.
    """
    train, test = task.marked
    if task.setting.pairs:
        cliques |= {"features": "supported", "node_features": "none"}
    graph = factorial("pos", "chunk", **cliques)
    if task.setting.memory:
        graph += memory("chunk", "last", "last other", ["O"])
    model = DCRF(graph, ("pos", "chunk"), template=template(constant=False), **TRAINING)
    one = learn(model, train)
    return both_of(one.model.predict(test), one)


def skewed_chains(task):
    """FCRF with potentials of a tag and the next chunk label, too."""
    return two_chains(task, skew=True)


BASE = "CRF+CRF"  # the others are tested against it
ARMS = {
    BASE: cascade, "CRF+CRF, predicted": predicted_cascade, "CRF+CRF, jackknifed": jackknifed_cascade,
    "Brill+CRF": brill, "independent": independent, "flat": flat, "FCRF": two_chains,
    "FCRF, skew": skewed_chains,
}  # fmt: skip
UP_TO = {"CRF+CRF, predicted": 223, "CRF+CRF, jackknifed": 447}  # sentences; two lexica


# ---- rows ----


def measured(test, said):
    """{column: (gold, labels, metric)} of what an arm says; labels None where it does not say it."""
    gold = {name: test.by_sequence(name) for name in ("pos", "chunk")}

    def joint(*columns):
        return [[f"{p} {c}" for p, c in zip(*both, strict=True)] for both in zip(*columns, strict=True)]

    both = said.pos and joint(said.pos, said.chunk)
    return {
        "POS": (gold["pos"], said.pos, "accuracy"), "chunk": (gold["chunk"], said.chunk, "accuracy"),
        "joint": (joint(*gold.values()), both, "accuracy"), "F1": (gold["chunk"], said.chunk, "f1"),
    }  # fmt: skip


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


def arms_of(setting, size):
    """Arms of a row of the record: weights of flat pairs would be too many, and jackknifing is dear."""
    told = SETTINGS[setting]
    if told.memory or told.pairs:
        return (BASE, "Brill+CRF", "FCRF") if told.pairs else (BASE, "FCRF")
    return tuple(arm for arm in ARMS if arm not in UP_TO or setting in (ALL, SUBSET) and size <= UP_TO[arm])


@study("12_table.csv", frozen=("lbfgs", "dynamic", "dynamic, pairs", "dynamic, memory"))
def dcrf_table(plan=PLAN, arms=None):
    """Table 1 and Figure 3 of Sutton et al. (2004): tags, then chunks, or both at once; an hour a setting.

    arms : of all rows; None: those of `arms_of`.
    """
    jobs = []
    for settings, sizes, seeds in plan:
        for size, setting, seed in product(sizes, settings, seeds):
            key = {"setting": setting, "size": size, "seed": seed}
            jobs.append((key, partial(subset_rows, **key, arms=arms or arms_of(setting, size))))
    yield "12_table.csv", jobs, [dataset("chunking")]
