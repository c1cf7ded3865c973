"""The statistics of a fleet: how often a healthy one has an outlier, and which outliers are there."""

import math
import random
import statistics

import pytest

from sifmark.studies.analysis.fleet import FEWEST, deviating, tail_of
from sifmark.studies.analysis.tails import Fleet, Judged, judge


@pytest.mark.parametrize("size", [5, 8, 16, 64])
def test_a_healthy_fleet_has_an_outlier_as_often_as_stated(size: int) -> None:
    trials, level, chance = 600, 0.05, random.Random(size)
    alarms = sum(bool(deviating(fleet(size, chance), level)) for _ in range(trials))
    deviation = (level * (1 - level) / trials) ** 0.5
    assert alarms / trials < level + 3 * deviation, f"{alarms / trials:.3f} of healthy fleets of {size}"


def fleet(size: int, chance: random.Random) -> dict[str, float]:
    return {f"n{number}": chance.gauss(0, 0.01) for number in range(size)}


@pytest.mark.parametrize("size", [8, 16, 64])
def test_a_node_that_is_far_off_is_named_alone(size: int) -> None:
    chance, named = random.Random(size), []
    for _ in range(30):
        values = fleet(size, chance) | {"n3": -0.2}
        named.append([each.member for each in deviating(values, 0.01)])
    assert named.count(["n3"]) >= 28


def test_several_slow_nodes_do_not_hide_each_other() -> None:
    values = fleet(16, random.Random(4)) | {"n2": -0.2, "n5": -0.21, "n9": -0.19, "n11": -0.2}
    outliers = deviating(values, 0.01)
    assert {each.member for each in outliers} == {"n2", "n5", "n9", "n11"}
    assert all(each.tail < 1e-6 for each in outliers)
    spread = statistics.stdev(values.values())
    assert all(abs(each) < 3 * spread for each in values.values()), "three deviations would have named none of them"


def test_equal_values_have_no_outlier_and_a_different_one_among_them_is_certain() -> None:
    values = dict.fromkeys("abcdefgh", 1.0)
    assert deviating(values, 0.01) == []
    (outlier,) = deviating(values | {"d": 0.9}, 0.01)
    assert (outlier.member, outlier.tail) == ("d", 0.0)


def test_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="5 are needed"):
        deviating(dict.fromkeys("abcd", 1.0), 0.01)
    assert FEWEST == 5


def test_the_tail_of_a_new_value_follows_from_the_sample() -> None:
    sample = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert tail_of(1.0, sample) == pytest.approx(1.0)
    assert tail_of(2.0, sample) < 0.001 and tail_of(0.5, [1.0, 1.0]) == 0 and tail_of(1.0, [1.0, 1.0]) == 1


def judged(measures: int, freedom: float, chance: random.Random, slow: float = 0.0) -> list[Judged]:
    """Screen 64 nodes by measures of Student's noise; a slow node is so far off in the first measure."""
    fleets = []
    for number in range(measures):
        values = {f"n{node}": chance.gauss(0, 1) for node in range(64)}
        if math.isfinite(freedom):
            scale = freedom / 2
            values = {name: value / math.sqrt(chance.gammavariate(scale, 1 / scale)) for name, value in values.items()}
        if not number:
            values["n0"] -= slow
        runs = {name: [value] for name, value in values.items()}
        fleets.append(Fleet(values, runs, deviating(values, 0.01 / measures)))
    return judge(fleets, 0.01 / measures)


def test_heavy_tails_of_several_measures_are_no_outliers() -> None:
    """With limits of normal noise, nearly every such screening has one."""
    chance = random.Random(11)
    screenings = [judged(6, 3.0, chance) for _ in range(10)]
    assert sum(any(each.outliers for each in screening) for screening in screenings) <= 3
    assert sum(each.heavy for screening in screenings for each in screening) >= 45


def test_a_slow_node_among_normal_ones_is_still_named() -> None:
    chance = random.Random(12)
    screenings = [judged(1, math.inf, chance, slow=6.0) for _ in range(15)]
    assert sum("n0" in {each.member for each in screening[0].outliers} for screening in screenings) >= 11
    assert all(screening[0].rate < 0.3 for screening in screenings)
