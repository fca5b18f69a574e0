"""The neural tagger of chapter 14: its loss and best labels are those of all labellings, listed."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from studies import bilstm  # noqa: E402

WORDS, GOLD = [["ab", "cde", "f"], ["gh"], ["a", "b", "c", "d", "e"]], [[0, 2, 1], [2], [1, 1, 0, 2, 0]]
KNOWN, LETTERS = ({name: i for i, name in enumerate(some, 2)} for some in (["ab", "f", "gh"], "abcdefgh"))


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = bilstm.Tagger(len(KNOWN) + 2, len(LETTERS) + 2, 3).double().eval()
    for weights in (made.start, made.pair):
        torch.nn.init.normal_(weights)
    return made


def batch_of(words, gold):
    [one] = bilstm.batches(list(zip(words, gold, strict=True)), KNOWN, LETTERS, {y: y for y in range(3)})
    return one


def test_loss_and_best_labels_are_those_of_all_labellings(model):
    batch = batch_of(WORDS, GOLD)
    node, pair = model.scores(*batch[:3]).tolist(), model.pair.tolist()
    loss, best = 0.0, []
    for u, words, gold in zip(node, WORDS, GOLD, strict=True):
        score = {
            y: sum(u[t][k] for t, k in enumerate(y)) + sum(pair[j][k] for j, k in zip(y, y[1:], strict=False))
            for y in product(range(3), repeat=len(words))
        }
        loss += np.logaddexp.reduce([*score.values()]) - score[tuple(gold)]
        best.append([*max(score, key=score.get)])
    assert model.loss(*batch).item() == pytest.approx(loss, rel=1e-12)
    assert model.best(*batch[:3]) == best


def test_scores_do_not_depend_on_the_other_sentences(model):
    alone = model.scores(*batch_of(WORDS[2:], GOLD[2:])[:3])[0]
    beside = model.scores(*batch_of([["abcdefgh"] * 9, WORDS[2]], [[0] * 9, GOLD[2]])[:3])[1, :5]
    torch.testing.assert_close(alone, beside, rtol=1e-12, atol=1e-12)
