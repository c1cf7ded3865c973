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
from unit.report.chart_results import figures_of_all, of_systems, printed, section_of, study
from unit.report.run_results import with_memory, with_microbenchmarks, with_parts

from sifmark.report import palette
from sifmark.report.forms import Figure
from sifmark.report.load import load_report_results
from sifmark.report.svg import fluid_style

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

HOSTILE = "<img src=x onerror='document.title = 1'><script>document.title = 2</script>"
# How a browser lays out each chart: words, their overlaps, what sticks out of the page, tooltips, colours of lines.
LOOK = """<script>
window.onload = () => {
  const box = element => element.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const charts = [...document.querySelectorAll("figure")].map(figure => {
    const texts = [...figure.querySelectorAll("text")];
    const overlaps = texts.flatMap((a, place) => texts.slice(place + 1).filter(b => meet(box(a), box(b)))
      .map(b => [a.textContent, b.textContent]));
    const out = [...figure.querySelectorAll("text")].filter(
      text => box(text).left < box(figure).left || box(text).right > box(figure).right);
    const line = figure.querySelector("text");
    return {
      name: figure.id,
      width: box(figure).width,
      words: texts.map(text => text.textContent),
      sizes: texts.map(text => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a),
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
body { margin: 20px; background: var(--bg); }
figure { margin: 0 0 20px; padding: 8px; }
</style>"""


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> list[Figure]:
    results = with_microbenchmarks(with_memory(with_parts(study(tmp_path_factory.mktemp("study")))))
    section = section_of(results, "training")
    marks = tuple(printed(section, "throughput", "images/s", 90.0 + size, batch_size=size) for size in (8, 16, 32))
    results.published = marks
    return [*figures_of_all(results), *figures_of_all(load_report_results([str(samples.TWO_RANKS)]))]


def in_browser(charts: list[Figure], folder: Path, width: int = 340, *options: str) -> dict[str, Any]:
    figures = [f'<figure id="{each.name}" style="width: {width}px">{each.plot.fluid()}</figure>' for each in charts]
    page = folder / "charts.html"
    page.write_text(HEAD % (palette.style_sheet() + fluid_style()) + "\n".join(figures) + LOOK)
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
    browser += ["--disable-quic", "--disable-background-networking", "--disable-component-update", *options]
    browser += [f"--user-data-dir={folder / 'browser'}", "--window-size=1280,900", "--dump-dom", page.as_uri()]
    shown = subprocess.run(browser, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="report">(.*?)</pre>', shown, re.DOTALL)
    assert match, shown[-2000:]
    look: dict[str, Any] = json.loads(html.unescape(match[1]))
    assert look["errors"] == [] and look["requests"] == 0
    return look


@pytest.mark.parametrize(
    "width", [340, pytest.param(600, marks=pytest.mark.full)]
)  # a column of a page or a phone, and a wide one
def test_words_of_charts_can_be_read(charts: list[Figure], tmp_path: Path, width: int) -> None:
    look = in_browser(charts, tmp_path, width)
    assert len(look["charts"]) == len(charts) >= 9
    for chart in look["charts"]:
        assert chart["overlaps"] == [], chart["name"]
        assert chart["out"] == [], chart["name"]
        assert min(chart["sizes"]) >= 11 and max(chart["sizes"]) <= 13, chart["name"]


@pytest.mark.parametrize("count", [1, 12])
def test_words_of_charts_of_many_systems_can_be_read(tmp_path: Path, count: int) -> None:
    names = [f"Accelerator {number} of a maker with a name" for number in range(count)]
    look = in_browser(figures_of_all(of_systems(study(tmp_path / "study"), names)), tmp_path)
    assert [(chart["name"], chart["overlaps"], chart["out"]) for chart in look["charts"]] == [
        (chart["name"], [], []) for chart in look["charts"]
    ]


def test_charts_are_light_or_dark_as_a_reader_asks(charts: list[Figure], tmp_path: Path) -> None:
    light = in_browser(charts[:2], tmp_path)["charts"]
    dark = in_browser(charts[:2], tmp_path, 340, "--blink-settings=preferredColorScheme=0")["charts"]
    muted = palette.COLOURS["muted"]
    as_rgb = [f"rgb({', '.join(str(int(each[n : n + 2], 16)) for n in (1, 3, 5))})" for each in muted]
    assert ({chart["ink"] for chart in light}, {chart["ink"] for chart in dark}) == ({as_rgb[0]}, {as_rgb[1]})


def test_names_of_systems_are_text_in_a_browser(tmp_path: Path) -> None:
    results = of_systems(study(tmp_path / "study"), [HOSTILE, "\u202e\u05e9\u05dc\u05d5\u05dd", "x" * 10_000])
    look = in_browser(figures_of_all(results), tmp_path)
    assert look["title"] == "charts"
    words = {word for chart in look["charts"] for word in chart["words"]}
    assert any(word.startswith("<img src") for word in words)
