"""Forms of charts hold whatever was measured: zeros, equal values, far ends of intervals, and one value alone."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from sifmark.report.forms import (
    Axis,
    BarChart,
    BarRow,
    Cross,
    Diamond,
    Level,
    LineChart,
    RatioChart,
    RatioRow,
    Series,
    Spot,
    shown,
)
from sifmark.report.palette import ARROW_UP
from sifmark.report.svg import Dot, Line, Plot, Text
from sifmark.results.comparison.intervals import Ratio

PLACES = st.floats(1e-6, 1e12)
VALUES = st.just(0.0) | st.floats(1e-12, 1e15)
FEW = settings(max_examples=examples(30))


def drawn(plot: Plot) -> None:
    """Fail unless a plot is a picture in a page and in a file, with every place a number."""
    for text in (plot.fluid(), plot.fixed(321)):
        ElementTree.fromstring(text)
        assert "nan" not in text and "inf" not in text


@FEW
@given(st.lists(st.tuples(PLACES, VALUES, VALUES, VALUES), min_size=1, max_size=5), st.booleans(), st.booleans())
def test_lines_hold_any_numbers(points: list[tuple[float, ...]], log_x: bool, is_log: bool) -> None:
    is_log = is_log and all(y > 0 for _, y, _, _ in points)
    spots = tuple(Spot(x, y, min(y, low), max(y, high)) for x, y, low, high in points)
    x, y = Axis("x", log_x), Axis("y", is_log)
    places = [each for each, *_ in points]
    lines = [Series(0, "alpha", spots), Series(1, "beta", spots[:1], "95 %")]
    chart = LineChart("label", lines, x, y, [Cross(places[0], 0, "lost")], [Level(points[0][1])], [])
    drawn(chart.plot())


@FEW
@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=1, max_size=5))
def test_bars_hold_any_numbers(rows: list[list[float]]) -> None:
    bars = [BarRow(0, f"row {n}", tuple((each, "") for each in parts), "1 ms") for n, parts in enumerate(rows)]
    drawn(BarChart("label", bars, ("one", "two")).plot())


@FEW
@given(st.lists(st.tuples(st.floats(1e-9, 1e9), st.floats(0, 1e12), st.floats(0, 1e12)), min_size=1, max_size=5))
def test_ratios_hold_any_intervals(ratios: list[tuple[float, float, float]]) -> None:
    rows = [
        RatioRow(0, f"row {place}", Ratio(value, min(value, low), max(value, high)), "words", "table")
        for place, (value, low, high) in enumerate(ratios)
    ]
    drawn(RatioChart("label", rows).plot())


def test_an_interval_far_above_all_values_does_not_squeeze_them() -> None:
    spots = (Spot(1, 10.0, 9.0, 1e9), Spot(2, 12.0, 11.0, 13.0))
    plot = LineChart("label", [Series(0, "alpha", spots)], Axis(), Axis()).plot()
    assert plot.y.high < 50
    assert [mark.path for mark in plot.marks if isinstance(mark, Dot) and mark.look == "whisker"] == [ARROW_UP]


@pytest.mark.parametrize("is_log", [False, True])
def test_an_axis_holds_wide_intervals(is_log: bool) -> None:
    spots = (Spot(16, 83.3, 46.5, 149.1), Spot(32, 62.4, 30.0, 90.0))
    plot = LineChart("label", [Series(0, "alpha", spots)], Axis(), Axis(is_log=is_log)).plot()
    assert plot.y.has(149.1) and plot.y.has(30.0)
    assert not any(isinstance(mark, Dot) and mark.look == "whisker" for mark in plot.marks)


def test_names_stand_at_the_ends_of_lines_and_say_their_value() -> None:
    series = [Series(0, "alpha", (Spot(1, 1), Spot(4, 3)), "95 %"), Series(1, "beta", (Spot(1, 2),))]
    plot = LineChart("label", series, Axis(), Axis()).plot()
    names = {mark.words: mark for mark in plot.marks if isinstance(mark, Text) and mark.look == "end"}
    assert set(names) == {"alpha 95 %", "beta"}
    assert names["alpha 95 %"].x == plot.across(4) and names["beta"].x == plot.across(1)


def test_one_mark_is_no_line_and_a_published_figure_a_diamond() -> None:
    plot = LineChart("label", [Series(0, "a", (Spot(1, 2),))], Axis(), Axis(), diamonds=[Diamond(2, 3, "words")]).plot()
    assert not any(isinstance(mark, Line) for mark in plot.marks)
    assert [mark.title for mark in plot.marks if isinstance(mark, Dot)] == ["", "words"]


def test_crosses_at_one_place_are_above_each_other() -> None:
    lost = [Cross(2, 0, "one"), Cross(2, 1, "two"), Cross(4, 0, "three")]
    plot = LineChart("label", [Series(0, "a", (Spot(1, 2), Spot(4, 2)))], Axis(), Axis(), lost).plot()
    places = {mark.title: mark.y for mark in plot.marks if isinstance(mark, Dot) and mark.look == "failed"}
    assert places["one"] == places["three"] == places["two"] + 16


@pytest.mark.parametrize("rates", [None, {3: 9.0}])
def test_as_many_lines_as_fit_are_the_longest_then_those_of_the_fastest(rates: dict[int, float] | None) -> None:
    series = [Series(place, str(place), (Spot(1, 1), Spot(2, 2))) for place in range(12)]
    kept = [each.system for each in shown(series, rates)]
    assert len(kept) == 8 and 0 in kept and kept == sorted(kept, key=lambda place: place or 0)
    assert rates is None or 3 in kept
