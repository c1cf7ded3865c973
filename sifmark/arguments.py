"""What invoke's arguments lack: a flag that stands for the name that is asked for otherwise."""

from typing import Any

from invoke.exceptions import ParseError
from invoke.parser.argument import Argument
from invoke.tasks import Task

EVERYTHING = "*"


class AllArgument(Argument):
    """`--all`, in place of a name: where it is given, none is missing."""

    name_argument: Argument

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take the flag, unless a name was given."""
        if self.name_argument.value is not None:
            raise ParseError(f"--all stands in place of a name; {self.name_argument.value!r} was given too")
        super().set_value(value, cast)
        self.name_argument.value = EVERYTHING


class NameOrAll(Task):  # type: ignore[type-arg] # invoke's own annotations leave it open
    """A task with the arguments `name` and `all`, of which one is needed."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's arguments, with `all` bound to `name`."""
        arguments = super().get_arguments(ignore_unknown_help)
        named = {argument.name: argument for argument in arguments}
        everything = named["all"]
        everything.__class__ = AllArgument
        everything.name_argument = named["name"]  # type: ignore[attr-defined]
        return arguments
