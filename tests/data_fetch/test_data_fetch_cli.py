"""data_fetch: names, the registry, the reader's own files, and the command line."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import data_fetch
from data_fetch import FetchError
from data_fetch.__main__ import main

pytest_plugins = "helpers.local_server"

ROOT = Path(__file__).resolve().parents[2]


def test_unknown_names(cache):
    with pytest.raises(FetchError, match="no data set 'conll2001'; known are atis, "):
        data_fetch.fetch("conll2001")
    with pytest.raises(FetchError, match=r"no file '\.\./\.\./secret'"):
        data_fetch.locate("conll2000", "../../secret")


def test_conll2003_is_the_readers_own(cache):
    with pytest.raises(FetchError, match=r"put eng.train, eng.testa, eng.testb into .*conll2003"):
        data_fetch.fetch("conll2003")
    (cache / "conll2003").mkdir(parents=True)
    (cache / "conll2003" / "eng.train").write_text("EU NNP B-NP B-ORG\n")
    assert data_fetch.locate("conll2003", "eng.train") == cache / "conll2003" / "eng.train"
    assert data_fetch.locate("conll2003", "eng.testa") is None


def test_cache_folder_without_the_variable(monkeypatch):
    monkeypatch.delenv("CRFBOOK_DATA", raising=False)
    assert data_fetch.cache_dir().name == "crfbook"
    monkeypatch.setenv("CRFBOOK_DATA", "~/here")
    assert data_fetch.cache_dir() == Path.home() / "here"


def test_registry_is_complete_and_pinned():
    assert len(data_fetch.REGISTRY) == 11
    for name, dataset in data_fetch.REGISTRY.items():
        assert dataset["task"] and dataset["licence"] and dataset["reference"]
        for filename, facts in dataset["files"].items():
            assert facts["url"].startswith("https://") and facts["url"].endswith("/" + filename)
            commit = facts["url"].split("/")[5]
            assert len(commit) == 40 and set(commit) <= set("0123456789abcdef"), (
                f"{name}: not pinned to a commit"
            )
            assert len(facts["sha256"]) == 64 and facts["bytes"] > 0


# The command line


def test_cli(server, cache, register, capsys):
    register(f"{server.address}/good")
    assert main(["toy"]) == 0
    out = capsys.readouterr().out
    assert "0.5 MB" in out and "none needed" in out and str(cache / "toy" / "toy.bin") in out
    assert main(["list"]) == 0
    assert "conll2000" in capsys.readouterr().out
    assert main(["verify"]) == 0
    assert "ok        toy/toy.bin" in capsys.readouterr().out
    (cache / "toy" / "toy.bin").write_bytes(b"?")
    assert main(["verify"]) == 1
    assert "python -m data_fetch toy" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["toy", "no-such-data"])
    assert stopped.value.code == 2


def test_cli_tries_the_others_after_a_failure(server, cache, register, capsys):
    register(f"{server.address}/missing")
    assert main(["toy", "conll2003"]) == 1
    err = capsys.readouterr().err
    assert "404" in err and "conll2003" in err


def test_module_runs_as_a_program(cache):
    done = subprocess.run(
        [sys.executable, "-m", "data_fetch", "list"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and "nettalk" in done.stdout, done.stderr


def test_knows_nothing_of_crfbook_and_imports_little():
    code = "import sys, json, data_fetch; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout
    )
    assert not {"crfbook", "numpy", "pooch", "requests", "tqdm"} & set(loaded)


def test_another_python_is_told_which_one_to_use(tmp_path):
    """Right after `make book`, a reader types `python -m data_fetch` without the environment."""
    (tmp_path / "pooch.py").write_text("raise ModuleNotFoundError(\"No module named 'pooch'\", name='pooch')")
    environment = {k: v for k, v in os.environ.items() if k != "CRFBOOK_DATA"} | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "data_fetch", "list"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "pooch is not installed in" in done.stderr and ".venv/bin/activate" in done.stderr


def test_a_reader_who_has_seen_enough():
    command = f"{shlex.quote(sys.executable)} -m data_fetch list | head -n 1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split()[0] == "name" and done.stderr == ""
