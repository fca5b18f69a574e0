"""The parameters of `CRF`: its signature, its docstring, the table behind both, and what follows from it."""

import inspect
import re
import warnings

import pytest

from crfbook.learners.coordinate import sbcd
from crfbook.models import parameters
from crfbook.models.crf import CRF
from crfbook.models.parameters import ALGORITHMS, GROUPS, NEEDED, PARAMETERS, check_settings, given

ENTRY = re.compile(r"^(\w+) : (.*)$", re.M)
FREE = {"algorithm": "str", "loss": "str", "seed": "int", "threads": "int", "flag": "bool"}


def groups():
    """{heading: {parameter: its entry}} of the docstring."""
    text = inspect.getdoc(CRF)
    text = text[text.index("Parameters\n---") : text.index("Attributes\n---")]
    parts = re.split(r"^\*\*(.+)\*\*$", text, flags=re.M)[1:]
    return {
        heading: {found[1]: found[2] for found in ENTRY.finditer(re.sub(r"\n +", " ", part))}
        for heading, part in zip(parts[::2], parts[1::2], strict=True)
    }


def beginning(row):
    """How the entry of a parameter begins: what it may be, and its default."""
    what = FREE.get(row.kind, "")
    if row.kind in ("number", "whole"):
        bound = f">= {row.least}" if row.above is None else f"> {row.above:g}"
        what = f"{'integer' if row.kind == 'whole' else 'number'} {bound}"
    elif row.choices:
        names = [f'"{name}"' if isinstance(name, str) else str(name) for name in row.choices]
        what = f"{', '.join(names[:-1])} or {names[-1]}"
    default = {str: f'"{row.default}"', type(None): "None"}.get(type(row.default), f"{row.default}")
    default = {"2000000000.0": "2e9", "None": "None" if row.none is None else f"None: {row.none}"}.get(
        default, default
    )
    return f"{what}, default {default}" if what else f"default {default}"


def test_signature_and_table_have_the_same_names_and_defaults():
    found = {name: p.default for name, p in inspect.signature(CRF).parameters.items()}
    assert found == {name: row.default for name, row in PARAMETERS.items()}
    assert all(type(default) is type(PARAMETERS[name].default) for name, default in found.items())


def test_the_docstring_has_the_groups_of_the_table():
    found = [(heading, list(entries)) for heading, entries in groups().items()]
    assert len(GROUPS) == 5 and found == [(heading, list(rows)) for heading, rows in GROUPS.items()]


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_has_an_entry_with_its_least_value_and_default(name):
    (entry,) = (part[name] for part in groups().values() if name in part)
    assert re.match(re.escape(beginning(PARAMETERS[name])) + r"[.:,]", entry), entry
    assert re.search(r"[.:,] \w", entry[len(beginning(PARAMETERS[name])) :]), f"{name}: nothing but a default"


def test_the_docstring_says_what_the_algorithms_themselves_have_as_default():
    """ "default None: 1000" of a parameter whose default is in the function that reads it."""
    entries = {name: text for part in groups().values() for name, text in part.items()}
    for name, row in PARAMETERS.items():
        if name in ("loss", "tol", "max_iterations") or row.none is not None or row.default is not None:
            continue
        for key in row.readers:
            argument = parameters.arguments_of(key)[name]
            own = inspect.signature(ALGORITHMS[key].load()).parameters.get(argument)
            if own is not None and own.default not in (None, inspect.Parameter.empty) and own.default:
                said = re.findall(r"True|False|\d[\d.e-]*(?<!\.)", entries[name])
                assert any(eval(value) == own.default for value in said), (name, key, own.default)


def test_readers_are_algorithms():
    for name, row in PARAMETERS.items():
        assert set(row.readers) <= set(ALGORITHMS), name
        assert row.kind in parameters.CHECKS and (not row.choices or row.kind == "choice"), name
        assert row.default is None or row.none is None or row.default == row.none, name


def numbers():
    return [name for name, row in PARAMETERS.items() if row.kind in ("number", "whole")]


@pytest.mark.parametrize("name", numbers())
def test_a_number_below_the_least_is_refused_and_the_least_is_not(name):
    row = PARAMETERS[name]
    low = row.least - 1 if row.above is None else row.above
    wanted = f">= {row.least}" if row.above is None else f"> {row.above:g}"
    kind = "an integer" if row.kind == "whole" else "a finite number"
    with pytest.raises(ValueError, match=f"^{name}: expected {kind} {wanted}, got {low!r}$"):
        given(CRF(**{name: low}), name)
    with pytest.raises(TypeError, match=f"^{name}: expected {kind} {wanted}, got 'x'$"):
        given(CRF(**{name: "x"}), name)
    assert given(CRF(**{name: row.least if row.above is None else row.above + 1}), name) >= row.least
    assert given(CRF(**{name: None}), name) == row.none


@pytest.mark.parametrize("key", ALGORITHMS)
@pytest.mark.parametrize("name", [name for name, row in PARAMETERS.items() if row.readers and name != "eps"])
def test_a_parameter_is_handed_on_or_named(name, key):
    """An algorithm that reads it gets it, for any other a warning names it."""
    row = PARAMETERS[name]
    value = {"flag": False, "choice": (row.choices or [None])[-1], "loss": "log"}.get(row.kind, 2)
    usual = {"c1": 1.0 if ALGORITHMS[key].c1 == NEEDED else 0.0}
    if key not in row.readers and (name in ("clamp", "loss", "c1") or (name, key) == ("c2", "sgd-l1")):
        return  # refused: see test_algorithms.py
    model = CRF(key, **{**usual, name: value, **({"loss": "exp"} if name == "clamp" else {})})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings = check_settings(model)
    named = [str(w.message).rpartition(": ")[2] for w in caught]
    assert named == ([name] if row.idle and key not in row.readers else [])
    if key in row.readers:
        argument = parameters.arguments_of(key)[name]
        found = settings.arguments()[argument] if name != "period" else settings.period
        assert found == ((10, 2.0) if argument == "relative_change" and name == "delta" else value)
    else:
        assert name not in settings.arguments()


def test_what_only_others_read_is_not_checked():
    with pytest.warns(UserWarning, match="ignored: c, calibration_samples$"):
        check_settings(CRF(c="x", calibration_samples=0))
    with pytest.raises(ValueError, match="tol: expected"):
        check_settings(CRF("perceptron", tol=-1))


def test_virtual_weights_are_asked_for_by_four_parameters():
    asked = dict(all_possible_states=True, all_possible_transitions=True, c1=1.0)
    assert check_settings(CRF("sbcd", **asked)).arguments()["virtual"] is True
    for name in asked:
        assert not check_settings(CRF("sbcd", **{**asked, name: None})).virtual
    assert not check_settings(CRF("sbcd", **asked, min_freq=1)).virtual
    assert not check_settings(CRF("owlqn", **asked)).virtual
    assert "virtual" in inspect.signature(sbcd).parameters


def test_without_an_l2_penalty_a_small_change_ends_training():
    assert check_settings(CRF()).relative_change is None
    assert check_settings(CRF(c2=0)).relative_change == check_settings(CRF(c2=0, period=10)).relative_change
    assert check_settings(CRF("owlqn", c1=1, c2=0)).arguments()["relative_change"] == (10, 1e-6)
    assert check_settings(CRF(delta=1e-3, period=4)).arguments()["relative_change"] == (4, 1e-3)
    assert not {"period", "delta"} & set(check_settings(CRF(delta=1e-3)).arguments())
