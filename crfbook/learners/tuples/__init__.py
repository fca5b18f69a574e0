"""Weights on label triples and quadruples: an automaton over the tuples that have one (chapter 08).

Sources: Aho and Corasick (1975) for the automaton, Sokolovska et al. (2010) for the penalty.
"""

from crfbook.learners.tuples.automaton import Automaton
from crfbook.learners.tuples.tuple_chain import decode_tuples, train_tuples

__all__ = ["Automaton", "decode_tuples", "train_tuples"]
