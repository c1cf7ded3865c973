"""Who may import whom, read from the syntax trees."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmark.core import paths

FRAMEWORKS = {"torch", "torchvision", "tensorflow", "numpy", "PIL"}
# Each vendor package belongs to the one module named for it.
VENDORS = {
    "poptorch": "devices/pytorch/ipu.py",
    "intel_extension_for_pytorch": "devices/pytorch/xpu.py",
    "pynvml": "metering/meters/nvml.py",
    "amdsmi": "metering/meters/amd.py",
    "gcipuinfo": "metering/meters/gcipuinfo.py",
}


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, absolute."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield node.module or ""


def files(root: Path) -> list[Path]:
    found = sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)
    assert found, f"nothing under {root}"
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(paths.ENTRYPOINTS))


@pytest.mark.parametrize("path", files(paths.PACKAGE), ids=str)
def test_the_host_side_never_imports_in_image_code(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & ({"entrypoints", "tasks"} | FRAMEWORKS - {"numpy"})


def test_tasks_import_only_the_host_side() -> None:
    roots = {name.split(".")[0] for name in imports(paths.TASKS)}
    assert roots <= {"sifmark", "invoke", "functools", "sys", "collections", "typing"}


@pytest.mark.parametrize("path", files(paths.ENTRYPOINTS), ids=relative)
def test_in_image_code_keeps_its_rooms(path: Path) -> None:
    names = set(imports(path))
    roots = {name.split(".")[0] for name in names}
    room = relative(path).split("/")[0]
    assert "sifmark" not in roots
    if room not in ("workloads", "devices", "data", "worker"):
        own = {"entrypoints", "jsonschema", *sys.stdlib_module_names, *VENDORS}
        assert roots <= own, "the parent process has the standard library and jsonschema, and no framework"
    if room == "workloads":
        assert not any(name.startswith(("entrypoints.devices", "entrypoints.metering")) for name in names)
    for vendor in roots & set(VENDORS):
        assert relative(path) == VENDORS[vendor]
