"""Who can use a report and a site of reports: what axe finds in a real browser, and where a keyboard gets."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from images.devtools import Tab
from unit.report import samples
from unit.report.sites import results_of_nights

from sifmark.commands.command_line import main

PACKAGE = find_spec("axe_playwright_python")  # of which only its copy of axe-core is read
pytestmark = [
    pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium"),
    pytest.mark.skipif(PACKAGE is None, reason="no axe-core here: ci/setup/python"),
]

DESK, PHONE = 1280, 390  # CSS pixels
MOST_STOPS = 500
KINDS = (
    "index.html",
    "results.html",
    "history.html",
    "history/*",
    "studies/*",
    "workloads/*",
)  # of each template
OPEN = "document.querySelectorAll('details').forEach(part => part.open = true)"
FOUND = """axe.run().then(found => found.violations.map(
  each => `${each.id}: ${each.nodes.length} times, ${each.nodes[0].html.slice(0, 200)}`))"""
# Where the focus is: the part of the page, and what has it.
STOP = """(stop => [
  stop.closest("nav, header, #verdict, #numbers, .workload, #systems, #methods, #runs, #files, main, body"),
  stop,
].map(part => part.id || part.className || part.tagName))(document.activeElement)"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a report of two systems, and of real runs of one rank and two."""
    folder = tmp_path_factory.mktemp("report")
    results = samples.study(folder / "results", real=True)
    assert main(["report", str(results), "--output", str(folder / "report"), "--quiet"]) == 0
    return folder / "report" / "index.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a study, and of nights of two sites."""
    folder = tmp_path_factory.mktemp("site")
    results = results_of_nights(folder / "results")
    assert main(["report.site", str(results), "--output", str(folder / "public"), "--quiet"]) == 0
    return folder / "public"


def violations(tab: Tab, page: Path, width: int, dark: bool = False, fault: str = "") -> Any:
    """What axe finds in a page, with all that is closed opened and with a fault put in."""
    tab.open(page, width, dark)
    tab.value(f"{OPEN}; {fault}")
    assert PACKAGE is not None and PACKAGE.origin is not None
    tab.value(Path(PACKAGE.origin).with_name("axe.min.js").read_text())
    return tab.value(FOUND)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_axe_finds_nothing_in_a_report(report: Path, tab: Tab, width: int, dark: bool) -> None:
    assert violations(tab, report, width, dark) == []


@pytest.mark.parametrize(("width", "dark"), [(DESK, False), (PHONE, True)], ids=["desk-light", "phone-dark"])
def test_axe_finds_nothing_in_a_site(site: Path, tab: Tab, width: int, dark: bool) -> None:
    for kind in KINDS:
        page = min(site.glob(kind))
        assert violations(tab, page, width, dark) == [], page.relative_to(site)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("document.documentElement.removeAttribute('lang')", "html-has-lang"),
        ("document.querySelector('svg[role=img]').removeAttribute('aria-label')", "svg-img-alt"),
        ("document.querySelector('.scroll').tabIndex = 1", "tabindex"),
        (
            "document.querySelectorAll('p').forEach(p => p.style = 'color: #999; background: #aaa')",
            "color-contrast",
        ),
    ],
)
def test_axe_finds_what_is_wrong(report: Path, tab: Tab, fault: str, rule: str) -> None:
    assert any(each.startswith(f"{rule}:") for each in violations(tab, report, DESK, fault=fault))


def stops(tab: Tab, page: Path) -> list[tuple[str, str]]:
    """Where the key Tab leads from the beginning of a page to its end: the part of the page, and what has the focus."""
    tab.open(page, DESK)
    found: list[tuple[str, str]] = []
    while len(found) < MOST_STOPS:
        tab.key("Tab")
        part, stop = tab.value(STOP)
        if stop == "BODY":
            break
        found.append((part, stop))
    return found


def test_a_keyboard_gets_from_filters_to_tables_workloads_and_runs(report: Path, tab: Tab) -> None:
    found = stops(tab, report)
    assert found[0][1] == "skip", "the first stop leads past the bar"
    parts = list(dict.fromkeys(part for part, _ in found))
    order = [parts.index(part) for part in ("verdict", "numbers", "systems", "methods", "runs", "files")]
    assert order == sorted(order)
    names = [stop for _, stop in found]
    assert names.index("show-y1") < names.index("scroll"), "filters come before tables"
    assert len(found) < 100, "what is closed, and the marks of charts, are no stops"


def test_a_keyboard_opens_the_runs(report: Path, tab: Tab) -> None:
    tab.open(report, DESK)
    tab.value("document.querySelector('#runs summary').focus()")
    tab.key("Enter")
    assert tab.value("document.querySelector('#runs li').getClientRects().length") == 1


def test_a_keyboard_gets_from_the_search_to_the_columns_and_the_rows(site: Path, tab: Tab) -> None:
    names = [stop for _, stop in stops(tab, site / "results.html")]
    first = names.index("search")
    buttons = names[first + 1 : first + 9]
    assert buttons == ["BUTTON"] * 8 and names[first + 9] == "A"
