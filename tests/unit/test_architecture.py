"""Who may import whom, read from the syntax trees."""

import ast
import shutil
import sys
from pathlib import Path

import pytest
from unit.layering import ENTRYPOINTS, SIFMARK, Layers, imports, modules, violations

from sifmark.core import paths

FRAMEWORKS = {"torch", "torchvision", "tensorflow", "numpy", "PIL"}
# In an image: what a folder may import beside the standard library and jsonschema, by the longest that is named here.
BROUGHT = {
    "worker": {"numpy"},
    "data": {"numpy", "PIL"},
    "serving": {"numpy"},
    "serving/engines": {"torch"},
    "workloads": {"numpy"},
    "workloads/pytorch": {"numpy", "PIL", "torch"},
    "workloads/tensorflow": {"numpy", "PIL", "tensorflow"},
    "devices/pytorch": {"numpy", "torch"},
    "devices/tensorflow": {"numpy", "tensorflow"},
}
# Each vendor package belongs to the one module named for it.
VENDORS = {
    "transformers": ("serving/engines/transformers.py",),
    "vllm": ("serving/engines/vllm.py",),
    "poptorch": (
        "devices/pytorch/ipu.py",
        *(f"devices/pytorch/graphcore/{name}.py" for name in ("steps", "options", "optimizer", "errors")),
        "devices/pytorch/strategies/ipu_stages.py",
    ),
    "popdist": ("devices/pytorch/strategies/instances.py",),
    "intel_extension_for_pytorch": ("devices/pytorch/xpu.py",),
    "habana_frameworks": ("devices/pytorch/hpu.py",),
    "pynvml": ("metering/nvidia/library.py",),
    "amdsmi": ("metering/amd/libraries.py",),
    "gcipuinfo": ("metering/meters/gcipuinfo.py",),
}


def files(root: Path) -> list[Path]:
    python_files = sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)
    assert python_files, f"nothing under {root}"
    return python_files


def relative(path: Path) -> str:
    return str(path.relative_to(paths.ENTRYPOINTS))


@pytest.mark.parametrize("path", files(paths.PACKAGE), ids=str)
def test_the_host_side_never_imports_in_image_code(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & ({"entrypoints", "tasks"} | FRAMEWORKS - {"numpy"})


def test_tasks_import_only_the_host_side() -> None:
    roots = {name.split(".")[0] for name in imports(paths.CHECKOUT / "tasks.py")}
    assert roots <= {"sifmark", "invoke", "functools", "sys", "collections", "typing"}


@pytest.mark.parametrize("path", files(paths.ENTRYPOINTS), ids=relative)
def test_in_image_code_imports_what_its_process_has(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    brought = next((BROUGHT[str(folder)] for folder in Path(relative(path)).parents if str(folder) in BROUGHT), set())
    assert roots <= {"entrypoints", "jsonschema", *sys.stdlib_module_names, *VENDORS, *brought}
    for vendor in roots & set(VENDORS):
        assert relative(path) in VENDORS[vendor]


@pytest.mark.parametrize(
    ("folder", "layers"), [(paths.PACKAGE, SIFMARK), (paths.ENTRYPOINTS, ENTRYPOINTS)], ids=["sifmark", "entrypoints"]
)
def test_packages_keep_their_layers(folder: Path, layers: Layers) -> None:
    assert violations(folder.parent, folder.name, layers) == []


def test_an_image_gets_programs_and_documents_only() -> None:
    """Every file below entrypoints/ is in each image, such as what a merge or an editor leaves."""
    files = {path for path in paths.ENTRYPOINTS.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    others = [relative(path) for path in files if path.suffix not in (".py", ".json")]
    assert others == ["run"]


def test_the_parent_process_loads_no_framework() -> None:
    sources, waiting, loaded = modules(paths.ENTRYPOINTS.parent, "entrypoints"), ["entrypoints.cli.verbs"], set()
    waiting.append("entrypoints.runs.series")  # which `verbs` imports late, as all that needs jsonschema
    while waiting:
        name = waiting.pop()
        if name not in loaded:
            loaded.add(name)
            waiting += imports(sources[name], late=False) if name in sources else []
    assert not {name.split(".")[0] for name in loaded} & FRAMEWORKS
    assert not {name for name in loaded if name.startswith(("entrypoints.worker", "entrypoints.workloads"))}


def test_what_breaks_the_layers_is_reported_by_name(tmp_path: Path) -> None:
    shutil.copytree(paths.ENTRYPOINTS, tmp_path / "entrypoints", ignore=shutil.ignore_patterns("__pycache__"))
    for path, line in {
        "contract/upward.py": "def late():\n    from entrypoints.runs import series\n",
        "data/images/sideways.py": "if TYPE_CHECKING:\n    from entrypoints.data.sequences.tokens import Tokens\n",
        "results/quantiles.py": "\nfrom entrypoints.results import steadiness\n",
        "elsewhere/alone.py": "import json\n",
    }.items():
        (tmp_path / "entrypoints" / path).parent.mkdir(exist_ok=True)
        with (tmp_path / "entrypoints" / path).open("a") as stream:
            stream.write(line)
    assert violations(tmp_path, "entrypoints", [*ENTRYPOINTS, ["nowhere"]]) == [
        "entrypoints.nowhere: there is no such module",
        "entrypoints.elsewhere.alone: it belongs to no layer",
        "entrypoints.contract.upward imports entrypoints.runs.series: upward, from contract to runs",
        "entrypoints.data.images.sideways imports entrypoints.data.sequences.tokens: "
        "sideways, from data.images to data.sequences",
        "cycle: entrypoints.results.quantiles -> entrypoints.results.steadiness -> entrypoints.results.quantiles",
    ]


WRITERS = {"print", "input", "exit", "quit", "sys.exit", "os._exit"}
WRITERS |= {f"sys.{stream}.{name}" for stream in ("stdout", "stderr") for name in ("write", "writelines", "buffer")}
# Programs of their own, which are no part of the library; and what draws on a terminal for commands.
PROGRAMS = {"__main__.py", "cli.py", "layers/bytecode.py", "core/terminal.py"}
PROGRAMS |= {"studies/running/attendant.py", "studies/running/supervisor.py"}
BELOW_COMMANDS = [
    path
    for path in files(paths.PACKAGE)
    if (name := str(path.relative_to(paths.PACKAGE))) not in PROGRAMS and not name.startswith(("commands/", "live/"))
]


@pytest.mark.parametrize("path", BELOW_COMMANDS, ids=lambda path: str(path.relative_to(paths.PACKAGE)))
def test_nothing_below_the_commands_writes_or_exits(path: Path) -> None:
    used = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert not used & WRITERS
    assert "sifmark.core.terminal" not in imports(path)
