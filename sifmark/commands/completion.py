"""Names that a shell completes."""

from collections.abc import Iterable

from sifmark.recipes.names import cards, images
from sifmark.recipes.recipe import recipe_names


def completions(kind: str) -> Iterable[str]:
    """Return all names of a kind: image (recipes too), recipe, study or workload."""
    if kind == "study":
        from sifmark.studies.study_file import study_names

        return study_names()
    if kind == "image":
        return [*recipe_names(), *(image.name for image in images())]
    return recipe_names() if kind == "recipe" else cards()
