"""Clocks of nodes that differ from the others: times in results of such a node do not compare with the rest."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sifmark.studies.schedulers.queue import ElementStatus
from sifmark.studies.schedulers.records import ElementRecord, Submission

TOLERANCE = 5.0  # seconds; a job's start takes a moment, and records have whole seconds


@dataclass
class NodeClocks:
    """How far the clocks of nodes are certainly off, as the records of their elements show."""

    now: float  # by this host's clock, seconds since 1970
    offsets: dict[str, float] = field(default_factory=dict)  # seconds by node: above 0 it is ahead

    def note(self, submission: Submission, record: ElementRecord, element: ElementStatus | None) -> None:
        """Take account of an element: it began after its submission, and wrote its record not in the future."""
        if not record.events:
            return
        first, last = record.events[0], record.events[-1]
        not_before = max(submission.submitted, (element.start if element else None) or 0.0)
        begun = record.begun if element and element.start else first.time
        behind, ahead = begun - not_before, last.time - min(self.now, record.modified)
        for node, offset in ((first.node, min(behind, 0.0)), (last.node, max(ahead, 0.0))):
            if abs(offset) > max(TOLERANCE, abs(self.offsets.get(node, 0.0))):
                self.offsets[node] = offset

    def warnings(self) -> Iterator[str]:
        """Yield a line for each node whose clock is off."""
        yield from (_warning(node, offset) for node, offset in sorted(self.offsets.items()))


def _warning(node: str, offset: float) -> str:
    side = "ahead of" if offset > 0 else "behind"
    return (
        f"the clock of {node} is at least {abs(offset):.0f} s {side} the others: times in its results do not compare; "
        "ask the administrator to synchronise it"
    )
