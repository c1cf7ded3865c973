"""What an experiment has shown: whether a claim held."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

HELD, FAILED, NOT_PROVABLE, NOT_RUN = "held", "failed", "not_provable", "not_run"
STATES = (FAILED, NOT_PROVABLE, NOT_RUN, HELD)  # what needs attention first
CLAIMS = {
    "device": "The device computes, and says what it is.",
    "arithmetic": "Matrix products reach a plausible part of the vendor's peak, and are right.",
    "bandwidth": "Copies are complete, at a plausible rate.",
    "time": "Step times of the device add up to the wall clock of the timed window.",
    "repeatability": "Equal runs have equal throughput, within 5 %.",
    "energy": "Sampled power adds up to what the hardware's counter says, within 5 %.",
    "graphs": "A compiled training step runs as asked for, replayed as a graph where the device has graphs.",
    "streams": "Requests of several clients overlap: together they are at least as fast as one alone.",
    "memory": "The search for the largest batch ends at a lack of memory, which is a result and no crash.",
    "limit": "A run that is stopped by its time limit keeps what it has measured.",
    "correctness": "The code computes what each workload's card says, in each precision of the device.",
    "throughput": "Each workload runs in its defaults, not faster than the device can.",
}


class Finding(NamedTuple):
    """Whether a claim (one of CLAIMS) held for a subject, such as a workload, and a sentence with the numbers."""

    claim: str
    subject: str
    state: str
    text: str

    def as_json(self) -> Mapping[str, Any]:
        """Return the finding's part of proof.json."""
        return self._asdict()
