"""All commands, in the groups and the order in which help lists them."""

from types import ModuleType

from sifmark.commands.definition import Command
from sifmark.commands.definitions import data, dev, image, main, recipe, registry, results

GROUPS: dict[str, ModuleType] = {
    "Commands": main,
    "Images": image,
    "Registries": registry,
    "Results": results,
    "Recipes": recipe,
    "Data": data,
    "Development": dev,
}


def commands_of(module: ModuleType) -> list[Command]:
    """Return the commands that a module defines, in their order."""
    return [value for value in vars(module).values() if isinstance(value, Command)]


COMMANDS = {command.name: command for module in GROUPS.values() for command in commands_of(module)}
