"""The pages of the documentation as tests read them: their blocks and links."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
GENERATED = ("docs/reference", "docs/error-codes.md", "docs/glossary.md")
PAGES = [README, *sorted(path for path in (ROOT / "docs").rglob("*.md"))]
WRITTEN = [page for page in PAGES if not str(page.relative_to(ROOT)).startswith(GENERATED)]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?"
_UNITS = ("[KMG]iB", "[mµ]?s")  # each for units of one kind
_INTERVAL = rf"(?:± {_NUMBER} %|\[{_NUMBER} {_NUMBER}\])"  # the first number has the comma


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its lines."""

    language: str
    lines: tuple[str, ...]


def name(page: Path) -> str:
    """Return a page's path relative to the root."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [Block(language, tuple(text.splitlines())) for language, text in _BLOCK.findall(page.read_text())]


def commands(page: Path) -> list[str]:
    """Return the commands of a page's `sh` blocks, in order."""
    return [line for block in blocks(page) if block.language == "sh" for line in block.lines if line.strip()]


def own_commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `sifmark` of each command of a page: in blocks for shells, and in code within lines."""
    text = page.read_text()
    shells = [block for block in blocks(page) if block.language in ("sh", "console", "text")]
    lines = [
        line.removeprefix("$ ") for block in shells for line in "\n".join(block.lines).replace("\\\n", "").split("\n")
    ]
    lines += re.findall(r"`(sifmark [^`]+)`", _BLOCK.sub("", text))
    for part in (part for line in lines for part in re.split(r"\s(?:\|\||&&|\||;)\s", line)):
        match = re.fullmatch(r"(?:\w+=\S* |! )*(?:\S+/)?sifmark (.+)", part.strip())
        if match:
            yield shlex.split(match[1], comments=True)


def sessions(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a `console` block with the lines of its output."""
    command, output = "", list[str]()
    for line in [*block.lines, "$ "]:
        if line.startswith("$ "):
            if command:
                yield command, output
            command, output = line[2:], []
        else:
            output.append(line)


def pattern(lines: list[str]) -> re.Pattern[str]:
    """Return what an output must match that a page shows.

    A line `...` stands for any lines, `...` in a line for any text, a number for any number, blanks for blanks, a
    number in MiB or s for one in another unit of its kind, and an interval for one that is written either way:
    `± 1.2 %` or `[1.10, 1.40]`.
    """
    parts = [r"(?:.*\n)*?" if line.strip() == "..." else f"{_line(line)}\n" for line in lines]
    return re.compile("".join(parts))


def _line(text: str) -> str:
    quantity = rf"{_NUMBER} +(?:{'|'.join(_UNITS)})\b"
    pieces = re.split(rf"(\.\.\.|{_INTERVAL}|{quantity}|\s+|\d[\d.,]*(?:e[-+]?\d+)?)", text.rstrip())
    return "".join(map(_piece, pieces)) + r"[ \t]*"


def _piece(text: str) -> str:
    if text == "...":
        return ".*?"
    for units in _UNITS:
        if re.fullmatch(quantity := rf"{_NUMBER} +{units}", text):
            return quantity
    if re.fullmatch(_INTERVAL, text):
        return _INTERVAL
    if text.isspace():
        return r"[ \t]+"
    return _NUMBER if re.fullmatch(r"\d[\d.,]*(?:e[-+]?\d+)?", text) else re.escape(text)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links."""
    text = _BLOCK.sub("", page.read_text())
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings make, as GitHub does."""
    text = _BLOCK.sub("", page.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).strip().replace(" ", "-") for title in titles}
