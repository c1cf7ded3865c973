"""Commands for studies."""

from typing import Annotated

from sifmark.commands.definition import ENGINE, Argument, Format, Option, Plain, Strings, command
from sifmark.commands.definitions.main import Results
from sifmark.core.settings import Settings

StudyName = Annotated[str, Argument("A study: its name, or the path of its file.", "STUDY", completes="study")]
Variant = Annotated[str, Option("A variant of the study, such as small.", "NAME")]
Systems = Annotated[
    Strings,
    Option("Only this system; with :IMAGE a new one, or another image for it. Repeatable.", "NAME[:IMAGE]"),
]
ResultsFolder = Annotated[str, Option("Folder of results; a study has a folder in it.", "FOLDER", completes="folder")]
Only = Annotated[
    Strings,
    Option("Only runs with these values: 'workload=resnet50 batch_size=64'. Repeatable.", "KEY=VALUE..."),
]


@command("study.list", example="study.list")
def list_studies(format_: Format = "table") -> None:
    """List the studies of sifmark, and those in ./studies."""
    from sifmark.commands.study.list import show_studies

    show_studies(format_)


@command("study.init", example="study.init --workloads resnet50 --systems a:cuda,b:rocm")
def init(
    workloads: Annotated[str, Option("Workloads, with commas.", "NAMES")],
    systems: Annotated[str, Option("Systems with their images, with commas.", "NAME:IMAGE,...")],
    output: Annotated[str, Option("The file to write. [default: standard output]", "FILE", "o", completes="file")] = "",
) -> None:
    """Write a study file to begin with."""
    from sifmark.commands.study.init import write_study

    write_study(workloads, systems, output)


@command("study.plan", ENGINE, example="study.plan quick --variant small")
def plan(
    settings: Settings,
    study: StudyName,
    variant: Variant = "",
    system: Systems = (),
    results: ResultsFolder = "results",
    only: Only = (),
    format_: Format = "table",
) -> None:
    """Show the runs of a study, their states, and what they take."""
    from pathlib import Path

    from sifmark.commands.study.plan import show_plan
    from sifmark.studies.plan import Request

    show_plan(Request(study, variant, tuple(system), Path(results), tuple(only)), settings, format_)


@command("study.run", ENGINE, example="study.run quick --system here:cpu")
def run(
    settings: Settings,
    study: StudyName,
    variant: Variant = "",
    system: Systems = (),
    results: ResultsFolder = "results",
    only: Only = (),
    on: Annotated[str, Option("Where: on this machine, or as jobs of Slurm.", choices=("here", "slurm"))] = "here",
    retry: Annotated[
        str, Option("Do runs again that failed, or that failed in one way: failed, crashed.", "STATE")
    ] = "",
    budget: Annotated[
        str, Option("Do the most informative runs first, and none that would take longer in all: 2h, 1h30m.", "TIME")
    ] = "",
    jobs: Annotated[
        int, Option("Runs side by side. [default: one for each device; 1 on a CPU]", "N", short="j", least=1)
    ] = 0,
    dry_run: Annotated[bool, Option("Print commands or job scripts only.", short="n")] = False,
    plain: Plain = False,
    format_: Format = "table",
) -> None:
    """Run what is missing of a study."""
    from pathlib import Path

    from sifmark.commands.study.run import RunOptions, run_study
    from sifmark.studies.plan import Request

    request = Request(study, variant, tuple(system), Path(results), tuple(only), retry)
    run_study(request, RunOptions(on, dry_run, budget, jobs, plain), settings, format_)


@command("study.status", ENGINE, example="study.status quick --system here:cpu")
def status(
    settings: Settings,
    study: StudyName,
    variant: Variant = "",
    system: Systems = (),
    results: ResultsFolder = "results",
    only: Only = (),
    watch: Annotated[bool, Option("Show it again every few seconds, until all is done or Ctrl-C.")] = False,
    format_: Format = "table",
) -> None:
    """Show which runs of a study are done, failed or missing."""
    from pathlib import Path

    from sifmark.commands.study.status import show_status
    from sifmark.studies.plan import Request

    show_status(Request(study, variant, tuple(system), Path(results), tuple(only)), settings, format_, watch)


@command("study.export", ENGINE, example="study.export quick --variant small --format shell")
def export(
    settings: Settings,
    study: StudyName,
    format_: Annotated[
        str,
        Option("Form of the files.", choices=("reframe", "jube", "sbatch", "shell")),
    ] = "shell",
    output: Annotated[
        str, Option("Folder for the files. [default: STUDY-FORMAT]", "FOLDER", short="o", completes="folder")
    ] = "",
    variant: Variant = "",
    system: Systems = (),
    results: ResultsFolder = "results",
    only: Only = (),
) -> None:
    """Write a study for ReFrame, JUBE, Slurm or a shell."""
    from pathlib import Path

    from sifmark.commands.study.export import export as export_study
    from sifmark.studies.plan import Request

    request = Request(study, variant, tuple(system), Path(results), tuple(only))
    export_study(request, format_, output, settings)


@command("study.archive", ENGINE, example="study.archive quick --variant small")
def archive(
    settings: Settings,
    study: StudyName,
    output: Annotated[
        str, Option("The archive to write. [default: STUDY.tar.gz]", "FILE", short="o", completes="file")
    ] = "",
    variant: Variant = "",
    system: Systems = (),
    results: ResultsFolder = "results",
    format_: Format = "table",
) -> None:
    """Pack a study, its results and their evidence into a file."""
    from pathlib import Path

    from sifmark.commands.study.archive import archive as archive_study
    from sifmark.studies.plan import Request

    archive_study(Request(study, variant, tuple(system), Path(results)), output, settings, format_)


@command("study.baseline", example="study.baseline nightly results/")
def baseline(
    settings: Settings,
    name: Annotated[str, Argument("Name of the baseline.", "NAME")] = "",
    paths: Annotated[
        Strings, Argument("Result files, folders of them, or quoted globs.", "RESULTS", completes="file")
    ] = (),
    study: Annotated[str, Option("Take the results of this study.", "STUDY")] = "",
    results: ResultsFolder = "results",
    force: Annotated[bool, Option("Replace a baseline of this name.")] = False,
    list_: Annotated[bool, Option("Show which baselines are kept.")] = False,
    format_: Format = "table",
) -> None:
    """Keep results as a baseline for compare --against."""
    from sifmark.commands.study.baseline import BaselineOptions, keep_baseline, list_baselines

    if list_:
        list_baselines(settings.baselines, format_)
    else:
        keep_baseline(BaselineOptions(name, tuple(paths), study, results, force), settings.baselines, format_)


@command("study.history", example="study.history results/ --since 14d --fail-on-change")
def history(
    paths: Results,
    metric: Annotated[str, Option("The metric. [default: throughput]", "METRIC")] = "throughput",
    by: Annotated[str, Option("More fields that separate series, with commas.", "FIELDS")] = "",
    since: Annotated[str, Option("Count changes from this day on: a date, or 14d for the last 14 days.", "DAY")] = "",
    least_change: Annotated[
        float, Option("The smallest change that matters, as a fraction. [default: 0.02]", "FRACTION")
    ] = 0.02,
    fail_on_change: Annotated[bool, Option("Exit with 7 if there is a change; for pipelines and cron.")] = False,
    format_: Format = "table",
) -> None:
    """Show when performance changed, and what changed with it."""
    from sifmark.commands.study.history import HistoryOptions, show_history

    show_history(HistoryOptions(tuple(paths), metric, by, since, least_change, fail_on_change, format_))
