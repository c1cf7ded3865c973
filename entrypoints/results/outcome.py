"""How a run ended, determined from everything that the parent knows."""

from __future__ import annotations

import signal
from typing import NamedTuple, Sequence

from entrypoints.contract.messages import LONGEST_CAUSE, Ended, Failed, Message, Phase
from entrypoints.contract.statuses import STATUSES, exit_code
from entrypoints.results.numerics import FAILED, Numerics

# A process that dies this close to its memory limit is taken to have run out of memory. Not every library says so: some
# abort, some return no memory to code that does not check.
NEAR = 0.9
# The C library's messages when a shared library gets no memory, or no permission.
UNMAPPED = ("failed to map segment", "cannot map zero-fill pages")
STOPS = ("interrupted", "time_limit")
SILENT = "the workload's process"  # how a message about a process without a word begins
LOST_PEER = (  # error texts of collectives whose other end is gone
    *("connection closed by peer", "connection reset by peer", "broken pipe", "connection refused"),
    *("timed out", "timeout", "remote process exited", "socket closed"),
    "collective ops is aborted",  # TensorFlow's
)
WORKER_KILLED = "killed by signal: Killed"  # PyTorch's message when a data worker is killed


class Ending(NamedTuple):
    """How the child's process ended, as the supervisor saw it."""

    returncode: int | None  # negative: the signal that killed it; None: nothing could kill it
    stopped_by: str | None  # interrupted or time_limit, if this process stopped it
    signal: int | None  # the first one that this process received
    oom_killed: bool
    peak_mib: float | None = None  # largest resident set
    limit_mib: int | None = None  # --memory-limit
    abandoned: bool = False  # whether it ended since another rank had failed
    lost: str | None = None  # the host that cannot be reached any more


class Outcome(NamedTuple):
    """A state of `STATUSES`, its exit code and a message."""

    state: str
    exit_code: int
    message: str


def determine_outcome(messages: Sequence[Message], ending: Ending) -> Outcome:
    """Return how a run ended: what the child reported first as its end counts, then a stop, then the child's error."""
    ends = [message for message in messages if isinstance(message, (Ended, Failed))]
    if ends and isinstance(ends[0], Ended):
        violation = next((end for end in ends if isinstance(end, Failed)), None)  # which may follow the end
        return _outcome(*violation) if violation else _outcome("completed")
    if ending.stopped_by == "interrupted" and ending.signal is not None:
        return Outcome("interrupted", exit_code("interrupted", ending.signal), f"stopped by {_named(ending.signal)}")
    if ending.stopped_by is not None:
        return _outcome(ending.stopped_by)
    failures = [message for message in messages if isinstance(message, Failed)]
    state, text = failures[-1] if failures else Failed("crashed", _silent_death(ending))
    phase = next((message.name for message in reversed(messages) if isinstance(message, Phase)), None)
    cause = _shortage(ending, text, None if failures else phase) if state == "crashed" else None
    return _outcome("out_of_memory", f"{text}, {cause}") if cause else _outcome(state, text)


def first_cause(outcomes: Sequence[tuple[Outcome, bool]]) -> Outcome:
    """Return how a run of several ranks ended, from how each of them did, and whether it ended since another failed.

    A rank fails when its peer is lost, perhaps before that loss is noticed. So a failure with a reason counts first,
    then a silent death, then an error that a lost peer does not explain.
    """
    failed = [
        (_rank_of_cause(outcome), rank, outcome)
        for rank, (outcome, abandoned) in enumerate(outcomes)
        if outcome.state != "completed" and not abandoned
    ]
    if not failed or outcomes[0][0].state in STOPS:  # the first one's parent decides about stops
        return outcomes[0][0]
    _, rank, outcome = min(failed)
    return (
        outcome
        if outcome.state in STOPS
        else outcome._replace(message=f"rank {rank} of {len(outcomes)}: {outcome.message}")
    )


def _rank_of_cause(outcome: Outcome) -> int:
    if outcome.state != "crashed":
        return 0
    text = outcome.message.lower()
    return 1 if SILENT in text else 3 if any(sign in text for sign in LOST_PEER) else 2


def with_numerics(outcome: Outcome, numerics: Numerics) -> Outcome:
    """Return the outcome with the correctness check: a completed run that fails the check did not complete."""
    if outcome.state == "completed" and numerics.state == FAILED:
        return _outcome("numerics_mismatch", numerics.reason)
    return outcome


def inconsistent(contradictions: Sequence[str]) -> Outcome:
    """Return the outcome of a run whose numbers contradict each other."""
    more = f"; and {len(contradictions) - 1} more" if len(contradictions) > 1 else ""
    return _outcome("inconsistent", f"{contradictions[0][:LONGEST_CAUSE]}{more}")


def _silent_death(ending: Ending) -> str:
    if ending.lost is not None:
        return f"the workload's process on {ending.lost} cannot be reached any more"
    if ending.returncode is None:
        return "the workload's process could not be killed: it hangs in the kernel or a driver, and is left behind"
    if ending.returncode >= 0:
        return f"the workload's process ended with exit code {ending.returncode} and no word; see standard error"
    return f"the workload's process died of {_named(-ending.returncode)}; see standard error"


def _named(number: int) -> str:
    """Return the name of a signal; real-time signals have none in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _shortage(ending: Ending, text: str, phase: str | None) -> str | None:
    """Return why a crash is taken for a lack of memory; None if it is not. `phase` is that of a silent death."""
    killed = ending.returncode == -signal.SIGKILL or WORKER_KILLED in text
    if killed and ending.oom_killed:
        return "while the kernel's out-of-memory killer was at work"
    peak, limit = ending.peak_mib, ending.limit_mib
    # Imports of a framework may end the process silently if memory is short.
    if limit is not None and (any(sign in text for sign in UNMAPPED) or (phase == "import" and ending.returncode == 1)):
        return f"within a limit of {limit} MiB"
    if peak is not None and limit is not None and peak > NEAR * limit:
        return f"with {peak:.0f} MiB in use, close to its limit"
    return None


def _outcome(state: str, message: str | None = None) -> Outcome:
    return Outcome(state, exit_code(state), message or STATUSES[state].meaning)
