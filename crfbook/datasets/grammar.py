"""A weighted grammar that writes labelled text: the engine behind the built-in twins.

A grammar is text, a rule per line, "SYMBOL weight : item item ...". An item is one of

    NP  NN.time        a symbol: rules are expanded, otherwise a word of that lexical class is drawn
    that_IN            this word with this tag
    [NP  ]  <PER  >    open and close a chunk; open and close an entity

A symbol or word may end in "/relation" (its dependency relation) and in "^" (it is the head of its rule; the
others depend on it). A rule with "$c" stands for one rule per verb class. Deeper than MAX_DEPTH the first
rule of a symbol is taken, so first rules must lead to words.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

import numpy as np

MAX_DEPTH = 14
_PUNCTUATION = frozenset([",", ".", ":", "``", "''", "-LRB-", "-RRB-"])


def uniform_numbers(seed):
    """A function that returns one uniform number in [0, 1) per call (PCG64, drawn in blocks: 40 ns each)."""
    rng = np.random.default_rng(seed)

    def numbers():
        while True:
            yield from rng.random(8192).tolist()

    return numbers().__next__


class Words:
    """Words of one class with frequencies by Zipf and Mandelbrot: the r-th has weight (r + shift)^-power."""

    def __init__(self, words, power=1.0, shift=2.0):
        self.words = list(words)
        total = list(accumulate((r + shift) ** -power for r in range(1, len(self.words) + 1)))
        self.cumulative = [value / total[-1] for value in total[:-1]]

    def draw(self, u):
        return self.words[bisect_right(self.cumulative, u)]


class Token(NamedTuple):
    word: str
    pos: str
    chunk: str
    entity: str
    deprel: str
    head: int  # position of the head in the sentence, from 1; 0: root


class Grammar:
    """Rules and words, ready to write sentences.

    rules: text as in the module's docstring; lexicon: dict of class -> Words; verb_classes: values of "$c".
    Raises ValueError naming the line of a rule that is malformed or uses an unknown symbol.
    """

    def __init__(self, rules, lexicon, verb_classes=()):
        parsed = {}
        for number, line in enumerate(rules.strip().splitlines(), 1):
            for c in verb_classes if "$c" in line else ("",):
                left, colon, right = line.replace("$c", c).partition(" : ")
                parts = left.split()
                if not line.strip():
                    continue
                if not colon or len(parts) != 2:
                    raise ValueError(
                        f"grammar, line {number}: expected 'SYMBOL weight : items', found {line!r}"
                    )
                parsed.setdefault(parts[0], []).append((float(parts[1]), right.split(), number))
        self.rules = {}
        for symbol, options in parsed.items():
            total = list(accumulate(weight for weight, _, _ in options))
            bodies = [[self._item(item, parsed, lexicon, n) for item in items] for _, items, n in options]
            self.rules[symbol] = ([value / total[-1] for value in total[:-1]], bodies)

    @staticmethod
    def _item(item, symbols, lexicon, number):
        """(kind, value, pos, relation, is_head); kinds: s symbol, w words, l literal, [ ] < > brackets."""
        if item[0] in "[<" and len(item) > 1:
            return item[0], item[1:], "", "", False
        if item in ("]", ">"):
            return item, "", "", "", False
        is_head = item.endswith("^")
        name, _, relation = item.removesuffix("^").partition("/")
        if name in symbols:
            return "s", name, "", relation, is_head
        if name in lexicon:
            return "w", lexicon[name], name.partition(".")[0], relation, is_head
        word, underscore, pos = name.rpartition("_")
        if not underscore or not word or not pos:
            raise ValueError(f"grammar, line {number}: no rule and no words for {name!r}")
        return "l", word, pos, relation or ("punct" if pos in _PUNCTUATION else ""), is_head

    def sentence(self, draw, start="TOP"):
        """One sentence as a list of Token. `draw` comes from `uniform_numbers`."""
        writer = _Writer(self.rules, draw)
        root = writer.expand(start, 0)
        writer.deprel[root], writer.head[root] = "root", -1
        columns = (writer.word, writer.pos, writer.chunk, writer.entity, writer.deprel)
        return [Token(*cells, head + 1) for *cells, head in zip(*columns, writer.head, strict=True)]


class _Writer:
    """One sentence being written: columns that grow, and the brackets that are open."""

    def __init__(self, rules, draw):
        self.rules, self.draw = rules, draw
        self.word, self.pos, self.chunk, self.entity, self.deprel, self.head = [], [], [], [], [], []
        self.chunk_tag = self.entity_tag = "O"  # tag of the next token: B-x after "[x", then I-x, O after "]"

    def expand(self, symbol, depth):
        """Write one expansion of `symbol`; return the position of its head."""
        cumulative, bodies = self.rules[symbol]
        body = bodies[bisect_right(cumulative, self.draw()) if cumulative and depth < MAX_DEPTH else 0]
        members, head = [], -1
        for kind, value, pos, relation, is_head in body:
            if kind == "s":
                at = self.expand(value, depth + 1)
            elif kind == "w":
                at = self._write(value.draw(self.draw()), pos)
            elif kind == "l":
                at = self._write(value, pos)
            else:
                self._bracket(kind, value)
                continue
            members.append((at, relation))
            if is_head:
                head = at
        if head < 0:
            head = members[-1][0]
        for at, relation in members:
            if at != head:
                self.head[at], self.deprel[at] = head, relation or "dep"
        return head

    def _bracket(self, kind, value):
        if kind == "[":
            self.chunk_tag = "B-" + value
        elif kind == "<":
            self.entity_tag = "B-" + value
        elif kind == "]":
            self.chunk_tag = "O"
        else:
            self.entity_tag = "O"

    def _write(self, word, pos):
        self.word.append(word)
        self.pos.append(pos)
        self.chunk.append(self.chunk_tag)
        self.entity.append(self.entity_tag)
        self.deprel.append("dep")
        self.head.append(-1)
        if self.chunk_tag[0] == "B":
            self.chunk_tag = "I" + self.chunk_tag[1:]
        if self.entity_tag[0] == "B":
            self.entity_tag = "I" + self.entity_tag[1:]
        return len(self.word) - 1
