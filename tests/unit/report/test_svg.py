"""Charts as SVG: scales, ticks, labels that avoid each other, and marks that say the same in a page and in a file."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmark.report import svg
from sifmark.report.svg import Margins, Plot, Scale

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "\" onload='x",
    "control \x00\x07\x1b[31m\n characters",
    "lone \ud800 surrogate",
    "\u65e5\u672c\u8a9e",
    "x" * 10_000,
    "",
)


def plot(label: str = "label", words: str = "alpha") -> Plot:
    made = Plot(label, 100, Scale(1, 4, is_log=True), Scale(0, 10), Margins(40, 60))
    made.grid([0, 5, 10], title="images/s")
    made.ticks([1, 2, 4], title="batch size")
    made.line([(1, 2), (2, 5), (4, 10)], 0)
    made.whisker(2, 4, 40, 0)
    made.dot(2, 5, 0, words)
    made.dot(4, 10, 1, words, "hollow")
    made.failed(4, 90, 1, words)
    made.names([(4, 10, 0, words)])
    return made


def page(fluid: str) -> ElementTree.Element:
    return ElementTree.fromstring(fluid)


def test_a_scale_has_shares_between_its_ends() -> None:
    assert [Scale(10, 20).share(value) for value in (10, 15, 20)] == [0, 0.5, 1]
    assert [Scale(1, 16, is_log=True).share(value) for value in (1, 4, 16)] == [0, 0.5, 1]
    assert Scale(0, 5).clamp(7) == 5 and Scale(0, 5).has(5) and not Scale(0, 5).has(5.1)


def test_a_scale_from_zero_holds_all_values() -> None:
    scale = svg.scale_from_zero([3.0, 8.0])
    assert scale.low == 0 and scale.high > 8
    assert svg.scale_from_zero([-2.0, 3.0]).low < -2
    assert svg.scale_from_zero([]).share(0) == 0  # nothing to show is no division by zero


def test_a_logarithmic_scale_of_one_value_has_it_in_the_middle() -> None:
    assert svg.scale_log([8.0]).share(8.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (Scale(0, 5440), [0, 2000, 4000]),
        (Scale(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (Scale(70, 102), [70, 80, 90, 100]),
        (Scale(3, 300, is_log=True), [5, 10, 20, 50, 100, 200]),
        (Scale(1, 1e6, is_log=True), [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (Scale(4.2, 4.8, is_log=True), [4.2, 4.4, 4.6, 4.8]),
    ],
)
def test_ticks_are_round_numbers(scale: Scale, expected: list[float]) -> None:
    assert svg.ticks_of(scale) == pytest.approx(expected)


@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e6), st.booleans())
def test_ticks_are_within_the_scale_and_few(low: float, ratio: float, is_log: bool) -> None:
    scale = Scale(low, low * ratio, is_log)
    ticks = svg.ticks_of(scale)
    assert 1 <= len(ticks) <= 11
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)
    assert all(left < right for left, right in pairwise(ticks))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12))
def test_labels_do_not_touch_and_keep_their_order(places: list[float]) -> None:
    moved = svg.spread(places, 14)
    order = sorted(range(len(places)), key=lambda number: (places[number], number))
    assert all(moved[b] - moved[a] >= 14 - 1e-6 for a, b in pairwise(order))
    assert math.fsum(moved) == pytest.approx(math.fsum(places), abs=1e-6)  # no more to one side than to the other


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert svg.spread([50.0, 10.0], 14) == [50.0, 10.0]


def test_labels_stay_in_the_area() -> None:
    assert svg.spread([95.0, 99.0], 14, 0, 100) == [86.0, 100.0]
    assert svg.spread([1.0, 2.0], 14, 0, 100)[0] == 0.0


def test_labels_below_an_axis_are_thinned_from_the_last_on() -> None:
    assert svg.thinned([0, 10, 20, 30], [8, 8, 8, 8], room=6) == [1, 3]
    assert svg.thinned([0, 100], [8, 8]) == [0, 1]


def test_wide_letters_are_wider() -> None:
    assert svg.text_width("WWW") > svg.text_width("000") > svg.text_width("iii") > 0
    assert svg.text_width("000", 24) == 2 * svg.text_width("000", 12)


def test_a_chart_in_a_page_stretches_and_its_letters_do_not() -> None:
    root = page(plot().fluid())
    assert root.get("class") == "plot pl42 pr60"  # margins are classes, since a page allows no style attribute
    drawing = root.find("svg")
    assert drawing is not None and drawing.get("width") == "100%" and drawing.get("viewBox") is None
    assert all(text.get("x", "").endswith("%") for text in root.iter("text"))
    assert not any("style" in element.attrib for element in root.iter())


def test_a_chart_is_one_image_with_its_label() -> None:
    drawing = page(plot('"alpha" & <beta>').fluid()).find("svg")
    assert drawing is not None
    assert (drawing.get("role"), drawing.get("aria-label")) == ("img", '"alpha" & <beta>')
    assert not list(drawing.iter("a"))  # marks are no stops of the keyboard: the table has the links


def test_marks_are_where_their_values_are() -> None:
    root = page(plot().fluid())
    circle = next(root.iter("circle"))
    assert (circle.get("cx"), circle.get("cy")) == ("50%", "50")
    whisker = next(each for each in root.iter("line") if "m-whisker" in each.get("class", ""))
    assert (whisker.get("y1"), whisker.get("y2")) == ("60", "0")  # cut off at the edge of the area
    assert sum("m-whisker" in each.get("class", "") for each in root.iter("path")) == 1, "with an arrow there"


def test_a_file_has_a_width_and_its_own_colours() -> None:
    root = ElementTree.fromstring(plot().fixed(332.6))
    assert root.get("width") == "332.6" and root.get("viewBox") == "-40 -20 332.6 162"
    sheet = next(root.iter(f"{SVG}rect"))
    assert (sheet.get("x"), sheet.get("width"), sheet.get("fill")) == ("-40", "332.6", "#ffffff")
    circle = next(root.iter(f"{SVG}circle"))
    assert float(circle.get("cx", "")) == pytest.approx((332.6 - 100) / 2)
    assert circle.get("fill", "").startswith("#") and circle.get("class") is None
    assert "%" not in re.sub(r"<title>.*?</title>", "", plot().fixed(300)) and "var(" not in plot().fixed(300)


def test_a_file_is_wider_than_asked_for_where_names_need_it() -> None:
    wide = Plot("label", 100, Scale(0, 1), margins=Margins(400, 10))
    assert ElementTree.fromstring(wide.fixed(200)).get("width") == str(int(410 + svg.LEAST_AREA))


def test_a_page_and_a_file_have_the_same_marks() -> None:
    def kinds(root: ElementTree.Element) -> dict[str, int]:
        names = [each.tag.removeprefix(SVG) for each in root.iter()]
        return {name: names.count(name) for name in ("polyline", "circle", "path", "line", "text")}

    assert kinds(page(plot().fluid())) == kinds(ElementTree.fromstring(plot().fixed(300)))


@pytest.mark.parametrize("text", HOSTILE)
def test_untrusted_text_stays_text(text: str) -> None:
    for drawn in (plot(text, text).fluid(), plot(text, text).fixed(300)):
        root = ElementTree.fromstring(drawn)
        assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
            *("div", "svg", "title", "text", "line", "rect", "circle", "path", "polyline")
        }
        assert not any(name.startswith("on") for each in root.iter() for name in each.attrib)
        assert all(len(each.text or "") <= 400 for each in root.iter())


def test_the_same_plot_has_the_same_bytes() -> None:
    assert plot().fluid() == plot().fluid() and plot().fixed(300) == plot().fixed(300)
