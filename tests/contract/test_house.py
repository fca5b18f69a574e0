"""The house rules that are no single algorithm's business: floors, imports, sizes, lists that must agree."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest
import yaml
from helpers.sources import is_for_types, tracked_files

from tools import chapters as book
from tools.over_commits import code_lines

ROOT = book.ROOT
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = "crfbook", "data_fetch", "notebooks/studies"
MODULES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "tools").glob("*.py"), ROOT / "conftest.py"])
MAX_LINES = 450

# A floor imports from its own and from lower ones, with the exceptions below.
FLOORS = {
    "crfbook._checks": 0,
    "crfbook._jit": 0,
    "crfbook.data": 1,
    "crfbook.encoding": 1,
    "crfbook.datasets": 1,
    "crfbook.training": 2,
    "crfbook.chain": 3,
    "crfbook.decoding": 4,
    "crfbook.tagging": 4,
    "crfbook.dynamic": 4,
    "crfbook.learners": 5,
    "crfbook.models": 6,
    "crfbook.plotting": 7,
    "crfbook.widgets": 7,
    "crfbook.distributed": 7,
    "crfbook.pycrfsuite": 7,
    "studies": 8,
}
# A family of learners imports another only through its face, and only these do.
BETWEEN_FAMILIES = {
    ("coordinate", "quasi_newton"),  # accelerated sweeps
    ("stochastic", "quasi_newton"),  # "auto" ends with L-BFGS
    ("tuples", "quasi_newton"),  # the inner problem of label tuples
}
STANDS_ALONE = ("crfbook.evaluation",)  # imports nothing of crfbook; anyone may import it


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[parts[0] == "notebooks" :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(path):
    """The package that the file of a module lies in."""
    return module_name(path.with_name("__init__.py"))


def imports(tree, package):
    """Every module that is imported, wherever in a file that lies in `package`; those for types left out."""
    unread = {id(child) for node in ast.walk(tree) if is_for_types(node) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{a.name}" for a in node.names)


def within(name, package):
    return name == package or name.startswith(package + ".")


def floor(name):
    return next((level for package, level in FLOORS.items() if within(name, package)), None)


def family(name):
    """The family of learners that a module belongs to, or None."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["crfbook", "learners"] and len(parts) > 2 else None


def between_families(name, other):
    """What is wrong with a module of one family importing `other` of another one."""
    here, there = family(name), family(other)
    face = f"crfbook.learners.{there}"
    if (here, there) not in BETWEEN_FAMILIES:
        yield f"{name} imports {other}: the family {here} does not import {there}"
    elif other != face and other.removeprefix(face + ".") not in import_module(face).__all__:
        yield f"{name} imports {other}, which is not in the face of its family"


def complaints(name, imported):
    """What is wrong with module `name` importing the modules `imported`."""
    found = []
    for other in imported:
        top = other.split(".")[0]
        if within(name, "data_fetch") and top == "crfbook":
            found.append(f"data_fetch knows nothing of crfbook, but imports {other}")
        if top in ("tools", "tests", "notebooks", "conftest", "studies") and not within(name, top):
            found.append(f"{name} imports {other}, which is not in the wheel")
        if top == "numba" and name != "crfbook._jit":
            found.append(f"{name} imports numba; only _jit.py does")
        if top != "crfbook" or other == "crfbook":
            continue
        if any(within(name, package) and not within(other, package) for package in STANDS_ALONE):
            found.append(f"{name} stands alone, but imports {other}")
        if name == "crfbook.brute" and not within(other, "crfbook.data"):
            found.append(f"brute.py is plain Python and NumPy, but imports {other}")
        here, there = floor(name), floor(other)
        if here is not None and there is not None and there > here:
            found.append(f"{name} imports {other}, which stands above it")
        if family(name) and family(other) not in (None, family(name)):
            found += between_families(name, other)
        rival = name == "studies.c06"  # what a chapter measures and the package does without
        if (here == 1 or here and here > 6) and other == "crfbook._jit.kernel" and not rival:
            found.append(f"{name} is no place for a kernel")
    return found


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downwards(path):
    found = complaints(module_name(path), list(imports(ast.parse(path.read_text()), package_of(path))))
    assert not found, "; ".join(found)


@pytest.mark.parametrize(
    "name, imported",
    [
        ("crfbook.data.corpus", "crfbook.chain.objective"),
        ("crfbook.training.loop", "crfbook.chain.objective"),
        ("crfbook.learners.online.online", "crfbook.learners.quasi_newton"),
        ("crfbook.learners.tuples.tuple_chain", "crfbook.learners.quasi_newton.lbfgs"),
        ("crfbook.chain.objective", "crfbook.models.crf"),
        ("crfbook.decoding.staggered", "crfbook.learners.online"),
        ("crfbook.dynamic.junction", "crfbook.models.crf"),
        ("crfbook.models.crf", "crfbook.plotting"),
        ("crfbook.training.monitor", "studies.work"),
        ("crfbook.plotting.charts", "studies.harness"),
        ("crfbook.evaluation", "crfbook.data.corpus"),
        ("crfbook.brute", "crfbook.chain.viterbi"),
        ("crfbook.training.threads", "numba"),
        ("crfbook.encoding.encoder", "crfbook._jit.kernel"),
        ("crfbook.plotting.charts", "crfbook._jit.kernel"),
        ("crfbook.datasets.english", "crfbook.chain.viterbi"),
        ("data_fetch.store", "crfbook.datasets"),
        ("crfbook.datasets", "tools.chapters"),
        ("studies.c03", "tools.chapters"),
        ("studies.c03", "numba"),
        ("studies.c03", "crfbook._jit.kernel"),
    ],
)
def test_an_import_that_points_upwards_is_found(name, imported):
    assert complaints(name, [imported])


def circles(graph):
    """Sets of modules of a graph {module: modules that it imports} that can be reached from each other."""
    beyond = {}
    for name in graph:
        reached, ahead = set(), list(graph[name])
        while ahead:
            other = ahead.pop()
            if other not in reached:
                reached.add(other)
                ahead.extend(graph.get(other, ()))
        beyond[name] = reached
    rings = {frozenset(b for b in beyond[a] if a in beyond.get(b, ())) for a in graph if a in beyond[a]}
    return sorted(sorted(ring) for ring in rings)


def test_no_import_runs_in_a_circle():
    """Also those inside of functions: a lazy import may save time, but it must not hide a knot."""
    graph = {}
    for path in MODULES:
        found = set(imports(ast.parse(path.read_text()), package_of(path)))
        graph[module_name(path)] = found - {module_name(path)}
    assert not circles(graph)


def test_a_circle_of_imports_is_found():
    lazy = "def f():\n    from crfbook.chain.b import g\n"
    typed = "if TYPE_CHECKING:\n    from crfbook.chain.a import T\n"
    graph = {"crfbook.chain.a": lazy, "crfbook.chain.b": "from . import a", "crfbook.chain.c": typed}
    graph = {name: set(imports(ast.parse(code), "crfbook.chain")) for name, code in graph.items()}
    assert circles(graph) == [["crfbook.chain.a", "crfbook.chain.b"]]


def importers(sources):
    """{module: modules that import it} of {module: source}.

    Who imports a face (`__init__`) imports the files that it takes its names from. A place that is named
    in a string, as in the tables of lazy imports ("crfbook.learners.boosting:boost", also without its first
    folders), is imported, too.
    """
    graph = {}
    for name, source in sources.items():
        tree = ast.parse(source)
        package = name if name in PACKAGES else name.rpartition(".")[0]
        texts = [n.value for n in ast.walk(tree) if isinstance(getattr(n, "value", 0), str)]
        places = {text.partition(":")[0] for text in texts}
        ends = tuple("." + place for place in places if re.fullmatch(r"\w+(\.\w+)+", place))
        named = {other for other in sources if other in places or other.endswith(ends)}
        graph[name] = ({*imports(tree, package)} | named) - {name}
    users = {name: {other for other in graph if name in graph[other]} for name in graph}
    for face in PACKAGES & set(graph):
        for name in graph[face] & set(graph):
            users[name] |= users[face] or {"who imports the package"}
    for name in graph:
        if "\n@study(" in sources[name]:
            users[name] |= {"python -m studies"}
    return users


PACKAGES = {module_name(path) for path in MODULES if path.name == "__init__.py"}


def test_no_file_serves_a_single_other_one():
    """Files of kernels may, and those that do not fit into the file that they serve."""
    paths = [path for path in MODULES if not path.is_relative_to(ROOT / "data_fetch")]
    sources = {module_name(path): path.read_text() for path in paths}
    users, size = importers(sources), {name: code_lines(text) for name, text in sources.items()}
    alone = [
        f"{name} is imported by {min(users[name])} alone: is it a part of that, or does a face lack its name?"
        for name in sorted(set(sources) - PACKAGES)
        if len(users[name]) == 1 and users[name] <= set(sources) and "\n@kernel" not in sources[name]
        if size[name] + size[min(users[name])] <= MAX_LINES
    ]
    assert alone == []


def test_importers_are_counted():
    sources = {
        "crfbook.learners.online": "from crfbook.learners.online.online import arow",
        "crfbook.learners.online.online": "from crfbook.chain.objective import Objective",
        "crfbook.models.crf": "import crfbook.learners.online",
        "crfbook.models.parameters": "A = 'crfbook.learners.online:pa'; B = _LEARNERS + 'online.layout:n'",
        "crfbook.learners.online.layout": "",
        "crfbook.chain.objective": "",
    }
    users = importers(sources)
    assert users["crfbook.chain.objective"] == {"crfbook.learners.online.online"}
    assert users["crfbook.learners.online.layout"] == {"crfbook.models.parameters"}
    assert users["crfbook.learners.online.online"] == {
        "crfbook.learners.online", "crfbook.models.crf", "crfbook.models.parameters",
    }  # fmt: skip


def test_relative_imports_are_resolved():
    tree = ast.parse("from . import store\nfrom ..chain import objective\nfrom .archive import read")
    wanted = ["crfbook.data", "crfbook.data.store", "crfbook.chain", "crfbook.chain.objective"]
    assert list(imports(tree, "crfbook.data"))[:4] == wanted


BROKEN_SHAPE = re.compile(
    r"\((?:[A-Z]['+\d]*|\d)(?:, ?[A-Z\d]['+\d]*)*,\n\s*[A-Z\d]['+\d]*(?:, ?[A-Z\d]['+\d]*)*\)"
)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_shape_stands_on_one_line(path):
    assert not BROKEN_SHAPE.findall(path.read_text())


@pytest.mark.parametrize("text", ["(K, L,\n    L)", "(0,\n    0, 0)", "(T+1,\n  3)"])
def test_a_broken_shape_is_found(text):
    assert BROKEN_SHAPE.search(text)


@pytest.mark.parametrize("path", MODULES + SCRIPTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_holds_one_idea(path):
    lines = code_lines(path.read_text())
    assert lines <= MAX_LINES, f"{lines} lines of code: more than one idea"
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


def test_one_decorator_and_no_shortcuts():
    banned = re.compile(
        r"parallel\s*=\s*True|\bprange\b|fastmath\s*=\s*True|pickle\.loads?\(|allow_pickle\s*=\s*True"
    )
    for path in MODULES:
        found = banned.search(path.read_text())
        assert not found, f"{path.relative_to(ROOT)}: {found.group(0)}"
        if module_name(path) != "crfbook._jit":
            assert not re.search(
                r"^\s*@(?:numba\.)?(?:n?jit|vectorize|guvectorize)\b", path.read_text(), re.M
            ), path


LAZY = """
import sys, crfbook
heavy = ["numba", "scipy", "pandas", "sklearn", "matplotlib", "pooch", "numpy"]
print([m for m in heavy if m in sys.modules])
"""


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_lazy():
    assert run_python(LAZY) == "[]"


def test_every_public_name_can_be_had():
    """Also without compilation: what a classroom's debugger (NUMBA_DISABLE_JIT=1) sees."""
    code = "import crfbook\nfor n in crfbook.__all__:\n    getattr(crfbook, n)\n"
    code += "print('all', len(crfbook.__all__) > 5)"
    assert run_python(code, NUMBA_DISABLE_JIT="1") == "all True"


def test_version_is_said_once_and_the_same():
    version = run_python("import crfbook; print(crfbook.__version__)")
    assert PYPROJECT["project"]["version"] == version
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M)


# ---- lists that must agree ----


def test_environment_file_is_the_same_set():
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = set(project["dependencies"]).union(
        *(extras[name] for name in ("book", "test", "peers", "distributed"))
    )
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    conda = {d for d in listed if isinstance(d, str)}
    assert conda - wanted == {"pip", f"python{project['requires-python']}"}
    assert wanted <= conda
    assert [d for d in listed if isinstance(d, dict)] == [{"pip": ["-e ."]}]


def test_a_commit_is_checked_for_what_ci_checks():
    """Hooks are steps of `.ci/run`; the one for notebooks takes all chapters."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entry = {hook["id"]: hook["entry"] for hook in hooks}
    steps = (ROOT / ".ci" / "run").read_text()
    assert {"ruff-lint", "ruff-format", "codespell", "notebooks-tidy"} == set(entry)
    assert all(entry[name].removesuffix(" --force-exclude") in steps for name in entry if "tidy" not in name)
    tidied = re.compile(next(hook["files"] for hook in hooks if hook["id"] == "notebooks-tidy"))
    names = {name for name, _ in tracked_files(ROOT) if tidied.search(name)}
    assert names == {f"notebooks/{path.name}" for path in book.chapters()}


def test_requirements_are_ranges():
    project = PYPROJECT["project"]
    for requirement in [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]:
        assert re.fullmatch(r"[a-z0-9-]+>=[\d.]+(,<\d+)?|crfbook\[[a-z,]+\]", requirement), requirement


PLACES = re.compile(r"(?<![\w.:/~$}])/(?:ho" + r"me|ro" + r"ot|wo" + r"rk|Us" + r"ers)/\w")
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".txt", ".json", ".ipynb", ".cfg", ""}


def test_no_paths_of_a_machine():
    for name, path in tracked_files(ROOT):
        if path.suffix in TEXT:
            found = PLACES.search(path.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found.group(0)}"


def test_wheel_settings_name_both_packages():
    """.ci/run builds the wheel and looks into it (tools/wheel.py); here only what it is made from."""
    assert PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["crfbook", "data_fetch"]
    for path in MODULES:
        package = path.parent
        while package not in (ROOT, ROOT / "notebooks"):
            assert (package / "__init__.py").exists(), f"{package} is not a package"
            package = package.parent


def test_positional_tolerances():
    """The third argument of assert_allclose is rtol: a 4 there is no number of decimals, and cannot fail.
    Tolerances are keywords.
    """
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                ("assert_allclose", "isclose", "allclose")
            ):
                assert len(node.args) <= 2, f"{path.name}, line {node.lineno}: a positional tolerance"
