"""Who is next, how many repeats are enough, and what is said of them."""

import json

import documents
import pytest
from unit.refusals import refused

from sifmark.core.errors import SifmarkError
from sifmark.engines.repeating import (
    MOST,
    Figure,
    Repeats,
    Unit,
    combined,
    conclusions,
    figure_of,
    half_width,
    repeat,
    repeats_of,
    turn,
)
from sifmark.results.comparison import intervals

FIGURE = Figure("resnet50", "training", 8, "throughput", "images/s")
AUTO = Repeats(MOST, 0.02)


def test_in_two_rounds_all_have_the_same_mean_place() -> None:
    places = [place for number in range(2) for place in turn(3, number)]
    assert places == [0, 1, 2, 2, 1, 0] and turn(3, 2) == turn(3, 0)


def test_half_an_interval_is_that_of_the_wider_side() -> None:
    mean = intervals.mean([1.0, 2.0, 4.0])
    assert mean.value is not None and mean.high is not None
    assert half_width(mean) == pytest.approx(mean.high / mean.value - 1)
    assert half_width(intervals.mean([1.0, 1.0])) == float("inf")  # too few for an interval


@pytest.mark.parametrize(
    ("values", "are_enough"),
    [
        ([100.0] * 4, False),
        ([100.0] * 5, True),
        ([90.0, 110.0, 95.0, 105.0, 100.0], False),
        ([100.0, 100.1, 99.9, 100.0, 130.0], False),  # the last look shows it
        ([100.0, 108.0, *[104.0] * 30], True),
    ],
)
def test_repeats_are_enough_when_three_looks_agree(values: list[float], are_enough: bool) -> None:
    assert AUTO.are_enough(values) is are_enough
    assert not Repeats(MOST).are_enough(values)


def test_an_interval_that_is_narrow_once_is_not_enough() -> None:
    values = [100.0, 108.0]
    while half_width(intervals.mean(values)) > 0.02:
        values.append(104.0)
    assert not AUTO.are_enough(values)
    assert AUTO.are_enough([*values, 104.0, 104.0])


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 4, 3], 4), ([4, 143], 143), ([4, 124, 6], 6), ([5, 0], 5), ([4, 255], 255)],
)
def test_the_exit_code_of_several_runs_is_that_of_an_image_s(codes: list[int], code: int) -> None:
    assert combined(codes) == code


def test_all_are_told_with_what_is_known_of_them() -> None:
    groups = {"a": [100.0, 101.0, 99.0], "b": [5.0, 6.0], "c": [1.0, 2.0, 4.0]}
    first, second, third = conclusions([Unit(name, {FIGURE: values}) for name, values in groups.items()])
    assert "2.5 %" in first and "n=3" in first and "n=2" in second and "%" not in second
    assert "[0.36, 11.19]" in third


def test_a_run_that_measures_nothing_cannot_be_repeated_until_it_is_known() -> None:
    with refused(SifmarkError, "result-missing"):
        repeat([Unit("a")], AUTO, lambda _: (0, {}))
    assert repeat([Unit("a")], Repeats(3), lambda _: (0, {})) == 0


def test_a_result_is_known_by_the_headline_of_its_kind() -> None:
    training = json.loads(documents.TRAINING.read_text())
    known = figure_of(training)
    assert known and known[0].label == "throughput" and known[1] == training["metrics"]["throughput"]["value"]
    training["metrics"]["throughput"]["value"] = None
    later = figure_of(training)
    assert later is None or later[0].label != "throughput"
    training["status"]["state"] = "crashed"
    assert figure_of(training) is None


def test_defaults_are_those_of_the_documents() -> None:
    assert repeats_of("auto") == Repeats(30, 0.02) and repeats_of("3") == repeats_of(3) == Repeats(3)
    assert repeats_of("auto", "5%", 7) == repeats_of("auto", 0.05, 7) == Repeats(7, 0.05)
