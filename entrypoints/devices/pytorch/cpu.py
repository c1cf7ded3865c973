"""The processors of the host, through PyTorch."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

from entrypoints.contract.choices import FP8
from entrypoints.contract.points import LastLevelCache
from entrypoints.contract.session import Answer, Batch, BatchPartition, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.host_session import HostSession
from entrypoints.devices.pytorch.shared.compiling import Frozen, freezable, planned, require_torch_compile
from entrypoints.devices.pytorch.shared.inference.packing import packed
from entrypoints.devices.pytorch.shared.session import TorchSession
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.system import host
from entrypoints.system.facts import MIB, fact
from entrypoints.system.memory import free_mib
from entrypoints.workloads.pytorch import float8
from entrypoints.workloads.pytorch.build import Objective, sharing, transposed_linear_weights

__all__ = ["free_mib", "libraries", "open_session", "prepare", "served_by"]

PACKED = 16  # texts generated together for which weights are packed
SPARE = 2  # times as much memory as the weights take has to be free for that
FEW = 2  # without packing: texts generated together for which weights are read for one or two rows at a time
PRECISIONS = ("fp32", "bf16", FP8)


def libraries() -> dict[str, str | None]:
    """Return no versions: what computes on the CPU is part of PyTorch."""
    return {}


def prepare(precision: str, threads: int, streams: int = 1) -> None:
    """Set the compute threads of each stream. Raises RunError (`unsupported`) if a CPU lacks `precision`."""
    require_precision(precision, PRECISIONS, "cpu")
    if precision == FP8:
        float8.require(torch.device("cpu"))
    compute_on(threads, streams)


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> CpuSession:
    """Return a session that takes over `model`.

    Raises RunError (`unsupported`) if it is to be compiled and cannot be compiled here.
    """
    if compiled:
        require_compiler()
    return CpuSession(model, rule, precision, compiled, partition, group)


def served_by(engine: str, _: int) -> HostSession:
    """Return the device of an engine that has a model of its own."""
    return HostSession(engine, f"by {engine}")


def require_compiler() -> None:
    """Raise RunError (`unsupported`) if PyTorch cannot compile for a CPU, for which it needs a C++ compiler."""
    require_torch_compile()
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise RunError(
            "unsupported", "--compile: PyTorch writes C++ for a CPU, and no compiler is here (g++ or clang++)"
        )


class CpuSession(HostSession, TorchSession):
    """A session on the CPU, whose calls return when they are done."""

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        precision: str,
        compiled: str | None,
        partition: BatchPartition | None,
        group: Group | None,
    ) -> None:
        HostSession.__init__(self, "PyTorch", planned(compiled, "cpu"))
        TorchSession.__init__(self, model, rule, torch.device("cpu"), precision, compiled, partition, group)

    def made_for_inference(self, graphs: bool) -> Any:
        """Return the model for inference. A compiled one is frozen if it shares no weights with the trained one.

        oneDNN then computes convolutions with what follows them: ResNet-50 is 1.22 times as fast (fp32, batch 2, one
        thread, PyTorch 2.13). Inductor's cache does not keep such code, so that each evaluation during training would
        compile it again: none of those is frozen.
        """
        made = super().made_for_inference(graphs)
        # Those without normalisations to fold have always been left as they are, whether anything trains them or not.
        changing = () if self.answers and self.folded else self.model.parameters()
        if not self.compiled or self.trained or not freezable(made, changing):
            return made
        self.frozen += 1
        return Frozen(made)

    def last_level_cache(self) -> LastLevelCache | None:
        """Return the last caches of the processors that this process may use."""
        size = fact(host.last_level_cache)["value"]
        return LastLevelCache(size, "the kernel: /sys/devices/system/cpu") if size else None

    def infer_request(self, batch: Batch) -> Answer:
        """Answer one request. Nothing is sent to a device, so `transfer` is the change of memory layout."""
        torch.get_num_threads()  # as `compute_on` does
        return super().infer_request(batch)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """Return the first state, with the weights laid out for few rows where few texts are generated together."""
        if not self.sampler and self.inference.plain is None:
            self.inference.plain = self.maybe_compiled(self.generating_model(batch.samples))
        return super().begin(batch, iterations, chains)

    def generating_model(self, rows: int) -> Objective:
        """Return the model for inference, with weights packed or transposed for a number of rows.

        Packing them keeps what was there.
        """
        model: Objective = self.strategy.inference_model(self.model)
        if self.compiled or self.divided:  # TorchInductor takes no packed weights but those that it packed itself
            return model
        copied = sharing(model)
        need = sum(weight.numel() * weight.element_size() for weight in model.parameters()) / MIB
        if rows <= PACKED and SPARE * need < (free_mib() or 0) and packed(copied.network, rows):
            return copied
        return transposed_linear_weights(model) if rows <= FEW else model
