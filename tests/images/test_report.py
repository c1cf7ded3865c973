"""A report in a real browser: what it shows on a desk, a phone and paper, in light and dark, and what it asks for."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from images.devtools import Tab
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
    const sizes = texts.map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a);
    return {
      name: svg.getAttribute("aria-label"),
      tooltips: svg.querySelectorAll("title").length,
      links: svg.querySelectorAll("a").length,
      sizes,
      outside: texts.filter(beyond(figure.getBoundingClientRect())).map(text => text.textContent),
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
    charts: [...document.querySelectorAll("figure svg[role=img]")].filter(visible).map(chart),
  };
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report of two systems, and of real runs of one rank and two."""
    folder = tmp_path_factory.mktemp("report")
    results = samples.study(folder / "results", real=True)
    assert main(["report", str(results), "--output", str(folder / "report"), "--quiet"]) == 0
    return folder / "report" / "index.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_report_can_be_read(page: Path, tab: Tab, width: int, dark: bool) -> None:
    tab.open(page, width, dark)
    look = tab.value(LOOK)
    assert look["beyond"] <= 0, f"the page is wider than {width} pixels"
    assert look["faint"] == [], "texts need a contrast of 4.5 with what is behind them (WCAG 2.1, 1.4.3)"
    assert dark == (sum(map(int, re.findall(r"\d+", look["background"])[:3])) < 3 * 128)
    order = [look["headings"].index(name) for name in ("The numbers", "Systems", "Methods", "Runs")]
    assert order == sorted(order) and "Do not publish" in look["text"]
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.picture(PICTURES / f"{width}-{'dark' if dark else 'light'}.png")


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_each_chart_has_its_words_and_stays_in_its_box(page: Path, tab: Tab, width: int) -> None:
    tab.open(page, width)
    look = tab.value(LOOK)
    assert len(look["charts"]) >= 8
    for chart in look["charts"]:
        assert chart["name"] and chart["links"] == 0, chart
        assert chart["outside"] == [], chart["name"]
        assert all(11 <= size <= 13 for size in chart["sizes"]), chart["name"]


def test_a_phone_has_the_links_and_shows_where_a_table_goes_on(page: Path, tab: Tab) -> None:
    tab.open(page, PHONE)
    bar = "(bar => [bar.getClientRects().length, bar.querySelectorAll('a').length, bar.getBoundingClientRect().bottom])"
    shown, links, bottom = tab.value(f"{bar}(document.querySelector('.nav'))")
    assert shown == 1 and links >= 6 and bottom < 60
    table = "document.querySelector('#numbers .scroll')"
    assert tab.value(f"{table}.scrollWidth > {table}.clientWidth")
    attachment = tab.value(f"getComputedStyle({table}).backgroundAttachment").split(", ")
    assert attachment == ["local", "local", "scroll", "scroll"], "covers move with the table, and shades do not"


def test_the_answer_is_on_the_first_screen(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    places = "[...document.querySelectorAll('h1, .card, .trust, #verdict svg')].slice(0, 6)"
    tops = tab.value(f"{places}.map(element => element.getBoundingClientRect().top)")
    assert len(tops) == 6 and max(tops) < 800
    height = tab.value("document.documentElement.scrollHeight")
    assert height < 8 * 900, "with what is closed, a report has few screens"


def test_a_box_hides_a_system_everywhere_without_a_script(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    shown = "[...document.querySelectorAll('main .y2')].filter(each => each.getClientRects().length).length"
    assert tab.value(shown) > 20
    tab.value("document.getElementById('show-y2').click()")
    assert tab.value(shown) == 0
    assert tab.value(shown.replace("y2", "y1")) > 20


def test_a_report_asks_for_nothing_and_runs_nothing(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    assert tab.complaints == [] and tab.requests == [page.as_uri()]
    assert tab.value(LOOK)["scripts"] == 0
    policy = tab.value("document.querySelector('meta[http-equiv=Content-Security-Policy]').content")
    assert "default-src 'none'" in policy and "script-src" not in policy
    assert page.stat().st_size < 3_000_000


def test_a_link_of_a_number_opens_its_result(page: Path, tab: Tab) -> None:
    tab.open(page, DESK)
    tab.value("document.querySelector('.numbers a.v').click()")
    target = tab.value("location.hash")
    assert target.startswith("#result-") and tab.value(f"document.querySelector('{target}').matches(':target')")
    assert tab.value(f"document.querySelector('{target}').getClientRects().length") == 1, "what was closed opens"


def test_a_report_can_be_printed(page: Path, tab: Tab) -> None:
    tab.open(page, PAPER, media="print")
    assert tab.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.value("document.querySelector('#runs').getClientRects().length") == 0, "what is closed is not printed"
    tab.open(page, DESK, media="")
    pages = len(re.findall(rb"/Type\s*/Page[^s]", tab.printed()))
    assert 1 <= pages <= 4


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
    assert [(chart["name"], chart["outside"]) for chart in look["charts"] if chart["outside"]] == []
