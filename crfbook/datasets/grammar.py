"""What writes the built-in twins: text files of words and rules, weighted choices, and a grammar.

A text file (`twins/*.txt`) has sections "[name]" of lines "key ... : value ...", with blanks around the
colon. A line that begins with a blank continues the line above; one that begins with "#" is a comment; a lone
"_" is the empty string.

A grammar is a section [rules], a rule a line, "SYMBOL weight : item item ...". An item is one of

    NP  NN.time        a symbol: rules are expanded, otherwise a word of that lexical class is drawn
    that_IN            this word with this tag
    [NP  ]  <PER  >    open and close a chunk; open and close an entity

A symbol or word may end in "/relation" (its dependency relation) and in "^" (it is the head of its rule; the
others depend on it). A rule with "$c" stands for one rule per verb class. Deeper than MAX_DEPTH the first
rule of a symbol is taken, so first rules must lead to words.
"""

import re
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crfbook._checks import shown
from crfbook.data.readers import text_lines

MAX_DEPTH = 14
_FOLDER = Path(__file__).parent / "twins"
_LIST = re.compile(r"@(\w+)(?::(\d+)-(\d*))?")
_PUNCTUATION = frozenset([",", ".", ":", "``", "''", "-LRB-", "-RRB-"])


class TextFile:
    """The sections of a text file. Raises ValueError with file, line and what was expected for a wrong line.

    source : path, open file or bytes, as `crfbook.data.readers.text_lines` takes them
    """

    def __init__(self, source):
        lines, self.name = text_lines(source)
        self.sections, rows = {}, None
        for number, line in lines:
            cells = ["" if cell == "_" else cell for cell in line.split()]
            where = f"{self.name}, line {number}"
            if not cells or line[0] == "#":
                continue
            if line[0] == "[" and cells[-1][-1:] == "]":
                if (title := line.strip()[1:-1]) in self.sections:
                    raise ValueError(f"{where}: expected a new section, found [{title}] again")
                rows = self.sections[title] = []
            elif rows is None:
                raise ValueError(f"{where}: expected a [section] first, found {shown(line)}")
            elif line[0].isspace() and rows and ":" not in cells:
                rows[-1][2].extend(cells)
            elif line[0].isspace() or cells.count(":") != 1:
                raise ValueError(f"{where}: expected 'key : value', found {shown(line)}")
            else:
                colon = cells.index(":")
                rows.append((where, cells[:colon], cells[colon + 1 :]))

    def rows(self, section, shape):
        """Iterate over the lines of a section as (where, key, value); where: file and line, for messages.

        shape : what the lines look like, e.g. "symbol <weight> : item ...". A name in <> is a number, 0 or
            more; "..." after a name: one or more of it. One expected cell stands for itself, several are a
            tuple.
        """
        if section not in self.sections:
            raise ValueError(f"{self.name}: expected a section [{section}]")
        names = [side.split() for side in shape.split(" : ")]
        for where, *sides in self.sections[section]:
            try:
                key, value = map(_cells, names, sides)
            except ValueError:
                found = " : ".join(" ".join(cell or "_" for cell in side) for side in sides)
                raise ValueError(f"{where}: expected {shown(shape)}, found {shown(found)}") from None
            yield where, key, value

    def table(self, section, shape):
        """A section as dict of key -> value. Raises ValueError for a key that has two lines."""
        out = {}
        for where, key, value in self.rows(section, shape):
            if key in out:
                raise ValueError(f"{where}: expected one line for {key!r}, found a second")
            out[key] = value
        return out


def _cells(names, cells):
    many = names[-1] == "..."
    if many:
        names = names[:-1] + names[-2:-1] * (len(cells) - len(names) + 1)
    pairs = zip(names, cells, strict=True)
    found = tuple(_number(cell) if name[0] == "<" else cell for name, cell in pairs)
    return found if many or len(found) > 1 else found[0]


def _number(cell):
    if not 0 <= (value := float(cell)) < np.inf:
        raise ValueError
    return value


@cache
def text_file(name):
    """The text file twins/<name>.txt, read once."""
    return TextFile(_FOLDER / f"{name}.txt")


@cache
def table(name, section, shape):
    """A section of the text file twins/<name>.txt as a dict, read once."""
    return text_file(name).table(section, shape)


class Choice(NamedTuple):
    """Options with their cumulative frequencies (the last one's, 1, is left out)."""

    options: list
    cumulative: list

    def draw(self, u):
        """The option for a uniform number u in [0, 1)."""
        return self.options[bisect_right(self.cumulative, u)]


def weighted(options, weights):
    """A Choice among options (any number of them) with these weights."""
    total = list(accumulate(weights))
    return Choice(list(options), [value / total[-1] for value in total[:-1]])


def zipf(words, power=1.0, shift=2.0):
    """A Choice with frequencies by Zipf and Mandelbrot: the r-th word has weight (r + shift)^-power."""
    return weighted(words, [(r + shift) ** -power for r in range(1, len(words) + 1)])


def word_classes(file, section, lists, distinct=True):
    """dict of class -> Choice, from lines "class <power> <shift> : word ...", most frequent words first.

    lists : dict of name -> made-up words; the cell "@name" stands for all of them, "@name:60-" for those
        from position 60 on, "@name:60-200" for those from 60 up to 200
    distinct : a word of a class with made-up words counts once; elsewhere a repeated word is more frequent
    """
    out = {}
    for where, (name, power, shift), cells in file.rows(section, "class <power> <shift> : word ..."):
        words = [word for cell in cells for word in _listed(cell, lists, where)]
        if distinct and len(words) > len(cells):
            words = list(dict.fromkeys(words))
        out[name] = zipf(words, power, shift)
    return out


def _listed(cell, lists, where):
    if cell[:1] != "@":
        return [cell]
    found = _LIST.fullmatch(cell)
    if found is None or found[1] not in lists:
        raise ValueError(f"{where}: expected @ and a list ({', '.join(lists)}), found {shown(cell)}")
    return lists[found[1]][int(found[2] or 0) : int(found[3]) if found[3] else None]


def uniform_numbers(seed):
    """A function that returns one uniform number in [0, 1) per call (PCG64, drawn in blocks: 40 ns each)."""
    rng = np.random.default_rng(seed)

    def numbers():
        while True:
            yield from rng.random(8192).tolist()

    return numbers().__next__


class Token(NamedTuple):
    word: str
    pos: str
    chunk: str
    entity: str
    deprel: str
    head: int  # position of the head in the sentence, from 1; 0: root


class Grammar:
    """Rules and words, ready to write sentences.

    file : TextFile with a section [rules]
    lexicon : dict of class -> Choice
    verb_classes : values of "$c"

    Raises ValueError naming the line of a rule that is malformed or uses an unknown symbol.
    """

    def __init__(self, file, lexicon, verb_classes=()):
        parsed = {}
        for where, (symbol, weight), items in file.rows("rules", "SYMBOL <weight> : item ..."):
            for c in verb_classes if "$c" in symbol else ("",):
                body = [item.replace("$c", c) for item in items]
                parsed.setdefault(symbol.replace("$c", c), []).append((weight, body, where))
        self.rules = {}
        for symbol, options in parsed.items():
            weights, bodies, places = zip(*options, strict=True)
            bodies = [
                [self._item(i, parsed, lexicon, at) for i in b] for b, at in zip(bodies, places, strict=True)
            ]
            self.rules[symbol] = weighted(bodies, weights)

    @staticmethod
    def _item(item, symbols, lexicon, where):
        """(kind, value, pos, relation, is_head); kinds: s symbol, w words, l literal, [ ] < > brackets."""
        if item[:1] in ("[", "<") and len(item) > 1 or item in ("]", ">"):
            return item[0], item[1:], "", "", False
        is_head = item.endswith("^")
        name, _, relation = item.removesuffix("^").partition("/")
        if name in symbols:
            return "s", name, "", relation, is_head
        if name in lexicon:
            return "w", lexicon[name], name.partition(".")[0], relation, is_head
        word, _, pos = name.rpartition("_")
        if not word or not pos:
            raise ValueError(f"{where}: no rule and no words for {shown(name)}")
        return "l", word, pos, relation or ("punct" if pos in _PUNCTUATION else ""), is_head

    def sentence(self, draw, start="TOP"):
        """One sentence as a list of Token. `draw` comes from `uniform_numbers`."""
        writer = _Writer(self.rules, draw)
        root = writer.expand(start, 0)
        writer.tokens[root][4:] = "root", 0
        return [Token(*cells) for cells in writer.tokens]


class _Writer:
    """One sentence being written: tokens as lists of what a Token holds, and the tags of open brackets."""

    def __init__(self, rules, draw):
        self.rules, self.draw, self.tokens = rules, draw, []
        self.tags = {"[": "O", "<": "O"}  # tag of the next token: B-x after "[x", then I-x, O after "]"

    def expand(self, symbol, depth):
        """Write one expansion of `symbol`; return the position of its head."""
        options = self.rules[symbol]
        deep = depth >= MAX_DEPTH or not options.cumulative
        members, head = [], -1
        for kind, value, pos, relation, is_head in options.options[0] if deep else options.draw(self.draw()):
            if kind in "[<":
                self.tags[kind] = "B-" + value
                continue
            if kind in "]>":
                self.tags["[" if kind == "]" else "<"] = "O"
                continue
            if kind == "s":
                at = self.expand(value, depth + 1)
            else:
                at = self._write(value.draw(self.draw()) if kind == "w" else value, pos)
            members.append((at, relation))
            if is_head:
                head = at
        if head < 0:
            head = members[-1][0]
        for at, relation in members:
            if at != head:
                self.tokens[at][4:] = relation or "dep", head + 1
        return head

    def _write(self, word, pos):
        self.tokens.append([word, pos, *self.tags.values(), "dep", 0])
        for bracket, tag in self.tags.items():
            if tag[0] == "B":
                self.tags[bracket] = "I" + tag[1:]
        return len(self.tokens) - 1
