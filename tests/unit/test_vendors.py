"""Every call of a vendor's package that in-image code makes: there, and with arguments that it takes, by version.

PopTorch is held against `api.json` of its stand-in, the packages that an index has against their own sources.
"""

import ast
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from sifmark.core import paths

POPTORCH = json.loads((paths.ROOT / "tests" / "inside" / "support" / "stand_ins" / "poptorch" / "api.json").read_text())
SDKS = tuple(POPTORCH["torch"])
OF_POPTORCH = (
    "devices/pytorch/ipu.py",
    *(f"devices/pytorch/graphcore/{name}.py" for name in ("steps", "options", "optimizer", "errors")),
    "devices/pytorch/strategies/ipu_stages.py",
)
NVML, AMD = "metering/meters/nvml.py", "metering/amd/libraries.py"
CALLERS = (
    (NVML, "pynvml"),
    *((f"metering/nvidia/{name}.py", "pynvml") for name in ("library", "gpus", "bus", "limits", "conditions")),
    (AMD, "amdsmi"),
    ("metering/amd/conditions.py", "amdsmi"),
)
# What holds an object of PopTorch's in our module, by the expression there.
OBJECTS = {
    "options": "poptorch.Options",
    "executor": "poptorch.PoplarExecutor",
    "wanted": "poptorch.PoplarExecutor",
    "other": "poptorch.PoplarExecutor",
    "self.training": "poptorch.PoplarExecutor",
    "self.inference": "poptorch.PoplarExecutor",
}
EXCEPTIONS = ("poptorch.Error", "poptorch.RecoverableError", "poptorch.UnrecoverableError")  # of its compiled part


class Use(NamedTuple):
    """A name that is asked of a vendor; of a call also how many arguments, and by which names."""

    name: str
    positional: int | None  # None: no call, or one that unpacks a list
    keywords: frozenset[str]


class Parameters(NamedTuple):
    """What a vendor's function takes. None of them: it cannot be called, or nobody knows."""

    positional: tuple[str, ...]
    required: int
    any_more: bool  # a list or a dictionary of further ones


def uses(tree: ast.AST, roots: dict[str, str]) -> Iterator[Use]:
    """Every attribute of the names in `roots`, called or not."""
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        name = _vendor_name(node, roots)
        if name is None or id(node) in inner:
            continue
        call = called.get(id(node))
        if call is None:
            yield Use(name, None, frozenset())
            continue
        unpacked = any(isinstance(argument, ast.Starred) for argument in call.args)
        keywords = frozenset(keyword.arg for keyword in call.keywords if keyword.arg)
        yield Use(name, None if unpacked else len(call.args), keywords)


def _vendor_name(node: ast.AST, roots: dict[str, str]) -> str | None:
    """The vendor's own name for an expression, longest root first."""
    if not isinstance(node, ast.Attribute):
        return None
    text = ast.unparse(node)
    for root in sorted(roots, key=len, reverse=True):
        if text.startswith(f"{root}.") and "(" not in text:
            return roots[root] + text[len(root) :]
    return None


def problem(use: Use, parameters_of: Callable[[str], Parameters | bool | None]) -> str | None:
    """What is wrong with a use. `parameters_of` returns None or True for a name without any, False for no name."""
    parameters = parameters_of(use.name)
    if parameters is False:
        return f"{use.name} is not there"
    if not isinstance(parameters, Parameters):
        return None
    unknown = use.keywords - set(parameters.positional)
    if unknown and not parameters.any_more:
        return f"{use.name} takes no {', '.join(sorted(unknown))}"
    if use.positional is not None and use.positional > len(parameters.positional) and not parameters.any_more:
        return f"{use.name} takes {len(parameters.positional)} arguments"
    given = (use.positional or 0) + len(use.keywords)
    if use.positional is not None and given < parameters.required:
        return f"{use.name} wants {parameters.required} arguments"
    return None


def poptorch(sdk: str) -> Callable[[str], Parameters | bool | None]:
    """PopTorch of a version."""

    def parameters_of(name: str) -> Parameters | bool | None:
        enumeration, _, member = name.rpartition(".")
        if enumeration in POPTORCH["enums"]:
            return member in POPTORCH["enums"][enumeration]["members"]
        if name in (*EXCEPTIONS, "poptorch.__version__", "poptorch.SIMULATED"):
            return True
        entry = POPTORCH["names"].get(name)
        if entry is None or sdk not in entry.get("sdks", SDKS):
            return any(full.startswith(f"{name}.") for full in POPTORCH["names"])  # a part of it, such as Precision
        parameters = entry.get("parameters", [])
        own = [parameter for parameter in parameters if not parameter[1].startswith("var_")]
        return Parameters(
            tuple(parameter[0] for parameter in own),
            sum(len(parameter) == 2 for parameter in own),
            len(own) < len(parameters),
        )

    return parameters_of


@cache
def sources(module: str) -> dict[str, Parameters | None]:
    """The names that a package's own source defines, without importing it: it may want a library."""
    spec = find_spec(module)
    assert spec is not None and spec.origin
    folder = Path(spec.origin).parent
    files = [folder / f"{module}_{part}.py" for part in ("interface", "exception")]
    names_defined: dict[str, Parameters | None] = {}
    for file in files if spec.submodule_search_locations else [Path(spec.origin)]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                names = tuple(argument.arg for argument in node.args.args)
                required = len(names) - len(node.args.defaults)
                more = bool(node.args.vararg or node.args.kwarg)
                names_defined[f"{module}.{node.name}"] = Parameters(names, required, more)
            elif isinstance(node, ast.ClassDef):
                members = [name.id for part in node.body if isinstance(part, ast.Assign) for name in _names(part)]
                names_defined |= {
                    f"{module}.{node.name}": None,
                    **{f"{module}.{node.name}.{name}": None for name in members},
                }
            elif isinstance(node, ast.Assign):
                names_defined |= {f"{module}.{name.id}": None for name in _names(node)}
    return names_defined


def _names(node: ast.Assign) -> list[ast.Name]:
    return [target for target in node.targets if isinstance(target, ast.Name)]


def package(module: str) -> Callable[[str], Parameters | bool | None]:
    """A package of the index."""

    def parameters_of(name: str) -> Parameters | bool | None:
        if name == f"{module}.SIMULATED":  # a stand-in's own
            return True
        return sources(module).get(name, True) if name in sources(module) else False

    return parameters_of


def problems(source: str, roots: dict[str, str], parameters_of: Callable[[str], Parameters | bool | None]) -> list[str]:
    used = list(uses(ast.parse(source), roots))
    assert used, "nothing of the vendor's is used"
    return [said for use in used if (said := problem(use, parameters_of))]


def code(file: str) -> str:
    return (paths.ENTRYPOINTS / file).read_text()


@pytest.mark.parametrize("file", OF_POPTORCH)
@pytest.mark.parametrize("sdk", SDKS)
def test_poptorch_has_what_we_call(sdk: str, file: str) -> None:
    assert problems(code(file), {"poptorch": "poptorch", **OBJECTS}, poptorch(sdk)) == []


@pytest.mark.parametrize(("file", "module"), CALLERS)
def test_management_libraries_have_what_we_call(file: str, module: str) -> None:
    assert problems(code(file), {module: module}, package(module)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("options.outputMode(", "options.outputModes(", "outputModes is not there"),
        ("poptorch.trainingModel(", "poptorch.TrainingModel(", "TrainingModel is not there"),
        ("model.network, user_id=", "model.network, user=", "takes no user"),
        ('reduction="none"', 'reduce="none"', "takes no reduce"),
        (
            "options.deviceIterations(partition.device_iterations)",
            "options.deviceIterations(partition.device_iterations, 2)",
            "takes 1 arguments",
        ),
        ("poptorch.OutputMode.All", "poptorch.OutputMode.Each", "Each is not there"),
        ("Precision.setPartialsType(", "Precision.autocastEnabled(", "autocastEnabled is not there"),
        ("self.training.copyWeightsToHost()", "self.training.copyNamedBuffersToDevice()", None),
    ],
)
def test_an_invented_call_and_a_wrong_argument_are_caught(old: str, new: str, said: str | None) -> None:
    (source,) = (source for source in map(code, OF_POPTORCH) if old in source)
    roots = {"poptorch": "poptorch", **OBJECTS}
    texts = problems(source.replace(old, new), roots, poptorch("3.3"))
    assert ([said in text for text in texts] == [True]) if said else texts == []
    if said is None:  # that one came with 3.3
        assert problems(source.replace(old, new), roots, poptorch("3.1"))


# What functions of C libraries take, in number: zes_api.h of Level Zero 1.5, rocm_smi.h of ROCm 5.7 to 7.0.
C_FUNCTIONS = {
    "metering/meters/intel.py": {
        "zesInit": 1,
        "zesDriverGet": 2,
        "zesDeviceGet": 3,
        "zesDeviceGetCardPowerDomain": 2,
        "zesDevicePciGetStats": 2,
        "zesPowerGetEnergyCounter": 2,
    },
    AMD: {
        "rsmi_init": 1,
        "rsmi_num_monitor_devices": 1,
        "rsmi_dev_pci_id_get": 2,
        "rsmi_dev_unique_id_get": 2,
        "rsmi_dev_name_get": 3,
        "rsmi_dev_power_ave_get": 3,
        "rsmi_dev_energy_count_get": 4,
    },
}
# https://docs.graphcore.ai/projects/gcipuinfo/en/latest/attributes.html and api_reference/gcipuinfo.html
GCIPUINFO_CALLS = {"gcipuinfo": 0, "getDevices": 0, "setUpdateMode": 1}
GCIPUINFO_ATTRIBUTES = {
    *("ipu power", "total board power", "board serial number", "user process id"),
    *("driver version", "clock", "average die temp", "id"),
}


def c_problems(source: str, counts: dict[str, int], roots: dict[str, str]) -> list[str]:
    def parameters(name: str) -> Parameters | bool:
        taken = counts.get(name.removeprefix("library."))
        return False if taken is None else Parameters(tuple(map(str, range(taken))), taken, any_more=False)

    return problems(source, roots, parameters)


@pytest.mark.parametrize("file", C_FUNCTIONS)
def test_libraries_of_c_have_what_we_call(file: str) -> None:
    roots, counts = {"library": "library", "self.library": "library"}, C_FUNCTIONS[file]
    own = {node.name for node in ast.walk(ast.parse(code(file))) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {"name", "simulated"}  # of our own class, which is called so too
    said = c_problems(code(file), counts, roots)
    outside = [text for text in said if text.split()[0].removeprefix("library.") not in own]
    assert outside == []
    name = list(counts)[-1]
    assert c_problems(code(file).replace(f"{name}(", f"{name}s("), counts, roots) != c_problems(
        code(file), counts, roots
    )
    fewer = {**counts, name: counts[name] - 1}
    starred = "*references" in code(file)  # whose number nobody sees
    assert starred or any("arguments" in said for said in c_problems(code(file), fewer, roots))


def test_gcipuinfo_has_what_we_ask() -> None:
    source = code("metering/meters/gcipuinfo.py")
    roots = {"inventory": "library", "self.inventory": "library", "gcipuinfo": "library"}
    assert c_problems(source, GCIPUINFO_CALLS, roots) == []
    assert c_problems(source.replace(".setUpdateMode(True)", ".setUpdateMode()"), GCIPUINFO_CALLS, roots)
    asked: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [target.id for target in node.targets[0].elts if isinstance(target, ast.Name)]
            constants = dict(zip(names, ast.literal_eval(node.value), strict=True))
            asked |= {value for name, value in constants.items() if name != "NOBODY"}
    assert asked == GCIPUINFO_ATTRIBUTES - {"id"}


def test_the_stand_in_of_nvml_has_the_signatures_of_the_package() -> None:
    tree = ast.parse((paths.ROOT / "tests" / "inside" / "support" / "nvml_stand_in.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("nvml")]
    assert len(functions) > 15
    for function in functions:
        parameters = sources("pynvml")[f"pynvml.{function.name}"]
        assert parameters is not None and parameters.positional == tuple(
            argument.arg for argument in function.args.args
        )
