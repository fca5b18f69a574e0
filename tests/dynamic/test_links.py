"""Linked tokens: which they are, and the counts of their cliques."""

import numpy as np
import pytest
from helpers.corpora import random_corpus
from helpers.dynamic import SKIPPING, dynamic_problem, enumerate_sequence

from crfbook.data.constraints import Constraints
from crfbook.data.corpus import slice_sequences, take_sequences
from crfbook.dynamic.junction import tree_plan
from crfbook.dynamic.layout import gold_counts, lay_out_template
from crfbook.dynamic.templates import Clique, check_cliques, linear, skip


def linked_corpus(link, lengths):
    corpus = random_corpus(np.random.default_rng(0), lengths, 2, 5)
    return corpus._replace(link=np.array(link, np.int32))


def test_each_token_is_linked_with_the_next_one_of_the_same_number_in_its_sequence():
    corpus = linked_corpus([4, -1, 4, 0, 4, 0, -1, -1, 4], [6, 3])
    assert corpus.linked.tolist() == [[0, 2], [2, 4], [3, 5]]
    assert slice_sequences(corpus, 1, 2).linked.tolist() == []
    assert take_sequences(corpus, [1, 0]).linked.tolist() == [[3, 5], [5, 7], [6, 8]]
    assert random_corpus(np.random.default_rng(0), [2, 1], 2, 5).linked.shape == (0, 2)


@pytest.mark.parametrize("name", SKIPPING)
def test_counts_of_known_labels_are_the_slope_of_their_score(name):
    problem = dynamic_problem(name, lengths=(4, 3, 1))
    corpus, labels, layout, features, w = problem
    counts = gold_counts(layout, corpus, features, labels)
    score = 0.0
    for i in range(corpus.n_sequences):
        one = enumerate_sequence(problem, i)
        gold = labels[corpus.seq_ptr[i] : corpus.seq_ptr[i + 1]].reshape(-1)
        score += one.scores[(one.paths == gold).all(axis=1)][0]
    assert counts @ w == pytest.approx(score, rel=1e-12)
    table = next(table for table in layout.tables if table.linked)
    first = features.n_node + table.start
    assert counts[first : first + table.size].sum() == len(corpus.linked) > 0


def test_a_pair_of_neighbours_and_a_linked_pair_of_the_same_chain_are_two_cliques():
    layout = lay_out_template([*linear("a"), *skip("a")], ("a",), {"a": [0, 1]})
    assert [table.name for table in layout.tables] == ["a(t)", "a(t-1), a(t)", "a(t), a(linked)"]
    assert layout.axes == ()


def test_constraints_of_neighbours_are_none_of_linked_tokens():
    limits = {"a": Constraints(np.tri(2, dtype=bool), np.ones(2, bool), np.ones(2, bool))}
    for cliques in ([*skip("a"), *linear("a")], [*linear("a"), *skip("a")], [*skip("a"), *linear("a")[:1]]):
        layout = lay_out_template(cliques, ("a",), {"a": [0, 1]}, limits)
        for table in layout.tables:
            limited = len(table.at) == 2 and not table.linked
            assert (table.allowed is not None) == limited
        assert sum(table.allowed is not None for table in layout.tables) == 1


def test_exact_inference_refuses_links():
    layout = lay_out_template([*linear("a"), *skip("a")], ("a",), {"a": [0, 1]})
    with pytest.raises(ValueError, match=r"neighbouring tokens for exact inference, got a\(t\), a\(linked\)"):
        tree_plan(layout, 3)


@pytest.mark.parametrize(
    "clique",
    [
        Clique(((0, "a"), (0, "b")), "bias", "linked"),
        Clique(((0, "a"), (1, "a"), (2, "a")), "bias", "linked"),
        Clique(((0, "a"), (1, "a")), "supported", "linked"),
    ],
)
def test_linked_cliques_that_cannot_be(clique):
    with pytest.raises(ValueError, match="clique 0: expected .* for the rule 'linked'"):
        check_cliques([clique])
