"""Tools side by side: texts that all can read, models that are read back; what is missing is said."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from studies import c14_peers, c14_tools
from studies.c14_tools import TOOLS, in_our_order, of_all, of_crfpp, of_mallet, of_wapiti, ready

pytestmark = pytest.mark.usefixtures("on_twins")


@pytest.fixture
def here():
    c14_tools.ready.cache_clear()
    yield ready("chunking", 12)
    c14_tools.ready.cache_clear()


@pytest.mark.parametrize("corpus", c14_tools.CORPORA)
def test_every_token_has_equally_many_attributes(corpus):
    found = ready(corpus, 12)
    for name, more in (("train", 2), ("test", 1)):
        lines = (found.folder / name).read_text().splitlines()
        widths = {len(line.split(" ")) for line in lines if line}
        assert widths == {len((found.folder / "template").read_text().split("\n\n")[0].splitlines()) + more}


def test_texts_hold_the_corpus(here):
    rows, corpus = c14_peers.sentences(here.folder / "train"), here.work.corpus
    assert [len(one) for one in rows] == np.diff(corpus.seq_ptr).tolist()
    words = [words for one in rows for words in one]
    assert [row[-1] for row in words] == [here.labels[y] for y in corpus.labels]
    attributes = [here.attributes.index(a) for row in words for a in row[:-1]]
    assert attributes == corpus.attr_idx.tolist()
    assert c14_peers.sentences(here.folder / "one") == c14_peers.sentences(here.folder / "test")[:1]
    unknown = {a for one in c14_peers.sentences(here.folder / "test") for x in one for a in x}
    assert unknown - set(here.attributes)  # tools must see what they do not know, too


# ---- models ----

NODE, EDGE = np.array([[0.5, -1.0], [0.0, 2.0]]), np.array([[0.25, -0.5], [1.5, 0.0]])
WAPITI = """#mdl#2#5
#rdr#0/0/0
#qrk#2
1:O,
4:B-NP,
#qrk#3
3:u:a,
1:b,
5:u,,:b,
0=0x1p-1
1=-0x1p+0
2=0x1p-2
3=-0x1p-1
4=0x1.8p+0
7=0x1p+1
"""
CRFPP = """version: 100
cost-factor: 1
maxid: 8
xsize: 2

O
B-NP

U:%x[0,1]
B

4 B
2 U:u,,:b
0 U:u:a

0.5
-1.0
0.0
2.0
0.25
-0.5
1.5
0.0
"""
MALLET = """node u:a O 0.5
node u:a B-NP -1.0
node u,,:b B-NP 2.0
pair O O 0.25
pair O B-NP -0.5
pair B-NP O 1.5
"""


def tables(attributes, labels, node, edge):
    """{(attribute, label): weight}, {(label, next): weight} of what is not 0."""
    names = (attributes, labels), (labels, labels)
    return [
        {(a[i], b[j]): w for i, j, w in zip(*side, strict=True) if w}
        for (a, b), side in zip(names, (node, edge), strict=True)
    ]


@pytest.mark.parametrize(
    "read, text, end", [(of_wapiti, WAPITI, ""), (of_crfpp, CRFPP, ".txt"), (of_mallet, MALLET, ".txt")]
)
def test_models_are_read(read, text, end, tmp_path):
    Path(f"{tmp_path / 'model'}{end}").write_text(text)
    node, edge = tables(*read(tmp_path / "model"))
    names, labels = ("u:a", "u,,:b"), ("O", "B-NP")
    assert node == {(names[i], labels[j]): NODE[i, j] for i in (0, 1) for j in (0, 1) if NODE[i, j]}
    assert edge == {(labels[i], labels[j]): EDGE[i, j] for i in (0, 1) for j in (0, 1) if EDGE[i, j]}


def test_weights_come_into_our_order(here):
    features, rng = here.features("dense"), np.random.default_rng(0)
    w, n = rng.normal(size=features.n_features), features.n_labels
    order = rng.permutation(features.n_attrs)
    node = w[: features.n_node].reshape(-1, n)[order]
    names = [here.attributes[a] for a in order]
    told = of_all(
        [*names, "pairs"], here.labels, np.concatenate([node.ravel(), w[features.n_node :]]), "pairs"
    )
    np.testing.assert_array_equal(in_our_order(here, features, *told), w)
    with pytest.raises(ValueError, match="weights of the model are none of ours"):
        in_our_order(here, here.features("observed"), *told)
    with pytest.raises(ValueError, match="1 weights of the model are none of ours"):
        in_our_order(here, features, ["new"], here.labels, ([0], [0], np.ones(1)), ([0], [0], np.zeros(1)))


# ---- programs ----


def printing(*lines, last="pass"):
    return [sys.executable, "-c", "\n".join([*(f"print({line!r}, flush=True)" for line in lines), last])]


def test_the_watch_reads_objectives_and_ends_at_the_goal_or_after_so_many():
    wait = "import time; time.sleep(60)"
    command = printing("Loss: 9.5", "begin", "Loss: 7.5", "loss: 3.0", last=wait)
    found = c14_peers.watch(command, line=r"(?i:loss): (\S+)", goal=3.0)
    assert [f for _, f in found["trace"]] == [9.5, 7.5, 3.0] and found["code"] == -9
    assert 0 <= found["trace"][1][0] <= found["cpu"] and found["MB"] > 1
    assert c14_peers.watch(command, line=r"(?i:loss): (\S+)", most=2)["code"] == -9
    assert c14_peers.watch(printing("done"))["code"] == 0


def test_a_program_has_no_more_seconds_than_it_is_given():
    assert c14_peers.watch(printing("begin", last="while True: pass"), limit=1)["code"] in (-9, -24)


def test_a_program_that_fails_says_why():
    with pytest.raises(RuntimeError, match="failed: .*no such thing"):
        c14_tools.seen(printing(last="raise SystemExit('no such thing')"))


def test_what_is_missing_is_said(monkeypatch, capsys):
    for name in ("CRFBOOK_WAPITI", "CRFBOOK_PEERS_PYTHON", "MALLET_CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CRFBOOK_CRFPP", "/nowhere")
    c14_tools.program.cache_clear()
    assert list(c14_tools.there(["crfbook", "Wapiti", "CRF++", "MALLET", "no such package"])) == ["crfbook"]
    said = capsys.readouterr().out.splitlines()
    c14_tools.program.cache_clear()
    assert [line.partition(":")[0] for line in said] == ["Wapiti", "CRF++", "MALLET", "no such package"]
    assert "CRFBOOK_WAPITI" in said[0] and "CRFBOOK_PEERS_PYTHON" in said[3]


def test_penalties_are_the_same(here, monkeypatch):
    monkeypatch.setattr(c14_tools, "program", lambda tool: tool)
    c2 = c14_tools.C2
    told = {x: list(map(str, TOOLS[x].train(here, "model", "dense", "own"))) for x in TOOLS}
    assert json.loads(told["python-crfsuite"][-1])["c2"] == c2
    rho = told["Wapiti"]
    assert float(rho[rho.index("-2") + 1]) / 2 == c2 and rho[rho.index("-1") + 1] == "0"
    assert 1 / (2 * float(told["CRF++"][told["CRF++"].index("-c") + 1])) == c2
    assert 1 / (2 * float(told["MALLET"][told["MALLET"].index("model") + 1])) == c2


# ---- rows ----


@pytest.mark.kernels
def test_tools_in_python_have_one_objective(tmp_path):
    pytest.importorskip("pycrfsuite")
    from studies import read_record, run

    c14_tools.ready.cache_clear()
    options = {
        "n_sentences": 30,
        "processes": 1,
        "names": ("crfbook", "python-crfsuite"),
        "sets": ("observed",),
    }
    optima, layers, rows = (
        read_record(x)[1] for x in run("tools-chunking", folder=tmp_path, dirty=True, **options)
    )
    assert [row["tool"] for row in rows] == ["crfbook", "python-crfsuite"]
    for row in rows:
        assert float(row["it says"]) == pytest.approx(float(row["ours"]), rel=1e-7)
        assert float(row["ours"]) >= float(optima[0]["optimum"]) - float(optima[0]["gap"]) - 1e-6
        assert row["stop"] == "its own" and 0 <= float(row["to 0.01"]) <= float(row["to 0.0001"])
        assert (
            float(row["above"]) < 1e-3 and float(row["model MB"]) > 0 and float(row["sentences/s, one"]) > 0
        )
    assert (
        rows[0]["F1"] == rows[1]["F1"]
        and rows[1]["sentences/s, Viterbi"]
        and not rows[0]["sentences/s, Viterbi"]
    )
    assert layers[0]["tool"] == "crfbook" and float(layers[0]["log p"]) < 0
