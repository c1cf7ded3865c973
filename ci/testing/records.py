"""The record of each stage's last run: a file per stage below build/test-stages."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from stages import ROOT

FOLDER = ROOT / "build" / "test-stages"


@dataclass(frozen=True)
class Record:
    """How a stage's last run ended."""

    stage: str
    inputs: str  # the hash of everything that decides the outcome
    passed: bool
    seconds: float
    tests: int  # that passed
    skipped: int
    failed: int
    finished: str  # UTC


def load(stage: str) -> Record | None:
    """Return the record of a stage's last run, or None if there is no readable one."""
    try:
        return Record(**json.loads(_path(stage).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def save(record: Record) -> None:
    """Write a record, completely or not at all."""
    draft = _path(record.stage).with_suffix(".partial")
    draft.write_text(json.dumps(asdict(record), indent=2) + "\n")
    draft.replace(_path(record.stage))


def forget(stage: str) -> None:
    """Remove a stage's record, if there is one."""
    _path(stage).unlink(missing_ok=True)


def now() -> str:
    """Return the current time in the format of records."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def count(report: Path) -> tuple[int, int, int]:
    """Return how many tests of a JUnit report passed, were skipped, and failed."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))  # noqa: S314 - our own
    except (OSError, ElementTree.ParseError):
        return 0, 0, 0
    total, skipped, failures, errors = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "skipped", "failures", "errors")
    )
    return total - skipped - failures - errors, skipped, failures + errors


def _path(stage: str) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    return FOLDER / f"{stage}.json"
