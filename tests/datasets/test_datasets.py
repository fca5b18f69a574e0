"""Data sets: counts of the real corpora (where they are on this machine), and what the loader says."""

from collections import Counter
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

import crfbook
from crfbook import datasets

WITH_COLUMNS = [
    (name, task) for name, (tasks, _) in datasets.CATALOGUE.items() for task in tasks if task != "pairs"
]


@cache
def _load_real(name, task):
    return crfbook.load_dataset(name, task, "real", verbose=False)


def real(name, task=None):
    try:
        return _load_real(name, task or datasets.CATALOGUE[name][0][0])
    except FileNotFoundError as error:
        pytest.skip(str(error))


def counts(name, filename, member=None):
    import data_fetch

    entry = data_fetch.REGISTRY[name]["files"][filename]
    return (entry["members"][member] if member else entry)["counts"]


def n_entities(tokens):
    """Entities as the registry counts them: maximal runs of one type, B- begins a new one."""
    found = Counter()
    for tags in tokens.labels_by_sequence():
        for previous, tag in zip(["O", *tags], tags, strict=False):
            if tag != "O" and (tag[0] == "B" or previous[2:] != tag[2:]):
                found[tag[2:]] += 1
    return dict(found)


@pytest.mark.parametrize("split", ["train", "test"])
def test_real_conll2000(split):
    expected = counts("conll2000", "conll2000.zip", f"conll2000/{split}.txt")
    tokens = getattr(real("conll2000"), split)
    assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["tokens"])
    assert len(set(tokens.labels)) == expected["chunk_labels"]
    assert len(set(tokens.columns["pos"])) == expected["pos_labels"]
    assert sum(n_entities(tokens).values()) == expected["chunks"]


def test_real_conll2000_other_tasks():
    joint, pos = real("conll2000", "joint"), real("conll2000", "pos")
    assert len(set(joint.train.labels)) == 319 and joint.train.names == ("word",)
    assert len(set(pos.train.labels)) == 44 and pos.train.names == ("word",)
    train, test = set(real("conll2000").train.labels), set(real("conll2000").test.labels)
    assert test - train == {"I-LST"}


@pytest.mark.parametrize("task", ["esp", "ned"])
def test_real_conll2002(task):
    dataset = real("conll2002", task)
    for split, part in (("train", "train"), ("dev", "testa"), ("test", "testb")):
        expected = counts("conll2002", "conll2002.zip", f"conll2002/{task}.{part}")
        tokens = dataset.splits[split]
        assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["tokens"])
        assert sorted(set(tokens.labels)) == expected["ner_labels"]
        assert n_entities(tokens) == expected["entities"]
        first = [sentence[0] for sentence in tokens.by_sequence("word")]
        assert (
            first.count("-DOCSTART-")
            == expected["docstart_tokens"]
            == tokens.columns["word"].count("-DOCSTART-")
        )


def test_real_wnut17():
    dataset = real("wnut17")
    files = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
    for split, filename in files.items():
        expected = counts("wnut17", filename)
        tokens = dataset.splits[split]
        assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["tokens"])
        assert n_entities(tokens) == expected["entities"]


def test_real_fewnerd():
    dataset = real("fewnerd-inter")
    for split, filename in (("train", "dev.txt"), ("test", "test.txt")):
        expected = counts("fewnerd-inter", filename)
        tokens = dataset.splits[split]
        assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["tokens"])
        assert len(set(tokens.labels)) == expected["bio_labels"]


def test_real_atis():
    dataset = real("atis")
    for split in ("train", "test"):
        expected = counts("atis", f"atis.{split}.w-intent.iob")
        tokens = dataset.splits[split]
        assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["tokens_without_BOS_EOS"])
        assert len(set(tokens.labels)) == expected["slot_labels"]
        assert len(set(tokens.columns["word"])) == expected["vocabulary"]
        assert len(dataset.extra["intents"][split]) == len(tokens)
        assert len(set(dataset.extra["intents"][split])) == expected["intents"]
    unseen = set(dataset.test.labels) - set(dataset.train.labels)
    assert sorted(unseen) == counts("atis", "atis.test.w-intent.iob")["labels_unseen_in_train"]


@pytest.mark.parametrize(("name", "stem"), [("ud-english-ewt", "en_ewt"), ("ud-turkish-imst", "tr_imst")])
def test_real_universal_dependencies(name, stem):
    upos, morph = real(name, "upos"), real(name, "morph")
    english = name == "ud-english-ewt"
    supertag, pos = (real(name, "supertag"), real(name, "pos")) if english else (None, None)
    for split in ("train", "dev", "test"):
        expected = counts(name, f"{stem}-ud-{split}.conllu")
        tokens = upos.splits[split]
        assert (len(tokens), tokens.n_tokens) == (expected["sentences"], expected["words"])
        assert len(set(tokens.labels)) == expected["upos"]
        assert len(set(morph.splits[split].labels)) == expected["upos_feats"]
        if english:
            tags = Counter(supertag.splits[split].labels)
            assert len(tags) == expected["supertags_xpos_deprel_dir_headupos"]
            assert sum(n >= 5 for n in tags.values()) == expected["supertags_at_least_5"]
            assert len(set(pos.splits[split].labels)) == expected["xpos"]


def test_real_treebank_and_brown():
    treebank, brown = real("treebank"), real("brown")
    expected = counts("treebank", "treebank.zip")
    assert sum(map(len, treebank.splits.values())) == expected["parsed_sentences"]
    assert sum(part.n_tokens for part in treebank.splits.values()) == expected["tokens_without_traces"]
    assert len(treebank.label_set) == expected["pos_labels"]
    expected = counts("brown", "brown.zip")
    assert sum(map(len, brown.splits.values())) == expected["sentences"]
    assert sum(part.n_tokens for part in brown.splits.values()) == expected["tokens"]
    tags = Counter(tag for part in brown.splits.values() for tag in part.labels)
    assert len(tags) == expected["tags"] and sum(n == 1 for n in tags.values()) == expected["tags_once"]
    documents = [name for part in brown.extra["documents"].values() for name in part]
    assert len(documents) == len(set(documents)) == expected["files"]


def test_real_nettalk():
    expected = counts("nettalk", "nettalk.data")
    phonemes, joint, stress = real("nettalk"), real("nettalk", "joint"), real("nettalk", "stress")
    assert (len(phonemes.train), len(phonemes.test)) == (18_000, 2_000)
    assert len(phonemes.label_set) == expected["phoneme_labels"]
    assert len(stress.label_set) == expected["stress_labels"]
    assert len(joint.label_set) == expected["joint_phoneme_stress_labels"]
    assert len(set(phonemes.train.columns["letter"])) == expected["letter_symbols"]
    left_out = set(phonemes.extra["words"]["train"]) - set(joint.extra["words"]["train"])
    assert left_out == {"gunpowder"} and len(joint.train) == 17_999


def test_real_cmudict():
    expected = counts("cmudict", "cmudict.dict")
    extra = real("cmudict").extra
    pairs = extra["pairs"]
    assert len(pairs) == expected["entries"] == len(extra["train"]) + len(extra["test"])
    assert len({word for word, _ in pairs}) == expected["distinct_words"]
    phones = Counter(phone for _, phones in pairs for phone in phones)
    assert (sum(phones.values()), len(phones)) == (expected["phone_tokens"], expected["phones_with_stress"])
    assert not {pairs[i][0] for i in extra["train"]} & {pairs[i][0] for i in extra["test"]}


def test_own_files_of_conll2003(tmp_path, monkeypatch):
    folder = tmp_path / "conll2003"
    folder.mkdir()
    monkeypatch.setenv("CRFBOOK_DATA", str(tmp_path))
    monkeypatch.delenv("CRFBOOK_MIRROR", raising=False)
    with pytest.raises(FileNotFoundError, match="put your own eng.train, eng.testa, eng.testb into"):
        crfbook.load_dataset("conll2003", source="real")
    for part in ("train", "testa", "testb"):
        (folder / f"eng.{part}").write_text(
            "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
        )
    dataset = crfbook.load_dataset("conll2003", verbose=False)
    assert dataset.source == "real" and dataset.train.names == ("word", "pos", "chunk")
    assert dataset.test.labels_by_sequence() == [["O"], ["I-ORG", "O"]]


def test_nothing_here_means_the_twin_and_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CRFBOOK_DATA", str(tmp_path))
    monkeypatch.delenv("CRFBOOK_MIRROR", raising=False)
    dataset = crfbook.load_dataset("conll2000")
    line = capsys.readouterr().out
    assert line == (
        "conll2000 (chunking): built-in twin (2,000 train / 500 test sentences); "
        "the real corpus: python -m data_fetch conll2000\n"
    )
    assert dataset.source == "builtin" and "generated" in dataset.licence
    with pytest.raises(FileNotFoundError, match="get it with: python -m data_fetch conll2000"):
        crfbook.load_dataset("conll2000", source="real")
    assert {row["available"] for row in crfbook.list_datasets()} == {"builtin"}


def test_real_line(capsys):
    real("conll2000")
    crfbook.load_dataset("conll2000", source="auto")
    assert capsys.readouterr().out == "conll2000 (chunking): real data, 8,936 train / 2,012 test sentences\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("conll",), "there is no data set 'conll'; there are conll2000"),
        (("conll2000", "ner"), "there is no task 'ner'; there are chunking, pos, joint"),
        (("conll2000", None, "web"), "expected one of 'auto', 'real', 'builtin', found 'web'"),
    ],
)
def test_wrong_requests(arguments, message):
    with pytest.raises(ValueError, match=message):
        crfbook.load_dataset(*arguments)


@pytest.mark.parametrize(("name", "task"), WITH_COLUMNS)
def test_twin_has_the_columns_of_its_corpus(name, task):
    generated = crfbook.load_dataset(name, task, "builtin", verbose=False)
    assert generated.source == "builtin" and len(generated.train) and len(generated.test)
    for part in generated.splits.values():
        assert part.labels is not None and len(part.labels) == part.n_tokens
        assert all(cell and cell == cell.strip() for column in part.columns.values() for cell in set(column))
    if name not in datasets.GENERATED:
        corpus = real(name, task)
        assert set(corpus.splits) == set(generated.splits) and set(corpus.extra) <= set(generated.extra) | {
            "documents"
        }
        assert (
            corpus.train.names == generated.train.names
            and corpus.train.label_name == generated.train.label_name
        )


def test_the_tiny_chain_sums_to_a_hundred():
    """What pages compute by hand: sums over all labellings, and which is best."""
    from crfbook.datasets.tiny import TINY

    both = list(product(range(2), repeat=3))

    def mass(y):
        pairs = np.prod([TINY.psi_edge[pair] for pair in pairwise(y)])
        return TINY.psi_node[range(3), list(y)].prod() * pairs

    def beside(y, z):
        pairs = np.prod([TINY.psi_second[pair] for pair in pairwise(z)])
        return mass(y) * pairs * TINY.psi_link[list(y), list(z)].prod()

    masses = {y: mass(y) for y in both}
    assert list(masses.values()) == [16, 8, 16, 24, 4, 2, 12, 18]
    assert sum(masses.values()) == 100 and max(masses, key=masses.get) == (0, 1, 1)
    assert tuple(TINY.psi_node.argmax(1)) == (0, 1, 0)
    assert sum(m * TINY.psi_skip[y[0], y[2]] for y, m in masses.items()) == 152
    joint = {(y, z): beside(y, z) for y in both for z in both}
    assert sum(joint.values()) == 9100 and max(joint, key=joint.get) == ((0, 1, 1), (0, 1, 1))
    np.testing.assert_array_equal(TINY.log_node, np.log(TINY.psi_node))
    with pytest.raises(ValueError, match="read-only"):
        TINY.psi_edge[0, 0] = 2
