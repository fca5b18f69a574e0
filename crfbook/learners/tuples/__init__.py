"""Weights on label triples and quadruples: an automaton over the tuples that have one (chapter 08).

    train_tuples(corpus, features, ...)     weights of labels, pairs and tuples under an L1 penalty
    decode_tuples(corpus, ...)              the best labelling under them
    Automaton                               the contexts that the tuples need

Sources: Aho and Corasick (1975) for the automaton, Sokolovska et al. (2010) for the penalty.
"""

from crfbook.learners.tuples.automaton import Automaton
from crfbook.learners.tuples.tuple_chain import decode_tuples, train_tuples

__all__ = ["Automaton", "decode_tuples", "train_tuples"]
