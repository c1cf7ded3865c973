"""Commands, options and scripts that messages and remedies name: all of them exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache

from sifmark.commands import command_line  # noqa: F401 - which declares all commands
from sifmark.commands.framework import COMMANDS
from sifmark.core import paths

SOURCES = sorted([*(paths.ROOT / "sifmark").rglob("*.py"), *(paths.ROOT / "entrypoints").rglob("*.py")])
# A command of ours in a text: a name, then options, each with the word after it, or a quoted or capital word.
OURS = re.compile(r"sifmark ((?:[a-z]+\.)?[a-z-]+)((?: (?:--?[a-z-]+|'[^']*'|[A-Z][A-Z/_]*|\[?--\]?))*)")
GENERAL = {"help", "quiet", "verbose", "color", "json", "version"}


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return every text in the sources that is no docstring, with its file; a value in it is {}."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
        docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield path.name, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield path.name, node.value


def test_every_command_in_a_text_exists_with_its_options() -> None:
    checked = 0
    for file, text in texts():
        for match in OURS.finditer(text):
            name, words = match[1], match[2].split()
            if (command := COMMANDS.get(name)) is None:
                assert "." not in name or name.split(".")[0] not in {group.split(".")[0] for group in COMMANDS}, text
                continue
            flags = {word.removeprefix("--") for parameter in command.params for word in parameter.opts} | GENERAL
            options = {word.removeprefix("--") for word in words if word.startswith("--") and word != "--"}
            assert options <= flags, f"{file}: {text}"
            checked += 1
    assert checked > 60


def test_every_script_in_a_text_exists() -> None:
    named = {script for _, text in texts() for script in re.findall(r"\bci/[a-z-]+(?:/[a-z-]+)*", text)}
    assert len(named) > 4 and all((paths.CHECKOUT / script).exists() for script in named)
