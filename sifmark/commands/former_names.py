"""Names that commands had before 0.2: they work, say the new name, and no list shows them."""

import sys
from collections.abc import Callable
from typing import Any

from invoke.collection import Collection

from sifmark.commands.arguments import Command
from sifmark.core.console import status


class FormerName(Collection):
    """A former name as a collection without tasks, whose default task is the command.

    Invoke has no hidden tasks, and tasks.py, which `inv` loads while it runs, cannot change how `inv` parses or lists.
    But it lists only the tasks of a collection, and runs a collection's default task by the collection's name.
    """

    _DEFAULT = ""  # the name of the task within the collection, so that help shows the command as `push.`

    def __init__(self, name: str, make_command: Callable[[], Command]) -> None:
        super().__init__(name)
        self.make_command = make_command
        self.default = self._DEFAULT

    def __deepcopy__(self, _memo: dict[int, Any]) -> "FormerName":
        """Return the collection itself, as commands do."""
        return self

    @property
    def task_names(self) -> dict[str, list[str]]:
        """The names that invoke parses: none unless the former name is used, which saves the time to make them."""
        return {self._DEFAULT: []} if self.name in sys.argv else {}

    def task_with_config(self, name: str | None) -> tuple[Any, dict[str, Any]]:
        """Return the command, and no configuration."""
        if name:
            raise KeyError(name)
        return self.make_command(), {}


def announce(former: str, name: str) -> None:
    """Print the new name of a command that was called by a former one."""
    status(f"{former} is now {name}; the old name goes away in 0.3")
