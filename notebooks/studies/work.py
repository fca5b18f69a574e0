"""The work of all studies: a corpus, real where it can be had, else its built-in twin, and its encoding.

    work = load("chunking")                       # CoNLL-2000, all sentences, template "chunking"
    work = load("ner", "s2", 600)                 # Spanish CoNLL-2002, features S2, the first 600 sentences
    work.corpus, work.features, work.scores(w)    # flat arrays; observed features; F1 of the held-out parts

Nothing here loads compiled code before it is asked for: a process that only trains the peer stays small.
"""

import warnings
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from crfbook import Corpus, Encoder, FeatureSet, TokenColumns, datasets, make_corpus
from crfbook.data.constraints import Constraints
from crfbook.data.features import observed, select, without_plain_transitions
from crfbook.encoding import templates
from crfbook.encoding.tag_dictionary import TagDictionary

LETTERS_C2 = 0.0005  # of all models of letters, as in the sparse-CRF paper
TWINS = set()  # names of the built-in twins that stood in for a corpus, in this process or in one of its own


def load_dataset(*name, verbose=False, **options):
    """`crfbook.load_dataset`, which notes in TWINS whether a built-in twin stands in for the corpus."""
    found = datasets.load_dataset(*name, verbose=verbose, **options)
    if found.source != "real":
        TWINS.add(found.name)
    return found


class Task(NamedTuple):
    """A corpus: name and task of its data set, the usual template, held-out parts, and what is scored."""

    dataset: str
    task: str
    template: str
    parts: dict  # {column of a table: split}
    measure: str = "F1"  # of phrases, or "accuracy" of tokens, per cent
    tag_dictionary: int | None = None  # words seen this often take only the labels seen with them


TEST, DEV_TEST = {"test": "test"}, {"dev": "dev", "test": "test"}
TWO_TESTS = {"testa": "dev", "testb": "test"}
TASKS = {
    "chunking": Task("conll2000", "chunking", "chunking", TEST),
    "atis": Task("atis", "slots", "words", TEST),
    "joint": Task("conll2000", "chunking", "words", TEST, "accuracy"),  # labels POS/chunk, 600 sentences
    "pos": Task("treebank", "pos", "s2", DEV_TEST, "accuracy", tag_dictionary=5),
    "ner": Task("conll2002", "esp", "s3", TWO_TESTS),
    "wnut17": Task("wnut17", "ner", "ner", DEV_TEST),
    "conll2003": Task("conll2003", "ner", "ner", TWO_TESTS),
    "nettalk": Task("nettalk", "phonemes", "letter_tests", TEST, "accuracy"),
    "ewt": Task("ud-english-ewt", "upos", "pos", DEV_TEST, "accuracy"),
}


class Held(NamedTuple):
    """A held-out part, encoded, and its labels as lists of lists."""

    corpus: Corpus
    gold: list


@dataclass(frozen=True, eq=False)
class Work:
    """A labelled corpus, encoded: what it was read from, its training part as text and as arrays."""

    task: Task
    template: str
    columns: TokenColumns
    encoder: Encoder
    corpus: Corpus
    parts: dict  # {name: Held}
    texts: dict  # {name: TokenColumns} of these parts
    constraints: Constraints | None = None

    @property
    def sizes(self):
        return self.encoder.n_labels, self.encoder.n_attrs, self.encoder.n_edge_attrs

    @property
    def n_candidates(self):
        """How many weights there could be: of attributes and labels, of edge attributes and pairs."""
        n_labels, n_attrs, n_edge_attrs = self.sizes
        return n_attrs * n_labels + n_edge_attrs * n_labels**2

    @cached_property
    def features(self):
        """FeatureSet of what occurs in the corpus."""
        return observed(self.corpus, *self.sizes)

    @cached_property
    def everything(self):
        """FeatureSet of all candidates, allocated: for the methods that need it."""
        features = observed(self.corpus, *self.sizes, all_states=True, all_transitions=True)
        plain = "edge_attrs" not in self.options
        return features if plain else select(features, without_plain_transitions(features))

    @property
    def options(self):
        """What coordinate descent is told of letters; for tests of one letter no plain transitions count."""
        options = {"sizes": self.sizes, "c2": LETTERS_C2}
        if self.template == "letter_tests":
            options["edge_attrs"] = np.arange(1, self.encoder.n_edge_attrs)
        return options

    @property
    def held(self):
        """The first held-out part, encoded."""
        return next(iter(self.parts.values())).corpus

    @property
    def words(self):
        """The first held-out part as text."""
        return next(iter(self.texts.values()))

    def guess(self, w, part):
        """Labels by Viterbi of a held-out part, as lists of lists."""
        from crfbook.chain.inference import decode

        corpus = self.parts[part].corpus
        return self.encoder.decode(decode(corpus, self.features, w, self.constraints), corpus.seq_ptr)

    def reports(self, found):
        """{part: `ChunkReport`} of weights (F,), or of labels {part: lists of lists}."""
        from crfbook.evaluation import chunk_report

        guess = found.get if isinstance(found, dict) else partial(self.guess, found)
        with warnings.catch_warnings():
            if self.task.measure == "accuracy":  # labels that are no chunks
                warnings.filterwarnings("ignore", "chunks: ")
            return {name: chunk_report(part.gold, guess(name)) for name, part in self.parts.items()}

    def scores(self, found):
        """{part: F1 or accuracy in per cent} of weights (F,), or of labels {part: lists of lists}."""
        rate = {"F1": "f1", "accuracy": "accuracy"}[self.task.measure]
        return {name: 100 * getattr(report, rate) for name, report in self.reports(found).items()}

    def random_weights(self):
        """Weights (F,) away from zero."""
        return np.random.default_rng(0).normal(scale=0.1, size=self.features.n_features)

    def evaluation(self, c2=1.0, **options):
        """A candidate for a race: our objective and gradient at `random_weights`."""
        from crfbook.chain.objective import Objective

        return partial(Objective(self.corpus, self.features, c2=c2, **options), self.random_weights())


def encode(task, template, train, parts=None):
    """`Work` of a `Task`, or a name of TASKS, on other columns: train, and {name: columns} held out."""
    about = TASKS[task] if isinstance(task, str) else task
    encoder, constraints = Encoder(templates.as_template(template)), None
    corpus, parts = encoder.fit_transform(train), parts or {}
    held = {name: encoder.transform(part, on_unknown_label="mark") for name, part in parts.items()}
    if about.tag_dictionary:
        sets = TagDictionary.learn(train, min_count=about.tag_dictionary).encode(encoder.labels_)
        corpus, constraints = corpus._replace(label_set=sets.label_set(train)), sets.constrain(None)
        held = {name: part._replace(label_set=sets.label_set(parts[name])) for name, part in held.items()}
    held = {name: Held(part, parts[name].labels_by_sequence()) for name, part in held.items()}
    return Work(about, template, train, encoder, corpus, held, parts, constraints)


@cache
def dataset(task):
    """The `Dataset` of a task, read once."""
    return load_dataset(TASKS[task].dataset, TASKS[task].task)


def columns_of(task, n_sentences=None, verbose=False):
    """(template, training columns, {name: held-out columns}) of a task; verbose: say which data these are."""
    if task not in TASKS:
        raise ValueError(f"work: expected {', '.join(list(TASKS)[:-1])} or {list(TASKS)[-1]}, got {task!r}")
    about = TASKS[task]
    data = load_dataset(about.dataset, about.task, verbose=True) if verbose else dataset(task)
    train, parts = data.train, {name: data.splits[split] for name, split in about.parts.items()}
    if task == "joint":
        train, parts = joint(train, 600), {name: joint(part, None) for name, part in parts.items()}
    return about.template, train if n_sentences is None else train.head(n_sentences), parts


def load(task, template=None, n_sentences=None, held_out=False, verbose=False):
    """`Work` of a task of `TASKS`, on its first sentences (None: all).

    template : the name of a shipped one, or a template's text; None: that of the task.
    held_out: the last tenth of them (of newspapers: other articles than the rest, but for one) is put aside
    and is the only held-out part, "tenth"; no other part is scored. ValueError for another task.
    """
    usual, train, parts = columns_of(task, n_sentences, verbose)
    if held_out:
        n = len(train) - len(train) // 10
        train, parts = train[:n], {"tenth": train[n:]}
    return encode(task, template or usual, train, parts)


set_up = cache(load)  # for tables, which ask for the same work row after row


def clear():
    """Forget the data sets and encodings that were kept for the next row."""
    set_up.cache_clear()
    dataset.cache_clear()


def joint(columns, n_sentences):
    """Words only, labels POS/chunk; `n_sentences` sentences among which all labels occur (None: all)."""
    labels = [f"{p}/{c}" for p, c in zip(columns.columns["pos"], columns.labels, strict=True)]
    words = TokenColumns({"word": columns.columns["word"]}, columns.seq_ptr, labels)
    if n_sentences is None:
        return words
    first = {}
    sentence = np.repeat(np.arange(len(words)), np.diff(words.seq_ptr))
    for label, i in zip(labels, sentence, strict=True):
        first.setdefault(label, int(i))
    needed = set(first.values())
    rest = [i for i in range(len(words)) if i not in needed]
    return words.take(sorted([*needed, *rest[: max(0, n_sentences - len(needed))]]))


# ---- learners, and what they find ----


def descend(corpus, features, w0=None, *, c2=0.0, form="auto", **options):
    """`minimize` from a corpus, its layout included, as the other learners are called; w0: default zeros."""
    from crfbook.chain.objective import Objective
    from crfbook.learners.quasi_newton.lbfgs import minimize

    w0 = np.zeros(features.n_features) if w0 is None else w0
    return minimize(Objective(corpus, features, c2=c2, form=form), w0, c2=c2, **options)


def error_of(corpus, wrong):
    """(per cent of the tokens that are `wrong` (N,), its standard error, per cent of the sequences with one).

    Sequences, not tokens, are independent.
    """
    of_sequence = np.diff(np.concatenate([[0], np.cumsum(wrong)])[corpus.seq_ptr])
    deviation = np.sqrt(len(of_sequence) * of_sequence.var()) / len(wrong)
    return 100.0 * wrong.mean(), 100.0 * deviation, 100.0 * (of_sequence > 0).mean()


def model_error(corpus, model):
    """`error_of` the labels that Viterbi finds with `features` and `w` of what coordinate descent found."""
    from crfbook.chain.inference import decode

    return error_of(corpus, decode(corpus, model.features, model.w) != corpus.labels)


# ---- random chains ----


def random_support(features, n_edge, seed=0):
    """(FeatureSet, w): all node weights and n_edge edge weights of the attributes b > 0, random in size."""
    rng = np.random.default_rng(seed)
    w, first = rng.normal(scale=0.3, size=features.n_features), features.n_node + int(features.edge_ptr[1])
    keep = np.arange(features.n_features) < features.n_node
    keep[first + rng.permutation(features.n_features - first)[:n_edge]] = True
    return select(features, keep), w[keep]


CELLS = 6_000_000  # tables of all classes are at most this large, so that the batched form has a chance


def random_chains(rng, smallest=2000, largest=40_000):
    """(corpus, features, w): random chains, one edge attribute a class, in half of them plain ones too.

    L 10 to 120, 1 to 2,000 classes, `smallest` to `largest` tokens, 0.5 to 60 per cent of the pairs with a
    weight; in a third of the cases all pairs exist as features, as in L1 training, and the others have
    weight 0.
    """
    n_labels = int(np.exp(rng.uniform(np.log(10), np.log(120))))
    n_classes = int(min(np.exp(rng.uniform(0, np.log(2000))), max(1, CELLS // n_labels**2)))
    n_tokens = int(np.exp(rng.uniform(np.log(smallest), np.log(largest))))
    length = rng.integers(1, 2 * int(rng.integers(4, 25)), n_tokens)
    share = 1.0 / np.arange(1, n_classes + 1) ** rng.uniform(0.0, 1.0)
    corpus = make_corpus(
        np.concatenate([[0], np.cumsum(length)[np.cumsum(length) < n_tokens], [n_tokens]]),
        np.arange(n_tokens + 1), np.zeros(n_tokens, int), labels=rng.integers(0, n_labels, n_tokens),
        edge_class=rng.choice(n_classes, n_tokens, p=share / share.sum()),
        class_ptr=2 * np.arange(n_classes + 1),
        class_attr=np.stack([np.zeros(n_classes, int), np.arange(1, n_classes + 1)], axis=1).ravel(),
    )  # fmt: skip
    dense, based = np.exp(rng.uniform(np.log(0.005), np.log(0.6))), rng.random() < 0.5
    every, all_pairs = rng.random() < 1 / 3, np.arange(n_labels**2)
    stored = [rng.random(n_labels**2) < dense for _ in range(n_classes)]
    pairs = [all_pairs[: n_labels**2 * based], *(all_pairs if every else np.flatnonzero(s) for s in stored)]
    pair, edge_ptr = np.concatenate(pairs).astype(np.int32), np.cumsum([0, *map(len, pairs)])
    node = np.array([0, n_labels]), np.arange(n_labels, dtype=np.int32)
    features = FeatureSet(n_labels, 1, n_classes + 1, *node, edge_ptr, pair // n_labels, pair % n_labels)
    w = rng.normal(size=features.n_features)
    if every:
        w[n_labels + len(pairs[0]) :] *= np.concatenate(stored)
    return corpus, features, w


MOST_CELLS = 3e8  # tokens times pairs of labels of a case that the dense form decodes, too


def random_tagger(rng, largest=2500):
    """(corpus, features, w): a `zipf_tagger` of random size.

    L from 20 to `largest`; 3 to 40 stored pairs a label (at most all), scores of pairs between 0.3 and 3
    times those of words. As many tokens as the dense form decodes in a second or so, at least 600.
    """
    n_labels = int(np.exp(rng.uniform(np.log(20), np.log(largest))))
    n_tokens = int(np.clip(MOST_CELLS / n_labels**2, 600, 20_000))
    per_label, size = np.exp(rng.uniform(np.log(3), np.log(40))), np.exp(rng.uniform(np.log(0.3), np.log(3)))
    return zipf_tagger(rng, n_labels, n_tokens, per_label, size)


def zipf_tagger(rng, n_labels, n_tokens, per_label=10.0, size=1.0):
    """(corpus, features, w): labels by Zipf's law, words with some 20 labels each, few pairs of labels.

    per_label : stored pairs a label, about. size : scores of pairs, in those of words.
    """
    n_words, some = 2000, min(20, n_labels)
    zipf, often = (1.0 / np.arange(1, n + 1) / (1.0 / np.arange(1, n + 1)).sum() for n in (n_labels, n_words))
    length = rng.integers(1, 50, n_tokens)
    ends = np.cumsum(length)[np.cumsum(length) < n_tokens]
    seq_ptr = np.concatenate([[0], ends, [n_tokens]])
    words, gold = rng.choice(n_words, n_tokens, p=often), rng.choice(n_labels, n_tokens, p=zipf)
    corpus = make_corpus(seq_ptr, np.arange(n_tokens + 1), words, labels=gold)
    labels = [np.unique(rng.choice(n_labels, some, p=zipf)) for _ in range(n_words)]
    n_pairs = min(n_labels**2, int(per_label * n_labels))
    pair = np.unique(rng.choice(n_labels, n_pairs, p=zipf) * n_labels + rng.choice(n_labels, n_pairs, p=zipf))
    node_ptr, node = np.cumsum([0, *map(len, labels)]), np.concatenate(labels).astype(np.int32)
    edges = np.array([0, len(pair)]), (pair // n_labels).astype(np.int32), (pair % n_labels).astype(np.int32)
    features = FeatureSet(n_labels, n_words, 1, node_ptr, node, *edges)
    w = np.concatenate([rng.normal(3.0, 2.0, len(node)), rng.normal(0.0, 2.0 * size, len(pair))])
    return corpus, features, w
