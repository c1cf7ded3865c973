"""Command lines of images for the cells of a study, checked by the image's own parser."""

import argparse
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from sifmark.core.errors import UsageError, nearest_names
from sifmark.core.paths import import_shared
from sifmark.studies.study import Run, Scalar, System

MAX = "max"  # as batch_size: search for the largest
WHOLE = "whole"  # as micro_batch_size: the batch of a replica, so that no gradients accumulate
MICRO = "micro_batch_size"
SYNTHETIC = "synthetic"
COMPILE = "compile"
UNSEEN = 10**9  # samples of data that were not looked at
# Keys of a run that are no options of an image by themselves.
DIVISION = ("devices", "nodes", "stages", "tensor")
_TURNED = {"workload", "batch_size", MICRO, "strategy", "scaling", *DIVISION}
_OPTION = re.compile(r"--([a-z][a-z-]*)")
Cell = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Division:
    """How many devices and nodes a run has, and into how many parts and copies they divide a model."""

    devices: int
    nodes: int
    stages: int
    tensor: int = 1

    @property
    def parts(self) -> int:
        """Devices of a copy of the model."""
        return self.stages * self.tensor

    @property
    def replicas(self) -> int:
        """Copies of the model; with a remainder they do not use all devices."""
        return max(1, self.devices // self.parts)


def parse_value(key: str, value: Scalar) -> Any:
    """Return a value of a study as the image understands it. Raises UsageError in the image's words."""
    if key in DIVISION:
        return _whole(key, value)
    if (key, value) in (("batch_size", MAX), (MICRO, WHOLE)):
        return value
    action = _actions()[key]
    if key == COMPILE and isinstance(value, bool):  # without the option, the workload's card says whether it is
        return action.const if value else import_shared("contract.choices").NOT_COMPILED
    if isinstance(value, bool) or action.nargs == 0:
        return value
    try:
        parsed = action.type(str(value)) if callable(action.type) else str(value)
    except usage_error() as error:
        remedy = getattr(error, "remedy", "") or "write a value that the image takes"
        raise UsageError(f"{key}: {getattr(error, 'cause', error)}", remedy, code="study-invalid") from None
    if action.choices is not None and parsed not in action.choices:
        raise _not_a_choice(key, value, action.choices)
    return parsed


def options_of(cell: Cell, division: Division, more: Sequence[str] = ()) -> Any:
    """Return the options of the image for a cell: those of its command line, without parsing it again.

    They name no file, and do not ask for this machine's processors: runs may be on another.
    """
    values: dict[str, Any] = {key: _parsed(key, value) for key, value in cell.items() if key not in _TURNED}
    values |= {"workload": cell["workload"], "replicas": division.replicas}
    values |= {"stages": division.stages, "tensor": division.tensor}
    values["strategy"] = _strategy(cell, division)
    size = _batch_size(cell, division)
    values["find_max_batch" if size == MAX else "batch_size"] = size == MAX or size
    values[MICRO] = _micro_batch(cell, division, size)
    base = _options(tuple(more))
    values |= {"seed": 0, "measured_peak": None, "evaluation_data": None}
    values["threads"] = values.get("threads") or base.threads or 1
    if str(values.get("meter", base.meter)).startswith("replay"):
        values["meter"] = "none"
    if values.get("data", base.data) != SYNTHETIC:
        samples = values.get("samples_per_epoch", UNSEEN if values.get("epochs") else None)
        values |= {"data": SYNTHETIC, "data_workers": None, "samples_per_epoch": samples}
    return base._replace(**values)


def arguments_of(cell: Cell, division: Division, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the arguments of the image for a cell: the workload, then options by name, then those of the system.

    They are part of the identity of a run, so that their order does not depend on the study file.
    """
    texts: dict[str, Scalar | None] = {key: value for key, value in cell.items() if key not in _TURNED}
    texts["strategy"] = _strategy(cell, division)
    texts["replicas"] = division.replicas if division.replicas > 1 else None
    texts["stages"] = division.stages if division.stages > 1 else None
    texts["tensor"] = division.tensor if division.tensor > 1 else None
    size = _batch_size(cell, division)
    texts |= {"find_max_batch": True} if size == MAX else {"batch_size": size}
    texts[MICRO] = _micro_batch(cell, division, size)
    words: list[str] = [str(cell["workload"])]
    for key in sorted(texts):
        words += _words(key, texts[key])
    return (*words, *more)


def division_of(cell: Cell, system: System) -> Division:
    """Return how a cell is divided on a system: as few nodes as have the devices, unless it names both."""
    nodes, devices = cell.get("nodes"), cell.get("devices")
    if devices is None:
        of_a_copy = int(cell.get("stages", 1)) * int(cell.get("tensor", 1))
        devices = int(nodes or 1) * (system.devices or 1) if nodes else of_a_copy
    devices = int(devices)
    if nodes is None:
        nodes = math.ceil(devices / system.devices) if system.devices else 1
    choices, strategy = import_shared("contract.choices"), cell.get("strategy")
    tensor = int(cell.get("tensor", 1))
    stages = cell.get("stages") or (devices // tensor if strategy in choices.IPU_SCHEDULES else 1)
    if strategy == choices.TENSOR:
        tensor = int(cell.get("tensor") or devices // int(stages))
    return Division(devices, int(nodes), int(stages), tensor)


def require_together(cell: Cell, more: Sequence[str] = ()) -> None:
    """Raise UsageError for options of a cell that exclude each other, such as steps and epochs."""
    division = Division(1, 1, 1)
    try:
        _arguments().parse(arguments_of(cell, division, more))
    except usage_error() as error:
        remedy = "leave one of them out; in a variant: remove = [...]"
        cause = _OPTION.sub(lambda option: option[1].replace("-", "_"), getattr(error, "cause", str(error)))
        raise UsageError(cause, remedy, code="study-invalid") from None


def option_keys() -> tuple[str, ...]:
    """Return the names of all options of images, with underscores."""
    return tuple(_actions())


def _words(key: str, value: Scalar | None) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if key == COMPILE and value is False:
        return [flag, str(parse_value(key, value))]
    if value is None or value is False:
        return []
    return [flag] if value is True else [flag, str(value)]


def _batch_size(cell: Cell, division: Division) -> Scalar | None:
    size = cell.get("batch_size")
    if size is None or size == MAX or cell.get("scaling") != "weak":
        return size
    return int(size) * division.devices


def _micro_batch(cell: Cell, division: Division, size: Scalar | None) -> Scalar | None:
    micro = cell.get(MICRO)
    if micro != WHOLE:
        return micro
    if not isinstance(size, int):
        cause = f'{MICRO} = "{WHOLE}" is the batch of a replica, and batch_size is no number'
        raise UsageError(cause, "add batch_size = ...", code="study-invalid")
    return size // division.replicas


def batch_of_cell(run: Run, size: int | None) -> int | None:
    """Return a batch size of a result as the cell of its run has it."""
    return size // run.devices if size and run.cell.get("scaling") == "weak" else size


def _strategy(cell: Cell, division: Division) -> Scalar | None:
    """Return the strategy, which one device has no use for: the same cells have runs of one and of several devices."""
    return cell.get("strategy") if division.devices > 1 else None


def _whole(key: str, value: Scalar) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise UsageError(
            f"{key}: {value!r} is not a whole number from 1", f"for example {key} = 2", code="study-invalid"
        )
    return value


def _not_a_choice(key: str, value: Scalar, choices: Iterable[object]) -> UsageError:
    names = [str(choice) for choice in choices]
    return UsageError(f"no {key} {value!r}", nearest_names(str(value), names), code="study-invalid")


@lru_cache(maxsize=None, typed=True)  # 1 and true are equal
def _parsed(key: str, value: Scalar) -> Any:
    return parse_value(key, value)


@cache
def _actions() -> Mapping[str, argparse.Action]:
    """Return the options of images by their names, with underscores."""
    grammar: argparse.ArgumentParser = _arguments().parser()
    return {action.dest: action for action in grammar._actions if action.dest not in ("help", "verb")}


@cache
def _options(more: tuple[str, ...]) -> Any:
    """Return the options with their defaults, and those of a system."""
    return _arguments().parse(["resnet50", *more])


@cache
def _arguments() -> Any:
    return import_shared("planning.arguments")


@cache
def usage_error() -> type[Exception]:
    """Return the class of the errors with which an image refuses options."""
    error: type[Exception] = import_shared("contract.statuses").UsageError
    return error
