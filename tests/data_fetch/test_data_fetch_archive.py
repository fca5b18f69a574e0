"""Members of zip files: read by name into memory, whatever the name, up to a limit."""

import os
import warnings
import zipfile
from pathlib import Path

import pytest

import data_fetch
from data_fetch import FetchError


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about duplicate names, which are the point
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_read_members(tmp_path):
    path = zipped(
        tmp_path / "a.zip", [("d/", b""), ("d/b.txt", b"two"), ("d/a.txt", b"one"), ("d/c.bin", b"3")]
    )
    assert data_fetch.read_member(path, "d/a.txt") == b"one"
    assert data_fetch.list_members(path) == ["d/a.txt", "d/b.txt", "d/c.bin"]
    assert list(data_fetch.read_members(path, prefix="d/", suffix=".txt")) == [
        ("d/a.txt", b"one"),
        ("d/b.txt", b"two"),
    ]
    with pytest.raises(FetchError, match="one member named 'd/x', found 0"):
        data_fetch.read_member(path, "d/x")


def test_hostile_member_names_write_nothing(tmp_path):
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)
    hostile = [
        "../../escaped",
        "/tmp/escaped-absolute",
        "C:\\escaped",
        "..\\..\\escaped",
        "a/../../escaped",
        "nul",
    ]
    path = zipped(folder / "a.zip", [(name, name.encode()) for name in hostile])
    before = sorted(tmp_path.rglob("*"))
    names = data_fetch.list_members(path)
    assert {content for _, content in data_fetch.read_members(path)} == {name.encode() for name in hostile}
    assert len(names) == len(hostile)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/escaped-absolute").exists()


def test_zip_bombs_and_forgeries(tmp_path):
    path = zipped(tmp_path / "bomb.zip", [("bomb", bytes(10**6))])
    assert path.stat().st_size < 2000
    with pytest.raises(FetchError, match="claims 1000000 bytes, more than the limit of 1000"):
        data_fetch.read_member(path, "bomb", limit=1000)
    raw = path.read_bytes()
    forged = raw.replace(
        (10**6).to_bytes(4, "little"), (10).to_bytes(4, "little")
    )  # claims 10 bytes everywhere
    (tmp_path / "forged.zip").write_bytes(forged)
    with pytest.raises(FetchError, match="damaged"):
        data_fetch.read_member(tmp_path / "forged.zip", "bomb", limit=1000)
    many = zipped(tmp_path / "many.zip", [(str(i), bytes(1000)) for i in range(20)])
    with pytest.raises(FetchError, match="more than 5000 bytes together"):
        list(data_fetch.read_members(many, total_limit=5000))
    twice = zipped(tmp_path / "twice.zip", [("a", b"1"), ("a", b"2")])
    with pytest.raises(FetchError, match="found 2"):
        data_fetch.read_member(twice, "a")


def test_the_list_of_members_is_read_once_whatever_their_number(tmp_path, monkeypatch):
    path, looked = zipped(tmp_path / "a.zip", [(str(i), b"") for i in range(300)]), []
    listed = zipfile.ZipFile.infolist
    monkeypatch.setattr(zipfile.ZipFile, "infolist", lambda self: looked.append(1) or listed(self))
    assert len(list(data_fetch.read_members(path))) == 300
    assert len(looked) <= 2, "a look at all members for each member: quadratic"


def test_every_changed_byte_gives_the_content_or_one_sentence(tmp_path):
    """Flipped flags make zipfile raise NotImplementedError and RuntimeError as well."""
    content, other = b"hello world " * 20, tmp_path / "b.zip"
    data = zipped(tmp_path / "a.zip", [("m", content)]).read_bytes()
    for place in range(len(data)):
        for change in (0x01, 0x20, 0xFF):
            other.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            try:
                assert data_fetch.read_member(other, "m") == content
            except FetchError as error:
                assert "\n" not in str(error)


def test_damaged_zip(tmp_path):
    path = zipped(tmp_path / "a.zip", [("a", os.urandom(1000))])
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    with pytest.raises(FetchError, match="damaged"):
        data_fetch.read_member(path, "a")
    path.write_bytes(raw[:500])
    with pytest.raises(FetchError, match="not a readable zip file"):
        data_fetch.read_member(path, "a")
    with pytest.raises(FetchError, match="no such file"):
        data_fetch.read_member(tmp_path / "none.zip", "a")


# The real mirror, where there is one


@pytest.mark.real_data
@pytest.mark.parametrize("name", sorted(data_fetch.REGISTRY))
def test_real_files_are_whole_and_zips_hold_their_members(name):
    for filename, facts in data_fetch.REGISTRY[name]["files"].items():
        path = data_fetch.locate(name, filename)
        if path is None:
            pytest.skip(f"{name} is neither cached nor mirrored")
        if filename.endswith(".zip"):
            assert not {*facts.get("members", ())} - {*data_fetch.list_members(path)}
            members = dict(data_fetch.read_members(path))
            assert members and all(members[m] == data_fetch.read_member(path, m) for m in list(members)[:3])
