"""Slurm's host lists: n[01-04,7],login1."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from sifmark.core.errors import UsageError
from sifmark.core.files import read_bounded

MOST_NODES = 100_000
_LARGEST = 4 << 20  # bytes of a file
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"([^\[\]]*)\[([^\[\]]*)\](.*)", re.DOTALL)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})", re.DOTALL)


def expand(text: str) -> tuple[str, ...]:
    """Return the names in a host list. Raises UsageError for a malformed one."""
    parts = _PART.findall(text)
    if ",".join(parts) != text.strip(",") or not parts:
        raise _malformed(text)
    names = list(dict.fromkeys(name for part in parts for name in _expand_part(part.strip(), text)))
    return tuple(names)


def nodes_of(text: str) -> tuple[str, ...]:
    """Return the names in a host list, or in a file with one on each line. Raises UsageError."""
    if not Path(text).is_file():
        return expand(text) if text else ()
    try:
        lines = read_bounded(Path(text), _LARGEST).decode().split()
    except (OSError, ValueError) as error:
        raise UsageError(f"{text}: {error}", "give a text file with node names", code="file-unreadable") from error
    return tuple(name for line in lines for name in expand(line))


def compress(names: Iterable[str]) -> str:
    """Return names as a host list: neighbouring numbers of equal width become ranges."""
    numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
    plain = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match:
            numbers[match[1], len(match[2])].add(int(match[2]))
        else:
            plain.append(name)
    groups = [_group(prefix, width, sorted(values)) for (prefix, width), values in sorted(numbers.items())]
    return ",".join([*groups, *sorted(plain)])


def _expand_part(part: str, text: str) -> Iterator[str]:
    match = _BRACKETS.fullmatch(part)
    if not match:
        yield part
        return
    prefix, ranges, rest = match.groups()
    suffixes = list(_expand_part(rest, text)) if rest else [""]
    for number in _numbers(ranges, text):
        yield from (f"{prefix}{number}{suffix}" for suffix in suffixes)


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for each in ranges.split(","):
        match = _RANGE.fullmatch(each.strip())
        if not match:
            raise _malformed(text)
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MOST_NODES:
            raise _malformed(text)
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))


def _group(prefix: str, width: int, numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] + 1 == number:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in ranges]
    single = len(texts) == 1 and "-" not in texts[0]
    return f"{prefix}{texts[0]}" if single else f"{prefix}[{','.join(texts)}]"


def _malformed(text: str) -> UsageError:
    return UsageError(f"{text!r} is no list of nodes", "write it as Slurm does: n[01-16],login1", code="invalid-option")
