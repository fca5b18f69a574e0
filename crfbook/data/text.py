"""Raw text as tokens and sentences: what stands between somebody's typing and a tagger.

The cuts are those of the Penn Treebank (Marcus, Santorini, Marcinkiewicz 1993), on which the corpora of
English newspapers rest: punctuation stands alone, `don't` is `do` + `n't`, `firm's` is `firm` + `'s`, `U.S.`
and `1,000.5` are one token each. Written for English; a corpus with other cuts needs its own tokeniser, or
its tagger sees words that it never met in training.
"""

import re

_ABBREVIATIONS = """
    Mr Mrs Ms Dr Prof Messrs Sen Rep Gov Gen Col Lt Sgt Capt Rev Hon St Mt Jr Sr
    Inc Corp Co Cos Ltd Bros Dept Univ
    Jan Feb Mar Apr Aug Sep Sept Oct Nov Dec vs etc cf al approx
"""
_TOKEN = re.compile(
    rf"""
      https?://\S*[\w/] | [\w.+-]+@[\w-]+(?:\.[\w-]+)+        # addresses
    | \.\.\.+ | --+                                           # ellipsis, dash
    | [\U0001F1E6-\U0001F1FF]{{2}} | [\d\#*]\ufe0f?\u20e3        # flags, keycaps
    | (?:[^\W\d_]\.){{2,}}                                    # U.S.  p.m.
    | (?:{"|".join(_ABBREVIATIONS.split())})\.(?!\w)          # Mr.  Inc.
    | No\.(?=\s*\d)                                           # No. 5, but not the answer No.
    | (?!I\.)[A-Z]\.(?=\s+[A-Z])                              # J. Smith
    | ['’]\d\ds?\b                                            # '90s
    | \w[\w\u0300-\u036f]*(?:[-&/'’]\w+|(?<=\d)[.,:]\d+|\.[a-z]\w*)*  # words, numbers, example.com
    | \S(?:\u200d\S | [\u0300-\u036f\ufe0e\ufe0f\U0001F3FB-\U0001F3FF])* # all else: a character, an emoji
    """,
    re.X,
)
_CLITIC = re.compile(r"(?i)(.+?)(n['’]t|['’](?:s|m|d|re|ve|ll))|(can)(not)")
_PENN = {
    "(": "-LRB-",
    ")": "-RRB-",
    "[": "-LSB-",
    "]": "-RSB-",
    "{": "-LCB-",
    "}": "-RCB-",
    "“": "``",
    "”": "''",
    "‘": "`",
}
_CLOSING = set("\"'’”)]}")


def sentences(text, *, penn_symbols=False):
    """Cut a text into sentences and these into tokens: a list of lists of strings.

    A sentence ends at `.`, `?` or `!` (with the closing quotes and brackets that touch it) unless a small
    letter follows, at an ellipsis before a capital, and at an empty line. The stop of an abbreviation never
    ends one: `He left the U.S. She stayed.` is one sentence to this function, as it cannot know better.
    penn_symbols: quotes and brackets as the Treebank and CoNLL-2000 write them: `` '' ` ' -LRB- -RRB-, and '
    for ’; otherwise every token is a piece of the text, and only white space is lost.
    Raises TypeError for anything but a string. Cost O(length of the text).
    """
    if not isinstance(text, str):
        raise TypeError(f"text: expected one string, got {type(text).__name__}")
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        found.extend(_cut_into_sentences(_tokens(paragraph)))
    return [
        [_penn(token, before) if penn_symbols else token for token, _, before in sentence]
        for sentence in found
    ]


def _tokens(text):
    """Tokens of a paragraph as (token, start, character before it)."""
    found = []
    for match in _TOKEN.finditer(text):
        start, token = match.start(), match.group()
        cut = _CLITIC.fullmatch(token)
        parts = [part for part in cut.groups() if part] if cut else [token]
        for part in parts:
            found.append((part, start, text[start - 1 : start]))
            start += len(part)
    return found


def _cut_into_sentences(tokens):
    sentence, ended = [], False
    for token, start, before in tokens:
        touches = start > 0 and not before.isspace()
        if ended and not (touches and token in _CLOSING or token in ".?!"):
            if not token[0].islower():
                yield sentence
                sentence = []
            ended = False
        sentence.append((token, start, before))
        ended = ended or token in (".", "?", "!") or token.startswith("...")
    if sentence:
        yield sentence


def _penn(token, before):
    opens = not before or before.isspace() or before in "([{"
    if token == '"':
        return "``" if opens else "''"
    if token == "'" and opens:
        return "`"
    return _PENN.get(token, token.replace("’", "'"))
