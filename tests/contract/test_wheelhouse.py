"""The folder of wheels: what another system needs beside what pip finds on this one."""

import zipfile

from tools import wheelhouse


def wheel(folder, name, *requires):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    lines = [f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {one}" for one in requires)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", "\n".join(lines))
    return path


def absent(folder, own, system, *extras):
    marks = dict(zip(wheelhouse.MARKS, wheelhouse.SYSTEMS[system][1], strict=True))
    return wheelhouse.missing(folder, own, marks | {"python_version": "3.12"}, extras)


def test_what_only_another_system_needs_is_missed(tmp_path):
    own = wheel(tmp_path, "own", 'bar; sys_platform == "win32"', "foo>=1", 'old; python_version < "3"')
    wheel(tmp_path, "foo", 'baz>=2; os_name == "nt"')
    assert absent(tmp_path, own, "linux") == {}
    assert absent(tmp_path, own, "windows") == {"bar": "bar", "baz": "baz>=2"}


def test_extras_are_followed_through_other_wheels(tmp_path):
    own = wheel(tmp_path, "own", 'foo[fast]; extra == "book"')
    wheel(tmp_path, "foo", 'quick; extra == "fast"', 'slow; extra == "slow"')
    assert absent(tmp_path, own, "macos") == {}
    assert absent(tmp_path, own, "macos", "book") == {"quick": "quick"}


def test_a_wheel_of_another_version_does_not_count_and_circles_end(tmp_path):
    own = wheel(tmp_path, "own", "foo>=2", "bar")
    wheel(tmp_path, "foo")
    wheel(tmp_path, "bar", "own")
    assert absent(tmp_path, own, "linux") == {"foo": "foo>=2"}


def test_the_markers_of_each_system_are_its_own(tmp_path):
    for name, said in (("linux", "linux"), ("macos", "darwin"), ("windows", "win32")):
        own = wheel(tmp_path, "own", f'own_one; sys_platform == "{said}"', 'other; sys_platform == "aix"')
        assert absent(tmp_path, own, name) == {"own_one": "own_one"}
        assert all(isinstance(mark, str) for mark in wheelhouse.SYSTEMS[name][1])
