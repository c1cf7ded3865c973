"""Names in the code: none that says nothing of its value, and no two classes with one name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from sifmark.core import paths

EMPTY_NAMES = frozenset(("told", "found", "one", "there", "known", "seen"))
ROOTS = ("entrypoints", "sifmark", "tests", "benchmarks", "ci")
SIDES = ("entrypoints", "sifmark")
# Folders whose subfolders or modules are the same thing once each, by framework or vendor, and share names of classes.
SIBLINGS = ("entrypoints/workloads", "entrypoints/devices", "entrypoints/metering/meters")


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of whatever a module binds, attributes and private names among it."""
    for node in ast.walk(tree):
        for name in _bound(node):
            if name is not None:
                yield getattr(node, "lineno", 0), name


def _bound(node: ast.AST) -> list[str | None]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(name=name, asname=alias):
            return [alias or name]
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return [name]
        case ast.MatchMapping(rest=name):
            return [name]
    return []


def empty_names(path: Path) -> list[str]:
    """Return a line for each name of the list that a file, or any below a folder, binds."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [
        f"{file}:{line}: {name}"
        for file in files
        for line, name in bindings(ast.parse(file.read_text("utf-8")))
        if name.strip("_") in EMPTY_NAMES
    ]


def classes(root: Path) -> dict[str, list[str]]:
    """Return the files that define a class, relative to the folder above `root`, by the name of the class."""
    files = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path.relative_to(root.parent).as_posix())
    return dict(files)


def duplicates(root: Path) -> dict[str, list[str]]:
    """Return the classes below a root that share a name, but for those of siblings with one each."""
    return {name: files for name, files in classes(root).items() if len(files) > 1 and not _one_per_sibling(files)}


def _one_per_sibling(files: list[str]) -> bool:
    for folder in SIBLINGS:
        siblings = [file[len(folder) + 1 :].split("/")[0] for file in files if file.startswith(f"{folder}/")]
        if len(siblings) == len(files):
            return len(set(siblings)) == len(files)
    return False


@pytest.mark.parametrize("root", ROOTS)
def test_no_name_is_bound_that_says_nothing_of_its_value(root: str) -> None:
    assert empty_names(paths.ROOT / root) == []


@pytest.mark.parametrize("side", SIDES)
def test_no_two_classes_of_a_side_share_a_name(side: str) -> None:
    assert duplicates(paths.ROOT / side) == {}


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "def read(one): ...",
        "self.found = 1",
        "for seen in (): ...",
        "[known for known in ()]",
        "import os as there",
        "def _told(): ...",
        "(one := 1)",
        "try: ...\nexcept OSError as found: ...",
        "match 1:\n    case [seen, *_]: ...",
    ],
)
def test_every_kind_of_binding_is_reported(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text)
    assert len(empty_names(tmp_path)) == 1


def test_a_name_that_is_read_or_part_of_another_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("one_a_line = print(found, known=seen)\n")
    assert empty_names(tmp_path) == []


def test_classes_share_names_across_siblings_alone(tmp_path: Path) -> None:
    root = tmp_path / "entrypoints"
    for name in ("workloads/pytorch/resnet", "workloads/tensorflow/resnet", "data/table", "data/source"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(f"class {'ResNet' if 'resnet' in name else 'Table'}: ...\n")
    assert duplicates(root) == {"Table": ["entrypoints/data/source.py", "entrypoints/data/table.py"]}
    (root / "workloads/pytorch/lstm.py").write_text("class ResNet: ...\n")
    assert set(duplicates(root)) == {"Table", "ResNet"}
