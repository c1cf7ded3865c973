"""What modules of devices ask of PyTorch's interface to a kind of device, read from their source."""

from __future__ import annotations

import ast
from pathlib import Path

from entrypoints import devices

FOLDER = Path(devices.__file__).resolve().parent


def called(file: str, *roots: str) -> set[str]:
    """Return the attributes that a module asks of any expression in `roots`. Not for Python 3.8."""
    names = set()
    for node in ast.walk(ast.parse((FOLDER / file).read_text("utf-8"))):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) and hasattr(ast, "unparse") else ""
        names |= {text[len(root) + 1 :] for root in roots if text.startswith(f"{root}.")}
    return {name for name in names if "." not in name and "(" not in name}
