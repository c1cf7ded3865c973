"""Intel Gaudi, through Intel's bridge for PyTorch, in its eager mode.

Calls are those of the bridge's source (https://github.com/HabanaAI/gaudi-pytorch-bridge, release 1.19) and of
https://docs.habana.ai. Nothing of this was run on hardware yet.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from typing import Any

import torch

from entrypoints.contract.session import BatchPartition, Executed, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.missing_device import kernel_driver, require_files
from entrypoints.devices.pytorch.shared import gpu
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import hlml
from entrypoints.workloads.pytorch.build import Objective

try:
    import habana_frameworks.torch as bridge  # provides `torch.hpu` and the backend hccl
    from habana_frameworks.torch.hpu.metrics import metric_global
    from habana_frameworks.torch.utils.internal import is_lazy
except ImportError:
    bridge = metric_global = is_lazy = None

PRECISIONS = ("fp32", "bf16")  # fp16 has no gradient scaler that is documented
PACKAGE = "habana-torch-plugin"
LAZY = "PT_HPU_LAZY_MODE"
FALLBACKS = "cpu_fallback"  # the bridge's count of operations that it left to the host


def libraries() -> dict[str, str | None]:
    """Return the version of the bridge, which is that of all of Intel's software for Gaudi."""
    try:
        return {PACKAGE: importlib.metadata.version(PACKAGE)}
    except importlib.metadata.PackageNotFoundError:
        return {}


def runtime() -> Any:
    """Return `torch.hpu`, or None without the bridge."""
    return getattr(torch, "hpu", None)


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads that compute on the host, and choose the card that the meter reads.

    Raises RunError: `no_device` if there is no Gaudi, `unsupported` for a precision that is not here, and for lazy
    mode, which would collect steps in place of doing them.
    """
    hpu = runtime()
    if hpu is None or not hpu.is_available():
        require_files("/dev/accel/accel_controlD*", "--bind /dev/accel --bind /dev/infiniband")
        lacking = "Intel's bridge is not in this image. " if bridge is None else ""
        raise RunError(
            "no_device",
            f"PyTorch {torch.__version__} finds no Gaudi. {lacking}May this user open /dev/accel/* and "
            f"/dev/infiniband/*? If so: does {kernel_driver('habanalabs')} go with the software in this image?",
        )
    if is_lazy is not None and is_lazy():
        raise RunError("unsupported", f"{LAZY} is not 0: in lazy mode, steps are collected and done later. Set it to 0")
    require_precision(precision, PRECISIONS, "hpu")
    if hlml.MODULE not in os.environ:
        with contextlib.suppress(MeterError):  # then the bridge takes the first idle card, and there is no meter
            os.environ[hlml.MODULE] = str(hlml.modules()[0])
    compute_on(threads)


def free_mib() -> float | None:
    """Return the free memory of the device in MiB."""
    return gpu.free_mib(runtime())


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> gpu.GpuSession:
    """Return a session that takes over `model`. Raises RunError (`unsupported`) if this PyTorch cannot compile it."""
    hpu = runtime()
    _, memory = hpu.mem_get_info()  # its device properties are a text
    device_facts = gpu.facts(
        kind="hpu", vendor="Intel", name=hpu.get_device_name(), granularity="package", memory=memory
    )
    return HpuSession(hpu, model, rule, precision, compiled, partition, device_facts, hlml.conditions, group)


class HpuSession(gpu.GpuSession):
    """A session that says which operations the host computed, because the bridge has no kernel for them."""

    def executed(self) -> Executed:
        """Return how the model was run so far."""
        executed = super().executed()
        operations = ", ".join(sorted(left_to_the_host()))
        how = f"{executed.execution}; on the host: {operations}" if operations else executed.execution
        return executed._replace(execution=how)


def left_to_the_host() -> set[str]:
    """Return the operations that the bridge left to the host so far, if it counts them."""
    metric = metric_global(FALLBACKS) if metric_global else None
    return set(dict(metric.stats()).get("FallbackOps", ())) if metric else set()
