"""Who may import whom: layers of packages as tables, held against the import statements in the syntax trees.

A unit is a package or a module, by its dotted name below the root package; a module belongs to the longest unit that
its name begins with. A layer is a sequence of units. A unit may import from its own and from lower layers, never from
a neighbour in its layer, and no module may import itself by way of others. The root package is the public interface
and may import them all.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

Layers = Sequence[Sequence[str]]

# Top to bottom. The worker is the child process: only `main` starts it, and it finds devices and workloads by name.
ENTRYPOINTS: Layers = (
    ("main",),
    ("cli", "worker"),
    ("proof",),
    ("runs",),
    ("rules",),
    ("results",),
    ("planning",),
    ("devices.pytorch", "devices.tensorflow", "serving.engines"),
    ("devices",),
    ("metering", "workloads.pytorch", "workloads.tensorflow"),
    ("data.formats", "workloads"),
    ("data.images", "data.sequences"),
    ("serving",),
    ("data", "data.generated"),
    ("contract", "system"),
)

# Top to bottom. Engines are found by name, and never import each other.
SIFMARK: Layers = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("library",),
    ("doctor",),
    ("live", "report"),
    ("studies",),
    ("publish",),
    ("trust",),
    ("builds",),
    ("engines.apptainer", "engines.docker"),
    ("engines",),
    ("attestations", "layers"),
    ("recipes",),
    ("results.consumers",),
    ("results.comparison",),
    ("datasets", "metering", "oci", "results"),
    ("redfish",),
    ("core",),
)


def imports(path: Path, late: bool = True) -> Iterator[str]:
    """Every module that a file imports, also for type checkers alone; with `late` those inside functions too.

    `from package import module` is an import of `package.module`.
    """
    root = next(folder for folder in path.parents if not (folder / "__init__.py").exists())
    for node in _nodes(ast.parse(path.read_text("utf-8")), late):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: imports are absolute here"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if _is_module(root, name) else node.module


def modules(root: Path, package: str) -> dict[str, Path]:
    """The files of a package below a root folder, by the dotted names of their modules."""
    files = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def graph(root: Path, package: str) -> dict[str, set[str]]:
    """By module the modules of the same package that it imports."""
    files = modules(root, package)
    return {name: {imported for imported in imports(path) if imported in files} for name, path in files.items()}


def violations(root: Path, package: str, layers: Layers) -> list[str]:
    """What is wrong with the imports in a package below a root folder: a sentence each, with the modules' names."""
    edges = graph(root, package)
    edges = {name: others - {package} for name, others in edges.items() if name != package}
    heights = {unit: height for height, layer in enumerate(reversed(layers)) for unit in layer}
    units = {name: _unit(name.removeprefix(f"{package}."), heights) for name in edges}
    said = [f"{package}.{unit}: there is no such module" for unit in heights if f"{package}.{unit}" not in edges]
    said += [f"{name}: it belongs to no layer" for name, unit in units.items() if unit is None]
    for name, unit in units.items():
        for other in sorted(edges[name]):
            below = units.get(other)
            if unit is None or below is None or unit == below or heights[unit] > heights[below]:
                continue
            where = "sideways" if heights[unit] == heights[below] else "upward"
            said.append(f"{name} imports {other}: {where}, from {unit} to {below}")
    return said + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(edges)]


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """One shortest cycle of each strongly connected component, from its first module by name back to it."""
    shortest: list[list[str]] = []
    covered: set[str] = set()
    reachable = {name: _reachable(name, edges) for name in edges}
    for name in sorted(edges):
        if name in reachable[name] and name not in covered:
            covered |= {other for other in reachable[name] if name in reachable[other]}
            shortest.append(_way_back(name, edges))
    return shortest


def _nodes(tree: ast.AST, late: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _nodes(node, late)


def _unit(name: str, units: Mapping[str, int]) -> str | None:
    while name and name not in units:
        name = name.rpartition(".")[0]
    return name or None


def _is_module(root: Path, name: str) -> bool:
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += edges[name]
    return reached


def _way_back(start: str, edges: Mapping[str, set[str]]) -> list[str]:
    ways = [[start, name] for name in sorted(edges[start])]
    for way in ways:  # grows as it is walked through
        if way[-1] == start:
            return way
        reached = {step for other in ways for step in other}
        ways += [[*way, name] for name in sorted(edges[way[-1]]) if name == start or name not in reached]
    raise ValueError(f"no way leads back to {start}")
