"""The catalog's page in a real browser: what it shows, what it does not run, and whether it can be read."""

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from images.sites import call

from sifmark.commands.registry import list as command
from sifmark.core.settings import load_settings
from sifmark.publish import catalog
from sifmark.publish.stores import IDENTITY, SIGNED, publish
from sifmark.recipes.labels import CREATED, PLATFORM
from sifmark.recipes.recipe import recipe_names

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

WIDTH = 1280  # CSS pixels, of a small laptop
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
ANNOTATIONS = {
    "org.opencontainers.image.version": "0.1.0",
    PLATFORM: "linux/amd64",
    CREATED: "2026-11-24T03:57:18Z",
    IDENTITY: DIGEST,
    SIGNED: "true",
}
HOSTILE = '<img src="x" onerror="document.title = 1"><script>document.title = 2</script>'
# Lines of a cell: the distinct heights at which its text begins.
LOOK = """<script>
window.onload = () => {
  const lines = cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
  };
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({
    title: document.title,
    images: document.images.length,
    rows: [...document.querySelectorAll("tr")].map(row => [...row.cells].map(cell => cell.innerText)),
    broken: [...document.querySelectorAll("th, td:not(:has(code))")].filter(cell => lines(cell) > 1).length,
    beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  });
  document.body.append(report);
};
</script>"""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the page is written, for all recipes, each as announced by ANNOTATIONS."""

    def published(*_: object) -> dict[str, Any]:
        return {name: publish(tmp_path / f"{name}.sif", DIGEST, 3 * 2**30, ANNOTATIONS) for name in recipe_names()}

    monkeypatch.setattr(catalog, "published_images", published)
    return tmp_path / "site"


def in_browser(site: Path) -> dict[str, Any]:
    """The catalog of the site as a browser shows it."""
    command.catalog("registry.site.example/benchmarks/sifmark", "", str(site), load_settings(), "table")
    page = site / "looked-at.html"
    page.write_text((site / "index.html").read_text() + LOOK)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    browser += ["--disable-quic", "--disable-background-networking", "--disable-component-update"]
    browser += [f"--user-data-dir={site / 'browser'}", f"--window-size={WIDTH},900", "--dump-dom"]
    shown = call([*browser, page.as_uri()]).stdout
    match = re.search(r'<pre id="report">(.*?)</pre>', shown, re.DOTALL)
    assert match, shown[-2000:]
    page_report: dict[str, Any] = json.loads(html.unescape(match[1]))
    return page_report


def test_the_catalog_can_be_read_in_a_browser(site: Path) -> None:
    page = in_browser(site)
    head, *rows = page["rows"]
    assert [row[0] for row in rows] == list(recipe_names()) and page["title"] == "sifmark images"
    cells = dict(zip(head, rows[0], strict=True))
    assert cells["size"] == "3.0 GiB" and cells["signed"] == "yes" and cells["stand-in"] == "no"
    assert cells["identity"] == DIGEST
    assert page["broken"] == 0, "a word is cut in two"
    assert page["beyond"] <= 0, f"the page is wider than {WIDTH} pixels"


def test_what_an_annotation_says_is_text_in_a_browser(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANNOTATIONS, "org.opencontainers.image.version", HOSTILE)
    page = in_browser(site)
    assert page["title"] == "sifmark images" and page["images"] == 0
    assert all(HOSTILE in row for row in page["rows"][1:])
