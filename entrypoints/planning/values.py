"""Parsers of single values of the command line, with units as people write them."""

from __future__ import annotations

import math
import re
from typing import Callable

from entrypoints.contract.choices import ALL
from entrypoints.contract.statuses import UsageError
from entrypoints.metering import names as meters
from entrypoints.serving.load import CONSTANT, GAMMA, POISSON, Range

METERS = (meters.AUTO, meters.NONE, *meters.names())
MOST = 10**9
MOST_BYTES = 2**40
LONGEST = 30 * 86400.0  # a month, in seconds
_SECONDS = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_CLOCK = re.compile(
    r"(?:(\d{1,2})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d{2})"
)  # as Slurm has it: [days-][hours:]minutes:seconds
_BYTES = {  # by unit; without one, MiB
    "": 2**20,
    **{f"{letter}{suffix}": 1024**power for power, letter in enumerate("KMGT", 1) for suffix in ("", "iB")},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
}
TASK_NAMES = {"train": "training", "infer": "inference", "sample": "sampling"}


def whole(least: int, most: int = MOST, hint: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`; `hint` is for users who give several."""

    def parse_whole(text: str) -> int:
        if not re.fullmatch("[0-9]{1,12}", text) or not least <= int(text) <= most:
            several = bool(hint) and re.fullmatch("[0-9]+(,[0-9]+)+", text)
            raise UsageError(f"{text[:40]!r} is not a whole number from {least} to {most}", hint if several else "")
        return int(text)

    return parse_whole


def shards(text: str) -> int | str:
    """Return a number of shards from 2, or the word for all replicas."""
    return ALL if text == ALL else whole(2, 4096)(text)


def wholes(text: str) -> tuple[int, ...]:
    """Return different whole numbers from 1, separated by commas."""
    numbers = tuple(map(whole(1), text.split(",")))
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"{text[:40]!r} names a number twice", "to run twice, use --repeat 2")
    return numbers


def arrivals(text: str) -> tuple[str, float | None]:
    """Return how requests arrive, with the shape of gamma-distributed gaps."""
    kind, colon, shape = text.partition(":")
    if kind == GAMMA and colon:
        return kind, positive(shape)
    if text not in (POISSON, CONSTANT):
        raise UsageError(f"no arrivals {text[:40]!r}", f"known: {POISSON}, {CONSTANT}, {GAMMA}:SHAPE")
    return text, None


def lengths(text: str) -> tuple[Range, Range]:
    """Return the tokens of a prompt and of its answer, each as a range: 1024/128, or 512-2048/64-256."""
    match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?/(\d{1,7})(?:-(\d{1,7}))?", text)
    numbers = [int(part or first) for first, part in zip(match.groups()[::2], match.groups()[1::2])] if match else []
    first = [int(part) for part in match.groups()[::2]] if match else []
    ranges = tuple(zip(first, numbers))
    if len(ranges) != 2 or any(not 1 <= low <= high for low, high in ranges):
        raise UsageError(f"{text[:40]!r} is not PROMPT/NEW", "write 1024/128, or with ranges 512-2048/64-256")
    return ranges[0], ranges[1]


def limits(text: str) -> tuple[float, float]:
    """Return limits in s of the first token and of each further one, which are given in ms: 2000/100."""
    numbers = [_float(part) / 1000 for part in text.split("/")]
    if len(numbers) != 2 or not all(0 < number < math.inf for number in numbers):
        raise UsageError(f"{text[:40]!r} is not FIRST/NEXT in ms", "write 2000/100")
    return numbers[0], numbers[1]


def path(text: str) -> str:
    """Return a path; an empty one would mean the current folder, and usually comes from an unset variable."""
    if not text:
        raise UsageError("the name is empty", "name a folder or file, or leave it out")
    return text


def rendezvous(text: str) -> tuple[str, int]:
    """Return the host and port of HOST:PORT; an IPv6 address is in brackets."""
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise UsageError(f"{text[:80]!r} is not HOST:PORT, with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def meter(text: str) -> str:
    """Return a meter's name, with its place if there is one."""
    name, colon, place = text.partition(":")
    if name not in METERS:
        raise UsageError(f"no meter {name[:40]!r}", f"known: {', '.join(METERS)}")
    if colon and (not place or name in (meters.AUTO, meters.NONE)):
        raise UsageError(
            f"{text[:40]!r}: a place follows the colon, and only a meter has one", "write rapl:PLACE, or rapl"
        )
    return text


def task(text: str) -> str:
    """Return the name of a task, in lower case, without abbreviation."""
    return TASK_NAMES.get(text.lower(), text.lower())


def seconds_within(least: float, most: float) -> Callable[[str], float]:
    """Return a parser of numbers of seconds from `least` to `most`."""

    def parse_seconds(text: str) -> float:
        value = _time(text)
        if not least <= value <= most:
            raise UsageError(f"{text[:40]!r} is not a number of seconds from {least:g} to {most:g}")
        return value

    return parse_seconds


def seconds(text: str) -> float:
    """Return a time above 0 in seconds: 90, 90s, 30m, 1.5h or 00:30:00."""
    value = _time(text)
    if not 0 < value <= LONGEST:
        raise UsageError(
            f"{text[:40]!r} is not a time above 0, up to 30 days", "write seconds, or 90s, 30m, 2h, 00:30:00"
        )
    return value


def mebibytes(text: str) -> int:
    """Return a size in MiB: 4096 means MiB; 4G and 4GiB are 4096 MiB, 4GB is 4e9 bytes. Fractions are cut off."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([KMGT](?:i?B)?|)", text)
    size = int(float(match.group(1)) * _BYTES[match.group(2)] / 2**20) if match else 0
    if not 1 <= size <= MOST:
        raise UsageError(f"{text[:40]!r} is not a size of at least 1 MiB", "write MiB, or 512M, 4G, 4GiB")
    return size


def size(text: str) -> int:
    """Return a size: 4096, or with a binary unit 64K, 16MiB, 1G."""
    match = re.fullmatch(r"(\d{1,12})([KMG](?:iB)?|)", text)
    value = int(match.group(1)) * _BYTES[match.group(2)] if match and match.group(2) else int(text) if match else 0
    if not 1 <= value <= MOST_BYTES:
        raise UsageError(f"{text[:40]!r} is not a size above 0", "write 65536, or 64K, 16M, 1G")
    return value


def fraction(text: str) -> float:
    """Return a number above 0, up to 1, also written as a percentage."""
    value = _float(text[:-1]) / 100 if text.endswith("%") else _float(text)
    if not 0 < value <= 1:
        percent = f", or {text}%" if 1 < value <= 100 else ""
        raise UsageError(f"{text[:40]!r} is not a fraction above 0, up to 1", f"write 0.76{percent}")
    return value


def fractions(text: str) -> tuple[float, ...]:
    """Return fractions, separated by commas."""
    return tuple(map(fraction, text.split(",")))


def positive(text: str) -> float:
    """Return a finite number above 0."""
    value = _float(text)
    if not 0 < value < math.inf:
        raise UsageError(f"{text[:40]!r} is not a number above 0")
    return value


def _time(text: str) -> float:
    """Return a time in seconds, or NaN if the text is none."""
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return 86400.0 * days + 3600 * hours + 60 * minutes + rest
    match = re.fullmatch(r"([0-9.eE+-]{1,30}) ?([a-z]{0,3})", text)
    return _float(match.group(1)) * _SECONDS.get(match.group(2), math.nan) if match else math.nan


def _float(text: str) -> float:
    """Return the number, or NaN if the text is none: comparisons with it fail."""
    try:
        return float(text)
    except ValueError:
        return math.nan
