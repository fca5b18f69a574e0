"""Words that are built from parts: an agglutinative language, and English spellings with their sounds.

The invented language has its verb last, and vowel harmony. It was made to have what makes Turkish hard for
taggers: hundreds of labels (a part of speech with its features), long words that carry them as chains of
suffixes, and forms that only the context tells apart: the accusative and "his" after a consonant (both -i),
the third person and the bare stem, nouns and verbs that share stems.

The spellings are made-up English with phonemes and stress, aligned letter by letter. The symbols are
NetTalk's: one phoneme per letter, "-" for a silent one; stress 1, 2, 0 on the vowel of a syllable, ">" before
it and "<" after it. A sound depends on what surrounds its letter: c and g before e, i, y; s between vowels; a
vowel before a final silent e, before r, in a syllable without stress (which an ending far to the right
decides). About one vowel in twelve has an irregular sound that nothing predicts, as in English.

Stems, suffixes, frames, letters and sounds stand in twins/morphology.txt and twins/spelling.txt.
"""

from functools import cache

from crfbook.data.columns import TokenColumns
from crfbook.datasets.corpora import split_pairs, split_words, treebank_task
from crfbook.datasets.grammar import table, text_file, uniform_numbers, weighted, word_classes, zipf

# ---- the agglutinative language ----


def attach(stem, *suffixes):
    """Stem plus suffixes: A is a or e, I is u or i after the last vowel; a vowel is dropped after a vowel."""
    word, back_vowels = stem, table("morphology", "sounds", "part : letter ...")["back"]
    for suffix in suffixes:
        back = next((c for c in reversed(word) if c in "aeiou"), "a") in back_vowels
        form = suffix.replace("A", "a" if back else "e").replace("I", "u" if back else "i")
        word += form[1:] if form and form[0] in "aeiou" and word[-1] in "aeiou" else form
    return word


@cache
def _stems():
    """dict of class -> Choice. A stem that is made twice is the more frequent."""
    file, draw = text_file("morphology"), uniform_numbers(3000)
    sounds = file.table("sounds", "part : letter ...")

    def pick(part):
        return sounds[part][int(draw() * len(sounds[part]))]

    def stem():
        n = 1 + (draw() < 0.7) + (draw() < 0.15)
        vowel = "back" if draw() < 0.5 else "front"
        return "".join(pick("onset") + pick(vowel) + pick("coda") for _ in range(n)) + pick("last")

    lists = {}
    for name, count in file.table("made up", "list : <count>").items():
        words = dict.fromkeys(stem() for _ in range(int(count)))
        lists[name] = [word.capitalize() if name[0].isupper() else word for word in words]
    return word_classes(file, "words", lists, distinct=False)


@cache
def _affixes(section):
    """Of number, owner, case, tense or person: value -> (suffix, ..., weight), and Choice of the values."""
    shape = "number person : suffix pronoun <weight>" if section == "person" else "value : suffix <weight>"
    rows = table("morphology", section, shape)
    return rows, weighted(rows, [row[-1] for row in rows.values()])


def _suffix(section, value):
    return _affixes(section)[0][value][0]


@cache
def _frames():
    rows = list(text_file("morphology").rows("frames", "<weight> : part ..."))
    for where, _, parts in rows:
        if unknown := set(parts) - set(_Sentence.PARTS):
            known = ", ".join(_Sentence.PARTS)
            raise ValueError(f"{where}: expected parts among {known}; found {unknown.pop()!r}")
    return weighted([parts for _, _, parts in rows], [weight for _, weight, _ in rows])


class _Sentence:
    """One sentence being written, part by part; the verb agrees with `number` and `person`."""

    PARTS = ("subject", "object", "oblique", "adverb", "relative", "converb", "conjunction", "verb")

    def __init__(self, draw):
        self.draw, self.out = draw, []

    def pick(self, section):
        """A value of number, owner, case, tense or person."""
        return _affixes(section)[1].draw(self.draw())

    def sometimes(self, name):
        """An optional suffix of verbs, or ""."""
        suffix, share = table("morphology", "verb suffixes", "name : suffix <share>")[name]
        return suffix if self.draw() < share else ""

    def stem(self, upos):
        return _stems()[upos].draw(self.draw())

    def word(self, upos, form, **features):
        feats = "|".join(f"{name}={value}" for name, value in sorted(features.items()) if value) or "_"
        self.out.append((form, upos, feats))

    def noun(self, case, upos="NOUN", genitive=True):
        """A noun phrase; a possessor in the genitive makes the possessed noun third person."""
        draw = self.draw
        owner = self.pick("owner") if upos == "NOUN" else ""
        if owner == "3" and genitive and draw() < 0.6:
            self.noun("Gen", "PROPN" if draw() < 0.4 else "NOUN", genitive=False)
        elif draw() < 0.25:
            self.word("DET", self.stem("DET"), PronType="Dem")
        if draw() < 0.3:
            self.word("ADJ", self.stem("ADJ"))
        number = self.pick("number") if upos == "NOUN" else "Sing"
        suffixes = _suffix("number", number), _suffix("owner", owner), _suffix("case", case)
        form = attach(self.stem(upos), *suffixes)
        self.word(upos, form, Case=case, Number=number, Person="3", **{"Person[psor]": owner})
        return number

    def nonfinite(self, kind):
        self.noun("Acc")
        form = attach(self.stem("VERB"), table("morphology", "nonfinite", "kind : suffix")[kind])
        self.word("VERB", form, Polarity="Pos", VerbForm=kind)

    def write(self):
        self.number, self.person = self.pick("person")
        for part in _frames().draw(self.draw()):
            getattr(self, part)()
        self.word("PUNCT", ".")
        first = self.out[0]
        return [(first[0][0].upper() + first[0][1:], *first[1:]), *self.out[1:]]

    # The parts of a frame.

    def subject(self):
        """In the nominative; the verb agrees with it (a dropped pronoun leaves that to the verb's ending)."""
        if self.person == "3" and self.draw() < 0.85:
            self.number = self.noun("Nom", "PROPN" if self.draw() < 0.25 else "NOUN")
        elif self.draw() < 0.4:
            about = {"Case": "Nom", "Number": self.number, "Person": self.person, "PronType": "Prs"}
            self.word("PRON", _affixes("person")[0][self.number, self.person][1], **about)

    def object(self):
        self.noun("Acc" if self.draw() < 0.7 else "Nom")

    def oblique(self):
        self.noun(self.pick("case"))

    def adverb(self):
        self.word("ADV", self.stem("ADV"))

    def relative(self):
        self.nonfinite("Part")

    def converb(self):
        self.nonfinite("Conv")

    def conjunction(self):
        self.word("CCONJ", self.stem("CCONJ"))

    def verb(self):
        tense = self.pick("tense")
        negative, passive, conditional = map(self.sometimes, ("negative", "passive", "conditional"))
        ending = _suffix("person", (self.number, self.person))
        form = attach(self.stem("VERB"), passive, negative, _suffix("tense", tense), conditional, ending)
        about = {"Number": self.number, "Person": self.person, "Tense": tense}
        about |= {"Polarity": "Neg" if negative else "Pos", "Voice": "Pass" if passive else ""}
        self.word("VERB", form, Mood="Cnd" if conditional else "Ind", **about)


def morphology_sentences(n, seed):
    """n sentences as lists of (word, UPOS, features), deterministic in the seed."""
    draw = uniform_numbers(seed)
    return [_Sentence(draw).write() for _ in range(n)]


# ---- English spelling and its sounds ----


_SHAPES = {
    "onsets": "letters : phonemes",
    "codas": "letters : phonemes",
    "vowels": "letter : short long before-r unstressed irregular",
    "vowel pairs": "letters : sound irregular",
    "endings": "ending : phonemes marks <stressed>",
    "prefixes": "prefix : phonemes marks",
    "arpabet": "phoneme : phone ...",
}


def _spelling(section):
    """A section of twins/spelling.txt as a dict; its lines have the shape that _SHAPES says."""
    return table("spelling", section, _SHAPES[section])


@cache
def _choices():
    """Choices of an onset, a coda, a vowel and an ending; lines of a section stand by falling frequency."""
    vowels = [*"aeioaeiouy", *_spelling("vowel pairs")]
    onsets, codas, endings = (list(_spelling(section)) for section in ("onsets", "codas", "endings"))
    return zipf(onsets, 0.7), zipf(codas), zipf(vowels, 0.6), zipf(endings, 0.5)


def _consonants(letters, following):
    """Sounds of an onset: c and g are soft before e, i, y."""
    soft = following[:1] in ("e", "i", "y")
    sounds = {"c": "-" if len(letters) > 1 else "s", "g": "J"} if soft else {"c": "k", "g": "g"}
    pairs = zip(letters, _spelling("onsets")[letters], strict=True)
    return "".join(sounds[c] if p == "?" else p for c, p in pairs)


def _vowel(letters, coda, stress, long, irregular):
    """Sounds of the vowel letters of a syllable with this coda and stress mark."""
    if len(letters) == 2:
        return _spelling("vowel pairs")[letters][irregular]
    short, long_sound, before_r, unstressed, irregular_sound = _spelling("vowels")[letters]
    if coda.startswith("r"):
        return before_r
    if coda.startswith(("gh", "gn")):
        return long_sound
    if stress == "0" and not long:
        return unstressed
    if irregular and irregular_sound:
        return irregular_sound
    return long_sound if long or (not coda and stress == "1") else short


def _stresses(n, shift, prefixed, u):
    """Stress marks of n syllables before an ending: by it, else the first, or the second after a prefix."""
    main = max(n - shift, 0) if shift else (0 if n < 3 else n - 3)
    if not shift and n == 2 and u < 0.15:
        main = 1
    second = [main - 2, main + 2] if prefixed else [main - 2]
    return ["1" if i == main else "2" if i in second else "0" for i in range(n)]


def _coda_before(ending, coda):
    """What an ending leaves of the last coda: one letter; a consonant that can stand between vowels."""
    if ending and ending[0] not in "aeiouy":
        return coda[:1].replace("g", "")
    return coda if not ending or coda in ("n", "t", "s", "m", "d", "p", "l", "st", "nd") else "t"


def _word(draw):
    """A word as (letters, phonemes, stress)."""
    onsets, codas, vowels, endings = _choices()
    u = draw()
    n = 1 + (u < 0.75) + (u < 0.2)
    prefixes = _spelling("prefixes")
    prefix = list(prefixes)[int(draw() * len(prefixes))] if draw() < 0.12 else ""
    ending = endings.draw(draw())
    phones, marks, shift = _spelling("endings")[ending]
    stress = _stresses(n, int(shift), bool(prefix), draw())
    word, sounds, stresses = prefix, *prefixes.get(prefix, ("", ""))
    parts = []
    for _ in range(n):
        parts.append((onsets.draw(draw()), vowels.draw(draw()), codas.draw(draw()) if draw() < 0.55 else ""))
    for i, (onset, vowel, coda) in enumerate(parts):
        last = i == n - 1
        coda = _coda_before(ending, coda) if last else coda
        long = last and ending in ("e", "ing", "er") and len(coda) == 1 and len(vowel) == 1
        coda_sounds = _spelling("codas").get(coda, coda)
        if coda == "s" and last and ending[:1] in ("a", "e", "i", "o"):
            coda_sounds = "z"
        sounds += _consonants(onset, vowel) + _vowel(vowel, coda, stress[i], long, draw() < 0.08)
        if coda.startswith("r") and len(vowel) == 1 and sounds[-1] == "-":  # vowel and r are one sound
            coda_sounds = "R" + coda_sounds[1:]
        sounds += coda_sounds
        stresses += ">" * len(onset) + stress[i] + "<" * (len(vowel) - 1 + len(coda))
        word += onset + vowel + coda
    return word + ending, sounds + phones, stresses + marks


def pronounced_words(n, seed):
    """n different words as (word, phonemes, stress), strings of one length; deterministic in the seed."""
    draw, words = uniform_numbers(seed), {}
    while len(words) < n:
        word, phonemes, stress = _word(draw)
        if 2 < len(word) < 16:
            words.setdefault(word, (word, phonemes, stress))
    return list(words.values())


def arpabet(phonemes, stress):
    """Phones as in the CMU dictionary: silent letters are gone, vowels carry a stress digit."""
    phones = []
    for sound, mark in zip(phonemes, stress, strict=True):
        digit = mark if mark in "012" else "0"
        if sound != "-":
            phones += [phone.replace("*", digit) for phone in _spelling("arpabet")[sound]]
    return tuple(phones)


# ---- the twins ----


def _imst(task, n, seed, split):
    tokens = TokenColumns.from_sentences(morphology_sentences(n, seed), ("word", "upos", "feats"))
    return treebank_task(tokens, task)


def _nettalk(task, sizes, seed):
    n_train, n_test = sizes["train"], sizes["test"]
    return split_words(pronounced_words(n_train + n_test, seed), task, n_train, n_test)


def _cmudict(task, sizes, seed):
    words = pronounced_words(sizes["train"] + sizes["test"], seed)
    return {}, split_pairs([(word, arpabet(phonemes, stress)) for word, phonemes, stress in words])


# name -> (writer, its splits); None: the writer makes all splits itself
TWINS = {
    "ud-turkish-imst": (_imst, ("train", "dev", "test")), "nettalk": (_nettalk, None),
    "cmudict": (_cmudict, None),
}  # fmt: skip
