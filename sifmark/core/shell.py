"""Texts as parts of a script of a shell: the one place that knows how a shell quotes."""

import re
import shlex
from collections.abc import Iterable

from sifmark.core.console import printable
from sifmark.core.errors import UsageError

_NOT_IN_PATTERN = re.compile(r"[^\w%+./*?\[\]!^-]", re.ASCII)


def word(text: str) -> str:
    """Return a text as one word, whatever characters it has. Raises UsageError for a NUL, which no word can have."""
    if "\0" in text:
        raise UsageError(f"a NUL is in {text!r:.200}", "remove it", code="invalid-option")
    return shlex.quote(text)


def words(texts: Iterable[str]) -> str:
    """Return texts as words with blanks between them."""
    return " ".join(map(word, texts))


def pattern(text: str) -> str:
    """Return a pattern of paths that the shell replaces by those that exist."""
    return _NOT_IN_PATTERN.sub(lambda match: word(match[0]), text)


def comment(text: str) -> str:
    """Return a text as a comment, which ends with the line: a line break in the text is spelled out."""
    return f"# {printable(text)}"
