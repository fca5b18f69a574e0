"""The built-in pronunciation: made-up English spellings with phonemes and stress, aligned letter by letter.

The symbols are NetTalk's: one phoneme per letter, "-" for a silent one; stress 1, 2, 0 on the vowel of a
syllable, ">" before it and "<" after it. A sound depends on what surrounds its letter: c and g before e, i,
y; s between vowels; a vowel before a final silent e, before r, in a syllable without stress (which an ending
far to the right decides). About one vowel in twelve has an irregular sound that nothing predicts,
as in English.
"""

from functools import lru_cache

from crfbook.datasets.grammar import Words, uniform_numbers

# Letters -> phonemes, by falling frequency.
ONSETS = {
    "t": "t", "s": "s", "b": "b", "c": "?", "d": "d", "p": "p", "m": "m", "r": "r", "l": "l", "f": "f", "n": "n",
    "g": "?", "h": "h", "st": "st", "tr": "tr", "pr": "pr", "w": "w", "v": "v", "": "", "ch": "C-", "sh": "S-",
    "gr": "gr", "cr": "kr", "th": "T-", "j": "J", "k": "k", "pl": "pl", "br": "br", "sp": "sp", "str": "str",
    "qu": "Q-", "ph": "f-", "wh": "w-", "kn": "-n", "wr": "-r", "sc": "s?", "bl": "bl", "cl": "kl", "fl": "fl", "z": "z",
}  # fmt: skip
CODAS = {
    "": "", "n": "n", "r": "r", "l": "l", "t": "t", "s": "s", "m": "m", "d": "d", "ck": "k-", "nd": "nd", "st": "st",
    "nt": "nt", "p": "p", "ll": "l-", "ng": "G-", "ss": "s-", "x": "X", "sh": "S-", "th": "T-", "ct": "kt", "lt": "lt",
    "mb": "m-", "tch": "-C-", "nk": "Gk", "ft": "ft", "ght": "--t", "gn": "-n",
}  # fmt: skip
SHORT = {"a": "@", "e": "E", "i": "I", "o": "a", "u": "^", "y": "I"}
LONG = {"a": "e", "e": "i", "i": "A", "o": "o", "u": "u", "y": "A"}
BEFORE_R = {"a": "a", "e": "-", "i": "-", "o": "c", "u": "-", "y": "-"}
PAIRS = {
    "ea": "i-", "ai": "e-", "ee": "i-", "oo": "u-", "ou": "W-", "oa": "o-", "ay": "e-", "ow": "o-", "au": "c-", "oi": "O-",
    "ie": "i-", "ew": "u-", "aw": "c-", "oy": "O-",
}  # fmt: skip
IRREGULAR = {
    "ea": "E-",
    "oo": "U-",
    "ou": "^-",
    "ow": "W-",
    "a": "a",
    "e": "i",
    "i": "i",
    "o": "^",
    "u": "U",
    "ie": "A-",
}
VOWELS = [*"aeioaeiouy", *PAIRS]
# Ending -> (phonemes, stress marks, which syllable before it is stressed: 1 the last, 2 the one before, 0 no
# matter)
ENDINGS = {
    "": ("", "", 0), "er": ("-R", "0<", 0), "ing": ("IG-", "0<<", 0), "tion": ("S-xn", ">0<<", 1), "y": ("i", "0", 0),
    "al": ("xl", "0<", 2), "ic": ("Ik", "0<", 1), "ous": ("-xs", "<0<", 2), "ity": ("xti", "0>0", 1), "e": ("-", "<", 0),
    "able": ("xbL-", "0>0<", 0), "ment": ("mxnt", ">0<<", 0), "ness": ("nxs-", ">0<<", 0), "ive": ("Iv-", "0<<", 1),
    "ture": ("C-R-", ">0<<", 1), "le": ("L-", "0<", 0), "ate": ("et-", "2<<", 2), "ist": ("Ist", "0<<", 0),
    "sion": ("Z-xn", ">0<<", 1), "age": ("IJ-", "0<<", 0),
}  # fmt: skip
PREFIXES = {
    "re": ("ri", ">0"),
    "de": ("dI", ">0"),
    "un": ("^n", "0<"),
    "con": ("kxn", ">0<"),
    "in": ("In", "0<"),
}
ARPABET = {
    "a": "AA", "b": "B", "c": "AO", "d": "D", "e": "EY", "f": "F", "g": "G", "h": "HH", "i": "IY", "k": "K", "l": "L",
    "m": "M", "n": "N", "o": "OW", "p": "P", "r": "R", "s": "S", "t": "T", "u": "UW", "v": "V", "w": "W", "x": "AH",
    "y": "Y", "z": "Z", "A": "AY", "C": "CH", "D": "DH", "E": "EH", "G": "NG", "I": "IH", "J": "JH", "L": "AH L",
    "O": "OY", "Q": "K W", "R": "ER", "S": "SH", "T": "TH", "U": "UH", "W": "AW", "X": "K S", "Z": "ZH", "@": "AE",
    "^": "AH",
}  # fmt: skip
ARPABET_VOWELS = frozenset("AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW".split())


@lru_cache(maxsize=1)
def _tables():
    return Words(ONSETS, power=0.7), Words(CODAS), Words(VOWELS, power=0.6), Words(ENDINGS, power=0.5)


def _consonants(letters, phonemes, following):
    """Sounds of an onset: c and g are soft before e, i, y."""
    soft = following[:1] in ("e", "i", "y")
    sounds = {"c": "-" if len(letters) > 1 else "s", "g": "J"} if soft else {"c": "k", "g": "g"}
    return "".join(sounds[c] if p == "?" else p for c, p in zip(letters, phonemes, strict=True))


def _vowel(letters, coda, stress, long, irregular):
    """Sounds of the vowel letters of a syllable with this coda and stress mark."""
    if len(letters) == 2:
        return IRREGULAR.get(letters, PAIRS[letters]) if irregular else PAIRS[letters]
    if coda.startswith("r"):
        return BEFORE_R[letters]
    if coda.startswith(("gh", "gn")):
        return LONG[letters]
    if stress == "0" and not long:
        return "I" if letters in "iey" else "x"
    if irregular and letters in IRREGULAR:
        return IRREGULAR[letters]
    return LONG[letters] if long or (not coda and stress == "1") else SHORT[letters]


def _stresses(n, shift, prefixed, u):
    """Stress marks of n syllables before an ending: by the ending, else the first,
    or the second after a prefix.
    """
    main = max(n - shift, 0) if shift else (0 if n < 3 else n - 3)
    if not shift and n == 2 and u < 0.15:
        main = 1
    return [
        "1" if i == main else "2" if i == main - 2 or (prefixed and i == main + 2) else "0" for i in range(n)
    ]


def _word(draw):
    onsets, codas, vowels, endings = _tables()
    u = draw()
    n = 1 + (u < 0.75) + (u < 0.2)
    prefix = list(PREFIXES)[int(draw() * 5)] if draw() < 0.12 else ""
    ending = endings.draw(draw())
    phones, marks, shift = ENDINGS[ending]
    stress = _stresses(n, shift, bool(prefix), draw())
    word, sounds, stresses = prefix, *PREFIXES.get(prefix, ("", ""))
    parts = [
        (onsets.draw(draw()), vowels.draw(draw()), codas.draw(draw()) if draw() < 0.55 else "")
        for _ in range(n)
    ]
    if ending and ending[0] not in "aeiouy":
        parts[-1] = (*parts[-1][:2], parts[-1][2][:1].replace("g", ""))
    elif ending:  # an ending with a vowel takes one consonant before it
        parts[-1] = (
            *parts[-1][:2],
            parts[-1][2] if parts[-1][2] in ("n", "t", "s", "m", "d", "p", "l", "st", "nd") else "t",
        )
    for i, (onset, vowel, coda) in enumerate(parts):
        last = i == n - 1
        long = last and ending in ("e", "ing", "er") and len(coda) == 1 and len(vowel) == 1
        coda_sounds = CODAS.get(coda, coda)
        if coda == "s" and last and ending[:1] in ("a", "e", "i", "o"):
            coda_sounds = "z"
        if coda.startswith("r") and BEFORE_R.get(vowel) == "-":
            coda_sounds = "R" + coda_sounds[1:]
        sounds += _consonants(onset, ONSETS[onset], vowel)
        sounds += _vowel(vowel, coda, stress[i], long, draw() < 0.08) + coda_sounds
        stresses += ">" * len(onset) + stress[i] + "<" * (len(vowel) - 1 + len(coda))
        word += onset + vowel + coda
    return word + ending, sounds + phones, stresses + marks


def pronounced_words(n, seed):
    """n different words as (word, phonemes, stress), three strings of one length;
    deterministic in the seed.
    """
    draw = uniform_numbers(seed)
    words = {}
    while len(words) < n:
        word, phonemes, stress = _word(draw)
        if 2 < len(word) < 16:
            words.setdefault(word, (word, phonemes, stress))
    return list(words.values())


def arpabet(phonemes, stress):
    """Phones as in the CMU dictionary: silent letters are gone, vowels carry a stress digit."""
    phones = []
    for sound, mark in zip(phonemes, stress, strict=True):
        for phone in ARPABET[sound].split() if sound != "-" else ():
            digit = mark if mark in "012" else "0"
            phones.append(phone + digit if phone in ARPABET_VOWELS else phone)
    return tuple(phones)
