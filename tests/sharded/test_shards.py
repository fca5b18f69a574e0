"""Files of shards: what is refused, and by which sentence."""

import errno
import json
import os
import re
import shutil

import numpy as np
import pytest
from helpers.sharded import (
    TEMPLATE,
    columns,
    labels,
    names,
    read_file,
    replaced,
    rewritten,
    sentences,
    some_shards,
)

from crfbook import CRF
from crfbook.data.features import observed
from crfbook.data.files import load_arrays, save_arrays
from crfbook.distributed import ShardError, Shards, fit, write_shards
from crfbook.distributed.shards import (
    MANIFEST,
    own_part,
    read_alphabet,
    read_shard,
    settings_of,
    write_manifest,
)


@pytest.fixture
def shards(tmp_path):
    return some_shards(tmp_path / "s")


def test_a_manifest_is_complete_or_not_there(shards, monkeypatch, tmp_path):
    """What has one counts as complete: a full disk or a kill must not leave half of one."""

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_manifest(tmp_path, shards.settings, shards.alphabet, 0, shards.shards, (1.0, 1.0))
    assert not (tmp_path / MANIFEST).exists()


WRONG = "expected the manifest of shards, {}.* is wrong$"


def refused(folder, message):
    """`fit` raises this ShardError."""
    with pytest.raises(ShardError, match=message):
        fit(CRF(max_iterations=1), folder)


def test_what_a_folder_says_of_itself(shards):
    again = Shards(shards.folder)
    assert (again.n_sequences, again.n_tokens) == (60, sum(map(len, sentences())))
    assert again.digest == shards.digest and again.settings == shards.settings
    assert repr(again).endswith(f"{len(again)} shards, 60 sequences, {again.n_tokens} tokens")


def test_a_shard_has_its_own_features_alone(shards):
    whole = CRF(max_iterations=0).fit(*names(sentences()))
    seen = []
    for shard in shards.shards:
        corpus, features, place, _ = read_shard(shard.path, shard.digest)
        assert len(place) == features.n_features == shard.n_features and (np.diff(place) > 0).all()
        assert not np.setdiff1d(observed(corpus, *features.sizes).node_keys, features.node_keys).size
        assert (np.bincount(corpus.attr_idx, minlength=features.n_attrs) > 0).all()
        seen.append(place)
    assert set(np.concatenate(seen).tolist()) == set(range(whole.features_.n_features))
    assert max(map(len, seen)) < whole.features_.n_features


def test_own_part_of_edge_attributes():
    from helpers.corpora import random_corpus

    corpus = random_corpus(np.random.default_rng(1), (4, 3), n_attrs=40, n_classes=4)
    features = observed(corpus, 3, 50, 6)
    small, own, place = own_part(corpus, features)
    assert own.n_edge_attrs == len(np.union1d([0], corpus.class_attr)) and own.n_attrs < 50
    assert own.edge_pair.tolist() == features.edge_pair[place[own.n_node :] - features.n_node].tolist()
    assert small.n_tokens == corpus.n_tokens


def test_a_shard_that_is_missing_is_named(shards):
    os.unlink(shards.shards[2].path)
    refused(shards, r"^shard shard-00002\.crfbook: expected a file, there is none at \S+shard-00002.crfbook$")


@pytest.mark.parametrize("keep", [0, 10, 5000, -1])
def test_a_shard_that_is_cut_short_is_named(shards, keep):
    path = shards.shards[1].path
    with open(path, "r+b") as file:
        file.truncate(keep if keep >= 0 else os.path.getsize(path) - 1)
    refused(shards.folder, r"^shard shard-00001\.crfbook cannot be used: ")


def test_a_shard_with_a_changed_byte_is_named(shards):
    with open(shards.shards[1].path, "r+b") as file:
        file.seek(3000)
        byte = file.read(1)
        file.seek(3000)
        file.write(bytes([byte[0] ^ 1]))
    refused(shards, r"^shard shard-00001\.crfbook cannot be used: .*damaged")


def test_a_shard_of_another_alphabet_is_named(shards, tmp_path):
    other = write_shards([names(sentences(seed=1))], tmp_path / "t", CRF(), shard_tokens=30)
    shutil.copy(other.shards[3].path, shards.shards[3].path)
    refused(shards, r"^shard shard-00003\.crfbook: it is not the file that the manifest names, but one of an")
    shutil.copy(os.path.join(other.folder, "alphabet.crfbook"), shards.folder)
    read_alphabet.cache_clear()
    refused(shards.folder, r"^alphabet alphabet\.crfbook: it is not the file that the manifest names")


def test_two_shards_that_were_exchanged_are_named(shards):
    first, second = shards.shards[0].path, shards.shards[1].path
    os.rename(first, f"{first}.x")
    os.rename(second, first)
    os.rename(f"{first}.x", second)
    refused(shards, r"^shard shard-00000\.crfbook: it is not the file that the manifest names")


def test_a_shard_of_another_version_is_named(shards):
    path = shards.shards[1].path
    header, arrays = load_arrays(path, "shard")
    save_arrays(path, "shard", header | {"schema": 1}, arrays)
    refused(shards, r"^shard shard-00001\.crfbook: expected version 2, got 1: write the shards again$")
    CRF(max_iterations=0).fit(*names(sentences())).save(path)
    refused(shards, r"^shard shard-00001\.crfbook cannot be used: .*expected a saved shard, got a saved CRF$")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about | {"schema": 7}, "expected shards of version 2, got 7: write them again$"),
        (lambda about: [1], r"expected shards of version 2, got \[1\]: write them again$"),
        (lambda about: about | {"shards": about["shards"] + about["shards"][1:2]},
         r"expected each shard once, got shard-00001\.crfbook twice$"),
        (lambda about: {n: v for n, v in about.items() if n != "alphabet"}, WRONG.format("KeyError")),
        (lambda about: about | {"shards": [["a"]]}, WRONG.format("TypeError")),
        (lambda about: about | {"shards": 3}, WRONG.format("TypeError")),
    ],
)  # fmt: skip
def test_manifests_are_checked(shards, change, message):
    path = os.path.join(shards.folder, "manifest.json")
    with open(path) as file:
        about = json.load(file)
    with open(path, "w") as file:
        json.dump(change(about), file)
    refused(shards.folder, rf"^{re.escape(path)}: {message}")


def test_folders_without_finished_shards(shards, tmp_path):
    refused(tmp_path, "expected shards that write_shards has finished, there is no manifest.json$")
    refused(
        tmp_path / "nothing", "expected shards that write_shards has finished, there is no manifest.json$"
    )
    with open(os.path.join(shards.folder, "manifest.json"), "wb") as file:
        file.write(b'{"schema": \xff')
    refused(shards.folder, r"manifest\.json: expected the manifest of shards, ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_freq": 3}, "^min_freq: these shards were written for 0.0, the CRF has 3.0: write shards for"),
        ({"template": "U:%x[0,0]"}, "^template: these shards were written for None, the CRF has 'U:%x"),
        ({"constraints": "BIO"}, "^constraints: these shards were written for None, the CRF has 'BIO'"),
        (
            {"on_violation": "drop"},
            "^on_violation: these shards were written for 'raise', the CRF has 'drop'",
        ),
        ({"all_possible_states": True}, "^all_possible_states: these shards were written for False"),
        (
            {"all_possible_transitions": True},
            "^all_possible_transitions: these shards were written for False",
        ),
    ],
)
def test_shards_of_another_crf_are_refused(shards, options, message):
    with pytest.raises(ValueError, match=message):
        fit(CRF(**options), shards)


def test_tables_of_constraints_are_told_apart():
    """Large ones, too, of which a text shows the beginning and the end alone."""
    one = np.ones((50, 50), bool)
    two = one.copy()
    two[25, 25] = False
    found = [settings_of(CRF(constraints=table))["constraints"] for table in (one, two, two.copy())]
    assert found[0] != found[1] == found[2]


def test_shards_with_a_table_of_constraints(tmp_path):
    rows = sentences()
    classes = sorted({y for s in labels(rows) for y in s})
    table = np.ones((3, 3), bool)
    table[classes.index("O"), classes.index("B-x")] = False
    rules = {"constraints": table, "on_violation": "drop", "max_iterations": 5}
    with pytest.warns(UserWarning, match="violate the constraints and were left out"):
        found = write_shards([names(rows)], tmp_path, CRF(**rules), shard_tokens=30)
    crf = fit(CRF(**rules), found)
    with pytest.warns(UserWarning, match="violate"):
        wanted = CRF(**rules).fit(*names(rows))
    assert crf.n_dropped_ == wanted.n_dropped_ > 0
    np.testing.assert_allclose(crf.weights_, wanted.weights_, rtol=1e-9, atol=1e-9)


def test_a_manifest_that_was_shortened_is_refused(shards):
    path = os.path.join(shards.folder, MANIFEST)
    with open(path, encoding="utf-8") as file:
        about = json.load(file)
    about["shards"] = about["shards"][:1]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(about, file)
    refused(shards.folder, "expected the manifest as write_shards left it, its hash is another")


# ---- forged: every hash is the right one


@pytest.fixture
def with_edges(tmp_path):
    """Shards whose transitions depend on the text, and constraints."""
    crf = CRF(template=TEMPLATE, constraints="BIO", on_violation="drop")
    with pytest.warns(UserWarning, match="violate"):
        return write_shards([columns(sentences())], tmp_path / "e", crf, shard_tokens=60)


def one(position, value):
    """A change of one entry of an array."""

    def change(array):
        array = array.copy()
        array[position] = value
        return array

    return change


FORGED = [
    ("corpus.attr_idx", one(5, 10**6), "array 'attr_idx': expected int32"),
    ("corpus.attr_idx", one(5, -1), "attr_idx: expected ids >= 0"),
    ("corpus.labels", one(3, 3), "array 'labels'"),
    ("corpus.labels", one(3, -1), "array 'labels'"),
    ("corpus.class_attr", one(-1, 10**6), "array 'class_attr'"),
    ("corpus.class_attr", one(-1, -1), "array 'class_attr'"),
    ("corpus.label_set", lambda a: np.zeros(60, np.int32), "label_set"),
    ("features.node_label", one(0, 3), "array 'node_label'"),
    ("features.node_label", one(0, 10**6), "array 'node_label'"),
    ("features.edge_prev", one(0, -1), "array 'edge_prev'"),
    ("features.edge_next", one(-1, 7), "array 'edge_next'"),
    ("features.node_ptr", one(1, 10**6), "array 'node_ptr'"),
    ("features.edge_ptr", one(1, -1), "array 'edge_ptr'"),
    ("place", one(-1, 10**6), "array 'place'"),
    ("place", one(1, 0), "array 'place'.* rising"),
    ("place", lambda a: a[:-1], "array 'place'"),
    ("place", lambda a: a + 1, "place"),
    ("constraints.allowed", lambda a: ~a, "constraints: expected those of the alphabet"),
]


@pytest.mark.parametrize(("name", "change", "message"), FORGED)
def test_forged_shards_are_refused(with_edges, name, change, message):
    header, arrays = read_file(with_edges.folder, "shard-00001.crfbook")
    replaced(with_edges.folder, "shard-00001.crfbook", header, arrays | {name: change(arrays[name])})
    rules = {"template": TEMPLATE, "constraints": "BIO", "on_violation": "drop", "max_iterations": 1}
    for algorithm in ("lbfgs", "perceptron", "auto"):
        with pytest.raises(ShardError, match=rf"^shard shard-00001\.crfbook cannot be used: .*{message}"):
            fit(CRF(algorithm, **rules), with_edges.folder)


def test_a_shard_trains_the_weights_of_its_own_attributes(shards):
    """Every number is in its range, and every hash is right; the weights are those of other attributes."""
    header, arrays = read_file(shards.folder, "shard-00001.crfbook")
    whole, place = shards.features, arrays["place"].astype(np.int64)
    other = np.setdiff1d(np.arange(whole.n_node), place)[:1]  # a weight that the shard has not
    moved = np.sort(np.concatenate([place[1:], other])).astype(np.uint32)
    replaced(shards.folder, "shard-00001.crfbook", header, arrays | {"place": moved})
    refused(shards.folder, "place: expected rows of the alphabet's weights, complete and with the same label")


def test_a_shard_with_labels_that_are_exchanged_is_refused(shards):
    """In the shard alone: its weights would be those of other labels."""
    header, arrays = read_file(shards.folder, "shard-00001.crfbook")
    pair = np.flatnonzero(np.diff(arrays["features.node_ptr"]) == 1)[0]
    label = arrays["features.node_label"].copy()
    at = arrays["features.node_ptr"][pair]
    label[at] = (label[at] + 1) % 3
    replaced(shards.folder, "shard-00001.crfbook", header, arrays | {"features.node_label": label})
    refused(shards.folder, "place: expected rows of the alphabet's weights, complete and with the same label")


def test_a_shard_is_what_its_hash_says(shards):
    """Sealed again, with the hash of the content that was there before."""
    header, arrays = read_file(shards.folder, "shard-00001.crfbook")
    values = arrays["corpus.labels"][::-1]
    save_arrays(shards.shards[1].path, "shard", header, arrays | {"corpus.labels": values})
    refused(shards.folder, r"^shard shard-00001\.crfbook: it is not the file that the manifest names")

    def change(about):
        about["shards"][1][1] = ""
        return about

    replaced(shards.folder, "shard-00001.crfbook", header, arrays)
    rewritten(shards.folder, change)
    refused(shards.folder, r"^shard shard-00001\.crfbook: it is not the file that the manifest names")


def test_the_template_of_the_alphabet_is_that_of_the_shards(with_edges):
    header, arrays = read_file(with_edges.folder, "alphabet.crfbook")
    header["encoder"]["attributes"]["template"] = TEMPLATE.replace("[0,1]", "[1,1]")
    replaced(with_edges.folder, "alphabet.crfbook", header, arrays)
    with pytest.raises(ShardError, match="expected the template"):
        _ = Shards(with_edges.folder).encoder


FORGED_MANIFESTS = [
    (lambda about: about | {"settings": {}}, "refused, settings: .* is missing"),
    (lambda about: about | {"settings": [1]}, "refused, settings: expected dict"),
    (lambda about: about | {"shards": []}, "refused, shards: expected at least one, got none"),
    (lambda about: about | {"shards": {}}, "refused, shards: expected at least one, got none"),
    (lambda about: about | {"alphabet": 5}, "refused, alphabet: expected str"),
    (lambda about: about | {"n_dropped": "3"}, "refused, n_dropped: expected int"),
    (lambda about: about | {"n_dropped": -3}, "refused, n_dropped: expected int"),
    (lambda about: about | {"extremes": ["1", 1.0]}, "refused, attr_val: expected a finite number"),
    (lambda about: about | {"extremes": [1.0]}, "is wrong"),
]


@pytest.mark.parametrize(("change", "message"), FORGED_MANIFESTS)
def test_forged_manifests_are_refused(shards, change, message):
    rewritten(shards.folder, change)
    with pytest.raises(ShardError, match=message):
        Shards(shards.folder)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "../shard-00001.crfbook", "expected names such as shard-00000.crfbook"),
        (0, "/dev/zero", "expected names such as shard-00000.crfbook"),
        (0, "shard-00001.crfbook\0", "expected names such as shard-00000.crfbook"),
        (0, "shard-00000.crfbook", "expected each shard once, got shard-00000.crfbook twice"),
        (1, 7, "digest: expected str"),
        (2, "7", "n_sequences: expected int"),
        (3, 7.0, "n_tokens: expected int"),
        (4, -1, "n_features: expected int"),
        (4, True, "n_features: expected int"),
    ],
)
def test_rows_of_forged_manifests_are_refused(shards, place, value, message):
    def change(about):
        about["shards"][1][place] = value
        return about

    rewritten(shards.folder, change)
    with pytest.raises(ShardError, match=message):
        Shards(shards.folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema": 2, "x": ' + "[" * 100_000, "1" * 5000])
def test_manifests_that_json_cannot_read(shards, text):
    with open(os.path.join(shards.folder, MANIFEST), "w") as file:
        file.write(text)
    refused(shards.folder, "expected the manifest of shards, ")


@pytest.mark.parametrize("place", [2, 3, 4])
def test_sizes_in_a_manifest_are_those_of_the_files(shards, place):
    """Means over shards divide by the number of those that have tokens."""

    def change(about):
        about["shards"][1][place] = 0
        return about

    rewritten(shards.folder, change)
    refused(
        shards.folder, r"shard-00001\.crfbook cannot be used: expected \(.* sequences, tokens and weights"
    )
