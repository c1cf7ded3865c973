"""The command line: parse words by the definitions of the commands, and print help, suggestions and errors."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from sifmark import __version__
from sifmark.commands.answers import JSON
from sifmark.commands.command_table import COMMANDS, GROUPS
from sifmark.commands.definition import Command, Parameter
from sifmark.commands.failures import report, run_body
from sifmark.core.console import COLORS, configure, status
from sifmark.core.errors import UsageError

PROGRAM = "sifmark"
_FORMER = {command.former: command for command in COMMANDS.values() if command.former}
_FOOTER = f"Help for one command: {PROGRAM} COMMAND --help.  Documentation: docs/"
_NAMES = {"help_option_names": ["-h", "--help"]}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0 done, 1 failed, 2 usage, others as the command documents."""
    arguments = list(sys.argv[1:] if words is None else words)
    try:
        code = _program().main(arguments, prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        return report(_usage_error(error, arguments), as_json=_wants_json(arguments))
    except click.Abort:
        return 130
    return int(code or 0)


class _Program(click.Group):
    """All commands. A command is made when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "help":
            return click.Command(
                "help", params=[click.Argument(["name"], default="")], callback=_print_help, hidden=True
            )
        if command := COMMANDS.get(cmd_name):
            return _click_command(command)
        if command := _FORMER.get(cmd_name):
            return _click_command(command, announce=True)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            formatter.write(f"{title}:\n")
            for command in commands:
                formatter.write(f"  {command.name:<{width}}  {command.summary.rstrip('.')}\n")

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Usage: {PROGRAM} COMMAND [OPTIONS] [ARGUMENTS]\n{self.help}\n\n")
        self.format_commands(ctx, formatter)
        formatter.write(f"\n{_FOOTER}\n")


class _Command(click.Command):
    """One command. Its help has an example and the options of every command last."""

    example = ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write(f"\nExample: {PROGRAM} {self.example}\n")


def _program() -> _Program:
    text = "Build, run and compare benchmark images for AI accelerators."
    version = click.version_option(__version__, "--version", message="sifmark %(version)s")
    return version(_Program(PROGRAM, help=text, context_settings=_NAMES))


def _print_help(name: str) -> int:
    return main([name, "--help"] if name else ["--help"])


def _click_command(command: Command, announce: bool = False) -> _Command:
    def callback(quiet: bool, verbose: bool, color: str, json: bool = False, **values: Any) -> int:
        configure(quiet=quiet, verbose=verbose, color=color)
        if announce:
            status(f"{command.former} is now {command.name}; the old name goes away in 0.3")
        if json:
            values["format_"] = JSON
        as_json = command.formatted and values["format_"] == JSON
        return run_body(lambda: command.body(**command.arguments_of(values)), as_json)

    parameters = [*map(_click_parameter, command.parameters), *_common(command)]
    made = _Command(
        command.name, params=parameters, callback=callback, help=command.description, context_settings=_NAMES
    )
    made.example = command.example
    return made


def _click_parameter(parameter: Parameter) -> click.Parameter:
    option = parameter.option
    if parameter.positional:
        return click.Argument(
            [parameter.name],
            nargs=-1 if parameter.repeatable else 1,
            type=click.UNPROCESSED if parameter.name == "arguments" else str,
            required=parameter.required,
            metavar=_metavar(parameter),
            shell_complete=_completer(option.completes),
            help=option.help,
        )
    flag = parameter.kind is bool
    return click.Option(
        [parameter.name, f"--{parameter.flag}", *([f"-{option.short}"] if option.short else [])],
        is_flag=flag,
        multiple=parameter.repeatable,
        type=None if flag else _type(parameter),
        default=parameter.default if parameter.default or flag or parameter.repeatable else None,
        metavar=option.metavar or None,
        help=option.help,
        shell_complete=_completer(option.completes),
    )


def _metavar(parameter: Parameter) -> str:
    name = parameter.option.metavar or parameter.flag.upper()
    if parameter.name == "arguments":
        return f"[{name} ...]"
    return (name if parameter.required else f"[{name}]") + (" ..." if parameter.repeatable else "")


def _type(parameter: Parameter) -> Any:
    if parameter.option.choices:
        return click.Choice(parameter.option.choices, case_sensitive=False)
    if parameter.kind is int:
        return click.IntRange(min=parameter.option.least) if parameter.option.least is not None else int
    return parameter.kind


def _common(command: Command) -> list[click.Parameter]:
    """Return the options that every command has, and the alias of --format."""
    alias = [click.Option(["json", "--json"], is_flag=True, hidden=True)] if command.formatted else []
    return [
        *alias,
        click.Option(["quiet", "-q", "--quiet"], is_flag=True, help="Print answers, warnings and errors only."),
        click.Option(["verbose", "-v", "--verbose"], is_flag=True, help="Print details: names, commands, tracebacks."),
        click.Option(["color", "--color"], type=click.Choice(COLORS), default="auto", help="[default: auto]"),
    ]


def _completer(kind: str) -> Any:
    if not kind:
        return None

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG001
        from click.shell_completion import CompletionItem

        if kind in ("file", "folder"):
            return [CompletionItem(incomplete, type="file" if kind == "file" else "dir")]
        from sifmark.commands.completion import completions

        names = [CompletionItem(name) for name in completions(kind) if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]

    return complete


def _usage_error(error: click.UsageError, words: Sequence[str]) -> UsageError:
    """Return click's error as ours: its cause, and a remedy that works."""
    name = error.ctx.info_name if error.ctx else None
    command = COMMANDS.get(name or "") or _FORMER.get(name or "")
    helping = f"{PROGRAM} {command.name} --help" if command else f"{PROGRAM} --help"
    if isinstance(error, click.NoSuchCommand):
        return UsageError(
            f"no command {error.command_name!r}", _nearest_command(error.command_name), code="unknown-name"
        )
    if isinstance(error, click.NoSuchOption):
        if command and any(parameter.name == "arguments" for parameter in command.parameters):
            return _option_of_the_image(error.option_name, command, words)
        nearest = f"did you mean {' or '.join(error.possibilities)}? " if error.possibilities else ""
        cause = f"{command.name if command else PROGRAM} has no option {error.option_name}"
        return UsageError(cause, f"{nearest}see {helping}", code="unknown-option")
    if isinstance(error, click.MissingParameter) and command and error.param is not None:
        cause = f"{error.param.metavar or error.param.name} is missing"
        return UsageError(cause, f"for example: {PROGRAM} {command.example}", code="argument-missing")
    cause = error.format_message().rstrip(".")
    return UsageError(f"{cause[:1].lower()}{cause[1:]}", f"see {helping}", code="invalid-option")


def _nearest_command(name: str) -> str:
    from difflib import get_close_matches  # here: only a mistyped name needs it

    names = [*COMMANDS, *_FORMER, *(short for full in COMMANDS if (short := full.partition(".")[2]))]
    nearest = [_full_name(each) for each in get_close_matches(name, names, n=3)]
    return f"did you mean {' or '.join(dict.fromkeys(nearest))}?" if nearest else f"{PROGRAM} --help lists all commands"


def _full_name(name: str) -> str:
    if name in _FORMER:
        return _FORMER[name].name
    return name if name in COMMANDS else next(full for full in COMMANDS if full.endswith(f".{name}"))


def _option_of_the_image(option: str, command: Command, words: Sequence[str]) -> UsageError:
    """Return the error for an option that is not ours, in a command that passes words on to another program."""
    rest = list(words[words.index(command.name) + 1 :]) if command.name in words else []
    at = next((index for index, word in enumerate(rest) if word.split("=")[0] == option), len(rest))
    corrected = [PROGRAM, command.name, *rest[:at], "--", *rest[at:]]
    target = "the image" if command.name == "run" else "the scanner"
    remedy = f"options of {target} come after --: {' '.join(corrected)}"
    return UsageError(f"{command.name} has no option {option}", remedy, code="unknown-option")


def _wants_json(words: Iterable[str]) -> bool:
    return not {"--json", "--format=json"}.isdisjoint(words) or "--format json" in " ".join(words)
