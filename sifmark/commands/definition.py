"""What a command is: a typed function with a docstring, and help for each of its parameters."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin

from sifmark.commands.answers import FORMATS
from sifmark.core.settings import join_paths, load_settings

Body = Callable[..., None]
Strings = Sequence[str]


@dataclass(frozen=True)
class Option:
    """Help for a parameter that is an option, and what a command line needs to know beyond its type."""

    help: str
    metavar: str = ""
    short: str = ""  # a letter; the only ones are j, n and o, beside h, q and v, which every command has
    choices: tuple[str, ...] = ()
    least: int | None = None  # of a whole number
    completes: str = ""  # what a shell offers: image, recipe, study, workload, file or folder
    setting: str = ""  # the setting of sifmark.toml that it replaces for this command


@dataclass(frozen=True)
class Argument(Option):
    """Help for a parameter that is given by its place."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a command as a command line has it."""

    name: str  # in the body
    kind: type  # bool, int, float or str
    repeatable: bool
    required: bool
    default: Any
    option: Option

    @property
    def positional(self) -> bool:
        """Whether it is given by its place."""
        return isinstance(self.option, Argument)

    @property
    def flag(self) -> str:
        """Its name on a command line, without dashes in front: `dry-run`."""
        return self.name.rstrip("_").replace("_", "-")


@dataclass(frozen=True)
class Command:
    """A command: its name, such as `build` or `registry.push`, and the function that carries it out.

    The function is given the settings if it has a parameter `settings`. Its other parameters are annotated with an
    Option or an Argument. `more` are options of settings, which the function sees in the settings alone.
    """

    name: str
    body: Body
    more: tuple[Parameter, ...] = ()
    example: str = ""  # a command line that works, without the program's name
    former: str = ""  # a name that it had before 0.2

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, in the order in which help lists them."""
        own = inspect.signature(self.body).parameters.values()
        return (*(_parameter(each) for each in own if each.name != "settings"), *self.more)

    @property
    def takes_settings(self) -> bool:
        """Whether the body is given the settings."""
        return "settings" in inspect.signature(self.body).parameters

    @property
    def formatted(self) -> bool:
        """Whether the answer comes in several formats."""
        return any(parameter.option.choices == FORMATS for parameter in self.parameters)

    @property
    def description(self) -> str:
        """What the command does: the whole docstring."""
        return inspect.getdoc(self.body) or ""

    @property
    def summary(self) -> str:
        """What the command does, in one line."""
        return self.description.partition("\n")[0]

    def arguments_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of parameters as arguments of the body.

        What is missing or None gets its default. Settings are read, and replaced by the options that name them.
        """
        complete = {each.name: each.default for each in self.parameters}
        complete |= {name: value for name, value in values.items() if value is not None}
        hidden = {parameter.name for parameter in self.more}
        arguments = {name: value for name, value in complete.items() if name not in hidden}
        if self.takes_settings:
            given = {each.option.setting: complete[each.name] for each in self.parameters if each.option.setting}
            arguments["settings"] = load_settings(**{name: _text(value) for name, value in given.items()})
        return arguments


def command(name: str, *more: Parameter, example: str = "", former: str = "") -> Callable[[Body], Command]:
    """Return a decorator that makes a function a command."""
    return lambda body: Command(name, body, more, example or name, former)


def _parameter(parameter: inspect.Parameter) -> Parameter:
    annotation, option = get_args(parameter.annotation)
    repeatable = get_origin(annotation) is get_origin(Strings)
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    return Parameter(parameter.name, str if repeatable else annotation, repeatable, required, default, option)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else join_paths(value)


def _setting(name: str, option: Option) -> Parameter:
    return Parameter(name, str, False, False, "", option)


ENGINE = _setting(
    "engine",
    Option("Container engine. [default: apptainer]", choices=("apptainer", "docker"), setting="engine"),
)
BASES = _setting(
    "bases",
    Option(
        "Base images; stand-in: small test bases, for machines without a registry. [default: pinned]",
        choices=("pinned", "stand-in"),
        setting="bases",
    ),
)
Keys = Annotated[
    Strings,
    Option(
        "Trusted key: a public key in PEM form or a PGP fingerprint. Repeatable.",
        "KEY",
        completes="file",
        setting="keys",
    ),
]
Format = Annotated[str, Option("Format of the answer; --json is short for --format json.", choices=FORMATS)]
Plain = Annotated[bool, Option("Lines of text instead of graphs on a terminal.")]
JUnit = Annotated[str, Option("Also write a JUnit report, for CI.", "FILE", completes="file")]
RegistryName = Annotated[
    str,
    Option("HOST/PATH of a registry, or a folder. [default: registry in sifmark.toml]", "REGISTRY", completes="folder"),
]
Tag = Annotated[str, Option("Tag of the image. [default: the version; for Docker with -docker]", "TAG")]
