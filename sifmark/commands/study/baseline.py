"""The study.baseline command: keep what results measured under a name, or list what is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.commands.answers import Table, answer, answer_record, list_left_out, report_copies
from sifmark.commands.study.paths import result_paths
from sifmark.core.console import output, output_table, printable, status, warn
from sifmark.core.errors import UsageError
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import FEWEST_REPEATS
from sifmark.results.comparison.tables import exclusion_text
from sifmark.studies.history.baseline import (
    Baseline,
    NewBaseline,
    baseline_file,
    baseline_names,
    make_baseline,
    read_baseline,
    write_baseline,
)


@dataclass(frozen=True)
class BaselineOptions:
    """The options of the command line."""

    name: str
    paths: tuple[str, ...] = ()
    study: str = ""
    results: str = "results"
    force: bool = False

    def sources(self) -> tuple[str, ...]:
        """Return where the results are. Raises UsageError if that is not said, or twice."""
        return result_paths(self.paths, self.study, self.results)


def keep_baseline(options: BaselineOptions, folder: Path, form: str) -> None:
    """Keep a baseline and say what is in it. Raises SifmarkError."""
    if not options.name:
        raise UsageError("what should the baseline be called?", "study.baseline NAME RESULTS", code="argument-missing")
    new = make_baseline(options.name, options.sources())
    file = write_baseline(new.baseline, folder, options.force)
    _report(new)
    document = _summary(new.baseline, folder) | {"excluded": len(new.excluded), "duplicates": new.duplicates}
    rows = new.baseline.rows
    of_rows = f"{rows} configuration{'s' if rows > 1 else ''}"
    text = f"kept: {printable(str(file))}, {len(new.baseline.repeats)} runs of {of_rows}"
    answer_record(form, document, lambda: output(text))


def list_baselines(folder: Path, form: str) -> None:
    """Print the baselines of a folder."""
    rows = [_summary(read_baseline(folder, name), folder) for name in baseline_names(folder)]
    columns = list(rows[0]) if rows else ["name"]
    table = Table(columns, [list(row.values()) for row in rows])
    answer(form, rows, table, lambda: _show(rows, folder))


def _summary(baseline: Baseline, folder: Path) -> dict[str, Any]:
    first, last = baseline.dates
    hosts = {repeat.about["host"] for repeat in baseline.repeats} - {None}
    return {
        "name": baseline.name,
        "created": baseline.created,
        "rows": baseline.rows,
        "runs": len(baseline.repeats),
        "first": first,
        "last": last,
        "hosts": len(hosts),
        "images": len({repeat.about["image"] for repeat in baseline.repeats} - {None}),
        "file": str(baseline_file(folder, baseline.name)),
    }


def _show(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    if not rows:
        status(f"no baselines in {folder}; keep one: sifmark study.baseline NAME RESULTS")
        return
    output_table("name", "kept", "configurations", "runs", "measured", rows=map(_cells, rows))


def _cells(row: dict[str, Any]) -> list[str]:
    days = row["first"] if row["first"] == row["last"] else f"{row['first']} to {row['last']}"
    return [row["name"], row["created"][:10], str(row["rows"]), str(row["runs"]), days]


def _report(new: NewBaseline) -> None:
    list_left_out("excluded", list(map(exclusion_text, new.excluded)))
    report_copies(new.duplicates)
    if few := new.baseline.rows_with_fewer(FEWEST_REPEATS):
        warn(f"{few} configurations have fewer than {FEWEST_REPEATS} runs; a gate cannot decide about them")
    runs = [repeat.observation for repeat in new.baseline.repeats]
    if bad := sum(run.disturbed or run.stalled for run in runs):
        warn(f"{bad} runs were disturbed by other work on their hosts; a baseline should have none of them")
    if unchecked := sum(run.fields[NUMERICS] != "passed" for run in runs):
        warn(f"{unchecked} runs had no correctness check")
