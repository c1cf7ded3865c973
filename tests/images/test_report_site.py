"""A site of reports in a real browser: how wide its pages are, whether they can be read, and its list of results."""

import re
import shutil
from pathlib import Path

import pytest
from images.devtools import Tab
from images.test_report import LOOK
from unit.report.sites import results_of_nights

from sifmark.commands.command_line import main

pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="no Chromium here: ci/setup/chromium")

DESK, PHONE = 1280, 390  # CSS pixels
SHOWN = "[...document.querySelectorAll('.list tbody tr')].filter(row => row.getClientRects().length)"
RATES = f"{SHOWN}.map(row => row.cells[3].dataset.sort)"
TYPED = """(words => {
  const field = document.getElementById("search");
  field.value = words;
  field.dispatchEvent(new Event("input"));
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a study, and of nights of two sites."""
    folder = tmp_path_factory.mktemp("site")
    results = results_of_nights(folder / "results")
    assert main(["report.site", str(results), "--output", str(folder / "public"), "--quiet"]) == 0
    return folder / "public"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_page_can_be_read_and_is_no_wider_than_the_screen(site: Path, tab: Tab, width: int, dark: bool) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 12
    for page in pages:
        tab.open(page, width, dark)
        look = tab.value(LOOK)
        name = page.relative_to(site).as_posix()
        assert look["beyond"] <= 0, name
        assert look["faint"] == [], name
        assert dark == (sum(map(int, re.findall(r"\d+", look["background"])[:3])) < 3 * 128), name
        assert tab.complaints == [] and {Path(each).name for each in tab.requests} == {page.name, "style.css"}, name
        for chart in look["charts"]:
            assert chart["outside"] == [] and all(11 <= size <= 13 for size in chart["sizes"]), (name, chart["name"])


def test_what_changed_is_on_the_first_screen_of_a_phone(site: Path, tab: Tab) -> None:
    tab.open(site / "index.html", PHONE)
    assert tab.value("document.querySelector('#changes .worse').getBoundingClientRect().bottom") < 700


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_the_list_of_results_is_searched_by_words(site: Path, tab: Tab, width: int) -> None:
    tab.open(site / "results.html", width)
    every = tab.value(f"{SHOWN}.length")
    tab.value(f"{TYPED}('alpha pictures')")
    found = tab.value(f"{SHOWN}.map(row => row.textContent)")
    assert 0 < len(found) < every and all("alpha" in text and "pictures" in text for text in found)
    assert tab.value("document.querySelector('output').value") == f"{len(found)} of {every}"
    tab.value(f"{TYPED}('')")
    assert tab.value(f"{SHOWN}.length") == every


def test_the_list_of_results_is_sorted_with_the_keyboard_by_numbers(site: Path, tab: Tab) -> None:
    tab.open(site / "results.html", DESK)
    before = tab.value(RATES)
    for direction, sign in (("ascending", 1), ("descending", -1)):
        tab.value("document.querySelectorAll('.list th button')[3].focus()")
        tab.key("Enter")
        assert tab.value("document.querySelectorAll('.list th')[3].getAttribute('aria-sort')") == direction
        rates = tab.value(RATES)
        assert sorted(rates) == sorted(before) and rates != before
        numbers = [float(rate) * sign for rate in rates if rate]
        assert numbers == sorted(numbers) and rates[len(numbers) :] == [""] * 2, "what has no number is last"


def test_without_scripts_the_list_is_a_table(site: Path, tab: Tab) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(site / "results.html", DESK)
        assert tab.value(f"{SHOWN}.length") > 20
        assert tab.value("document.getElementById('tools').getClientRects().length") == 0
        assert tab.value("document.querySelectorAll('th button').length") == 0
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)
