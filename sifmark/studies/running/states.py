"""The states of a study's runs now: what has results, what failed without one, and what schedulers say of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sifmark.core.settings import Settings
from sifmark.studies.plan import FAILED, Request, plan_study
from sifmark.studies.running.failures import NO_RESULT, RunFailure, failures_in
from sifmark.studies.slurm.states import job_states, merge
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

_WITHOUT_RESULT = (FAILED, NO_RESULT)  # of --retry: what means runs that left no result


@dataclass(frozen=True, slots=True)
class StudyStates:
    """The plan of a study with all that is known of its runs."""

    plan: StudyPlan
    in_jobs: frozenset[str]  # keys of runs that a scheduler has started or will start


def read_states(request: Request, settings: Settings) -> StudyStates:
    """Return the plan of a study with all that is known of its runs. Raises SifmarkError as `plan_study`."""
    plan = with_failures(plan_study(request, settings), request.retry)
    jobs = job_states(plan.folder, [each.key for each in plan.runs if each.state is not RunState.DONE])
    runs = tuple(merge(plan.runs, jobs, retry=request.retry in _WITHOUT_RESULT))
    in_jobs = frozenset(key for key, job in jobs.items() if job.state in (RunState.QUEUED, RunState.RUNNING))
    return StudyStates(replace(plan, runs=runs), in_jobs)


def with_failures(plan: StudyPlan, retry: str = "") -> StudyPlan:
    """Return a plan that knows which runs ended without a result. Those that `retry` means are to do again."""
    folders = {planned.result.parent for planned in plan.runs}
    failures = {key: failure for folder in folders for key, failure in failures_in(folder).items()}
    again = retry in _WITHOUT_RESULT
    return replace(plan, runs=tuple(_with_failure(each, failures, again) for each in plan.runs))


def _with_failure(planned: PlannedRun, failures: Mapping[str, RunFailure], again: bool) -> PlannedRun:
    failure = failures.get(planned.key)
    if failure is None or planned.state is not RunState.TO_DO:
        return planned
    if again:
        return replace(planned, reason=f"again, after {failure.reason}")
    return replace(planned, state=RunState.FAILED, reason=failure.reason)
