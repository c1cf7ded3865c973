"""The processors of the host, through PyTorch."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any, Iterator, Mapping

import numpy as np
import torch

from entrypoints.devices.processors import HostSession
from entrypoints.memory import free_mib
from entrypoints.session import Answer, Batch, Draw, Judged, OptimizerRule, Rule, StepReport
from entrypoints.statuses import RunError
from entrypoints.workloads.pytorch.build import Objective, Tensors, by_inputs, folded, weights
from entrypoints.workloads.pytorch.optimizers import optimizer
from entrypoints.workloads.pytorch.samplers import drawn, sampler

__all__ = ["free_mib", "open_session", "prepare"]

FEW = 2  # texts that are continued together: weights are then read for a row or two at a time
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the number of compute threads; each stream has as many. Raises RunError where `precision` is beyond a CPU."""
    if precision not in AUTOCAST:
        raise RunError("unsupported", f"--precision {precision} on cpu: it can do {', '.join(AUTOCAST)}")
    torch.set_num_threads(threads)


def on_host(output: Tensors) -> Any:
    """Outputs as arrays, of bfloat16 in single precision."""
    if isinstance(output, tuple):
        return tuple(map(on_host, output))
    return (output.float() if output.dtype == torch.bfloat16 else output).numpy()


def open_session(model: Objective, rule: Rule, precision: str, compiled: bool = False) -> CpuSession:
    """A session over `model`, which it takes over.

    Raises RunError (`unsupported`) where it cannot be compiled here and is to be.
    """
    if compiled:
        require_compiler()
    return CpuSession(model, rule, precision, compiled)


def require_compiler() -> None:
    """Raise RunError (`unsupported`) where PyTorch cannot compile for a CPU: it writes C++ and has it compiled."""
    if not hasattr(torch, "compile"):
        raise RunError("unsupported", f"--compile: PyTorch {torch.__version__} compiles nothing; from 2.0 on it does")
    if not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        raise RunError(
            "unsupported", "--compile: PyTorch writes C++ for a CPU, and no compiler is here (g++ or clang++)"
        )


Applied = Any  # a model, or what stands for it: it is called, and its network is asked
COMPILERS = ("torch._dynamo", "torch._inductor")  # where their exceptions are from


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """For calls that may compile. Raises RunError (`compile_failure`) where that fails."""
    try:
        yield
    except Exception as error:
        if any(kind.__module__.startswith(COMPILERS) for kind in type(error).__mro__):
            raise RunError("compile_failure", f"--compile: {str(error)[:1000]}") from error
        raise


class CpuSession(HostSession):
    """PyTorch, eager or compiled. Weights stay fp32; bf16 is autocast, as PyTorch recommends it for training."""

    def __init__(self, model: Objective, rule: Rule, precision: str, compiled: bool) -> None:
        how = "compiled by TorchInductor" if compiled else "eager"
        super().__init__("PyTorch", f"{how}, channels_last; inference with normalisations folded into convolutions")
        # channels_last saved a fifth (fp32) to two fifths (bf16) of a ResNet-50 step with torch 2.13.
        self.model = model.to(memory_format=torch.channels_last)
        self.compiled = compiled
        self.trained = self.made(self.model)
        self.optimizer: Any = None
        self.sampler: Any = None
        if isinstance(rule, OptimizerRule):
            self.optimizer, self.gradient_norm = optimizer(self.model, rule), rule.gradient_norm
        else:
            self.sampler = sampler(self.model.network, self.made(self.model.network), rule)
        self.applied: Applied | None = None  # what inference applies, as long as the weights stay
        self.dtype = AUTOCAST[precision]

    def place(self, batch: Batch) -> Batch:
        """The batch with its images in channels_last; what else there is stays as it is."""
        if isinstance(batch.inputs, torch.Tensor) and batch.inputs.dim() == 4:
            return batch._replace(inputs=batch.inputs.contiguous(memory_format=torch.channels_last))
        return batch

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.model.train()
        self.applied = None
        batch = self.place(batch)
        self.optimizer.zero_grad(set_to_none=True)
        with compilation():
            with torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None):
                _, loss = self.trained(batch.inputs, batch.targets)
            loss.backward()
        if self.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.gradient_norm)
        self.optimizer.step()
        return StepReport(samples=batch.samples, updates=1, loss=loss.item)

    def infer(self, batch: Batch) -> StepReport:
        """Forward in evaluation mode."""
        self._forward(self.place(batch)._replace(targets=None))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward in evaluation mode; what is likeliest counts where targets are labels, and all where samples have
        numbers."""
        output, loss = self._forward(self.place(batch))
        labels = batch.targets
        labelled = isinstance(labels, torch.Tensor) and labels.dim() == 1
        right = int((output.argmax(1) == labels).sum()) if labelled else None
        return Judged(batch.samples, loss.item(), right, None if batch.numbers is None else on_host(output))

    def respond(self, batch: Batch) -> Answer:
        """Forward in evaluation mode. Nothing is sent anywhere: transfer is the change of memory layout."""
        torch.get_num_threads()  # a thread that never asked is not told of `set_num_threads`: it takes all cores
        asked = self.mark()
        placed = self.place(batch)._replace(targets=None)
        begun = self.mark()
        output, _ = self._forward(placed)
        done = self.mark()
        host_output = on_host(output)
        return Answer(host_output, begun - asked, done - begun, self.mark() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler, or by the network in evaluation mode.

        Raises RunError (`unsupported`) where a network that generates is to be compiled.
        """
        if self.sampler:
            with self._iterating():
                return self.sampler.begin(batch.inputs, batch.targets, iterations, chains)
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        if batch.samples <= FEW and self.applied is None:
            by_inputs(self.model)
        with self._iterating():
            return self.prepared().network.begin(batch.inputs, iterations)

    def iterate(self, state: Any) -> Any:
        """By the sampler, or by the network in evaluation mode."""
        with self._iterating():
            return (self.sampler or self.prepared().network).follow(state)

    def draw(self, state: Any) -> Draw:
        """Views of the sampler's state."""
        return drawn(state)

    @contextlib.contextmanager
    def _iterating(self) -> Iterator[None]:
        autocast = torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None)
        with compilation(), torch.no_grad(), autocast:
            yield

    def weights(self) -> Mapping[str, np.ndarray]:
        """Views of the parameters."""
        return weights(self.model)

    def _forward(self, placed: Batch) -> tuple[Any, Any]:
        autocast = torch.autocast("cpu", dtype=self.dtype, enabled=self.dtype is not None)
        with compilation(), torch.inference_mode(), autocast:
            answer: tuple[Any, Any] = self.prepared()(placed.inputs, placed.targets)
        return answer

    def made(self, model: Objective) -> Applied:
        """What is called in its place."""
        return torch.compile(model) if self.compiled else model

    def prepared(self) -> Applied:
        """The model as inference applies it. Streams that ask side by side may each prepare one: all are equal."""
        prepared = self.applied
        if prepared is None:
            prepared = self.applied = self.made(folded(self.model).to(memory_format=torch.channels_last))
        return prepared

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.trained, self.applied, self.optimizer, self.sampler
