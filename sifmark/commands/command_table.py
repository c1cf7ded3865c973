"""All commands, in the groups and the order in which help lists them."""

from types import ModuleType

from sifmark.commands.definition import Command
from sifmark.commands.definitions import (
    analysis,
    data,
    device,
    image,
    main,
    published,
    recipe,
    registry,
    report,
    results,
    study,
)


def _commands_of(module: ModuleType) -> list[Command]:
    """Return the commands that a module defines, in their order."""
    return [value for value in vars(module).values() if isinstance(value, Command)]


GROUPS: dict[str, list[Command]] = {
    "Commands": _commands_of(main),
    "Images": _commands_of(image),
    "Registries": _commands_of(registry),
    "Results and reports": _commands_of(results) + _commands_of(report),
    "Studies": _commands_of(study) + _commands_of(analysis) + _commands_of(published),
    "Devices, recipes and data": _commands_of(device) + _commands_of(recipe) + _commands_of(data),
}
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}
