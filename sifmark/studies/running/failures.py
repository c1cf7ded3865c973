"""Runs that ended without a result: what happened is kept beside the results, until the run is done again."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from sifmark.core.files import write_json
from sifmark.studies.folder import put_away

_FAILURES = ".failures"  # a folder beside the results of a system, which those who read a folder of them leave out
NO_RESULT = "no_result"  # the kind of such failures, beside the states of results


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


def clear(result: Path) -> None:
    """Put away the result and the failure of a run that is to be done again: it then has neither."""
    with suppress(FileNotFoundError):
        failure_file(result).unlink()
    if result.exists():
        put_away(result)


def _read_all(folder: Path) -> Iterator[tuple[str, RunFailure]]:
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            yield path.stem, RunFailure(**json.loads(path.read_text()))
