"""The session on hardware that PyTorch itself computes on: CPUs and GPUs."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
import torch

from entrypoints.contract.group import Place
from entrypoints.contract.points import Point
from entrypoints.contract.session import (
    Answer,
    Batch,
    BatchPartition,
    ChainSample,
    DeviceFacts,
    EvaluationResult,
    FirstStep,
    Operation,
    OptimizerRule,
    Rule,
    SamplerRule,
    StepReport,
)
from entrypoints.contract.statuses import RunError
from entrypoints.devices.pytorch.shared.observation import StepObserver, dropped_fractions
from entrypoints.devices.pytorch.shared.tensors import combine_results, evaluation_result, micro_batches, to_host
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.pytorch.strategies.selection import strategy_of
from entrypoints.workloads.pytorch.build import Objective
from entrypoints.workloads.pytorch.samplers import chain_sample, sampler

AUTOCAST = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
FUSED_ON_INTEL = (
    "2.1.0a0"  # earlier fused optimizers refuse other devices than CUDA: github.com/pytorch/pytorch, 104517
)
COMPILERS = ("torch._dynamo", "torch._inductor")  # modules that define their exceptions

CallableModel = Any  # a model or its compiled form, which has the model's attributes


def execution(compiled: bool, graphs: bool = False) -> str:
    """Return how a session runs a model, for the result."""
    how = "compiled by TorchInductor" if compiled else "eager"
    how += ", training replayed as CUDA graphs" if graphs else ""
    return f"{how}, channels_last; inference with normalisations folded into convolutions"


def require_torch_compile() -> None:
    """Raise RunError (`unsupported`) if this PyTorch cannot compile."""
    if not hasattr(torch, "compile"):
        raise RunError("unsupported", f"--compile: PyTorch {torch.__version__} compiles nothing; from 2.0 on it does")


def updates_fused(hardware: torch.device, rule: OptimizerRule, precision: str) -> bool:
    """Return whether an update is fused on the hardware.

    Never that of gradient descent in fp16: if the first step overflows, the fused kernel returns without writing the
    momentum, which stays what was in memory (torch/optim/sgd.py makes it by `empty_like`; seen with PyTorch 2.11).
    """
    if rule.name == "sgd" and precision == "fp16":
        return False
    return hardware.type == "cuda" or (hardware.type == "xpu" and torch.__version__ >= FUSED_ON_INTEL)


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """Translate errors of calls that may compile. Raises RunError (`compile_failure`) if compilation fails."""
    try:
        yield
    except Exception as error:
        if any(kind.__module__.startswith(COMPILERS) for kind in type(error).__mro__):
            raise RunError("compile_failure", f"--compile: {str(error)[:1000]}") from error
        raise


class TorchSession:
    """A session in PyTorch, eager or compiled. Weights stay fp32; bf16 and fp16 use autocast.

    Subclasses time the hardware: `mark`, `seconds_between` and `synchronise` of a Session.
    """

    facts: DeviceFacts
    scaler: Any = None  # of gradients, for a precision that loses small values
    graphs = False  # whether a compiled training step is recorded once and replayed by the GPU

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        hardware: torch.device,
        precision: str,
        compiled: bool,
        partition: BatchPartition | None,
        group: Group | None = None,
    ) -> None:
        self.hardware, self.dtype, self.compiled = hardware, AUTOCAST[precision], compiled
        self.accumulation_steps = partition.accumulation if partition else 1  # micro-batches per update
        self.micro_batch = partition.micro_batch if partition else None  # samples computed at once
        self.model = model
        self.strategy = strategy_of(group, self.dtype, isinstance(rule, OptimizerRule), compiled)
        self.train_model = self.maybe_compiled(self.strategy.wrap(model, hardware), self.graphs)
        if group and self.strategy.engine:
            how = f"{self.facts.execution}; {group.strategy} by {self.strategy.engine}"
            self.facts = self.facts._replace(execution=how)
        self.optimizer: Any = None
        self.observer: StepObserver | None = None  # of the first training step, unless it is compiled
        self.sampler: Any = None
        if isinstance(rule, OptimizerRule):
            self.optimizer = self.strategy.optimizer(self.model, rule, updates_fused(hardware, rule, precision))
            self.gradient_norm = rule.gradient_norm
        elif isinstance(rule, SamplerRule):
            self.sampler = sampler(self.model.network, self.maybe_compiled(self.model.network), rule)
        self.cached_inference_model: CallableModel | None = None  # valid until the weights change

    def synchronise(self) -> None:
        """Wait for the hardware."""
        raise NotImplementedError

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch on the hardware, its images in channels_last."""
        return batch._replace(
            inputs=self.tensors_to_device(batch.inputs), targets=self.tensors_to_device(batch.targets)
        )

    def tensors_to_device(self, tensors: Any) -> Any:
        """Return a tensor, or each of a tuple, on the hardware."""
        if isinstance(tensors, tuple):
            return tuple(map(self.tensors_to_device, tensors))
        if not isinstance(tensors, torch.Tensor):
            return tensors
        sent = self.tensor_to_device(tensors)
        return sent.contiguous(memory_format=torch.channels_last) if sent.dim() == 4 else sent

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in the hardware's memory."""
        return tensor.to(self.hardware)

    def train(self, batch: Batch) -> StepReport:
        """Do forward, backward and update."""
        self.model.train()
        self.cached_inference_model = None
        batch = self.to_device(batch)
        observer = StepObserver(self.model.network) if self.observer is None and not self.compiled else None
        self.optimizer.zero_grad(set_to_none=True)
        with compilation():
            losses = self.strategy.accumulate(self.micro_batches(batch), self)
        self.update()
        if observer:
            observer.stop()
            self.observer = observer
        loss = losses[0] if self.accumulation_steps == 1 else torch.stack(losses).mean()
        return StepReport(samples=batch.samples, updates=1, loss=loss.item)

    def forward_backward(self, batch: Batch, last: bool = True) -> torch.Tensor:
        """Do forward and backward of a micro-batch, scaled by its share of the update; return its loss."""
        with self.strategy.accumulating(last):
            loss = self.training_loss(batch)
            self.strategy.backward(self.scaled(loss))
        return loss.detach().clone()  # a replayed graph overwrites its output

    def training_loss(self, batch: Batch) -> torch.Tensor:
        """Do the forward pass of a micro-batch; return its loss."""
        with self.autocast():
            loss: torch.Tensor = self.train_model(batch.inputs, batch.targets)[1]
        return loss

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return a micro-batch's share of the loss of the update, so large that no gradient of it is lost."""
        share = loss if self.accumulation_steps == 1 else loss / self.accumulation_steps
        scaled: torch.Tensor = self.scaler.scale(share) if self.scaler else share
        return scaled

    def update(self) -> None:
        """Do the optimizer's step, with gradients clipped to the rule's norm."""
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.gradient_norm is not None:
            self.strategy.clip(self.model, self.gradient_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()

    def infer(self, batch: Batch) -> StepReport:
        """Do a forward pass in evaluation mode."""
        output, _ = self.forward(self.to_device(batch._replace(targets=None)))
        return StepReport(batch.samples, updates=0, loss=None, output=functools.partial(to_host, output))

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Do a forward pass in evaluation mode, by micro-batches as in training.

        The result has the right predictions if targets are labels, and the output if samples have numbers.
        """
        results = [self.evaluate_micro_batch(part) for part in self.micro_batches(self.to_device(batch))]
        return results[0] if len(results) == 1 else combine_results(results)

    def micro_batches(self, batch_on_device: Batch) -> Sequence[Batch]:
        """Return the micro-batches of a batch in order."""
        return micro_batches(batch_on_device, self.micro_batch or batch_on_device.samples)

    def evaluate_micro_batch(self, batch_on_device: Batch) -> EvaluationResult:
        """Evaluate one micro-batch."""
        output, loss = self.forward(batch_on_device)
        return evaluation_result(batch_on_device, output, loss)

    def infer_request(self, batch: Batch) -> Answer:
        """Answer a request in evaluation mode; the host waits at the end of each part."""
        start = time.perf_counter()
        batch_on_device = self.to_device(batch._replace(targets=None))
        self.synchronise()
        transferred = time.perf_counter()
        output, _ = self.forward(batch_on_device)
        self.synchronise()
        done = time.perf_counter()
        host_output = to_host(output)
        return Answer(host_output, transferred - start, done - transferred, time.perf_counter() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """Return the first state, from the sampler or from the network in evaluation mode.

        Raises RunError (`unsupported`) if a network that generates is to be compiled.
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
        """Return the next state, from the sampler or from the network in evaluation mode."""
        with self.without_gradients():
            return (self.sampler or self.inference_model().network).follow(state)

    def continued(self, batch: Batch, tokens: Sequence[torch.Tensor]) -> tuple[Batch, np.ndarray]:
        """Return texts with new tokens, each (N, 1), at their end, and these tokens on the host (N, K)."""
        new = torch.cat(list(tokens), 1)
        texts = torch.cat([self.tensor_to_device(batch.inputs), new], 1)
        return batch._replace(inputs=texts, targets=None), new.cpu().numpy()

    def operation(self, points: Sequence[Point], place: Place) -> Operation:
        """Return the operation of the model, which is a micro-benchmark, on the hardware."""
        opened: Operation = self.model.network.opened(points, place, self.hardware, self.dtype or torch.float32)
        return opened

    def chain_sample(self, state: Any) -> ChainSample:
        """Return the sampler's state on the host."""
        return chain_sample(state)

    def weights(self) -> Mapping[str, np.ndarray]:
        """Return the parameters on the host, as views if they are there already."""
        return self.strategy.weights(self.model)

    def gradients(self) -> Mapping[str, float] | None:
        """Return by weight the fraction of its units with a gradient, which is kept until the next step.

        None if the scaler has skipped the update, since gradients in half precision overflowed.
        """
        used = self.strategy.used_units(self.model)
        return None if self.scaler and any(map(math.isnan, used.values())) else used

    def observed(self) -> FirstStep:
        """Return what was seen of the first training step. If it was compiled, dropouts count as applied."""
        return self.observer.observed() if self.observer else FirstStep(None, dropped_fractions(self.model.network))

    def forward(self, batch_on_device: Batch) -> tuple[Any, Any]:
        """Return the output, and the loss if there are targets."""
        with compilation(), self.strategy.evaluating(), self.autocast():
            result: tuple[Any, Any] = self.inference_model()(batch_on_device.inputs, batch_on_device.targets)
        return result

    def autocast(self) -> Any:
        """Return a context that computes in the run's half precision, if it has one."""
        return torch.autocast(self.hardware.type, dtype=self.dtype, enabled=self.dtype is not None)

    @contextlib.contextmanager
    def without_gradients(self) -> Iterator[None]:
        """Compute iterations, without gradients."""
        with compilation(), torch.no_grad(), self.autocast():
            yield

    def maybe_compiled(self, model: Objective, graphs: bool = False) -> CallableModel:
        """Return the compiled model, or the model itself if nothing is compiled."""
        return torch.compile(model, mode="reduce-overhead" if graphs else None) if self.compiled else model

    def inference_model(self) -> CallableModel:
        """Return the model for inference. Concurrent request streams may each prepare one: all are equal."""
        model = self.cached_inference_model
        if model is None:
            model = self.cached_inference_model = self.maybe_compiled(self.strategy.inference_model(self.model))
        return model

    def close(self) -> None:
        """Release memory."""
        self.strategy.close()
        del self.model, self.train_model, self.strategy, self.cached_inference_model, self.optimizer, self.sampler
