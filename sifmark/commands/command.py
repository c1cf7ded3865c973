"""Commands as invoke tasks: groups, common options, settings, failures."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from invoke.collection import Collection

from sifmark.commands.arguments import Command
from sifmark.commands.failures import reported_failures
from sifmark.commands.former_names import FormerName, announce
from sifmark.core.settings import join_paths, load_settings

Body = Callable[..., None]


@dataclass(frozen=True)
class Option:
    """An option that several commands have. One that is a setting changes the settings that a command is given."""

    name: str
    help: str
    setting: str = ""
    repeatable: bool = False
    flag: bool = False

    def described(self, text: str) -> "Option":
        """Return the option with another help text."""
        return replace(self, help=text)

    @property
    def default(self) -> Any:
        """The value if the option is not given."""
        return None if self.repeatable else False if self.flag else ""


ENGINE = Option("engine", "'apptainer' (default) or 'docker'", setting="engine")
BASES = Option("bases", "'pinned' (default) or 'stand-in', for machines that reach no public registry", setting="bases")
KEY = Option("key", "as of verify", setting="keys", repeatable=True)
JSON = Option("json", "for programs", flag=True)


@dataclass(frozen=True)
class CommandSet:
    """All commands by their names: `build`, or `registry.push` in a group."""

    commands: dict[str, Command] = field(default_factory=dict)
    former: dict[str, Callable[[], Command]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        *options: Option,
        formerly: str = "",
        help: Mapping[str, str] | None = None,  # noqa: A002 - as invoke names it
        iterable: Iterable[str] = (),
        kind: type[Command] = Command,
    ) -> Callable[[Body], Body]:
        """Return a decorator that adds a command with these common options.

        The body is given the settings if it has a parameter `settings`, and those common options that it has as
        parameters. `formerly` is a name that still works and announces the new one.
        """
        texts = {option.name: option.help for option in options} | dict(help or {})
        names = [*iterable, *(option.name for option in options if option.repeatable)]

        def wrap(body: Body) -> Body:
            function = _function(body, options)
            self.commands[name] = _task(kind, function, name, texts, names)
            if formerly:
                announcing = _announcing(function, formerly, name)
                self.former[formerly] = partial(_task, kind, announcing, name, texts, names)
            return body

        return wrap

    def namespace(self) -> Collection:
        """Return the commands as invoke finds them in tasks.py: those in groups as collections."""
        root = Collection()
        for name, command in self.commands.items():
            group, _, short = name.rpartition(".")
            if group and group not in root.collections:
                root.add_collection(Collection(group))
            (root.collections[group] if group else root).add_task(command, name=short)
        for former, make_command in self.former.items():
            root.add_collection(FormerName(former, make_command))
        return root


def _task(kind: type[Command], function: Body, name: str, texts: Mapping[str, str], names: Iterable[str]) -> Command:
    command = kind(function, name=name.rpartition(".")[2], help=dict(texts), iterable=list(names))
    command.command = name
    return command


def _function(body: Body, options: Iterable[Option]) -> Body:
    """Return the function that invoke calls: with the body's parameters and the common options, without settings."""
    parameters = inspect.signature(body).parameters
    settings_by_option = {option.name: option for option in options if option.setting}

    def function(context: Any, **arguments: Any) -> None:  # noqa: ARG001 - invoke hands each task a context
        with reported_failures(as_json=arguments.get("json") is True or arguments.get("format") == "json"):
            values = {name: arguments[name] for name in parameters if name in arguments}
            if "settings" in parameters:
                given = {option.setting: _text(arguments[name]) for name, option in settings_by_option.items()}
                values["settings"] = load_settings(**given)
            body(**values)

    return _with_signature(function, body, options)


def _with_signature(function: Body, body: Body, options: Iterable[Option]) -> Body:
    own = [parameter for name, parameter in inspect.signature(body).parameters.items() if name != "settings"]
    names = {parameter.name for parameter in own}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    common = [inspect.Parameter(o.name, kind, default=o.default) for o in options if o.name not in names]
    context = inspect.Parameter("context", kind)
    function.__name__, function.__doc__ = body.__name__, body.__doc__
    function.__signature__ = inspect.Signature([context, *own, *common])  # type: ignore[attr-defined]
    return function


def _announcing(function: Body, former: str, name: str) -> Body:
    def announcing(context: Any, **arguments: Any) -> None:
        announce(former, name)
        function(context, **arguments)

    announcing.__name__, announcing.__doc__ = function.__name__, function.__doc__
    announcing.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return announcing


def _text(value: Any) -> str:
    return value if isinstance(value, str) else join_paths(value)
