"""What sessions have in common on hardware that PyTorch computes on by itself: the host's processors and GPUs."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
import torch

from entrypoints.contract.session import Answer, Batch, BatchPartition, Draw, Judged, OptimizerRule, Rule, StepReport
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.tensors import combine_results, evaluation_result, micro_batches, to_host
from entrypoints.workloads.pytorch.build import Objective, fold_batch_norms, weights
from entrypoints.workloads.pytorch.optimizers import optimizer
from entrypoints.workloads.pytorch.samplers import chain_sample, sampler

AUTOCAST = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
FUSED_ON_INTEL = "2.1.0a0"  # before, fused optimizers refuse what is not CUDA's: github.com/pytorch/pytorch, 104517
COMPILERS = ("torch._dynamo", "torch._inductor")  # where their exceptions are from

CallableModel = Any  # a model, or what stands for it: it is called, and its network is asked


def execution(compiled: bool, graphs: bool = False) -> str:
    """How a session runs a model, for the result."""
    how = "compiled by TorchInductor" if compiled else "eager"
    how += ", training replayed as CUDA graphs" if graphs else ""
    return f"{how}, channels_last; inference with normalisations folded into convolutions"


def require_torch_compile() -> None:
    """Raise RunError (`unsupported`) where this PyTorch compiles nothing."""
    if not hasattr(torch, "compile"):
        raise RunError("unsupported", f"--compile: PyTorch {torch.__version__} compiles nothing; from 2.0 on it does")


def updates_fused(hardware: torch.device) -> bool:
    """Whether this PyTorch updates weights there in one kernel, where the optimizer has one."""
    return hardware.type == "cuda" or (hardware.type == "xpu" and torch.__version__ >= FUSED_ON_INTEL)


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """For calls that may compile. Raises RunError (`compile_failure`) where that fails."""
    try:
        yield
    except Exception as error:
        if any(kind.__module__.startswith(COMPILERS) for kind in type(error).__mro__):
            raise RunError("compile_failure", f"--compile: {str(error)[:1000]}") from error
        raise


class TorchSession:
    """PyTorch, eager or compiled. Weights stay fp32; bf16 and fp16 are autocast, as PyTorch recommends it for training.

    A subclass says how far the hardware has got: `mark`, `seconds_between` and `synchronise` of a Session.
    """

    scaler: Any = None  # of gradients, for a precision that loses small ones
    graphs = False  # a compiled step of training is recorded once, then replayed by the GPU

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        hardware: torch.device,
        precision: str,
        compiled: bool,
        partition: BatchPartition | None,
    ) -> None:
        self.hardware, self.dtype, self.compiled = hardware, AUTOCAST[precision], compiled
        self.accumulation_steps = partition.accumulation if partition else 1  # micro-batches of an update
        self.micro_batch = partition.micro_batch if partition else None  # samples that are computed at once
        # channels_last saved a fifth (fp32) to two fifths (bf16) of a ResNet-50 step on a CPU with torch 2.13.
        self.model = model.to(hardware, memory_format=torch.channels_last)
        self.train_model = self.maybe_compiled(self.model, self.graphs)
        self.optimizer: Any = None
        self.sampler: Any = None
        if isinstance(rule, OptimizerRule):
            self.optimizer = optimizer(self.model, rule, updates_fused(hardware))
            self.gradient_norm = rule.gradient_norm
        else:
            self.sampler = sampler(self.model.network, self.maybe_compiled(self.model.network), rule)
        self.cached_inference_model: CallableModel | None = None  # what inference applies, as long as the weights stay

    def synchronise(self) -> None:
        """Wait for the hardware."""
        raise NotImplementedError

    def to_device(self, batch: Batch) -> Batch:
        """The batch on the hardware, its images in channels_last."""
        return batch._replace(
            inputs=self.tensors_to_device(batch.inputs), targets=self.tensors_to_device(batch.targets)
        )

    def tensors_to_device(self, tensors: Any) -> Any:
        """A tensor, or each of a tuple, on the hardware."""
        if isinstance(tensors, tuple):
            return tuple(map(self.tensors_to_device, tensors))
        if not isinstance(tensors, torch.Tensor):
            return tensors
        sent = self.tensor_to_device(tensors)
        return sent.contiguous(memory_format=torch.channels_last) if sent.dim() == 4 else sent

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor where the hardware reads it."""
        return tensor.to(self.hardware)

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward, update."""
        self.model.train()
        self.cached_inference_model = None
        batch = self.to_device(batch)
        self.optimizer.zero_grad(set_to_none=True)
        losses = [self.forward_backward(part) for part in self.micro_batches(batch)]
        self.update()
        loss = losses[0] if self.accumulation_steps == 1 else torch.stack(losses).mean()
        return StepReport(samples=batch.samples, updates=1, loss=loss.item)

    def forward_backward(self, batch: Batch) -> torch.Tensor:
        """Forward and backward of a micro-batch, whose gradients count for their share; its loss."""
        with compilation():
            with self.autocast():
                _, loss = self.train_model(batch.inputs, batch.targets)
            share = loss if self.accumulation_steps == 1 else loss / self.accumulation_steps
            (self.scaler.scale(share) if self.scaler else share).backward()
        return loss.detach().clone()  # what a graph gave is overwritten when it is replayed

    def update(self) -> None:
        """The optimizer's step, by gradients that are no longer than the rule has it."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.gradient_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.gradient_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def infer(self, batch: Batch) -> StepReport:
        """Forward in evaluation mode."""
        self.forward(self.to_device(batch._replace(targets=None)))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward in evaluation mode, as much at once as in training; what is likeliest counts where targets are
        labels, and all where samples have numbers."""
        found = [self.evaluate_micro_batch(part) for part in self.micro_batches(self.to_device(batch))]
        return found[0] if len(found) == 1 else combine_results(found)

    def micro_batches(self, placed: Batch) -> Sequence[Batch]:
        """What is computed at once, one after the other."""
        return micro_batches(placed, self.micro_batch or placed.samples)

    def evaluate_micro_batch(self, placed: Batch) -> Judged:
        """Of what is computed at once."""
        output, loss = self.forward(placed)
        return evaluation_result(placed, output, loss)

    def infer_request(self, batch: Batch) -> Answer:
        """Forward in evaluation mode, the host waiting at the end of each part."""
        asked = time.perf_counter()
        placed = self.to_device(batch._replace(targets=None))
        self.synchronise()
        begun = time.perf_counter()
        output, _ = self.forward(placed)
        self.synchronise()
        done = time.perf_counter()
        host_output = to_host(output)
        return Answer(host_output, begun - asked, done - begun, time.perf_counter() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """By the sampler, or by the network in evaluation mode.

        Raises RunError (`unsupported`) where a network that generates is to be compiled.
        """
        batch = self.to_device(batch)
        if self.sampler:
            with self.without_gradients():
                return self.sampler.begin(batch.inputs, batch.targets, iterations, chains)
        if self.compiled:
            raise RunError("unsupported", "--compile: generation is not compiled, its shapes change with every token")
        with self.without_gradients():
            return self.inference_model().network.begin(batch.inputs, iterations)

    def iterate(self, state: Any) -> Any:
        """By the sampler, or by the network in evaluation mode."""
        with self.without_gradients():
            return (self.sampler or self.inference_model().network).follow(state)

    def chain_sample(self, state: Any) -> Draw:
        """The sampler's state on the host."""
        return chain_sample(state)

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters on the host; views of them where they lie there."""
        return weights(self.model)

    def forward(self, placed: Batch) -> tuple[Any, Any]:
        """Output, and the loss where there are targets."""
        with compilation(), torch.inference_mode(), self.autocast():
            answer: tuple[Any, Any] = self.inference_model()(placed.inputs, placed.targets)
        return answer

    def autocast(self) -> Any:
        """Operations in a half precision, where that is the run's."""
        return torch.autocast(self.hardware.type, dtype=self.dtype, enabled=self.dtype is not None)

    @contextlib.contextmanager
    def without_gradients(self) -> Iterator[None]:
        """For iterations, which learn nothing."""
        with compilation(), torch.no_grad(), self.autocast():
            yield

    def maybe_compiled(self, model: Objective, graphs: bool = False) -> CallableModel:
        """What is called in its place."""
        return torch.compile(model, mode="reduce-overhead" if graphs else None) if self.compiled else model

    def inference_model(self) -> CallableModel:
        """The model as inference applies it. Streams that ask side by side may each prepare one: all are equal."""
        prepared = self.cached_inference_model
        if prepared is None:
            prepared = self.cached_inference_model = self.maybe_compiled(
                fold_batch_norms(self.model).to(memory_format=torch.channels_last)
            )
        return prepared

    def close(self) -> None:
        """Nothing to release but memory."""
        del self.model, self.train_model, self.cached_inference_model, self.optimizer, self.sampler
