"""The session on hardware that PyTorch itself computes on: CPUs and GPUs."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from entrypoints.contract.choices import FP8, ROWWISE, compiler_of
from entrypoints.contract.group import Place
from entrypoints.contract.points import LastLevelCache, Point
from entrypoints.contract.session import (
    Answer,
    Batch,
    BatchPartition,
    ChainSample,
    DeviceFacts,
    EvaluationResult,
    Executed,
    FirstStep,
    InferenceRule,
    Operation,
    OptimizerRule,
    Rule,
    SamplerRule,
    StepReport,
)
from entrypoints.devices.pytorch.shared.backends import AttentionObserver, allocator, autotuning, matmul_precision
from entrypoints.devices.pytorch.shared.compiling import compilation, compile_model, counted, described, execution
from entrypoints.devices.pytorch.shared.inference import fusing
from entrypoints.devices.pytorch.shared.inference.generation import StaticGeneration
from entrypoints.devices.pytorch.shared.inference.models import InferenceModels
from entrypoints.devices.pytorch.shared.layout import LAYOUT
from entrypoints.devices.pytorch.shared.observation import StepObserver, dropped_fractions
from entrypoints.devices.pytorch.shared.recorded import Recorded
from entrypoints.devices.pytorch.shared.tensors import combine_results, evaluation_result, micro_batches, to_host
from entrypoints.devices.pytorch.shared.transfer import normalised
from entrypoints.devices.pytorch.shared.updates import overflowed, updates_fused
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.pytorch.strategies.selection import strategy_of
from entrypoints.workloads.pytorch import float8
from entrypoints.workloads.pytorch.build import Objective, has_batch_norms, sharing, with_chunked_loss
from entrypoints.workloads.pytorch.samplers import Leapfrog, Leaps, chain_sample, sampler, several

AUTOCAST = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16, FP8: torch.bfloat16}
CallableModel = Any  # a model or its compiled form, which has the model's attributes


class TorchSession:
    """A session in PyTorch, eager or compiled. Weights stay fp32; bf16 and fp16 use autocast, FP8 that of bf16.

    Subclasses time the hardware: `mark`, `seconds_between` and `synchronise` of a Session.
    """

    facts: DeviceFacts
    scaler: Any = None  # of gradients, for a precision that loses small values
    graphs = False  # whether a compiled step is to be recorded once and replayed by the GPU
    notes = ""  # what else a result says of how the model is run
    frozen = 0  # models for inference that were compiled with their weights as constants

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        hardware: torch.device,
        precision: str,
        compiled: str | None,
        partition: BatchPartition | None,
        group: Group | None = None,
    ) -> None:
        self.hardware, self.dtype, self.compiled = hardware, AUTOCAST[precision], compiled
        self.trained = False  # whether a step was one of training
        self.accumulation_steps = partition.accumulation if partition else 1  # micro-batches per update
        self.micro_batch = partition.micro_batch if partition else None  # samples computed at once
        self.model = model
        self.divided = bool(group and group.mesh.tensor > 1)  # so that there are no whole layers
        self.answers, self.folded = isinstance(rule, InferenceRule), has_batch_norms(model)
        self.strategy = strategy_of(group, self.dtype, isinstance(rule, OptimizerRule))
        if self.strategy.chunked_loss:
            with_chunked_loss(model)
        self.train_model: CallableModel = None
        if self.answers:
            self.strategy.loaded_for_inference(model, hardware)
        else:
            self.train_model = self.compiled_parts(self.strategy.wrap(model, hardware), self.graphs)
        if group and self.strategy.engine:
            self.note(f"{group.how.strategy} by {self.strategy.engine}")
            self.facts = self.facts._replace(mesh=list(group.mesh))
        self.attention = AttentionObserver(model, group is None and not isinstance(rule, SamplerRule))
        self.optimizer: Any = None
        self.observer: StepObserver | None = None  # of the first training step, unless it is compiled
        self.sampler: Any = None
        if isinstance(rule, OptimizerRule):
            self.optimizer = self.strategy.optimizer(self.model, rule, updates_fused(hardware, rule, precision))
            self.gradient_norm = rule.gradient_norm
        elif isinstance(rule, SamplerRule):
            self.sampler = sampler(self.model.network, rule, self.optimised_leaps)
        self.fused: dict[str, bool] = {}  # whether a convolution, by name, is one operation with what follows it
        self.inference = InferenceModels(self.made_for_inference)

    def note(self, text: str) -> None:
        """Add to what a result says of how the model is run."""
        self.notes += f"; {text}"
        self.facts = self.facts._replace(execution=f"{self.facts.execution}; {text}")

    def mark(self) -> Any:
        """Return a mark in the hardware's queue."""
        raise NotImplementedError

    def seconds_between(self, earlier: Any, later: Any) -> float | None:
        """Return the seconds between two marks, or None while the later one is pending."""
        raise NotImplementedError

    def wait(self, mark: Any) -> None:
        """Wait until the hardware has passed a mark."""
        raise NotImplementedError

    def synchronise(self) -> None:
        """Wait for the hardware."""
        raise NotImplementedError

    def wait_for_request(self) -> None:
        """Wait for what the calling thread gave the hardware."""
        self.synchronise()

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch on the hardware, its images normalised and in the memory format of the process."""
        return normalised(self.sent(batch), LAYOUT.format)

    def sent(self, batch: Batch) -> Batch:
        """Return the unchanged batch on the hardware; targets that are the inputs are sent once."""
        inputs = self.tensors_to_device(batch.inputs)
        targets = inputs if batch.targets is batch.inputs else self.tensors_to_device(batch.targets)
        return batch._replace(inputs=inputs, targets=targets)

    def tensors_to_device(self, tensors: Any) -> Any:
        """Return a tensor, or each of a tuple, on the hardware; numbers of images in the process's memory format."""
        if isinstance(tensors, tuple):
            return tuple(map(self.tensors_to_device, tensors))
        if not isinstance(tensors, torch.Tensor):
            return tensors
        sent = self.tensor_to_device(tensors)
        images = sent.dim() == 4 and sent.is_floating_point()  # bytes are in that order already
        return sent.contiguous(memory_format=LAYOUT.format) if images else sent

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in the hardware's memory."""
        return tensor.to(self.hardware)

    def train(self, batch: Batch) -> StepReport:
        """Do a step: forward and backward of each micro-batch, clipping, update. So do ranks with any strategy."""
        self.model.train()
        self.inference.forget()
        self.trained = True
        batch = self.to_device(batch)
        self.expect_padding(batch)
        self.look_at(batch, training=True)
        observer = StepObserver(self.model.network) if self.observer is None and not self.compiled else None
        self.strategy.zero_grad(self.optimizer)
        with compilation():
            losses = self.strategy.accumulate(self.micro_batches(batch), self)
        skipped = self.update()
        if observer:
            observer.stop()
            self.observer = observer
        loss = losses[0] if self.accumulation_steps == 1 else torch.stack(losses).mean()
        return StepReport(samples=batch.samples, updates=1, loss=loss.item, skipped=skipped)

    def forward_backward(self, batch: Batch, last: bool = True) -> torch.Tensor:
        """Do forward and backward of a micro-batch, scaled by its share of the update; return its loss."""
        with self.strategy.accumulating(last):
            loss = self.training_loss(batch)
            self.scaled(loss).backward()
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

    def update(self) -> Callable[[], bool] | None:
        """Do the optimizer's step, with gradients clipped to the rule's norm; return what says whether it was skipped.

        The scaler skips it if a gradient is not finite.
        """
        if self.scaler:
            self.scaler.unscale_(self.optimizer)
        if self.gradient_norm is not None:
            self.strategy.clip(self.model, self.gradient_norm)
        if self.scaler:
            self.scaler.step(self.optimizer)
            overflows = self.on_host(overflowed(self.scaler, self.optimizer))  # `update` forgets them
            self.scaler.update()
            return lambda: any(bool(overflow.item()) for overflow in overflows)
        self.optimizer.step()
        return None

    def on_host(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return copies on the host, which are written when the hardware has done what it was given before."""
        return tensors

    def look_at(self, batch_on_device: Batch, training: bool) -> None:  # noqa: ARG002 - GPUs do
        """See what of the first batch decides which kernels are taken."""
        self.attention.look_at(batch_on_device.inputs)

    def expect_padding(self, batch: Batch | None = None) -> None:
        """Let a network mask padding, unless a batch is known to have none: without a mask attention is faster.

        Networks are shared by the threads of requests, which therefore always mask it.
        """
        for model in (self.model, self.inference.plain, self.inference.recorded):  # compiled ones have no truth value
            network: Any = getattr(model, "network", None)
            if hasattr(network, "padded"):
                network.padded = batch is None or batch.padding != 0

    def infer(self, batch: Batch) -> StepReport:
        """Do a forward pass in evaluation mode. Its output is valid until the next one."""
        self.expect_padding(batch)
        batch_on_device = self.to_device(batch._replace(targets=None))
        self.look_at(batch_on_device, training=False)
        output, _ = self.forward(batch_on_device, self.graphs)
        return StepReport(batch.samples, updates=0, loss=None, output=functools.partial(to_host, output))

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Do a forward pass in evaluation mode, by micro-batches as in training.

        The result has the right predictions if targets are labels, and the output if samples have numbers.
        """
        self.expect_padding(batch)
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
        self.expect_padding()
        start = time.perf_counter()
        batch_on_device = self.to_device(batch._replace(targets=None))
        self.wait_for_request()
        transferred = time.perf_counter()
        output, _ = self.forward(batch_on_device)
        self.wait_for_request()
        done = time.perf_counter()
        host_output = to_host(output)
        return Answer(host_output, transferred - start, done - transferred, time.perf_counter() - done)

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """Return the first state, from the sampler or from the network in evaluation mode."""
        batch = self.to_device(batch)
        if self.sampler:
            with self.without_gradients():
                return self.sampler.first_state(batch.inputs, batch.targets, iterations, chains)
        with self.without_gradients():
            return self.generation().prefill(batch.inputs, iterations)

    def next_state(self, state: Any) -> Any:
        """Return the next state, from the sampler or from the network in evaluation mode."""
        with self.without_gradients():
            return self.sampler.next_state(state) if self.sampler else self.generation().decode_step(state)

    def generation(self) -> Any:
        """Return what generates texts: the network, or programs of one shape if it is compiled."""
        network = self.inference_model().network
        if not self.compiled:
            return network
        return self.inference.generation_of(network, self.static_generation)

    def static_generation(self, network: Any) -> StaticGeneration:
        """Return compiled programs that generate texts."""
        return StaticGeneration(network, self.maybe_compiled)

    def append_tokens(self, batch: Batch, tokens: Sequence[torch.Tensor]) -> tuple[Batch, np.ndarray]:
        """Return texts with new tokens, each (N, 1), at their end, and these tokens on the host (N, K)."""
        new = torch.cat(list(tokens), 1)
        texts = torch.cat([self.tensor_to_device(batch.inputs), new], 1)
        return batch._replace(inputs=texts, targets=None), new.cpu().numpy()

    def last_level_cache(self) -> LastLevelCache | None:
        """Return None: PyTorch does not say it of every device."""
        return None

    def operation(self, points: Sequence[Point], place: Place) -> Operation:
        """Return the operation of the model, which is a micro-benchmark, on the hardware."""
        opened: Operation = self.model.network.opened(points, place, self.hardware, self.dtype or torch.float32)
        return opened

    def chain_sample(self, state: Any) -> ChainSample:
        """Return the sampler's state on the host."""
        return chain_sample(state)

    def float8_layers(self, batch: Batch, scaling: str) -> Mapping[str, float]:
        """Return how far each layer in FP8 is from what it should compute, at the most, by quantity of the check."""
        from entrypoints.workloads.pytorch import float8_check  # late: only a correctness check has it

        emulation = float8_check.Emulation(float8.formats(float8.architecture(self.hardware)), scaling == ROWWISE)
        return float8_check.of_layers(self.model, self.to_device(batch), self.autocast, emulation)

    def float8_network(self, single: TorchSession, batch: Batch) -> Mapping[str, float]:
        """Return how far the network is from one in fp32 with the same weights, by quantity of the check."""
        from entrypoints.workloads.pytorch import float8_check

        return float8_check.of_network((self, single), batch)

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

    def forward(self, batch_on_device: Batch, graphs: bool = False) -> tuple[Any, Any]:
        """Return the output, and the loss if there are targets; with `graphs`, from the thread that records them."""
        with compilation(), self.strategy.evaluating(), self.autocast():
            model = self.inference.replayed_model() if graphs else self.inference_model()
            result: tuple[Any, Any] = model(batch_on_device.inputs, batch_on_device.targets)
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
        return compile_model(model, self.compiled, graphs, compiler_of(self.hardware.type))

    def compiled_parts(self, model: Any, graphs: bool = False) -> CallableModel:
        """Return a model of the strategy, compiled as a whole or, where ranks have parts of it, block by block."""
        if not self.compiled:
            return model
        return self.strategy.compiled(model, functools.partial(self.maybe_compiled, graphs=graphs))

    def optimised_leaps(self, leapfrog: Leapfrog, steps: int) -> Leaps:
        """Return what does so many leapfrog steps: compiled, and replayed by the GPU, if the session does that."""
        called = several(self.maybe_compiled(leapfrog), steps)
        return Recorded(called) if self.graphs else called

    def inference_model(self) -> CallableModel:
        """Return the model for inference."""
        return self.inference.model()

    def made_for_inference(self, graphs: bool) -> CallableModel:
        """Return the model for inference with today's weights: compiled, or with operations that are fused."""
        model = self.strategy.inference_model(self.model)
        library = fusing.library(self.hardware.type)
        if library and not self.compiled and isinstance(model, Objective) and not self.divided:
            model = sharing(model) if self.answers else model  # what is fused has layers of its own
            fusing.fuse(model, library, functools.partial(fusing.fastest, self), self.fused)
        return self.compiled_parts(model, graphs)

    def executed(self) -> Executed:
        """Return how the model was run so far."""
        began = time.monotonic()
        self.strategy.require_equal()
        counts = {**counted(self.graphs), "frozen": self.frozen} if self.compiled else {}
        kind = self.hardware.type
        how = described(self.compiled, self.graphs, counts, compiler_of(kind)) if self.compiled else "eager"
        facts = {
            **counts,
            "attention": self.attention.kernels(self.autocast(), self.trained),
            "matmul_precision": matmul_precision(kind, self.dtype),
            "allocator": allocator(kind),
            "autotuning": autotuning(kind, self.compiled),
            "convolutions": fusing.described(kind, self.fused),
            "float8": float8.described(self.model.network),
        }
        return Executed(began, time.monotonic(), execution(how) + self.notes, facts)

    def close(self) -> None:
        """Release memory."""
        self.strategy.close()
        del self.model, self.train_model, self.strategy, self.optimizer, self.sampler
        del self.inference, self.attention
