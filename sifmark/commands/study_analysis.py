"""Commands that analyse results of studies: history, scaling, screen, nodes, energy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands.answers import CSV, MARKDOWN, TABLE, Table, answer, list_left_out, report_copies
from sifmark.commands.compare import KEPT, GateError, report_left_out
from sifmark.commands.framework import (
    argument,
    command,
    flag,
    format_option,
    option,
    results_argument,
    results_folder_option,
)
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.files import read_bounded, write_text
from sifmark.core.terminal import output, output_table, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.results.comparison.compare import Comparison
    from sifmark.studies.analysis.energy import EnergyPrices, EnergyRow, MeteredRun
    from sifmark.studies.analysis.screening import Limits, Screening
    from sifmark.studies.history.changes import History
    from sifmark.studies.history.series import LoadedHistory

_DAYS = re.compile(r"(\d{1,5})d")
_LARGEST_LIST = 4 << 20  # bytes


@dataclass(frozen=True)
class HistoryOptions:
    """The options of the command line."""

    paths: tuple[str, ...]
    metric: str = "throughput"
    by: str = ""
    since: str = ""
    least_change: float = 0.0
    fail_on_change: bool = False
    format: str = "table"

    def first_day(self) -> datetime | None:
        """Return from when on changes count; None if all do. Raises UsageError."""
        if not self.since:
            return None
        if days := _DAYS.fullmatch(self.since):
            return datetime.now(UTC) - timedelta(days=int(days[1]))
        try:
            day = datetime.fromisoformat(self.since)
        except ValueError as error:
            cause = f"--since {self.since!r} is neither a date nor a number of days"
            raise UsageError(cause, "for example 2026-11-01 or 14d", code="invalid-option") from error
        return day if day.tzinfo else day.replace(tzinfo=UTC)


@command("study.history", example="study.history results/ --since 14d --fail-on-change")
@results_argument()
@option("--metric", "The metric. [default: throughput]", "METRIC")
@option("--by", "More fields that separate series, with commas.", "FIELDS")
@option("--since", "Count changes from this day on: a date, or 14d for the last 14 days.", "DAY")
@option("--least-change", "The smallest change that matters, as a fraction. [default: 0.02]", "FRACTION", kind=float)
@flag("--fail-on-change", "Exit with 7 if there is a change; for pipelines and cron.")
@format_option
def history(
    paths: Sequence[str],
    metric: str = "throughput",
    by: str = "",
    since: str = "",
    least_change: float = 0.02,
    fail_on_change: bool = False,
    form: str = TABLE,
) -> None:
    """Show when performance changed, and what changed with it."""
    show_history(HistoryOptions(tuple(paths), metric, by, since, least_change, fail_on_change, form))


def show_history(options: HistoryOptions) -> None:
    """Print the history of results. Raises GateError if there are changes that count as a failure."""
    from sifmark.results.catalogue import path_of
    from sifmark.studies.history import report
    from sifmark.studies.history.changes import histories
    from sifmark.studies.history.series import load_history

    since = options.first_day()
    if not 0 < options.least_change < 1:
        cause = f"--least-change {options.least_change:g} is not between 0 and 1"
        raise UsageError(cause, "for example 0.02 for 2 %", code="invalid-option")
    fields = tuple(path_of(word.strip()) for word in options.by.split(",") if word.strip())
    loaded = load_history(options.paths, options.metric, fields)
    if not loaded.series and loaded.metrics and options.metric not in loaded.metrics:
        raise unknown_name("metric", options.metric, loaded.metrics)
    results = histories(loaded.series, options.least_change)
    table = Table(*(report.period_records if options.format == CSV else report.period_rows)(results, options.metric))
    document = report.history_document(loaded, results, options.metric, options.least_change)
    answer(options.format, document, table, lambda: _show_history(table, results), "History")
    _report_without_history(loaded)
    _conclude_history(results, since, options.fail_on_change)


def _conclude_history(results: Sequence[History], since: datetime | None, fails: bool) -> None:
    changes = [change for each in results for change in each.changes if since is None or change.before >= since]
    when = f" since {since:%Y-%m-%d}" if since else ""
    if changes and fails:
        series = sum(any(change in changes for change in each.changes) for each in results)
        cause = f"{_count(len(changes), 'change')} in {series} of {len(results)} series{when}"
        raise GateError(cause, "the table names them, and what changed with them", code="performance-changed")
    status(f"{_count(len(changes), 'change')} in {len(results)} series{when}")


def _show_history(table: Table, results: Sequence[History]) -> None:
    from sifmark.studies.history.changes import RUNS
    from sifmark.studies.history.report import notes

    if not results:
        return
    output_table(*table.columns, rows=table.rows)
    for note in notes(results):
        status(note)
    for each in results:
        if hosts := each.series.alternating_hosts:
            where = f"{each.series.system}, {each.series.title.partition(',')[0]}"
            status(f"{printable(where)}: {hosts} hosts take turns; --by host.hostname separates them")
    if few := sum(each.basis == RUNS for each in results):
        status(f"{few} series have few sessions, so that how much days differ is unknown")
    if unchanged := sum(len(each.unchanged) for each in results):
        times = _count(unchanged, "time")
        status(f"{times} something else changed, such as the image, and performance did not: --format json has them")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _report_without_history(loaded: LoadedHistory) -> None:
    reasons = {
        "not valid": loaded.invalid,
        "not completed, or not correct": loaded.excluded,
        "no value above 0": loaded.without_value,
        "a date that cannot be true": loaded.undated,
    }
    for reason, files in reasons.items():
        list_left_out(f"left out, {reason}", list(map(printable, files)))
    if loaded.invalid:
        warn(f"{len(loaded.invalid)} documents are not valid")
    report_copies(loaded.duplicates)


@command("study.scaling", example="study.scaling results/")
@results_argument(required=False)
@option("--study", "Read the results of this study.", "STUDY")
@results_folder_option
@option("--limit", "Efficiency below which a curve bends. [default: 0.9]", "FRACTION", kind=float)
@format_option
def show_scaling(
    paths: Sequence[str] = (), study: str = "", results: str = "results", limit: float = 0.9, form: str = TABLE
) -> None:
    """Show how throughput scales over devices and nodes.

    With speed-up and efficiency, where they bend, and what takes the time, as far as results show it.
    """
    from sifmark.results.comparison import tables
    from sifmark.studies.analysis.scaling import scaling_of
    from sifmark.studies.analysis.scaling_report import COLUMNS, as_document, report_lines, rows_of
    from sifmark.studies.load import result_paths

    if not 0 < limit <= 1:
        raise UsageError(f"--limit {limit:g} is no efficiency", "give a fraction, such as 0.9", code="invalid-option")
    curves, comparison = scaling_of(result_paths(paths, study, results))
    if curves and form == MARKDOWN:
        output("\n".join(report_lines(curves, tables.MARKDOWN, limit)))
    elif curves or form == "json":
        table = Table(COLUMNS, rows_of(curves, limit))
        answer(
            form, as_document(curves, limit), table, lambda: output("\n".join(report_lines(curves, tables.TEXT, limit)))
        )
    report_left_out(comparison)
    if not curves:
        raise SifmarkError(
            "no two results differ only in the number of devices",
            "measure the same workload with --replicas 1, 2, 4 ...: with one --batch-size for strong scaling, or with "
            "the same batch for each replica for weak scaling",
            code="results-incomparable",
        )


@dataclass(frozen=True)
class ScreenRequest:
    """What is to be screened, against what, and when a node is named."""

    paths: tuple[str, ...]
    nodes: str = ""  # that should have results
    baseline: str = ""  # a path of results, or baseline:NAME
    by: str = "host"
    limits: Limits | None = None
    baselines: Path = Path("baselines")  # the folder of kept ones

    def screen(self) -> tuple[Screening, Comparison]:
        """Return the screening. Raises UsageError if a baseline or a path does not exist."""
        from sifmark.studies.analysis.screening import NODE_FIELDS, Limits, screen
        from sifmark.studies.history.baseline import read_baseline

        kind, colon, name = self.baseline.partition(":")
        kept = read_baseline(self.baselines, name) if colon and kind == KEPT else None
        against = "" if kept else self.baseline
        expected = expected_nodes(self.nodes)
        return screen(self.paths, expected, against, self.limits or Limits(), NODE_FIELDS[self.by], kept)


@command("study.screen", example="study.screen results/screen/ --list bad.txt")
@results_argument()
@option("--nodes", "Nodes that should have results, as Slurm writes them, or a file with names.", "NODES")
@option("--baseline", "Also compare with these results, or kept ones.", "RESULTS|baseline:NAME", completes="file")
@option("--by", "What names a node in results.", choices=("host", "site"))
@option("--level", "Chance that a healthy fleet has an outlier. [default: 0.01]", "FRACTION", kind=float)
@option("--least", "Difference below which no node is named. [default: 0.02]", "FRACTION", name="smallest", kind=float)
@option("--list", "Write the names of failed and worse nodes there.", "FILE", name="list_file", completes="file")
@flag("--fail", "Exit with 7 if a node is named.")
@format_option
def screen(
    settings: Settings,
    paths: Sequence[str],
    nodes: str = "",
    baseline: str = "",
    by: str = "host",
    level: float = 0.01,
    smallest: float = 0.02,
    list_file: str = "",
    fail: bool = False,
    form: str = TABLE,
) -> None:
    """Find nodes that fail, or differ from the others.

    By speed, energy, clocks and temperature, against the fleet and a baseline, with a list for a scheduler.
    """
    from sifmark.studies.analysis.screening import Limits

    request = ScreenRequest(tuple(paths), nodes, baseline, by, Limits(level, smallest), settings.baselines)
    screen_nodes(request, list_file, form=form, fail=fail)


def screen_nodes(request: ScreenRequest, list_file: str = "", *, form: str = "table", fail: bool = False) -> None:
    """Print a screening. Raises ScreeningFailedError with `fail` if it names a node, or compared none."""
    from sifmark.results.comparison import tables
    from sifmark.studies.analysis.screening_report import COLUMNS, as_document, report_lines, rows_of

    limits = request.limits
    if limits and not (0 < limits.level < 1 and 0 <= limits.least < 1):
        remedy = "for example --level 0.01 --least 0.02"
        raise UsageError("--level and --least are fractions", remedy, code="invalid-option")
    screening, comparison = request.screen()
    if form == MARKDOWN:
        output("\n".join(report_lines(screening, tables.MARKDOWN)))
    else:
        table = Table(COLUMNS, rows_of(screening))
        answer(form, as_document(screening), table, lambda: output("\n".join(report_lines(screening, tables.TEXT))))
    report_left_out(comparison)
    _hand_over(screening, list_file)
    if fail:
        screening.require_healthy()


def expected_nodes(text: str) -> tuple[str, ...]:
    """Return the names in a list as Slurm writes it, or in a file with a list on each line."""
    from sifmark.studies.analysis.node_names import expand

    if not text:
        return ()
    if not Path(text).is_file():
        return expand(text)
    try:
        lines = read_bounded(Path(text), _LARGEST_LIST).decode().split()
    except (OSError, ValueError) as error:
        raise UsageError(f"{text}: {error}", "give a text file with node names", code="file-unreadable") from error
    return tuple(name for line in lines for name in expand(line))


def _hand_over(screening: Screening, list_file: str) -> None:
    """Write the list for a scheduler, and print the commands for its administrator."""
    from sifmark.studies.analysis.screening_report import drain_commands, safe_names

    names = safe_names(screening)
    for node in sorted(set(screening.named) - set(names)):
        warn(f"{printable(node)!r} is no name of a host, and is not listed")
    if list_file:
        write_text(Path(list_file), "".join(f"{name}\n" for name in names))
        status(f"named in {list_file}: {len(names)}")
    if names:
        status("to take them out of service, an administrator runs:")
    for line in drain_commands(screening):
        status(f"  {line}")


@command("study.nodes", example="study.nodes screen --nodes 'n[01-16]' --image cuda")
@argument("study", "A study, by name or file.", "STUDY", completes="file")
@option("--nodes", "The nodes, as Slurm writes them, or a file with names.", "NODES")
@option("--partition", "Partition of Slurm; without --nodes all of its nodes.", "NAME")
@option("--image", "Image of the nodes. [default: the study's]", "IMAGE", completes="image")
@option("--devices", "Devices of a node. [default: the study's]", "N", least=1)
@option("--output", "Write the study there. [default: print it]", "FILE", name="target", completes="file")
def write_study(
    study: str,
    settings: Settings,
    nodes: str = "",
    partition: str = "",
    image: str = "",
    devices: int = 0,
    target: str = "",
) -> None:
    """Write a study that runs on every node at once."""
    from sifmark.studies.analysis.every_node import NodeSystem, study_on_nodes

    if not nodes and not partition:
        raise UsageError("no nodes are given", "--nodes 'n[01-16]', or --partition NAME", code="argument-missing")
    names = list(expected_nodes(nodes)) if nodes else _of_partition(partition)
    extra = tuple(settings.slurm.get("extra", ()))
    text = study_on_nodes(study, names, NodeSystem(image, devices, partition, extra))
    if not target:
        output(text.rstrip("\n"))
        return
    if not target.endswith(".toml"):
        raise UsageError(f"--output {target} is no study file", "end its name in .toml", code="invalid-option")
    write_text(Path(target), text)
    status(f"{target} has {len(names)} nodes; run it: sifmark study.run {target} --on slurm")


def _of_partition(partition: str) -> list[str]:
    from sifmark.studies.analysis.every_node import nodes_of_partition

    names, out = nodes_of_partition(partition)
    for node, state in out.items():
        warn(f"{node} is {state}, and is left out")
    if not names:
        raise UsageError(f"no node of partition {partition} takes jobs", "sinfo says why", code="argument-missing")
    return names


@dataclass(frozen=True)
class EnergySource:
    """Where the energy of the whole comes from: at most one of the first three."""

    sacct: str = ""
    job_ids: str = ""
    pdu: str = ""
    covers: str = ""  # by a PDU
    time_zone: str = ""
    clock_offset: float = 0.0  # seconds

    def rows(self, runs: Sequence[MeteredRun]) -> list[EnergyRow]:
        """Return the energies. Raises UsageError for several sources, or one that cannot be read."""
        from sifmark.studies.analysis.energy import UNKNOWN_SCOPE, EnergyRow, MeasuredEnergy
        from sifmark.studies.analysis.energy_sources import (
            ask_sacct,
            read_pdu,
            read_sacct,
            rows_of_jobs,
            rows_of_pdu,
            zone_of,
        )

        if sum(map(bool, (self.sacct, self.job_ids, self.pdu))) > 1:
            cause = "the energy of the whole is given by several sources"
            raise UsageError(cause, "choose --sacct, --job-ids or --pdu", code="invalid-option")
        zone = zone_of(self.time_zone)
        if self.pdu:
            covers = self.covers or UNKNOWN_SCOPE
            return rows_of_pdu(runs, read_pdu(Path(self.pdu), zone, self.clock_offset), covers)
        if self.sacct:
            return rows_of_jobs(runs, read_sacct(Path(self.sacct), zone), self.clock_offset)
        if self.job_ids:
            ids = [job.strip() for job in self.job_ids.split(",") if job.strip()]
            return rows_of_jobs(runs, ask_sacct(ids), self.clock_offset)
        nothing = MeasuredEnergy(None, None, UNKNOWN_SCOPE, "no other source was given: --sacct, --job-ids or --pdu")
        return [EnergyRow(run.label, (run,), run.own, nothing) for run in runs]


@command("study.energy", example="study.energy results/ --pdu power.csv")
@results_argument()
@option("--sacct", "Energy of jobs, as sacct --parsable2 wrote it.", "FILE", completes="file")
@option("--job-ids", "Ask sacct for these jobs, with commas.", "JOBS")
@option("--pdu", "Power over time: CSV with time, watts and perhaps node.", "FILE", completes="file")
@option("--pdu-covers", "What the PDU measures: node, chassis, rack ...", "WHAT")
@option("--time-zone", "Zone of times in the file that have none.", "ZONE")
@option("--clock-offset", "Add these seconds to the times of the file.", "SECONDS", kind=float)
@option("--price", "Price of a kWh. [default: energy in sifmark.toml]", "NUMBER", kind=float)
@option("--currency", "Its currency.", "NAME")
@option("--carbon", "Grams of CO2 for a kWh. [default: energy in sifmark.toml]", "GRAMS", kind=float)
@option("--pue", "Energy of the facility over that of its computers.", "RATIO", kind=float)
@format_option
def energy(
    settings: Settings,
    paths: Sequence[str],
    sacct: str = "",
    job_ids: str = "",
    pdu: str = "",
    pdu_covers: str = "",
    time_zone: str = "",
    clock_offset: float = 0.0,
    price: float = 0.0,
    currency: str = "",
    carbon: float = 0.0,
    pue: float = 0.0,
    form: str = TABLE,
) -> None:
    """Compare the energy of whole jobs with that of meters.

    As Slurm or a power distribution unit (PDU) counted it, with cost and carbon by a site's own numbers.
    """
    from sifmark.studies.analysis.energy import prices_of

    own = {"price_per_kwh": price, "currency": currency, "co2_grams_per_kwh": carbon, "pue": pue}
    source = EnergySource(sacct, job_ids, pdu, pdu_covers, time_zone, clock_offset)
    show_energy(paths, source, prices_of(settings.energy, **own), form)


def show_energy(paths: Sequence[str], source: EnergySource, prices: EnergyPrices, form: str) -> None:
    """Print the energies of runs or jobs. Raises SifmarkError if a result is not valid, after the answer."""
    from sifmark.results.comparison import tables
    from sifmark.results.load import load_all
    from sifmark.studies.analysis.energy import COLUMNS, as_document, metered_run, report_lines, rows_of

    results = list(load_all(paths))
    runs = [metered_run(result.file, result.document) for result in results if not result.problems]
    rows = source.rows(runs)
    if form == MARKDOWN:
        output("\n".join(report_lines(rows, prices, tables.MARKDOWN)))
    else:
        table = Table(COLUMNS, rows_of(rows, prices))
        text = "\n".join(report_lines(rows, prices, tables.TEXT))
        answer(form, as_document(rows, prices), table, lambda: output(text))
    invalid = [f"{printable(each.file)}: {printable(each.problems[0])}" for each in results if each.problems]
    for line in invalid:
        status(f"excluded: {line}")
    if invalid:
        cause = f"{len(invalid)} documents are not valid"
        raise SifmarkError(cause, "repair or remove them: sifmark results.validate", code="result-invalid")
