"""Texts of a report that many of its parts need: names as labels and as names of files, numbers, and lists."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from sifmark.core.console import printable

LONGEST_NAME = 36  # characters of a label: fonts of readers may be wider than ours
_NOT_OF_NAMES = re.compile(r"[^a-z0-9]+")


def slug(*words: str) -> str:
    """Return words as the name of a file or of a place on a page: lower-case letters, digits and hyphens."""
    return _NOT_OF_NAMES.sub("-", "-".join(filter(None, words)).lower())[:120].strip("-") or "unnamed"


def short(name: str, longest: int = LONGEST_NAME) -> str:
    """Return an untrusted name as a label: one that is too long loses its middle."""
    half, name = longest // 2, name.strip() or "unnamed"
    return name if len(name) <= longest else f"{name[:half]}…{name[-half + 1 :]}"


def distinct(labels: Iterable[str]) -> list[str]:
    """Return labels of which each is different."""
    counts: Counter[str] = Counter()
    unique: list[str] = []
    for label in labels:
        counts[label] += 1
        unique.append(label if counts[label] == 1 else f"{label} ({counts[label]})")
    return unique


def clip(text: object, longest: int = 160) -> str:
    """Return untrusted text as one printable line, without its middle if it is long."""
    line = printable(unicodedata.normalize("NFC", str(text)))
    half = longest // 2
    return line if len(line) <= longest else f"{line[:half]} … {line[-half:]}"


def listed(words: Sequence[str]) -> str:
    """Return words as a text lists them: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def factor_text(value: float) -> str:
    """Return a ratio with two decimals, of a large or small one three digits: `0.82`, `17.3`, `0.0123`."""
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}"
