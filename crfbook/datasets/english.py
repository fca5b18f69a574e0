"""The built-in English with tags, chunks, entities and dependencies at once, and requests for flights.

English is small, but what makes real text hard is in it: words that are nouns and verbs (rise, report,
plans), past tenses that are participles, names that are words (Rose, Banks) or several kinds of name
(Washington, Jordan), noun phrases side by side, prepositional phrases, "that" in three roles, and words that
occur once or only in the test part.

Requests make slots a sequence problem: a city is a departure, an arrival or a stop by the words before it,
sometimes far before it ("to boston and denver"); "at nine" is a departure or an arrival by the verb;
"one way" ends where "one" does not.

The twins of corpora of sentences are written from both, with the corpus's columns and its kind of labels.
Words, grammars and tags stand in twins/english_words.txt, english_grammar.txt, tags.txt and flights.txt.
"""

from functools import cache

import numpy as np

from crfbook.data.columns import TokenColumns
from crfbook.datasets.corpora import phrase_task, treebank_task
from crfbook.datasets.grammar import (
    Grammar,
    Token,
    table,
    text_file,
    uniform_numbers,
    weighted,
    word_classes,
    zipf,
)


def made_up(file, draw):
    """dict of list -> different made-up words, of one or two syllables and an ending, as `file` asks.

    A list with a capital holds names. Lists draw one after another: a longer one changes those below it.
    """
    sounds = table("english_words", "syllables", "part : letters ...")
    single = [onset for onset in sounds["onset"] if len(onset) == 1]

    def one(options):
        return options[int(draw() * len(options))]

    lists = {}
    for _, (name, count), endings in file.rows("made up", "list <count> : ending ..."):
        words = {}
        while len(words) < count:
            stem = one(sounds["onset"]) + one(sounds["vowel"])
            if draw() < 0.55:
                stem += one(sounds["middle"]) + one(single) + one(sounds["vowel"])
            word = stem + one(sounds["coda"]) + one(endings)
            if len(word) > 3:
                words[word.capitalize() if name[0].isupper() else word] = None
        lists[name] = list(words)
    return lists


def plural(noun):
    """A noun's plural, as spelling has it; a verb's third person is formed in the same way."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return table("english_words", "irregular nouns", "noun : plural").get(noun, noun + "s")


def verb_forms(verb):
    """dict of tag -> form; the third person is formed as a noun's plural, which makes the two ambiguous."""
    stem = verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb
    regular = verb[:-1] + "ied" if verb.endswith("y") and verb[-2] not in "aeiou" else stem + "ed"
    irregular = table("english_words", "irregular verbs", "verb : past participle")
    past, participle = irregular.get(verb, (regular, regular))
    doubled = verb in table("english_words", "doubled", "form : verb ...")["ing"]
    ing = verb + verb[-1] + "ing" if doubled else stem + "ing"
    return {"VB": verb, "VBP": verb, "VBZ": plural(verb), "VBD": past, "VBN": participle, "VBG": ing}


@cache
def lexicon():
    """dict of class -> Choice; the same whatever the seed: corpora differ, the language does not."""
    file, draw = text_file("english_words"), uniform_numbers(2000)
    lists = made_up(file, draw)
    lists["figure"] = list(dict.fromkeys(str(int(2 + 1 / (1e-4 + draw() ** 2))) for _ in range(300)))
    out = word_classes(file, "words", lists)
    out["NNS"] = zipf([plural(noun) for noun in out["NN"].options])
    out["RB.ly"] = zipf([word + "ly" for word in out["JJ"].options if not word.endswith(("y", "ly"))])
    for kind, verbs in word_classes(file, "verbs", lists).items():
        forms = [verb_forms(verb) for verb in verbs.options]
        out |= {f"{tag}.{kind}": verbs._replace(options=[form[tag] for form in forms]) for tag in forms[0]}
    return out


@cache
def english_grammar():
    verb_classes = [name[3:] for name in lexicon() if name.startswith("VB.")]
    return Grammar(text_file("english_grammar"), lexicon(), verb_classes)


def english_sentences(n, seed, unseen_list_mark=False):
    """n sentences as lists of Token, deterministic in the seed.

    unseen_list_mark : the last sentence begins with a list mark of two tokens, so that its label I-LST occurs
        once, as in the test part of CoNLL-2000 (where training never shows it).
    """
    draw, grammar = uniform_numbers(seed), english_grammar()
    sentences = [_polish(grammar.sentence(draw)) for _ in range(n)]
    if unseen_list_mark and sentences:
        sentences[-1] = _with_list_mark(sentences[-1])
    return sentences


def _polish(sentence):
    """Capital at the beginning; "an" before vowels."""
    out = []
    for token, following in zip(sentence, [*sentence[1:], None], strict=True):
        word = token.word
        if word == "a" and following is not None and following.word[0] in "aeiouAEIO":
            word = "an"
        if not out or (len(out) == 1 and out[0].word == "``"):
            word = word[0].upper() + word[1:]
        out.append(token if word is token.word else token._replace(word=word))
    return out


def _with_list_mark(sentence):
    root = 2 + next(i for i, token in enumerate(sentence, 1) if token.head == 0)
    mark = [Token("2", "LS", "B-LST", "O", "discourse", root), Token(".", ".", "I-LST", "O", "punct", root)]
    return mark + [token._replace(head=token.head + 2 if token.head else 0) for token in sentence]


def universal_tag(token):
    """UPOS of a Token, from its tag and relation (be, have and do are AUX when they help)."""
    if token.deprel in ("aux", "aux:pass", "cop"):
        return "AUX"
    if token.pos == "IN" and token.deprel == "mark":
        return "SCONJ"
    return table("tags", "upos", "tag : other").get(token.pos, "PUNCT")


def mistagged(tags, seed, rate=0.08):
    """The tags with mistakes of an automatic tagger: a confusable tag is replaced with probability `rate`."""
    draw, out = uniform_numbers([*np.atleast_1d(seed), 1]), []
    confused = table("tags", "confused", "tag : other ...")
    for tag in tags:
        u, others = draw(), confused.get(tag)
        out.append(others[int(u / rate * len(others))] if others and u < rate else tag)
    return out


@cache
def _requests():
    """The grammar of requests, and the Choice of the intent: the symbol ask_<intent> begins a request."""
    file = text_file("flights")
    lexicon = word_classes(file, "words", made_up(file, uniform_numbers(4000)))
    intents = file.table("intents", "intent : <weight>")
    return Grammar(file, lexicon), weighted(intents, intents.values())


def slot_sentences(n, seed):
    """n requests as (list of (word, slot), intent), deterministic in the seed."""
    draw, (grammar, intents), out = uniform_numbers(seed), _requests(), []
    for _ in range(n):
        intent = intents.draw(draw())
        tokens = grammar.sentence(draw, "ask_" + intent)
        out.append(([(token.word, token.entity) for token in tokens], intent))
    return out


# ---- the twins ----


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


def _atis(task, sizes, seed):
    splits, intents = {}, {}
    for k, split in enumerate(("train", "test")):
        requests = slot_sentences(sizes[split], [seed, k])
        splits[split] = TokenColumns.from_sentences([rows for rows, _ in requests], ("word", "slot"), "slot")
        intents[split] = [intent for _, intent in requests]
    return splits, {"intents": intents}


_TWO, _THREE = ("train", "test"), ("train", "dev", "test")
# name -> (writer, its splits); None: the writer makes all splits itself
TWINS = {
    "conll2000": (_conll2000, _TWO), "conll2002": (_conll2002, _THREE), "conll2003": (_conll2003, _THREE),
    "treebank": (_treebank, _THREE), "brown": (_brown, _THREE), "atis": (_atis, None),
    "fewnerd-inter": (_fewnerd, _TWO), "wnut17": (_wnut17, _THREE), "ud-english-ewt": (_ewt, _THREE),
}  # fmt: skip
