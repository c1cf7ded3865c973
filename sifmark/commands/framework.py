"""How commands are declared: click's decorators with what all commands share, and the options that several have."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from sifmark.commands.answers import FORMATS, JSON
from sifmark.commands.failures import run_body
from sifmark.core.settings import join_paths, load_settings
from sifmark.core.terminal import COLORS, configure

PROGRAM = "sifmark"
HELP = {"help_option_names": ["-h", "--help"]}
# What a shell offers for a value, by how help calls the value.
_COMPLETES = {"FILE": "file", "FOLDER": "folder", "IMAGE": "image", "KEY": "file", "RESULTS": "file", "STUDY": "study"}
Body = TypeVar("Body", bound=Callable[..., None])


class Command(click.Command):
    """A command. Its help ends with an example, a command line that works, without the program's name."""

    example = ""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the example."""
        formatter.write(f"\nExample: {PROGRAM} {self.example}\n")


COMMANDS: dict[str, Command] = {}  # by full name, such as `registry.push`, in the order of their declaration


class Option(click.Option):
    """An option; with `setting` it replaces that setting of sifmark.toml for one command."""

    def __init__(self, *arguments: Any, setting: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.setting = setting


def command(name: str, example: str = "") -> Callable[[Body], Body]:
    """Return a decorator that declares a function as a command and returns the function.

    An option that was not given gets the function's default. A parameter `settings` gets the settings in force.
    """

    def declare(body: Body) -> Body:
        parameters = inspect.signature(body).parameters
        takes_rest = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

        def callback(quiet: bool, verbose: bool, color: str, json: bool = False, **values: Any) -> int:
            configure(quiet=quiet, verbose=verbose, color=color)
            given = {key: value for key, value in values.items() if value is not None}
            if json:
                given["form"] = JSON

            def carry_out() -> None:
                hidden = {each.name for each in made.params if isinstance(each, Option) and each.setting}
                arguments = {
                    key: value
                    for key, value in given.items()
                    if key in parameters or (takes_rest and key not in hidden)
                }
                if "settings" in parameters:
                    arguments["settings"] = load_settings(**_settings_of(made.params, given))
                body(**arguments)

            return run_body(carry_out, as_json=given.get("form") == JSON)

        own = reversed(getattr(body, "__click_params__", []))
        made = Command(
            name,
            params=[*own, *_common()],
            callback=callback,
            help=inspect.getdoc(body),
            short_help=(inspect.getdoc(body) or "").partition("\n")[0].rstrip("."),
            context_settings=HELP,
        )
        made.example = example or name
        COMMANDS[name] = made
        return body

    return declare


def option(
    flag: str,
    help: str,  # noqa: A002 - as click calls it
    metavar: str = "",
    *,
    short: str = "",
    name: str = "",
    kind: Any = None,
    choices: Sequence[str] = (),
    least: int | None = None,
    completes: str = "",
    **attributes: Any,
) -> Callable[[Body], Body]:
    """Return click's decorator for an option with a value.

    `name` is the parameter, if the flag's is not it. `least` makes it a whole number. `completes` is what a shell
    offers, unless `metavar` says it: image, recipe, study, workload, file or folder.
    """
    if choices:
        kind = click.Choice(choices, case_sensitive=False)
    elif least is not None:
        kind = click.IntRange(min=least)
    return click.option(
        *filter(None, (name, flag, short)),
        cls=Option,
        type=kind,
        metavar=metavar or None,
        help=help,
        shell_complete=_completer(completes or _COMPLETES.get(metavar, "")),
        **attributes,
    )


def output_option(help: str, metavar: str, name: str) -> Callable[[Body], Body]:  # noqa: A002 - as click calls it
    """Return the decorator for --output, as the parameter `name`: a FILE or a FOLDER."""
    return option("--output", help, metavar, short="-o", name=name)


def flag(name: str, help: str, *more: str) -> Callable[[Body], Body]:  # noqa: A002 - as click calls it
    """Return click's decorator for an option without a value; `more` are a short form and the parameter's name."""
    return click.option(name, *more, is_flag=True, help=help)


def argument(
    name: str,
    help: str,  # noqa: A002 - as click calls it
    metavar: str = "",
    *,
    required: bool = True,
    completes: str = "",
    **attributes: Any,
) -> Callable[[Body], Body]:
    """Return click's decorator for an argument. With `nargs=-1` it takes any number."""
    shown = metavar or name.upper()
    complete = _completer(completes or _COMPLETES.get(shown, ""))
    shown = shown if required else f"[{shown}]"
    repeated = " ..." if attributes.get("nargs") == -1 else ""
    if not required and not repeated:
        attributes["default"] = ""
    metavar = f"{shown}{repeated}"
    return click.argument(name, required=required, metavar=metavar, help=help, shell_complete=complete, **attributes)


def _common() -> list[click.Parameter]:
    """Return the options of every command."""
    return [
        click.Option(["quiet", "-q", "--quiet"], is_flag=True, help="Print answers, warnings and errors only."),
        click.Option(["verbose", "-v", "--verbose"], is_flag=True, help="Print details: names, commands, tracebacks."),
        click.Option(["color", "--color"], type=click.Choice(COLORS), default="auto", help="[default: auto]"),
    ]


def _settings_of(parameters: Iterable[click.Parameter], given: dict[str, Any]) -> dict[str, str]:
    """Return the settings that options replace, as texts."""
    options = [each for each in parameters if isinstance(each, Option) and each.setting and each.name in given]
    values = {each.setting: given[each.name or ""] for each in options}
    return {setting: value if isinstance(value, str) else join_paths(value) for setting, value in values.items()}


def _completer(kind: str) -> Any:
    if not kind:
        return None

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG001
        from click.shell_completion import CompletionItem

        if kind in ("file", "folder"):
            return [CompletionItem(incomplete, type="file" if kind == "file" else "dir")]
        names = [CompletionItem(name) for name in _names(kind) if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]

    return complete


def _names(kind: str) -> Iterable[str]:
    """Return all names of a kind: image (recipes too), recipe, study or workload."""
    from sifmark.recipes.names import cards, images
    from sifmark.recipes.recipe import recipe_names

    if kind == "study":
        from sifmark.studies.study_file import study_names

        return study_names()
    if kind == "image":
        return [*recipe_names(), *(image.name for image in images())]
    return recipe_names() if kind == "recipe" else cards()


def format_option(body: Body) -> Body:
    """Add --format, as the parameter `form`, and its alias --json."""
    alias = click.option("--json", is_flag=True, hidden=True)
    help_ = "Format of the answer; --json is short for --format json."
    return option("--format", help_, name="form", choices=FORMATS)(alias(body))


engine_option = option(
    "--engine", "Container engine. [default: apptainer]", choices=("apptainer", "docker"), setting="engine"
)
bases_option = option(
    "--bases",
    "Base images; stand-in: small test bases, for machines without a registry. [default: pinned]",
    choices=("pinned", "stand-in"),
    setting="bases",
)
key_option = option(
    "--key",
    "Trusted key: a public key in PEM form or a PGP fingerprint. Repeatable.",
    "KEY",
    multiple=True,
    setting="keys",
)
wait_idle_option = option(
    "--wait-idle", "Wait until others do not use this host, for this time at most: 10m, 90s.", "TIME"
)
plain_option = flag("--plain", "Lines of text instead of graphs on a terminal.")
junit_option = option("--junit", "Also write a JUnit report, for CI.", "FILE")
registry_option = option(
    "--registry",
    "HOST/PATH of a registry, or a folder. [default: registry in sifmark.toml]",
    "REGISTRY",
    completes="folder",
)
tag_option = option("--tag", "Tag of the image. [default: the version; for Docker with -docker]", "TAG")
private_key_option = option("--key", "Private key in PEM form, without a passphrase.", "FILE")
pgp_option = option("--pgp", "Number of a key in Apptainer's keyring: apptainer key list --secret.", "NUMBER")
signature_flag = flag("--require-signature", "Leave out results that no trusted key has signed.")
by_option = option("--by", "What names the systems. [default: site, else accelerator.name]", "FIELD")
between_option = option(
    "--between",
    "Standard deviation between sessions (boots, days, jobs) where results do not show it, such as 2%. [default: 1%]",
    "FRACTION",
)
variant_option = option("--variant", "A variant of the study, such as small.", "NAME")
results_folder_option = option("--results", "Folder of results; a study has a folder in it.", "FOLDER")
image_argument = argument("name", "A recipe or one of its images.", "NAME", completes="image")


def words_argument(program: str) -> Callable[[Body], Body]:
    """Return the decorator for words that go to another program, as the parameter `arguments`."""
    help_ = f"Words for the {program}; put -- before them."
    return click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[[--] ARGUMENTS ...]", help=help_)


def results_argument(required: bool = True) -> Callable[[Body], Body]:
    """Return the decorator for paths of results, as the parameter `paths`."""
    help_ = "Result files, folders of them, or quoted globs."
    return argument("paths", help_, "RESULTS", required=required, nargs=-1)
