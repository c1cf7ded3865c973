"""A report in a real browser: what it shows on a desk, a phone and paper, in light and dark, and what it asks for."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from images.devtools import Tab, chromium
from unit.report import samples

from sifmark.commands.command_line import main
from sifmark.core import paths
from sifmark.report.load import load_report_results
from sifmark.report.page import render_page
from sifmark.report.report import make_report

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

DESK, PHONE, PAPER = 1280, 360, 700  # CSS pixels
PICTURES = paths.CHECKOUT / "build" / "report-pictures"  # for people: look at them
HOSTILE = '<img src="x" onerror="document.title = 1"><script>document.title = 2</script>'
# What a reader sees: charts, their tooltips and tables, what is wider than the page, and texts that are hard to read.
LOOK = """(() => {
  const visible = element => element.getClientRects().length > 0;
  const luminance = text => {
    const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const [red, green, blue] = text.match(/[\\d.]+/g).map(Number);
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (!colour.startsWith("rgba") || !colour.endsWith(" 0)")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = element => {
    const style = getComputedStyle(element);
    const pair = [luminance(style.color), luminance(behind(element))].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  };
  const beyond = box => element => {
    const inner = element.getBoundingClientRect();
    return inner.left < box.left - 2 || inner.right > box.right + 2 || inner.bottom > box.bottom + 2;
  };
  const chart = svg => {
    const figure = svg.closest("figure"), texts = [...svg.querySelectorAll("text")];
    return {
      title: figure.querySelector("figcaption").innerText,
      name: svg.getAttribute("aria-label") || svg.getAttribute("aria-labelledby"),
      tooltips: svg.querySelectorAll("title").length,
      links: [...svg.querySelectorAll("a")].map(link => link.getAttribute("href") || link.getAttribute("xlink:href")),
      outside: texts.filter(beyond(figure.getBoundingClientRect())).map(text => text.textContent),
      table: figure.querySelectorAll("table tr").length,
    };
  };
  const texts = [...document.querySelectorAll("h1, h2, h3, p, td, th, li, summary, figcaption")].filter(visible);
  const root = document.documentElement;
  return {
    title: document.title,
    text: document.body.innerText,
    scripts: document.querySelectorAll("script").length,
    headings: [...document.querySelectorAll("h2")].map(heading => heading.innerText),
    anchors: [...document.querySelectorAll("[id]")].map(element => element.id),
    beyond: root.scrollWidth - root.clientWidth,
    background: getComputedStyle(document.body).backgroundColor,
    faint: texts.filter(text => text.innerText.trim() && contrast(text) < 4.5).map(text => text.innerText.slice(0, 80)),
    charts: [...document.querySelectorAll("figure svg")].map(chart),
  };
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report of two systems, and of real runs of one rank and two."""
    folder = tmp_path_factory.mktemp("report")
    results = samples.study(folder / "results", real=True)
    assert main(["report", str(results), "--output", str(folder / "report"), "--quiet"]) == 0
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A browser for all tests."""
    with chromium(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_report_can_be_read(page: Path, tab: Tab, width: int, dark: bool) -> None:
    tab.open(page, width, dark)
    look = tab.value(LOOK)
    assert look["beyond"] <= 0, f"the page is wider than {width} pixels"
    assert look["faint"] == [], "texts need a contrast of 4.5 with what is behind them (WCAG 2.1, 1.4.3)"
    assert dark == (sum(map(int, re.findall(r"\d+", look["background"])[:3])) < 3 * 128)
    order = [look["headings"].index(name) for name in ("Summary", "Systems", "Methods", "Citations")]
    assert order == sorted(order) and "Do not publish" in look["text"]
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.picture(PICTURES / f"{width}-{'dark' if dark else 'light'}.png")


def test_each_chart_has_its_words_and_stays_in_its_box(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    look = tab.value(LOOK)
    anchors = {f"#{name}" for name in look["anchors"]}
    assert len(look["charts"]) >= 8
    for chart in look["charts"]:
        assert chart["name"] and chart["title"], chart
        assert chart["tooltips"] and chart["table"] > 1, chart["title"]
        assert chart["outside"] == [], chart["title"]
        assert {link for link in chart["links"] if link} <= anchors, chart["title"]


def test_a_report_asks_for_nothing_and_runs_nothing(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    assert tab.complaints == [] and tab.requests == [page.as_uri()]
    assert tab.value(LOOK)["scripts"] == 0
    policy = tab.value("document.querySelector('meta[http-equiv=Content-Security-Policy]').content")
    assert "default-src 'none'" in policy and "script-src" not in policy
    assert page.stat().st_size < 3_000_000


def test_a_link_of_a_number_opens_its_result(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    tab.value("document.querySelector('a.value').click()")
    target = tab.value("location.hash")
    assert target.startswith("#result-") and tab.value(f"document.querySelector('{target}').matches(':target')")


def test_a_reader_with_a_keyboard_gets_everywhere(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    for _ in range(2):
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        if tab.value("document.activeElement.className") == "skip":
            break
    assert tab.value("document.activeElement.getBoundingClientRect().left") >= 0, "the first link shows itself"


def test_a_report_can_be_printed(page: Path, tab: Tab) -> None:
    tab.open(page, PAPER, media="print")
    assert tab.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.value("getComputedStyle(document.querySelector('.entry dl')).display") != "none"
    assert tab.printed().startswith(b"%PDF")


@pytest.mark.parametrize("name", [HOSTILE, "x" * 400], ids=["script", "long"])
def test_texts_of_anybody_do_nothing(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(samples.SYSTEMS, name, (name, 1.0))
    for number, (site, batch) in enumerate((site, batch) for site in (name, "beta") for batch in samples.BATCHES):
        document: dict[str, Any] = samples.sample(site, "pictures", batch)
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    results = load_report_results([str(tmp_path)])
    assert results.invalid == ()
    page = tmp_path / "index.html"
    page.write_text(render_page(make_report(results, title=name)))
    tab.open(page, PHONE)
    assert tab.complaints == [] and tab.requests == [page.as_uri()]
    look = tab.value(LOOK)
    assert look["beyond"] <= 0 and name[:40] in look["text"]
    tab.open(page, DESK)
    look = tab.value(LOOK)
    assert [(chart["title"], chart["outside"]) for chart in look["charts"] if chart["outside"]] == []
