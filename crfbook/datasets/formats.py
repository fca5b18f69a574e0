"""Readers of the formats that are not plain columns: CoNLL-U, ATIS, NetTalk, Penn Treebank, Brown, CMUdict.

Each takes a path, an open file or bytes, and returns strings as upstream has them; what is odd in a file
is handled here and nowhere else. Errors name file and line.
"""

import re

from crfbook.data.columns import TokenColumns
from crfbook.data.readers import clean_bytes, read_source, text_lines

CONLLU_FIELDS = ("id", "word", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def shared_strings(values, shared=None):
    """List of the values, equal strings as one object; shared: a dict, so that several lists share them."""
    shared = {} if shared is None else shared
    return [shared.setdefault(value, value) for value in values]


def _filled_lines(source):
    """(where, line) of every line that is not blank; where: file and line, for messages."""
    lines, name = text_lines(source)
    return ((f"{name}, line {number}", line) for number, line in lines if line.strip())


def read_conllu(source, columns=("word", "upos", "xpos", "feats", "head", "deprel"), shared=None):
    """Universal Dependencies: syntactic words only (no ranges such as 4-5, no empty nodes such as 8.1).

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
        wanted = n_tokens - seq_ptr[-1] + 1
        if int(cells[0]) != wanted:
            raise ValueError(f"{name}, line {number}: expected word {wanted}, found {cells[0]}")
        for out, place in zip(flat, places, strict=True):
            out.append(shared.setdefault(cells[place], cells[place]))
        n_tokens += 1
    if n_tokens > seq_ptr[-1]:
        seq_ptr.append(n_tokens)
    return TokenColumns(dict(zip(columns, flat, strict=True)), seq_ptr)


def supertags(tokens):
    """Supertag of every word: XPOS|deprel|L or R|head UPOS; L: it stands left of its head; root: R|ROOT.

    `tokens` needs the columns xpos, upos, head and deprel; heads count from 1 in their sentence, 0: root.
    """
    xpos, upos, deprel, heads = (tokens.columns[name] for name in ("xpos", "upos", "deprel", "head"))
    tags, bounds = [], tokens.seq_ptr.tolist()
    for i, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
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
    for where, line in _filled_lines(source):
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
    for where, line in _filled_lines(source):
        if in_header:
            in_header = not line.startswith("-----")
            continue
        cells = line.split("\t")
        if len(cells) != 4 or len(cells[0]) != len(cells[1]):
            raise ValueError(f"{where}: expected word, phonemes (one a letter), stress, code; found {line!r}")
        word, phonemes, stress, code = cells
        if len(stress) != len(word):
            if code.strip():
                raise ValueError(f"{where}: expected a stress mark for every letter, found {stress!r}")
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
    opened, closed = text.count("("), text.count(")")
    if opened != closed:
        raise ValueError(f"{name}: brackets do not match ({opened} opened, {closed} closed)")
    begins = [match.start() for match in _TREE.finditer(text)]
    trees = (text[a:b] for a, b in zip(begins, [*begins[1:], len(text)], strict=True))
    return [[(word, pos) for pos, word in _LEAF.findall(tree) if pos != "-NONE-"] for tree in trees]


def read_brown(source):
    """Brown corpus: list of sentences of (word, tag); a line of word/tag items is one, a blank one none."""
    sentences = []
    for where, line in _filled_lines(source):
        sentences.append([item.rpartition("/")[::2] for item in line.split()])
        for word, tag in sentences[-1]:
            if not word or not tag:
                raise ValueError(f"{where}: expected word/tag, found {word + tag!r}")
    return sentences


_VARIANT = re.compile(r"\(\d+\)$")


def read_cmudict(source):
    """CMU dictionary: list of (word, tuple of phones), in file order.

    Alternatives repeat the word without "(2)".
    """
    pairs, shared = [], {}
    for where, line in _filled_lines(source):
        cells = line.partition(" #")[0].split()
        if not cells:
            continue
        if len(cells) < 2:
            raise ValueError(f"{where}: expected a word and its phones, found {line!r}")
        word, *phones = shared_strings([_VARIANT.sub("", cells[0]), *cells[1:]], shared)
        pairs.append((word, tuple(phones)))
    return pairs
