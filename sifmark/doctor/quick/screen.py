"""The quick screening of a node: counters, tests, counters again, and what the fleet makes of it."""

import os
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sifmark.core.errors import GateError, UndecidedError
from sifmark.core.settings import Settings
from sifmark.doctor.load import answers_of, hardware_here
from sifmark.doctor.quick.counters import Counters, Rise, faults_since, read_counters
from sifmark.doctor.quick.fleet import (
    FEWEST,
    HEALTHY,
    LEAST,
    NAMED,
    UNKNOWN,
    Finding,
    add_screening,
    faults_of,
    findings,
    read_screenings,
)
from sifmark.doctor.quick.measure import COMPLETED, NodeImage, QuickOutcome, quick_tests, run_tests
from sifmark.studies.analysis.screening_report import LONGEST_REASON

LIMIT = 180.0  # seconds

Document = dict[str, Any]


@dataclass(frozen=True)
class QuickScreening:
    """What a quick screening of a node came to."""

    node: str
    image: str
    started: datetime
    seconds: float
    outcomes: tuple[QuickOutcome, ...]
    findings: tuple[Finding, ...]
    faults: tuple[str, ...]  # of tests
    rises: tuple[Rise, ...]
    counters: Counters

    @property
    def reasons(self) -> list[str]:
        """Why the node is named, the faults first; else what could not be judged."""
        return self._named or list(self._unknown())

    @property
    def verdict(self) -> str:
        """Whether the node is healthy, named, or not to be judged."""
        return NAMED if self._named else UNKNOWN if any(self._unknown()) else HEALTHY

    @property
    def _named(self) -> list[str]:
        slow = sorted((each for each in self.findings if each.worse), key=lambda each: -abs(each.distance or 0))
        return [*self.faults, *(str(each) for each in self.rises if each.fatal), *map(str, slow)]

    def _unknown(self) -> Iterator[str]:
        for outcome in self.outcomes:
            if outcome.state != COMPLETED:
                yield f"{outcome.test.name} {outcome.state}"
        if few := [each.earlier for each in self.findings if each.distance is None]:
            yield f"{min(few)} earlier screenings by this image where {FEWEST} are needed"

    def line(self) -> str:
        """Return the one line that says it all."""
        took = f"{self.seconds:.0f} s"
        if self.verdict == HEALTHY:
            fewest = min((each.earlier for each in self.findings), default=0)
            return (
                f"{self.node}: healthy: {len(self.findings)} measures of {len(self.outcomes)} tests are as in {fewest} "
                f"earlier screenings, and no fault was counted; {took}"
            )
        words = {NAMED: "named", UNKNOWN: "cannot tell"}[self.verdict]
        return f"{self.node}: {words}: {'; '.join(self.reasons)}; {took}"

    def drain_command(self) -> str:
        """Return the command by which an administrator takes the node out of service."""
        reason = f"reason=sifmark: {self.reasons[0]}"[:LONGEST_REASON]
        return shlex.join(["scontrol", "update", f"nodename={self.node}", "state=drain", reason])

    def require_healthy(self) -> None:
        """Raise GateError if the node is named, UndecidedError if it cannot be judged."""
        if self.verdict == NAMED:
            raise GateError(self.line(), "the table has all measures", code="nodes-named")
        if self.verdict == UNKNOWN:
            remedy = f"screen {FEWEST} nodes, or one {FEWEST} times, by the same image; or allow more --time-limit"
            raise UndecidedError(self.line(), remedy, code="nodes-not-compared")

    def document(self) -> Document:
        """Return the screening as it is kept: schemas/screenings-1.0.json."""
        return {
            "time": f"{self.started:%Y-%m-%dT%H:%M:%SZ}",
            "image": self.image,
            "verdict": self.verdict,
            "reasons": self.reasons,
            "seconds": round(self.seconds, 1),
            "tests": [_test(each) for each in self.outcomes],
            "counters": {name: dict(devices) for name, devices in self.counters.values.items()},
            "rises": list(map(str, self.rises)),
            "not_counted": list(self.counters.missing),
            "log_line": self.counters.sequence,
            "boot": self.counters.boot,
        }


def _test(outcome: QuickOutcome) -> Document:
    return {
        "name": outcome.test.name,
        "asked": list(outcome.test.words),
        "state": outcome.state,
        "message": outcome.message,
        "seconds": round(outcome.seconds, 1),
        "measures": {name: {"value": each.value, "unit": each.unit} for name, each in outcome.measures.items()},
    }


def this_node() -> str:
    """Return the name of this node: as Slurm has it within a job or a prolog, else that of the host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def screen_node(
    folder: Path,
    image: str,
    settings: Settings,
    node: str,
    devices: int = 0,
    limit: float = LIMIT,
    least: float = LEAST,
) -> QuickScreening:
    """Screen this node, and keep what was found in the folder of the fleet. It ends at the limit with what it has.

    Counters are compared with those after the last screening of the node, so that faults of the jobs between count too.
    Raises SifmarkError if the image cannot be started.
    """
    started, deadline = datetime.now(UTC), time.monotonic() + limit
    hardware = hardware_here()
    earlier = read_screenings(folder)
    own = earlier.get(node, [])
    before = _counters_of(own[-1]) if own else read_counters(hardware)
    opened = NodeImage.open(image, settings)
    tests = quick_tests(opened.device, devices or _devices())
    outcomes = run_tests(opened, tests, node, deadline)
    after = read_counters(hardware)
    known = before.sequence if before.boot == after.boot else -1
    screening = QuickScreening(
        node=node,
        image=opened.build_key,
        started=started,
        seconds=limit - (deadline - time.monotonic()),
        outcomes=tuple(outcomes),
        findings=tuple(findings(outcomes, earlier, opened.build_key, least)),
        faults=tuple(faults_of(outcomes, earlier, opened.build_key)),
        rises=(*after.rises(before), *faults_since(known, hardware)),
        counters=after,
    )
    add_screening(folder, node, own, screening.document())
    return screening


def _counters_of(screening: Mapping[str, Any]) -> Counters:
    return Counters(screening["counters"], tuple(screening["not_counted"]), screening["log_line"], screening["boot"])


def _devices() -> int:
    """Return how many devices the vendors' programs name on this host; 1 where none does."""
    return sum(sum(1 for _ in answers_of(each.clocks)) for each in hardware_here()) or 1
