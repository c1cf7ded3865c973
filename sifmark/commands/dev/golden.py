"""The dev.golden command: write the generated texts again."""

from sifmark.core import paths
from sifmark.core.errors import UsageError
from sifmark.dev.golden import refresh


def write_texts() -> None:
    """Write golden files and generated pages. Raises UsageError outside a clone."""
    if not paths.IS_CHECKOUT:
        raise UsageError("generated texts are written in a clone", "run it in a clone", code="checkout-missing")
    refresh()
