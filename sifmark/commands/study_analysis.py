"""Commands that analyse results of studies: history, scaling, screen, nodes, energy."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import CSV, JSON, TABLE, Table, answer, answer_lines, list_left_out
from sifmark.commands.compare import report_left_out
from sifmark.core.console import comma_separated, counted, printable
from sifmark.core.errors import GateError, SifmarkError, UsageError
from sifmark.core.files import write_text
from sifmark.core.terminal import output, output_table, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.studies.analysis.screening import Screening
    from sifmark.studies.history.changes import History

_DAYS = re.compile(r"(\d{1,5})d")


@cli.command("study.history", example="study.history results/ --since 14d --fail-on-change")
@cli.results_argument()
@cli.option("--metric", "The metric. [default: the rate by which its kind of run is ranked]", "METRIC")
@cli.option("--by", "More fields that separate series, with commas.", "FIELDS")
@cli.option("--since", "Count changes from this day on: a date, or 14d for the last 14 days.", "DAY")
@cli.option(
    "--least-change", "The smallest change that matters, as a fraction. [default: 0.02]", "FRACTION", kind=float
)
@cli.flag("--fail-on-change", "Exit with 7 if there is a change; for pipelines and cron.")
@cli.flag("--explain", "Also list what differs between the two sides of each change, the best separated first.")
@cli.option("--images", "With --explain or --bisect: kept images. Repeatable. [default: dist]", "FOLDER", multiple=True)
@cli.option("--bisect", "Write the study that decides whether the image made the largest change.", "FILE")
@cli.flag("--run", "With --bisect: run it here, and say what it shows.", "running")
@cli.option(
    "--allow",
    "With --bisect: judge runs with this mark. Repeatable.",
    choices=("busy", "stopped", "unsteady"),
    multiple=True,
)
@cli.format_option
def history(
    settings: Settings,
    paths: Sequence[str],
    metric: str = "",
    by: str = "",
    since: str = "",
    least_change: float = 0.02,
    fail_on_change: bool = False,
    explain: bool = False,
    images: Sequence[str] = (),
    bisect: str = "",
    running: bool = False,
    allow: Sequence[str] = (),
    form: str = TABLE,
) -> None:
    """Show when performance changed, and what changed with it."""
    from sifmark.commands import explained_history
    from sifmark.studies.history import report
    from sifmark.studies.history.changes import read_histories

    first_day = _first_day(since) if since else None
    loaded, results = read_histories(paths, metric, comma_separated(by), least_change)
    table = Table(*(report.period_records if form == CSV else report.period_rows)(results))
    document = report.history_document(loaded, results, least_change)
    changed = [[c for c in each.changes if first_day is None or c.before >= first_day] for each in results]
    explained = explained_history.explain(settings, results, changed, images) if explain else []
    document |= {"explanations": explained_history.as_documents(explained)} if explain else {}

    def show() -> None:
        _show_history(table, results)
        explained_history.show(explained)

    answer(form, document, table, show, "History")
    reasons = {
        "not valid": loaded.invalid,
        "not completed, or not correct": loaded.excluded,
        "no value above 0": loaded.without_value,
        "a date that cannot be true": loaded.undated,
    }
    for reason, files in reasons.items():
        list_left_out(map(printable, files), label=f"left out, {reason}")
    list_left_out((), loaded.duplicates)
    if loaded.invalid:
        warn(f"{counted(len(loaded.invalid), 'document is', 'documents are')} not valid")
    if bisect:
        explained_history.bisect(settings, results, changed, images, Path(bisect), running, allow)
    count = counted(sum(map(len, changed)), "change")
    when = f" since {first_day:%Y-%m-%d}" if first_day else ""
    if fail_on_change and any(changed):
        cause = f"{count} in {sum(map(bool, changed))} of {len(results)} series{when}"
        raise GateError(cause, "the table names them, and what changed with them", code="performance-changed")
    status(f"{count} in {len(results)} series{when}")


def _first_day(text: str) -> datetime:
    """Return the day that a date or a number of days means. Raises UsageError."""
    if days := _DAYS.fullmatch(text):
        return datetime.now(UTC) - timedelta(days=int(days[1]))
    try:
        day = datetime.fromisoformat(text)
    except ValueError as error:
        cause = f"--since {text!r} is neither a date nor a number of days"
        raise UsageError(cause, "for example 2026-11-01 or 14d", code="invalid-option") from error
    return day if day.tzinfo else day.replace(tzinfo=UTC)


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
        times = counted(unchanged, "time")
        status(f"{times} something else changed, such as the image, and performance did not: --format json has them")


@cli.command("study.scaling", example="study.scaling results/")
@cli.results_argument(required=False)
@cli.option("--study", "Read the results of this study.", "STUDY")
@cli.variant_option
@cli.results_folder_option
@cli.option("--limit", "Efficiency below which a curve bends. [default: 0.9]", "FRACTION", kind=float)
@cli.format_option
def show_scaling(
    paths: Sequence[str] = (),
    study: str = "",
    results: str = "results",
    limit: float = 0.9,
    form: str = TABLE,
    variant: str = "",
) -> None:
    """Show how throughput scales over devices and nodes.

    With speed-up and efficiency, where they bend, and what takes the time, as far as results show it.
    """
    from sifmark.studies.analysis.scaling import scaling_of
    from sifmark.studies.analysis.scaling_report import COLUMNS, as_document, report_lines, rows_of
    from sifmark.studies.load import result_paths

    if not 0 < limit <= 1:
        raise UsageError(f"--limit {limit:g} is no efficiency", "give a fraction, such as 0.9", code="invalid-option")
    curves, comparison = scaling_of(result_paths(paths, study, results, variant))
    if curves or form == JSON:
        table = Table(COLUMNS, rows_of(curves, limit))
        answer_lines(form, as_document(curves, limit), table, lambda style: report_lines(curves, style, limit))
    report_left_out(comparison)
    if not curves:
        remedy = (
            "measure the same workload with --replicas 1, 2, 4 ...: with one --batch-size for strong scaling, or with "
            "the same batch for each replica for weak scaling"
        )
        cause = "no two results differ only in the number of devices"
        raise SifmarkError(cause, remedy, code="results-incomparable")


@cli.command("study.screen", example="study.screen results/screen/ --list bad.txt")
@cli.results_argument(required=False)
@cli.option("--nodes", "Nodes that should have results, as Slurm writes them, or a file with names.", "NODES")
@cli.option("--baseline", "Also compare with these results, or kept ones.", "RESULTS|baseline:NAME", completes="file")
@cli.option("--by", "What names a node in results.", choices=("host", "site"))
@cli.option("--level", "Chance that a healthy fleet has an outlier. [default: 0.01]", "FRACTION", kind=float)
@cli.option(
    "--least",
    "Difference below which no node is named. [default: 0.02; 0.05 with --quick]",
    "FRACTION",
    name="smallest",
    kind=float,
)
@cli.option("--list", "Write the names of failed and worse nodes there.", "FILE", name="list_file")
@cli.flag("--quick", "Test this node, in three minutes at most: RESULTS is the folder that the fleet shares.")
@cli.option("--image", "With --quick: the image that tests it.", "IMAGE")
@cli.option("--devices", "With --quick: its devices. [default: as the vendor's program says]", "N", least=1)
@cli.option("--node", "With --quick: its name. [default: SLURMD_NODENAME, else the host's]", "NAME")
@cli.option("--time-limit", "With --quick: end then, with what there is. [default: 3m]", "TIME")
@cli.option("--textfile", "With --quick: also write OpenMetrics, for node_exporter's textfile collector.", "FILE")
@cli.flag("--fail", "Exit with 7 if a node is named; with --quick with 8 if this one cannot be judged.")
@cli.format_option
def screen(
    settings: Settings,
    paths: Sequence[str] = (),
    nodes: str = "",
    baseline: str = "",
    by: str = "host",
    level: float = 0.01,
    smallest: float | None = None,
    list_file: str = "",
    quick: bool = False,
    image: str = "",
    devices: int = 0,
    node: str = "",
    time_limit: str = "",
    textfile: str = "",
    fail: bool = False,
    form: str = TABLE,
) -> None:
    """Find nodes that fail, or differ from the others.

    By speed, energy, clocks and temperature, against the fleet and a baseline, with a list for a scheduler. --quick is
    for this node alone, in a prolog or a health check: short tests and counters of faults. Nothing is taken out of
    service.
    """
    if quick:
        from sifmark.commands.quick_screen import screen_quickly

        screen_quickly(settings, paths, image, node, devices, time_limit, smallest, textfile, fail, form)
        return
    if not paths:
        raise UsageError("no results are given", "name files or folders, or --quick", code="argument-missing")
    from sifmark.results.comparison.query import KEPT
    from sifmark.studies.analysis.node_names import nodes_of
    from sifmark.studies.analysis.screening import LEAST, NODE_FIELDS, Limits
    from sifmark.studies.analysis.screening import screen as screen_results
    from sifmark.studies.analysis.screening_report import COLUMNS, as_document, report_lines, rows_of
    from sifmark.studies.history.baseline import read_baseline

    limits = Limits(level, LEAST if smallest is None else smallest)
    kind, colon, name = baseline.partition(":")
    kept = read_baseline(settings.baselines, name) if colon and kind == KEPT else None
    against = "" if kept else baseline
    screening, comparison = screen_results(paths, nodes_of(nodes), against, limits, NODE_FIELDS[by], kept)
    table = Table(COLUMNS, rows_of(screening))
    answer_lines(form, as_document(screening), table, lambda style: report_lines(screening, style))
    report_left_out(comparison)
    _hand_over(screening, list_file)
    if fail:
        screening.require_healthy()


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


@cli.command("study.nodes", example="study.nodes screen --nodes 'n[01-16]' --image cuda")
@cli.argument("study", "A study, by name or file.", "STUDY", completes="file")
@cli.option("--nodes", "The nodes, as Slurm writes them, or a file with names.", "NODES")
@cli.option("--partition", "Partition of Slurm; without --nodes all of its nodes.", "NAME")
@cli.option("--image", "Image of the nodes. [default: the study's]", "IMAGE")
@cli.option("--devices", "Devices of a node. [default: the study's]", "N", least=1)
@cli.option("--output", "Write the study there. [default: print it]", "FILE", name="target")
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
    from sifmark.studies.analysis.node_names import nodes_of
    from sifmark.studies.study_file import require_name

    if not nodes and not partition:
        raise UsageError("no nodes are given", "--nodes 'n[01-16]', or --partition NAME", code="argument-missing")
    names = list(nodes_of(nodes)) if nodes else partition_nodes(partition)
    extra = tuple(settings.slurm.get("extra", ()))
    text = study_on_nodes(study, names, NodeSystem(image, devices, partition, extra))
    if not target:
        output(text.rstrip("\n"))
        return
    if not target.endswith(".toml"):
        raise UsageError(f"--output {target} is no study file", "end its name in .toml", code="invalid-option")
    require_name(Path(target))
    write_text(Path(target), text)
    status(f"{target} has {counted(len(names), 'node')}; run it: sifmark study.run {shlex.quote(target)} --on slurm")


def partition_nodes(partition: str) -> list[str]:
    """Return the nodes of a partition that take jobs; warn of the others. Raises UsageError if none does."""
    from sifmark.studies.analysis.every_node import nodes_of_partition

    names, out = nodes_of_partition(partition)
    for node, state in out.items():
        warn(f"{node} is {state}, and is left out")
    if not names:
        raise UsageError(f"no node of partition {partition} takes jobs", "sinfo says why", code="argument-missing")
    return names


@cli.command("study.energy", example="study.energy results/ --pdu power.csv")
@cli.results_argument()
@cli.option("--sacct", "Energy of jobs, as sacct --parsable2 wrote it.", "FILE")
@cli.option("--job-ids", "Ask sacct for these jobs, with commas.", "JOBS")
@cli.option("--pdu", "Power over time: CSV with time, watts and perhaps node.", "FILE")
@cli.option("--pdu-covers", "What the PDU measures: node, chassis, rack ...", "WHAT")
@cli.option("--time-zone", "Zone of times in the file that have none.", "ZONE")
@cli.option("--clock-offset", "Add these seconds to the times of the file.", "SECONDS", kind=float)
@cli.option("--price", "Price of a kWh. [default: energy in sifmark.toml]", "NUMBER", kind=float)
@cli.option("--currency", "Its currency.", "NAME")
@cli.option("--carbon", "Grams of CO2 for a kWh. [default: energy in sifmark.toml]", "GRAMS", kind=float)
@cli.option("--pue", "Energy of the facility over that of its computers.", "RATIO", kind=float)
@cli.format_option
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
    from sifmark.results.load import load_all, require_valid
    from sifmark.studies.analysis.energy import COLUMNS, as_document, metered_run, prices_of, report_lines, rows_of
    from sifmark.studies.analysis.energy_sources import energy_rows

    prices = prices_of(settings.energy, price_per_kwh=price, currency=currency, co2_grams_per_kwh=carbon, pue=pue)
    results = list(load_all(paths))
    runs = [metered_run(result.file, result.document) for result in results if not result.problems]
    rows = energy_rows(
        runs, sacct=sacct, job_ids=job_ids, pdu=pdu, covers=pdu_covers, time_zone=time_zone, clock_offset=clock_offset
    )
    table = Table(COLUMNS, rows_of(rows, prices))
    answer_lines(form, as_document(rows, prices), table, lambda style: report_lines(rows, prices, style))
    invalid = [f"{printable(each.file)}: {printable(each.problems[0])}" for each in results if each.problems]
    list_left_out(invalid)
    require_valid(invalid)
