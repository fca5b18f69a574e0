"""Model files: what comes back, and that nothing but an intact file of ours is read."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest

from crfbook._checks import ModelFileError
from crfbook.data import files
from crfbook.data.files import load_arrays, save_arrays

HEADER = {"labels": ["B-NP", "été", 3], "c2": 0.25}
ARRAYS = {
    "weights": np.linspace(-1, 1, 7),
    "ids": np.arange(6, dtype=np.int32).reshape(2, 3),
    "empty": np.zeros((0, 4)),
    "names": np.array(["a:b", "c\nd"]),
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.crf"
    save_arrays(path, "CRF", HEADER, ARRAYS)
    return path


class Bomb:
    """Unpickling an instance leaves a trace."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_round_trip_and_only_one_file(saved):
    header, arrays = load_arrays(saved, "CRF")
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype and np.array_equal(arrays[name], array)
    assert os.listdir(saved.parent) == ["model.crf"]
    with np.load(saved, allow_pickle=False) as plain:  # the format is NumPy's own
        assert np.array_equal(plain["weights"], ARRAYS["weights"])


def test_same_model_same_bytes(saved, tmp_path):
    other = tmp_path / "other"
    save_arrays(other, "CRF", HEADER, ARRAYS)
    assert other.read_bytes() == saved.read_bytes()


def test_every_single_changed_byte_is_noticed(saved):
    data = saved.read_bytes()
    for where in range(len(data)):
        saved.write_bytes(data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
        with pytest.raises(ModelFileError):
            load_arrays(saved, "CRF")


def test_every_cut_is_noticed(saved):
    data = saved.read_bytes()
    for length in {*range(0, 80), *range(0, len(data), 17), *range(len(data) - 80, len(data))}:
        saved.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match="cut short|not a crfbook model|damaged"):
            load_arrays(saved, "CRF")


def test_messages_for_a_damaged_file(saved):
    data = saved.read_bytes()
    saved.write_bytes(data[:-1])
    with pytest.raises(ModelFileError, match="cut short"):
        load_arrays(saved, "CRF")
    saved.write_bytes(data[:200] + b"?" + data[201:])
    with pytest.raises(ModelFileError, match="checksum does not match"):
        load_arrays(saved, "CRF")


def test_later_schema_is_refused(saved, monkeypatch):
    monkeypatch.setattr(files, "SCHEMA", files.SCHEMA + 1)
    save_arrays(saved, "CRF", HEADER, ARRAYS)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="schema 2; this version reads schema 1.*update crfbook"):
        load_arrays(saved, "CRF")


def test_another_kind_is_refused(saved):
    with pytest.raises(ModelFileError, match="expected a saved HMM, got a saved CRF"):
        load_arrays(saved, "HMM")


@pytest.mark.parametrize("content", [b"", b"lCRF" + b"\0" * 500, b"PK\x03\x04" + b"\0" * 400, b"hello"])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a crfbook model file"):
        load_arrays(path, "CRF")


def test_foreign_npz_and_pickle_are_refused(tmp_path):
    trace = tmp_path / "trace"
    path = tmp_path / "foreign"
    np.savez(path.with_suffix(".npz"), a=np.ones(3))
    with pytest.raises(ModelFileError, match="not a crfbook model file"):
        load_arrays(path.with_suffix(".npz"), "CRF")
    path.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(ModelFileError, match="not a crfbook model file"):
        load_arrays(path, "CRF")
    assert not trace.exists()


def forge(path, members, about):
    """A file with a valid checksum around whatever content: what an attacker would send."""
    header = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    with open(path, "wb+") as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.comment = files._MARK + b"0" * files._DIGITS
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, header)
            archive.writestr("crfbook_header.npy", buffer.getvalue())
            for name, content in members.items():
                archive.writestr(name, content)
        files._seal(file)


def test_pickles_inside_a_well_sealed_file_are_not_executed(tmp_path):
    trace, path = tmp_path / "trace", tmp_path / "forged"
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([Bomb(trace)], dtype=object), allow_pickle=True)
    about = {"schema": 1, "kind": "CRF", "version": "9", "header": {}, "arrays": {"weights": ["|O", [1]]}}
    for content in (buffer.getvalue(), pickle.dumps(Bomb(trace))):
        forge(path, {"weights.npy": content}, about)
        with pytest.raises(ModelFileError, match="refused"):
            load_arrays(path, "CRF")
    assert not trace.exists()
    np.load(io.BytesIO(buffer.getvalue()), allow_pickle=True)  # the bomb does work
    assert trace.exists()


def test_lies_about_sizes_are_refused(tmp_path):
    path = tmp_path / "forged"
    about = {"schema": 1, "kind": "CRF", "version": "9", "header": {}, "arrays": {"weights": ["<f8", [3]]}}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    forge(path, {"weights.npy": buffer.getvalue()}, about)
    with pytest.raises(ModelFileError, match="size that its shape says"):  # and no petabyte is allocated
        load_arrays(path, "CRF")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ones(4))
    forge(path, {"weights.npy": buffer.getvalue()}, about)
    with pytest.raises(ModelFileError, match="not the one its header describes"):
        load_arrays(path, "CRF")
    forge(path, {"other.npy": buffer.getvalue()}, about)
    with pytest.raises(ModelFileError, match="members differ"):
        load_arrays(path, "CRF")


def test_objects_are_not_saved(tmp_path):
    with pytest.raises(TypeError, match="'bad'.*Python objects"):
        save_arrays(tmp_path / "m", "CRF", {}, {"bad": np.array([{}], dtype=object)})
    with pytest.raises(TypeError, match="cannot save the model"):
        save_arrays(tmp_path / "m", "CRF", {"bad": object()}, {})
    assert os.listdir(tmp_path) == []


def test_saving_is_atomic(saved, monkeypatch):
    before = saved.read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_seal", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_arrays(saved, "CRF", HEADER, {"weights": np.zeros(3)})
    assert saved.read_bytes() == before and os.listdir(saved.parent) == ["model.crf"]


@pytest.mark.skipif(os.name == "nt", reason="Windows does not replace an open file")
def test_the_new_file_takes_the_place_of_the_old_in_one_step(saved):
    """Whoever has the old model open goes on reading it whole: nothing is ever written into it."""
    before = saved.read_bytes()
    with open(saved, "rb", buffering=0) as reader:
        head = reader.read(100)
        save_arrays(saved, "CRF", HEADER, {"weights": np.zeros(3)})
        assert head + reader.read() == before
    assert saved.read_bytes() != before and os.listdir(saved.parent) == ["model.crf"]


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_arrays(tmp_path / "nothing", "CRF")
    with pytest.raises(FileNotFoundError, match="cannot save the model: there is no folder .*no$"):
        save_arrays(tmp_path / "no" / "model", "CRF", {}, {})
