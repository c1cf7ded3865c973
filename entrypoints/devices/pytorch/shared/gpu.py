"""The session on GPUs and the like, for which PyTorch has one interface under several names: cuda (NVIDIA and AMD), xpu
(Intel's GPUs) and hpu (Intel Gaudi)."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch

from entrypoints.contract.choices import WITH_GRAPHS
from entrypoints.contract.session import (
    FIRST_SCALE,
    Answer,
    Batch,
    BatchPartition,
    DeviceConditions,
    DeviceFacts,
    Rule,
    Usage,
)
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared import rocm
from entrypoints.devices.pytorch.shared.compiling import planned, require_torch_compile
from entrypoints.devices.pytorch.shared.inference.generation import ReplayedGeneration, StaticGeneration
from entrypoints.devices.pytorch.shared.session import TorchSession
from entrypoints.devices.pytorch.shared.transfer import CopyingFeed, ThreadStreams, Transit, pinned, received
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.system.facts import MIB
from entrypoints.workloads.pytorch.build import Objective
from entrypoints.workloads.pytorch.experts import waits_for_counts

ReadConditions = Callable[[], Mapping[str, Any]]  # returns values by names of session.DEVICE_CONDITIONS
# Earlier fused optimizers scale twice or apply non-finite gradients: github.com/pytorch/pytorch, 94060 and 95847.
FUSED_SCALING = (2, 1)
NO_WINDOW = "the timed window did not begin"
UNCOUNTED = "PyTorch does not count transfers"


class GpuSession(TorchSession):
    """A session that queues work, timed by events in the device's queue.

    `runtime` is `torch.cuda`, `torch.xpu` or `torch.hpu`. Raises RunError (`unsupported`) if the model is to be
    compiled and this PyTorch cannot compile.
    """

    asynchronous = True
    fed: CopyingFeed | None = None

    def __init__(
        self,
        runtime: ModuleType,
        model: Objective,
        rule: Rule,
        precision: str,
        compiled: str | None,
        partition: BatchPartition | None,
        facts: DeviceFacts,
        read_conditions: ReadConditions,
        group: Group | None = None,
    ) -> None:
        if compiled:
            require_torch_compile()
        self.runtime, self.read_conditions = runtime, read_conditions
        kind = facts.kind
        # No graphs if gradients accumulate: the graph of a micro-batch overwrites the gradients of the one before
        # (https://github.com/pytorch/pytorch/issues/96693). None of requests: graphs belong to one thread. None of
        # several ranks, whose gradients are exchanged while they are computed.
        accumulated = partition is not None and partition.accumulation > 1
        self.graphs = compiled in WITH_GRAPHS and kind == "cuda" and not accumulated and group is None
        self.facts = facts._replace(execution=planned(compiled, kind))
        runtime.reset_peak_memory_stats()
        self.peaks: list[tuple[int, int]] = []  # allocated and reserved, in bytes: until the timed window, and in it
        hardware = torch.device(kind, runtime.current_device())
        self.streams = ThreadStreams(runtime, hardware)
        super().__init__(model, rule, hardware, precision, compiled, partition, group)
        if precision == "fp16" and self.optimizer:
            self.scaler = self.strategy.scaler(scaler(kind))
            if torch.__version__ < FUSED_SCALING:
                skip_by_the_scaler(self.optimizer)

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device, copied from pinned memory, so that the host does not wait for the transfer."""
        if tensor.device.type == self.hardware.type:
            return tensor
        return pinned(tensor, self.hardware.type).to(self.hardware, non_blocking=True)

    def feed(self, batches: Iterator[Batch], targets: bool) -> Iterator[Any]:
        """Return an iterator that pins and copies batches while others are computed."""

        def copy(batch: Batch) -> Batch:
            return self.sent(batch if targets else batch._replace(targets=None))

        self.fed = CopyingFeed(batches, copy, self.runtime, self.hardware)
        return self.fed

    def receive(self, fed: Any) -> Batch:
        """Return a batch of `feed`, for whose copy the device waits; any other batch unchanged."""
        return received(fed, self.runtime.current_stream()) if isinstance(fed, Transit) else fed

    def infer_request(self, batch: Batch) -> Answer:
        """Answer a request on the calling thread's own stream."""
        with self.streams.own():
            return super().infer_request(batch)

    def wait_for_request(self) -> None:
        """Wait for what the calling thread gave the device, but not for other requests."""
        self.streams.wait()

    def static_generation(self, network: Any) -> StaticGeneration:
        """Return compiled programs that generate texts, recorded as a graph where training is, if they can be."""
        if self.graphs and not waits_for_counts(network, self.hardware, self.dtype):
            return ReplayedGeneration(network, self.maybe_compiled, self.runtime)
        return super().static_generation(network)

    def mark(self) -> Any:
        """Return an event in the device's queue."""
        event = self.runtime.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, earlier: Any, later: Any) -> float | None:
        """Return the seconds between two events by the device's clock, or None while the later one is pending."""
        if not later.query():
            return None
        milliseconds: float = earlier.elapsed_time(later)
        return milliseconds / 1000

    def on_host(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return copies in pinned memory, so that the host does not wait for them."""
        pinned = self.hardware.type == "cuda"
        copies = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned) for tensor in tensors]
        return [copy.copy_(tensor, non_blocking=True) for copy, tensor in zip(copies, tensors)]

    def wait(self, mark: Any) -> None:
        """Wait until the device has passed an event."""
        mark.synchronize()

    def synchronise(self) -> None:
        """Wait until the queue is empty."""
        self.runtime.synchronize()

    def usage(self) -> Usage:
        """Return the peaks of PyTorch's allocator."""
        peaks = [*self.peaks, self.current_peak()]
        allocated, reserved = (max(each) / MIB for each in zip(*peaks))
        return Usage(allocated, reserved, UNCOUNTED, peaks[1][0] / MIB if len(peaks) > 1 else NO_WINDOW)

    def reset_peak_memory(self) -> None:
        """Count peaks from here on, and tune nothing more."""
        rocm.stop_tuning()
        self.peaks.append(self.current_peak())
        self.runtime.reset_peak_memory_stats()

    def current_peak(self) -> tuple[int, int]:
        """Return the most bytes that were allocated, and reserved, at one time since the last restart."""
        return self.runtime.max_memory_allocated(), self.runtime.max_memory_reserved()

    def conditions(self) -> DeviceConditions:
        """Return the conditions that the vendor's management library reports."""
        return DeviceConditions(dict(self.read_conditions()), None)

    def close(self) -> None:
        """Copy no more, and release the model and the memory that PyTorch caches."""
        if self.fed:
            self.fed.close()
        super().close()
        if hasattr(self.runtime, "empty_cache"):  # not of Gaudi, whose allocator keeps what it has
            self.runtime.empty_cache()


class ServedGpu:
    """GPUs of an engine that has a model of its own, in this process or in others."""

    def __init__(self, facts: DeviceFacts, read_conditions: ReadConditions) -> None:
        self.facts, self.read_conditions = facts, read_conditions

    def usage(self) -> Usage:
        """Return why nothing is known: an engine takes memory as it was told to."""
        return Usage.unknown("an engine takes the share of the memory that serving.engine.settings says")

    def conditions(self) -> DeviceConditions:
        """Return the conditions that the vendor's management library reports."""
        return DeviceConditions(dict(self.read_conditions()), None)


def facts(
    kind: str, vendor: str, name: str, granularity: str, memory: int, identifier: str | None = None
) -> DeviceFacts:
    """Return the facts of one device with `memory` bytes, in one process. The session fills in `execution`."""
    return DeviceFacts(kind, vendor, name, 1, granularity, memory / MIB, 1, 1, "", False, identifier)


def scaler(kind: str) -> Any:
    """Return the gradient scaler for fp16, also before torch 2.3.

    A scaler for another kind of device would only warn and switch itself off, and small gradients would vanish. Raises
    RunError (`unsupported`) if this PyTorch has none for `kind`.
    """
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(kind, init_scale=FIRST_SCALE)
    make = getattr(getattr(getattr(torch, kind), "amp", None), "GradScaler", None)
    if make is None:
        raise RunError(
            "unsupported", f"--precision fp16 on {kind}: PyTorch {torch.__version__} has no GradScaler for it"
        )
    return make(init_scale=FIRST_SCALE)


def skip_by_the_scaler(optimizer: Any) -> None:
    """Let the scaler skip steps whose gradients are not finite.

    The optimizer claims to skip them itself, but does not once gradients were unscaled to clip their norm.
    """
    optimizer._step_supports_amp_scaling = False


def free_mib(runtime: ModuleType) -> float | None:
    """Return the free memory of the device in MiB, or None if this PyTorch cannot read it."""
    if not hasattr(runtime, "mem_get_info"):
        return None
    try:
        free, _ = runtime.mem_get_info()
    except RuntimeError:  # GPUs of Intel whose driver hides it from this user
        return None
    return float(free / MIB)
