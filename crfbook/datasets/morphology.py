"""The built-in morphology: sentences of an invented agglutinative language, verb last, with vowel harmony.

It was made to have what makes Turkish hard for taggers: hundreds of labels (a part of speech with its
features), long words that carry them as chains of suffixes, and forms that only the context tells apart: the
accusative and "his" after a consonant (both -i), the third person and the bare stem,
nouns and verbs that share stems.
"""

from functools import lru_cache

from crfbook.datasets.grammar import Words, uniform_numbers

BACK = "aou"
NUMBER = {"Sing": "", "Plur": "lAr"}
OWNER = {"": "", "1": "Im", "2": "In", "3": "I"}
CASE = {"Nom": "", "Acc": "I", "Dat": "A", "Loc": "dA", "Abl": "dAn", "Gen": "In", "Ins": "lA"}
NUMBER_WEIGHT = {"Sing": 7, "Plur": 3}
OWNER_WEIGHT = {"": 60, "1": 8, "2": 4, "3": 28}
TENSE = {"Past": "dI", "Pres": "Ir", "Fut": "AcAk", "Prog": "Iyor", "Narr": "mIs"}
TENSE_WEIGHT = {"Past": 40, "Pres": 20, "Fut": 10, "Prog": 20, "Narr": 10}
PERSON = {
    ("Sing", "1"): "Im",
    ("Sing", "2"): "sIn",
    ("Sing", "3"): "",
    ("Plur", "1"): "Iz",
    ("Plur", "3"): "lAr",
}
PERSON_WEIGHT = {("Sing", "1"): 15, ("Sing", "2"): 5, ("Sing", "3"): 55, ("Plur", "1"): 8, ("Plur", "3"): 17}
PARTICIPLE = {"Part": "An", "Conv": "Ip", "Vnoun": "mAk"}


def attach(stem, *suffixes):
    """Stem plus suffixes: A is a or e, I is u or i after the last vowel; a vowel is dropped after a vowel."""
    word = stem
    for suffix in suffixes:
        back = next((c for c in reversed(word) if c in "aeiou"), "a") in BACK
        form = suffix.replace("A", "a" if back else "e").replace("I", "u" if back else "i")
        word += form[1:] if form and form[0] in "aeiou" and word[-1] in "aeiou" else form
    return word


@lru_cache(maxsize=1)
def _stems():
    draw = uniform_numbers(3000)

    def pick(text):
        return text[int(draw() * len(text))]

    def stem(n):
        vowels = "aou" if draw() < 0.5 else "ei"
        return "".join(
            pick("bdfghklmnprstvyz") + pick(vowels) + pick(["", "", "n", "r", "l"]) for _ in range(n)
        ) + pick("klmnprstz")

    def stems(n):
        return list(dict.fromkeys(stem(1 + (draw() < 0.7) + (draw() < 0.15)) for _ in range(n)))

    shared = stems(60)
    nouns, verbs = shared + stems(1500), shared[:30] + stems(450)
    return {
        "NOUN": Words(nouns),
        "VERB": Words(verbs),
        "ADJ": Words(shared[30:] + stems(250)),
        "PROPN": Words([name.capitalize() for name in stems(500)], power=0.8),
        "ADV": Words(stems(50)),
        "DET": Words(["bir", "bu", "o", "her", "su"]),
        "PRON": Words(["ben", "sen", "o", "biz", "onlar"]),
        "ADP": Words(["gibi", "icin", "kadar", "sonra", "once"]),
        "NUM": Words(["iki", "uc", "bes", "on", "yuz", "12", "1998"]),
        "CCONJ": Words(["ve", "ama", "da", "veya"]),
    }


class _Tables:
    """Weighted choices, compiled once."""

    def __init__(self):
        def choice(weights):
            words = Words(list(weights))
            total = sum(weights.values())
            cut, words.cumulative = 0.0, []
            for weight in list(weights.values())[:-1]:
                cut += weight / total
                words.cumulative.append(cut)
            return words

        self.number, self.owner = choice(NUMBER_WEIGHT), choice(OWNER_WEIGHT)
        self.tense, self.person = choice(TENSE_WEIGHT), choice(PERSON_WEIGHT)
        self.oblique = choice({"Dat": 30, "Loc": 30, "Abl": 20, "Ins": 12, "Gen": 8})
        self.frame = choice(
            {
                "S V": 12,
                "S O V": 30,
                "S L V": 15,
                "S L O V": 15,
                "O V": 12,
                "S O B V": 10,
                "R S O V": 6,
                "S C V , S V": 8,
            }
        )


@lru_cache(maxsize=1)
def _tables():
    return _Tables()


class _Sentence:
    def __init__(self, draw):
        self.draw, self.stems, self.tables, self.out = draw, _stems(), _tables(), []

    def word(self, upos, form, **features):
        feats = "|".join(f"{name}={value}" for name, value in sorted(features.items()) if value) or "_"
        self.out.append((form, upos, feats))

    def plain(self, upos, **features):
        self.word(upos, self.stems[upos].draw(self.draw()), **features)

    def noun(self, case, upos="NOUN", genitive=True):
        """A noun phrase; a possessor in the genitive makes the possessed noun third person."""
        draw = self.draw
        owner = self.tables.owner.draw(draw()) if upos == "NOUN" else ""
        if owner == "3" and genitive and draw() < 0.6:
            self.noun("Gen", "PROPN" if draw() < 0.4 else "NOUN", genitive=False)
        elif draw() < 0.25:
            self.plain("DET", PronType="Dem")
        if draw() < 0.3:
            self.plain("ADJ")
        number = self.tables.number.draw(draw()) if upos == "NOUN" else "Sing"
        form = attach(self.stems[upos].draw(draw()), NUMBER[number], OWNER[owner], CASE[case])
        self.word(upos, form, Case=case, Number=number, Person="3", **{"Person[psor]": owner})
        return number

    def verb(self, number, person):
        tense = self.tables.tense.draw(self.draw())
        negative = self.draw() < 0.15
        passive = self.draw() < 0.12
        conditional = self.draw() < 0.1
        suffixes = (
            "Il" if passive else "",
            "mA" if negative else "",
            TENSE[tense],
            "sA" if conditional else "",
        )
        form = attach(self.stems["VERB"].draw(self.draw()), *suffixes, PERSON[number, person])
        mood, voice = "Cnd" if conditional else "Ind", "Pass" if passive else ""
        polarity = "Neg" if negative else "Pos"
        self.word(
            "VERB", form, Mood=mood, Number=number, Person=person, Polarity=polarity, Tense=tense, Voice=voice
        )

    def participle(self, kind):
        form = attach(self.stems["VERB"].draw(self.draw()), PARTICIPLE[kind])
        self.word("VERB", form, Polarity="Pos", VerbForm=kind)

    def write(self):
        number, person = self.tables.person.draw(self.draw())
        for part in self.tables.frame.draw(self.draw()).split():
            if part == "S":
                number, person = self.subject(number, person)
            elif part == "O":
                self.noun("Acc" if self.draw() < 0.7 else "Nom")
            elif part == "L":
                self.noun(self.tables.oblique.draw(self.draw()))
            elif part == "B":
                self.plain("ADV")
            elif part == "R":
                self.noun("Acc")
                self.participle("Part")
            elif part == "C":
                self.noun("Acc")
                self.participle("Conv")
            elif part == ",":
                self.plain("CCONJ")
            else:
                self.verb(number, person)
        self.word("PUNCT", ".")
        first = self.out[0]
        return [(first[0][0].upper() + first[0][1:], *first[1:]), *self.out[1:]]

    def subject(self, number, person):
        """Subject in the nominative; the verb agrees with it (a dropped pronoun leaves that to the verb's
        ending).
        """
        if person == "3" and self.draw() < 0.85:
            return self.noun("Nom", "PROPN" if self.draw() < 0.25 else "NOUN"), "3"
        if self.draw() < 0.4:
            form = {("Sing", "1"): "ben", ("Sing", "2"): "sen", ("Plur", "1"): "biz", ("Plur", "3"): "onlar"}
            self.word(
                "PRON",
                form.get((number, person), "o"),
                Case="Nom",
                Number=number,
                Person=person,
                PronType="Prs",
            )
        return number, person


def morphology_sentences(n, seed):
    """n sentences as lists of (word, UPOS, features), deterministic in the seed."""
    draw = uniform_numbers(seed)
    return [_Sentence(draw).write() for _ in range(n)]
