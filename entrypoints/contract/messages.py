"""Messages from the child to the parent: one JSON array per line, `["<type>", [fields]]`."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Callable, Mapping, NamedTuple, Sequence, Union, cast, get_args

from entrypoints.contract import points
from entrypoints.contract.choices import PRECISIONS
from entrypoints.contract.group import Connected
from entrypoints.contract.points import LastLevelCache, Omitted, Point, Verified
from entrypoints.contract.session import (
    BACKEND_FACTS,
    COMPILATION_FACTS,
    DEVICE_CONDITIONS,
    DeviceConditions,
    DeviceFacts,
    Executed,
    Usage,
)
from entrypoints.contract.statuses import FAILURES

PHASES = ("import", "data", "model", "compile", "warmup", "steady")
RUN_CHECKS = ("gradients", "samples", "dropout", "answers", "generation", "trajectory", *points.CHECKS)
LEAST_DRAWS = 4  # of each Markov chain for a diagnosis, so that each half has two
MOST_DRAWS = 2000  # the last draws of each chain, kept for the diagnosis
MOST_NUMBERS = 2**25  # of all draws together: 128 MiB
LARGEST = 1e18  # of any number in a message that is not a result of the model
NOT_FINITE = ("loss", "values", "effective", "r_hat")  # results of the model, which may be infinite or not a number
MOST_LIBRARIES = 1000
LONGEST_CAUSE = 200  # characters of what a message about a message quotes


class MessageError(ValueError):
    """A line that is no message of the protocol."""


class Phase(NamedTuple):
    """The start of a phase on the system's monotonic clock (s); the previous one ends there."""

    name: str
    at: float


class Waited(NamedTuple):
    """From when to when the child, which had imported its framework, waited to begin, on the monotonic clock (s)."""

    began: float
    ended: float


class Software(NamedTuple):
    """Versions of what the child imported: the framework, and other libraries by name."""

    framework_version: str
    libraries: dict[str, str]


class Data(NamedTuple):
    """The source of batches: its samples and classes, which of several sets at the path it is, and the number of
    processes that decode it, 0 for only the main one."""

    samples: int
    classes: int | None
    part: str | None = None
    workers: int | None = None


class Skipped(NamedTuple):
    """A sample that could not be read, by its path below the data, or the lost rest of a file."""

    path: str


class Request(NamedTuple):
    """Seconds of an inference request, from its raw input on the host to its output there, and their parts."""

    latency: float
    preprocessing: float
    transfer: float
    compute: float
    retrieval: float

    @property
    def other(self) -> float:
        """The time that no part explains: waiting for other streams and for the interpreter."""
        return max(0.0, self.latency - math.fsum(self[1:]))


class Generated(NamedTuple):
    """Texts that were continued together: tokens of all prompts, seconds until each had its first new token, and
    seconds from each new token to the next."""

    prompt_tokens: int
    first: float
    others: Sequence[float]


class Served(NamedTuple):
    """A request that an engine has answered.

    Seconds from the start of the load to when it was due, from then until the client sent it, and until its first token
    arrived; and from each further token to the one before, 0 between those that arrived together.
    """

    due: float
    late: float
    prompt_tokens: int
    first: float
    gaps: Sequence[float]

    @property
    def new_tokens(self) -> int:
        """Tokens of the answer."""
        return 1 + len(self.gaps)

    @property
    def per_token(self) -> float | None:
        """Mean seconds of each token after the first; None of an answer of one token."""
        return math.fsum(self.gaps) / len(self.gaps) if self.gaps else None


class Step(NamedTuple):
    """One step, sent once its time is measured. `seconds` include `wait`, the time spent waiting for data.

    Units are samples, whatever the card calls them; tokens, if samples consist of them, are counted separately.

    An answered request is a step too: from the previous answer, of any stream, to its own. It waits for no data, since
    making its input is part of it. `decode_seconds` are those in which the step's images were decoded and augmented,
    summed over the workers.
    """

    seconds: float
    wait: float
    units: int
    updates: int
    loss: float | None
    request: Request | None = None
    decode_seconds: float | None = None
    tokens: int | None = None
    padding: int | None = None
    generated: Generated | None = None
    accepted: int | None = None  # transitions of Markov chains, each a unit, whose proposal was accepted
    call_seconds: Sequence[float] | None = None  # of a call at each point of a micro-benchmark, mean over its calls
    served: Served | None = None


class Evaluated(NamedTuple):
    """The quality of the model after `steps` of training; `began` and `ended` of the evaluation are on the monotonic
    clock.

    Loss and accuracy are means over `samples`; there is no accuracy without labels. Exact match and F1 are means over
    questions.
    """

    steps: int
    began: float
    ended: float
    samples: int
    loss: float
    accuracy: float | None
    exact_match: float | None = None
    f1: float | None = None


class Diagnosed(NamedTuple):
    """How well the chains of the timed window mixed, from `draws` of each chain that took `seconds`.

    Of all parameters the smallest effective sample size and the largest R-hat; None if there is none.
    """

    draws: int
    seconds: float
    effective: float | None
    r_hat: float | None


class Scheduled(NamedTuple):
    """Seconds that threads of the child ran in the timed window, and that they waited for a processor.

    `at` is when the window ended, on the monotonic clock (s); `openmp` names the OpenMP runtimes that were loaded.
    """

    at: float
    running: float
    waiting: float
    openmp: list[str] = []  # noqa: RUF012 - a default of a named tuple, which nobody changes


class EngineFacts(NamedTuple):
    """The engine of a run of the task `serving`: its name and version, and the settings that its numbers depend on."""

    name: str
    version: str
    settings: Mapping[str, Any]


class Trial(NamedTuple):
    """A rate of arrivals (requests/s) that was tried in the search for goodput, on the monotonic clock (s).

    `requests` were answered; `reason` says which limit was not kept, and is empty if all were.
    """

    began: float
    ended: float
    rate: float
    requests: int
    reason: str


class Probed(NamedTuple):
    """What the correctness check computed in one precision: a named quantity of one or more numbers."""

    precision: str
    quantity: str
    values: list[float]


class RunCheck(NamedTuple):
    """A check of the run itself, from `began` to `ended` on the monotonic clock (s).

    `faults` are what it found, such as weights without a gradient, as sentences; `name` is one of RUN_CHECKS.
    """

    name: str
    began: float
    ended: float
    faults: list[str]


class Placed(NamedTuple):
    """Where a rank runs: its host, the processors that it may use, and their memory nodes, such as 0-3,8."""

    host: str
    processors: str
    memory_nodes: str | None


class Rendezvous(NamedTuple):
    """Where a rank waits for the others, so that they can compute together: the first one, or everyone."""

    host: str
    port: int
    everyone: bool = False


class Failed(NamedTuple):
    """The child cannot go on; `state` is one of `statuses.STATUSES`."""

    state: str
    message: str


class Ended(NamedTuple):
    """The child has finished, at a point of the monotonic clock (s)."""

    at: float


Message = Union[
    Phase,
    Waited,
    Software,
    DeviceFacts,
    DeviceConditions,
    Data,
    Skipped,
    Step,
    Evaluated,
    Diagnosed,
    Scheduled,
    EngineFacts,
    Trial,
    Probed,
    RunCheck,
    Executed,
    Usage,
    Placed,
    Connected,
    LastLevelCache,
    Point,
    Omitted,
    Verified,
    Rendezvous,
    Failed,
    Ended,
]
TYPES = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps([type(message).__name__, message]).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of one line. Raises MessageError for anything else."""
    try:
        name, fields = json.loads(line)
        kind = TYPES[name]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise MessageError(f"{type(error).__name__}: {error}"[:LONGEST_CAUSE]) from None
    message: Any = _checked(kind, fields)
    if isinstance(message, Step):
        parts = {"request": Request, "generated": Generated, "served": Served}
        for field, part in parts.items():
            if getattr(message, field) is not None:
                message = message._replace(**{field: _checked(part, getattr(message, field))})
    allowed, what = _ALLOWED.get(kind, (None, ""))
    if allowed is not None and not allowed(message):
        raise MessageError(f"{name} has {what}: {str(fields)[:LONGEST_CAUSE]}")
    return cast(Message, message)


def _checked(kind: Any, fields: Any) -> Any:
    """Return a named tuple whose fields have the types that its class declares."""
    declared = kind.__annotations__
    least = len(declared) - len(kind._field_defaults)
    if not isinstance(fields, list) or not least <= len(fields) <= len(declared):
        raise MessageError(f"{kind.__name__} has {least} to {len(declared)} fields")
    for (name, hint), value in zip(declared.items(), fields):
        words = getattr(hint, "__forward_arg__", hint)  # Python before 3.14 wraps the text
        if not any(_is(word, value, name in NOT_FINITE) for word in str(words).split(" | ")):
            raise MessageError(f"{kind.__name__}.{name} is no {words}: {value!r:.80}")
    return kind(*fields)


def _is_condition(item: tuple[str, Any]) -> bool:
    name, fact = item
    is_fact = isinstance(fact, dict) and "value" in fact and {"value", "unit", "reason"}.issuperset(fact)
    plain = is_fact and all(map(_is_plain, fact.values()))
    return name in DEVICE_CONDITIONS and plain


def _is_execution(item: tuple[str, Any]) -> bool:
    name, value = item
    return name in (*COMPILATION_FACTS, *BACKEND_FACTS) and not isinstance(value, bool) and _is_plain(value)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) <= LARGEST)


def _is(word: str, value: Any, anything: bool) -> bool:
    """Return whether a value read from JSON has a type, by the type's text. Numbers are never negative or too large,
    unless they may be anything, and lists have only numbers."""
    if word == "float":
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and (0 <= value <= LARGEST or (anything and (isinstance(value, float) or -LARGEST <= value < 0)))
    if word == "int":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    if word in ("Sequence[float]", "list[float]"):
        return isinstance(value, list) and all(_is("float", item, anything) for item in value)
    if word == "list[int]":
        return isinstance(value, list) and all(_is("int", item, anything) for item in value)
    if word == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if word == "dict[str, str]":
        return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return isinstance(value, _PLAIN[word])


# What a message of a kind must be besides its types, and what it has otherwise.
_ALLOWED: dict[Any, tuple[Callable[[Any], bool], str]] = {
    Phase: (lambda message: message.name in PHASES, "an unknown phase"),
    RunCheck: (lambda message: message.name in RUN_CHECKS, "an unknown check"),
    Probed: (lambda message: message.precision in PRECISIONS, "an unknown precision"),
    Failed: (lambda message: message.state in FAILURES, "a state that no process of a workload reports"),
    Step: (lambda message: message.units > 0, "no sample"),
    Evaluated: (lambda message: message.samples > 0, "no sample"),
    Point: (lambda message: message.operation in points.OPERATIONS, "an unknown operation"),
    Software: (lambda message: len(message.libraries) <= MOST_LIBRARIES, "too many libraries"),
    DeviceFacts: (lambda message: 0 not in (message.devices, message.ranks, message.replicas), "no device"),
    EngineFacts: (lambda message: all(map(_is_plain, message.settings.values())), "something other than settings"),
    Executed: (lambda message: all(map(_is_execution, message.facts.items())), "something other than facts"),
    DeviceConditions: (lambda message: all(map(_is_condition, message.facts.items())), "something other than facts"),
}

# Types of fields as JSON has them, by their text. Parts of a step are checked on their own.
_PLAIN: dict[str, Any] = {
    "None": type(None),
    "str": str,
    "bool": bool,
    "Mapping[str, Any]": dict,
    "Request": list,
    "Generated": list,
    "Served": list,
}


class Sender:
    """The child's end. Lines shorter than a pipe's atomic 4096 bytes arrive whole even if a signal intervenes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __call__(self, message: Message) -> None:
        """Send one message."""
        data = encode(message)
        while data:
            data = data[os.write(self.descriptor, data) :]
