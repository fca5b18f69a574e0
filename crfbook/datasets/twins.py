"""The built-in twins: for every corpus, generated text with the same columns and the same kind of labels.

`twin` writes one, deterministic in its seed. What writes its sentences stands in `english`, `word_forms` and
`simulated`, with the words and rules in twins/*.txt. A twin is not its corpus: it is smaller and easier to
read, and its numbers are its own.
"""

import zlib

from crfbook.data.columns import TokenColumns
from crfbook.datasets.corpora import phrase_task, split_pairs, split_words, treebank_task
from crfbook.datasets.english import english_sentences, mistagged, slot_sentences, universal_tag
from crfbook.datasets.grammar import table, uniform_numbers
from crfbook.datasets.simulated import large_label_sequences, sparse_hmm_sequences
from crfbook.datasets.word_forms import arpabet, morphology_sentences, pronounced_words


def twin(name, task, n_train=2000, n_dev=400, n_test=500, seed=0):
    """(splits, extra) of the twin of a data set; n_dev counts where the corpus has a dev part."""
    sizes = {"train": n_train, "dev": n_dev, "test": n_test}
    write, parts = TWINS[name]
    if parts is None:
        return write(task, sizes, seed)
    base = zlib.crc32(name.encode())  # each twin has its own sentences
    splits = {split: write(task, sizes[split], [seed, base, k], split) for k, split in enumerate(parts)}
    return splits, {}


def _tags(section):
    return table("tags", section, "tag : other")


def _conll2000(task, n, seed, split):
    """Words, tags with mistakes of a tagger, chunks; the label I-LST only in test, as in the corpus."""
    sentences = english_sentences(n, seed, unseen_list_mark=split == "test")
    tokens = TokenColumns.from_sentences([[t[:3] for t in s] for s in sentences], ("word", "pos", "chunk"))
    tokens.columns["pos"] = mistagged(tokens.columns["pos"], seed)
    return phrase_task(tokens, task)


def _entities(sentence, section):
    """BIO tags with types renamed as a section of twins/tags.txt says.

    It names the whole type, its first part, or "*", all others; a type without a name becomes O.
    """
    names, out = _tags(section), []
    for token in sentence:
        prefix, _, fine = token.entity.partition("-")
        kind = fine and (names.get(fine) or names.get(fine.partition("_")[0]) or names.get("*"))
        out.append(f"{prefix}-{kind}" if kind else "O")
    return out


def _conll2002(task, n, seed, split):
    rows = []
    for i, s in enumerate(english_sentences(n, seed)):
        tags = [t.pos if task == "esp" else universal_tag(t).capitalize() for t in s]
        row = list(zip((t.word for t in s), tags, _entities(s, "conll names"), strict=True))
        starts_article = task == "ned" and i % 50 == 0
        rows.append([("-DOCSTART-", "-DOCSTART-", "O"), *row] if starts_article else row)
    return TokenColumns.from_sentences(rows, ("word", "pos", "ner"), "ner")


def iob1(tags):
    """BIO tags as CoNLL-2003 writes them: B- only where an entity follows another of its type."""
    out = []
    for previous, tag in zip(["O", *tags], tags, strict=False):
        out.append("I-" + tag[2:] if tag[0] == "B" and previous[2:] != tag[2:] else tag)
    return out


def _conll2003(task, n, seed, split):
    rows = []
    for i, s in enumerate(english_sentences(n, seed)):
        if i % 50 == 0:
            rows.append([("-DOCSTART-", "-X-", "O", "O")])
        tags, chunks = iob1(_entities(s, "conll names")), iob1([t.chunk for t in s])
        rows.append([(t.word, t.pos, chunk, tag) for t, chunk, tag in zip(s, chunks, tags, strict=True)])
    return TokenColumns.from_sentences(rows[:n], ("word", "pos", "chunk", "ner"), "ner")


def _fewnerd(task, n, seed, split):
    rows = [[(t.word, t.entity) for t in s] for s in english_sentences(n, seed)]
    return TokenColumns.from_sentences(rows, ("word", "ner"), "ner")


def _wnut17(task, n, seed, split):
    """Careless text: a third of the sentences in lower case, user names, hash marks, addresses."""
    draw, rows = uniform_numbers([*seed, 1]), []
    for s in english_sentences(n, seed):
        lower = draw() < 0.35
        words = [t.word.lower() if lower else t.word for t in s]
        words = ["#" + word if len(word) > 4 and draw() < 0.01 else word for word in words]
        row = list(zip(words, _entities(s, "wnut names"), strict=True))
        if draw() < 0.2:
            row.insert(0, (f"@{s[-2].word.lower()}{int(draw() * 100)}", "O"))
        if draw() < 0.15:
            row.append((f"http://t.co/{int(draw() * 36**4):x}", "O"))
        rows.append(row)
    return TokenColumns.from_sentences(rows, ("word", "ner"), "ner")


def _treebank(task, n, seed, split):
    rows = [[t[:2] for t in s] for s in english_sentences(n, seed)]
    return TokenColumns.from_sentences(rows, ("word", "pos"), "pos")


def _brown(task, n, seed, split):
    """Tags in the corpus's style: lower case, possessives one word (company's/nn$)."""
    rows = []
    for s in english_sentences(n, seed):
        row = []
        for t in s:
            if t.pos == "POS" and row:
                row[-1] = (row[-1][0] + t.word, row[-1][1] + "$")
            elif t.pos == "IN" and t.deprel == "mark":
                row.append((t.word, "cs"))
            else:
                row.append((t.word, _tags("brown").get(t.pos, t.pos.lower())))
        rows.append(row)
    return TokenColumns.from_sentences(rows, ("word", "pos"), "pos")


def _ewt(task, n, seed, split):
    """Features are those that the tag tells, as English treebanks write them."""
    rows = [
        [(t.word, universal_tag(t), t.pos, _tags("features").get(t.pos, "_"), t.head, t.deprel) for t in s]
        for s in english_sentences(n, seed)
    ]
    names = ("word", "upos", "xpos", "feats", "head", "deprel")
    return treebank_task(TokenColumns.from_sentences(rows, names), task)


def _imst(task, n, seed, split):
    tokens = TokenColumns.from_sentences(morphology_sentences(n, seed), ("word", "upos", "feats"))
    return treebank_task(tokens, task)


def _atis(task, sizes, seed):
    splits, intents = {}, {}
    for k, split in enumerate(("train", "test")):
        requests = slot_sentences(sizes[split], [seed, k])
        splits[split] = TokenColumns.from_sentences([rows for rows, _ in requests], ("word", "slot"), "slot")
        intents[split] = [intent for _, intent in requests]
    return splits, {"intents": intents}


def _nettalk(task, sizes, seed):
    n_train, n_test = sizes["train"], sizes["test"]
    return split_words(pronounced_words(n_train + n_test, seed), task, n_train, n_test)


def _cmudict(task, sizes, seed):
    words = pronounced_words(sizes["train"] + sizes["test"], seed)
    return {}, split_pairs([(word, arpabet(phonemes, stress)) for word, phonemes, stress in words])


def _simulated(task, sizes, seed):
    sizes = {"train": 10, "test": sizes["train"]}  # the paper trains on 10 sequences
    return {s: sparse_hmm_sequences(n, random_state=[seed, k]) for k, (s, n) in enumerate(sizes.items())}, {}


def _large(task, sizes, seed):
    sizes = {s: sizes[s] // 2 for s in ("train", "test")}
    return {
        s: large_label_sequences(n, random_state=2 * seed + k) for k, (s, n) in enumerate(sizes.items())
    }, {}


_TWO, _THREE = ("train", "test"), ("train", "dev", "test")
# name -> (writer, its splits); None: the writer makes all splits itself
TWINS = {
    "conll2000": (_conll2000, _TWO), "conll2002": (_conll2002, _THREE), "conll2003": (_conll2003, _THREE),
    "treebank": (_treebank, _THREE), "brown": (_brown, _THREE), "atis": (_atis, None),
    "fewnerd-inter": (_fewnerd, _TWO), "wnut17": (_wnut17, _THREE), "ud-english-ewt": (_ewt, _THREE),
    "ud-turkish-imst": (_imst, _THREE), "nettalk": (_nettalk, None), "cmudict": (_cmudict, None),
    "simulated-hmm": (_simulated, None), "large-labels": (_large, None),
}  # fmt: skip
