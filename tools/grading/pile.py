"""A pile of submissions: which files there are, whose, of which assignment; what is read of a notebook."""

import json
import os
import re
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


def files(paths, by=None):
    """[(file, student)] of files and folders.

    by : "file": a student is named by the file, or, where that has the name of an assignment, by the folder:
    ann.ipynb, 02_name_ann.ipynb, ann/02_name.ipynb, ann/02_name/02_name.ipynb. "folder": by the first folder
    below the given one, whatever the files are called; one without a notebook stands there itself. None: as
    "file"; but a ValueError where folders hold files of one name, which leaves open who they are.
    """
    names, found = [path.stem for path in source.sources()], []
    for path in map(Path, paths):
        if not os.path.isdir(path):
            if not os.path.lexists(path):
                raise ValueError(f"{path}: no such file or folder")
            found.append((path, path.absolute().parent))
            continue
        inside = list(notebooks(path))
        if not inside:
            raise ValueError(f"{path}: no notebook in this folder")
        found += [(file, path) for file in inside + (empty(path, inside) if by == "folder" else [])]
    if by == "folder":
        return [(file, printable(owner(file, given, names))) for file, given in found]
    named = [(file, printable(student(file.absolute(), names))) for file, _ in found]
    places = {}
    for file, name in named if by is None else ():
        folder = file.absolute().parent
        if name == cleaned(file.stem, names) and cleaned(folder.name, names):
            places.setdefault(name, {})[folder] = file
            if len(places[name]) > 1:
                one, two = (other.name for other in places[name])
                raise ValueError(
                    f"{file.name} lies in {one} and in {two}: say --by folder if these are the students, "
                    f"--by file if {name} is one"
                )
    return named


def owner(file, given, names):
    """The first folder below `given` that is not called as an assignment; else the file. In none: `given`."""
    below = file.relative_to(given).parts if given in file.parents else ()
    below = below if os.path.isdir(file) else below[:-1]
    for part in below or [Path(given).absolute().name]:
        if part and part not in names:
            return moodles(part) or part
    return student(file.absolute(), names)


def empty(folder, inside):
    """The folders directly in `folder` that have no notebook."""
    having = {path.relative_to(folder).parts[0] for path in inside}
    with os.scandir(folder) as entries:
        others = sorted(one.name for one in entries if one.is_dir(follow_symlinks=False))
    return [Path(folder) / name for name in others if name not in having and name[0] not in "._"]


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
        elif entry.name.endswith(".ipynb") and not entry.name.startswith("._"):  # which macOS adds
            yield Path(entry.path)


def content(path):
    """The bytes of a file. ValueError for what is no file, or is too large."""
    if os.path.isdir(path) and not os.path.islink(path):
        if not list(notebooks(path)):
            raise ValueError("no notebook in this folder")
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


def student(path, names):
    """A student's name: by Moodle's folder or file, else the first part that is no assignment's name."""
    parts = (path.stem, *(folder.name for folder in path.parents))
    found = next(filter(None, map(moodles, parts)), None)
    return found or next((name for part in parts if (name := cleaned(part, names))), path.stem)


def moodles(part):
    """The name that Moodle put into that of a folder or file, or None."""
    name, moodle, _ = part.partition("_assignsubmission_")
    return moodle and re.sub(r"_\d+$", "", name).strip("_- .") or None


def cleaned(part, names):
    """A name without an assignment's and without what browsers and systems add."""
    for name in names:
        part = part.replace(name, "")
    before = None
    while before != part:
        before, part = part, COPY.sub("", part).strip("_- .")
    return part


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
