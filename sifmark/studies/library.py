"""Studies for programs: load, plan and run one, or submit it to Slurm, as the commands study.plan and study.run do."""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.core.console import counted, status, step, warn
from sifmark.core.settings import Settings, load_settings
from sifmark.engines.progress import ProgressPipe
from sifmark.studies.estimate import Estimates
from sifmark.studies.folder import claim_folder, take_over
from sifmark.studies.overview import Labels
from sifmark.studies.plan import Request, plan_study
from sifmark.studies.running.budget import parse_budget
from sifmark.studies.running.execute import run_argv
from sifmark.studies.running.local import Selection, prepare_systems, require_images, select
from sifmark.studies.running.runner import Ended, Progress, StudyRunner
from sifmark.studies.running.shares import Shares
from sifmark.studies.states import retried
from sifmark.studies.study import Cause, PlannedRun, RunState, StudyPlan

if TYPE_CHECKING:
    from sifmark.studies.slurm.submit import SubmittedArray

_SHARES = "shares"  # folder of the cache with the locks of this machine's devices and processors


@dataclass(frozen=True)
class StudyOutcome:
    """What became of the runs of a study: those that were chosen now, and the others by what was known before."""

    plan: StudyPlan
    selection: Selection
    progress: Progress

    @property
    def failed(self) -> list[tuple[PlannedRun, str]]:
        """The runs that did not complete, now or earlier, with the reason of each."""
        chosen = {planned.key for planned in self.selection.runs}
        incomplete = [each for each in self.progress.ended if each.outcome.state is not RunState.DONE]
        earlier = [each for each in self.plan.runs if each.state is RunState.FAILED and each.key not in chosen]
        return [(each.planned, str(each.outcome.reason)) for each in incomplete] + [
            (each, str(each.reason)) for each in earlier
        ]

    def document(self) -> dict[str, Any]:
        """Return the counts as programs read them."""
        chosen = {planned.key for planned in self.selection.runs}
        states = Counter(ended.outcome.state for ended in self.progress.ended)
        before = Counter(planned.state for planned in self.plan.runs if planned.key not in chosen)
        return {
            "study": self.plan.study.name,
            "folder": str(self.plan.folder),
            "done": before[RunState.DONE] + states[RunState.DONE],
            "failed": before[RunState.FAILED] + states[RunState.FAILED],
            "interrupted": states[RunState.TO_DO],
            "left_out": len(self.progress.left_out) + self.selection.multi_node,
            "runs": len(self.plan.runs),
        }


@dataclass(frozen=True)
class RunCommand:
    """A run that is to do: its name in words, and the command line of its image."""

    planned: PlannedRun
    label: str
    argv: list[str]


class Watcher:
    """Is told how the runs of a study go. This one shows nothing."""

    def watching(
        self,
        plan: StudyPlan,  # noqa: ARG002 - here and below: for those that show something
        runs: Sequence[PlannedRun],  # noqa: ARG002
        side_by_side: int,  # noqa: ARG002
        estimates: Estimates,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Return a context in which the runs are done, `side_by_side` of them at once."""
        return nullcontext()

    def report(self, ended: Ended, progress: Progress) -> None:
        """Take a run that has ended."""

    def watch(self, progress: Progress) -> None:
        """Take what is in progress, again and again."""

    def pipe_for(self, planned: PlannedRun) -> ProgressPipe | None:  # noqa: ARG002 - for those that show it
        """Return the pipe by which a run is to report its progress, if it is shown."""
        return None


class Study:
    """A study on chosen systems, with the folder of its results."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self.request, self.settings = request, settings

    def __repr__(self) -> str:
        return f"<Study {self.request.study}{f' ({self.request.variant})' if self.request.variant else ''}>"

    @classmethod
    def load(
        cls,
        study: str | Path,
        variant: str = "",
        *,
        systems: Sequence[str] = (),
        results: str | Path = "results",
        only: Sequence[str] = (),
        retry: str = "",
        settings: Settings | None = None,
    ) -> "Study":
        """Return a study by its name or file; `systems` are NAME or NAME:IMAGE, `only` conditions such as `seed=1`.

        `retry` is how runs failed that are to be done again: `failed`, or one way such as `crashed`. Raises
        SifmarkError naming what is wrong with the file.
        """
        from sifmark.studies.load import load_study

        load_study(str(study), variant)
        request = Request(str(study), variant, tuple(systems), Path(results), tuple(only), retry)
        return cls(request, settings or load_settings())

    def plan(self) -> StudyPlan:
        """Return all runs with their states and what those to do will take. Raises SifmarkError."""
        return plan_study(self.request, self.settings)

    def commands(self, *, budget: str = "") -> list[RunCommand]:
        """Return what `run` would do, in its order. Nothing is started.

        Runs whose image is not here are left out with a warning. Raises SifmarkError.
        """
        plan, selection = self._select(budget)
        systems = prepare_systems(plan, selection.runs, self.settings, jobs=1)
        labels = Labels(plan)
        return [
            RunCommand(each, labels.of(each), run_argv(each, systems[each.run.system][0])) for each in selection.runs
        ]

    def run(self, *, budget: str = "", jobs: int = 0, watcher: Watcher | None = None) -> StudyOutcome:
        """Do on this machine what is missing; a failed run is an outcome. Raises SifmarkError for what ends the study.

        `budget` is a time such as 2h, which the most informative runs may fill; `jobs` are the runs side by side, 0
        for one on each device.
        """
        watcher = watcher or Watcher()
        self._take_over()
        plan, selection = self._select(budget, images_required=True)
        claim_folder(plan.study, self.request.results)
        with step(f"look at the images of {plan.study.name}"):
            systems = prepare_systems(plan, selection.runs, self.settings, jobs)
        status(f"{plan.study.name}: {counted(len(selection.runs), 'run')} to do, results in {plan.folder}")
        side_by_side = max((machine.jobs for _, machine in systems.values()), default=1)
        shares, estimates, seconds = Shares(self.settings.cache / _SHARES), Estimates(), _seconds(budget)
        with watcher.watching(plan, selection.runs, side_by_side, estimates):
            runner = StudyRunner(systems, shares, watcher.report, watcher.watch, estimates, seconds, watcher.pipe_for)
            progress = runner.do(selection.runs)
        return StudyOutcome(plan, selection, progress)

    def submit(self, *, dry_run: bool = False) -> "tuple[SubmittedArray, ...]":
        """Submit what is missing to Slurm, and return the job arrays; with `dry_run` only render their scripts.

        Raises SifmarkError, also in Slurm's own words.
        """
        from sifmark.studies.slurm.submit import submit_runs  # here: runs on this machine should not wait for it

        if not dry_run:
            self._take_over()
        plan = self.plan()
        _say_what_is_retried(plan, self.request.retry)
        if not dry_run:
            claim_folder(plan.study, self.request.results)
        arrays = submit_runs(plan, self.settings, dry_run)
        if not arrays:
            states = Counter(planned.state for planned in plan.runs)
            status(f"nothing to submit: {', '.join(f'{states[state]} {state}' for state in RunState if states[state])}")
        return arrays

    def _take_over(self) -> None:
        """Let a variant have the results that the whole study has of its runs."""
        if self.request.variant:
            plan = plan_study(self.request, self.settings)
            if count := take_over(plan):
                status(f"{plan.study.name}: {counted(count, 'result')} copied from the whole study, of the same runs")

    def _select(self, budget: str, images_required: bool = False) -> tuple[StudyPlan, Selection]:
        """Return the plan and the runs of it that this machine is to do, and report why others are left out."""
        seconds = _seconds(budget)
        plan = self.plan()
        _say_what_is_special(plan, self.request.retry)
        selection = select(plan, seconds is not None)
        if images_required:
            require_images(plan, selection, named=bool(self.request.systems))
        for name in selection.missing_images:
            warn(f"system {name} is left out: {plan.image_reasons.get(name, 'its image is not here')}")
        if several := selection.multi_node:
            needs = counted(several, "run needs", "runs need")
            warn(f"{needs} several nodes, and {'is' if several == 1 else 'are'} left out; for Slurm: --on slurm")
        return plan, selection


def _say_what_is_special(plan: StudyPlan, retry: str) -> None:
    """Say which runs are to do again, which are left to their jobs, and which were submitted elsewhere."""
    _say_what_is_retried(plan, retry)
    if jobs := [each for each in plan.runs if each.job]:
        status(f"{counted(len(jobs), 'run is', 'runs are')} left to jobs, which wait or run; see study.status")
    if elsewhere := [each for each in plan.runs if each.reason.cause == Cause.ELSEWHERE]:
        count = counted(len(elsewhere), "run is", "runs are")
        warn(
            f"{count} done here that {'was' if len(elsewhere) == 1 else 'were'} submitted: {elsewhere[0].reason.detail}"
        )


def _say_what_is_retried(plan: StudyPlan, retry: str) -> None:
    if again := retried(plan.runs):
        status(f"again: {again}; what they left before is kept in .earlier")
    elif retry:
        kinds = dict.fromkeys(each.reason.cause for each in plan.runs if each.state is RunState.FAILED)
        warn(f"--retry {retry}: no run failed so; others are {', '.join(kinds)}" if kinds else "--retry: no run failed")


def _seconds(budget: str) -> float | None:
    return parse_budget(budget) if budget else None
