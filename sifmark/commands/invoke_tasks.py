"""The commands as invoke tasks, for `inv`."""

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.parser import Parser
from invoke.program import Program
from invoke.tasks import Task

from sifmark.commands.command_table import COMMANDS
from sifmark.commands.definition import Command
from sifmark.commands.failures import run_body

_INVOKE = ("inv", "invoke")


def namespace() -> Collection:
    """Return the commands as invoke finds them in tasks.py: those in groups as collections.

    If `inv` was given a command, our own command line carries it out, so no tasks are made.
    """
    root = Collection()
    if words := _words_of_inv(sys.argv):
        root.add_collection(_CommandLine(words))
        return root
    for name, command in COMMANDS.items():
        group, _, short = name.rpartition(".")
        if group and group not in root.collections:
            root.collections[group] = _Group(group, root.tasks.get(group))
        (root.collections[group] if group else root).add_task(_task(command, short), name=short)
    return root


class _Group(Collection):
    """The commands of a group, whose name may be a command too: `report` is one beside `report.site`.

    Invoke would refuse the two names, and lists a task of a group's name under another one.
    """

    def __init__(self, name: str, namesake: Any = None) -> None:
        super().__init__(name)
        self.namesake = namesake

    def task_with_config(self, name: str | None) -> tuple[str, dict[str, Any]]:
        """Return a task and its configuration; without a name, the task that is called like the group."""
        return super().task_with_config(name) if name else (self.namesake, self.configuration())


class _CommandLine(Collection):
    """A collection without tasks that hands the words of `inv` to our own command line, and ends `inv`.

    Invoke's parser has no lists of names, no help after a command and no suggestions, and tasks.py, which `inv` loads
    while it runs, cannot replace it. But before invoke parses a command, it asks each collection for its tasks.
    """

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__("sifmark")
        self.words = words

    @property
    def task_names(self) -> dict[str, list[str]]:
        """The names that invoke parses: it never gets them."""
        from sifmark.commands.command_line import main

        raise Exit(code=main(self.words))


def _words_of_inv(argv: Sequence[str]) -> list[str]:
    """Return what follows invoke's own options, or the command that they ask help for. Empty if invoke is to answer."""
    program = Path(argv[0])
    if program.name not in _INVOKE and program.parent.name not in _INVOKE:  # such as python -m invoke
        return []
    parsed = Parser(initial=Program().initial_context, ignore_unknown=True).parse_argv(list(argv[1:]))
    options = parsed[0].args
    if isinstance(options.help.value, str):
        return [options.help.value, "--help"]
    if options.list.value or options.complete.value or not parsed.unparsed:
        return []
    return list(argv[argv.index(parsed.unparsed[0], 1) :])


def _task(command: Command, name: str) -> Task[Callable[..., None]]:
    def function(context: Any, **values: Any) -> None:  # noqa: ARG001 - invoke hands each task a context
        if code := run_body(lambda: command.body(**command.arguments_of(values)), as_json=False):
            raise Exit(code=code)

    function.__name__, function.__doc__ = name, command.description
    function.__signature__ = _signature(command)  # type: ignore[attr-defined]
    repeatable = [each.name for each in command.parameters if each.repeatable]
    return Task(function, name=name, iterable=repeatable, auto_shortflags=False)


def _signature(command: Command) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [
        inspect.Parameter(each.name, kind, default=inspect.Parameter.empty if each.required else each.default)
        for each in command.parameters
    ]
    return inspect.Signature([inspect.Parameter("context", kind), *own])
