"""What GPUs of AMD need beside what PyTorch calls cuda: MIOpen's memory format, its databases, and TunableOp.

Variables: rocm.docs.amd.com/projects/MIOpen, "Using the find APIs", "Kernel database" and "Find modes"; those of
PyTorch: aten/src/ATen/native/ConvUtils.h, and aten/src/ATen/cuda/tunable/README.md.
"""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import Any, Callable, Mapping, MutableMapping, Sequence

import torch
from torch import nn

from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.layout import LAYOUT, NAMES

# PyTorch hands MIOpen tensors in channels_last only with these: otherwise it copies them into the other format.
NHWC = ("PYTORCH_MIOPEN_SUGGEST_NHWC", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM")
OFF = ("0", "OFF", "NO", "FALSE", "N")
FIND_MODE, EVERY_KERNEL, DEFAULT_MODE = "MIOPEN_FIND_MODE", "NORMAL", "MIOpen's own"
USER_DATABASE = "MIOPEN_USER_DB_PATH"
USUAL_DATABASES = (".config/miopen", ".miopen/db")  # in the home folder
FOUND = "*.ufdb.txt"  # of what MIOpen has found before, by GPU
TUNED = 3  # layers that stand for a network
SAMPLES, SIDE = 32, 28  # images of a trial, and pixels of a side
WARM_UP, REPEATS = 3, 5  # calls: MIOpen searches in the first
Timing = Callable[[Sequence[nn.Module], torch.memory_format], float]  # s


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let MIOpen compute in channels_last, unless the user has switched that off. Before the first convolution."""
    for name in NHWC:
        environment.setdefault(name, "1")


def tune(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let MIOpen try every kernel of a convolution, and PyTorch those of a matrix product (TunableOp), when they are
    first called. Raises RunError (`unsupported`) if this PyTorch has no TunableOp."""
    environment.setdefault(FIND_MODE, EVERY_KERNEL)
    tunable = _tunable()
    tunable.enable(True)
    tunable.tuning_enable(True)
    if hasattr(tunable, "write_file_on_exit"):
        tunable.write_file_on_exit(False)


def stop_tuning() -> None:
    """Let nothing be tuned in the timed window: what was not called before it takes the default kernel."""
    tunable = getattr(torch.cuda, "tunable", None)
    if tunable is not None and torch.version.hip is not None and tunable.is_enabled():
        tunable.tuning_enable(False)


def described(environment: Mapping[str, str] = os.environ) -> str:
    """Return how kernels were found, for a result: MIOpen's mode, whether it had found some before, and TunableOp."""
    named = environment.get(USER_DATABASE)
    folders = [Path(named)] if named else [Path.home() / folder for folder in USUAL_DATABASES]
    found_before = any(folder.is_dir() and any(folder.glob(f"**/{FOUND}")) for folder in folders)
    tunable = getattr(torch.cuda, "tunable", None)
    products = ", matrix products by TunableOp" if tunable is not None and tunable.is_enabled() else ""
    mode = environment.get(FIND_MODE, DEFAULT_MODE)
    return f"MIOpen's find mode {mode}, its database {'warm' if found_before else 'cold'}{products}"


def choose_layout(
    model: nn.Module, seconds: Timing, agreed: Callable[[float], float], environment: Mapping[str, str] = os.environ
) -> None:
    """Choose the memory format in which a model's convolutions are faster; a model without any keeps the usual one.

    A process chooses once: later models have the format that the tensors of earlier ones have. `agreed` returns what
    the first rank gives: all ranks of a run have the same format.
    """
    if LAYOUT.reason:
        return
    if environment.get(NHWC[0], "").upper() in OFF:
        LAYOUT.choose(torch.contiguous_format, f"{NHWC[0]}={environment.get(NHWC[0], '')}")
        return
    layers = typical(model)
    if not layers:
        return
    times = {memory_format: seconds(layers, memory_format) for memory_format in NAMES}
    fastest = min(times, key=lambda each: times[each])
    chosen = torch.channels_last if agreed(float(fastest is torch.channels_last)) else torch.contiguous_format
    measured = ", ".join(f"{NAMES[each]} {1000 * took:.3g} ms" for each, took in times.items())
    LAYOUT.choose(chosen, f"by measurement: {measured}")


def typical(model: nn.Module) -> Sequence[nn.Module]:
    """Return the convolutions that stand for a network: of each shape of kernel the one with the most weights."""
    largest: dict[tuple[Any, ...], nn.Conv2d] = {}
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            shape = (layer.kernel_size, layer.groups > 1)
            if shape not in largest or layer.weight.numel() > largest[shape].weight.numel():
                largest[shape] = layer
    return sorted(largest.values(), key=lambda layer: -layer.weight.numel())[:TUNED]


def seconds_of(hardware: torch.device, dtype: torch.dtype | None, synchronise: Callable[[], None]) -> Timing:
    """Return what times layers in a format, forward and backward with a normalisation, on the hardware."""

    def timed(layers: Sequence[nn.Module], memory_format: torch.memory_format) -> float:
        return sum(_seconds(layer, memory_format, hardware, dtype, synchronise) for layer in layers)

    return timed


def _seconds(
    layer: Any,
    memory_format: torch.memory_format,
    hardware: torch.device,
    dtype: torch.dtype | None,
    synchronise: Callable[[], None],
) -> float:
    block = nn.Sequential(copy.deepcopy(layer), nn.BatchNorm2d(layer.out_channels), nn.ReLU())
    block = block.to(hardware, memory_format=memory_format)
    images = torch.ones(SAMPLES, layer.in_channels, SIDE, SIDE, device=hardware)
    images = images.contiguous(memory_format=memory_format).requires_grad_()
    began = 0.0
    for number in range(WARM_UP + REPEATS):
        if number == WARM_UP:
            synchronise()
            began = time.perf_counter()
        with torch.autocast(hardware.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            total = block(images).sum()
        total.backward()
    synchronise()
    return (time.perf_counter() - began) / REPEATS


def _tunable() -> Any:
    tunable = getattr(torch.cuda, "tunable", None)
    if tunable is None:
        raise RunError(
            "unsupported", f"--tune-kernels: PyTorch {torch.__version__} has no TunableOp; from 2.3 on it has"
        )
    return tunable
