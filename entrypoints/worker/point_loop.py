"""The loop of a micro-benchmark. A step is a sweep over all points; ranks begin each point together."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from entrypoints.contract import points
from entrypoints.contract.cards import Card
from entrypoints.contract.messages import Message, Step
from entrypoints.contract.points import (
    CHECKPOINT,
    EMBEDDING_BAG,
    MATMUL,
    MEMORY_COPY,
    LastLevelCache,
    Omitted,
    Point,
    Verified,
)
from entrypoints.contract.session import Operation, Session
from entrypoints.contract.statuses import RunError
from entrypoints.planning.configuration import Configuration
from entrypoints.system.facts import MIB
from entrypoints.worker.phases import PhasedRun
from entrypoints.worker.run_checks import Faults

SHARE = 0.1  # of the free memory, for buffers: the rest is for the backend's own and for comparing results
# Up to the smallest copy that leaves the caches, and of tables, which do: without them, no bandwidth of memory.
SHARE_BEYOND_CACHE = 0.5
BUFFERS = {MATMUL: 3}  # of a point, each of its size
BUFFERS_ELSEWHERE = 2
BESIDE_TABLES = 0.25  # of the rows that are looked up: indices, and the sums of two calls
USUAL = {"cpu": 2**28}  # bytes of the largest copy, unless caches or --largest-size ask for a larger one
USUAL_ELSEWHERE = 2**30
FIRST, LAST = points.CHECKS


class PointLoop(PhasedRun):
    """Sweeps over the points of an operation.

    A point's time is that of several calls between two marks, over their number; the device is idle before and after.
    Results are verified before the timed window and after it.
    """

    def __init__(
        self,
        session: Session,
        operation: Operation,
        measured: Sequence[Point],
        precision: str,
        send: Callable[[Message], None],
    ) -> None:
        super().__init__(send)
        self.session, self.operation, self.points, self.precision = session, operation, measured, precision
        self.units = sum(point.calls * point.work for point in measured)
        self.last: object = None  # the end of the sweep before; None if the next one follows no other

    def run(self, configuration: Configuration) -> None:
        """Run all phases, and verify the results once more."""
        super().run(configuration)
        self.check(LAST, self.verify)

    def check_steps(self) -> None:
        """Verify the results after the first sweep."""
        self.check(FIRST, self.verify)
        self.resume()

    def resume(self) -> None:
        """Let the next sweep begin when it is handed to the device."""
        self.last = None

    def settle(self) -> None:
        """Do nothing: every sweep was reported when it was done."""

    def advance(self) -> None:
        """Sweep over all points."""
        began = self.last or self.session.mark()
        seconds = [self.call_seconds(number) for number in range(len(self.points))]
        self.last = self.session.mark()
        self.session.synchronise()
        lasted = self.session.seconds_between(began, self.last) or 0.0
        self.steps += 1
        self.seconds += lasted
        self.send(Step(lasted, 0.0, self.units, 0, None, call_seconds=seconds))

    def call_seconds(self, number: int) -> float:
        """Return the mean seconds of a call at a point."""
        self.operation.fill(number)
        self.session.synchronise()
        if self.group:
            self.group.meet()
        calls = self.points[number].calls
        began = self.session.mark()
        for _ in range(calls):
            self.operation.call(number)
        done = self.session.mark()
        self.session.synchronise()
        return (self.session.seconds_between(began, done) or 0.0) / calls

    def verify(self) -> Faults:
        """Compare the result of each point with what its input gives, and report the deviations."""
        deviations = [self.operation.deviation(number) for number in range(len(self.points))]
        self.send(Verified(deviations))
        allowed = [points.tolerance(point.operation, self.precision) for point in self.points]
        return [
            f"{point.label}: the result {_fault(deviation, most)}"
            for point, deviation, most in zip(self.points, deviations, allowed)
            if not deviation <= most
        ]


def _fault(deviation: float, most: float) -> str:
    if deviation >= points.INCOMPARABLE:
        return "has numbers that are not finite, or that were never written"
    return f"deviates by {deviation:.2g} where {most:.2g} is allowed"


def plan(
    card: Card, configuration: Configuration, world: int, free_mib: float, cache: LastLevelCache | None = None
) -> tuple[Sequence[Point], Sequence[Omitted]]:
    """Return the points to measure and the sizes that are left out, with `free_mib` for the buffers of this rank.

    `cache` is that of the device, if the operation copies within its memory.

    Raises RunError (`out_of_memory`) if nothing fits.
    """
    measured: list[Point] = []
    omitted: list[Omitted] = []
    sizes = card.problem["input"]["sizes"]
    share = SHARE_BEYOND_CACHE if card.problem["model"]["operation"] == EMBEDDING_BAG else SHARE
    in_memory = next((size for size in sizes if cache and size >= cache.left_from), 0)  # the smallest such copy
    half = SHARE_BEYOND_CACHE * free_mib
    most = half if in_memory and not _omission(card, configuration, world, in_memory, half) else share * free_mib
    for size in sizes:
        may_take = most if size <= in_memory else share * free_mib
        reason = _omission(card, configuration, world, size, may_take) or _excess(card, configuration, size, in_memory)
        if reason:
            omitted.append(Omitted(size, reason))
        else:
            measured.extend(_points(card, _whole(card, configuration, world, size)))
    if not measured:
        raise RunError("out_of_memory", f"no size of {card.name} can be measured: {omitted[0].reason}")
    return measured, omitted


def _omission(card: Card, configuration: Configuration, world: int, size: int, most_mib: float) -> str | None:
    """Return why a size cannot be measured; None if it can."""
    operation, largest = card.problem["model"]["operation"], configuration.largest_size
    if largest is not None and size > largest:
        return f"larger than {largest} (--largest-size)"
    if not _whole(card, configuration, world, size):
        return f"fewer elements than the {world} ranks"
    need = _buffers(operation, size, points.ELEMENT_BYTES[configuration.precision]) / MIB
    if need > most_mib:
        free = "free memory and storage" if operation == CHECKPOINT else "free memory"
        return f"its buffers of {need:.0f} MiB are more than the {most_mib:.0f} MiB of {free} that they may take"
    return None


def _buffers(operation: str, size: int, element: int) -> float:
    """Return the bytes of the buffers of a size, with elements of so many."""
    if operation == EMBEDDING_BAG:
        return points.TABLE_NUMBERS * element + BESIDE_TABLES * size
    return BUFFERS.get(operation, BUFFERS_ELSEWHERE) * (size * size * element if operation == MATMUL else size)


def _excess(card: Card, configuration: Configuration, size: int, in_memory: int) -> str | None:
    """Return why a size need not be measured; None if it is."""
    if configuration.largest_size is not None or card.problem["model"]["operation"] != MEMORY_COPY:
        return None
    enough = max(USUAL.get(configuration.device, USUAL_ELSEWHERE), in_memory)
    return f"larger than {enough}, which is enough here: --largest-size measures more" if size > enough else None


def _whole(card: Card, configuration: Configuration, world: int, size: int) -> int:
    """Return the size in whole elements for each rank, as nccl-tests cuts it."""
    if card.problem["model"]["operation"] not in points.COLLECTIVES:
        return size
    for_each = world * points.ELEMENT_BYTES[configuration.precision]
    return size // for_each * for_each


def _points(card: Card, size: int) -> Sequence[Point]:
    """Return the points of a size: one, or one for each way between host and device, or to save."""
    operation, rule = card.problem["model"]["operation"], card.problem["input"]["calls"]
    point = Point(operation, size, calls_of(rule, Point(operation, size, 1).work))
    if operation == points.CHECKPOINT:
        return [point._replace(mode=mode) for mode in points.SAVING]
    if operation != points.HOST_DEVICE:
        return [point]
    ways = [(way, memory) for way in (points.TO_DEVICE, points.TO_HOST) for memory in (points.PINNED, points.PAGEABLE)]
    return [point._replace(direction=way, memory=memory) for way, memory in ways]


def calls_of(rule: Mapping[str, Any], work: int) -> int:
    """Return how often a point is called for one time: as often as does the rule's work, between two bounds."""
    return int(min(rule["most"], max(rule["least"], rule["work"] // work)))
