"""Histories of results: series, sessions, what changed with performance, and what is left out."""

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from unit.refusals import refused
from unit.studies.histories import (
    DRIVER,
    FIRST,
    FRAMEWORK,
    HOST,
    IMAGE,
    KERNEL,
    key,
    nights,
    write_nights,
    write_run,
)

from sifmark.commands.command_line import main
from sifmark.commands.study_analysis import history as show_history
from sifmark.core.errors import GateError, UsageError
from sifmark.core.settings import load_settings
from sifmark.studies.history.changes import RUNS, SESSIONS, History, histories
from sifmark.studies.history.environment import covariate_changes, environment_changes
from sifmark.studies.history.series import load_history

CLOCK = "device_conditions_after__clock"
Changes = dict[str, Any]

AFTER = "device_conditions_after"
THROTTLING = f"{AFTER}.throttling"


def lowered(values: list[float], start: int, factor: float = 0.95, end: int | None = None) -> list[float]:
    """The values with a change from one night on."""
    last = len(values) if end is None else end
    return [value * factor if start <= night < last else value for night, value in enumerate(values)]


def histories_of(folder: Path, *by: str, metric: str = "throughput", least: float = 0.02) -> list[History]:
    return histories(load_history([str(folder)], metric, by).series, least)


def scalar(value: Any) -> Any:
    """A value, or that of an object with one."""
    return next(iter(value.values())) if isinstance(value, dict) else value


def names(history: History, number: int = 0) -> dict[str, tuple[Any, Any]]:
    """What changed at a change point of a history."""
    return {each.name: (each.before, each.after) for each in history.changes[number].differences}


@pytest.mark.parametrize(
    ("circumstance", "before", "after", "name"),
    [
        (IMAGE, key(1), key(2), "provenance.image.build_key"),
        (DRIVER, "550.54", "560.28", "device_conditions.driver"),
        (FRAMEWORK, "2.12.0", "2.13.0", "provenance.software.framework_version"),
        (HOST, "node01", "node02", "host.hostname"),
        (KERNEL, "6.1.0", "6.12.0", "host.kernel"),
        ("host__microcode__value", "0x1", "0x2", "host.microcode"),
        ("device_conditions__clock_max__value", 1410, 1200, "device_conditions.clock_max"),
        ("device_conditions__power_cap__value", 400, 300, "device_conditions.power_cap"),
        ("provenance__software__libraries", {"cudnn": "9.1"}, {"cudnn": "9.2"}, "provenance.software.libraries.cudnn"),
        ("environment__variables", {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Tree"}, "environment.NCCL_ALGO"),
    ],
)
def test_what_changed_with_performance_is_named(
    tmp_path: Path, circumstance: str, before: Any, after: Any, name: str
) -> None:
    changes: Changes = {circumstance: [before] * 12 + [after] * 8}
    write_nights(tmp_path, lowered(nights(1, 20), 12), **changes)
    (history,) = histories_of(tmp_path)
    (change,) = history.changes
    assert names(history) == {name: (scalar(before), scalar(after))}
    assert change.ratio.value == pytest.approx(0.95, rel=0.01) and change.probability < 1e-6
    assert change.ratio.low is not None and change.ratio.high is not None
    assert change.ratio.low < 0.95 < change.ratio.high < 1
    assert (change.after, change.before) == (FIRST + timedelta(days=11), FIRST + timedelta(days=12))
    assert [len(period.runs) for period in history.periods] == [12, 8]


def test_an_update_without_an_effect_is_no_change(tmp_path: Path) -> None:
    changes: Changes = {DRIVER: ["550.54"] * 15 + ["560.28"] * 15}
    write_nights(tmp_path, nights(2, 30), **changes)
    (history,) = histories_of(tmp_path)
    assert history.changes == () and len(history.periods) == 1
    (unchanged,) = history.unchanged
    assert [each.name for each in unchanged.differences] == [
        "device_conditions.driver"
    ] and unchanged.probability > 0.01


def test_a_change_of_which_results_say_nothing_has_a_date(tmp_path: Path) -> None:
    write_nights(tmp_path, lowered(nights(3, 40), 25))
    (history,) = histories_of(tmp_path)
    (change,) = history.changes
    assert change.before == FIRST + timedelta(days=25) and change.differences == ()


def test_of_two_updates_the_one_that_slowed_is_named(tmp_path: Path) -> None:
    changes: Changes = {IMAGE: [key(1)] * 20 + [key(2)] * 20, DRIVER: ["550.54"] * 28 + ["560.28"] * 12}
    write_nights(tmp_path, lowered(nights(4, 40), 28), **changes)
    (history,) = histories_of(tmp_path)
    assert names(history) == {"device_conditions.driver": ("550.54", "560.28")}
    assert [each.name for change in history.unchanged for each in change.differences] == ["provenance.image.build_key"]


def test_an_update_that_is_taken_back_is_two_changes(tmp_path: Path) -> None:
    changes: Changes = {DRIVER: ["550.54"] * 20 + ["560.28"] * 6 + ["550.54"] * 20}
    write_nights(tmp_path, lowered(nights(5, 46), 20, end=26), **changes)
    (history,) = histories_of(tmp_path)
    assert [names(history, number)["device_conditions.driver"] for number in (0, 1)] == [
        ("550.54", "560.28"),
        ("560.28", "550.54"),
    ]


def test_clocks_are_named_where_they_have_no_common_range(tmp_path: Path) -> None:
    clocks = [{"value": mhz, "unit": "MHz"} for mhz in [*range(1400, 1415), *range(1300, 1315)]]
    changes: Changes = {CLOCK: clocks}
    write_nights(tmp_path, lowered(nights(6, 30), 15, 0.93), **changes)
    ((change,),) = (history.changes for history in histories_of(tmp_path))
    assert [(each.name, each.before, each.after) for each in change.measured] == [(f"{AFTER}.clock", 1407, 1307)]


def test_repeats_of_a_night_are_one_session(tmp_path: Path) -> None:
    write_nights(tmp_path, nights(7, 10), repeats=3)
    (history,) = histories_of(tmp_path)
    assert (len(history.series.sessions), len(history.series.runs), history.basis) == (10, 30, SESSIONS)
    assert history.periods[0].mean.count == 10


def test_nights_that_differ_more_than_their_repeats_are_no_change(tmp_path: Path) -> None:
    """Repeats of a night agree to a tenth of a percent, and nights differ by three: taken for independent, they lie."""
    changes: Changes = {DRIVER: ["550.54"] * 4 + ["560.28"] * 4}
    write_nights(tmp_path, nights(8, 8, 0.03), repeats=6, **changes)
    (history,) = histories_of(tmp_path)
    assert history.changes == ()


def test_an_afternoon_before_and_after_an_update_is_compared_by_runs(tmp_path: Path) -> None:
    for number, value in enumerate([*nights(9, 5), *(value * 0.9 for value in nights(10, 5))]):
        driver: Changes = {DRIVER: "550.54" if number < 5 else "560.28"}
        write_run(tmp_path, FIRST + timedelta(minutes=10 * number), value, **driver)
    (history,) = histories_of(tmp_path)
    assert history.basis == RUNS and names(history) == {"device_conditions.driver": ("550.54", "560.28")}
    assert history.changes[0].ratio.value == pytest.approx(0.9, rel=0.02)


def test_runs_of_one_afternoon_have_no_change_by_date(tmp_path: Path) -> None:
    for number, value in enumerate(lowered(nights(11, 20), 10)):
        write_run(tmp_path, FIRST + timedelta(minutes=10 * number), value)
    (history,) = histories_of(tmp_path)
    assert history.changes == ()


def test_configurations_and_systems_are_series_of_their_own(tmp_path: Path) -> None:
    write_nights(tmp_path, nights(12, 8))
    write_nights(tmp_path, [value / 2 for value in nights(13, 8)], configuration__precision="bf16")
    write_nights(tmp_path, [value * 2 for value in nights(14, 8)], site="beta")
    result = histories_of(tmp_path)
    assert [(each.series.system, each.series.fields["configuration.precision"]) for each in result] == [
        ("a", "bf16"),
        ("a", "fp32"),
        ("beta", "fp32"),
    ]
    assert all(each.changes == () for each in result)


def test_hosts_that_take_turns_are_no_places_of_a_change(tmp_path: Path) -> None:
    hosts: Changes = {HOST: [f"node{night % 3}" for night in range(30)]}
    write_nights(tmp_path, nights(15, 30), **hosts)
    (history,) = histories_of(tmp_path)
    assert history.series.labels == frozenset() and history.series.alternating_hosts == 3
    assert [each.series.fields["host.hostname.value"] for each in histories_of(tmp_path, "host.hostname.value")] == [
        "node0",
        "node1",
        "node2",
    ]


def test_clocks_of_hosts_that_differ_shift_a_change_by_no_more_than_they_differ(tmp_path: Path) -> None:
    """Two hosts take turns, the clock of one is half a day ahead, and both get the driver in the same hour."""
    for night, value in enumerate(nights(16, 40)):
        update = night >= 20
        skew = timedelta(hours=40) if night % 2 else timedelta()
        changes: Changes = {HOST: f"node{night % 2}", DRIVER: "560.28" if update else "550.54"}
        write_run(tmp_path, FIRST + timedelta(days=night) + skew, value * (0.93 if update else 1), **changes)
    (history,) = histories_of(tmp_path)
    (change,) = history.changes
    assert names(history) == {"device_conditions.driver": ("550.54", "560.28")}
    assert abs(change.before - FIRST - timedelta(days=20)) <= timedelta(hours=40)


@pytest.mark.parametrize(("metric", "followed"), [
    ("", {"throughput": 1, "memory_bandwidth": 1, "peak_flops": 1}), ("throughput", {"throughput": 3}),
])  # fmt: skip
def test_each_kind_of_run_is_followed_by_its_rate(tmp_path: Path, metric: str, followed: dict[str, int]) -> None:
    write_nights(tmp_path, nights(19, 3))
    h200 = Path(__file__).parents[2] / "fixtures" / "h200"
    files = [str(tmp_path), *(str(h200 / name) for name in ("memory_copy.json", "matmul_bf16.json"))]
    series = load_history(files, metric).series
    assert Counter(each.metric for each in series) == followed


def test_dates_that_cannot_be_true_are_left_out(tmp_path: Path) -> None:
    write_nights(tmp_path, nights(17, 6))
    unset = write_run(tmp_path, datetime(1970, 1, 1, tzinfo=UTC), 100)
    ahead = write_run(tmp_path, datetime.now(UTC) + timedelta(days=9), 100)
    loaded = load_history([str(tmp_path)], "throughput")
    assert loaded.undated == [str(unset)] and len(loaded.series[0].runs) == 6
    (line,) = loaded.invalid
    assert line.startswith(str(ahead)) and "in the future" in line


def test_broken_files_copies_and_failed_runs_do_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = write_nights(tmp_path, nights(18, 6))
    shutil.copy(first, tmp_path / "copy.json")
    (tmp_path / "broken.json").write_text('{"schema_version": "1.1"')
    write_run(tmp_path, FIRST, 100, configuration__smoke=True)
    show_history(load_settings(), (str(tmp_path),), least_change=0.02, form="json")
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert len(document["series"][0]["runs"]) == 6
    left_out = document["left_out"]
    assert [len(left_out[name]) for name in ("invalid", "excluded", "undated")] == [1, 1, 0]
    assert left_out["duplicates"] == 1 and "broken.json" in err


def test_a_metric_that_no_result_has(tmp_path: Path) -> None:
    write_nights(tmp_path, nights(19, 3))
    with refused(UsageError, "unknown-name") as caught:
        show_history(load_settings(), (str(tmp_path),), metric="thruput", least_change=0.02)
    assert "throughput" in caught.value.remedy


def test_another_metric_has_its_own_history(tmp_path: Path) -> None:
    changes: Changes = {DRIVER: ["550.54"] * 10 + ["560.28"] * 10}
    write_nights(tmp_path, lowered(nights(20, 20), 10), **changes)
    (history,) = histories_of(tmp_path, metric="step_time_p50")
    assert history.changes[0].ratio.value == pytest.approx(1 / 0.95, rel=0.01)


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_every_format_has_the_change_and_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    changes: Changes = {DRIVER: ["550.54"] * 12 + ["560.28"] * 8}
    write_nights(tmp_path, lowered(nights(21, 20), 12), **changes)
    show_history(load_settings(), (str(tmp_path),), least_change=0.02, form=form)
    out = capsys.readouterr().out
    assert "driver" in out and "550.54" in out and "2026-03-13" in out
    assert ("slower" in out) is (form in ("table", "markdown"))


def test_a_change_fails_a_pipeline_if_it_is_asked_to_and_recent(tmp_path: Path) -> None:
    write_nights(tmp_path, lowered(nights(22, 30), 20))
    options: Changes = {"least_change": 0.02, "form": "json"}
    show_history(load_settings(), (str(tmp_path),), **options)
    with pytest.raises(GateError) as caught:
        show_history(load_settings(), (str(tmp_path),), fail_on_change=True, **options)
    assert (caught.value.exit_code, caught.value.code) == (7, "performance-changed")
    with pytest.raises(GateError):
        show_history(load_settings(), (str(tmp_path),), fail_on_change=True, since="2026-03-21", **options)
    show_history(load_settings(), (str(tmp_path),), fail_on_change=True, since="2026-03-22", **options)
    show_history(load_settings(), (str(tmp_path),), fail_on_change=True, since="1d", **options)


@pytest.mark.parametrize(
    "changes", [{"since": "yesterday"}, {"since": "14 d"}, {"least_change": 0}, {"least_change": 2}]
)
def test_an_option_that_means_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    with refused(UsageError, "invalid-option") as caught:
        show_history(load_settings(), (str(tmp_path),), **{"least_change": 0.02, **changes})
    assert caught.value.remedy


def test_what_is_unknown_on_a_side_is_no_difference() -> None:
    assert list(environment_changes([{"driver": "1"}] * 3, [{}] * 3)) == []
    assert [each.after for each in environment_changes([{"driver": "1"}, {}], [{"driver": "2"}])] == ["2"]


def test_a_few_strays_do_not_hide_a_difference() -> None:
    before, after = [{"driver": "1"}] * 9 + [{"driver": "2"}], [{"driver": "2"}] * 10
    assert [each.name for each in environment_changes(before, after)] == ["driver"]
    assert list(environment_changes([{"driver": "1"}] * 2 + [{"driver": "2"}] * 2, after)) == []


def test_measured_texts_and_small_differences() -> None:
    reasons = list(covariate_changes([{THROTTLING: "none"}] * 3, [{THROTTLING: "power"}] * 3))
    assert [(each.name, each.after) for each in reasons] == [(THROTTLING, "power")]
    assert list(covariate_changes([{f"{AFTER}.clock": 1400}], [{f"{AFTER}.clock": 1401}])) == []


def test_the_commands_from_a_baseline_to_a_failed_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each as a script would type it; 7 is the exit code for what got slower."""
    monkeypatch.chdir(tmp_path)
    drivers: Changes = {DRIVER: ["550.54"] * 10 + ["560.28"] * 5}
    files = write_nights(tmp_path / "nights", lowered(nights(23, 15), 10), **drivers)
    (tmp_path / "tonight").mkdir()
    for file in files[10:]:
        shutil.copy(file, tmp_path / "tonight")
    codes = [
        main(words.split())
        for words in (
            "study.baseline march nights",
            "study.baseline march nights",
            "study.baseline march nights --force",
            "study.baseline --list --json",
            "compare tonight --against baseline:march --metrics throughput",
            "compare tonight --against baseline:march --fail-below 0.99",
            "study.history nights",
            "study.history nights --fail-on-change",
            "study.history nights --fail-on-change --since 2026-04-01",
            "results.export nights -o runs.parquet",
        )
    ]
    assert codes == [0, 2, 0, 0, 0, 7, 0, 7, 0, 0]
    assert (tmp_path / "baselines" / "march.json").is_file() and (tmp_path / "runs.parquet").is_file()


@pytest.mark.parametrize(("count", "known"), [(12, False), (24, True), (70, True)])
def test_how_often_such_series_have_a_false_change_is_stated_by_what_their_correlation_may_be(
    count: int, known: bool, tmp_path: Path
) -> None:
    write_nights(tmp_path, nights(21, count))
    (history,) = histories_of(tmp_path)
    if not known:
        assert (history.correlation, history.correlation_at_most, history.held_rate) == (None, None, None)
        return
    assert history.correlation is not None and history.correlation_at_most is not None
    assert history.correlation_at_most > history.correlation + 0.2, "some tens of sessions hardly show it"
    assert history.held_rate is not None and history.held_rate >= (0.05 if count < 60 else 0.02)


def test_a_rate_that_nobody_simulated_is_not_stated(tmp_path: Path) -> None:
    """Nights that resemble each other as much as the ones before them do."""
    steps = nights(22, 40, spread=0.02)
    walk = [100.0]
    for step in steps:
        walk.append(walk[-1] * step / 100)
    write_nights(tmp_path, walk)
    (history,) = histories_of(tmp_path)
    assert history.held_rate is None and history.correlation_at_most == 1
