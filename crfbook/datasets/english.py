"""The built-in English: a grammar whose sentences carry tags, chunks, entities and dependencies at once.

It is small, but what makes real text hard is in it: words that are nouns and verbs (rise, report, plans),
past tenses that are participles, names that are words (Rose, Banks) or several kinds of name (Washington,
Jordan), noun phrases side by side, prepositional phrases, "that" in three roles,
and words that occur once or only in the test part.
"""

from functools import lru_cache

import numpy as np

from crfbook.datasets.grammar import Grammar, Token, uniform_numbers
from crfbook.datasets.lexicon import lexicon

# S sentence; V.s, V.p verb phrase of a singular, plural subject; F.s.t finite verb group of class t (transitive) in its
# chunk; N.s, N.p, N.o noun phrase as subject (two numbers) and object; N.n, N.m the same without pronouns.
# Classes: t transitive, i intransitive, s saying, d giving, c control (to ...), p with particle.
RULES = """
TOP 70 : S^ ._.
TOP 5 : ``_`` S/ccomp ,_, ''_'' N.s/nsubj [VP VBD.s^ ] ._.
TOP 5 : S/ccomp ,_, [VP VBD.s^ ] N.s/nsubj ._.
TOP 3 : [NP There_EX/expl ] [VP is_VBZ^ ] N.a/nsubj PP/obl ._.
TOP 3 : [NP There_EX/expl ] [VP were_VBD^ ] N.p/nsubj PP/obl ._.
TOP 3 : CC/cc S^ ._.
TOP 1 : [INTJ UH/discourse ] ,_, S^ ._.
TOP 1 : [ADVP WRB/advmod ] [VP did_VBD/aux N.s0/nsubj [VP VB.t^ ] N.o/obj ?_.
TOP 0.6 : [LST LS/discourse ] S^ ._.
S 40 : N.s/nsubj V.s^
S 26 : N.p/nsubj V.p^
S 6 : PP/obl ,_, S^
S 4 : [ADVP RB.sent/advmod ] ,_, S^
S 4 : TIME/obl:tmod S^
S 4 : SUB/advcl ,_, S^
S 5 : S^ ,_, CC/cc S/conj
S 2 : [NP it_PRP/expl ] [VP is_VBZ/cop ] [ADJP JJ^ ] [SBAR that_IN/mark ] S/csubj
S 2 : [NP it_PRP/expl ] [VP was_VBD/cop ] [ADJP JJ^ ] [VP to_TO/mark VB.t/csubj ] N.o/obj
S 4 : [VP VBG.t/csubj ] N.o/obj V.s^
SUB 1 : [SBAR IN.sub/mark ] N.s/nsubj V.s^
SUB 1 : [SBAR IN.sub/mark ] N.p/nsubj V.p^
SUB 0.2 : [SBAR even_RB/advmod if_IN/mark ] N.p/nsubj V.p^
V.s 30 : F.s.t^ N.o/obj
V.s 12 : F.s.t^ N.o/obj PP/obl
V.s 5 : F.s.t^ N.o/obj TIME/obl:tmod
V.s 9 : F.s.i^ PP/obl
V.s 5 : F.s.i^ ADV/advmod
V.s 4 : F.s.i^ PCT/obl PP/obl
V.s 5 : F.s.i^ TIME/obl:tmod
V.s 9 : F.s.s^ [SBAR that_IN/mark ] S/ccomp
V.s 5 : F.s.s^ S/ccomp
V.s 6 : F.s.d^ N.o/iobj N.o/obj
V.s 3 : F.s.d^ [NP NNS/iobj ] [NP NNS/obj ]
V.s 3 : F.s.d^ [NP DT/det NN/iobj ] [NP NN/compound NNS/obj ]
V.s 7 : F.s.c^ XC/xcomp
V.s 4 : F.s.p^ PRT/compound:prt N.o/obj
V.s 3 : F.s.p^ N.pro/obj PRT/compound:prt
V.s 6 : BE.s/cop ADJP^
V.s 5 : BE.s/cop N.a^
V.s 5 : PASS.s^ PPBY/obl
V.s 4 : PASS.s^ PP/obl
V.s 3 : F.s.t^ N.o/obj SUB/advcl
V.s 3 : F.s.t^ N.o/obj CC/cc VC.s/conj
V.p 30 : F.p.t^ N.o/obj
V.p 12 : F.p.t^ N.o/obj PP/obl
V.p 5 : F.p.t^ N.o/obj TIME/obl:tmod
V.p 9 : F.p.i^ PP/obl
V.p 5 : F.p.i^ ADV/advmod
V.p 4 : F.p.i^ PCT/obl PP/obl
V.p 9 : F.p.s^ [SBAR that_IN/mark ] S/ccomp
V.p 5 : F.p.s^ S/ccomp
V.p 6 : F.p.d^ N.o/iobj N.o/obj
V.p 7 : F.p.c^ XC/xcomp
V.p 4 : F.p.p^ PRT/compound:prt N.o/obj
V.p 6 : BE.p/cop ADJP^
V.p 5 : PASS.p^ PPBY/obl
V.p 4 : PASS.p^ PP/obl
VC.s 1 : F.s.t^ N.o/obj
VC.s 1 : F.s.i^ PP/obl
F.s.$c 5 : [VP VBZ.$c^ ]
F.s.$c 7 : [VP VBD.$c^ ]
F.s.$c 2 : [VP RB.adv/advmod VBD.$c^ ]
F.s.$c 2 : [ADVP RB.adv/advmod ] [VP VBD.$c^ ]
F.s.$c 1 : [ADVP RB.ly/advmod ] [VP VBD.$c^ ]
F.s.$c 3 : [VP MD/aux VB.$c^ ]
F.s.$c 1 : [VP MD/aux not_RB/advmod VB.$c^ ]
F.s.$c 2 : [VP has_VBZ/aux VBN.$c^ ]
F.s.$c 1 : [VP had_VBD/aux RB.adv/advmod VBN.$c^ ]
F.s.$c 2 : [VP is_VBZ/aux VBG.$c^ ]
F.s.$c 1 : [VP does_VBZ/aux n't_RB/advmod VB.$c^ ]
F.p.$c 5 : [VP VBP.$c^ ]
F.p.$c 7 : [VP VBD.$c^ ]
F.p.$c 2 : [VP RB.adv/advmod VBP.$c^ ]
F.p.$c 2 : [ADVP RB.adv/advmod ] [VP VBD.$c^ ]
F.p.$c 3 : [VP MD/aux VB.$c^ ]
F.p.$c 2 : [VP have_VBP/aux VBN.$c^ ]
F.p.$c 2 : [VP are_VBP/aux VBG.$c^ ]
F.p.$c 1 : [VP do_VBP/aux n't_RB/advmod VB.$c^ ]
PASS.s 3 : [VP was_VBD/aux:pass VBN.t^ ]
PASS.s 1 : [VP has_VBZ/aux been_VBN/aux:pass VBN.t^ ]
PASS.s 1 : [VP MD/aux be_VB/aux:pass VBN.t^ ]
PASS.p 3 : [VP were_VBD/aux:pass VBN.t^ ]
PASS.p 1 : [VP MD/aux be_VB/aux:pass VBN.t^ ]
V.s 3 : BE.s/cop [ADVP RB.adv/advmod ] ADJP^
V.s 2 : F.s.t^ [ADVP RB.deg/advmod ] N.o/obj
BE.s 3 : [VP is_VBZ^ ]
BE.s 2 : [VP was_VBD^ ]
BE.s 1 : [VP remains_VBZ^ ]
BE.p 3 : [VP are_VBP^ ]
BE.p 2 : [VP were_VBD^ ]
XC 5 : XCOPEN^ ] N.o/obj
XC 2 : XCOPEN^ ] N.o/obj PP/obl
XC 1 : to_TO/mark VB.i^ ] ADV/advmod
XCOPEN 1 : to_TO/mark VB.t^
ADJP 5 : [ADJP JJ^ ]
ADJP 4 : [ADJP RB.deg/advmod JJ^ ]
ADJP 1 : [ADJP JJ^ and_CC/cc JJ/conj ]
ADJP 2 : [ADJP JJ^ ] [PP IN/case ] N.o/obl
ADV 4 : [ADVP RB.man^ ]
ADV 2 : [ADVP RB.deg/advmod RB.man^ ]
ADV 2 : [ADVP RB.ly^ ]
PRT 1 : [PRT RP^ ]
PP 50 : [PP IN/case ] N.o^
PP 3 : [PP because_IN/case of_IN/fixed ] N.o^
PP 2 : [PP according_VBG/case ] [PP to_TO/fixed ] N.o^
PP 4 : [PP to_TO/case ] N.o^
PP 3 : [PP in_IN/case ] LOC^
PP 2 : [PP in_IN/case ] [NP NNP.month^ ]
PP 2 : [PP in_IN/case ] [NP CD.year^ ]
PPBY 1 : [PP by_IN/case ] N.o^
TIME 2 : [NP last_JJ/amod NN.time^ ]
TIME 2 : [NP this_DT/det NN.time^ ]
TIME 2 : [NP NNP.day^ ]
TIME 1 : [ADVP earlier_RBR/advmod ] [NP this_DT/det NN.time^ ]
TIME 1 : [NP CD/nummod NNS.time^ ] [ADVP ago_RB/advmod ]
PCT 3 : [NP CD/nummod %_NN^ ]
PCT 2 : [NP RB.num/advmod CD/nummod %_NN^ ]
PCT 1 : [ADVP RB.num/advmod ] [NP CD/nummod %_NN^ ]
PCT 1 : [PP to_TO/case ] [NP $_$^ CD/nummod ]
N.s0 1 : [NP DT.s/det NN^ ]
N.a 3 : [NP a_DT/det NN^ ]
N.a 3 : [NP a_DT/det JJ/amod NN^ ]
N.a 1 : [NP a_DT/det JJ.nation/amod NN^ ] PP/nmod
N.s 90 : N.n^
N.p 45 : N.m^
N.n 14 : [NP DT/det NN^ ]
N.n 10 : [NP DT/det JJ/amod NN^ ]
N.n 5 : [NP DT/det NN/compound NN^ ]
N.n 2 : [NP DT/det JJ/amod NN/compound NN^ ]
N.n 2 : [NP DT/det NN^ ] and_CC/cc [NP NN/conj ]
N.n 2 : [NP DT/det NN^ and_CC/cc NN/conj ]
N.n 2 : [NP DT/det VBN.t/amod NN^ ]
N.n 4 : [NP PRP$/nmod:poss NN^ ]
N.n 6 : [NP DT/det NN^ ] PP/nmod
N.n 5 : POSS/nmod:poss NN^ ]
N.n 2 : [NP DT/det NN^ ] [NP who_WP/nsubj ] V.s/acl:relcl
N.n 2 : [NP DT/det NN^ ] [NP that_WDT/nsubj ] V.s/acl:relcl
N.n 2 : [NP DT/det NN^ ] [VP VBN.t/acl ] PPBY/obl
N.n 2 : [NP DT/det NN^ ] [VP to_TO/mark VB.t/acl ] N.o/obj
N.n 9 : PERSON^
N.n 7 : ORG^
N.n 2 : LOC^
N.n 2 : OTHER^
N.s 8 : [NP PRP.s^ ]
N.s 2 : PERSON^ ,_, [NP DT/det NN/appos ] PP/nmod ,_,
N.n 1 : ORG^ -LRB-_-LRB- LOC/appos -RRB-_-RRB-
N.s 1 : [NP that_DT^ ]
N.m 8 : [NP NNS^ ]
N.m 8 : [NP JJ/amod NNS^ ]
N.m 5 : [NP DT.p/det NNS^ ]
N.m 4 : [NP NN/compound NNS^ ]
N.m 4 : [NP CD/nummod NNS^ ]
N.m 4 : [NP VBG.t/amod NNS^ ]
N.m 2 : [NP JJR/amod NNS^ ]
N.m 1 : [NP more_JJR/advmod than_IN/fixed CD/nummod NNS^ ]
N.m 2 : [NP PRP$/nmod:poss NNS^ ]
N.m 2 : POSS/nmod:poss NNS^ ]
N.m 3 : [NP NNS^ and_CC/cc NNS/conj ]
N.m 3 : [NP NNS^ ] and_CC/cc [NP NNS/conj ]
N.m 2 : [NP JJ/amod NNS^ and_CC/cc NNS/conj ]
N.m 2 : [NP JJ/amod NNS^ ] and_CC/cc [NP JJ/amod NNS/conj ]
N.m 2 : [NP DT.p/det NNS^ ] and_CC/cc [NP DT.p/det NNS/conj ]
N.m 1 : [NP DT/det NN^ ] [CONJP as_RB/cc well_RB/fixed as_IN/fixed ] [NP DT/det NN/conj ]
N.m 1 : [NP NNS^ ] [PP such_JJ/case as_IN/fixed ] [NP NNS/nmod ]
N.p 5 : [NP PRP.p^ ]
N.m 4 : [NP NNS^ ] PP/nmod
N.m 2 : [NP NNS^ ] [NP that_WDT/nsubj ] V.p/acl:relcl
N.m 2 : TEAM^
N.pro 1 : [NP PRP.o^ ]
N.o 60 : N.n^
N.o 36 : N.m^
N.o 5 : [NP PRP.o^ ]
N.o 3 : [NP $_$^ CD.sum/nummod million_CD/compound ]
N.o 2 : [NP RB.num/advmod $_$^ CD.sum/nummod billion_CD/compound ]
POSS 3 : [NP DT/det NN^ ] [NP 's_POS/case
POSS 2 : [NP <person_other NNP.sur^ > ] [NP 's_POS/case
POSS 2 : [NP <organization_company NNP.firm^ > ] [NP 's_POS/case
POSS 2 : [NP <location_country NNP.country^ > ] [NP 's_POS/case
PERSON 5 : [NP <person_other NNP.first^ NNP.sur/flat > ]
PERSON 3 : [NP <person_other NNP.sur^ > ]
PERSON 4 : [NP NNP.title/compound <person_other NNP.sur^ > ]
PERSON 3 : [NP NNP.office/compound <person_politician NNP.sur^ > ]
PERSON 2 : [NP NN.job/compound <person_artist NNP.first^ NNP.sur/flat > ]
N.s 1 : [NP <person_politician NNP.first^ NNP.sur/flat > ] ,_, [NP the_DT/det president_NN/appos ] ,_,
ORG 5 : [NP <organization_company NNP.firm/compound NNP.suffix^ > ]
ORG 2 : [NP <organization_company NNP.sur/compound NNP.firm/compound NNP.suffix^ > ]
ORG 3 : [NP <organization_company NNP.firm^ > ]
ORG 1 : [NP <organization_company NNP.sur/compound &_CC/cc NNP.sur^ > ]
ORG 2 : [NP <organization_education University_NNP^ > ] [PP <organization_education of_IN/case ] [NP NNP.city/nmod > ]
ORG 1 : [NP the_DT/det <organization_media NNP.city/compound Times_NNP^ > ]
ORG 1 : [NP the_DT/det <organization_government Department_NNP^ > ] [PP of_IN/case ] [NP NNP.firm/nmod ]
LOC 5 : [NP <location_city NNP.city^ > ]
LOC 3 : [NP <location_country NNP.country^ > ]
LOC 1 : [NP <location_city NNP.city^ > ] ,_, [NP <location_country NNP.country/appos > ]
LOC 1 : [NP the_DT/det <location_water NNP.sur/compound NNP.water^ > ]
LOC 1 : [NP <building_airport NNP.city/compound Airport_NNP^ > ]
TEAM 1 : [NP the_DT/det <organization_sportsteam NNP.city/compound NNPS.team^ > ]
TEAM 1 : [NP the_DT/det <organization_sportsteam NNPS.team^ > ]
OTHER 2 : [NP DT/det <event_sportsevent NNP.country/compound Cup_NNP^ > ]
OTHER 1 : [NP the_DT/det <product_device NNP.firm/compound NNP.model^ > ]
OTHER 1 : [NP the_DT/det film_NN^ ``_`` <art_film NNP.city/appos > ''_'' ]
OTHER 1 : [NP the_DT/det novel_NN^ ``_`` <art_book NNP.first/appos NNP.sur/flat > ''_'' ]
OTHER 1 : [NP the_DT/det <misc_nation JJ.nation/amod > NN^ ]
"""

# What an automatic tagger confuses: tag -> (tags it may write instead). CoNLL-2000's tags were made by one.
CONFUSED = {
    "NN": ("VB", "JJ", "NNP"), "NNS": ("VBZ",), "VB": ("NN", "VBP"), "VBP": ("NN", "VB"), "VBZ": ("NNS",),
    "VBD": ("VBN", "VBN", "JJ"), "VBN": ("VBD", "VBD", "JJ"), "VBG": ("NN", "JJ"), "JJ": ("NN", "VBN", "RB"),
    "NNP": ("NN", "NNPS", "JJ"), "RP": ("IN", "RB"), "RB": ("IN", "JJ", "RP"), "IN": ("RB", "RP"), "WDT": ("IN",),
}  # fmt: skip
UPOS = {
    "NN": "NOUN", "NNS": "NOUN", "NNP": "PROPN", "NNPS": "PROPN", "VB": "VERB", "VBP": "VERB", "VBZ": "VERB",
    "VBD": "VERB", "VBN": "VERB", "VBG": "VERB", "MD": "AUX", "JJ": "ADJ", "JJR": "ADJ", "RB": "ADV", "RBR": "ADV",
    "WRB": "ADV", "DT": "DET", "PRP": "PRON", "PRP$": "PRON", "WP": "PRON", "WDT": "PRON", "EX": "PRON", "IN": "ADP",
    "RP": "ADP", "TO": "PART", "POS": "PART", "CC": "CCONJ", "CD": "NUM", "UH": "INTJ", "LS": "X", "$": "SYM",
}  # fmt: skip


@lru_cache(maxsize=1)
def grammar():
    words = dict(lexicon())
    words["NNS.time"] = type(words["NN.time"])([word + "s" for word in words["NN.time"].words])
    return Grammar(RULES, words, verb_classes="tisdcp")


def english_sentences(n, seed, unseen_list_mark=False):
    """n sentences as lists of Token, deterministic in the seed.

    unseen_list_mark: the last sentence begins with a list mark of two tokens, so that its label I-LST occurs
    once, as in the test part of CoNLL-2000 (where training never shows it).
    """
    draw = uniform_numbers(seed)
    sentences = [_polish(grammar().sentence(draw)) for _ in range(n)]
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
    return UPOS.get(token.pos, "PUNCT")


def mistagged(tags, seed, rate=0.08):
    """The tags with mistakes of an automatic tagger:
    each confusable tag is replaced with this probability.
    """
    draw = uniform_numbers([*np.atleast_1d(seed), 1])
    out = []
    for tag in tags:
        u = draw()
        others = CONFUSED.get(tag)
        out.append(others[int(u / rate * len(others))] if others and u < rate else tag)
    return out
