"""The image.reproduce command: build an image again, and print the first difference."""

import json

from sifmark.build.reproduce import REPRODUCTION_REMEDY, Reproduction, reproduce_image
from sifmark.core.console import output
from sifmark.core.errors import SifmarkError
from sifmark.core.settings import Settings
from sifmark.engines import open_engine
from sifmark.recipes.names import find_recipe


def reproduce(name: str, settings: Settings, as_json: bool) -> None:
    """Build a recipe's image again and print whether it is the same. Raises SifmarkError if it is not."""
    result = reproduce_image(find_recipe(name), open_engine(settings), settings)
    if as_json:
        output(json.dumps(_document(result), indent=2))
    else:
        output(f"{result.address}: {result.difference or f'reproduced, {result.identity}'}")
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
