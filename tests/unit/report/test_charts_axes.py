"""Axes: only what was measured has a tick, units suit the values, and bars begin at zero."""

from itertools import pairwise

import pytest

from sifmark.report.charts import axes


def test_an_axis_of_doubling_has_ticks_at_what_was_measured_and_nothing_else() -> None:
    axis = axes.doubling("batch size", [64, 16, 16, 24])
    assert axis["axis"]["values"] == [16, 24, 64]
    low, high = axis["scale"]["domain"]
    assert (axis["scale"]["type"], axis["scale"]["base"]) == ("log", 2) and low < 16 and high > 64


def test_many_places_have_fewer_ticks() -> None:
    ticks = axes.doubling("batch size", range(1, 101))["axis"]["values"]
    assert len(ticks) <= 12 and ticks[0] == 1


def test_one_place_is_in_the_middle() -> None:
    assert axes.doubling("batch size", [8])["scale"]["domain"] == [4, 16]


@pytest.mark.parametrize(
    ("unit", "largest", "title"),
    [
        ("s", 12.0, "t [s]"),
        ("s", 0.012, "t [ms]"),
        ("s", 3e-5, "t [µs]"),
        ("FLOP/s", 3.1e14, "t [TFLOP/s]"),
        ("bytes/s", 2e9, "t [GB/s]"),
        ("images/s", 33_000.0, "t [images/s]"),
        ("1", 0.9, "t"),
    ],
)
def test_a_title_has_the_unit_that_suits_the_largest_value(unit: str, largest: float, title: str) -> None:
    assert axes.quantity("t", unit, [largest / 2, largest])["title"] == title


def test_a_quantity_begins_at_zero() -> None:
    assert axes.quantity("throughput", "images/s", [400.0, 410.0])["scale"]["domain"][0] == 0


def test_quantities_that_differ_too_much_are_on_a_logarithmic_axis_unless_they_are_bars() -> None:
    values = [1.0, 1000.0]
    assert axes.quantity("throughput", "images/s", values)["scale"]["type"] == "log"
    assert axes.from_zero("throughput", "images/s", values)["scale"]["domain"][0] == 0


def test_an_interval_far_above_all_values_does_not_squeeze_them() -> None:
    assert axes.quantity("throughput", "images/s", [10.0], [1e9])["scale"]["domain"][1] < 20


def test_a_logarithmic_axis_has_few_round_ticks() -> None:
    ticks = axes.logarithmic("throughput", "images/s", [3.0, 800.0])["axis"]["values"]
    assert ticks == [5, 10, 20, 50, 100, 200, 500]
    assert all(b / a == pytest.approx(10) for a, b in pairwise(axes.logarithmic("t", "1", [1, 1e7])["axis"]["values"]))


def test_an_axis_of_negative_values_has_room_for_all_of_them() -> None:
    low, high = axes.from_zero("loss", "", [-3.0, -2.0], [-1.5])["scale"]["domain"]
    assert low < -3 and high == 0


@pytest.mark.parametrize("values", [[], [0.0], [float("nan"), float("inf")], [-3.0, 2.0]])
def test_any_values_have_an_axis(values: list[float]) -> None:
    low, high = axes.quantity("t", "s", values)["scale"]["domain"]
    assert low < high
    low, high = axes.logarithmic("t", "s", values)["scale"]["domain"]
    assert 0 < low < high


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.0001, "1.00e-04"),
        (0.5, "0.50"),
        (9.996, "10.0"),
        (81.6, "81.6"),
        (99.96, "100"),
        (999.6, "1.00k"),
    ],
)
def test_a_number_in_a_cell_has_three_digits(value: float, text: str) -> None:
    assert axes.compact(value) == text
