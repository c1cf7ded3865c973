"""Node screening: what is named, against the fleet and a baseline, and what a scheduler gets."""

import json
import random
import shlex
import uuid
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import documents
import pytest

from sifmark.commands.study_analysis import screen as screen_command
from sifmark.core.errors import GateError, UsageError
from sifmark.core.settings import load_settings
from sifmark.studies.analysis.node_names import compress, expand, nodes_of
from sifmark.studies.analysis.screening import SITE, Limits, Screening, screen
from sifmark.studies.history.baseline import make_baseline, write_baseline

SERIAL = count()
NODES = [f"n{number:02}" for number in range(1, 13)]


def run(node: str, throughput: float = 100.0, clock: float = 1980.0, **changes: Any) -> dict[str, Any]:
    """A valid result of a node. Its device's clock and temperature are as after the run."""
    document = documents.valid(
        id=str(uuid.UUID(int=next(SERIAL), version=4)),
        host__hostname__value=node,
        metrics__throughput={"value": throughput, "unit": "images/s"},
        metrics__energy_per_unit={"value": 2.0, "unit": "J/images"},
        **changes,
    )
    conditions = document["device_conditions_after"]
    conditions["clock"] = {"value": clock, "unit": "MHz"}
    conditions["temperature"] = {"value": 60.0, "unit": "°C"}
    return document


def failed(node: str, state: str = "crashed") -> dict[str, Any]:
    """A valid result of a run that failed before its first step."""
    return run(node, status__state=state, status__phase="model", status__message="a message")


def write(folder: Path, results: list[dict[str, Any]]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for document in results:
        (folder / f"{document['id']}.json").write_text(json.dumps(document))
    return str(folder)


def fleet(seed: int = 1, spread: float = 0.003) -> dict[str, float]:
    chance = random.Random(seed)
    return {node: 100 * (1 + chance.gauss(0, spread)) for node in NODES}


def screened(folder: Path, results: list[dict[str, Any]], **options: Any) -> Screening:
    return screen([write(folder, results)], **options)[0]


def test_a_slow_node_is_named_with_measure_ratio_and_chance(tmp_path: Path) -> None:
    speeds = fleet() | {"n07": 90.0}
    screening = screened(tmp_path, [run(node, speed) for node, speed in speeds.items()])
    slow = [each for each in screening.outliers if each.measure == "throughput"]
    ((node, measure, ratio, against),) = [(each.node, each.measure, each.ratio, each.against) for each in slow]
    assert (node, measure, against) == ("n07", "throughput", "fleet") and ratio == pytest.approx(0.9, abs=0.01)
    assert slow[0].worse and slow[0].tail < 1e-5
    assert list(screening.named) == ["n07"]


def test_a_healthy_fleet_names_nobody(tmp_path: Path) -> None:
    screening = screened(tmp_path, [run(node, speed) for node, speed in fleet(2).items()])
    assert (screening.failures, screening.outliers, screening.named) == ((), (), {})
    assert screening.judged >= 5


def test_a_difference_that_does_not_matter_is_not_named(tmp_path: Path) -> None:
    speeds = fleet(3, spread=0.0001) | {"n07": 99.0}
    results = [run(node, speed) for node, speed in speeds.items()]
    assert screened(tmp_path, results).outliers == ()
    assert screened(tmp_path, results, limits=Limits(least=0.005)).outliers != ()


def test_a_faster_node_is_an_outlier_but_stays_in_service(tmp_path: Path) -> None:
    speeds = fleet(4) | {"n07": 120.0}
    screening = screened(tmp_path, [run(node, speed) for node, speed in speeds.items()])
    assert ("n07", "throughput", False) in [(each.node, each.measure, each.worse) for each in screening.outliers]
    assert "n07" not in screening.named


def test_clock_temperature_and_energy_count(tmp_path: Path) -> None:
    results = [run(node, speed) for node, speed in fleet(5).items()]
    results[2]["device_conditions_after"]["clock"]["value"] = "1980, 1200"  # of two devices
    results[4]["device_conditions_after"]["temperature"]["value"] = 85.0
    results[6] = run("n07", results[6]["metrics"]["throughput"]["value"])
    screening = screened(tmp_path, results)
    assert {(each.node, each.measure) for each in screening.outliers} == {
        ("n03", "device_clock"),
        ("n05", "device_temperature"),
    }
    hot = next(each for each in screening.outliers if each.measure == "device_temperature")
    assert (hot.ratio, hot.value, hot.usual, hot.worse) == (None, 85.0, 60.0, True)


def test_devices_that_report_no_conditions_are_judged_by_the_rest(tmp_path: Path) -> None:
    results = [run(node, speed) for node, speed in (fleet(15) | {"n07": 80.0}).items()]
    for document in results:
        document["device_conditions"] = document["device_conditions_after"] = {"reason": "a CPU has none"}
    screening = screened(tmp_path, results)
    assert "n07" in screening.named and screening.judged >= 3


def test_failed_nodes_come_first_and_nodes_without_results_are_named(tmp_path: Path) -> None:
    results = [run(node, speed) for node, speed in (fleet(6) | {"n07": 80.0}).items() if node != "n03"]
    screening = screened(tmp_path, [*results, failed("n03")], expected=[*NODES, "n99"])
    assert [(each.node, each.reason) for each in screening.failures] == [("n03", "crashed"), ("n99", "no result")]
    assert list(screening.named) == ["n03", "n99", "n07"]


def test_a_test_that_fails_everywhere_is_held_against_no_node(tmp_path: Path) -> None:
    screening = screened(tmp_path, [failed(node, "no_device") for node in NODES])
    assert screening.failures == () and "no_device" in screening.notes[0]


def test_wrong_results_are_a_failure_of_their_node(tmp_path: Path) -> None:
    wrong = run("n03", numerics__state="failed", numerics__reason="off")
    screening = screened(tmp_path, [wrong, *(run(node) for node in NODES if node != "n03")])
    assert [each.node for each in screening.failures] == ["n03"] and "n03" in screening.named


def test_other_facts_of_a_node_are_told_and_take_it_not_out_of_service(tmp_path: Path) -> None:
    results = [run(node, speed) for node, speed in fleet(7).items()]
    results[1]["device_conditions_after"]["driver"]["value"] = "1.2.3"
    screening = screened(tmp_path, results)
    assert [(each.node, each.fact, each.value) for each in screening.oddities] == [
        ("n02", "device_conditions_after.driver", "1.2.3")
    ]
    assert screening.named == {}


def test_nodes_that_ran_something_else_are_compared_among_themselves(tmp_path: Path) -> None:
    results = [run(node, speed) for node, speed in fleet(8).items()]
    results[0]["provenance"]["image"]["build_key"] = "sha256:" + "1" * 64
    screening = screened(tmp_path, results)
    assert any("n01 differ from the other nodes in provenance.image.build_key" in note for note in screening.notes)


def test_few_nodes_are_compared_with_a_baseline_only(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept", [run(node, speed) for node, speed in fleet(9).items()])
    new = [run("n01", 100.0), run("n02", 85.0)]
    alone = screened(tmp_path / "new", new)
    assert alone.judged == 0 and "2 nodes where 5 are needed; compared with nothing" in alone.notes[0]
    screening = screened(tmp_path / "new", [], against=kept)
    outliers = {(each.node, each.against) for each in screening.outliers}
    assert outliers == {("n02", "baseline")} and "throughput" in {each.measure for each in screening.outliers}


def test_repeats_of_a_few_hosts_do_not_say_how_much_others_may_differ(tmp_path: Path) -> None:
    kept = write(tmp_path / "kept", [run("n01", 100.0 + repeat / 100) for repeat in range(8)])
    new = write(tmp_path / "new", [run("n01", 95.0), run("n02", 95.0)])
    screening = screen([new], against=kept)[0]
    outliers = {(each.node, each.against) for each in screening.outliers if each.measure == "throughput"}
    assert outliers == {("n01", "baseline")}
    assert any("1 hosts where 3 are needed" in note and "of n02: not compared" in note for note in screening.notes)


def test_a_pipeline_stops_if_no_node_was_compared(tmp_path: Path) -> None:
    folder = write(tmp_path, [run("n01")])
    screen_command(load_settings(), [folder])
    with pytest.raises(GateError) as caught:
        screen_command(load_settings(), [folder], fail=True)
    assert (caught.value.exit_code, caught.value.code) == (7, "nodes-not-compared")


def test_a_kept_baseline_serves_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = write(tmp_path / "kept", [run(node, speed) for node, speed in fleet(9).items()])
    write_baseline(make_baseline("nightly", [kept]).baseline, tmp_path / "baselines")
    new = write(tmp_path / "new", [run("n01", 100.0), run("n02", 85.0)])
    settings = replace(load_settings(), baselines=tmp_path / "baselines")
    screen_command(settings, [new], baseline="baseline:nightly", form="json")
    document = json.loads(capsys.readouterr().out)
    slow = [each for each in document["outliers"] if each["measure"] == "throughput"]
    assert [(each["node"], each["against"]) for each in slow] == [("n02", "baseline")]
    assert slow[0]["ratio"] == pytest.approx(0.85, abs=0.01) and "the baseline alone" in document["notes"][0]
    with pytest.raises(UsageError):
        screen_command(settings, [new], baseline="baseline:nosuch")


def test_a_node_is_named_as_those_who_expect_results_name_it(tmp_path: Path) -> None:
    results = [run(f"{node}.cluster.site", speed) for node, speed in fleet(13).items()]
    assert screened(tmp_path, results, expected=NODES).nodes == tuple(NODES)
    by_site = [run("one", speed, site=node) for node, speed in (fleet(14) | {"n07": 80.0}).items()]
    assert list(screened(tmp_path / "by site", by_site, by=SITE).named) == ["n07"]


def test_the_list_and_the_commands_are_for_a_scheduler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speeds = fleet(10) | {"n07": 80.0, "n08": 80.0}
    folder = write(tmp_path / "results", [run(node, speed) for node, speed in speeds.items()])
    listed = tmp_path / "suspects.txt"
    with pytest.raises(GateError) as caught:
        screen_command(load_settings(), [folder], nodes="n[01-12],n13", list_file=str(listed), fail=True)
    assert (caught.value.exit_code, caught.value.code) == (7, "nodes-named")
    assert listed.read_text() == "n13\nn07\nn08\n"
    text = capsys.readouterr()
    assert text.out.index("failed, or no result") < text.out.index("outliers")
    commands = [shlex.split(line) for line in text.err.splitlines() if "scontrol" in line]
    assert commands[0] == ["scontrol", "update", "nodename=n13", "state=drain", "reason=sifmark: every test: no result"]
    assert [word for command in commands[1:] for word in command if word.startswith("nodename")]


def test_a_name_that_is_none_reaches_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [run(node, speed) for node, speed in fleet(11).items()]
    folder = write(tmp_path / "results", [*results, failed("x state=down")])
    screen_command(load_settings(), [folder], list_file=str(tmp_path / "list"), form="json")
    document = json.loads(capsys.readouterr().out)
    assert "x state=down" in document["named"] and document["commands"] == []
    assert (tmp_path / "list").read_text() == ""


@pytest.mark.parametrize(
    ("form", "expected"), [("csv", "kind,node,test,measure"), ("markdown", "|---|"), ("json", "{")]
)
def test_each_format_has_the_outliers(
    form: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = fleet(12) | {"n07": 80.0}
    folder = write(tmp_path, [run(node, speed) for node, speed in speeds.items()])
    screen_command(load_settings(), [folder], form=form)
    output = capsys.readouterr().out
    assert expected in output and "n07" in output


LISTS = [
    ("n1", ["n1"]),
    ("n[01-03,7],login1", ["n01", "n02", "n03", "n7", "login1"]),
    ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
]


@pytest.mark.parametrize(("text", "names"), LISTS)
def test_lists_of_nodes_are_read_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize("names", [names for _, names in LISTS] + [["n9", "n10", "n11"], ["n007"], ["x", "y"]])
def test_compressed_lists_mean_the_same_nodes(names: list[str]) -> None:
    assert set(expand(compress(names))) == set(names)


def test_neighbours_become_ranges() -> None:
    assert compress(["n03", "n01", "n02", "n07", "x"]) == "n[01-03,07],x"


@pytest.mark.parametrize("text", ["n[", "n[1-", "n[3-1]", "n[a]", "n[1-999999999]", ",,", "n]1["])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        expand(text)


def test_expected_nodes_come_from_a_file_too(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n[1-2]\nm1\n")
    assert nodes_of(str(tmp_path / "nodes")) == ("n1", "n2", "m1") and nodes_of("") == ()


@pytest.mark.parametrize("limits", [(0.0, 0.1), (1.0, 0.1), (0.1, -0.1), (0.1, 1.0)])
def test_limits_that_are_no_fractions_are_refused(limits: tuple[float, float]) -> None:
    with pytest.raises(UsageError):
        Limits(*limits)


@pytest.mark.full
def test_the_false_alarm_rate_of_whole_screenings_is_the_stated_one(tmp_path: Path) -> None:
    level, trials, alarms = 0.2, 25, 0
    for seed in range(trials):
        results = [run(node, speed) for node, speed in fleet(100 + seed).items()]
        alarms += bool(screened(tmp_path / str(seed), results, limits=Limits(level, least=0.0)).outliers)
    assert alarms / trials < level + 3 * (level * (1 - level) / trials) ** 0.5


def test_a_node_that_heavy_tails_explain_is_measured_again_and_named_if_it_is_slow_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = fleet(21, spread=0.01) | {"n07": 92.0}
    folder = tmp_path / "results"
    first = screened(folder, [run(node, speed) for node, speed in speeds.items()])
    assert (first.outliers, {each.node for each in first.suspects}) == ((), {"n07"})
    assert first.named == {} and first.suspect_rate is not None and first.suspect_rate > first.limits.level
    first.require_healthy()
    screen_command(load_settings(), [str(folder)], form="csv")
    assert "\nsuspect,n07," in capsys.readouterr().out
    again = [run(node, speed) for seed in (22, 23) for node, speed in (fleet(seed, 0.01) | {"n07": 92.0}).items()]
    assert list(screened(folder, again).named) == ["n07"]
