"""Columns with names mean the same at fit and later, whatever their order."""

import warnings
from itertools import permutations

import numpy as np
import pytest

from crfbook import CRF, Encoder, Tagger, TokenColumns

ROWS = [("The", "DT", "1"), ("man", "NN", "2"), ("left", "VBD", "3"), ("it", "PRP", "4")]
NAMES = ("word", "pos", "id")
LABELS = ["B", "I", "O", "B"]


@pytest.fixture(params=[None, 1])
def model(request):
    columns = TokenColumns({name: [row[j] for row in ROWS] for j, name in enumerate(NAMES[:2])}, [0, 4])
    model = CRF(template="U0:%x[0,0]\nU1:%x[0,1]\nU2:%x[-1,1]\nB", tag_dictionary=request.param)
    model.set_params(max_iterations=5).fit(columns, [LABELS])
    return model


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("names", list(permutations(NAMES)))
def test_the_order_of_names_does_not_matter(model, names, kernels):
    tagger, place = Tagger(model, kernels=kernels), {name: j for j, name in enumerate(NAMES)}
    tokens = [{name: row[place[name]] for name in names} for row in ROWS]
    columns = TokenColumns({name: [token[name] for token in tokens] for name in names}, [0, 4])
    first = TokenColumns({name: columns.columns[name] for name in NAMES[:2]}, [0, 4])
    (expected,) = model.predict_marginals_array(first)
    for given in ([tokens], [[tokens[0], *({**token} for token in tokens[1:])]], columns):
        np.testing.assert_allclose(model.predict_marginals_array(given)[0], expected, atol=1e-12)
    assert tagger.tag(tokens) == model.predict(first)[0] == LABELS
    mixed = [tokens, [dict(zip(NAMES, row, strict=True)) for row in ROWS]]
    for p_node in model.predict_marginals_array(mixed):
        np.testing.assert_allclose(p_node, expected, atol=1e-12)


def test_what_is_missing_or_too_much_is_named(model):
    with pytest.raises(ValueError, match=r"column 1, 'pos'; the data has these columns: 0 'word'$"):
        model.predict([[{"word": "The", "id": "1"}]])
    with pytest.raises(ValueError, match=r"column 1, 'pos'; the data has these columns: 0 'word'$"):
        Tagger(model).tag(["The", "man"])
    with pytest.raises(
        ValueError, match="sequence 0, token 0: expected at most 2 cells .'word', 'pos'., as at"
    ):
        model.predict([[("1", "The", "DT"), ("2", "man", "NN")]])
    assert Tagger(model).tag([row[:2] for row in ROWS]) == LABELS


def test_cells_of_dicts_that_no_template_reads_are_told():
    X = [[{"pos": "NNP", "word": "Ann"}, {"pos": "V", "word": "runs"}]]
    with pytest.warns(UserWarning, match=r"keys the template reads \['pos'\]; not read: \['word'\]$"):
        Encoder("words").fit_transform(X, [["A", "B"]])
    with pytest.warns(UserWarning, match=r"reads \[0, 'word'\]; not read: \['z'\]$"):
        Encoder("U0:%x[0,0]\nU1:%x[0,word]\nB").fit([[{0: "a", "word": "b", "z": "q"}]], [["A"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Encoder("words").fit_transform([[{"word": "Ann"}]], [["A"]])
        Encoder("words").fit_transform([[("Ann", "NNP")]], [["A"]])
        Encoder("words").fit_transform(TokenColumns({"word": ["Ann"], "pos": ["NNP"]}, [0, 1]), [["A"]])
