"""What nodes have shown before, and how far a node is from it: by medians and deviations from them, which are robust.

A node is compared with the latest screenings of all nodes, itself among them, by the same image and tests. The distance
is in median absolute deviations, scaled to the standard deviation of normal noise (Rousseeuw and Croux, JASA 88, 1993).
With few screenings that scale is hardly known, so that the limit depends on their number: it is that which one of 2,000
healthy values exceeds (benchmarks/statistics/quick_screen.py).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.core.files import read_bounded, write_json
from sifmark.core.schemas import check_document, is_valid
from sifmark.doctor.quick.measure import COMPLETED, TIME_LIMIT, QuickOutcome
from sifmark.results.catalogue import Direction
from sifmark.results.load import parse
from sifmark.studies.analysis.node_measures import MEASURES

SCHEMA = "screenings-1.0"
KEPT = 20  # screenings of a node
COUNTED = 5  # the latest of each node, so that none of them outweighs the others
FEWEST = 5  # screenings that say what is usual
LEAST = 0.05  # difference, as a fraction, below which a node is not named
SCALE = 1.4826  # of the median absolute deviation to the standard deviation of normal noise
# By the number of screenings: how many deviations a healthy value exceeds with a probability of 1 in 2,000.
LIMITS = ((100, 3.7), (50, 3.9), (30, 4.6), (20, 5.3), (16, 6.0), (12, 7.3), (10, 8.9), (8, 11.4), (6, 18.2), (5, 49.1))
SLOWER = 3.0  # a test that does not end in so many times its usual time is a fault of the node
NAMED, HEALTHY, UNKNOWN = "named", "healthy", "unknown"
_LARGEST = 4 << 20  # bytes of a node's file
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# What ends a test from outside, or was not to be measured, says nothing of the node.
_NO_FAULT = ("interrupted", "unsupported")

Document = dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """A measure of a test beside what is usual."""

    test: str
    measure: str
    unit: str
    value: float
    usual: float | None = None  # median of earlier screenings
    earlier: int = 0  # how many there are
    distance: float | None = None  # deviations from the median, negative below it; infinite if all others are equal
    worse: bool = False  # so far off on the worse side that the node is named

    @property
    def ratio(self) -> float | None:
        """The value over what is usual."""
        return self.value / self.usual if self.usual else None

    def __str__(self) -> str:
        return f"{self.test} {self.measure} {self.ratio or 0:.2f} times the usual of {self.earlier} screenings"


def file_of(folder: Path, node: str) -> Path:
    """Return where the screenings of a node are."""
    return folder / f"{node}.json"


def read_screenings(folder: Path) -> dict[str, list[Document]]:
    """Return the screenings of all nodes by node, the oldest first. Files that are none are left out."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError):
            document = parse(read_bounded(file, _LARGEST))
            if is_valid(SCHEMA, document):
                found[str(document["node"])] = list(document["screenings"])
    return found


def add_screening(folder: Path, node: str, earlier: list[Document], screening: Document) -> None:
    """Keep a screening of a node with its latest ones."""
    document = {"schema_version": "1.0", "node": node, "screenings": [*earlier, screening][-KEPT:]}
    check_document(SCHEMA, document, node)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file_of(folder, node), document)


def require_name(node: str) -> None:
    """Raise UsageError for what is no name of a host: files and a scheduler's command have it."""
    if not _NODE_NAME.fullmatch(node):
        raise UsageError(f"--node {node!r}: that is no name of a node", "for example n07", code="invalid-option")


def findings(
    outcomes: Iterable[QuickOutcome], earlier: Mapping[str, list[Document]], image: str, least: float = LEAST
) -> list[Finding]:
    """Return each measure beside what nodes have shown before with the same image and test."""
    return list(_findings(outcomes, _counted(earlier, image), least))


def _findings(outcomes: Iterable[QuickOutcome], earlier: list[Document], least: float) -> Iterator[Finding]:
    directions = {each.name: each for each in MEASURES}
    for outcome in outcomes:
        known = [test for screening in earlier for test in screening["tests"] if test["asked"] == _asked(outcome)]
        for name, number in outcome.measures.items():
            measure = directions[name]
            if number.value is None or number.value <= 0 or measure.better is Direction.NONE:
                continue
            values = [test["measures"][name]["value"] for test in known if name in test["measures"]]
            usual, distance, worse = judged(number.value, values, measure.better, least)
            yield Finding(outcome.test.name, name, number.unit, number.value, usual, len(values), distance, worse)


def judged(
    value: float, earlier: Sequence[float], better: Direction, least: float
) -> tuple[float | None, float | None, bool]:
    """Return the median of earlier values, the distance from it in scaled deviations, and whether it names the node.

    Of fewer than FEWEST values nothing is known.
    """
    logarithms = [math.log(each) for each in earlier if each > 0]
    if len(logarithms) < FEWEST:
        return None, None, False
    usual = median(logarithms)
    scale = SCALE * median(abs(each - usual) for each in logarithms)
    difference = math.log(value) - usual
    distance = difference / scale if scale else math.copysign(math.inf, difference) if difference else 0.0
    bad = difference < 0 if better is Direction.HIGHER else difference > 0
    far = abs(distance) > limit_of(len(logarithms)) and abs(difference) > -math.log1p(-least)
    return math.exp(usual), distance, bad and far


def limit_of(count: int) -> float:
    """Return how many deviations a node must be away from the median of so many screenings to be named."""
    return next(limit for fewest, limit in LIMITS if count >= fewest)


def faults_of(outcomes: Iterable[QuickOutcome], earlier: Mapping[str, list[Document]], image: str) -> Iterator[str]:
    """Yield why tests that did not complete are faults of the node."""
    known = _counted(earlier, image)
    for outcome in outcomes:
        if outcome.state in (COMPLETED, *_NO_FAULT) or not outcome.seconds:
            continue
        if outcome.state != TIME_LIMIT:
            yield f"{outcome.test.name} {outcome.state}{f': {outcome.message}' if outcome.message else ''}"
            continue
        tests = [test for each in known for test in each["tests"] if test["asked"] == _asked(outcome)]
        times = [test["seconds"] for test in tests if test["state"] == COMPLETED]
        if len(times) >= FEWEST and outcome.seconds > SLOWER * median(times):
            usual = f"and takes {median(times):.0f} s elsewhere"
            yield f"{outcome.test.name} did not end in {outcome.seconds:.0f} s, {usual}"


def _counted(earlier: Mapping[str, list[Document]], image: str) -> list[Document]:
    """Return the latest screenings of each node by an image, but those in which it was named."""
    return [
        each
        for screenings in earlier.values()
        for each in [one for one in screenings if one["image"] == image and one["verdict"] != NAMED][-COUNTED:]
    ]


def _asked(outcome: QuickOutcome) -> list[str]:
    return list(outcome.test.words)


def require_folder(paths: tuple[str, ...]) -> Path:
    """Return the folder of a fleet's screenings. Raises UsageError unless exactly one is named."""
    if len(paths) != 1 or Path(paths[0]).is_file():
        remedy = "name the folder that all nodes share: study.screen --quick --image cuda /shared/screenings"
        raise UsageError("--quick takes one folder of screenings", remedy, code="argument-missing")
    return Path(paths[0])
