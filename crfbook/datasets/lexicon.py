"""Words of the built-in English: common ones by hand, rare ones made of syllables and endings.

Classes are named TAG or TAG.kind as the grammar uses them. Every class is ordered by falling frequency; the
made-up words stand at the end, so that they are the rare ones and their endings are what a tagger can learn
from.
"""

from functools import lru_cache

from crfbook.datasets.grammar import Words, uniform_numbers

NOUNS = """company market share price year plan rate report stock group trade bank sale offer unit cost program deal
change work issue bill firm rise loss office order business profit official product house demand increase drop cut
state industry law decline tax system move contract debt fund budget estimate investor manager agency move view result
student teacher school city country war road river field garden doctor hospital engine car train ship plane island
church judge court case claim vote party campaign review study test paper book film story song picture letter answer
question problem solution model design project team game season player coach record attack storm fire flood quake
committee member leader chairman director president analyst trader lawyer expert visit call return talk hope need
promise risk fear doubt supply export import shift gain jump limit target level line point force charge fight strike
farm crop harvest mine plant worker union wage machine tool software computer network chip screen phone signal
light water power oil gas coal steel gold paper wood glass stone food sugar coffee milk meat drug virus cell brain
heart child woman man family friend neighbor tourist hotel restaurant kitchen table door window wall roof bridge
station airport harbor border army soldier officer crime prison guard witness jury trial appeal rule right duty"""
TRANSITIVE = """make buy sell hold take build cut raise lose win find see report offer reject accept approve reduce
increase change move plan order trade test review study claim close open produce develop support oppose attack visit
follow join lead meet help serve use need expand acquire finance cover protect damage destroy repair replace improve
measure record limit charge target export import supply market design film guard tax fund estimate question answer"""
INTRANSITIVE = """rise fall grow work drop decline jump move talk wait stay arrive return appear happen disappear
increase climb slip travel live die sleep vote argue compete fail succeed shift trade open close change strike fight"""
SAY = """say believe think report claim announce argue hope fear know show suggest estimate doubt warn predict note"""
GIVE = "give offer send pay sell show promise lend teach tell grant bring"
CONTROL = "want plan try hope expect agree need refuse promise begin continue decide fail intend seek"
PARTICLE = "pick set take give call cut hold break shut turn bring point carry close sell buy"
ADJECTIVES = """new big other last major federal good high large small strong old early recent common foreign
national public private local financial political economic current possible likely able similar special main low
heavy weak rich poor young quick slow late open close cheap safe short long hard clear certain free red green cold hot
warm fresh quiet famous rare legal medical military industrial present average light right cool dry clean"""
IRREGULAR = """make made made|buy bought bought|sell sold sold|hold held held|take took taken|build built built|cut
cut cut|lose lost lost|win won won|find found found|see saw seen|rise rose risen|fall fell fallen|grow grew grown|say
said said|think thought thought|know knew known|show showed shown|give gave given|send sent sent|pay paid paid|lend
lent lent|teach taught taught|tell told told|bring brought brought|begin began begun|seek sought sought|set set
set|break broke broken|shut shut shut|lead led led|meet met met|strike struck struck|fight fought fought|sleep slept
slept|plan planned planned|drop dropped dropped|slip slipped slipped|occur occurred occurred"""
FIRST = """John Mary James Robert Linda Michael Susan David Karen Paul Anna Peter Laura Mark Rose Bill Grace Frank
April Will Jack June Ruth Carl Helen Chase Drew Hope Art Dean"""
SURNAMES = """Smith Johnson Brown Baker Taylor Miller Young King Green Hill Rivers Banks Stone Fields Marsh Cook Hunter
Washington Lincoln Jordan Madison Houston Carter Bell Price Long Rich Wood West Day May"""
CITIES = """Washington London Paris Boston Houston Chicago Madrid Berlin Lincoln Madison Geneva Lisbon Dallas Oxford
Kingston Jordan Reading Phoenix Orleans Cambridge"""
COUNTRIES = "Germany France Japan Spain Canada Mexico Brazil Turkey India China Chad Georgia Jordan Poland Chile Norway"
FIRMS = """General National United First American Pacific Summit Eagle Apple Delta Ford Baker Taylor Stone River Bell
Chase Orange Shell Target"""
TEAMS = "Eagles Rangers United Giants Kings Hunters Rockets Pirates Wolves Stars"
NATIONS = (
    "German French Japanese Spanish Canadian American Mexican British Russian Chinese Turkish Polish Dutch"
)
FIXED = {
    "DT": "the the the a the this the a the that each the every another no",
    "DT.p": "the the these the those some the all",
    "DT.s": "a the a this the",
    "PRP$": "its their his her our my your",
    "PRP.s": "he it she",
    "PRP.p": "they we I you",
    "PRP.o": "it them him her us me",
    "IN": "of in for on with at from by about after as against between into under over since during through without",
    "IN.sub": "because if while although as since after before whether until though",
    "MD": "will would could may can should might must",
    "RB.adv": "also still now only already never often just recently soon ever",
    "RB.man": "sharply slowly quickly again early well hard away together abroad up down ahead back",
    "RB.sent": "however meanwhile still also now then indeed instead moreover nevertheless",
    "RB.deg": "very so too more quite less as rather far most",
    "RB.num": "about only nearly almost roughly over",
    "RP": "up out off down over back in on",
    "CC": "and and and or but",
    "JJR": "higher lower better larger more smaller fewer",
    "NN.time": "year month week day quarter night summer spring fall",
    "NNP.day": "Monday Tuesday Wednesday Thursday Friday",
    "NNP.month": "March May January June October April August",
    "NNP.title": "Mr. Ms. Dr. Mrs.",
    "NNP.office": "President Sen. Mayor Judge Gov.",
    "NN.job": "singer actor painter writer coach striker goalkeeper pianist",
    "NNP.suffix": "Corp. Inc. Co. Industries Group Ltd. Bank Systems",
    "NNP.water": "River Lake Bay",
    "NN.game": "cup final match league",
    "UH": "yes well no oh",
    "WP": "who who what",
    "WRB": "when where why how",
    "LS": "a. b. c. 1. 2. 3.",
}


def made_up(count, endings, draw, capital=False):
    """`count` different made-up words: one or two syllables and one of the endings (a text split at its
    blanks).
    """
    onsets = "b c d f g h l m n p r s t v w br cr dr fl gr pl pr sh st tr".split()
    vowels = "a a e e i o o u".split()
    middles = ["", "", "", "n", "r", "l", "s"]
    codas = "n r l t s m d p nd rt ck st".split()

    def one(options):
        return options[int(draw() * len(options))]

    words = {}
    while len(words) < count:
        stem = one(onsets) + one(vowels)
        if draw() < 0.55:
            stem += one(middles) + one(onsets[:15]) + one(vowels)
        word = stem + one(codas) + one(endings.split(" "))
        if len(word) > 3:
            words[word.capitalize() if capital else word] = None
    return list(words)


def plural(noun):
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return {"man": "men", "woman": "women", "child": "children"}.get(noun, noun + "s")


def verb_forms(verb, irregular):
    """dict of tag -> form; the third person is formed as the plural of a noun,
    which makes the two ambiguous.
    """
    stem = verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb
    regular = verb[:-1] + "ied" if verb.endswith("y") and verb[-2] not in "aeiou" else stem + "ed"
    past, participle = irregular.get(verb, (regular, regular))
    doubled = verb in ("cut", "win", "set", "shut", "begin", "drop", "plan", "slip")
    ing = verb + verb[-1] + "ing" if doubled else stem + "ing"
    return {"VB": verb, "VBP": verb, "VBZ": plural(verb), "VBD": past, "VBN": participle, "VBG": ing}


@lru_cache(maxsize=1)
def lexicon():
    """dict of class -> Words; the same whatever the seed of a corpus: corpora differ,
    the language does not.
    """
    draw = uniform_numbers(2000)
    rare_both = made_up(120, " en er", draw)
    nouns = unique(
        [*NOUNS.split(), *rare_both, *made_up(1800, "er or ment tion ness ity ism age ing ist ", draw)]
    )
    rare_verbs = [*rare_both, *made_up(400, "ize ate ify en ", draw)]
    adjectives = unique([*ADJECTIVES.split(), *made_up(600, "al ive ous able ful less ic y ing ed ", draw)])
    names = made_up(900, "son man well ford ton ley er ez ", draw, capital=True)
    places = made_up(400, "ton ville burg ford ia land port ", draw, capital=True)
    out = {key: Words(text.split(), power=0.8) for key, text in FIXED.items()}
    out["NN"], out["NNS"] = Words(nouns), Words([plural(noun) for noun in nouns])
    out["JJ"] = Words(adjectives)
    out["RB.ly"] = Words([word + "ly" for word in adjectives if not word.endswith(("y", "ly"))])
    out["NNP.first"] = Words(unique([*FIRST.split(), *names[700:]]), shift=8)
    out["NNP.sur"] = Words(unique([*SURNAMES.split(), *names, *places[300:]]), power=0.8, shift=8)
    out["NNP.city"] = Words(unique([*CITIES.split(), *places]), shift=4)
    out["NNP.country"] = Words(COUNTRIES.split())
    out["NNP.firm"] = Words(unique([*FIRMS.split(), *names[450:], *places[250:]]), power=0.8, shift=6)
    out["NNPS.team"], out["JJ.nation"] = Words(TEAMS.split()), Words(NATIONS.split())
    out["NNP.model"] = Words(
        [f"{letter}{n}" for n in (100, 20, 7, 5, 3000) for letter in ("X", "K", "RS", "Z")]
    )
    irregular = {
        base: (past, part)
        for base, past, part in (v.split() for v in IRREGULAR.replace("\n", " ").split("|"))
    }
    classes = {"t": TRANSITIVE, "i": INTRANSITIVE, "s": SAY, "d": GIVE, "c": CONTROL, "p": PARTICLE}
    for kind, text in classes.items():
        rare = {"t": rare_verbs, "i": rare_verbs[60:200], "s": rare_verbs[:15]}.get(kind, [])
        forms = [verb_forms(verb, irregular) for verb in unique([*text.split(), *rare])]
        for tag in ("VB", "VBP", "VBZ", "VBD", "VBN", "VBG"):
            out[f"{tag}.{kind}"] = Words([form[tag] for form in forms], shift=3)
    figures = unique([str(int(2 + 1 / (1e-4 + draw() ** 2))) for _ in range(300)])
    out["CD"] = Words(["two", "three", "ten", *figures], power=0.5)
    out["CD.sum"] = Words("1.5 2 3.2 10 12 20 2.25 100 30 45.7 6 7.1 350 8.4".split(), power=0.6)
    out["CD.year"] = Words([str(year) for year in range(1990, 1950, -1)], power=0.7)
    return out


def unique(words):
    return list(dict.fromkeys(words))
