"""The study.run command: do the runs of a study that are not done, here or as jobs of Slurm."""

import shlex
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

from sifmark.commands.answers import Table, answer
from sifmark.commands.study.display import Show, StudyDisplay
from sifmark.core.console import can_draw, output, status, step, warn
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.settings import Settings
from sifmark.studies.folder import claim_folder
from sifmark.studies.overview import Labels
from sifmark.studies.plan import Request
from sifmark.studies.running.budget import Estimates, parse_budget
from sifmark.studies.running.execute import run_argv
from sifmark.studies.running.local import Selection, prepare_systems, select
from sifmark.studies.running.runner import Ended, PipeFor, Progress, StudyRunner, no_pipe
from sifmark.studies.running.shares import Shares
from sifmark.studies.running.states import read_states
from sifmark.studies.slurm.jobs import JobArray
from sifmark.studies.slurm.submit import submit_runs
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

HERE, SLURM = PLACES = ("here", "slurm")
_SHARES = "shares"  # folder of the cache with the locks of this machine's devices and processors


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a study are to be done."""

    on: str = HERE
    dry_run: bool = False
    budget: str = ""
    jobs: int = 0
    plain: bool = False


def run_study(request: Request, options: RunOptions, settings: Settings, form: str) -> None:
    """Do the runs of a study that are to do, or show them. Raises SifmarkError, also if one failed."""
    if options.on == SLURM:
        _submit(request, options, settings, form)
        return
    budget = parse_budget(options.budget) if options.budget else None
    states = read_states(request, settings)
    plan, selection = states.plan, select(states, budget is not None, named=bool(request.systems))
    _say_what_is_left_out(selection)
    if options.dry_run:
        _show(plan, selection, settings, form)
        return
    claim_folder(plan.study, request.results)
    progress = _do(plan, selection, settings, options, budget)
    _conclude(request, plan, selection, progress, form)


def _submit(request: Request, options: RunOptions, settings: Settings, form: str) -> None:
    if options.budget or options.jobs:
        cause = "--budget and --jobs are for runs on this machine"
        raise UsageError(cause, "leave them out with --on slurm", code="invalid-option")
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


def _show(plan: StudyPlan, selection: Selection, settings: Settings, form: str) -> None:
    """Print the runs that would be done, in their order, with their commands."""
    systems = prepare_systems(plan, selection.runs, settings, 1)
    labels = Labels(plan)
    columns = ("key", "run", "estimate", "command")
    rows = [
        (each.key, labels.of(each), each.seconds, shlex.join(run_argv(each, systems[each.run.system][0])))
        for each in selection.runs
    ]
    documents = [dict(zip(columns, row, strict=True)) for row in rows]

    def show() -> None:
        for key, label, _, command in rows:
            output(f"# {label}, {key}\n{command}")
        status(f"{len(rows)} runs")

    answer(form, documents, Table(columns, rows), show)


def _do(
    plan: StudyPlan, selection: Selection, settings: Settings, options: RunOptions, budget: float | None
) -> Progress:
    """Do the chosen runs. Raises SifmarkError for what ends the study."""
    with step(f"look at the images of {plan.study.name}"):
        systems = prepare_systems(plan, selection.runs, settings, options.jobs)
    total, side_by_side = len(selection.runs), max((machine.jobs for _, machine in systems.values()), default=1)
    status(f"{plan.study.name}: {total} runs to do, results in {plan.folder}")
    estimates = Estimates()
    with _shown(f"run {plan.study.name}", options.plain) as (show, pipe_for):
        display = StudyDisplay(Labels(plan), total, side_by_side, estimates, show)
        shares = Shares(settings.cache / _SHARES)
        runner = StudyRunner(systems, shares, display.report, display.watch, estimates, budget, pipe_for)
        try:
            return runner.do(selection.runs)
        except (KeyboardInterrupt, SystemExit):
            status(f"  stopped after {display.count} of {total} runs; the same command goes on with the others")
            raise


@contextmanager
def _shown(title: str, plain: bool) -> Iterator[tuple[Show, PipeFor]]:
    """Yield what shows how far the study is, as graphs or in a line, and what its runs report by."""
    if plain or not can_draw():
        with step(title) as current:
            yield (
                lambda headline, _done, _total, labels: current.detail("; ".join([headline, *labels.values()])),
                no_pipe,
            )
        return
    from sifmark.live.study import drawn_study  # here: without a terminal nothing should wait for it

    with step(title, drawn=True), drawn_study(title) as view:
        yield view.show, view.pipe_for


def _conclude(request: Request, plan: StudyPlan, selection: Selection, progress: Progress, form: str) -> None:
    """Print what became of the runs. Raises SifmarkError if one failed, now or earlier."""
    states = Counter(ended.outcome.state for ended in progress.ended)
    chosen = {planned.key for planned in selection.runs}
    before = Counter(planned.state for planned in plan.runs if planned.key not in chosen)
    document = {
        "study": plan.study.name,
        "folder": str(plan.folder),
        "done": before[RunState.DONE] + states[RunState.DONE],
        "failed": before[RunState.FAILED] + states[RunState.FAILED],
        "interrupted": states[RunState.TO_DO],
        "left_out": len(progress.left_out) + selection.multi_node,
        "runs": len(plan.runs),
    }
    answer(form, document, Table(tuple(document), [tuple(document.values())]))
    if progress.left_out:
        status(f"{len(progress.left_out)} runs would not have fitted into the budget")
    failed = [(ended.planned, ended.outcome.reason) for ended in progress.ended if _is_incomplete(ended)]
    failed += [(planned, planned.reason) for planned in plan.runs if _failed_earlier(planned, chosen)]
    if failed:
        first, reason = failed[0]
        cause = f"{len(failed)} runs did not complete; the first: {Labels(plan).of(first)}: {reason}"
        see, again = request.command("study.status"), request.command("study.run", "--retry", "failed")
        raise SifmarkError(cause, f"see all: {see}; do them again: {again}", code="study-incomplete")


def _is_incomplete(ended: Ended) -> bool:
    return ended.outcome.state is not RunState.DONE


def _failed_earlier(planned: PlannedRun, chosen: Set[str]) -> bool:
    return planned.state is RunState.FAILED and planned.key not in chosen
