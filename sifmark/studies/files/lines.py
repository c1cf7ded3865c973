"""The lines of a TOML file on which its tables and keys are: the parser does not say."""

import re
from collections.abc import Iterable, Iterator

Path = tuple[str | int, ...]

_KEY = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|"((?:\\.|[^"\\\n])*)"|'([^'\n]*)')[ \t]*""")
_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)+")
# What a value consists of, as far as its end depends on it.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[{]|[\]}]|\n|[^\[\]{}"\'#\n]+',
    re.S,
)


class Lines:
    """Line numbers, from 1, by path: `("run", 0, "batch_size")` is a key of the first `[[run]]`."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = dict(_statements(text))

    def __contains__(self, path: object) -> bool:
        return path in self._lines

    def of(self, path: Iterable[str | int]) -> int:
        """Return the line of a key or table, or of what it is within; 1 for the document."""
        steps = tuple(path)
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps, 1)


def _statements(text: str) -> Iterator[tuple[Path, int]]:
    """Yield the path and line of every table and key of a valid TOML document."""
    counts: dict[Path, int] = {}
    prefix: Path = ()
    at = _skip(text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        if text[at] == "[":
            is_array = text.startswith("[[", at)
            keys, at = _dotted(text, at + (2 if is_array else 1))
            prefix = _table(keys, is_array, counts)
            yield prefix, line
            at = text.find("\n", at)
        else:
            keys, at = _dotted(text, at)
            yield prefix + tuple(keys), line
            at = _end_of_value(text, at + 1)
        at = len(text) if at < 0 else _skip(text, at)


def _table(keys: list[str], is_array: bool, counts: dict[Path, int]) -> Path:
    """Return the path of a table, with the index of each array of tables that it is in; count those."""
    path: Path = ()
    for number, key in enumerate(keys, start=1):
        path = (*path, key)
        if is_array and number == len(keys):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _dotted(text: str, at: int) -> tuple[list[str], int]:
    keys: list[str] = []
    while match := _KEY.match(text, at):
        keys.append(next(part for part in match.groups() if part is not None))
        at = match.end()
        if not text.startswith(".", at):
            break
        at += 1
    return keys, at


def _end_of_value(text: str, at: int) -> int:
    """Return where the line ends on which a value ends, or -1 at the end of the text."""
    depth = 0
    for match in _TOKEN.finditer(text, at):
        piece = match.group()
        if piece == "\n" and depth == 0:
            return match.end()
        depth += (piece in "[{") - (piece in "]}")
    return -1


def _skip(text: str, at: int) -> int:
    match = _SKIPPED.match(text, at)
    return match.end() if match else at
