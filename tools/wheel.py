"""Build the wheel and look into it: pure Python, both packages, every data file, importable on its own.

python -m tools.wheel
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.chapters import ROOT

PROBE = """
import sys
sys.path.insert(0, {folder!r})
import crfbook, data_fetch
assert not {{"numba", "scipy", "pandas", "sklearn"}} & set(sys.modules), "importing crfbook is not lazy"
for module in (crfbook, data_fetch):
    assert module.__file__.startswith({folder!r}), module.__file__
for name in crfbook.__all__:
    getattr(crfbook, name)
assert data_fetch.REGISTRY
for row in crfbook.list_datasets():
    twin = crfbook.load_dataset(row["name"], source="builtin", verbose=False)
    assert twin.label_set or row["name"] == "cmudict"
"""


def packaged_files():
    """What the wheel must hold: all files of both packages that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", "crfbook", "data_fetch"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def main():
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
            str(ROOT),
        ]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        assert wheel.name.endswith("-py3-none-any.whl"), f"{wheel.name} is not pure Python"
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            archive.extractall(Path(folder) / "content")
        missing = packaged_files() - names
        assert not missing, f"not in the wheel: {sorted(missing)}"
        strays = {n.split("/")[0] for n in names} - {"crfbook", "data_fetch"}
        assert all(n.endswith(".dist-info") for n in strays), f"does not belong into the wheel: {strays}"
        probe = PROBE.format(folder=str(Path(folder) / "content"))
        subprocess.run([sys.executable, "-c", probe], cwd=folder, check=True)
        print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 1000:.0f} kB, complete")


if __name__ == "__main__":
    sys.exit(main())
