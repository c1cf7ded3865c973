"""Changes of Python sources, located by symbol and code, not by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class StaleFaultError(Exception):
    """The code to change is not in the sources any more, or not exactly once."""


def plant(root: Path, symbol: str, was: str, becomes: str) -> Path:
    """Replace a piece of a symbol's code, in whichever file below `root` defines it. Return the file.

    `symbol` is a dotted name as in `Class.method`, or a constant; `was` and `becomes` are an expression or a statement,
    in any layout. Every occurrence in the symbol is replaced. Raises StaleFaultError.
    """
    path, text = planted(root, symbol, was, becomes)
    path.write_text(text)
    return path


def planted(root: Path, symbol: str, was: str, becomes: str) -> tuple[Path, str]:
    """Return the file that `plant` would change, and its text afterwards. Raises StaleFaultError."""
    pattern, names = _parsed(was), symbol.split(".")
    matches = [
        (path, text, nodes)
        for path in sorted(root.rglob("*.py"))
        if names[-1] in (text := path.read_text())
        for definition in _definitions(_tree(text), names)
        if (nodes := [node for node in ast.walk(definition) if _same(node, pattern)])
    ]
    if len(matches) != 1:
        where = f"in {len(matches)} definitions of that name" if matches else "in no definition of that name"
        raise StaleFaultError(f"{symbol}: `{was}` is {where} below {root.name}/")
    path, text, nodes = matches[0]
    changed = _replaced(text, nodes, becomes)
    ast.parse(changed)
    return path, changed


def _parsed(code: str) -> ast.AST:
    (statement,) = ast.parse(code).body
    return statement.value if isinstance(statement, ast.Expr) else statement


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _same(node: ast.AST, pattern: ast.AST) -> bool:
    if isinstance(node, ast.Expr):  # its value matches in its place
        return False
    return type(node) is type(pattern) and ast.dump(node) == ast.dump(pattern)


def _definitions(tree: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """Yield functions, classes and assignments of a dotted name, however nested."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition) and node.name == names[0]:
            if len(names) == 1:
                yield node
            else:
                yield from _definitions(node, names[1:])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and len(names) == 1 and _binds(node, names[0]):
            yield node
        elif not isinstance(node, ast.expr):
            yield from _definitions(node, names)


def _binds(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _replaced(text: str, nodes: list[ast.AST], becomes: str) -> str:
    """Return the text with the nodes replaced by other code, the last first. Columns count bytes of a line's UTF-8."""
    lines = text.encode().splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    source = b"".join(lines)
    for node in sorted(nodes, key=_place, reverse=True):
        line, column, end_line, end_column = _span(node)
        code = becomes if isinstance(node, ast.stmt) else f"({becomes})"
        begin, end = starts[line - 1] + column, starts[end_line - 1] + end_column
        source = source[:begin] + _indented(code, column).encode() + source[end:]
    return source.decode()


def _place(node: ast.AST) -> tuple[int, int]:
    return _span(node)[:2]


def _span(node: ast.AST) -> tuple[int, int, int, int]:
    if not isinstance(node, ast.expr | ast.stmt) or node.end_lineno is None or node.end_col_offset is None:
        raise StaleFaultError(f"{ast.dump(node)} has no place of its own in the text")
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _indented(code: str, column: int) -> str:
    """Return statements of several lines at the indentation of what they replace."""
    return code.replace("\n", "\n" + " " * column)
