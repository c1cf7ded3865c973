"""A named check with its outcome: what doctor, verify and trace report."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The outcome of a check. A skipped check is never a pass."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """One check: its name, its outcome, what it saw, and a remedy if there is something to do."""

    name: str
    status: Status
    detail: str
    remedy: str = ""
