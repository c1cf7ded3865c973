"""Writes what is generated and reviewed: golden files of recipes and job scripts, pages of schemas, reference pages.

`generated_pages` is also what tests compare the files with.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the sources beside it, whatever is installed

from error_pages import error_page
from measured_page import PAGE as HARDWARE_PAGE
from measured_page import measured_page
from published_page import PAGE as PUBLISHED_PAGE
from published_page import published_page, published_pictures
from reference_pages import reference_pages
from schema_pages import pages
from script_examples import script_examples

from sifmark.core import paths
from sifmark.recipes.golden import refresh_texts
from sifmark.recipes.recipe import recipe_names

ERROR_PAGE = paths.CHECKOUT / "docs" / "error-codes.md"
REFERENCE = paths.CHECKOUT / "docs" / "reference"


def main() -> None:
    """Write all generated files."""
    refresh_texts(recipe_names())
    for path, text in {**generated_pages(), **published_pictures()}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def generated_pages() -> dict[Path, str]:
    """Return the text that each generated page, and each example of a job's script, should have."""
    schemas = {paths.SCHEMAS / name: text for name, text in pages().items()}
    reference = {REFERENCE / name: text for name, text in reference_pages().items()}
    return {
        **schemas,
        **reference,
        ERROR_PAGE: error_page(),
        HARDWARE_PAGE: measured_page(),
        PUBLISHED_PAGE: published_page(),
        **dict(script_examples()),
    }


def stale_pages() -> list[str]:
    """Return the generated pages that are missing or differ from what they are made from."""
    return [path.name for path, text in generated_pages().items() if not path.is_file() or path.read_text() != text]


if __name__ == "__main__":
    main()
