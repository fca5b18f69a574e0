"""A pile of submissions: which files there are, whose, of which assignment; what is read of a notebook."""

import json
import os
import re
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path

import nbformat

from tools.grading import assignment as source
from tools.grading.complaints import printable
from tools.grading.run import regular

LARGEST = 20_000_000  # bytes of a notebook
WRITTEN = 2_000_000, 2000  # characters without outputs and pasted pictures; cells
LEVELS, ENTRIES = 20, 100_000  # of folders below one that is graded; of files in each of those
LONGEST = 20_000  # characters of an answer
BLANK = "*Your answer here.*"
COPY = re.compile(r" ?\(\d+\)$|-Copy\d+$|-\d$|(_LATE)?_\d{2,}_\d{2,}$")  # of browsers, JupyterLab, Canvas


def files(paths):
    """[(file, student)] of files and folders. A student is named by the file, or, where that has the name of
    an assignment, by the folder: ann.ipynb, 02_name_ann.ipynb, ann/02_name.ipynb, ann/02_name/02_name.ipynb.
    Below a folder that is graded, the folder of a notebook names the student, too, where no other one lies in
    it, or where other folders have a notebook of this name: ann/homework.ipynb, bob/homework.ipynb. A folder
    of a student without a notebook stands there with its first file, which then cannot be graded.
    """
    names, found = [path.stem for path in source.sources()], []
    for path in map(Path, paths):
        if not path.is_dir():
            if not os.path.lexists(path):
                raise ValueError(f"{path}: no such file or folder")
            found.append((path, ()))
            continue
        inside = list(notebooks(path))
        if not inside:
            raise ValueError(f"{path}: no notebook in this folder")
        near, alike = (Counter(getattr(one, part) for one in inside) for part in ("parent", "name"))
        for file in inside + without(path, inside):
            by_folder = near[file.parent] < 2 or alike[file.name] > 1
            found.append((file, file.relative_to(path).parent.parts[::-1] if by_folder else ()))
    return [(file, printable(student(file.absolute(), names, below))) for file, below in found]


def without(folder, inside):
    """The first file of each folder directly in `folder` that has files and no notebook, where others do."""
    having = {path.relative_to(folder).parts[0] for path in inside if path.parent != folder or path.is_dir()}
    if not having or folder in inside:
        return []
    others = [one for one in sorted(folder.iterdir()) if one.name not in having and one.name[0] not in "._"]
    others = [one for one in others if one.is_dir() and not one.is_symlink()]
    return [path for one in others for path in islice(filter(Path.is_file, sorted(one.iterdir())), 1)]


def notebooks(folder, levels=LEVELS, left=None):
    """Files called *.ipynb in a folder, in order; links to folders are not followed. A folder that cannot be
    read, or is too deep or too full, stands there itself: it does not keep others from being read.
    """
    left = left or [ENTRIES]  # counts down
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, left[0] + 1), key=lambda entry: entry.name)
    except OSError:
        entries, levels = [], 0
    left[0] -= len(entries)
    if levels == 0 or left[0] < 0:
        yield Path(folder)
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != ".ipynb_checkpoints":
                yield from notebooks(entry.path, levels - 1, left if levels < LEVELS else None)
        elif entry.name.endswith(".ipynb"):
            yield Path(entry.path)


def content(path):
    """The bytes of a file. ValueError for what is no file, or is too large."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise ValueError(f"a folder that cannot be read: {LEVELS} levels and {ENTRIES:,} files are the most")
    with regular(path, LARGEST) as file:
        return file.read(LARGEST + 1)


def read(data):
    """The notebook in the bytes of a file. ValueError for what is none, or is too large."""
    try:
        nb = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("is not a notebook (no JSON)") from None
    try:
        sheets = nb.get("worksheets") or [nb]  # of an old form
        cells = [cell for sheet in sheets for cell in sheet.get("cells", [])]
        for cell in cells:
            cell.pop("attachments", None)
            if "outputs" in cell:
                cell["outputs"] = []
    except (AttributeError, TypeError):
        raise ValueError("is not a notebook (no cells)") from None
    text = json.dumps(nb)
    if len(text) > WRITTEN[0] or len(cells) > WRITTEN[1]:
        raise ValueError("more than {:,} characters or {:,} cells".format(*WRITTEN))
    return nbformat.reads(text, 4)


def student(path, names, below=()):
    """A student's name: by Moodle's folder or file, else the first part that is no assignment's name.

    below : folders that are asked before the file
    """
    parts = (*below, path.stem, *(folder.name for folder in path.parents))
    for part in parts:
        name, moodle, _ = part.partition("_assignsubmission_")
        if moodle and (name := re.sub(r"_\d+$", "", name).strip("_- .")):
            return name
    for part in parts:
        for name in names:
            part = part.replace(name, "")
        before = None
        while before != part:
            before, part = part, COPY.sub("", part).strip("_- .")
        if part:
            return part
    return path.stem


def recognise(nb, name=None, path=Path()):
    """The path of the source of a submission: by --assignment, its metadata, the name of its file or folders,
    or its cells. ValueError if it is of none.
    """
    known = {path.stem: path for path in source.sources()}
    said = source.sources([name])[0].stem if name else str(about_it(nb).get("assignment"))
    if said in known:
        return known[said]
    named = [stem for stem in known if re.sub(r"^\d+_", "", stem) in path.stem]
    named += [folder.name for folder in path.parents if folder.name in known]
    if named:
        return known[named[0]]
    ids = {source.role(cell)[1].get("grade_id") for cell in nb.cells}
    fits = {path: len(ids & asked(path)) for path in known.values()}
    best = max(fits, key=fits.get, default=None)
    if not best or not fits[best]:
        raise ValueError("of no assignment that we know; name it with --assignment NN")
    return best


@cache
def asked(path):
    """The grade_ids of the cells that students write."""
    roles = map(source.role, nbformat.read(path, 4).cells)
    return {named["grade_id"] for kind, named in roles if kind == "solution"}


def about_it(nb):
    found = nb.metadata.get("crfbook")
    return found if isinstance(found, dict) else {}


def seed_of(nb):
    """The seed that a submission names: its metadata, else its first `seed = N`; None if it has none."""
    seed = about_it(nb).get("seed")
    seed = seed_in_cell(nb) if seed is None else seed
    return seed if type(seed) is int and 0 <= seed < 1 << 32 else None


def seed_in_cell(nb):
    """The first `seed = N` of its cells, or None."""
    found = (source.SEED.search(cell.source) for cell in nb.cells if cell.cell_type == "code")
    return next((int(match[0].split("=")[1][:12]) for match in found if match), None)


def date(path):
    """When a file was written last, as far as the system knows: an archive keeps it, most browsers do not."""
    return datetime.fromtimestamp(os.lstat(path).st_mtime, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def answers(about, nb):
    """{question: (points, what the student wrote)}: the cells with its id, else the one below its text."""
    found = {}
    for question, (most, asked, model) in about.questions().items():
        cells = [cell for cell in nb.cells if source.role(cell)[1].get("grade_id") == question]
        if not cells:
            after = zip(nb.cells, nb.cells[1:], strict=False)
            cells = [
                cell for before, cell in after if asked.strip() and before.source.strip() == asked.strip()
            ]
        text = "\n\n".join(cell.source.strip() for cell in cells)
        blank = text in ("", BLANK, source.without_solution(model).strip())
        found[question] = most, "" if blank else printable_lines(text)
    return found


def printable_lines(text):
    return "\n".join(map(printable, text[:LONGEST].splitlines()))
