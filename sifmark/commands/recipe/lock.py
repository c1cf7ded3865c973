"""The recipe.lock command: resolve a recipe's wheels and write their lock."""

from sifmark.commands.answers import answer_record
from sifmark.core.console import output
from sifmark.core.settings import Settings
from sifmark.layers.resolve import lock_wheels
from sifmark.recipes.recipe import load_recipe


def lock(name: str, settings: Settings, python: str, platform: str, form: str) -> None:
    """Write the lock of a recipe and print its path. Empty values mean the base's Python and this host's platform."""
    path = lock_wheels(load_recipe(name), settings, python or None, platform or None)
    answer_record(form, {"recipe": name, "lock": str(path)}, lambda: output(str(path)))
