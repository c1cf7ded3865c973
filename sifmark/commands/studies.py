"""Commands for studies: list, init, plan, run, status, export, archive, baseline."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands.answers import TABLE, Table, answer, answer_record, list_left_out, report_copies
from sifmark.commands.framework import (
    Body,
    argument,
    command,
    engine_option,
    flag,
    format_option,
    option,
    plain_option,
    results_argument,
    results_folder_option,
)
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import human_size, write_text
from sifmark.core.terminal import output, output_table, status, step, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.studies.history.baseline import Baseline, NewBaseline
    from sifmark.studies.library import StudyOutcome
    from sifmark.studies.plan import Request
    from sifmark.studies.running.local import Selection
    from sifmark.studies.running.runner import Progress
    from sifmark.studies.slurm.jobs import JobArray
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


only_option = option(
    "--only",
    "Only runs with these values: 'workload=resnet50 batch_size=64'. Repeatable.",
    "KEY=VALUE...",
    multiple=True,
)


def study_options(body: Body) -> Body:
    """Add what says which study is meant, on which systems, and where its results are."""
    systems = "Only this system; with :IMAGE a new one, or another image for it. Repeatable."
    for add in (
        engine_option,
        results_folder_option,
        option("--system", systems, "NAME[:IMAGE]", multiple=True),
        option("--variant", "A variant of the study, such as small.", "NAME"),
        argument("study", "A study: its name, or the path of its file.", "STUDY", completes="study"),
    ):
        body = add(body)
    return body


def _request(
    study: str,
    variant: str = "",
    system: Sequence[str] = (),
    results: str = "results",
    only: Sequence[str] = (),
    retry: str = "",
) -> Request:
    from sifmark.studies.plan import Request

    return Request(study, variant, tuple(system), Path(results), tuple(only), retry)


@command("study.list", example="study.list")
@format_option
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


@command("study.init", example="study.init --workloads resnet50 --systems a:cuda,b:rocm")
@option("--workloads", "Workloads, with commas.", "NAMES", required=True)
@option("--systems", "Systems with their images, with commas.", "NAME:IMAGE,...", required=True)
@option("--output", "The file to write. [default: standard output]", "FILE", short="-o", name="file", completes="file")
def init(workloads: str, systems: str, file: str = "") -> None:
    """Write a study file to begin with."""
    from sifmark.studies.template import study_template

    text = study_template(_words(workloads), _words(systems), file or "study.toml")
    if not file:
        output(text.rstrip("\n"))
        return
    if Path(file).exists():
        raise UsageError(f"{file} exists already", "name another file, or remove it", code="invalid-option")
    write_text(Path(file), text)
    status(f"{file}. See its runs: sifmark study.plan {file}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


@command("study.plan", example="study.plan quick --variant small")
@study_options
@only_option
@format_option
def plan(settings: Settings, form: str = TABLE, **request: Any) -> None:
    """Show the runs of a study, their states, and what they take."""
    from sifmark.commands.study_views import show_plan
    from sifmark.studies.plan import plan_study

    show_plan(plan_study(_request(**request), settings), form)


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a study are to be done."""

    on: str = HERE
    dry_run: bool = False
    budget: str = ""
    jobs: int = 0
    plain: bool = False


@command("study.run", example="study.run quick --system here:cpu")
@study_options
@only_option
@option("--on", "Where: on this machine, or as jobs of Slurm.", choices=PLACES)
@option("--retry", "Do runs again that failed, or that failed in one way: failed, crashed.", "STATE")
@option("--budget", "Do the most informative runs first, and none that would take longer in all: 2h, 1h30m.", "TIME")
@option("--jobs", "Runs side by side. [default: one for each device; 1 on a CPU]", "N", short="-j", least=1)
@flag("--dry-run", "Print commands or job scripts only.", "-n")
@plain_option
@format_option
def run(
    settings: Settings,
    on: str = HERE,
    budget: str = "",
    jobs: int = 0,
    dry_run: bool = False,
    plain: bool = False,
    form: str = TABLE,
    **request: Any,
) -> None:
    """Run what is missing of a study."""
    run_study(_request(**request), RunOptions(on, dry_run, budget, jobs, plain), settings, form)


def run_study(request: Request, options: RunOptions, settings: Settings, form: str) -> None:
    """Do the runs of a study that are to do, or show them. Raises SifmarkError, also if one failed."""
    from sifmark.commands.study_views import show_commands
    from sifmark.studies.folder import claim_folder
    from sifmark.studies.library import StudyOutcome
    from sifmark.studies.running.budget import parse_budget
    from sifmark.studies.running.local import select
    from sifmark.studies.running.states import read_states

    if options.on == SLURM:
        _submit(request, options, settings, form)
        return
    budget = parse_budget(options.budget) if options.budget else None
    states = read_states(request, settings)
    plan, selection = states.plan, select(states, budget is not None, named=bool(request.systems))
    _say_what_is_left_out(selection)
    if options.dry_run:
        show_commands(plan, selection, settings, form)
        return
    claim_folder(plan.study, request.results)
    outcome = StudyOutcome(plan, selection, _do(plan, selection, settings, options, budget))
    answer_record(form, outcome.document())
    _conclude(request, outcome)


def _submit(request: Request, options: RunOptions, settings: Settings, form: str) -> None:
    if options.budget or options.jobs:
        cause = "--budget and --jobs are for runs on this machine"
        raise UsageError(cause, "leave them out with --on slurm", code="invalid-option")
    from sifmark.studies.folder import claim_folder
    from sifmark.studies.running.states import read_states
    from sifmark.studies.slurm.submit import submit_runs

    plan = read_states(request, settings).plan
    if not options.dry_run:
        claim_folder(plan.study, request.results)
    arrays = submit_runs(plan, settings, options.dry_run)
    columns = ("job", "system", "runs", "nodes", "devices", "minutes", "script")
    rows = [(each.job or None, *_shape(each.array), str(each.array.script)) for each in arrays]
    documents = [dict(zip(columns, row, strict=True)) for row in rows]
    if not options.dry_run:
        answer(form, documents, Table(columns, rows), None if rows else lambda: _say_nothing_is_left(plan))
        status(f"see how far they are: {request.command('study.status')}")
        return
    documents = [{**document, "text": each.script} for document, each in zip(documents, arrays, strict=True)]
    answer(form, documents, Table(columns, rows), lambda: output("\n".join(each.script for each in arrays)))


def _say_nothing_is_left(plan: StudyPlan) -> None:
    from sifmark.studies.study import RunState

    states = Counter(planned.state for planned in plan.runs)
    status(f"nothing to submit: {', '.join(f'{states[state]} {state}' for state in RunState if states[state])}")


def _shape(array: JobArray) -> tuple[str, int, int, int, int]:
    shape = array.shape
    return shape.system, len(array.tasks), shape.nodes, shape.devices, shape.seconds // 60


def _say_what_is_left_out(selection: Selection) -> None:
    for name in selection.missing_images:
        warn(f"the image of system {name} is not here, and so its runs are left out")
    if selection.multi_node:
        warn(f"{selection.multi_node} runs need several nodes and are left out; Slurm can do them: --on slurm")


def _do(
    plan: StudyPlan, selection: Selection, settings: Settings, options: RunOptions, budget: float | None
) -> Progress:
    """Do the chosen runs. Raises SifmarkError for what ends the study."""
    from sifmark.commands.study_views import StudyDisplay, shown_progress
    from sifmark.studies.library import study_runner
    from sifmark.studies.overview import Labels
    from sifmark.studies.running.budget import Estimates
    from sifmark.studies.running.local import prepare_systems

    with step(f"look at the images of {plan.study.name}"):
        systems = prepare_systems(plan, selection.runs, settings, options.jobs)
    total, side_by_side = len(selection.runs), max((machine.jobs for _, machine in systems.values()), default=1)
    status(f"{plan.study.name}: {total} runs to do, results in {plan.folder}")
    estimates = Estimates()
    with shown_progress(f"run {plan.study.name}", options.plain) as (show, pipe_for):
        display = StudyDisplay(Labels(plan), total, side_by_side, estimates, show)
        runner = study_runner(
            systems,
            settings,
            report=display.report,
            watch=display.watch,
            estimates=estimates,
            budget=budget,
            pipe_for=pipe_for,
        )
        try:
            return runner.do(selection.runs)
        except (KeyboardInterrupt, SystemExit):
            status(f"  stopped after {display.count} of {total} runs; the same command goes on with the others")
            raise


def _conclude(request: Request, outcome: StudyOutcome) -> None:
    """Raise SifmarkError if a run failed, now or earlier."""
    from sifmark.studies.overview import Labels

    if outcome.progress.left_out:
        status(f"{len(outcome.progress.left_out)} runs would not have fitted into the budget")
    if failed := outcome.failed:
        first, reason = failed[0]
        cause = f"{len(failed)} runs did not complete; the first: {Labels(outcome.plan).of(first)}: {reason}"
        see, again = request.command("study.status"), request.command("study.run", "--retry", "failed")
        raise SifmarkError(cause, f"see all: {see}; do them again: {again}", code="study-incomplete")


@command("study.status", example="study.status quick --system here:cpu")
@study_options
@only_option
@flag("--watch", "Show it again every few seconds, until all is done or Ctrl-C.")
@format_option
def study_status(settings: Settings, watch: bool = False, form: str = TABLE, **request: Any) -> None:
    """Show which runs of a study are done, failed or missing."""
    show_status(_request(**request), settings, form, watch)


def show_status(request: Request, settings: Settings, form: str, watch: bool = False) -> None:
    """Print the states of a study's runs; with `watch` again and again, until all have ended or Ctrl-C is pressed."""
    from sifmark.commands import study_views
    from sifmark.studies.running.states import read_states

    if not watch:
        study_views.show_status(read_states(request, settings).plan, form)
        return
    if form != TABLE:
        cause = f"--watch shows tables, not {form}"
        raise UsageError(cause, "leave out --watch or --format", code="invalid-option")
    try:
        while True:
            plan = read_states(request, settings).plan
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            study_views.show_status(plan, form)
            sys.stdout.flush()
            if study_views.has_ended(plan):
                return
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return


@command("study.export", example="study.export quick --variant small --format shell")
@study_options
@only_option
@option(
    "--format",
    "Form of the files.",
    name="target",
    choices=("reframe", "jube", "sbatch", "shell"),
)
@option(
    "--output", "Folder for the files. [default: STUDY-FORMAT]", "FOLDER", short="-o", name="place", completes="folder"
)
def export(settings: Settings, target: str = "shell", place: str = "", **request: Any) -> None:
    """Write a study for ReFrame, JUBE, Slurm or a shell."""
    from sifmark.studies.exports.export import export_study
    from sifmark.studies.plan import plan_study

    plan = plan_study(_request(**request), settings)
    folder = Path(place or f"{plan.study.name}-{target}")
    if target == "shell":
        _warn_of_missing_images(plan)
    files = export_study(plan, target, folder, settings)
    for path in files:
        if not path.name.startswith("."):
            output(printable(str(path)))
    first = files[0] if target in _NEXT else files[-1]
    status(_NEXT.get(target, _SUBMIT).format(file=printable(str(first.absolute() if target == "shell" else first))))


def _warn_of_missing_images(plan: StudyPlan) -> None:
    """Say that results get other names once the image is here: these have its ID."""
    for name, identity in plan.images.items():
        if not identity:
            reason = plan.image_reasons.get(name, "the image is not here")
            warn(f"{name}: {reason}; then export again, or study.plan does not find the results of this script")


@command("study.archive", example="study.archive quick --variant small")
@study_options
@option(
    "--output",
    "The archive to write. [default: STUDY.tar.gz]",
    "FILE",
    short="-o",
    name="target",
    completes="file",
)
@format_option
def archive(settings: Settings, target: str = "", form: str = TABLE, **request: Any) -> None:
    """Pack a study, its results and their evidence into a file."""
    from sifmark.results.archive import SUFFIX
    from sifmark.studies.exports.archive import archive_study
    from sifmark.studies.plan import plan_study

    plan = plan_study(_request(**request), settings)
    file = Path(target or f"{plan.study.name}{SUFFIX}")
    _warn_of_missing(plan)
    with step(f"archive {plan.study.name}"):
        manifest = archive_study(plan.study, plan.folder, file, settings)
    document = {"file": str(file), "size": file.stat().st_size, "manifest": manifest}
    kinds = Counter(entry["kind"] for entry in manifest["members"])
    answer(
        form, document, Table(("kind", "members"), list(kinds.items())), lambda: _show_archive(file, manifest, kinds)
    )
    status(f"to check it elsewhere: sifmark results.validate {printable(str(file))}")


def _warn_of_missing(plan: StudyPlan) -> None:
    from sifmark.studies.study import RunState

    open_ = (RunState.TO_DO, RunState.QUEUED, RunState.RUNNING)
    missing = [planned for planned in plan.runs if planned.state in open_]
    if missing:
        running = sum(planned.state is RunState.RUNNING for planned in missing)
        progress = f", {running} of them in progress" if running else ""
        warn(f"{len(missing)} of {len(plan.runs)} runs have no result yet{progress}")


def _show_archive(file: Path, manifest: dict[str, Any], kinds: Counter[str]) -> None:
    output(f"{printable(str(file))}: {human_size(file.stat().st_size)}")
    output(", ".join(f"{count} {kind}" for kind, count in kinds.items()))
    output("results: " + ", ".join(f"{count} {state}" for state, count in sorted(manifest["states"].items())))


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
        from sifmark.studies.load import result_paths

        return result_paths(self.paths, self.study, self.results)


@command("study.baseline", example="study.baseline nightly results/")
@argument("name", "Name of the baseline.", "NAME", required=False)
@results_argument(required=False)
@option("--study", "Take the results of this study.", "STUDY")
@results_folder_option
@flag("--force", "Replace a baseline of this name.")
@flag("--list", "Show which baselines are kept.", "listed")
@format_option
def baseline(
    settings: Settings,
    name: str = "",
    paths: Sequence[str] = (),
    study: str = "",
    results: str = "results",
    force: bool = False,
    listed: bool = False,
    form: str = TABLE,
) -> None:
    """Keep results as a baseline for compare --against."""
    if listed:
        list_baselines(settings.baselines, form)
    else:
        keep_baseline(BaselineOptions(name, tuple(paths), study, results, force), settings.baselines, form)


def keep_baseline(options: BaselineOptions, folder: Path, form: str) -> None:
    """Keep a baseline and say what is in it. Raises SifmarkError."""
    if not options.name:
        raise UsageError("what should the baseline be called?", "study.baseline NAME RESULTS", code="argument-missing")
    from sifmark.studies.history.baseline import make_baseline, write_baseline

    new = make_baseline(options.name, options.sources())
    file = write_baseline(new.baseline, folder, options.force)
    _report_baseline(new)
    document = _baseline_summary(new.baseline, folder) | {"excluded": len(new.excluded), "duplicates": new.duplicates}
    rows = new.baseline.rows
    of_rows = f"{rows} configuration{'s' if rows > 1 else ''}"
    text = f"kept: {printable(str(file))}, {len(new.baseline.repeats)} runs of {of_rows}"
    answer_record(form, document, lambda: output(text))


def list_baselines(folder: Path, form: str) -> None:
    """Print the baselines of a folder."""
    from sifmark.studies.history.baseline import baseline_names, read_baseline

    rows = [_baseline_summary(read_baseline(folder, name), folder) for name in baseline_names(folder)]
    columns = list(rows[0]) if rows else ["name"]
    table = Table(columns, [list(row.values()) for row in rows])
    answer(form, rows, table, lambda: _show_baselines(rows, folder))


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
    output_table("name", "kept", "configurations", "runs", "measured", rows=map(_baseline_cells, rows))


def _baseline_cells(row: dict[str, Any]) -> list[str]:
    days = row["first"] if row["first"] == row["last"] else f"{row['first']} to {row['last']}"
    return [row["name"], row["created"][:10], str(row["rows"]), str(row["runs"]), days]


def _report_baseline(new: NewBaseline) -> None:
    from sifmark.results.comparison.compatibility import NUMERICS
    from sifmark.results.comparison.tables import exclusion_text
    from sifmark.results.marks import FEWEST_REPEATS

    list_left_out("excluded", list(map(exclusion_text, new.excluded)))
    report_copies(new.duplicates)
    if few := new.baseline.rows_with_fewer(FEWEST_REPEATS):
        warn(f"{few} configurations have fewer than {FEWEST_REPEATS} runs; a gate cannot decide about them")
    runs = [repeat.observation for repeat in new.baseline.repeats]
    if bad := sum(run.disturbed or run.stalled for run in runs):
        warn(f"{bad} runs were disturbed by other work on their hosts; a baseline should have none of them")
    if unchecked := sum(run.fields[NUMERICS] != "passed" for run in runs):
        warn(f"{unchecked} runs had no correctness check")
