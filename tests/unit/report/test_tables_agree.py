"""One table: every row of `runs` is in comparisons, exports and reports, with the same value."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples
from unit.report import samples

import sifmark
from sifmark.commands.results import export_results
from sifmark.report.files import report_files
from sifmark.report.load import load_report_results
from sifmark.report.report import make_report
from sifmark.results.tidy import Row

Number = tuple[str, str, float]  # id, metric, value
RUNS = st.lists(
    st.tuples(
        st.sampled_from(sorted(samples.SYSTEMS)),
        st.sampled_from(("pictures", "texts")),
        st.sampled_from((8, 16)),
        st.sampled_from(("completed", "out_of_memory", "stand-in")),
    ),
    min_size=1,
    max_size=8,
)


def document(run: tuple[str, str, int, str], repeat: int) -> dict[str, Any]:
    site, workload, batch, how = run
    completed = samples.sample(site, workload, batch, repeat, provenance__stand_in=how == "stand-in")
    if how != "out_of_memory":
        return completed
    own = {name: completed[name] for name in ("id", "started", "finished")}
    return samples.failure(site, workload, batch) | own


def numbers(rows: list[Row]) -> set[Number]:
    """What rows say, of CSV or not; a throughput without a value says nothing."""
    return {(row["id"], row["metric"], float(row["value"])) for row in rows if row["value"] not in (None, "")}


@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RUNS)
def test_no_run_is_lost_on_the_way_to_its_reader(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], drawn: list[tuple[str, str, int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("results")
    for number, run in enumerate(drawn):
        (folder / f"{number}.json").write_text(json.dumps(document(run, number + 1)))
    results = sifmark.load(folder)
    assert len(results) == len(drawn)
    rows = list(results.rows())
    capsys.readouterr()
    export_results([str(folder)])
    exported = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert numbers(exported) == numbers(rows) and {row["id"] for row in exported} == {each.id for each in results}
    report = report_files(make_report(load_report_results([str(folder)], by="site")))
    assert numbers(list(csv.DictReader(io.StringIO(report["runs.csv"])))) == numbers(rows)
    check_comparison(results, folder)


def check_comparison(results: sifmark.Results, folder: Path) -> None:
    """Each run is in a row, excluded with a reason, or of a group that is refused; rows hold what runs measured."""
    comparison = results.compare(metrics="all").compared
    refused = {each.group for each in comparison.refused}
    compared = {each.id: row for table in comparison.tables for row in table.rows for each in row.observations}
    excluded = {each.result.id for each in comparison.excluded}
    values = numbers(list(results.rows()))
    for result in results:
        group = (result["workload.identity"], result["workload.task"], result["status.phase"], result["data.source"])
        assert (result.id in compared) + (result.id in excluded) + (group in refused) == 1, folder
    for identifier, metric, value in values:
        if identifier in compared:
            assert value in compared[identifier].values(metric)
