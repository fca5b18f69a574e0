"""JupyterLab on a copy of the chapters: what one runs and saves there changes nothing in the checkout.

    python -m tools.lab [options of JupyterLab]   in lab/, beside notebooks/; what is missing there is copied
    python -m tools.lab copy                      makes or refreshes lab/ and starts nothing
    python -m tools.lab tidy                      chapters that were run in place get back what is stored

A file that somebody changed in lab/ stays as it is. One that nobody changed follows its chapter.
"""

import json
import shutil
import subprocess
import sys
from hashlib import sha256

import nbformat

from tools.chapters import NOTEBOOKS, ROOT, asked_for_help, chapters

LAB = ROOT / "lab"
COPIED = ".copied.json"  # in lab/: {file: digest of what was copied}
LEFT_OUT = {
    "assignments",
    "decks",
    "summaries",
    "README.md",
    "syllabus.md",
    "exam.md",
    "exam_key.md",
    "__pycache__",
    ".ipynb_checkpoints",
}


def digest(path):
    return sha256(path.read_bytes()).hexdigest()


def fill(lab=LAB, notebooks=NOTEBOOKS):
    """Copy what is not in `lab`, or what nobody changed there; the names of files that could not follow."""
    lab.mkdir(exist_ok=True)
    record = lab / COPIED
    copied = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    stayed = []
    for path in sorted(notebooks.rglob("*")):
        name = path.relative_to(notebooks)
        if path.is_dir() or LEFT_OUT & set(name.parts):
            continue
        place, new = lab / name, digest(path)
        there = digest(place) if place.exists() else None
        if there == new or there is not None and there != copied.get(name.as_posix()):
            if there != new and copied.get(name.as_posix()) != new:
                stayed.append(name.as_posix())
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
        copied[name.as_posix()] = new
    record.write_text(json.dumps(copied, indent=1), encoding="utf-8")
    return stayed


def written(text):
    """What an author writes into a notebook: its cells, without what running them adds."""
    return [(cell.cell_type, cell.source) for cell in nbformat.reads(text, 4).cells]


def tidy(root=ROOT, paths=None):
    """Lines that say what was done with each chapter that is not as git has it."""
    lines = []
    for path in chapters() if paths is None else paths:
        name = path.relative_to(root).as_posix()
        stored = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=root, capture_output=True)
        if stored.returncode or stored.stdout == path.read_bytes():
            continue
        try:
            same = written(stored.stdout.decode()) == written(path.read_text(encoding="utf-8"))
        except Exception:  # a notebook that cannot be read is somebody's work, too
            same = False
        if same:
            path.write_bytes(stored.stdout)
        lines.append(f"{name}: {'as stored again' if same else 'has other cells: left as it is'}")
    return lines


def main(arguments):
    if asked_for_help(arguments, __doc__):
        return 0
    if arguments == ["tidy"]:
        print("\n".join(tidy()) or "all chapters are as stored")
        return 0
    for name in fill():
        print(
            f"lab/{name} is yours and older than the book's: rename it, and start again, to get the new one"
        )
    if "copy" in arguments:
        print("lab/ has the chapters, without solutions and examination")
        return 0
    start = ["--LabApp.default_url=/lab/tree/00_start_here.ipynb", *arguments]
    # neither news nor updates: a room may have no network
    quiet = "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(LAB), *start, *quiet])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
