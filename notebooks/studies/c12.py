"""Chapter 12: tags and chunks by factorial CRFs: the tables of Sutton, Rohanimanesh, McCallum (2004); speed.

Table 1 and Figure 3: several ways to label both learn from the same random sentences of CoNLL-2000, under
the same prior and to the same certificate. The gold tags are those of the file, which the Brill tagger made,
as in the paper. Its lists of first and last names, companies and places are not to be had: no arm has them.
Speed: elimination beside chains of joint labels, Viterbi, training, and how time grows.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from typing import NamedTuple

import numpy as np

from crfbook import CRF, DCRF, Encoder, Objective, TokenColumns, dynamic, make_corpus, minimize
from crfbook.chain.inference import stretch_scores
from crfbook.data.corpus import take_sequences
from crfbook.data.features import observed
from crfbook.data.vocabulary import number_labels
from crfbook.dynamic import Clique, factorial, memory
from crfbook.dynamic.inference import ready_rows
from crfbook.dynamic.viterbi import chains_viterbi, max_chains
from crfbook.evaluation import paired_test

from .harness import Row, clocked, cpu_row, race, study, timed
from .records import rounded
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
    ((PAIRS,), (2234,), SEEDS), ((PAIRS,), (8936,), SEEDS[:1]), ((SUBSET,), (894,), SEEDS[:3]),
    ((MEMORY,), (223,), SEEDS[:3]),
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
    """Columns word, pos and chunk of the corpus, no labels. chunks : "all", or "NP": B-NP, I-NP, O."""
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
        read = {"none": [], "subset": parts[:1], "training": [self.all_training]}
        read["everything"] = [self.all_training, self.test]
        tags = lexicon(read[self.setting.lexicon])
        of = {word: marks(word, tags.get(word, ())) for part in parts for word in part.columns["word"]}
        return [with_column(part, "marks", [[of[w] for w in part.columns["word"]]]) for part in parts]

    @cached_property
    def tagger(self):
        """The first CRF of a cascade, which all of them share."""
        return self.chain(self.marked[0], "pos")

    @cached_property
    def told(self):
        """The second CRF, which learns from the tags of the file: that of CRF+CRF, and of Brill+CRF."""
        return self.chain(self.marked[0], "chunk", pos=True)

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
    second = task.told if tags is None else task.chain(train, "chunk", pos=True)
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
    return Labelled(None, task.told.model.predict(task.marked[1]), [task.told])


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


BASE = "CRF+CRF"  # the others are tested against it
ARMS = {
    BASE: cascade, "CRF+CRF, predicted": predicted_cascade, "CRF+CRF, jackknifed": jackknifed_cascade,
    "Brill+CRF": brill, "independent": independent, "flat": flat, "FCRF": two_chains,
    "FCRF, skew": partial(two_chains, skew=True),  # potentials of a tag and the next chunk label, too
}  # fmt: skip
UP_TO = {"CRF+CRF, predicted": 223, "CRF+CRF, jackknifed": 447}  # sentences; two lexica


# ---- rows ----


def measured(test, said):
    """{column: (gold, labels, metric)} of what an arm says; labels None where it does not say it."""
    gold = {name: test.by_sequence(name) for name in ("pos", "chunk")}

    def joint(*columns):
        return [[f"{p} {c}" for p, c in zip(*both, strict=True)] for both in zip(*columns, strict=True)]

    both = said.pos and joint(said.pos, said.chunk)
    one = {"POS": (gold["pos"], said.pos, "accuracy"), "chunk": (gold["chunk"], said.chunk, "accuracy")}
    return one | {"joint": (joint(*gold.values()), both, "accuracy"), "F1": (gold["chunk"], said.chunk, "f1")}


def scored_rows(task, found, base):
    """A row for each arm of {arm: `Labelled`}: its scores in per cent, p of a paired test over sentences
    against the arm `base`, and what training was.
    """
    rows, reference = [], measured(task.test, found[base])
    for arm, one in found.items():
        row, p_values = {"arm": arm, "sentences": len(task.train)}, {}
        for name, (gold, labels, metric) in measured(task.test, one).items():
            before = reference[name][1] or labels
            test = labels and paired_test(gold, before, labels, metric)
            row[name] = f"{100 * test.value_b:.2f}" if test else ""
            compared = test and arm != base and reference[name][1]
            p_values[f"p {name}"] = f"{test.p_value:.4f}" if compared else ""
        models = [trained.model for trained in one.models]
        rows.append({
            **row, **p_values, "weights": sum(len(model.weights_) for model in models),
            "training CPU s": f"{sum(trained.seconds for trained in one.models):.1f}",
            "iterations": " + ".join(str(model.n_iter_) for model in models),
            "status": " + ".join(dict.fromkeys(model.status_ for model in models)),
            "objective": " + ".join(f"{model.objective_:.2f}" for model in models),
            "above its minimum, at most": " + ".join(
                f"{model.history_['violation'].iloc[-1]:.3g}" for model in models
            ),
        })  # fmt: skip
    return rows


def subset_rows(setting, size, seed, arms):
    """Rows of Table 1 of a subset, tested against CRF+CRF."""
    task = Task(SETTINGS[setting], size, seed)
    found = {arm: ARMS[arm](task) for arm in dict.fromkeys([BASE, *arms])}
    return [row for row in scored_rows(task, found, BASE) if row["arm"] in arms]


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


# ---- speed, and how time grows ----

FEW = 447  # sentences of the paper's Table 3
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
    """chunks : as in `two_columns`. n_sentences : a random subset; None: all."""
    columns = two_columns(dataset("chunking").train, chunks)
    corpus, numbers, names = encoder().transform(words_of(columns)), [], {}
    for name in CHAINS:
        ids, names[name] = number_labels(columns.columns[name], columns.n_tokens, columns.seq_ptr)
        numbers.append(ids)
    labels = np.stack(numbers, axis=1)
    if n_sentences is not None:
        kept = np.random.default_rng(1).permutation(corpus.n_sequences)[:n_sentences]
        labels = np.concatenate([labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]] for i in kept])
        corpus = take_sequences(corpus, kept)
    return made(corpus, labels, factorial(*CHAINS), names)


def made(corpus, labels, cliques, names):
    """`Problem` with random weights of a tenth of a nat."""
    layout = dynamic.lay_out_template(cliques, tuple(names), names)
    features = dynamic.dynamic_features(layout, corpus, labels, int(corpus.attr_idx.max()) + 1)
    w = np.random.default_rng(0).normal(0.0, 0.1, features.n_features)
    return Problem(corpus, labels, layout, features, w)


def objective_of(one, n_threads=1):
    given = one.corpus, one.labels, one.layout, one.features
    return dynamic.DynamicObjective(*given, c2=C2, n_threads=n_threads)


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


def viterbi_run(one):
    """A callable: Viterbi from given scores."""
    corpus = one.corpus
    ready = ready_rows(corpus, dynamic.DynamicModel(one.layout, one.features, one.w, "elimination"))
    rows = stretch_scores(ready.corpus, ready.scores, slice(0, corpus.n_sequences), slice(0, corpus.n_tokens))
    chains, _ = max_chains(one.layout, ready.tables)
    path, score = np.zeros((corpus.n_tokens, 2), np.int32), np.zeros(corpus.n_sequences)
    work = np.empty((corpus.longest, len(chains.beside))), np.empty((2, len(chains.beside)))
    return partial(chains_viterbi, rows, chains, corpus.seq_ptr, path, score, *work)


@study("12_targets.csv")
def dcrf_targets(repeats=5):
    """What exact inference and training of factorial CRFs must reach, in one run; a quarter of an hour."""
    few = problem("all", FEW)
    ours, whole = objective_of(few), problem("all")
    (flat, w_flat, n_flat), (product, *pairs) = (joint_chain(few, whole, every) for every in (False, True))
    took = race({"ours": partial(ours, few.w), "flat": partial(flat, w_flat)}, repeats)
    seconds = took["ours"].median_cpu
    work = f"POS x chunk, {FEW} sentences: value and gradient / "
    yield cpu_row(work + f"chain of {n_flat} labels", took, 1.4, 0.9, reference="flat")
    took = race({"ours": partial(ours, few.w), "product": partial(product, pairs[0])}, max(1, repeats // 2))
    yield cpu_row(work + f"chain of {pairs[1]} labels", took, 1 / 6, 1 / 8, reference="product")
    yield Row(f"POS x chunk, {FEW} sentences: value and gradient", seconds, 1.0, "CPU s", 0.20, 0.12)
    memory = sum(array.nbytes for array in work_arrays(ours)) / 1e6
    yield Row("POS x chunk: work memory", memory, 1.0, "MB", 20, 10, f"{few.corpus.n_tokens:,} tokens")
    for one, name, limits in (
        (whole, "POS x chunk, all sentences", (4.5, 3.0)),
        (problem("NP", FEW), f"POS x NP, {FEW} sentences", (0.06, 0.035)),
        (problem("NP"), "POS x NP, all sentences", (1.2, 0.8)),
    ):
        took = race({"run": partial(objective_of(one), one.w)}, repeats)["run"].median_cpu
        note = f"{' x '.join(map(str, one.layout.sizes))}, {one.features.n_features:,} weights"
        yield Row(name + ": value and gradient", took, 1.0, "CPU s", *limits, note)
    took = race({"run": viterbi_run(few)}, repeats)["run"].median_cpu
    note = f"{few.corpus.n_sequences / took:,.0f} sentences a second"
    yield Row(f"POS x chunk, {FEW} sentences: Viterbi", took, 1.0, "CPU s", None, None, note)
    found, took = timed(minimize, ours, np.zeros_like(few.w), c2=C2, tol=1e-4)
    note = f"{found.status}, {found.n_iter} iterations, objective {found.objective:.2f}"
    yield Row(f"POS x chunk, {FEW} sentences: training to 1e-4", took, 1.0, "CPU s", 40, 20, note)
    yield training_row(problem("NP"))


def training_row(one):
    """Training on all sentences with two threads, wall minutes."""
    found, spent = clocked(minimize, objective_of(one, n_threads=2), np.zeros_like(one.w), c2=C2, tol=1e-4)
    minutes = spent["wall"] / 60
    note = f"{found.status}, {found.n_iter} iterations, objective {found.objective:.2f}"
    return Row("POS x NP, all sentences: training to 1e-4, two threads", minutes, 1.0, "minutes", 8, 3, note)


def work_arrays(objective):
    """What elimination writes on its way, of one thread."""
    objective(np.zeros(objective.features.n_features))
    return objective.parts[0].free.work_arrays()


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
