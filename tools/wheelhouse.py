"""A folder of wheels for a room without a network: crfbook, all it needs and JupyterLab, for three systems.

python -m tools.wheelhouse [--python-version 3.12] [--systems linux macos windows]    fill build/wheelhouse/
python -m tools.wheelhouse --check     install this system's in a fresh environment with no index, and run it

On each laptop: python -m pip install --no-index --find-links wheelhouse "crfbook[book,peers]"
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.chapters import ROOT

HOUSE = ROOT / "build" / "wheelhouse"
MARKS = "sys_platform", "platform_system", "os_name", "platform_machine"
# What pip calls the machines of a system, and what the markers of requirements say there.
SYSTEMS = {
    "linux": (
        ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64", "manylinux_2_28_x86_64"],
        ("linux", "Linux", "posix", "x86_64"),
    ),
    "macos": (
        [f"macosx_{n}_0_{kind}" for n in (11, 12, 13, 14) for kind in ("arm64", "universal2")]
        + ["macosx_10_9_universal2"],
        ("darwin", "Darwin", "posix", "arm64"),
    ),
    "windows": (
        ["win_amd64"],
        ("win32", "Windows", "nt", "AMD64"),
    ),
}
TRIAL = """
from crfbook import CRF, load_dataset
data = load_dataset("conll2000", source="builtin")
tagger = CRF(template="chunking", max_iterations=5).fit(data.train.head(50))
assert len(tagger.predict(data.test.head(5))) == 5
import jupyterlab
print("a tagger was trained; JupyterLab", jupyterlab.__version__)
"""


def pip(*arguments, python=sys.executable):
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def requirements(wheel, environment, extras):
    """Names that a wheel asks for on a system."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1]
        asked = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
    for one in map(Requirement, asked):
        marker = one.marker
        if marker is None or any(marker.evaluate(environment | {"extra": extra}) for extra in ["", *extras]):
            yield one


def missing(folder, own, environment, extras):
    """Requirements that no wheel of the folder meets, and which pip did not see: it reads markers as those
    of the system on which it runs.
    """
    wheels = {}
    for path in folder.glob("*.whl"):
        wheels.setdefault(canonicalize_name(parse_wheel_filename(path.name)[0]), []).append(path)
    to_read, read, absent = [(own, tuple(extras))], set(), {}
    while to_read:
        wheel, wanted = to_read.pop()
        if (wheel, wanted) in read:
            continue
        read.add((wheel, wanted))
        for one in requirements(wheel, environment, wanted):
            found = wheels.get(canonicalize_name(one.name), [])
            fits = [
                p for p in found if one.specifier.contains(parse_wheel_filename(p.name)[1], prereleases=True)
            ]
            if not fits:
                absent[one.name] = f"{one.name}{one.specifier}"
            to_read += [(path, tuple(sorted(one.extras))) for path in fits]
    return absent


def fill(system, version, own, extras):
    """Download one system's wheels; return their number, or raise SystemExit with pip's last line."""
    machines, marks = SYSTEMS[system]
    environment = {
        **dict(zip(MARKS, marks, strict=True)),
        "python_version": version,
        "python_full_version": f"{version}.0",
    }
    environment |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    folder = HOUSE / f".{system}"
    folder.mkdir(parents=True, exist_ok=True)
    wanted, told = [f"{own}[{','.join(extras)}]"], set()
    machine = [word for name in machines for word in ("--platform", name)]
    while wanted:
        kind = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", version, *machine]
        done = pip("download", *kind, "--dest", folder, *wanted)
        if done.returncode:
            raise SystemExit(f"{system}, Python {version}: {done.stderr.strip().splitlines()[-1]}")
        absent = missing(folder, own, environment, extras)
        if told & set(absent):
            raise SystemExit(f"{system}: no wheel of {', '.join(sorted(absent.values()))}")
        told |= set(absent)
        wanted = list(absent.values())
    paths = list(folder.glob("*.whl"))
    for path in paths:
        path.replace(HOUSE / path.name)
    folder.rmdir()
    return len(paths)


def make(version, systems, extras=("book", "peers")):
    HOUSE.mkdir(parents=True, exist_ok=True)
    done = pip("wheel", "--no-deps", "--wheel-dir", HOUSE, ROOT)
    if done.returncode:
        raise SystemExit(f"crfbook's own wheel: {done.stderr.strip().splitlines()[-1]}")
    own = max(HOUSE.glob("crfbook-*.whl"), key=lambda path: path.stat().st_mtime)
    for system in systems:
        print(f"{system}, Python {version}: {fill(system, version, own, list(extras))} wheels", flush=True)
    size = sum(path.stat().st_size for path in HOUSE.glob("*.whl"))
    print(f"{HOUSE.relative_to(ROOT)}/: {size / 1e6:.0f} MB in all")


def check(extras=("book", "peers")):
    """Install from the folder alone, in a fresh environment, and train a tagger there."""
    if not any(HOUSE.glob("crfbook-*.whl")):
        raise SystemExit(
            f"{HOUSE.relative_to(ROOT)}/ has no wheel of crfbook: run python -m tools.wheelhouse first"
        )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = next(
            p for p in (Path(folder, "bin/python"), Path(folder, "Scripts/python.exe")) if p.exists()
        )
        done = pip(
            "install", "--no-index", "--find-links", HOUSE, f"crfbook[{','.join(extras)}]", python=python
        )
        if done.returncode:
            raise SystemExit(f"without an index: {done.stderr.strip().splitlines()[-1]}")
        subprocess.run(
            [python, "-I", "-c", TRIAL], cwd=folder, check=True
        )  # -I: not a checkout on PYTHONPATH


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tools.wheelhouse", description=__doc__.splitlines()[0])
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    parser.add_argument("--python-version", default=here, help=f"of the laptops (default {here})")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--check", action="store_true", help="install this system's wheels with no index")
    given = parser.parse_args(arguments)
    check() if given.check else make(given.python_version, given.systems)


if __name__ == "__main__":
    main()
