"""The energy of whole jobs: what a PDU and Slurm say next to our meters, what is unknown and why, cost and carbon."""

import json
import math
import uuid
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import documents
import pytest
from unit.refusals import refused

from sifmark.commands.study_analysis import energy
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import load_settings
from sifmark.studies.analysis.energy import EnergyPrices, EnergyRow, MeteredRun, metered_run, prices_of, total
from sifmark.studies.analysis.energy_sources import (
    PowerSeries,
    ask_sacct,
    read_pdu,
    read_sacct,
    rows_of_jobs,
    rows_of_pdu,
    seconds_since_1970,
    zone_of,
)

SERIAL = count()
START = 1_760_000_000.0
HEADER = "JobID|JobName|State|Start|End|ElapsedRaw|NodeList|ConsumedEnergyRaw"


def document(node: str = "n1", joules_per_image: float | None = 2.0) -> dict[str, Any]:
    """A valid result of 100 images/s: 1200 steps of one image, 1100 of them timed."""
    energy = {"value": joules_per_image, "unit": "J/images"} if joules_per_image else {"value": 0.0, "unit": "a"}
    return documents.valid(
        id=str(uuid.UUID(int=next(SERIAL), version=4)),
        host__hostname__value=node,
        metrics__throughput={"value": 100.0, "unit": "images/s"},
        metrics__energy_per_unit=energy,
        configuration__batch_size=1,
    )


def run(start: float, end: float, node: str = "n1") -> MeteredRun:
    own = metered_run(f"{node}.json", document(node))
    return MeteredRun(own.file, own.label, start, end, own.hosts, own.own)


def series(times: list[float], watts: float = 400.0) -> PowerSeries:
    return PowerSeries(tuple(START + time for time in times), tuple(watts for _ in times))


def joules(power: PowerSeries, start: float, end: float) -> float | None:
    return power.energy(START + start, START + end, "node").joules


# Our own meter


def test_runs_side_by_side_have_energy_and_no_mean_power() -> None:
    together, after_each_other = (total([run(0, 20), run(start, start + 20)]) for start in (10, 20))
    assert together.joules == after_each_other.joules == pytest.approx(4400.0)
    assert together.watts is None and after_each_other.watts == pytest.approx(200.0)


def test_our_meter_gives_joules_of_the_timed_window_and_what_it_covers() -> None:
    own = metered_run("a.json", document()).own
    assert (own.joules, own.seconds, own.watts, own.covers) == pytest.approx((2200.0, 11.0, 200.0, "1 x package"))


def test_without_energy_there_is_the_reason() -> None:
    own = metered_run("a.json", document(joules_per_image=None)).own
    assert own.joules is None and own.watts is None and own.reason == documents.NOT_MEASURED


# A power distribution unit


def test_constant_power_is_power_times_time_whatever_the_readings() -> None:
    assert joules(series([float(time) for time in range(101)]), 10.5, 70.25) == pytest.approx(400 * 59.75)
    uneven = series([0, 1, 1.5, 4, 4.5, 6, 7.75, *[8 + time / 2 for time in range(200)]])
    assert joules(uneven, 2.2, 99.1) == pytest.approx(400 * 96.9)


def test_a_ramp_is_integrated_exactly_and_cut_at_the_edges() -> None:
    power = PowerSeries(tuple(START + time for time in range(101)), tuple(10.0 * time for time in range(101)))
    assert joules(power, 20.5, 80.5) == pytest.approx(10 * (80.5**2 - 20.5**2) / 2)


def test_gaps_within_the_run_are_named_and_its_energy_is_unknown() -> None:
    power = series([*map(float, range(50)), *map(float, range(60, 101))])
    energy = power.energy(START + 10, START + 90, "node")
    assert energy.joules is None and "11 s from 2025-10-09T" in energy.reason and "1 gaps" in energy.reason
    assert joules(power, 10, 45) == pytest.approx(400 * 35), "a gap elsewhere does not matter"


@pytest.mark.parametrize(("start", "end", "reason"), [(-5, 50, "begins 5 s after"), (10, 130, "ends 30 s before"),
                                                      (10, 25, "shorter than 20 periods")])  # fmt: skip
def test_a_recording_that_does_not_suffice_says_why(start: float, end: float, reason: str) -> None:
    energy = series([float(time) for time in range(101)]).energy(START + start, START + end, "node")
    assert energy.joules is None and reason in energy.reason


def test_columns_zones_nodes_and_failed_readings_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pdu.csv"
    file.write_text(
        "Time, Node ,WATTS\n2026-11-27T12:00:00Z,n1,100\n1795780801,n1,110\n2026-11-27T13:00:02+01:00,n1,\n"
        "2026-11-27T12:00:03Z,n1,nan\n2026-11-27T12:00:00,n2,1\n2026-11-27T12:00:01,n2,2\n"
    )
    readings = read_pdu(file, zone_of("UTC"), offset=0.5)
    noon = datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp()
    assert readings == {
        "n1": PowerSeries((noon + 0.5, noon + 1.5), (100.0, 110.0)),
        "n2": PowerSeries((noon + 0.5, noon + 1.5), (1.0, 2.0)),
    }


BAD_FILES = [
    ("seconds,power\n1,2\n", "document-invalid", "no column time and watts"),
    ("time,watts\n1760000000,abc\n", "document-invalid", ":2: 'abc' is no number of watts"),
    ("time,watts\n1760000000,-5\n", "document-invalid", "-5 W is no power"),
    ("time,watts\n1760000000000,5\n", "document-invalid", "no number of seconds since 1970"),
    ("time,watts\nyesterday,5\n", "document-invalid", "'yesterday' is no time"),
    ("time,watts\n2026-11-27T12:00:00,5\n", "document-invalid", "has no time zone"),
    ("time,watts\n1760000000,5\n", "document-invalid", "no two readings"),
    ("", "document-invalid", "no column"),
]


@pytest.mark.parametrize(("text", "code", "cause"), BAD_FILES)
def test_a_bad_file_is_refused_by_line(text: str, code: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "pdu.csv").write_text(text)
    with refused(UsageError, code) as caught:
        read_pdu(tmp_path / "pdu.csv", None)
    assert cause in caught.value.cause


def test_a_missing_file_and_a_zone_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    with refused(UsageError, "file-unreadable"):
        read_pdu(tmp_path / "nosuch.csv", None)
    with pytest.raises(UsageError):
        zone_of("Mars/Olympus")


def test_a_zone_with_summer_time_is_the_zone_of_that_day() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    summer, winter = (seconds_since_1970(f"2026-{month}-01T12:00:00", berlin) for month in ("07", "12"))
    assert (summer, winter) == (
        datetime(2026, 7, 1, 10, tzinfo=UTC).timestamp(),
        datetime(2026, 12, 1, 11, tzinfo=UTC).timestamp(),
    )


def test_the_energy_of_a_run_is_that_of_its_nodes() -> None:
    power = {"n1.site": series([float(time) for time in range(101)], 500.0), "n2": series([0.0, 100.0], 1.0)}
    (row,) = rows_of_pdu([run(START + 10, START + 60)], power, "node")
    assert row.whole.joules == pytest.approx(25_000) and row.whole.covers == "node"
    assert row.energy_ratio == pytest.approx(25_000 / 2200) and row.power_ratio == pytest.approx(500 / 200)
    (other,) = rows_of_pdu([run(START + 10, START + 60, "n9")], power, "node")
    assert other.whole.joules is None and other.whole.reason == "the recording has no node n9"


def test_runs_at_the_same_time_are_not_charged_with_what_both_used() -> None:
    power = series([float(time) for time in range(101)])
    runs = [run(START + 10, START + 60), run(START + 50, START + 80, "n2")]
    assert [row.whole.joules for row in rows_of_pdu(runs, {"": power}, "rack")] == [None, None]
    by_node = rows_of_pdu(runs, {"n1": power, "n2": power}, "node")
    assert [row.whole.joules for row in by_node] == pytest.approx([400 * 50, 400 * 30])


# Slurm


def sacct(*lines: str) -> str:
    return "\n".join([HEADER, *lines]) + "\n"


def job_rows(
    tmp_path: Path, runs: list[MeteredRun], *lines: str, zone: str = "", offset: float = 0.0
) -> list[EnergyRow]:
    (tmp_path / "sacct.txt").write_text(sacct(*lines))
    return rows_of_jobs(runs, read_sacct(tmp_path / "sacct.txt", zone_of(zone)), offset)


def test_the_runs_of_a_job_are_added_up_next_to_its_energy(tmp_path: Path) -> None:
    runs = [run(START + 10, START + 60), run(START + 70, START + 120)]
    lines = [f"7|study|COMPLETED|{START:.0f}|{START + 200:.0f}|200|n[1-2]|100000", "7.batch|batch|||||n1|70000",
             f"8|other|COMPLETED|{START + 300:.0f}|{START + 400:.0f}|100|n1|5000"]  # fmt: skip
    first, second = job_rows(tmp_path, runs, *lines)
    assert (first.name, len(first.runs), first.own.joules, first.whole.joules) == ("job 7", 2, 4400.0, 100_000.0)
    assert first.power_ratio == pytest.approx((100_000 / 200) / (4400 / 22))
    assert (second.runs, second.own.joules, second.own.reason) == ((), None, "no result of a run within the job")


def test_the_step_that_lasts_as_long_counts_where_the_job_has_nothing_and_steps_are_not_added(tmp_path: Path) -> None:
    job = f"7|study|COMPLETED|{START:.0f}|{START + 200:.0f}|200|n1|"
    steps = ["7.batch|batch|||||n1|70000", "7.0|run|||||n1|60000"]
    (row,) = job_rows(tmp_path, [], job, *steps, "7.extern|extern|||||n1|71000")
    assert row.whole.joules == 71_000 and "extern" in row.whole.covers
    (row,) = job_rows(tmp_path, [], job, *steps)
    assert row.whole.joules is None and row.whole.reason == "Slurm has no energy of the job as a whole"


@pytest.mark.parametrize("text", ["0", "", str(2**64 - 2), str(2**32 - 2), "1.5K"])
def test_no_energy_is_never_zero_joules(text: str, tmp_path: Path) -> None:
    (row,) = job_rows(tmp_path, [], f"7|study|COMPLETED|{START:.0f}|{START + 200:.0f}|200|n1|{text}")
    assert row.whole.joules is None and row.whole.reason
    assert ("AcctGatherEnergyType" in row.whole.reason) is (text == "0")


def test_runs_are_placed_by_time_and_node(tmp_path: Path) -> None:
    line = "7|s|COMPLETED|2026-11-27T12:00:00|2026-11-27T12:10:00|600|n1|1000"
    noon = datetime(2026, 11, 27, 11, tzinfo=UTC).timestamp()
    inside, elsewhere, later = run(noon + 1, noon + 500), run(noon + 1, noon + 500, "n2"), run(noon + 500, noon + 700)
    rows = job_rows(tmp_path, [inside, elsewhere, later], line, zone="Europe/Berlin")
    assert [len(row.runs) for row in rows] == [1, 1, 1] and rows[0].runs == (inside,)
    assert {row.whole.reason for row in rows[1:]} == {"no job was there then"}
    moved = job_rows(tmp_path, [later], line, zone="Europe/Berlin", offset=300.0)
    assert moved[0].runs == (later,), "a clock that is five minutes slow"


def test_a_run_that_may_be_of_two_jobs_is_of_none(tmp_path: Path) -> None:
    lines = [f"{job}|s|COMPLETED|{START:.0f}|{START + 200:.0f}|200|n1|1000" for job in ("7", "8")]
    rows = job_rows(tmp_path, [run(START + 10, START + 60)], *lines)
    assert [len(row.runs) for row in rows] == [0, 0, 1] and "several jobs: 7, 8" in rows[2].whole.reason


BAD_SACCT = [
    ("JobID|State\n7|COMPLETED\n", "no column ConsumedEnergyRaw"),
    (HEADER, "has no job"),
    (sacct("7|s|COMPLETED|2026-11-27T12:00:00||1|n1|5"), "has no time zone"),
]


@pytest.mark.parametrize(("text", "cause"), BAD_SACCT)
def test_a_bad_file_of_sacct_is_refused(text: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(text)
    with pytest.raises(SifmarkError) as caught:
        read_sacct(tmp_path / "sacct.txt", None)
    assert cause in caught.value.cause


def fake_sacct(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "sacct"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_sacct_is_asked_with_times_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"7_3|s|COMPLETED|{START:.0f}|{START + 200:.0f}|200|n1|1000"
    fake_sacct(
        tmp_path, monkeypatch, f"echo \"$SLURM_TIME_FORMAT $*\" > {tmp_path}/asked\necho '{HEADER}'\necho '{line}'"
    )
    (job,) = ask_sacct(["7_3"])
    assert (job.id, job.energy.joules, job.start, job.nodes) == ("7_3", 1000.0, START, frozenset({"n1"}))
    assert (tmp_path / "asked").read_text().startswith("%s --parsable2 --format=JobID,")


def test_accounting_that_is_off_and_bad_ids_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sacct(tmp_path, monkeypatch, "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    with pytest.raises(SifmarkError) as caught:
        ask_sacct(["7"])
    assert "accounting storage is disabled" in caught.value.cause and "--sacct FILE" in caught.value.remedy
    with pytest.raises(UsageError):
        ask_sacct(["7; reboot"])


# Cost and carbon


def test_cost_and_carbon_are_the_sites_numbers_times_kwh_and_pue() -> None:
    prices = EnergyPrices(0.30, "EUR", 400.0, 1.5)
    assert prices.facility_kwh(3.6e6) == 1.5
    assert prices.cost(3.6e6) == pytest.approx(0.45) and prices.carbon(7.2e6) == pytest.approx(1200)
    assert EnergyPrices().cost(3.6e6) is None and prices.cost(None) is None


def test_options_replace_the_numbers_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sifmark.toml"
    file.write_text('[energy]\nprice_per_kwh = 0.25\ncurrency = "EUR"\nco2_grams_per_kwh = 300\npue = 1.2\n')
    monkeypatch.setenv("SIFMARK_SETTINGS", str(file))
    site = load_settings().energy
    assert prices_of(site) == EnergyPrices(0.25, "EUR", 300, 1.2)
    assert prices_of(site, price_per_kwh=0.5, currency="", pue=0.0) == EnergyPrices(0.5, "EUR", 300, 1.2)
    assert prices_of({}) == EnergyPrices()


@pytest.mark.parametrize("values", [{"pue": 0.5}, {"price_per_kwh": -1.0, "currency": "EUR"}, {"price_per_kwh": 1.0},
                                    {"co2_grams_per_kwh": math.inf}, {"pue": math.nan}])  # fmt: skip
def test_impossible_numbers_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        prices_of(values)


@pytest.mark.parametrize("text", ["price_per_kwh = 1.0", "pue = 0.9", 'currency = "€€€"', "price = 1"])
def test_impossible_settings_are_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sifmark.toml").write_text(f"[energy]\n{text}\n")
    monkeypatch.setenv("SIFMARK_SETTINGS", str(tmp_path / "sifmark.toml"))
    with pytest.raises(UsageError):
        load_settings()


# The command


@pytest.fixture
def measured(tmp_path: Path) -> tuple[str, str]:
    """A folder with a result, and a recording of 300 W that covers it."""
    result = document()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.json").write_text(json.dumps(result))
    times = [datetime.fromisoformat(result[name]).timestamp() for name in ("started", "finished")]
    rows = [f"{times[0] - 2 + number / 10:.3f},300" for number in range(int((times[1] - times[0] + 4) * 10))]
    (tmp_path / "pdu.csv").write_text("\n".join(["time,watts", *rows]))
    return str(tmp_path / "results"), str(tmp_path / "pdu.csv")


def test_the_answer_has_both_energies_the_ratio_and_what_each_covers(
    measured: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, recording = measured
    prices: dict[str, Any] = {"price": 0.3, "currency": "EUR", "carbon": 400.0}
    energy(load_settings(), [folder], pdu=recording, pdu_covers="node", form="json", **prices)
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["own_covers"], row["whole_covers"], row["basis"]) == ("1 x package", "node", "whole")
    assert row["power_ratio"] == pytest.approx(1.5) and row["whole_watts"] == pytest.approx(300)
    assert row["cost"] == pytest.approx(row["whole_joules"] / 3.6e6 * 0.3)


@pytest.mark.parametrize(
    ("form", "expected"), [("table", "1 x package"), ("markdown", "|---|"), ("csv", "name,runs,own_joules")]
)
def test_each_format_has_the_energies(
    form: str, expected: str, measured: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    energy(load_settings(), [measured[0]], pdu=measured[1], form=form)
    assert expected in capsys.readouterr().out


def test_without_another_source_our_meter_alone_counts_and_says_so(
    measured: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    energy(load_settings(), [measured[0]], price=0.3, currency="EUR")
    text = capsys.readouterr().out
    assert "no other source was given" in text and "metered devices in the timed windows alone" in text
    assert "without a PUE" in text


def test_two_sources_and_invalid_results_are_refused(measured: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        energy(load_settings(), [measured[0]], pdu=measured[1], job_ids="7")
    (tmp_path / "results" / "b.json").write_text("{}")
    with refused(SifmarkError, "result-invalid"):
        energy(load_settings(), [measured[0]])
