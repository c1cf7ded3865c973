"""Every error has a code that the table of codes explains, and every code is used."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from unit.test_architecture import files

import sifmark.engines
from sifmark.core import errors, paths
from sifmark.core.error_codes import CODES

SOURCES = [*files(paths.PACKAGE), paths.CHECKOUT / "tasks.py"]


@cache
def error_names() -> frozenset[str]:
    """The names of SifmarkError and all its subclasses in the sources."""
    bases = {node.name: {b.id for b in node.bases if isinstance(b, ast.Name)} for node in _classes()}
    names = {"SifmarkError"}
    while more := {name for name, above in bases.items() if above & names} - names:
        names |= more
    return frozenset(names)


def _classes() -> Iterator[ast.ClassDef]:
    for path in SOURCES:
        yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def made(tree: ast.AST) -> Iterator[tuple[int, str | None]]:
    """The line and the code of each error that is made; no code if it has none of its own.

    Errors that pass on the code of another, or take it from a table in a variable `code`, are left out.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in error_names() and not passed_on(node):
                yield node.lineno, code_of(node)


def code_of(call: ast.Call) -> str | None:
    values: list[ast.expr | None] = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    (value,) = values or [None]
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def passed_on(call: ast.Call) -> bool:
    values = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    return any(getattr(value, "attr", getattr(value, "id", "")) == "code" for value in values)


def relative(path: Path) -> str:
    return str(path.relative_to(paths.ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_an_error_has_a_code_of_the_table(path: Path) -> None:
    codes = list(made(ast.parse(path.read_text())))
    missing = [line for line, code in codes if code not in CODES]
    assert not missing, f"lines without a code of the table: {missing}"


def test_codes_are_in_order_and_have_a_sentence() -> None:
    assert list(CODES) == sorted(CODES)
    for code, meaning in CODES.items():
        assert code == code.lower() and " " not in code
        assert meaning[0].isupper() and meaning.endswith(".")


def test_every_code_is_used() -> None:
    table = paths.PACKAGE / "core" / "error_codes.py"
    sources = [*SOURCES, *files(paths.ENTRYPOINTS)]  # images name errors by the same codes
    used = {text for path in sources if path != table for text in literals(ast.parse(path.read_text()))}
    assert set(CODES) <= used, set(CODES) - used


def literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_errors_are_recognised_by_their_classes() -> None:
    assert {"SifmarkError", "UsageError", "RegistryError", "CommandError", "CheckFailed", "GateError"} <= error_names()
    assert issubclass(sifmark.engines.CheckFailed, errors.SifmarkError)
    lines = [
        "UsageError('x', 'y', code='z')",
        "SifmarkError('x')",
        "CheckFailed('x', code=name)",
        "UsageError('x', code=e.code)",
    ]
    code = "\n".join(lines)
    assert list(made(ast.parse(code))) == [(1, "z"), (2, None), (3, None)]
