"""Numbers as people read them: digits, units and intervals."""

import math
from random import Random

import pytest

from sifmark.results.numbers import (
    WIDE,
    Scale,
    format_interval,
    format_number,
    format_quantity,
    format_seconds,
    scale_of,
    split_interval,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.31, "2.310"),
        (9.99996, "10.00"),
        (0.99996, "1.000"),
        (4147.3, "4,147"),
        (227_049.0, "227,000"),
        (-12.345, "-12.35"),
        (0.000123456, "0.0001235"),
        (0.0000123456, "1.235e-05"),
        (1.5e17, "1.500e+17"),
        (math.inf, "inf"),
    ],
)
def test_a_number_has_four_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (412.0, 405.0, 419.0, "412.0 ± 1.7 %"),
        (412.0, None, 419.0, "412.0"),
        (412.0, 412.0, 412.0, "412.0 ± 0 %"),
        (412.0, 411.999999999999, 412.000000000001, "412.0 ± 0 %"),
        (412.0, 411.8, 412.2, "412.0 ± 0.05 %"),
        (412.0, 411.9999, 412.0001, "412.0 ± 0.01 %"),  # never 0 of an interval with a width
        (100.0, 90.0, 110.0, "100.0 ± 10.0 %"),
        (100.0, 90.0, 110.1, "100 [90, 110]"),
        (145.2, 101.1, 208.4, "145 [101, 208]"),
        (2.31, 1.7, 3.12, "2.31 [1.70, 3.12]"),
        (145.2, 0.0213, 990_000.0, "145 [0.02, 990,000]"),
        (145.2, 0.0, math.inf, "145 [0, inf]"),
        (-1.0, -1.01, -0.99, "-1.00 [-1.01, -0.99]"),
        (0.0, -0.5, 0.5, "0 [-0.500, 0.500]"),
        (8.071e-9, 8e-9, 8.1e-9, "8.071e-09 ± 0.9 %"),
        (8.071e-9, 4e-9, 1e-8, "8.07e-09 [4.00e-09, 1.00e-08]"),
    ],
)
def test_an_interval_is_a_percentage_up_to_ten_and_in_brackets_above(
    value: float, low: float | None, high: float | None, text: str
) -> None:
    assert format_interval(value, low, high) == text
    assert " ".join(filter(None, split_interval(text))) == text


def test_a_percentage_reaches_both_ends() -> None:
    random = Random(5)
    for _ in range(2000):
        value = math.exp(random.uniform(-8, 20))
        half = random.uniform(0.001, 0.09)
        low, high = value * math.exp(-half), value * math.exp(half)
        number, interval = split_interval(format_interval(value, low, high))
        percent = float(interval.strip("± %"))
        shown = float(number.replace(",", ""))
        slack = 0.0005 * value + 0.0005 * value  # of the value's last digit, and of the percentage's
        assert percent <= WIDE
        assert shown * (1 - percent / 100) <= low + slack and shown * (1 + percent / 100) >= high - slack


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (15_534_000_000.0, "bytes/s", "15.53 GB/s"),
        (4.147e12, "bytes/s", "4,147 GB/s"),
        (4147.0, "GB/s", "4,147 GB/s"),
        (848e12, "FLOP/s", "848.0 TFLOP/s"),
        (140e9, "FLOP/s", "140.0 GFLOP/s"),
        (120_200_000_000.0, "operations/s", "120.2 GOP/s"),
        (8.071e-9, "J/byte", "8.071 nJ/byte"),
        (0.125, "J/image", "0.1250 J/image"),
        (36_980.0, "J", "36.98 kJ"),
        (294.2, "J", "294.2 J"),
        (32_110.0, "tokens/s", "32,110 tokens/s"),
        (3_450_000.0, "tokens/s", "3,450,000 tokens/s"),
        (0.05428, "s", "54.28 ms"),
        (0.0, "s", "0 s"),
        (143_155.2, "MiB", "139.8 GiB"),
        (512.0, "MiB", "512.0 MiB"),
        (0.1159, "1", "0.1159"),
        (616.0, "W", "616.0 W"),
    ],
)
def test_a_quantity_has_the_unit_that_suits_it(value: float, unit: str, text: str) -> None:
    assert format_quantity(value, unit) == text


def test_an_interval_stands_behind_the_unit() -> None:
    assert format_quantity(5441.0, "images/s", 5408.0, 5474.0) == "5,441 images/s ± 0.6 %"
    assert format_quantity(0.005, "s", 0.004, 0.006) == "5.00 ms [4.00, 6.00]"


def test_the_numbers_of_a_table_have_the_unit_of_the_largest() -> None:
    assert scale_of("s", [0.0127, 0.004]) == Scale(1e-3, "ms")
    assert scale_of("s", [1.27, 0.004]) == Scale(1.0, "s")
    assert scale_of("bytes/s/W", [2e9]) == Scale(1e9, "GB/s/W")
    assert scale_of("bytes/s", []) == Scale(1.0, "B/s")
    assert scale_of("bytes/s", [0.0]) == Scale(1.0, "B/s")
    assert Scale(1e-3, "ms").text(0.0127, 0.0126, 0.0128) == "12.70 ± 0.8 %"


def test_durations_are_in_the_units_of_clocks() -> None:
    assert [format_seconds(value) for value in (1.234, 24.4, 72.0, 7500.0)] == [
        "1.23 s",
        "24 s",
        "1 min 12 s",
        "2 h 5 min",
    ]
