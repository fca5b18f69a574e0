"""Where shards lie: names are those that the user gave; addresses of fsspec."""

import os

import pytest
from helpers.sharded import assert_same_bits, forget, names, sentences, some_shards, trained

from crfbook import CRF
from crfbook.distributed import ShardError, Shards, predict_files, write_shards
from crfbook.distributed.places import place_of

RULES = {"algorithm": "lbfgs", "c2": 0.1, "max_iterations": 5}


def test_names_are_those_that_were_given(tmp_path, monkeypatch):
    """A link may be the name that all machines share; where it leads to is this machine's own affair."""
    (tmp_path / "disk7").mkdir()
    os.symlink(tmp_path / "disk7", tmp_path / "shared")
    shards = some_shards(tmp_path / "shared" / "s")
    for found in (shards, Shards(tmp_path / "shared" / "s"), Shards(os.fsencode(shards.folder))):
        assert found.folder == str(tmp_path / "shared" / "s")
        assert {os.path.dirname(shard.path) for shard in found.shards} == {found.folder}
    monkeypatch.chdir(tmp_path)
    assert Shards("shared/s").folder == os.path.join(os.getcwd(), "shared", "s")
    crf = CRF(max_iterations=1, template="U:%x[0,0]").fit([[("a",), ("b",)]], [["x", "y"]])
    (tmp_path / "text.txt").write_text("a\nb\n")
    (row,) = predict_files(crf, ["text.txt"], tmp_path / "shared" / "out", columns=("0",))
    assert row.path == str(tmp_path / "shared" / "out" / "text.txt")


def test_names_of_places():
    assert place_of("memory://a/b/") == "memory://a/b"
    assert place_of(b"/a/b") == "/a/b"
    with pytest.raises(ValueError, match="^path: expected the name of a file"):
        place_of("")


@pytest.fixture
def address(tmp_path):
    """A folder in the memory of this process."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    name = f"memory://{tmp_path.name}"
    yield f"{name}/s"
    if store.exists(name):
        store.rm(name, recursive=True)
    forget()


def test_shards_at_an_address(address, tmp_path):
    here, there = some_shards(tmp_path / "s"), some_shards(address)
    assert there.folder == address and there.digest == here.digest
    assert_same_bits(trained(there, rules=RULES), trained(here, rules=RULES))
    again = some_shards(address)  # complete: nothing is written
    assert again.digest == there.digest and len(Shards(f"{address}/").shards) == len(here)
    assert trained(address, rules=RULES).n_iter_ == 5


def test_workers_read_addresses(address, tmp_path):
    distributed = pytest.importorskip("distributed")
    size = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": None}
    X, y = names(sentences())
    texts = [(X[i : i + 10], y[i : i + 10]) for i in range(0, 60, 10)]
    with (
        distributed.LocalCluster(**size, processes=False, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        shards = write_shards(texts, address, CRF(), client=client)
        found = trained(shards, client, rules=RULES)
    assert_same_bits(found, trained(write_shards(texts, tmp_path, CRF()), rules=RULES))


def test_damage_at_an_address_is_told(address):
    store = pytest.importorskip("fsspec").filesystem("memory")
    with pytest.raises(ShardError, match=r"^memory://\S+: expected shards that write_shards has finished"):
        Shards(address)
    shards = some_shards(address)
    path = shards.shards[2].path
    content = store.cat_file(path)
    store.pipe_file(path, content[:-70] + b"x" * 70)
    forget()
    with pytest.raises(ShardError, match="^shard shard-00002.crfbook cannot be used: memory://"):
        trained(address, rules=RULES)
    store.rm_file(path)
    with pytest.raises(ShardError, match="^shard shard-00002.crfbook: expected a file, there is none at mem"):
        trained(address, rules=RULES)
    with pytest.raises(ShardError, match="shard-00002.crfbook is missing: remove manifest.json there"):
        some_shards(address)
    store.rm_file(f"{address}/manifest.json")
    assert some_shards(address).digest == shards.digest


def test_what_an_address_needs_is_said(address, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"^memory://\S+: addresses need fsspec, .* 'distributed'$"):
        Shards(address)
