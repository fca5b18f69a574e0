"""The real corpora: which file holds which split, and which columns a task takes from it.

Each loader gets `files` (dict of file name -> path, as `data_fetch.locate` found them) and the task, and
returns (splits, extra): a dict of "train", "dev", "test" to `TokenColumns`, and what does not fit in columns.
Official splits are taken where they exist; where there is none, whole documents (words, for dictionaries) are
dealt out by `numpy.random.default_rng(0).permutation`, as each loader says.
"""

import numpy as np

from crfbook.data.columns import TokenColumns
from crfbook.data.readers import Interner, read_conll
from crfbook.datasets.formats import (
    morphological_tags,
    read_atis,
    read_brown,
    read_cmudict,
    read_conllu,
    read_nettalk,
    read_treebank,
    supertags,
)


def _member(path, member):
    import data_fetch

    return data_fetch.read_member(path, member)


def conll2000(files, task):
    """Official train and test. chunking: word, pos; pos: word alone; joint: word alone,
    label POS/chunk (319 in all).
    """
    strings, splits = Interner(), {}
    for split in ("train", "test"):
        raw = _member(files["conll2000.zip"], f"conll2000/{split}.txt")
        if task == "chunking":
            splits[split] = read_conll(raw, ("word", "pos", "chunk"), label="chunk", interner=strings)
        elif task == "pos":
            splits[split] = read_conll(raw, ("word", "pos", None), label="pos", interner=strings)
        else:
            splits[split] = joint_labels(
                read_conll(raw, ("word", "pos", "chunk"), interner=strings), "pos", "chunk"
            )
    return splits, {}


def joint_labels(tokens, first, second):
    """The columns left of `first`, with labels "first/second" (one object per different label)."""
    shared = {}
    pairs = zip(tokens.columns[first], tokens.columns[second], strict=True)
    labels = [shared.setdefault(pair, f"{pair[0]}/{pair[1]}") for pair in pairs]
    return tokens.select([n for n in tokens.names if n not in (first, second)], labels, f"{first}/{second}")


def conll2002(files, task):
    """Official train, testa (dev), testb (test) of one language;
    -DOCSTART- tokens (ned) stay first tokens.
    """
    strings = Interner()
    return {
        split: read_conll(
            _member(files["conll2002.zip"], f"conll2002/{task}.{part}"),
            ("word", "pos", "ner"),
            "ner",
            interner=strings,
        )
        for split, part in (("train", "train"), ("dev", "testa"), ("test", "testb"))
    }, {}


def conll2003(files, task):
    """The user's own files, as they are: -DOCSTART- lines are sentences of one token (14,987 in
    eng.train).
    """
    strings = Interner()
    return {
        split: read_conll(files[f"eng.{part}"], ("word", "pos", "chunk", "ner"), "ner", interner=strings)
        for split, part in (("train", "train"), ("dev", "testa"), ("test", "testb"))
    }, {}


def fewnerd(files, task):
    """No official split of these two files: dev.txt is train, test.txt is test."""
    strings = Interner()
    return {
        split: read_conll(files[f"{part}.txt"], ("word", "ner"), "ner", separator="\t", interner=strings)
        for split, part in (("train", "dev"), ("test", "test"))
    }, {}


def wnut17(files, task):
    """Official train, dev, test. Sentences of the train file end in lines that hold a tab or nothing."""
    strings = Interner()
    parts = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
    return {
        split: read_conll(files[part], ("word", "ner"), "ner", separator="\t", interner=strings)
        for split, part in parts.items()
    }, {}


def atis(files, task):
    """Official train and test; extra["intents"][split] has an intent per sentence."""
    splits, intents = {}, {}
    for split in ("train", "test"):
        splits[split], intents[split] = read_atis(files[f"atis.{split}.w-intent.iob"])
    return splits, {"intents": intents}


def universal_dependencies(files, task):
    """Official train, dev, test. pos: XPOS; upos; supertag: XPOS|deprel|L or R|head UPOS; morph:
    UPOS|features.
    """
    needs = {
        "pos": ("word", "xpos"),
        "upos": ("word", "upos"),
        "supertag": ("word", "upos", "xpos", "head", "deprel"),
        "morph": ("word", "upos", "feats"),
    }
    derive = {"supertag": supertags, "morph": morphological_tags}
    shared, splits = {}, {}
    for filename, path in files.items():
        split = filename.removesuffix(".conllu").rpartition("-")[2]
        tokens = read_conllu(path, needs[task], shared)
        labels = derive[task](tokens) if task in derive else tokens.columns[needs[task][1]]
        splits[split] = tokens.select(["word"], labels, task)
    return {split: splits[split] for split in ("train", "dev", "test")}, {}


def treebank(files, task):
    """199 documents (wsj_0001 to wsj_0199) in order of name, permuted: 159 train, 20 dev, 20 test."""
    import data_fetch

    members = data_fetch.read_members(files["treebank.zip"], prefix="treebank/combined/", suffix=".mrg")
    return _by_document({name[-12:-4]: read_treebank(raw) for name, raw in members}, (159, 20, 20))


def brown(files, task):
    """500 documents (ca01 to cr09) in order of name, permuted: 400 train, 50 dev, 50 test;
    tags as upstream.
    """
    import data_fetch

    members = data_fetch.read_members(files["brown.zip"], prefix="brown/c")
    return _by_document(
        {n[6:]: read_brown(raw) for n, raw in members if len(n) == 10 and n[8:].isdigit()}, (400, 50, 50)
    )


def _by_document(documents, sizes):
    """Splits of whole documents; extra["documents"][split] has their names in order."""
    names = sorted(documents)
    if len(names) != sum(sizes):
        raise ValueError(f"expected {sum(sizes)} documents, found {len(names)}")
    order = np.random.default_rng(0).permutation(len(names))
    splits, chosen, shared = {}, {}, {}
    bounds = np.cumsum([0, *sizes])
    for split, start, stop in zip(("train", "dev", "test"), bounds[:-1], bounds[1:], strict=True):
        chosen[split] = [names[i] for i in sorted(order[start:stop])]
        sentences = [sentence for name in chosen[split] for sentence in documents[name]]
        tokens = TokenColumns.from_sentences(sentences, ("word", "pos"), label="pos")
        words = [shared.setdefault(word, word) for word in tokens.columns["word"]]
        labels = [shared.setdefault(tag, tag) for tag in tokens.labels]
        splits[split] = TokenColumns({"word": words}, tokens.seq_ptr, labels, "pos")
    return splits, {"documents": chosen}


def nettalk(files, task):
    """20,008 words in file order, permuted: the first 18,000 train, the next 2,000 test (8 are left over).

    extra["words"][split] has the words. gunpowder has no stress in the file and is left out of stress and
    joint.
    """
    return split_words(read_nettalk(files["nettalk.data"]), task, 18_000, 2_000)


def split_words(words, task, n_train, n_test):
    """Seeded splits of (word, phonemes, stress, ...) as letters with labels: phonemes, stress,
    or both ("a1").
    """
    order = np.random.default_rng(0).permutation(len(words))
    parts = {"train": order[:n_train], "test": order[n_train : n_train + n_test]}
    splits, chosen = {}, {}
    for split, index in parts.items():
        rows = [words[i] for i in index if task == "phonemes" or words[i][2]]
        chosen[split] = [row[0] for row in rows]
        seq_ptr = np.cumsum([0, *map(len, chosen[split])])
        phonemes, stress = "".join(row[1] for row in rows), "".join(row[2] for row in rows)
        labels = {"phonemes": list(phonemes), "stress": list(stress)}.get(task)
        if labels is None:
            shared = {}
            labels = [
                shared.setdefault(pair, pair[0] + pair[1]) for pair in zip(phonemes, stress, strict=True)
            ]
        splits[split] = TokenColumns({"letter": list("".join(chosen[split]))}, seq_ptr, labels, task)
    return splits, {"words": chosen}


def cmudict(files, task):
    """Letters and phones are not aligned, so there are no columns: see `split_pairs`."""
    return {}, split_pairs(read_cmudict(files["cmudict.dict"]))


def split_pairs(pairs):
    """extra of a dictionary: "pairs", a list of (word, tuple of phones), alternatives repeat the word;

    "train" and "test": positions in it, int64; nine in ten of the different words (sorted, permuted) are
    train, so that alternatives of a word stay together.
    """
    words = sorted({word for word, _ in pairs})
    order = np.random.default_rng(0).permutation(len(words))
    n_train = len(words) * 9 // 10
    in_train = {words[i] for i in order[:n_train]}
    is_train = np.array([word in in_train for word, _ in pairs], dtype=bool)
    return {"pairs": pairs, "train": np.flatnonzero(is_train), "test": np.flatnonzero(~is_train)}


LOADERS = {
    "conll2000": conll2000,
    "conll2002": conll2002,
    "conll2003": conll2003,
    "treebank": treebank,
    "brown": brown,
    "atis": atis,
    "fewnerd-inter": fewnerd,
    "wnut17": wnut17,
    "ud-english-ewt": universal_dependencies,
    "ud-turkish-imst": universal_dependencies,
    "nettalk": nettalk,
    "cmudict": cmudict,
}
