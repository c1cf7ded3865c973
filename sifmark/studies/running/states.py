"""States of a study's runs: from results, from records of failures without a result, and from Slurm."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sifmark.core.files import read_record, write_json
from sifmark.core.settings import Settings
from sifmark.studies.folder import put_away
from sifmark.studies.plan import FAILED, Request, plan_study
from sifmark.studies.slurm.states import job_states, merge
from sifmark.studies.study import PlannedRun, RunState, StudyPlan

_FAILURES = ".failures"  # a folder beside the results of a system, which those who read a folder of them leave out
NO_RESULT = "no_result"  # the kind of such failures, beside the states of results
_WITHOUT_RESULT = (FAILED, NO_RESULT)  # of --retry: what means runs that left no result


@dataclass(frozen=True)
class RunFailure:
    """What is known of a run that ended without a valid result."""

    cause: str
    exit_code: int | None  # None if nothing was started
    log: str  # relative to the folder of the system
    started: str  # UTC
    seconds: float

    @property
    def reason(self) -> str:
        """The cause with its kind, as those have it that results tell."""
        return f"{NO_RESULT}: {self.cause}"


def failure_file(result: Path) -> Path:
    """Return where the failure of a run with this result file is kept."""
    return result.parent / _FAILURES / result.name


def record_failure(result: Path, failure: RunFailure) -> None:
    """Keep what happened to a run."""
    write_json(failure_file(result), asdict(failure))


def failures_in(folder: Path) -> dict[str, RunFailure]:
    """Return the failures of a system's runs by the key of the run. Those that cannot be read are left out."""
    return dict(_read_all(folder / _FAILURES))


def clear_result(result: Path) -> None:
    """Put away the result and the failure of a run that is to be done again: it then has neither."""
    with suppress(FileNotFoundError):
        failure_file(result).unlink()
    if result.exists():
        put_away(result)


def _read_all(folder: Path) -> Iterator[tuple[str, RunFailure]]:
    for path in folder.glob("*.json"):
        if (failure := read_record(path, RunFailure)) is not None:
            yield path.stem, failure


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
