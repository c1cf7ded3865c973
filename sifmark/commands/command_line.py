"""The command line: all commands in groups, with help, suggestions and errors."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from sifmark import __version__
from sifmark.commands import (  # noqa: F401 - each declares its commands
    acceptance,
    compare,
    data,
    hosts,
    image,
    images,
    meter,
    published,
    recipes,
    registry,
    reports,
    results,
    studies,
    study_analysis,
)
from sifmark.commands.failures import report
from sifmark.commands.framework import COMMANDS, HELP, PROGRAM, Command
from sifmark.core.errors import UsageError

_TITLES = {
    "Commands": ("list", "build", "run", "verify", "compare", "meter", "doctor", "clean"),
    "Images": ("image",),
    "Registries": ("registry",),
    "Results and reports": ("results", "report"),
    "Studies": ("study", "published"),
    "Devices, recipes and data": ("device", "recipe", "data"),
}
# The commands by title, as help lists them. A command whose name is that of a group comes before the group.
GROUPS: dict[str, list[Command]] = {
    title: [command for part in parts for name, command in COMMANDS.items() if f"{name}.".startswith(f"{part}.")]
    for title, parts in _TITLES.items()
}
_NAMES = [str(command.name) for commands in GROUPS.values() for command in commands]
_FOOTER = f"Help for one command: {PROGRAM} COMMAND --help.  Documentation: docs/"


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0 done, 1 failed, 2 usage, others as the command documents."""
    arguments = list(sys.argv[1:] if words is None else words)
    try:
        code = _program().main(arguments or ["--help"], prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        return report(_usage_error(error, arguments), as_json=_wants_json(arguments))
    except click.Abort:
        return 130
    return int(code or 0)


class _Commands(click.Group):
    """The commands whose names begin with a prefix: all of them, or a group such as `study.`."""

    prefix = ""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return [name.removeprefix(self.prefix) for name in _NAMES if name.startswith(self.prefix)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return COMMANDS.get(f"{self.prefix}{cmd_name}")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that words begin with, its dot perhaps a blank: `study run` is `study.run`."""
        joined = ".".join(args[:2])
        if joined in COMMANDS:
            return joined, COMMANDS[joined], args[2:]
        if self.prefix:
            raise click.NoSuchCommand(f"{self.prefix}{args[0]}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        chosen = {
            title: shown
            for title, commands in GROUPS.items()
            if (shown := [command for command in commands if (command.name or "").startswith(self.prefix)])
        }
        width = max(len(command.name or "") for commands in chosen.values() for command in commands)
        usage = f"{self.prefix}COMMAND" if self.prefix else "COMMAND"
        formatter.write(f"Usage: {PROGRAM} {usage} [OPTIONS] [ARGUMENTS]\n{self.help}\n\n")
        for title, commands in chosen.items():
            formatter.write(f"{title}:\n")
            for command in commands:
                formatter.write(f"  {command.name or '':<{width}}  {command.short_help}\n")
        formatter.write(f"\n{_FOOTER}\n")


class _Program(_Commands):
    """All commands, and the groups by their names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "help":
            words = click.Argument(["names"], nargs=-1)
            return click.Command("help", params=[words], callback=lambda names: main([*names, "--help"]), hidden=True)
        if command := super().get_command(ctx, cmd_name):
            return command
        if any(name.startswith(f"{cmd_name}.") for name in COMMANDS):
            return _group(_Commands, f"{cmd_name}.")
        return None


def _group(kind: type[_Commands], prefix: str = "") -> _Commands:
    def show_help() -> None:
        if not click.get_current_context().invoked_subcommand:
            click.echo(click.get_current_context().get_help())

    text = "Build, run and compare benchmark images for AI accelerators."
    made = kind(
        prefix.rstrip(".") or PROGRAM, help=text, callback=show_help, invoke_without_command=True, context_settings=HELP
    )
    made.prefix = prefix
    return made


def _program() -> Any:
    return click.version_option(__version__, "--version", message="sifmark %(version)s")(_group(_Program))


def _usage_error(error: click.UsageError, words: Sequence[str]) -> UsageError:
    """Return click's error as ours: its cause, and a remedy that works."""
    command = COMMANDS.get((error.ctx.info_name if error.ctx else None) or "")
    name = command.name if command else PROGRAM
    helping = f"{PROGRAM} {command.name} --help" if command else f"{PROGRAM} --help"
    if isinstance(error, click.NoSuchCommand):
        cause = f"no command {error.command_name!r}"
        return UsageError(cause, _nearest_command(error.command_name), code="unknown-name")
    if isinstance(error, click.NoSuchOption):
        if command and any(parameter.name == "arguments" for parameter in command.params):
            return _option_of_the_image(error.option_name, command, words)
        nearest = f"did you mean {' or '.join(error.possibilities)}? " if error.possibilities else ""
        return UsageError(f"{name} has no option {error.option_name}", f"{nearest}see {helping}", code="unknown-option")
    if isinstance(error, click.MissingParameter) and command and error.param is not None:
        option = isinstance(error.param, click.Option)
        missing = error.param.opts[0] if option else error.param.metavar or error.param.name
        return UsageError(f"{missing} is missing", f"for example: {PROGRAM} {command.example}", code="argument-missing")
    cause = error.format_message().rstrip(".")
    return UsageError(f"{cause[:1].lower()}{cause[1:]}", f"see {helping}", code="invalid-option")


def _nearest_command(name: str) -> str:
    from difflib import get_close_matches  # here: only a mistyped name needs it

    full = {short: name for name in reversed(_NAMES) if (short := name.partition(".")[2])}
    full |= {name: name for name in _NAMES}
    # Of names that are equally near, those as they are typed come before those without their group.
    close = sorted(get_close_matches(name, full, n=3), key=lambda each: each not in COMMANDS)
    same = [each for each in _NAMES if each.endswith(f".{name}")]
    nearest = same or dict.fromkeys(full[each] for each in close)
    return f"did you mean {' or '.join(nearest)}?" if nearest else f"{PROGRAM} --help lists all commands"


def _option_of_the_image(option: str, command: Command, words: Sequence[str]) -> UsageError:
    """Return the error for an option that is not ours, in a command that passes words on to another program."""
    name = command.name or ""
    rest = list(words[words.index(name) + 1 :]) if name in words else []
    at = next((index for index, word in enumerate(rest) if word.split("=")[0] == option), len(rest))
    corrected = [PROGRAM, name, *rest[:at], "--", *rest[at:]]
    target = "the image" if name == "run" else "the scanner"
    remedy = f"options of {target} come after --: {' '.join(corrected)}"
    return UsageError(f"{name} has no option {option}", remedy, code="unknown-option")


def _wants_json(words: Iterable[str]) -> bool:
    return not {"--json", "--format=json"}.isdisjoint(words) or "--format json" in " ".join(words)
