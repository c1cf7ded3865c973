"""Studies for programs: load, plan and run one, as the commands study.plan and study.run do."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sifmark.core.settings import Settings, load_settings
from sifmark.studies.folder import claim_folder
from sifmark.studies.plan import Request
from sifmark.studies.running.budget import Estimates, parse_budget
from sifmark.studies.running.execute import ReadySystem
from sifmark.studies.running.local import Selection, prepare_systems, select
from sifmark.studies.running.runner import Ended, PipeFor, Progress, StudyRunner, no_pipe
from sifmark.studies.running.shares import Machine, Shares
from sifmark.studies.running.states import read_states
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

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
        return [(each.planned, each.outcome.reason) for each in incomplete] + [(each, each.reason) for each in earlier]

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
        settings: Settings | None = None,
    ) -> "Study":
        """Return a study by its name or file; `systems` are NAME or NAME:IMAGE, `only` conditions such as `seed=1`.

        Raises SifmarkError naming what is wrong with the file.
        """
        from sifmark.studies.load import load_study

        load_study(str(study), variant)
        request = Request(str(study), variant, tuple(systems), Path(results), tuple(only))
        return cls(request, settings or load_settings())

    def plan(self) -> StudyPlan:
        """Return all runs with their states and what those to do will take. Raises SifmarkError."""
        return read_states(self.request, self.settings).plan

    def run(self, *, budget: str = "", jobs: int = 0) -> StudyOutcome:
        """Do on this machine what is missing; a failed run is an outcome. Raises SifmarkError for what ends the study.

        `budget` is a time such as 2h, which the most informative runs may fill; `jobs` are the runs side by side, 0
        for one on each device.
        """
        seconds = parse_budget(budget) if budget else None
        states = read_states(self.request, self.settings)
        selection = select(states, seconds is not None, named=bool(self.request.systems))
        claim_folder(states.plan.study, self.request.results)
        systems = prepare_systems(states.plan, selection.runs, self.settings, jobs)
        progress = study_runner(systems, self.settings, budget=seconds).do(selection.runs)
        return StudyOutcome(states.plan, selection, progress)


def _ignore(*_progress: Any) -> None:
    """Show nothing."""


def study_runner(
    systems: Mapping[str, tuple[ReadySystem, Machine]],
    settings: Settings,
    *,
    report: Callable[[Ended, Progress], None] = _ignore,
    watch: Callable[[Progress], None] = _ignore,
    estimates: Estimates | None = None,
    budget: float | None = None,
    pipe_for: PipeFor = no_pipe,
) -> StudyRunner:
    """Return a runner on systems that are ready, which shares this machine's devices with other studies."""
    shares = Shares(settings.cache / _SHARES)
    return StudyRunner(systems, shares, report, watch, estimates or Estimates(), budget, pipe_for)
