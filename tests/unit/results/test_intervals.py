"""Intervals over repeats, against published quantiles and by drawing from known distributions."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmark.results.comparison.intervals import Mean, Ratio, mean, ratio, standard_errors
from sifmark.results.comparison.student import t_critical, t_pvalue
from sifmark.results.marks import FEWEST_REPEATS
from sifmark.results.numbers import format_interval

POSITIVE = st.floats(1e-9, 1e9)
REPEATS = st.lists(POSITIVE, min_size=FEWEST_REPEATS, max_size=8)


def ends(interval: Mean | Ratio) -> tuple[float, float]:
    """What an interval reaches from and to."""
    assert interval.low is not None and interval.high is not None
    return interval.low, interval.high


# Two-sided: level, degrees of freedom, quantile; from the NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
QUANTILES = [
    *((0.05, freedom, wanted) for freedom, wanted in ((1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571))),
    *((0.05, freedom, wanted) for freedom, wanted in ((10, 2.228), (30, 2.042), (100, 1.984), (10**6, 1.960))),
    *((0.01, 5, 4.032), (0.001, 5, 6.869), (0.001, 29, 3.659), (0.1, 120, 1.658)),
]


@pytest.mark.parametrize(("level", "freedom", "wanted"), QUANTILES)
def test_quantiles_and_tails_are_those_of_printed_tables(level: float, freedom: int, wanted: float) -> None:
    assert t_critical(level, freedom) == pytest.approx(wanted, abs=6e-4)
    assert t_pvalue(wanted, freedom) == t_pvalue(-wanted, freedom) == pytest.approx(level, rel=2e-3)
    assert level != 0.05 or standard_errors(freedom) == pytest.approx(wanted, abs=5e-4)


def test_far_tails_keep_their_digits() -> None:
    assert t_pvalue(1e6, 2) == pytest.approx(1e-12, rel=1e-6)
    assert t_pvalue(30.0, 1) == pytest.approx(2 / (math.pi * 30), rel=1e-3)  # Cauchy's
    assert 0 < t_pvalue(40.0, 20) < 1e-18 and (t_pvalue(math.inf, 3), t_pvalue(0, 5)) == (0, 1)


def test_the_interval_of_a_mean_worked_by_hand() -> None:
    average = mean([math.exp(x) for x in (9.0, 10.0, 11.0)])
    assert average.value == pytest.approx(math.exp(10)) and average.geometric and average.count == 3
    low, high = ends(average)
    assert math.log(high) == pytest.approx(10 + 4.302653 / math.sqrt(3), abs=1e-5)
    assert math.log(low) == pytest.approx(10 - 4.302653 / math.sqrt(3), abs=1e-5)


def test_a_mean_of_what_may_be_zero_is_arithmetic() -> None:
    average = mean([-1.0, 0.0, 1.0])
    assert (average.count, average.value, average.geometric) == (3, 0.0, False)
    low, high = ends(average)
    assert -low == high == pytest.approx(4.302653 / math.sqrt(3), abs=1e-5)


@given(st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=9), st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=9))
def test_means_agree_with_their_ratio_and_intervals_stay_positive(above: list[float], below: list[float]) -> None:
    ours, theirs = mean(above), mean(below)
    assert ours.value is not None and theirs.value is not None and ours.low is not None
    assert ratio(above, below).value == pytest.approx(ours.value / theirs.value)
    assert ours.low >= 0


def test_equal_values_have_exactly_their_mean() -> None:
    assert mean([0.044]).value == 0.044 and mean([0.011] * 3).value == 0.011


def test_welch_worked_by_hand() -> None:
    # Variances 1 and 4 of three values each: standard error sqrt(5/3), degrees of freedom 50/17, rounded down to 2.9.
    interval = ratio([math.exp(x) for x in (0.0, 1.0, 2.0)], [math.exp(x) for x in (0.0, 2.0, 4.0)])
    assert interval.value == pytest.approx(math.exp(-1))
    low, high = ends(interval)
    assert math.log(high) == pytest.approx(-1 + standard_errors(2.9) * math.sqrt(5 / 3))
    assert math.log(low) == pytest.approx(-1 - standard_errors(2.9) * math.sqrt(5 / 3))


@pytest.mark.parametrize("spreads", [(0.01, 0.01), (0.01, 0.2), (0.5, 0.02)])
@pytest.mark.parametrize("counts", [(3, 3), (3, 8), (10, 4)])
def test_intervals_hold_the_truth_as_often_as_they_say(spreads: tuple[float, float], counts: tuple[int, int]) -> None:
    chance = random.Random(7)
    trials, hits = 1000, 0
    for _ in range(trials):
        sides = [
            [math.exp(chance.gauss(level, spread)) for _ in range(count)]
            for level, spread, count in zip((0.3, 0.1), spreads, counts, strict=True)
        ]
        low, high = ends(ratio(*sides))
        hits += low <= math.exp(0.2) <= high
    assert hits / trials > 0.925


@given(REPEATS, REPEATS)
def test_a_ratio_and_its_inverse_say_the_same(above: list[float], below: list[float]) -> None:
    forth, back = ratio(above, below), ratio(below, above)
    assert forth.value is not None and back.value is not None
    assert forth.value * back.value == pytest.approx(1)
    (low, high), (low_back, _) = ends(forth), ends(back)
    assert low <= forth.value * (1 + 1e-12)
    assert forth.value <= high * (1 + 1e-12)
    if high < 1e290:
        assert high * low_back == pytest.approx(1) or low_back == 0
    opposite = {"more": "less", "less": "more", "no difference shown": "no difference shown"}
    assert back.verdict == opposite[forth.verdict]


@given(REPEATS, REPEATS, st.floats(1e-3, 1e3))
def test_a_ratio_does_not_depend_on_the_unit(above: list[float], below: list[float], factor: float) -> None:
    original, other = ratio(above, below), ratio([x * factor for x in above], [x * factor for x in below])
    assert other.value == pytest.approx(original.value)


@given(st.lists(POSITIVE, min_size=1, max_size=8), st.lists(POSITIVE, min_size=1, max_size=8))
def test_fewer_than_three_repeats_a_side_tell_nothing(above: list[float], below: list[float]) -> None:
    interval = ratio(above, below)
    few = min(len(above), len(below)) < 3
    assert (interval.verdict == "cannot tell") == few
    assert (interval.low is None) == few
    assert (interval.reason is not None) == few
    assert (mean(above).low is None) == (len(above) < 3)


@pytest.mark.parametrize(
    ("above", "below"), [([], [1.0]), ([1.0], []), ([0.0] * 3, [1.0] * 3), ([1.0] * 3, [-1.0] * 3)]
)
def test_what_has_no_ratio_says_why(above: list[float], below: list[float]) -> None:
    interval = ratio(above, below)
    assert (interval.value, interval.verdict) == (None, "cannot tell")
    assert interval.reason


def test_nothing_measured_is_no_zero() -> None:
    assert mean([]).value is None
    assert mean([], "the meter does not read").reason == "the meter does not read"


def test_equal_repeats_have_an_interval_of_no_width() -> None:
    interval = ratio([2.0] * 3, [1.0] * 3)
    assert (interval.low, interval.value, interval.high, interval.verdict) == (2.0, 2.0, 2.0, "more")


def test_equal_values_are_written_with_no_more_digits_because_of_rounding() -> None:
    text = format_interval(48_750.0, 48_749.99999999964, 48_750.00000000015)
    assert text == format_interval(48_750.0, 48_750.0, 48_750.0) == "48,750 ± 0 %"
