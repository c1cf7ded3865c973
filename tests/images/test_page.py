"""The catalog's page in a real browser: what it shows, what it does not run, and whether it can be read."""

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from images.sites import call

from sifmark.commands import registry as command
from sifmark.core.settings import load_settings
from sifmark.publish import catalog
from sifmark.publish.stores import IDENTITY, SIGNED, publish
from sifmark.recipes.labels import CREATED, DESCRIPTION, DEVICE, FRAMEWORK, PLATFORM
from sifmark.recipes.recipe import recipe_names

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
ANNOTATIONS = {
    "org.opencontainers.image.version": "0.1.0",
    DESCRIPTION: "NVIDIA GPU, PyTorch",
    DEVICE: "cuda",
    FRAMEWORK: "pytorch",
    PLATFORM: "x86_64",
    CREATED: "2026-11-24T03:57:18Z",
    IDENTITY: DIGEST,
    SIGNED: "true",
}
HOSTILE = '<img src="x" onerror="document.title = 1"><script>document.title = 2</script>'
# What a reader sees, also after typing a filter.
LOOK = """<script>
window.onload = () => {
  const visible = () => [...document.querySelectorAll("article")].filter(card => card.offsetHeight > 0);
  const cards = visible().map(card => ({
    title: card.querySelector("h2").innerText,
    badges: [...card.querySelectorAll(".badge")].map(badge => badge.innerText),
    facts: Object.fromEntries(
      [...card.querySelectorAll(".facts dt")].map(term => [term.innerText, term.nextElementSibling.innerText])),
    commands: [...card.querySelectorAll(".command code")].map(command => command.innerText),
    folded: card.querySelectorAll("details:not([open])").length,
  }));
  const beyond = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const filter = document.querySelector("input");
  filter.value = "FILTER";
  filter.dispatchEvent(new Event("input"));
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({
    title: document.title,
    images: document.images.length,
    cards, beyond,
    filtered: visible().length,
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


def in_browser(site: Path, width: int = 1280, words: str = "") -> dict[str, Any]:
    """The catalog of the site as a browser of a width in CSS pixels shows it, and how many cards a filter leaves."""
    command.catalog(load_settings(), "registry.site.example/benchmarks/sifmark", folder=str(site))
    page = site / "looked-at.html"
    page.write_text((site / "index.html").read_text() + LOOK.replace("FILTER", words))
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    browser += ["--disable-quic", "--disable-background-networking", "--disable-component-update"]
    browser += [f"--user-data-dir={site / 'browser'}", f"--window-size={width},900", "--dump-dom"]
    shown = call([*browser, page.as_uri()]).stdout
    match = re.search(r'<pre id="report">(.*?)</pre>', shown, re.DOTALL)
    assert match, shown[-2000:]
    page_report: dict[str, Any] = json.loads(html.unescape(match[1]))
    return page_report


@pytest.mark.parametrize("width", [1280, 500])  # a small laptop, and the narrowest window of Chromium
def test_the_catalog_can_be_read_in_a_browser(site: Path, width: int) -> None:
    page = in_browser(site, width)
    assert [card["facts"]["Recipe"] for card in page["cards"]] == list(recipe_names())
    assert page["title"] == "sifmark images"
    card = page["cards"][0]
    assert card["title"] == "NVIDIA GPU, PyTorch" and card["badges"] == ["signed"] and card["folded"] == 2
    assert card["facts"]["Size"] == "3.0 GiB" and card["facts"]["Date"] == "2026-11-24"
    assert [command.split()[0] for command in card["commands"]] == ["sifmark", "apptainer", "sifmark"]
    assert page["beyond"] <= 0, f"the page is wider than {width} pixels"


def test_a_filter_leaves_the_images_that_have_all_words(site: Path) -> None:
    recipes = len(recipe_names())
    assert [in_browser(site, words=words)["filtered"] for words in ("", "NVIDIA resnet50", "nothing")] == [
        recipes,
        recipes,
        0,
    ]


def test_what_an_annotation_says_is_text_in_a_browser(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANNOTATIONS, "org.opencontainers.image.version", HOSTILE)
    page = in_browser(site)
    assert page["title"] == "sifmark images" and page["images"] == 0
    assert all(card["facts"]["Version"] == HOSTILE for card in page["cards"])
