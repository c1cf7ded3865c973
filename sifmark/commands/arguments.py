"""What invoke's arguments lack: `VERB --help` where a name is wanted, a flag that stands for that name, and whole
numbers whose faults are told as all others are."""

from collections.abc import Sequence
from typing import Any

from invoke.exceptions import Exit, ParseError
from invoke.parser.argument import Argument
from invoke.tasks import Task

from sifmark.core.errors import EXIT_USAGE, UsageError
from sifmark.recipes.names import EVERYTHING


class AllArgument(Argument):
    """`--all`, in place of a name: where it is given, none is missing."""

    name_argument: Argument

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take the flag, unless a name was given."""
        if self.name_argument.value is not None:
            raise ParseError(f"--all stands in place of a name; {self.name_argument.value!r} was given too")
        super().set_value(value, cast)
        self.name_argument.value = EVERYTHING


class Positional(Argument):
    """An argument that has its place, so that invoke takes whatever comes first for it."""

    verb: str

    def set_value(self, value: Any, cast: bool = True) -> None:
        """Take the value. Raises Exit where it is a call for help."""
        if value in ("-h", "--help"):
            raise Exit(f"help is asked for before the verb: inv --help {self.verb}", code=EXIT_USAGE)
        super().set_value(value, cast)


class Command(Task):  # type: ignore[type-arg] # invoke's own annotations leave it open
    """A task that says where its help is."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's arguments, the positional ones as ours."""
        arguments = super().get_arguments(ignore_unknown_help)
        for argument in arguments:
            if argument.positional:
                argument.__class__ = Positional
                argument.verb = self.name.replace("_", "-")  # type: ignore[attr-defined]
        return arguments


class NameOrAll(Command):
    """A task with the arguments `name` and `all`, of which one is needed."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Invoke's arguments, with `all` bound to `name`."""
        arguments = super().get_arguments(ignore_unknown_help)
        named = {argument.name: argument for argument in arguments}
        everything = named["all"]
        everything.__class__ = AllArgument
        everything.name_argument = named["name"]  # type: ignore[attr-defined]
        return arguments


def after_dashes(command_line: Sequence[str]) -> list[str]:
    """Return the words after `--`, which are for another program."""
    words = list(command_line)
    return words[words.index("--") + 1 :] if "--" in words else []


def parse_int(option: str, text: str, least: int, most: int | None = None) -> int:
    """The number that a word is. Raises UsageError for what is none, or out of its bounds."""
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= (int(text) if most is None else most):
        upto = "" if most is None else f" to {most}"
        raise UsageError(f"{option} {text!r} is not a whole number from {least}{upto}", "give one, or leave it out")
    return int(text)
