"""What is generated and reviewed: golden texts of recipes, the schemas' pages, reference pages."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from sifmark.core import paths
from sifmark.dev.error_pages import error_page
from sifmark.dev.measured_page import PAGE as HARDWARE_PAGE
from sifmark.dev.measured_page import measured_page
from sifmark.dev.published_page import PAGE as PUBLISHED_PAGE
from sifmark.dev.published_page import published_page
from sifmark.dev.reference_pages import reference_pages
from sifmark.dev.schema_pages import pages
from sifmark.dev.script_examples import script_examples
from sifmark.recipes.golden import golden_texts

ERROR_PAGE = paths.CHECKOUT / "docs" / "error-codes.md"
REFERENCE = paths.CHECKOUT / "docs" / "reference"


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


def refresh_texts(recipes: Iterable[str]) -> None:
    """Write the golden files of recipes."""
    write_files({paths.GOLDEN / name: text for recipe in recipes for name, text in golden_texts(recipe).items()})


def write_files(texts: Mapping[Path, str]) -> None:
    """Write generated texts by their paths."""
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
