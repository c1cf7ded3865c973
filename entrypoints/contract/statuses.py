"""The table of statuses that a run can end with, and the two exceptions that carry one."""

from __future__ import annotations

from typing import NamedTuple, Sequence


class Status(NamedTuple):
    """One way to end: the process's exit code, its meaning, and a remedy for the user."""

    exit_code: int
    meaning: str
    remedy: str


# docs/reference/exit-codes.md is made from this table.
STATUSES = {
    "completed": Status(0, "everything that was asked for was measured", "nothing"),
    "no_device": Status(
        3, "the device of this image is not on this machine", "use an image for this machine: `sifmark list`"
    ),
    "unsupported": Status(
        3, "the device does not support what was requested", "use another `--precision`, or no `--compile`"
    ),
    "out_of_memory": Status(4, "the device or the host had too little memory", "a smaller `--batch-size`"),
    "compile_failure": Status(
        4, "the vendor's compiler refused the model", "see the compiler's messages on standard error"
    ),
    "non_finite": Status(
        4, "the loss became infinite or not a number", "another `--precision` or a smaller `--batch-size`"
    ),
    "data_error": Status(4, "the input data could not be read", "repair the file or folder that the message names"),
    "crashed": Status(4, "the workload raised an error or its process died", "see the traceback on standard error"),
    "inconsistent": Status(
        4, "the workload's process reported what contradicts itself", "see which rule the message names, and report it"
    ),
    "numerics_mismatch": Status(
        5, "the code does not compute what the workload's card says", "see which quantity, and report it"
    ),
    "time_limit": Status(124, "--time-limit was reached", "a longer `--time-limit`, or fewer `--steps`"),
    "interrupted": Status(143, "a signal stopped the run; the exit code is 128 plus its number", "run it again"),
}
# What the process of a workload may report; the others are for its parent to say.
FAILURES = ("no_device", "unsupported", "out_of_memory", "compile_failure", "non_finite", "data_error", "crashed")
USAGE_EXIT = 2
INVALID_RESULT_EXIT = 6
UNPROVEN_EXIT = 7  # of a proof in which something failed


def exit_code(state: str, signal_number: int | None = None) -> int:
    """Return the exit code of `state`; for an interruption 128 plus the signal, as in a shell."""
    if state == "interrupted" and signal_number is not None:
        return 128 + signal_number
    return STATUSES[state].exit_code


class UsageError(Exception):
    """Bad input, found before anything ran: its cause, a remedy, and one of the host's stable codes."""

    def __init__(self, cause: str, remedy: str = "", code: str = "invalid-option") -> None:
        super().__init__(f"{cause}. {remedy[0].upper()}{remedy[1:]}" if remedy else cause)
        self.cause, self.remedy, self.code = cause, remedy, code


def unknown_name(kind: str, name: str, names: Sequence[str]) -> UsageError:
    """Return the error for a name that does not exist. Its remedy has the nearest ones, and all."""
    import difflib  # here: only a mistyped name needs it

    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(f"no {kind} {name[:60]!r}", f"{hint}known: {', '.join(names)}", "unknown-name")


class RunError(Exception):
    """A run cannot go on: a state of `STATUSES` and a sentence for the reader."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message
