"""The real corpora: readers of what is not plain columns; which file holds a split, what a task takes.

Readers (ATIS, NetTalk, Penn Treebank, Brown, CMUdict) take a path, an open file or bytes, and return
strings as upstream has them; what is odd in a file is handled there and nowhere else. Errors name file and
line.

Each loader gets `files` (dict of file name -> path, as `data_fetch.locate` found them) and the task, and
returns (splits, extra): a dict of "train", "dev", "test" to `TokenColumns`, and what does not fit in columns.
Official splits are taken where they exist; where there is none, whole documents (words, for dictionaries) are
dealt out by `numpy.random.default_rng(0).permutation`, as each loader says.

The functions that take no files (phrase_task, treebank_task, split_words, split_pairs) serve the twins, too.
"""

import re
from itertools import pairwise

import numpy as np

import data_fetch
from crfbook._checks import shown
from crfbook.data.columns import TokenColumns
from crfbook.data.readers import Interner, filled_lines, read_conll, read_conllu, text_lines

# ---- readers ----


def shared_strings(values, shared=None):
    """List of the values, equal strings as one object; shared: a dict, so that several lists share them."""
    shared = {} if shared is None else shared
    return [shared.setdefault(value, value) for value in values]


def supertags(tokens):
    """Supertag of every word: XPOS|deprel|L or R|head UPOS; L: it stands left of its head; root: R|ROOT.

    `tokens` needs the columns xpos, upos, head and deprel; heads count from 1 in their sentence, 0: root.
    """
    xpos, upos, deprel, heads = (tokens.columns[name] for name in ("xpos", "upos", "deprel", "head"))
    tags = []
    for i, (start, stop) in enumerate(pairwise(tokens.seq_ptr.tolist())):
        for t in range(start, stop):
            head = int(heads[t])
            if not 0 <= head <= stop - start:
                raise ValueError(f"sequence {i}, token {t - start}: head {head} of {stop - start} words")
            side = "L" if head > t - start + 1 else "R"
            tags.append(f"{xpos[t]}|{deprel[t]}|{side}|{upos[start + head - 1] if head else 'ROOT'}")
    return shared_strings(tags)


def morphological_tags(tokens):
    """UPOS|features of every word, e.g. NOUN|Case=Nom|Number=Sing; UPOS alone where there are no features."""
    pairs = zip(tokens.columns["upos"], tokens.columns["feats"], strict=True)
    return shared_strings(upos if feats == "_" else f"{upos}|{feats}" for upos, feats in pairs)


def read_atis(source):
    """ATIS: (TokenColumns with slots as labels, list of intents).

    A line is "BOS w1 ... wn EOS", a tab, "O t1 ... tn intent". BOS and EOS are taken off; the last tag is the
    intent.
    """
    words, slots, intents, seq_ptr, shared = [], [], [], [0], {}
    for where, line in filled_lines(source):
        text, tags = (part.split() for part in line.partition("\t")[::2])
        if len(text) != len(tags):
            raise ValueError(f"{where}: expected as many tags as words, found {len(tags)} and {len(text)}")
        if len(text) < 2 or text[0] != "BOS" or text[-1] != "EOS":
            raise ValueError(f"{where}: expected BOS ... EOS before the tab")
        words += shared_strings(text[1:-1], shared)
        slots += shared_strings(tags[1:-1], shared)
        intents += shared_strings(tags[-1:], shared)
        seq_ptr.append(len(words))
    return TokenColumns({"word": words}, seq_ptr, slots, "slot"), intents


def read_nettalk(source):
    """NetTalk: list of (word, phonemes, stress, code), in file order; stress "" where the file has none.

    Phonemes and stress are strings with one character per letter ("-" is silent). The header ends with a line
    of dashes. One word, gunpowder, has its code in the place of its stress; some codes end in a blank.
    """
    words, in_header = [], True
    for where, line in filled_lines(source):
        if in_header:
            in_header = not line.startswith("-----")
            continue
        cells = line.split("\t")
        if len(cells) != 4 or len(cells[0]) != len(cells[1]):
            raise ValueError(
                f"{where}: expected word, phonemes (one a letter), stress, code; found {shown(line)}"
            )
        word, phonemes, stress, code = cells
        if len(stress) != len(word):
            if code.strip():
                raise ValueError(f"{where}: expected a stress mark for every letter, found {shown(stress)}")
            stress, code = "", stress
        words.append((word, phonemes, stress, code.strip()))
    return words


_TREE = re.compile(r"^\(", re.MULTILINE)
_LEAF = re.compile(r"\(([^\s()]+)\s+([^\s()]+)\)")


def read_treebank(source):
    """Leaves of bracketed trees (.mrg): list of sentences of (word, POS), traces (-NONE-) left out.

    A tree begins with a bracket at the beginning of a line. Words keep the treebank's escapes (-LRB-, 1\\/2).
    """
    lines, name = text_lines(source)
    text = "\n".join(line for _, line in lines)
    opened, closed = text.count("("), text.count(")")
    if opened != closed:
        raise ValueError(f"{name}: brackets do not match ({opened} opened, {closed} closed)")
    begins = [match.start() for match in _TREE.finditer(text)]
    trees = (text[a:b] for a, b in pairwise([*begins, len(text)]))
    return [[(word, pos) for pos, word in _LEAF.findall(tree) if pos != "-NONE-"] for tree in trees]


def read_brown(source):
    """Brown corpus: list of sentences of (word, tag); a line of word/tag items is one, a blank one none."""
    sentences = []
    for where, line in filled_lines(source):
        sentences.append([item.rpartition("/")[::2] for item in line.split()])
        for word, tag in sentences[-1]:
            if not word or not tag:
                raise ValueError(f"{where}: expected word/tag, found {shown(word + tag)}")
    return sentences


_VARIANT = re.compile(r"\(\d+\)$")


def read_cmudict(source):
    """CMU dictionary: list of (word, tuple of phones), in file order.

    Alternatives repeat the word without "(2)".
    """
    pairs, shared = [], {}
    for where, line in filled_lines(source):
        cells = line.partition(" #")[0].split()
        if not cells:
            continue
        if len(cells) < 2:
            raise ValueError(f"{where}: expected a word and its phones, found {shown(line)}")
        word, *phones = shared_strings([_VARIANT.sub("", cells[0]), *cells[1:]], shared)
        pairs.append((word, tuple(phones)))
    return pairs


# ---- loaders ----


def _column_files(files, parts, columns, label="ner", separator=None, archive=None):
    """Splits from files of columns (or members of an archive); parts: dict of split -> name of its file."""
    strings, splits = Interner(), {}
    for split, name in parts.items():
        source = data_fetch.read_member(files[archive], name) if archive else files[name]
        splits[split] = read_conll(source, columns, label, separator, strings)
    return splits


def conll2000(files, task):
    """Official train and test. chunking: word, pos; pos: word; joint: word, label POS/chunk (319 in all)."""
    parts = {"train": "conll2000/train.txt", "test": "conll2000/test.txt"}
    splits = _column_files(files, parts, ("word", "pos", "chunk"), None, archive="conll2000.zip")
    return {split: phrase_task(tokens, task) for split, tokens in splits.items()}, {}


def phrase_task(tokens, task):
    """What a task of CoNLL-2000 takes from the columns word, pos, chunk."""
    if task == "chunking":
        return tokens.select(["word", "pos"], "chunk")
    if task == "pos":
        return tokens.select(["word"], "pos")
    pairs = zip(tokens.columns["pos"], tokens.columns["chunk"], strict=True)
    return tokens.select(["word"], shared_strings(map("/".join, pairs)), "pos/chunk")


_TEST_A_TEST_B = {"train": "train", "dev": "testa", "test": "testb"}


def conll2002(files, task):
    """Official train, testa (dev), testb (test) of a language; -DOCSTART- tokens (ned) stay first tokens."""
    parts = {split: f"conll2002/{task}.{part}" for split, part in _TEST_A_TEST_B.items()}
    return _column_files(files, parts, ("word", "pos", "ner"), archive="conll2002.zip"), {}


def conll2003(files, task):
    """The user's own files as they are: -DOCSTART- lines are sentences of one token (14,987 in eng.train)."""
    parts = {split: f"eng.{part}" for split, part in _TEST_A_TEST_B.items()}
    return _column_files(files, parts, ("word", "pos", "chunk", "ner")), {}


def fewnerd(files, task):
    """No official split of these two files: dev.txt is train, test.txt is test."""
    parts = {"train": "dev.txt", "test": "test.txt"}
    return _column_files(files, parts, ("word", "ner"), separator="\t"), {}


def wnut17(files, task):
    """Official train, dev, test. Sentences of the train file end in lines that hold a tab or nothing."""
    parts = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
    return _column_files(files, parts, ("word", "ner"), separator="\t"), {}


def atis(files, task):
    """Official train and test; extra["intents"][split] has an intent per sentence."""
    splits, intents = {}, {}
    for split in ("train", "test"):
        splits[split], intents[split] = read_atis(files[f"atis.{split}.w-intent.iob"])
    return splits, {"intents": intents}


def universal_dependencies(files, task):
    """Official train, dev, test. pos: XPOS; supertag: XPOS|deprel|L or R|head UPOS; morph: UPOS|features."""
    needs = {"pos": "xpos", "upos": "upos", "supertag": "upos xpos head deprel", "morph": "upos feats"}[task]
    columns, shared = ("word", *needs.split()), {}
    parts = {name.removesuffix(".conllu").rpartition("-")[2]: path for name, path in files.items()}
    splits = {split: read_conllu(parts[split], columns, shared) for split in ("train", "dev", "test")}
    return {split: treebank_task(tokens, task) for split, tokens in splits.items()}, {}


def treebank_task(tokens, task):
    """What a task takes from the columns of a Universal Dependencies treebank."""
    derive = {"supertag": supertags, "morph": morphological_tags}
    labels = derive[task](tokens) if task in derive else tokens.columns["xpos" if task == "pos" else task]
    return tokens.select(["word"], labels, task)


def treebank(files, task):
    """199 documents (wsj_0001 to wsj_0199) in order of name, permuted: 159 train, 20 dev, 20 test."""
    members = data_fetch.read_members(files["treebank.zip"], prefix="treebank/combined/", suffix=".mrg")
    return _by_document({name[-12:-4]: read_treebank(raw) for name, raw in members}, (159, 20, 20))


def brown(files, task):
    """500 documents (ca01 to cr09) by name, permuted: 400 train, 50 dev, 50 test; tags as upstream."""
    members = data_fetch.read_members(files["brown.zip"], prefix="brown/c")
    documents = {n[6:]: read_brown(raw) for n, raw in members if len(n) == 10 and n[8:].isdigit()}
    return _by_document(documents, (400, 50, 50))


def _by_document(documents, sizes):
    """Splits of whole documents; extra["documents"][split] has their names in order."""
    names = sorted(documents)
    if len(names) != sum(sizes):
        raise ValueError(f"expected {sum(sizes)} documents, found {len(names)}")
    order, shared = np.random.default_rng(0).permutation(len(names)), {}
    splits, chosen = {}, {}
    for split, part in zip(("train", "dev", "test"), np.split(order, np.cumsum(sizes)[:-1]), strict=True):
        chosen[split] = [names[i] for i in sorted(part)]
        sentences = [sentence for name in chosen[split] for sentence in documents[name]]
        tokens = TokenColumns.from_sentences(sentences, ("word", "pos"), label="pos")
        words, labels = (shared_strings(flat, shared) for flat in (tokens.columns["word"], tokens.labels))
        splits[split] = TokenColumns({"word": words}, tokens.seq_ptr, labels, "pos")
    return splits, {"documents": chosen}


def nettalk(files, task):
    """20,008 words in file order, permuted: the first 18,000 train, the next 2,000 test (8 are left over).

    extra["words"][split] has the words. gunpowder has no stress in the file: left out of stress and joint.
    """
    return split_words(read_nettalk(files["nettalk.data"]), task, 18_000, 2_000)


def split_words(words, task, n_train, n_test):
    """Seeded splits of (word, phonemes, stress, ...) as letters; labels: phonemes, stress, or both ("a1")."""
    order = np.random.default_rng(0).permutation(len(words))
    parts = {"train": order[:n_train], "test": order[n_train : n_train + n_test]}
    splits, chosen = {}, {}
    for split, index in parts.items():
        rows = [words[i] for i in index if task == "phonemes" or words[i][2]]
        chosen[split] = [row[0] for row in rows]
        letters, phonemes, stress = ("".join(row[j] for row in rows) for j in range(3))
        labels = {"phonemes": phonemes, "stress": stress}.get(task)
        if labels is None:
            labels = shared_strings(map("".join, zip(phonemes, stress, strict=True)))
        seq_ptr = np.cumsum([0, *map(len, chosen[split])])
        splits[split] = TokenColumns({"letter": list(letters)}, seq_ptr, list(labels), task)
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
    in_train = {words[i] for i in order[: len(words) * 9 // 10]}
    is_train = np.array([word in in_train for word, _ in pairs], dtype=bool)
    return {"pairs": pairs, "train": np.flatnonzero(is_train), "test": np.flatnonzero(~is_train)}


LOADERS = {
    "conll2000": conll2000, "conll2002": conll2002, "conll2003": conll2003, "treebank": treebank,
    "brown": brown, "atis": atis, "fewnerd-inter": fewnerd, "wnut17": wnut17,
    "ud-english-ewt": universal_dependencies, "ud-turkish-imst": universal_dependencies, "nettalk": nettalk,
    "cmudict": cmudict,
}  # fmt: skip
