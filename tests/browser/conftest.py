"""A headless Chromium, and the pages of the book; without them every test of this folder is skipped.

They need the extra `browser` and Chromium (Debian's package `chromium`). CRFBOOK_BROWSER=off skips them.
"""

import os

import pytest

from tools import site
from tools.teaching import browser as chromium

PATIENCE = 120_000  # ms: a busy machine is no fault of a page
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="session")
def browser():
    if os.environ.get("CRFBOOK_BROWSER") == "off" or chromium() is None:
        pytest.skip("browser tests did not run: no Chromium on this machine, or CRFBOOK_BROWSER=off")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason='browser tests did not run: pip install -e ".[browser]" is missing'
    )
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def folder(browser, tmp_path_factory):
    """The pages, from the stored outputs."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    assert site.build(folder) == 0
    return folder


@pytest.fixture
def page(browser):
    """An empty page that keeps a list of what it asks for."""
    context = browser.new_context(viewport={"width": 1366, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.requests = []
    page.on("request", lambda request: page.requests.append(request.url))
    yield page
    context.close()
