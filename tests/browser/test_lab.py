"""JupyterLab as a student meets it: all cells of chapter 00, of one chapter that changes with the commit, and
the lattice beside its kernel.
"""

import os
import shutil
import subprocess
import sys
from urllib.parse import urlsplit

import nbformat
import pytest
from browser.test_lattice import INFER, held, models

from crfbook.widgets import encoded
from tools import chapters as book

TOKEN = "students"
RUN = """async () => {
  const app = window.jupyterapp, panel = app.shell.currentWidget;
  await panel.sessionContext.ready;
  await app.commands.execute("notebook:run-all-cells");
  return panel.content.model.sharedModel.toJSON();
}"""
SHOWS = "window.jupyterapp?.shell.currentWidget?.content?.model?.sharedModel.cells.length > 1"
IDLE = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status == 'idle'"
ASKED = """async () => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const x = "float(abs(found.log_node[0, 0] - 0.1))";
  const asked = kernel.requestExecute({ code: "", user_expressions: { x } });
  return (await asked.done).content.user_expressions.x.data["text/plain"] < 1e-9;
}"""
LATTICE = """import numpy as np
from crfbook.widgets import lattice
found = lattice(["There", "were", "many"], ["A", "B"], np.zeros((3, 2)), [[-np.inf, 1], [0, 0]])
found"""


def rotating():
    """One of the chapters after 00, another one with another commit."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=book.ROOT, capture_output=True, text=True)
    later = book.chapters()[1:]
    return later[int(git.stdout.strip()[:8] or "0", 16) % len(later)]


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    """The address of a JupyterLab in a copy of the chapters and their studies."""
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        book.NOTEBOOKS, checkout / "notebooks", ignore=shutil.ignore_patterns("assignments", "__py*")
    )
    cells = [nbformat.v4.new_markdown_cell("# A lattice"), nbformat.v4.new_code_cell(LATTICE)]
    book.write(
        book.normalise(nbformat.v4.new_notebook(cells=cells)), checkout / "notebooks" / "lattice.ipynb"
    )
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        str(checkout / "notebooks"),
        "--no-browser",
        "--allow-root",
    ]
    command += [
        "--ServerApp.port=0",
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.expose_app_in_browser=True",
    ]
    command += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    own = {"JUPYTER_CONFIG_DIR": str(checkout / "config"), "JUPYTER_RUNTIME_DIR": str(checkout / "runtime")}
    own |= {"CRFBOOK_SCALE": "quick", "CRFBOOK_DATA": str(checkout / "no-data")}
    own |= {"PYTHONPATH": os.pathsep.join([str(book.ROOT), os.environ.get("PYTHONPATH", "")])}
    kept = {key: value for key, value in os.environ.items() if key not in ("CRFBOOK_MIRROR", "MPLBACKEND")}
    with open(checkout / "log", "w") as log:
        server = subprocess.Popen(command, cwd=checkout, env=kept | own, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield address(server, checkout / "log")
    finally:
        server.terminate()
        server.wait(timeout=60)


def address(server, log):
    """The one that the server says once it listens."""
    while server.poll() is None:
        for word in log.read_text().split():
            if word.startswith("http://127.0.0.1:") and "lab" in word:
                return word.partition("/lab")[0]
    raise AssertionError(log.read_text())


def run(page, lab, name):
    """The notebook after all its cells have run; whether the page asked for another host."""
    page.goto(f"{lab}/lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_function(SHOWS)
    nb = nbformat.from_dict(page.evaluate(RUN))
    hosts = {urlsplit(url).hostname for url in page.requests if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
    page.wait_for_function(IDLE)  # the kernel says so a while after its last answer
    outputs = [out for cell in nb.cells for out in cell.get("outputs", ())]
    assert not [out for out in outputs if out.output_type == "error"]
    assert not [out.text for out in outputs if out.get("name") == "stderr"]
    assert all(cell.execution_count for cell in nb.cells if cell.cell_type == "code")
    return nb


@pytest.mark.parametrize("path", [book.chapters()[0], rotating()], ids=["00", "rotating"])
def test_all_cells_of_a_chapter_run_in_lab(page, lab, path):
    nb = run(page, lab, path.name)
    stored = [out for cell in book.read(path).cells for out in cell.get("outputs", ())]
    shown = [out for cell in nb.cells for out in cell.get("outputs", ())]
    pictures = [sum("image/png" in out.get("data", {}) for out in outputs) for outputs in (stored, shown)]
    assert pictures[0] == pictures[1] > 0
    drawn = page.locator(".jp-OutputArea-output img, .jp-RenderedImage img")
    drawn.first.wait_for(state="attached")
    assert drawn.first.evaluate("one => one.decode().then(() => one.naturalWidth)") > 100
    described = [cell for cell in book.normalise(nb).cells if book.alt_text(cell.source) and cell.outputs]
    assert described, "tidy keeps the alternative texts of what Lab drew"


def test_the_lattice_in_lab_is_enumeration_and_its_kernel_reads_what_is_dragged(page, lab):
    pytest.importorskip("anywidget")
    run(page, lab, "lattice.ipynb")
    page.locator(".crfbook-lattice svg").wait_for()
    tried = list(models())
    answers = page.evaluate(INFER, [[encoded(node), encoded(edge)] for node, edge in tried])
    assert sum(held(found, *model) for found, model in zip(answers, tried, strict=True)) >= 80
    page.get_by_label("score of a label").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(ASKED)
