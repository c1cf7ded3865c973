"""The image.reproduce command: build an image again, and print the first difference."""

from sifmark.build.reproduce import REPRODUCTION_REMEDY, Reproduction, reproduce_image
from sifmark.commands.answers import Table, answer
from sifmark.core.console import output
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.recipes.names import find_recipe


def reproduce(name: str, settings: Settings, form: str) -> None:
    """Build a recipe's image again and print whether it is the same. Raises SifmarkError if it is not."""
    result = reproduce_image(find_recipe(name), open_engine(settings), settings)
    document = _document(result)
    text = f"{result.address}: {result.difference or f'identical, {result.identity}'}"
    answer(form, document, Table(tuple(document), [tuple(document.values())]), lambda: output(text))
    if result.difference is not None:
        cause = f"{result.address} was not reproduced: {result.difference}"
        raise SifmarkError(cause, REPRODUCTION_REMEDY, code="not-reproduced")


def _document(result: Reproduction) -> dict[str, str | float | bool | None]:
    return {
        "recipe": result.recipe,
        "reproduced": result.difference is None,
        "identity": result.identity,
        "difference": result.difference,
        "seconds": round(result.seconds, 1),
    }
