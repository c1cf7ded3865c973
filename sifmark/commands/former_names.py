"""Names that commands had before 0.2: they work, say the new name, and no list shows them."""

import sys
from typing import Any

from invoke.collection import Collection

from sifmark.commands.arguments import Command
from sifmark.core.console import status


class FormerName(Collection):
    """A former name as a collection without tasks, whose default task is the command.

    Invoke lists the tasks of collections, and knows a collection's default task by the collection's name too. It has
    no hidden tasks, and tasks.py, which `inv` loads while it runs, cannot change how `inv` lists or parses.
    """

    _DEFAULT = ""  # the name of the task within the collection, so that help shows the command as `push.`

    def __init__(self, name: str, command: Command) -> None:
        super().__init__(name)
        self.command = command
        self.default = self._DEFAULT
        self.__doc__ = f"The former name of {command.command}."

    @property
    def task_names(self) -> dict[str, list[str]]:
        """The names that invoke parses; none while a shell completes a word."""
        return {} if "--complete" in sys.argv else {self._DEFAULT: []}

    def task_with_config(self, name: str | None) -> tuple[Any, dict[str, Any]]:
        """Return the command, and no configuration."""
        if name:
            raise KeyError(name)
        return self.command, {}


def announce(former: str, name: str) -> None:
    """Print the new name of a command that was called by a former one."""
    status(f"{former} is now {name}; the old name goes away in 0.3")
