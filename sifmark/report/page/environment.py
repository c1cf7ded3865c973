"""How templates of pages are read and filled: everything is escaped, and an unknown name is an error."""

import unicodedata
from pathlib import Path
from typing import Any

from sifmark import __version__
from sifmark.core.console import printable

LONGEST_TEXT = 160  # characters of a text of anybody's; of a longer one the middle is left out
LONGEST_NAME = 48


def template_environment(folder: Path) -> Any:
    """Return the environment of the templates in a folder, with the filters and names that all of them have."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # an extra

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(folder),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"clip": clip, "name": lambda text: clip(text, LONGEST_NAME), "plural": plural}
    environment.globals["version"] = __version__
    return environment


def clip(text: Any, longest: int = LONGEST_TEXT) -> str:
    """Return a text of anybody's as one line: printable, and without its middle if it is long."""
    line = printable(unicodedata.normalize("NFC", str(text)))
    half = longest // 2
    return line if len(line) <= longest else f"{line[:half]} … {line[-half:]}"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun: `1 result`, `3 results`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
