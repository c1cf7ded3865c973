"""Charts in a real browser: what can be read and pointed at, in light and dark, in a wide page and on a phone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from unit.report import samples
from unit.report.chart_results import charts_of, of_systems, printed, section_of, study, with_metric

from sifmark.report.charts import theme
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.render import is_wide, page_svg
from sifmark.report.load import load_report_results

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

HOSTILE = "<img src=x onerror='document.title = 1'><script>document.title = 2</script>"
# How a browser lays out each chart: words, their overlaps, what sticks out of the page, tooltips, colours of lines.
LOOK = """<script>
window.onload = () => {
  const box = element => element.getBoundingClientRect();
  const level = element => !element.getAttribute("transform").includes("rotate");
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const charts = [...document.querySelectorAll("figure")].map(figure => {
    const texts = [...figure.querySelectorAll("text")].filter(level);
    const overlaps = texts.flatMap((a, place) => texts.slice(place + 1).filter(b => meet(box(a), box(b)))
      .map(b => [a.textContent, b.textContent]));
    const out = [...figure.querySelectorAll("text")].filter(
      text => box(text).left < box(figure).left || box(text).right > box(figure).right);
    const line = figure.querySelector("text");
    return {
      name: figure.id,
      width: box(figure).width,
      words: texts.map(text => text.textContent),
      smallest: Math.min(...texts.map(text => box(text).height)),
      overlaps, out: out.map(text => text.textContent),
      tooltips: [...figure.querySelectorAll("title")].map(title => title.textContent),
      ink: getComputedStyle(line).fill,
    };
  });
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({
    title: document.title, charts, errors: window.errors, requests: performance.getEntriesByType("resource").length,
  });
  document.body.append(report);
};
</script>"""
HEAD = """<!doctype html><meta charset="utf-8"><title>charts</title>
<script>window.errors = []; window.onerror = text => { window.errors.push(text); };</script>
<style>%s
body { margin: 20px; background: var(--chart-paper); }
figure { margin: 0 0 20px; padding: 8px; }
</style>"""


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> list[Chart]:
    results = study(tmp_path_factory.mktemp("study"))
    results = with_metric(results, "energy_per_epoch", "J", lambda result: 9e4 + len(result.observation.id))
    section = section_of(results, "training")
    marks = tuple(printed(section, "throughput", "images/s", 90.0 + size, batch_size=size) for size in (8, 16, 32))
    results.published = marks
    return [*charts_of(results), *charts_of(load_report_results([str(samples.TWO_RANKS)]))]


def in_browser(charts: list[Chart], folder: Path, width: int = 480, *options: str) -> dict[str, Any]:
    drawings = {chart.name: page_svg(chart) for chart in charts}
    widths = {name: width * (2 if is_wide(svg) else 1) for name, svg in drawings.items()}
    figures = [f'<figure id="{name}" style="width: {widths[name]}px">{svg}</figure>' for name, svg in drawings.items()]
    page = folder / "charts.html"
    page.write_text(HEAD % theme.page_style() + "\n".join(figures) + LOOK)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    browser += ["--disable-quic", "--disable-background-networking", "--disable-component-update", *options]
    browser += [f"--user-data-dir={folder / 'browser'}", "--window-size=1280,900", "--dump-dom", page.as_uri()]
    shown = subprocess.run(browser, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="report">(.*?)</pre>', shown, re.DOTALL)
    assert match, shown[-2000:]
    look: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert look["errors"] == [] and look["requests"] == 0
    return look


@pytest.fixture(scope="module")
def in_column(charts: list[Chart], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """How the charts look in a column of a page."""
    return in_browser(charts, tmp_path_factory.mktemp("column"))


@pytest.mark.parametrize("width", [480, 330])  # a column of a page, and a phone
def test_words_of_charts_can_be_read(
    charts: list[Chart], in_column: dict[str, Any], tmp_path: Path, width: int
) -> None:
    look = in_column if width == 480 else in_browser(charts, tmp_path, width)
    assert len(look["charts"]) == len(charts) >= 9
    for chart in look["charts"]:
        assert chart["overlaps"] == [], chart["name"]
        assert chart["out"] == [], chart["name"]
        assert chart["smallest"] >= (11 if width == 480 else 8), chart["name"]


@pytest.mark.parametrize("count", [1, 12, pytest.param(40, marks=pytest.mark.full)])
def test_words_of_charts_of_many_systems_can_be_read(tmp_path: Path, count: int) -> None:
    names = [f"Accelerator {number} of a maker with a name" for number in range(count)]
    look = in_browser(charts_of(of_systems(study(tmp_path / "study"), names)), tmp_path)
    assert [(chart["name"], chart["overlaps"], chart["out"]) for chart in look["charts"]] == [
        (chart["name"], [], []) for chart in look["charts"]
    ]


def test_what_can_be_pointed_at_says_what_it_shows(in_column: dict[str, Any]) -> None:
    tooltips = {chart["name"]: chart["tooltips"] for chart in in_column["charts"]}
    batches = tooltips["pictures-training-synthetic-throughput-by-batch"]
    assert "alpha, batch size 8: 51.00 images/s ± 2.5 %, 3 repeats" in batches
    assert "alpha, batch size 64: out of memory" in batches
    assert any(text.startswith("published, PEARC'22, table 1, row 2: GC200, batch size 8: 98") for text in batches)
    assert all(tooltips.values())


def test_charts_are_light_or_dark_as_a_reader_asks(charts: list[Chart], tmp_path: Path) -> None:
    light = in_browser(charts[:2], tmp_path)["charts"]
    dark = in_browser(charts[:2], tmp_path, 480, "--blink-settings=preferredColorScheme=0")["charts"]
    assert {chart["ink"] for chart in light} == {"rgb(28, 28, 28)"}
    assert {chart["ink"] for chart in dark} == {"rgb(236, 236, 236)"}


def test_names_of_systems_are_text_in_a_browser(charts: list[Chart], tmp_path: Path) -> None:
    results = of_systems(study(tmp_path / "study"), [HOSTILE, "\u202e\u05e9\u05dc\u05d5\u05dd", "x" * 10_000])
    look = in_browser(charts_of(results), tmp_path)
    assert look["title"] == "charts"
    words = {word for chart in look["charts"] for word in chart["words"]}
    assert any(word.startswith("<img src=x") for word in words)
