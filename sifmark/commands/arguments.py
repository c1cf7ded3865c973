"""What invoke's arguments lack: `COMMAND --help` where a name is expected, `--all` in place of a name, and whole
numbers with an error like all others."""

from collections.abc import Sequence
from typing import Any

from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.tasks import Task

from sifmark.core.errors import EXIT_USAGE, UsageError
from sifmark.recipes.names import EVERYTHING


class AllArgument(Argument):
    """The flag `--all`, which gives the positional name a value."""

    name_argument: Argument

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Set the flag. Raises ParseError if a name was given."""
        if self.name_argument.value is not None:
            raise ParseError(f"--all stands in place of a name; {self.name_argument.value!r} was given too")
        super().set_value(value, cast)
        self.name_argument.value = EVERYTHING


class Positional(Argument):
    """A positional argument. Invoke takes any word for its value, even `--help`."""

    command: str

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Set the value. Raises Exit if it is a call for help."""
        if value in ("-h", "--help"):
            raise Exit(f"help is asked for before the verb: inv --help {self.command}", code=EXIT_USAGE)
        super().set_value(value, cast)


class Command(Task):  # type: ignore[type-arg] # invoke's own annotations leave it open
    """A task with our positional arguments."""

    command: str  # its whole name, such as registry.push

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Command":
        """Return the command itself: invoke copies the tasks of groups, which takes time and serves nothing here."""
        return self

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return invoke's arguments, the positional ones as ours."""
        arguments = super().get_arguments(ignore_unknown_help)
        for argument in arguments:
            if argument.positional:
                argument.__class__ = Positional
                argument.command = self.command  # type: ignore[attr-defined]
        return arguments


class NameOrAll(Command):
    """A task with the arguments `name` and `all`, of which one is needed."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return invoke's arguments, with `all` bound to `name`."""
        arguments = super().get_arguments(ignore_unknown_help)
        by_name = {argument.name: argument for argument in arguments}
        everything = by_name["all"]
        everything.__class__ = AllArgument
        everything.name_argument = by_name["name"]  # type: ignore[attr-defined]
        return arguments


def after_dashes(command_line: Sequence[str]) -> list[str]:
    """Return the words after `--`, which are for another program."""
    words = list(command_line)
    return words[words.index("--") + 1 :] if "--" in words else []


def parse_int(option: str, text: str, least: int, most: int | None = None) -> int:
    """Return the whole number that an option's text is. Raises UsageError if it is none, or out of its bounds."""
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= (int(text) if most is None else most):
        upto = "" if most is None else f" to {most}"
        cause = f"{option} {text!r} is not a whole number from {least}{upto}"
        raise UsageError(cause, "give one, or leave it out", code="invalid-option")
    return int(text)
