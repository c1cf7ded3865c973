"""What sessions on GPUs have in common: PyTorch calls them cuda (NVIDIA and AMD) and xpu (Intel), by one interface."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable, Mapping

import torch

from entrypoints.contract.session import BatchPartition, DeviceConditions, DeviceFacts, Rule, Usage
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.session import TorchSession, execution, require_torch_compile
from entrypoints.system.facts import MIB
from entrypoints.workloads.pytorch.build import Objective

ReadConditions = Callable[[], Mapping[str, Any]]  # how the device stands: facts by a name of session.DEVICE_CONDITIONS
# Before, fused optimizers scale twice, or take what is not finite: github.com/pytorch/pytorch, 94060 and 95847.
FUSED_SCALING = (2, 1)
UNCOUNTED = "PyTorch does not count what is sent"


class GpuSession(TorchSession):
    """Work is queued, and events in the device's own queue tell when it was done.

    `runtime` is `torch.cuda` or `torch.xpu`. Raises RunError (`unsupported`) where a model is to be compiled and this
    PyTorch compiles nothing.
    """

    asynchronous = True

    def __init__(
        self,
        runtime: ModuleType,
        model: Objective,
        rule: Rule,
        precision: str,
        compiled: bool,
        partition: BatchPartition | None,
        facts: DeviceFacts,
        read_conditions: ReadConditions,
    ) -> None:
        if compiled:
            require_torch_compile()
        self.runtime, self.read_conditions = runtime, read_conditions
        kind = facts.kind
        # Not where gradients accumulate: the graph of a micro-batch overwrites those of the one before, as
        # https://github.com/pytorch/pytorch/issues/96693 shows. Not in inference: graphs belong to one thread.
        self.graphs = compiled and kind == "cuda" and not (partition and partition.accumulation > 1)
        self.facts = facts._replace(execution=execution(compiled, self.graphs))
        runtime.reset_peak_memory_stats()
        super().__init__(model, rule, torch.device(kind, runtime.current_device()), precision, compiled, partition)
        if precision == "fp16" and self.optimizer:
            self.scaler = scaler(kind)
            if torch.__version__ < FUSED_SCALING:
                skip_by_the_scaler(self.optimizer)

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """By way of memory that the device reads by itself, so that the host does not wait for the transfer."""
        if tensor.device.type == self.hardware.type:
            return tensor
        pinned = tensor.pin_memory() if self.hardware.type == "cuda" else tensor  # of Intel's, versions differ
        return pinned.to(self.hardware, non_blocking=True)

    def mark(self) -> Any:
        """An event in the device's queue."""
        event = self.runtime.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, earlier: Any, later: Any) -> float | None:
        """By the device's own clock; None while the later event is to come."""
        if not later.query():
            return None
        milliseconds: float = earlier.elapsed_time(later)
        return milliseconds / 1000

    def synchronise(self) -> None:
        """Wait until the queue is empty."""
        self.runtime.synchronize()

    def usage(self) -> Usage:
        """The peaks of PyTorch's own allocator."""
        allocated, reserved = self.runtime.max_memory_allocated(), self.runtime.max_memory_reserved()
        return Usage(allocated / MIB, reserved / MIB, UNCOUNTED)

    def conditions(self) -> DeviceConditions:
        """By the vendor's management library."""
        return DeviceConditions(dict(self.read_conditions()), None)

    def close(self) -> None:
        """Give the memory back."""
        super().close()
        self.runtime.empty_cache()


def facts(
    kind: str, vendor: str, name: str, granularity: str, memory: int, identifier: str | None = None
) -> DeviceFacts:
    """One device with so many bytes of memory, in one process; how a model is run there the session says."""
    return DeviceFacts(kind, vendor, name, 1, granularity, memory / MIB, 1, 1, "", False, identifier)


def scaler(kind: str) -> Any:
    """Of gradients in fp16, for the newest PyTorch and for those before 2.3. Raises RunError (`unsupported`).

    One of another kind of device would switch itself off with no more than a warning, and small gradients would vanish.
    """
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind)
    make = getattr(getattr(getattr(torch, kind), "amp", None), "GradScaler", None)
    if make is None:
        raise RunError(
            "unsupported", f"--precision fp16 on {kind}: PyTorch {torch.__version__} has no GradScaler for it"
        )
    return make()


def skip_by_the_scaler(optimizer: Any) -> None:
    """Let the scaler itself leave a step out whose gradients are not finite: the optimizer says that it would, and does
    not, once the gradients were unscaled before their norm is limited."""
    optimizer._step_supports_amp_scaling = False


def free_mib(runtime: ModuleType) -> float | None:
    """Memory that is left on the device, in MiB; None where this PyTorch cannot tell."""
    if not hasattr(runtime, "mem_get_info"):
        return None
    try:
        free, _ = runtime.mem_get_info()
    except RuntimeError:  # of Intel's GPUs, where the driver shows no such thing to this user
        return None
    return float(free / MIB)
