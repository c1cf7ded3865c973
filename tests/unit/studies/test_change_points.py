"""Change points: tests against printed values, known changes, and how often noise alone is reported."""

import math
import random
from collections.abc import Callable

import pytest

from sifmark.studies.history.change_points import Search, change_of, difference_p, discoveries, is_gradual

RATE, LEAST = 0.01, math.log1p(0.02)
SERIES = 300  # simulated for each kind of noise
# Of series without a change, at most this part may be reported to have one. Per series there are up to four searches at
# RATE: of labelled and of all places, and of pairs of them; they overlap.
MOST_FALSE = 0.03

Noise = Callable[[random.Random, int], list[float]]


def normal(generator: random.Random, count: int) -> list[float]:
    return [generator.gauss(0, 0.02) for _ in range(count)]


def heavy_tailed(generator: random.Random, count: int) -> list[float]:
    """Student's distribution with three degrees of freedom."""
    return [0.01 * generator.gauss(0, 1) / math.sqrt(generator.gammavariate(1.5, 1 / 1.5)) for _ in range(count)]


def slow_nights(generator: random.Random, count: int) -> list[float]:
    """One night of twenty is 20 % slower."""
    return [generator.gauss(0, 0.01) - 0.2 * (generator.random() < 0.05) for _ in range(count)]


def labels(generator: random.Random, count: int) -> frozenset[int]:
    """Two updates that change nothing."""
    return frozenset(generator.sample(range(1, count), 2))


def places(values: list[float], labelled: frozenset[int] = frozenset()) -> list[int]:
    return [split.places[0] for split in Search(values, labelled, RATE, LEAST).run().splits]


def test_an_interval_contains_one_exactly_if_the_test_at_its_level_does_not_refuse_it() -> None:
    generator = random.Random(3)
    for _ in range(200):
        before, after = normal(generator, generator.randint(1, 8)), normal(generator, generator.randint(3, 8))
        after = [value + 0.02 for value in after]
        ratio = change_of(before, after)
        assert ratio.low is not None and ratio.high is not None
        p = difference_p(before, after)
        assert abs(p - 0.05) < 0.005 or (ratio.low <= 1 <= ratio.high) is (p > 0.05)


def test_too_few_numbers_prove_nothing() -> None:
    assert difference_p([1.0], [2.0, 2.0]) == 1
    assert change_of([0.0], [0.1]).low is None


def test_benjamini_and_hochberg_worked_by_hand() -> None:
    # The limits at rate 0.05 are 0.01, 0.02, 0.03, 0.04 and 0.05: the third is the last below its own.
    assert discoveries([0.2, 0.001, 0.03, 0.012, 0.041], 0.05) == [False, True, True, True, False]
    assert discoveries([0.04, 0.9], 0.01) == [False, False]


@pytest.mark.parametrize("noise", [normal, heavy_tailed, slow_nights])
@pytest.mark.parametrize("count", [12, 30, pytest.param(90, marks=pytest.mark.full)])
def test_noise_alone_is_rarely_reported(noise: Noise, count: int) -> None:
    generator = random.Random(count)
    reported = sum(bool(places(noise(generator, count), labels(generator, count))) for _ in range(SERIES))
    assert reported <= MOST_FALSE * SERIES


@pytest.mark.parametrize(("count", "at", "change"), [(30, 15, 0.04), (60, 50, 0.04), (60, 57, 0.06), (90, 45, -0.03)])
def test_a_change_is_located(count: int, at: int, change: float) -> None:
    generator, near = random.Random(1), 0
    for _ in range(100):
        values = [generator.gauss(0, 0.01) - change * (place >= at) for place in range(count)]
        result = places(values)
        near += len(result) == 1 and abs(result[0] - at) <= 1
    assert near >= 95


def test_a_label_fixes_the_place_and_needs_less_evidence() -> None:
    generator = random.Random(2)
    exact, alone = 0, 0
    for _ in range(100):
        values = [generator.gauss(0, 0.01) - 0.035 * (place >= 24) for place in range(30)]
        exact += places(values, frozenset({24})) == [24]
        alone += places(values) == [24]
    assert exact >= 95 and exact > alone


def test_one_night_after_an_update_is_enough_for_a_large_change() -> None:
    values = [*normal(random.Random(4), 30), -0.2]
    assert places(values, frozenset({30})) == [30] and places(values) == []


def test_a_change_that_is_taken_back_has_two_places() -> None:
    generator, both = random.Random(5), 0
    for _ in range(50):
        values = [generator.gauss(0, 0.01) - 0.05 * (40 <= place < 50) for place in range(90)]
        both += len(places(values)) == 2
    assert both >= 45


def test_a_change_that_is_too_small_to_matter_is_left_out() -> None:
    values = [0.001 * (place % 2) + 0.015 * (place >= 30) for place in range(60)]
    assert places(values) == []
    assert [split.places for split in Search(values, frozenset(), RATE, math.log1p(0.01)).run().splits] == [(30,)]


def test_two_slow_nights_of_three_are_no_new_level() -> None:
    values = [*normal(random.Random(6), 57), -0.3, -0.3, 0.0]
    assert places(values) == []


def test_numbers_that_are_all_equal_have_no_change() -> None:
    assert places([1.0] * 20, frozenset({10})) == []
    assert places([], frozenset()) == [] and places([1.0]) == []


def test_an_exact_step_is_one_change() -> None:
    assert places([0.0] * 10 + [1.0] * 10) == [10]
    assert places([0.0] * 4 + [1.0] * 4 + [0.5] * 4, frozenset({4, 8})) == [4, 8]


def correlated(generator: random.Random, count: int, correlation: float, deviation: float) -> list[float]:
    """Nights that resemble the one before."""
    values = [generator.gauss(0, deviation)]
    new = deviation * math.sqrt(1 - correlation**2)
    while len(values) < count:
        values.append(correlation * values[-1] + generator.gauss(0, new))
    return values


@pytest.mark.parametrize("after", [3, 4, 5, 6, 7, 10])
def test_a_change_stays_found_with_each_night(after: int) -> None:
    """With Welch's test from five nights on, 5 of 15 were found after five."""
    generator, found = random.Random(after), 0
    for _ in range(15):
        values = [generator.gauss(0, 0.01) - 0.05 * (place >= 90 - after) for place in range(90)]
        found += any(abs(place - (90 - after)) <= 2 for place in places(values))
    assert found >= 14


def test_correlated_nights_are_rarely_reported() -> None:
    """Taken for independent, 11 of 20 such series have a change."""
    generator = random.Random(7)
    reported = sum(bool(places(correlated(generator, 200, 0.7, 0.04))) for _ in range(20))
    assert reported <= 3


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.7])
def test_the_correlation_is_estimated_beside_a_change(correlation: float) -> None:
    generator, estimates = random.Random(8), []
    for _ in range(8):
        values = correlated(generator, 200, correlation, 0.01)
        values[100:] = [value - 0.1 for value in values[100:]]
        estimates.append(Search(values, frozenset(), RATE, LEAST).run().correlation)
    assert sum(estimates) / len(estimates) == pytest.approx(correlation, abs=0.12)


def test_a_drift_is_told_from_a_step() -> None:
    generator = random.Random(9)
    steps = [[generator.gauss(0, 0.01) - 0.04 * side for _ in range(40)] for side in (0, 1)]
    drift = [generator.gauss(0, 0.01) - 0.001 * place for place in range(80)]
    assert not is_gradual(*steps) and is_gradual(drift[:40], drift[40:])
