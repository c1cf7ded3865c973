"""The order of a child's messages: what may follow what, so that nothing else is taken for a measurement."""

from __future__ import annotations

import math
import time
from typing import Any, Callable

from entrypoints.contract.group import Connected
from entrypoints.contract.messages import (
    PHASES,
    Data,
    Diagnosed,
    Ended,
    EngineFacts,
    Evaluated,
    Failed,
    Message,
    MessageError,
    Phase,
    Placed,
    Probed,
    Rendezvous,
    RunCheck,
    Scheduled,
    Software,
    Step,
    Trial,
    Waited,
    decode,
)
from entrypoints.contract.session import DeviceConditions, DeviceFacts, Executed, Usage

LONGEST_LINE = 16 << 20  # bytes: a step of 100,000 tokens takes a tenth of it
AHEAD = 1.0  # s that a moment may lie ahead: processes of a host share the monotonic clock
_AFTER_THE_END = (Usage, DeviceConditions)  # sent while the session is closed
_OF_STEPS = (Step, Evaluated, Diagnosed, Scheduled, RunCheck, Executed, Trial)
_OF_EVERY_RUN = (Software, Data, DeviceFacts, Scheduled)  # each exactly once
_AT_MOST_ONCE = (Waited, Placed, Connected, Rendezvous, EngineFacts)
_FIRST_STEP = PHASES.index("compile")


class Protocol:
    """The messages of one child so far. After a violation nothing more is accepted.

    Only a child that `waits` to begin may say that it has.
    """

    def __init__(self, waits: bool = False) -> None:
        self.waits = waits
        self.phase = -1  # index of the last phase that began
        self.moment = 0.0  # of the last phase or end, s of the monotonic clock
        self.steps = 0
        self.loss: float | None = None  # the last one that is no finite number
        self.said_once: set[object] = set()  # what is said only once
        self.ended = False
        self.broken = False
        self.followed_by: dict[type, Callable[[Any], None]] = {
            Phase: self._begin,
            Waited: self._waited,
            Step: self._step,
            Evaluated: self._evaluated,
            Scheduled: lambda message: self._at(message.at, "the end of the timed window"),
            Ended: self._end,
            Failed: self._end,
        }

    def accept(self, line: bytes) -> Message | None:
        """Return the message of a line; the first violation as a failure, and None for all that follows it."""
        if self.broken:
            return None
        try:
            message = decode(line)
            self._follow(message)
        except MessageError as error:
            return self.violation(str(error))
        return message

    def violation(self, cause: str) -> Failed | None:
        """Return the failure that ends the child's credit; None if it was lost before."""
        if self.broken:
            return None
        self.broken = True
        return Failed("inconsistent", f"the workload's process sent something other than its protocol allows: {cause}")

    def _follow(self, message: Message) -> None:
        """Raise MessageError if a message does not follow those before it."""
        name = type(message).__name__
        if self.ended and not isinstance(message, _AFTER_THE_END):
            raise MessageError(f"{name} after the end")
        if isinstance(message, _OF_STEPS) and self.phase < _FIRST_STEP:
            raise MessageError(f"{name} before the phase {PHASES[_FIRST_STEP]}")
        if isinstance(message, Probed) and self.phase >= 0:
            raise MessageError(f"{name} in a run")
        if isinstance(message, Step) and Scheduled in self.said_once:
            raise MessageError(f"{name} after the timed window")
        self._once(message)
        follow = self.followed_by.get(type(message))
        if follow:
            follow(message)

    def _once(self, message: Message) -> None:
        """Raise MessageError for what was said before."""
        subject: object = type(message) if isinstance(message, (*_OF_EVERY_RUN, *_AT_MOST_ONCE)) else None
        if isinstance(message, Probed):
            subject = (message.precision, message.quantity)
        elif isinstance(message, RunCheck):
            subject = message.name
        if subject in self.said_once:
            raise MessageError(f"{type(message).__name__} twice")
        if subject is not None:
            self.said_once.add(subject)

    def _step(self, message: Step) -> None:
        self.steps += 1
        if message.loss is not None and not math.isfinite(message.loss):
            self.loss = message.loss

    def _begin(self, message: Phase) -> None:
        if PHASES.index(message.name) != self.phase + 1:
            raise MessageError(f"the phase {message.name} after {PHASES[self.phase] if self.phase >= 0 else 'nothing'}")
        self._at(message.at, f"the phase {message.name}")
        self.phase += 1

    def _waited(self, message: Waited) -> None:
        if not self.waits or self.phase != PHASES.index("import"):
            raise MessageError("Waited by one that was not told to, or outside of the import")
        self._at(message.began, "the wait to begin")
        self._at(message.ended, "its end")

    def _evaluated(self, message: Evaluated) -> None:
        if message.steps > self.steps or message.ended < message.began:
            raise MessageError(f"Evaluated after {message.steps} steps, of {self.steps}")

    def _end(self, message: Ended | Failed) -> None:
        if isinstance(message, Ended):
            self._at(message.at, "the end")
            if self.phase >= 0:
                self._whole()
        self.ended = True

    def _whole(self) -> None:
        """Raise MessageError for the end of a run that lacks something."""
        if self.phase < len(PHASES) - 1:
            raise MessageError(f"the end in the phase {PHASES[self.phase]}")
        missing = [kind.__name__ for kind in _OF_EVERY_RUN if kind not in self.said_once]
        if missing:
            raise MessageError(f"the end without {', '.join(missing)}")
        if self.loss is not None:
            raise MessageError(f"the end of a run whose loss became {self.loss}")

    def _at(self, moment: float, what: str) -> None:
        """Raise MessageError for a moment before the last one, or in the future."""
        if not self.moment <= moment <= time.monotonic() + AHEAD:
            raise MessageError(f"{what} at {moment:.3f} s, after {self.moment:.3f} s and now {time.monotonic():.3f} s")
        self.moment = moment
