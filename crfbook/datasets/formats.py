"""Readers of the formats that are not plain columns: CoNLL-U, ATIS, NetTalk, Penn Treebank, Brown, CMUdict.

Each takes a path, an open file or bytes, and returns strings as upstream has them; what is odd in a file
is handled here and nowhere else. Errors name file and line.
"""

import re

from crfbook.data.columns import TokenColumns
from crfbook.data.readers import clean_bytes, read_source, text_lines

CONLLU_FIELDS = ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def read_conllu(source, columns=("word", "upos", "xpos", "feats", "head", "deprel"), shared=None):
    """Universal Dependencies: syntactic words only (ranges such as 4-5 and empty nodes such as 8.1 are left
    out).

    columns: names among CONLLU_FIELDS. shared: a dict that lets several files share equal strings.
    """
    places = [CONLLU_FIELDS.index(name) for name in columns]
    shared = {} if shared is None else shared
    flat, seq_ptr = [[] for _ in places], [0]
    n_tokens = 0
    lines, name = text_lines(source)
    for number, line in lines:
        if not line.strip():
            if n_tokens > seq_ptr[-1]:
                seq_ptr.append(n_tokens)
            continue
        if line[0] == "#":
            continue
        cells = line.split("\t")
        if len(cells) != 10:
            raise ValueError(f"{name}, line {number}: expected the 10 columns of CoNLL-U, found {len(cells)}")
        if not cells[0].isdecimal():
            if not re.fullmatch(r"\d+[-.]\d+", cells[0]):
                raise ValueError(f"{name}, line {number}: expected a word number, found {cells[0]!r}")
            continue
        if int(cells[0]) != n_tokens - seq_ptr[-1] + 1:
            raise ValueError(
                f"{name}, line {number}: expected word {n_tokens - seq_ptr[-1] + 1}, found {cells[0]}"
            )
        for out, place in zip(flat, places, strict=True):
            out.append(shared.setdefault(cells[place], cells[place]))
        n_tokens += 1
    if n_tokens > seq_ptr[-1]:
        seq_ptr.append(n_tokens)
    return TokenColumns(dict(zip(columns, flat, strict=True)), seq_ptr)


def supertags(tokens):
    """Supertag of every word: XPOS|deprel|L or R|head UPOS; L: the word stands left of its head; root:
    R|ROOT.

    `tokens` needs the columns xpos, upos, head and deprel; heads are numbered from 1 in their sentence, 0:
    root.
    """
    tags, shared = [], {}
    xpos, upos, deprel = (tokens.columns[c] for c in ("xpos", "upos", "deprel"))
    heads = tokens.columns["head"]
    bounds = tokens.seq_ptr.tolist()
    for i, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
        for t in range(start, stop):
            head = int(heads[t])
            if not 0 <= head <= stop - start:
                raise ValueError(f"sequence {i}, token {t - start}: head {head} of {stop - start} words")
            side = "L" if head > t - start + 1 else "R"
            tag = f"{xpos[t]}|{deprel[t]}|{side}|{upos[start + head - 1] if head else 'ROOT'}"
            tags.append(shared.setdefault(tag, tag))
    return tags


def morphological_tags(tokens):
    """UPOS|features of every word, e.g. NOUN|Case=Nom|Number=Sing; UPOS alone where there are no features."""
    shared = {}
    pairs = zip(tokens.columns["upos"], tokens.columns["feats"], strict=True)
    tags = (upos if feats == "_" else f"{upos}|{feats}" for upos, feats in pairs)
    return [shared.setdefault(tag, tag) for tag in tags]


def read_atis(source):
    """ATIS: (TokenColumns with slots as labels, list of intents).

    A line is "BOS w1 ... wn EOS", a tab, "O t1 ... tn intent". BOS and EOS are taken off;
    the last tag is the intent.
    """
    words, slots, intents, seq_ptr, shared = [], [], [], [0], {}
    lines, name = text_lines(source)
    for number, line in lines:
        if not line.strip():
            continue
        text, _, tags = line.partition("\t")
        text, tags = text.split(), tags.split()
        if len(text) != len(tags):
            raise ValueError(
                f"{name}, line {number}: expected as many tags as words, found {len(tags)} and {len(text)}"
            )
        if len(text) < 2 or text[0] != "BOS" or text[-1] != "EOS":
            raise ValueError(f"{name}, line {number}: expected BOS ... EOS before the tab")
        words += [shared.setdefault(w, w) for w in text[1:-1]]
        slots += [shared.setdefault(s, s) for s in tags[1:-1]]
        intents.append(shared.setdefault(tags[-1], tags[-1]))
        seq_ptr.append(len(words))
    return TokenColumns({"word": words}, seq_ptr, slots, "slot"), intents


def read_nettalk(source):
    """NetTalk: list of (word, phonemes, stress, code), in file order; stress "" where the file has none.

    Phonemes and stress are strings with one character per letter ("-" is silent). The header ends with a line
    of dashes. One word, gunpowder, has its code in the place of its stress; some codes end in a blank.
    """
    words, in_header = [], True
    lines, name = text_lines(source)
    for number, line in lines:
        if in_header:
            in_header = not line.startswith("-----")
            continue
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 4 or len(cells[0]) != len(cells[1]):
            raise ValueError(
                f"{name}, line {number}: expected word, phonemes (one a letter), stress, code; found {line!r}"
            )
        word, phonemes, stress, code = cells
        if len(stress) != len(word):
            if code.strip():
                raise ValueError(
                    f"{name}, line {number}: expected a stress mark for every letter, found {stress!r}"
                )
            stress, code = "", stress
        words.append((word, phonemes, stress, code.strip()))
    return words


_TREE = re.compile(r"^\(", re.MULTILINE)
_LEAF = re.compile(r"\(([^\s()]+)\s+([^\s()]+)\)")


def read_treebank(source):
    """Leaves of bracketed trees (.mrg): list of sentences of (word, POS), traces (-NONE-) left out.

    A tree begins with a bracket at the beginning of a line. Words keep the treebank's escapes (-LRB-, 1\\/2).
    """
    data, name = read_source(source)
    text = clean_bytes(data, name).decode("utf-8")
    if text.count("(") != text.count(")"):
        raise ValueError(
            f"{name}: brackets do not match ({text.count('(')} opened, {text.count(')')} closed)"
        )
    begins = [match.start() for match in _TREE.finditer(text)]
    trees = (text[a:b] for a, b in zip(begins, [*begins[1:], len(text)], strict=True))
    return [[(word, pos) for pos, word in _LEAF.findall(tree) if pos != "-NONE-"] for tree in trees]


def read_brown(source):
    """Brown corpus: list of sentences of (word, tag); a line of word/tag items is a sentence,
    blank lines are nothing.
    """
    sentences = []
    lines, name = text_lines(source)
    for number, line in lines:
        items = [item.rpartition("/") for item in line.split()]
        for word, _, tag in items:
            if not word or not tag:
                raise ValueError(f"{name}, line {number}: expected word/tag, found {word + tag!r}")
        if items:
            sentences.append([(word, tag) for word, _, tag in items])
    return sentences


_VARIANT = re.compile(r"\(\d+\)$")


def read_cmudict(source):
    """CMU dictionary: list of (word, tuple of phones), in file order;
    alternatives repeat the word without "(2)".
    """
    pairs, shared = [], {}
    lines, name = text_lines(source)
    for number, line in lines:
        cells = line.partition(" #")[0].split()
        if not cells:
            continue
        if len(cells) < 2:
            raise ValueError(f"{name}, line {number}: expected a word and its phones, found {line!r}")
        word = _VARIANT.sub("", cells[0])
        pairs.append((shared.setdefault(word, word), tuple(shared.setdefault(p, p) for p in cells[1:])))
    return pairs
