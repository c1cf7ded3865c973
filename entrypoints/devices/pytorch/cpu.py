"""The processors of the host, through PyTorch."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import torch

from entrypoints.devices.processors import HostSession
from entrypoints.memory import free_mib
from entrypoints.session import Answer, Batch, Judged, OptimizerRule, StepReport
from entrypoints.statuses import RunError
from entrypoints.workloads.pytorch.build import Objective, folded, weights
from entrypoints.workloads.pytorch.optimizers import optimizer

__all__ = ["free_mib", "open_session", "prepare"]

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the number of compute threads; each stream has as many. Raises RunError where `precision` is beyond a CPU."""
    if precision not in AUTOCAST:
        raise RunError("unsupported", f"--precision {precision} on cpu: it can do {', '.join(AUTOCAST)}")
    torch.set_num_threads(threads)


def open_session(model: Objective, rule: OptimizerRule, precision: str) -> CpuSession:
    """A session over `model`, which it takes over."""
    return CpuSession(model, rule, precision)


class CpuSession(HostSession):
    """Eager PyTorch. Weights stay fp32; bf16 is autocast, as PyTorch recommends it for training."""

    def __init__(self, model: Objective, rule: OptimizerRule, precision: str) -> None:
        super().__init__("PyTorch", "eager, channels_last; inference with normalisations folded into convolutions")
        # channels_last saved a fifth (fp32) to two fifths (bf16) of a ResNet-50 step with torch 2.13.
        self.model = model.to(memory_format=torch.channels_last)
        self.optimizer = optimizer(self.model, rule)
        self.applied: Objective | None = None  # what inference applies, as long as the weights stay
        self.dtype = AUTOCAST[precision]

    def place(self, batch: Batch) -> Batch:
        """The batch with its images in channels_last."""
        return batch._replace(inputs=batch.inputs.contiguous(memory_format=torch.channels_last))

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.model.train()
        self.applied = None
        batch = self.place(batch)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None):
            _, loss = self.model(batch.inputs, batch.targets)
        loss.backward()
        self.optimizer.step()
        return StepReport(units=len(batch.inputs), updates=1, loss=loss.item)

    def infer(self, batch: Batch) -> StepReport:
        """Forward in evaluation mode."""
        self._forward(self.place(batch)._replace(targets=None))
        return StepReport(units=len(batch.inputs), updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward in evaluation mode; what is likeliest counts where targets are labels."""
        output, loss = self._forward(self.place(batch))
        labels = batch.targets
        right = int((output.argmax(1) == labels).sum()) if labels.dim() == 1 else None
        return Judged(len(labels), loss.item(), right)

    def respond(self, batch: Batch) -> Answer:
        """Forward in evaluation mode. Nothing is sent anywhere: transfer is the change of memory layout."""
        torch.get_num_threads()  # a thread that never asked is not told of `set_num_threads`: it takes all cores
        asked = self.mark()
        placed = self.place(batch)._replace(targets=None)
        begun = self.mark()
        output, _ = self._forward(placed)
        done = self.mark()
        host_output = output.float().numpy()
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def weights(self) -> Mapping[str, np.ndarray]:
        """Views of the parameters."""
        return weights(self.model)

    def _forward(self, placed: Batch) -> tuple[torch.Tensor, Any]:
        with torch.inference_mode(), torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None):
            answer: tuple[torch.Tensor, Any] = self.prepared()(placed.inputs, placed.targets)
        return answer

    def prepared(self) -> Objective:
        """The model as inference applies it. Streams that ask side by side may each prepare one: all are equal."""
        prepared = self.applied
        if prepared is None:
            prepared = self.applied = folded(self.model).to(memory_format=torch.channels_last)
        return prepared

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.applied, self.optimizer
