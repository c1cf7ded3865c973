"""Commands for studies: list, init, plan, run, status, export, archive, baseline."""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, answer_record, list_left_out
from sifmark.core.console import comma_separated, counted, printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import human_size, write_text
from sifmark.core.terminal import output, output_table, status, step, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.studies.history.baseline import Baseline, NewBaseline
    from sifmark.studies.library import Study as LoadedStudy
    from sifmark.studies.library import StudyOutcome
    from sifmark.studies.study import Study, StudyPlan

HERE, SLURM = PLACES = ("here", "slurm")
INTERVAL = 5.0  # seconds between two looks of --watch
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"  # ECMA-48: cursor to the top, erase the screen and what was above
# What to do with exported files, by format.
_NEXT = {
    "reframe": "run it with your site's settings: reframe -C SETTINGS.py -c {file} --run",
    "jube": "run it: jube run {file}",
    "shell": "run it: {file}",
}
_SUBMIT = "read them, then submit them: {file}"

only_option = cli.option(
    "--only",
    "Only runs with these values: 'workload=resnet50 batch_size=64'. Repeatable.",
    "KEY=VALUE...",
    multiple=True,
)


def study_options(body: cli.Body) -> cli.Body:
    """Add what says which study is meant, on which systems, and where its results are."""
    systems = "Only this system; with :IMAGE a new one, or another image for it. Repeatable."
    for add in (
        cli.engine_option,
        cli.results_folder_option,
        cli.option("--system", systems, "NAME[:IMAGE]", multiple=True),
        cli.variant_option,
        cli.argument("study", "A study: its name, or the path of its file.", "STUDY"),
    ):
        body = add(body)
    return body


def _study(
    settings: Settings,
    study: str,
    variant: str = "",
    system: Sequence[str] = (),
    results: str = "results",
    only: Sequence[str] = (),
    retry: str = "",
) -> LoadedStudy:
    from sifmark.studies.library import Study
    from sifmark.studies.plan import Request

    return Study(Request(study, variant, tuple(system), Path(results), tuple(only), retry), settings)


@cli.command("study.list", example="study.list")
@cli.format_option
def show_studies(form: str = TABLE) -> None:
    """List the studies of sifmark, and those in ./studies."""
    from sifmark.studies.load import load_study, variant_names
    from sifmark.studies.study_file import study_files

    rows = []
    for name, file in sorted(study_files().items()):
        try:
            rows.append(_study_row(load_study(str(file)), variant_names(str(file))))
        except SifmarkError as error:
            warn(f"{name} is left out: {error}")
    columns = ("study", "title", "runs", "systems", "variants")
    cells = [[row["study"], row["title"], row["runs"], len(row["systems"]), row["variants"]] for row in rows]
    answer(form, {"studies": rows}, Table(columns, cells))
    if form == TABLE:
        status("The runs of one: sifmark study.plan STUDY --system NAME:IMAGE, or --variant small")


def _study_row(study: Study, variants: tuple[str, ...]) -> dict[str, Any]:
    from sifmark.studies.expand import cells_of

    return {
        "study": study.name,
        "title": study.title,
        "file": str(study.file),
        "questions": list(study.questions),
        "source": study.source.url if study.source else None,
        "runs": sum(sum(1 for _ in cells_of(group)) * group.repeats for group in study.groups),  # on one system
        "systems": [system.name for system in study.systems],
        "variants": list(variants),
        "outputs": [output.name for output in study.outputs],
        "cannot_repeat": [{"part": each.part, "reason": each.reason} for each in study.limitations],
    }


@cli.command("study.init", example="study.init --workloads resnet50 --systems a:cuda,b:rocm")
@cli.option("--workloads", "Workloads, with commas.", "NAMES", required=True)
@cli.option("--systems", "Systems with their images, with commas.", "NAME:IMAGE,...", required=True)
@cli.output_option("The file to write. [default: standard output]", "FILE", "file")
def init(workloads: str, systems: str, file: str = "") -> None:
    """Write a study file to begin with."""
    from sifmark.studies.study_file import require_name
    from sifmark.studies.template import study_template

    text = study_template(comma_separated(workloads), comma_separated(systems), file or "study.toml")
    if not file:
        output(text.rstrip("\n"))
        return
    require_name(Path(file))
    if Path(file).exists():
        raise UsageError(f"{file} exists already", "name another file, or remove it", code="invalid-option")
    write_text(Path(file), text)
    status(f"{file}. See its runs: sifmark study.plan {shlex.quote(file)}")


@cli.command("study.plan", example="study.plan quick --variant small")
@study_options
@only_option
@cli.format_option
def plan(settings: Settings, form: str = TABLE, **request: Any) -> None:
    """Show the runs of a study, their states, and what they take."""
    from sifmark.commands.study_views import show_plan

    show_plan(_study(settings, **request).plan(), form)


@cli.command("study.run", example="study.run quick --system here:cpu")
@study_options
@only_option
@cli.option("--on", "Where: on this machine, or as jobs of Slurm.", choices=PLACES)
@cli.option("--retry", "Do runs again that failed, or that failed in one way: failed, crashed.", "STATE")
@cli.option(
    "--budget", "Do the most informative runs first, and none that would take longer in all: 2h, 1h30m.", "TIME"
)
@cli.option("--jobs", "Runs side by side. [default: one for each device; 1 on a CPU]", "N", short="-j", least=1)
@cli.wait_idle_option
@cli.flag("--dry-run", "Print commands or job scripts only.", "-n")
@cli.plain_option
@cli.format_option
def run(
    settings: Settings,
    on: str = HERE,
    budget: str = "",
    jobs: int = 0,
    wait_idle: str = "",
    dry_run: bool = False,
    plain: bool = False,
    form: str = TABLE,
    **request: Any,
) -> None:
    """Run what is missing of a study."""
    from sifmark.commands.study_views import StudyDisplay, show_arrays, show_commands
    from sifmark.doctor.load import LoadSample, hardware_here, report_load, wait_seconds

    study = _study(settings, **request)
    if on == SLURM:
        if budget or jobs or wait_idle:
            cause = "--budget, --jobs and --wait-idle are for runs on this machine"
            raise UsageError(cause, "leave them out with --on slurm", code="invalid-option")
        show_arrays(study.submit(dry_run=dry_run), dry_run, form)
        if not dry_run:
            status(f"see how far they are: {study.request.command('study.status')}")
    elif dry_run:
        show_commands(study.commands(budget=budget), form)
    else:
        report_load(LoadSample(), hardware_here(), wait_seconds(wait_idle))
        outcome = study.run(budget=budget, jobs=jobs, watcher=StudyDisplay(plain))
        answer_record(form, outcome.document())
        _conclude(study, outcome)


def _conclude(study: LoadedStudy, outcome: StudyOutcome) -> None:
    """Raise SifmarkError if a run failed, now or earlier."""
    from sifmark.studies.overview import Labels

    if left_out := len(outcome.progress.left_out):
        status(f"{counted(left_out, 'run')} would not have fitted into the budget")
    if failed := outcome.failed:
        first, reason = failed[0]
        label = Labels(outcome.plan).of(first)
        cause = f"{counted(len(failed), 'run')} did not complete; the first: {label}: {reason}"
        command = study.request.command
        remedy = f"see all: {command('study.status')}; do them again: {command('study.run', '--retry', 'failed')}"
        raise SifmarkError(cause, remedy, code="study-incomplete")


@cli.command("study.status", example="study.status quick --system here:cpu")
@study_options
@only_option
@cli.flag("--watch", "Show it again every few seconds, until all is done or Ctrl-C.")
@cli.format_option
def study_status(settings: Settings, watch: bool = False, form: str = TABLE, **request: Any) -> None:
    """Show which runs of a study are done, failed or missing."""
    from sifmark.commands.study_views import has_ended, show_status

    if watch and form != TABLE:
        cause = f"--watch shows tables, not {form}"
        raise UsageError(cause, "leave out --watch or --format", code="invalid-option")
    study = _study(settings, **request)
    try:
        while True:
            plan = study.plan()
            if watch and sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            show_status(plan, form)
            sys.stdout.flush()
            if not watch or has_ended(plan):
                return
            if sys.stdout.isatty():
                status(f"again every {INTERVAL:g} s; Ctrl-C ends this view, and no run")
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        if not watch:
            raise


@cli.command("study.export", example="study.export quick --variant small --format shell")
@study_options
@only_option
@cli.option("--format", "Form of the files.", name="target", choices=("reframe", "jube", "sbatch", "shell"))
@cli.output_option("Folder for the files. [default: STUDY-FORMAT]", "FOLDER", "place")
def export(settings: Settings, target: str = "shell", place: str = "", **request: Any) -> None:
    """Write a study for ReFrame, JUBE, Slurm or a shell."""
    from sifmark.studies.exports.export import export_study

    plan = _study(settings, **request).plan()
    folder = Path(place or f"{plan.study.name}-{target}")
    if target == "shell":
        _warn_of_missing_images(plan)
    files = export_study(plan, target, folder, settings)
    for path in files:
        if not path.name.startswith("."):
            output(printable(str(path)))
    first = files[0] if target in _NEXT else files[-1]
    named = shlex.quote(str(first.absolute() if target == "shell" else first))
    status(_NEXT.get(target, _SUBMIT).format(file=printable(named)))


def _warn_of_missing_images(plan: StudyPlan) -> None:
    """Say that results get other names once the image is here: these have its ID."""
    for name, identity in plan.images.items():
        if not identity:
            reason = plan.image_reasons.get(name, "the image is not here")
            warn(f"{name}: {reason}; then export again, or study.plan does not find the results of this script")


@cli.command("study.archive", example="study.archive quick --variant small")
@study_options
@cli.output_option("The archive to write. [default: STUDY.tar.gz]", "FILE", "target")
@cli.format_option
def archive(settings: Settings, target: str = "", form: str = TABLE, **request: Any) -> None:
    """Pack a study, its results and their evidence into a file."""
    from sifmark.results.archive import SUFFIX
    from sifmark.studies.exports.archive import archive_study
    from sifmark.studies.study import RunState

    plan = _study(settings, **request).plan()
    file = Path(target or f"{plan.study.name}{SUFFIX}")
    states = Counter(planned.state for planned in plan.runs)
    if missing := states[RunState.TO_DO] + states[RunState.QUEUED] + states[RunState.RUNNING]:
        progress = f", {running} of them in progress" if (running := states[RunState.RUNNING]) else ""
        warn(f"without a result yet: {missing} of {counted(len(plan.runs), 'run')}{progress}")
    with step(f"archive {plan.study.name}"):
        manifest = archive_study(plan.study, plan.folder, file, settings)
    document = {"file": str(file), "size": file.stat().st_size, "manifest": manifest}
    kinds = Counter(entry["kind"] for entry in manifest["members"])

    def show() -> None:
        output(f"{printable(str(file))}: {human_size(file.stat().st_size)}")
        output(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
        output("results: " + ", ".join(f"{count} {state}" for state, count in sorted(manifest["states"].items())))

    answer(form, document, Table(("kind", "members"), list(kinds.items())), show)
    status(f"to check it elsewhere: sifmark results.validate {shlex.quote(printable(str(file)))}")


@cli.command("study.baseline", example="study.baseline nightly results/")
@cli.argument("name", "Name of the baseline.", "NAME", required=False)
@cli.results_argument(required=False)
@cli.option("--study", "Take the results of this study.", "STUDY")
@cli.variant_option
@cli.results_folder_option
@cli.flag("--force", "Replace a baseline of this name.")
@cli.flag("--list", "Show which baselines are kept.", "listed")
@cli.format_option
def baseline(
    settings: Settings,
    name: str = "",
    paths: Sequence[str] = (),
    study: str = "",
    variant: str = "",
    results: str = "results",
    force: bool = False,
    listed: bool = False,
    form: str = TABLE,
) -> None:
    """Keep results as a baseline for compare --against."""
    from sifmark.studies.history.baseline import baseline_names, make_baseline, read_baseline, write_baseline
    from sifmark.studies.load import result_paths

    folder = settings.baselines
    if listed:
        rows = [_baseline_summary(read_baseline(folder, name), folder) for name in baseline_names(folder)]
        table = Table(list(rows[0]) if rows else ["name"], [list(row.values()) for row in rows])
        answer(form, rows, table, lambda: _show_baselines(rows, folder))
        return
    if not name:
        raise UsageError("what should the baseline be called?", "study.baseline NAME RESULTS", code="argument-missing")
    new = make_baseline(name, result_paths(paths, study, results, variant))
    file = write_baseline(new.baseline, folder, force)
    _report_baseline(new)
    document = _baseline_summary(new.baseline, folder) | {"excluded": len(new.excluded), "duplicates": new.duplicates}
    runs = f"{counted(len(new.baseline.repeats), 'run')} of {counted(new.baseline.rows, 'configuration')}"
    answer_record(form, document, lambda: output(f"kept: {printable(str(file))}, {runs}"))


def _baseline_summary(baseline: Baseline, folder: Path) -> dict[str, Any]:
    from sifmark.studies.history.baseline import baseline_file

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


def _show_baselines(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    if not rows:
        status(f"no baselines in {folder}; keep one: sifmark study.baseline NAME RESULTS")
        return
    cells = []
    for row in rows:
        days = row["first"] if row["first"] == row["last"] else f"{row['first']} to {row['last']}"
        cells.append([row["name"], row["created"][:10], str(row["rows"]), str(row["runs"]), days])
    output_table("name", "kept", "configurations", "runs", "measured", rows=cells)


def _report_baseline(new: NewBaseline) -> None:
    from sifmark.results.comparison.compatibility import NUMERICS
    from sifmark.results.comparison.tables import exclusion_text
    from sifmark.results.marks import DISTURBED, FEWEST_REPEATS

    list_left_out(map(exclusion_text, new.excluded), new.duplicates)
    runs = [repeat.observation for repeat in new.baseline.repeats]
    if few := new.baseline.rows_with_fewer(FEWEST_REPEATS):
        rows = counted(few, "configuration has", "configurations have")
        warn(f"{rows} fewer than {FEWEST_REPEATS} runs; a gate cannot decide about {'it' if few == 1 else 'them'}")
    spoilt = {mark.code for mark in DISTURBED}
    if bad := sum(not run.marks.isdisjoint(spoilt) for run in runs):
        cause = "disturbed by other work on the host, a stall or heat; a baseline should have no such run"
        warn(f"{counted(bad, 'run was', 'runs were')} {cause}")
    if unchecked := sum(run.fields[NUMERICS] != "passed" for run in runs):
        warn(f"{counted(unchecked, 'run')} had no correctness check")
