"""Runs as tables for other programs: each format has the same rows, each run once, nothing to misread."""

import csv
import json
from pathlib import Path
from typing import Any

import documents
import duckdb
import pytest
from unit.refusals import refused
from unit.studies.histories import DRIVER, FIRST, IMAGE, key, nights, write_nights, write_run

from sifmark.commands.results import export_results
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.tidy import ResultPlace, Table, columns, rows

FORMATS = ("csv", "json", "jsonl", "parquet", "duckdb")
NIGHTS = nights(1, 3)
H200 = Path(__file__).parents[2] / "fixtures" / "h200"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of a study, where the studies' own results are."""
    study = tmp_path / "results" / "turing"
    study.mkdir(parents=True)
    (study / ".study.json").write_text('{"name": "turing", "title": "Turing", "digest": "sha256:0"}')
    changes: dict[str, Any] = {DRIVER: "550.54", IMAGE: key(1)}
    write_nights(study / "alpha", NIGHTS, site="alpha", **changes)
    return tmp_path / "results"


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of an export, as DuckDB reads it."""
    if file.suffix == ".duckdb":
        with duckdb.connect(str(file), read_only=True) as database:
            return _records(database.sql("select * from runs"))
    with duckdb.connect() as database:
        if file.suffix == ".csv":
            return _records(database.read_csv(str(file)))
        name = str(file)
        return _records(database.read_parquet(name) if file.suffix == ".parquet" else database.read_json(name))


def _records(relation: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    return [dict(zip(relation.columns, map(_plain, row), strict=True)) for row in relation.fetchall()]


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_has_every_run(results: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / "out" / f"runs.{suffix}"
    export_results([str(results)], str(target))
    rows = rows_of(target)
    assert len(rows) > 3 * 10 and list(rows[0]) == list(columns(Table.RUNS))
    throughput = [row for row in rows if row["metric"] == "throughput"]
    assert sorted(row["value"] for row in throughput) == pytest.approx(sorted(NIGHTS))
    row = next(row for row in throughput if _plain(row["started"]) == FIRST.replace(tzinfo=None))
    expected = {"study": "turing", "site": "alpha", "device_conditions.driver": "550.54", "unit": "images/s"}
    expected |= {"provenance.image.build_key": key(1), "status.state": "completed", "numerics.state": "passed"}
    expected |= {"precision": "fp32", "workload.task": "training"}
    assert {name: str(row[name]) for name in expected} == expected
    assert Path(row["file"]).is_file()
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("example", ["training", "inference", "out_of_memory"])
def test_all_that_describes_a_run_is_a_column_with_its_value(example: str) -> None:
    document = json.loads((documents.EXAMPLES / f"{example}.json").read_text())
    row = next(rows(Table.RUNS, document, ResultPlace("here.json")))
    for part, prefix in (("configuration", ""), ("accelerator", "accelerator."), ("host", "host.")):
        for name, value in document[part].items():
            fact = value["value"] if isinstance(value, dict) and "value" in value else value
            if not isinstance(fact, dict | list) and name not in ("reason", "goal", "chosen_for", "measured_peak"):
                assert row[prefix + name] in (fact, json.dumps(fact)), name


def test_standard_output_takes_csv(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_results([str(results)])
    out = capsys.readouterr().out
    assert [row["value"] for row in csv.DictReader(out.splitlines()) if row["metric"] == "throughput"]


@pytest.mark.parametrize("table", Table)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_table_in_every_format(tmp_path: Path, table: Table, suffix: str) -> None:
    target = tmp_path / f"{table}.{suffix}"
    export_results([str(documents.EXAMPLES), str(H200)], str(target), table=table)
    if suffix != "duckdb":
        assert list(rows_of(target)[0]) == list(columns(table))


def test_points_and_steps_are_those_of_the_documents(tmp_path: Path) -> None:
    export_results([str(H200 / "memory_copy.json")], str(tmp_path / "p.csv"), table="points")
    export_results([str(H200 / "resnet50_bf16.json")], str(tmp_path / "s.csv"), table="steps")
    copies = json.loads((H200 / "memory_copy.json").read_text())["points"]["measured"]
    points = [row for row in rows_of(tmp_path / "p.csv") if row["metric"] == "bus_bandwidth"]
    assert [(row["x"], row["value"]) for row in points] == [
        (each["size"], each["bus_bandwidth_gb_per_second"]) for each in copies
    ]
    document = json.loads((H200 / "resnet50_bf16.json").read_text())
    steps = [row["value"] for row in rows_of(tmp_path / "s.csv") if row["metric"] == "step_time"]
    assert steps == document["steps"]["seconds"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_same_results_give_the_same_bytes(results: Path, tmp_path: Path, suffix: str) -> None:
    first, second = (tmp_path / name / f"runs.{suffix}" for name in ("first", "second"))
    for target in (first, second):
        export_results([str(results)], str(target))
    assert first.read_bytes() == second.read_bytes()


def test_a_run_that_failed_has_a_row_with_its_state(tmp_path: Path) -> None:
    example = documents.EXAMPLES / "out_of_memory.json"
    export_results([str(example)], str(tmp_path / "runs.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    (row,) = [row for row in rows if row["metric"] == "throughput"]
    assert (row["status.state"], row["value"], row["unit"]) == ("out_of_memory", None, "images/s")


def test_copies_are_counted_once_and_broken_files_are_named(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next((results / "turing" / "alpha").glob("*.json"))
    (results / "copy.json").write_text(file.read_text())
    (results / "broken.json").write_text("{")
    with refused(SifmarkError, "result-invalid"):
        export_results([str(results)], str(tmp_path / "runs.csv"))
    assert "broken.json" in capsys.readouterr().err
    assert len({row["id"] for row in rows_of(tmp_path / "runs.csv")}) == 3


def test_no_spreadsheet_takes_a_text_for_a_formula(tmp_path: Path) -> None:
    write_run(tmp_path / "results", FIRST, 100, site="=cmd|' /C calc'!A0")
    export_results([str(tmp_path / "results")], str(tmp_path / "runs.csv"))
    with (tmp_path / "runs.csv").open(newline="") as stream:
        assert {row["site"] for row in csv.DictReader(stream)} == {"'=cmd|' /C calc'!A0"}


@pytest.mark.parametrize("suffix", FORMATS)
def test_texts_survive_every_format(tmp_path: Path, suffix: str) -> None:
    site = "Jülich \"A\", 'b'; drop table runs --"
    write_run(tmp_path / "results", FIRST, 100, site=site)
    export_results([str(tmp_path / "results")], str(tmp_path / f"runs.{suffix}"))
    assert {row["site"] for row in rows_of(tmp_path / f"runs.{suffix}")} == {site}


def test_an_earlier_table_stays_if_there_is_nothing_to_export(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("earlier")
    (tmp_path / "broken.json").write_text("{")
    with refused(SifmarkError, "result-invalid"):
        export_results([str(tmp_path / "broken.json")], str(tmp_path / "runs.csv"))
    assert (tmp_path / "runs.csv").read_text() == "earlier"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("runs.xlsx", "unknown-name"),
        ("runs", "unknown-name"),
        ("results/runs.jsonl", "invalid-option"),
    ],
)
def test_a_target_that_cannot_be_written(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(UsageError, code) as caught:
        export_results(["results"], target)
    assert caught.value.remedy
