"""Graphs of characters: as wide as asked for, and true to the values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmark.live.graphs import MOST_POINTS, Readings, bar, curve, resample

VALUES = st.lists(st.none() | st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf]))


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([7, 7, 7], "███"),
        ([0, 0], "▄▄"),
        ([1, None, 2], "▅ █"),
        ([math.nan, 2], " █"),
        ([], ""),
        ([None], ""),
    ],
)
def test_a_curve_begins_at_zero(values: list[float | None], drawn: str) -> None:
    assert curve(values, 10) == drawn


def test_a_curve_may_begin_at_its_lowest_value() -> None:
    assert curve([10, 11, 12], 3, from_zero=False) == "▁▅█"
    assert curve([0, 7], 2, ascii_only=True) == "_@"


@given(VALUES, st.integers(1, 80), st.booleans())
def test_a_curve_is_never_wider_than_asked_for(values: list[float | None], width: int, ascii_only: bool) -> None:
    drawn = curve(values, width, ascii_only, from_zero=ascii_only)
    assert len(drawn) <= width and (not ascii_only or drawn.isascii())


def test_neighbours_become_their_mean() -> None:
    assert resample([1, 3, 5, 7, 9], 3) == [2, 6, 9]
    assert resample([1, None, None, None], 2) == [1, None]


@pytest.mark.parametrize(("share", "drawn"), [(0, "...."), (0.5, "##.."), (0.99, "###."), (1, "####"), (2, "####")])
def test_a_bar_is_filled_by_what_is_done(share: float, drawn: str) -> None:
    assert bar(share, 4, ascii_only=True) == drawn


def test_a_day_takes_no_more_room_than_a_minute() -> None:
    series = Readings()
    for second in range(86_400):
        series.append(float(second))
    assert len(series.values) < MOST_POINTS
    assert series.values == sorted(series.values, key=lambda value: value or 0)
    assert series.values[0] == pytest.approx(127.5)  # the first 256 seconds
