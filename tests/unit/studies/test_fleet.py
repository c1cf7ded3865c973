"""The statistics of a fleet: how often a healthy one has an outlier, and which outliers are there."""

import math
import random
import statistics

import pytest

from sifmark.studies.analysis.fleet import FEWEST, deviating, tail_of
from sifmark.studies.analysis.tails import Fleet, Judged, judge


@pytest.mark.parametrize("size", [5, 8, 16, pytest.param(64, marks=pytest.mark.full)])
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


def judged(
    measures: int, freedom: float, chance: random.Random, slow: float = 0.0, runs: int = 1, nodes: int = 64
) -> list[Judged]:
    """Screen nodes by measures of Student's noise of each run; a slow node is so far off in the first measure."""
    fleets = []
    for number in range(measures):
        of_nodes = {f"n{node}": [noise(freedom, chance) for _ in range(runs)] for node in range(nodes)}
        if not number:
            of_nodes["n0"] = [value - slow for value in of_nodes["n0"]]
        means = {name: statistics.fmean(values) for name, values in of_nodes.items()}
        fleets.append(Fleet(means, of_nodes, deviating(means, 0.01 / measures)))
    return judge(fleets, 0.01 / measures)


def noise(freedom: float, chance: random.Random) -> float:
    scale = freedom / 2
    return chance.gauss(0, 1) / (math.sqrt(chance.gammavariate(scale, 1 / scale)) if math.isfinite(freedom) else 1)


@pytest.mark.parametrize("freedom", [3.0, 5.0])
@pytest.mark.parametrize(
    ("measures", "runs", "nodes"), [(1, 1, 16), pytest.param(6, 1, 64, marks=pytest.mark.full), (1, 3, 64)]
)
def test_heavy_tails_are_seldom_outliers(freedom: float, measures: int, runs: int, nodes: int) -> None:
    """With limits of normal noise alone, up to nearly every such screening has one."""
    chance = random.Random(f"{freedom} {measures} {runs} {nodes}")
    screenings = [judged(measures, freedom, chance, runs=runs, nodes=nodes) for _ in range(20)]
    assert sum(any(each.outliers for each in screening) for screening in screenings) <= 2
    if measures > 1:
        assert sum(any(each.suspects for each in screening) for screening in screenings) >= 8


def test_one_run_of_a_slow_node_makes_it_a_suspect_and_more_runs_an_outlier() -> None:
    chance = random.Random(12)
    once, twice = ([judged(1, math.inf, chance, slow=6.0, runs=runs)[0] for _ in range(12)] for runs in (1, 2))
    assert sum("n0" in {each.member for each in (*one.outliers, *one.suspects)} for one in once) >= 11
    assert sum("n0" in {each.member for each in two.outliers} for two in twice) >= 11
    assert any(one.suspects for one in once) and all(one.suspect_rate < 0.3 for one in once)


def test_a_single_bad_run_of_a_node_is_no_outlier() -> None:
    chance = random.Random(13)
    runs = {f"n{node}": [chance.gauss(0, 1) for _ in range(3)] for node in range(32)}
    runs["n5"][0] = -30.0
    means = {name: statistics.fmean(values) for name, values in runs.items()}
    (found,) = judge([Fleet(means, runs, deviating(means, 0.01))], 0.01)
    assert not found.outliers and [each.member for each in found.suspects] == ["n5"]


def test_several_nodes_that_are_slow_alike_need_less_evidence_than_one() -> None:
    chance = random.Random(14)
    values = {f"n{node}": chance.gauss(0, 1) for node in range(64)}
    slow = ("n1", "n2", "n3", "n4")
    assert outliers_of(values | dict.fromkeys(slow, -6.0)) == set(slow)
    assert outliers_of(values | {"n1": -6.0}) == set()


def outliers_of(values: dict[str, float]) -> set[str]:
    """The outliers of a fleet with one run of each node."""
    runs = {name: [value] for name, value in values.items()}
    (found,) = judge([Fleet(values, runs, deviating(values, 0.01))], 0.01)
    return {each.member for each in found.outliers}
