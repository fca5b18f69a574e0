"""Where readers are told to install from: the package registry, the folder itself, the project's own address.

An address that nobody here holds is a door: whoever registers it runs code on readers' machines. So `home` of
[tool.crfbook] in pyproject.toml is the one place that says where the project lives, and this file reads every
other one. The name crfbook at the package registry counts as such an address too.
"""

import json
import re
import tomllib

import pytest
import yaml
from helpers.sources import tracked_files

from tools import chapters as book

ROOT = book.ROOT
SOMEWHERE = "https://github.com/someone/somewhere"

HOSTS = (
    r"(?:github\.com|github\.dev|gist\.github\.com|gitlab\.com|bitbucket\.org|codeberg\.org|sr\.ht|mybinder\.org"
    r"|colab\.research\.google\.com|nbviewer\.org|nbviewer\.jupyter\.org|kaggle\.com)"
)
HOSTED = re.compile(rf"(?<![\w.-])(?:\w+://)?(?:[\w.-]+@)?(?:www\.)?{HOSTS}[/:][^\s\"'`<>)\]]*", re.I)
DIRECT = re.compile(r"(?:@ *|\bgit\+)\w[\w+.-]*://[^\s\"'`<>)\]]+")  # "name @ address", "git+address"
COMMAND = re.compile(
    r"(?<![\w.-])(?:pip[\d.]*|pipx|uvx?|conda|mamba|curl|wget|git clone|git submodule|gh repo clone|docker)"
    r"(?![\w./-])(?P<rest>[^\n`;|&]*)"
)
WORDS = re.compile(r"[^\s\"',]+")  # of a command, in a shell or as a list of strings
OTHERS = re.compile(r"-i|-f|--extra-index-url.*|--index-url.*|--find-links.*|-c|--channel.*")
OWN_NAME = re.compile(r"\binstall\b.*[\s\"']crfbook\b")  # not ./crfbook
REQUIREMENT = re.compile(r"[\w-]+(?:[<>=].*)?")  # of conda
CITED = re.compile(r"^ *(?:repository[\w-]*|url|website): *[\"']?([^\s\"']+)", re.M)  # CITATION.cff
NOT_YET = "no address on the web yet"


def belongs(address, home):
    """Is it `home`, or below it? A link to Binder or Colab must name the same owner and project."""
    if not home:
        return False
    address = re.sub(r"^(?:@ *)?(?:git\+)?(?:https://|ssh://)?(?:git@)?", "https://", address.rstrip(".,;:"))
    owner = home.split("/", 3)[3]
    services = rf"https://(?:mybinder\.org/v2/gh|colab\.research\.google\.com/github)/{re.escape(owner)}"
    return bool(re.match(rf"(?:{re.escape(home)}|{services})(?:\.git)?(?![\w.-])", address))


def wrong_addresses(name, text, home):
    """What a reader may install from, or is sent to, and which is not `home`."""
    found = [m[0] for pattern in (HOSTED, DIRECT) for m in pattern.finditer(text)]
    for command in COMMAND.finditer(re.sub(r"\\\n|,\n", " ", text)):  # one command over several lines
        installs, alone = False, "--no-index" in command["rest"]  # alone: from a folder, without a network
        for word in WORDS.findall(command["rest"].split(" #")[0]):
            installs = installs or word == "install"
            if "://" in word or installs and not alone and OTHERS.fullmatch(word):
                found.append(word)
        if (
            not alone
            and OWN_NAME.search(command["rest"])
            and not (home and f" @ git+{home}" in command["rest"])
        ):
            found.append(command[0])
    if name == "CITATION.cff":
        found += CITED.findall(text)
    if name == "pyproject.toml":
        found += tomllib.loads(text).get("project", {}).get("urls", {}).values()
    if name.endswith("environment.yml"):
        listed = yaml.safe_load(text)
        found += set(listed.get("channels", ())) - {"conda-forge"}
        found += [d for d in listed["dependencies"] if isinstance(d, str) and not REQUIREMENT.fullmatch(d)]
    return [address for address in found if not belongs(address, home)]


def strings(value):
    """All texts of a notebook, sources and outputs, outside of JSON's escapes."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings(list(value.values()))
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        yield "".join(value)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def files():
    """(name, text) of every file and notebook, this one left out: it shows what is refused."""
    for name, path in tracked_files(ROOT):
        if name != "tests/contract/test_addresses.py":
            read = path.read_text("utf-8")
            yield name, "\n".join(strings(json.loads(read))) if path.suffix == ".ipynb" else read


def test_nothing_installs_from_an_address_that_is_not_ours():
    wrong = {name: found for name, text in files() if (found := wrong_addresses(name, text, book.HOME))}
    assert not wrong


def test_sources_of_chapters_are_read_as_they_run():
    read = dict(files())
    assert all(book.install_cell() in read[f"notebooks/{path.name}"] for path in book.chapters())


def test_the_address_is_empty_or_the_projects():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    assert re.fullmatch(r"(https://[\w.-]+/[\w.-]+/[\w.-]+)?", book.HOME)
    assert bool(urls) == bool(book.HOME), "its urls say where the project lives, once it does"


@pytest.mark.parametrize("where", ["README.md", "install cell"])
def test_while_there_is_none_readers_are_told(where):
    text = book.install_cell() if where == "install cell" else (ROOT / where).read_text()
    assert (NOT_YET in text) == (not book.HOME)


@pytest.mark.parametrize("home", ["", SOMEWHERE])
def test_the_install_cell_is_sound_with_and_without_an_address(home):
    assert not wrong_addresses("cell", book.install_cell(home), home)
    assert not home or wrong_addresses("cell", book.install_cell(home), "")


REFUSED = [
    ("README.md", "git clone https://github.com/crfbook/crfbook && cd crfbook"),
    ("README.md", "git clone git@github.com:crfbook/crfbook.git"),
    ("README.md", "git clone https://git.example.org/crfbook"),
    ("README.md", "[Binder](https://mybinder.org/v2/gh/crfbook/crfbook/HEAD?urlpath=lab)"),
    (
        "README.md",
        "[![Colab](badge.svg)](https://colab.research.google.com/github/crfbook/crfbook/blob/main/n.ipynb)",
    ),
    ("README.md", "see github.com/crfbook/crfbook"),
    ("README.md", "`pip install git+https://github.com/crfbook/crfbook`"),
    ("README.md", "`pip install crfbook`"),
    ("README.md", "pip install --upgrade 'crfbook[book]'"),
    ("README.md", "pip install https://example.org/crfbook.whl"),
    ("README.md", "curl https://example.org/install.sh | sh"),
    ("Makefile", "\t@$(PY) -m pip install --quiet --index-url https://example.org/simple numpy"),
    ("Makefile", "\t@$(PY) -m pip install -i mirror numpy"),
    ("tools/x.py", '[sys.executable, "-m", "pip", "install", "crfbook"]'),
    ("cell", '%pip install --quiet "crfbook[peers] @ git+https://github.com/crfbook/crfbook"'),
    ("tools/x.py", '"pip",\n    "install",\n    "crfbook",\n'),
    ("README.md", "pip install --upgrade \\\n    crfbook"),
    ("README.md", "pip install --no-index --find-links https://example.org/wheels crfbook"),
    ("README.md", "pip install --find-links wheelhouse crfbook"),
    ("cell", "!pip install crfbook"),
    ("CITATION.cff", 'title: x\nrepository-code: "https://example.org/crfbook"\n'),
    ("CITATION.cff", "url: https://crfbook.example.org"),
    ("pyproject.toml", '[project.urls]\nHomepage = "https://crfbook.example.org"\n'),
    ("pyproject.toml", '[project]\ndependencies = ["numpy @ https://example.org/numpy.whl"]\n'),
    ("environment.yml", "dependencies:\n  - pip\n  - pip:\n      - git+https://example.org/crfbook\n"),
    ("environment.yml", "channels:\n  - crfbook\ndependencies:\n  - pip\n"),
    ("environment.yml", "channels:\n  - conda-forge\ndependencies:\n  - crfbook::crfbook\n"),
]
ALLOWED = [
    ("README.md", "pip install --no-index --find-links wheelhouse crfbook"),
    ("Makefile", '\t@$(PY) -m pip install --quiet --editable ".[book,test]"\n'),
    ("README.md", "`pip install .` in the folder; pip install python-crfsuite"),
    (
        "README.md",
        "`conda env create -f environment.yml && conda activate crfbook`",
    ),
    ("cell", '%pip install --quiet "./crfbook[peers]"'),
    ("cell", "# Lafferty (2001), https://example.org/paper.pdf"),
    ("data_fetch/registry.json", '"url": "https://raw.githubusercontent.com/nltk/nltk_data/0123/x.zip"'),
    ("environment.yml", "channels:\n  - conda-forge\ndependencies:\n  - pip\n  - pip:\n      - -e .\n"),
]


@pytest.mark.parametrize("home", ["", SOMEWHERE])
@pytest.mark.parametrize("name, text", REFUSED)
def test_an_address_of_others_is_refused(name, text, home):
    assert wrong_addresses(name, text, home)


@pytest.mark.parametrize("name, text", ALLOWED)
def test_registry_folder_papers_and_data_pass(name, text):
    assert not wrong_addresses(name, text, "")


@pytest.mark.parametrize("name, text", [pair for pair in REFUSED if "crfbook/crfbook" in pair[1]])
def test_the_projects_own_address_passes(name, text):
    own = text.replace("crfbook/crfbook", "someone/somewhere").replace("com:", "com/")
    assert not wrong_addresses(name, own, SOMEWHERE)
    assert wrong_addresses(name, own, SOMEWHERE + "-else") and wrong_addresses(name, own, "")
