"""The dev.golden command: write the generated texts again."""

from sifmark.commands.report.packages import require_packages
from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.dev.golden import generated_pages, refresh_texts, write_files
from sifmark.dev.published_page import published_pictures
from sifmark.recipes.recipe import recipe_names


def write_texts() -> None:
    """Write golden files and generated pages. Raises UsageError outside a clone."""
    if not paths.IS_CHECKOUT:
        raise UsageError("generated texts are written in a clone", "run it in a clone", code="checkout-missing")
    refresh_texts(recipe_names())
    write_files(generated_pages())
    require_packages("the pictures of the documentation")
    write_files(published_pictures())
