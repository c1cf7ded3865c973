"""Graphcore IPUs, through PopTorch: one call compiles or runs forward, backward and update of a whole batch.

Calls and their arguments are those of PopTorch 3.1 to 3.4; this has not yet been run on an IPU.
"""

from __future__ import annotations

from entrypoints.contract.statuses import RunError

try:
    import poptorch  # first: without it PyTorch is useless, and may be missing too
except (ImportError, OSError) as absent:
    raise RunError("no_device", f"PopTorch cannot be imported: {absent}") from absent
except AssertionError as mismatch:  # each build asserts that it has its own version of PyTorch
    from importlib.metadata import version

    raise RunError(
        "unsupported",
        f"PopTorch {version('poptorch')} is built for another PyTorch than {version('torch')}, which is here: "
        f"{mismatch or 'it does not say which'}. Use an image whose base has both",
    ) from mismatch

import functools
import os
import threading
from typing import Any, Iterator, Mapping

import numpy as np
import torch

from entrypoints.contract.session import (
    Answer,
    Batch,
    BatchPartition,
    ChainSample,
    DeviceConditions,
    DeviceFacts,
    EvaluationResult,
    FirstStep,
    InferenceRule,
    OptimizerRule,
    Rule,
    StepReport,
    Usage,
)
from entrypoints.devices import executables
from entrypoints.devices.host_session import SynchronousSession
from entrypoints.devices.pytorch.graphcore.errors import compilation
from entrypoints.devices.pytorch.graphcore.optimizer import optimizer
from entrypoints.devices.pytorch.graphcore.options import compiler_options, local_replicas
from entrypoints.devices.pytorch.graphcore.steps import InferenceStep, TrainingStep
from entrypoints.devices.pytorch.shared.tensors import (
    Nesting,
    as_tuple,
    evaluation_result,
    first_samples,
    pad_batch,
    to_float32,
    to_host,
)
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.pytorch.shared.transfer import normalised
from entrypoints.devices.pytorch.strategies import ipu_stages
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.pytorch.build import Objective, tied_head, weights, without_sdpa

PRECISIONS = ("fp32", "fp16")  # PopTorch makes fp16 of bf16
MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")  # environment variables that ask for a model of an IPU
# Environment variables that the result records: options of PopTorch and of Poplar; and that of kept executables.
TELLING = ("POPTORCH_DEFAULT_OPTIONS", "POPLAR_ENGINE_OPTIONS")
ARCHITECTURES = {1: "GC2", 21: "C600"}
SECOND, OF_SECOND = 2, "GC200 or Bow"
CACHE = "POPTORCH_CACHE_DIR"
WHOLE_BATCH = BatchPartition(0)  # each batch in one piece
UNCOUNTED = "PopTorch does not report it"


def on_ipu_model() -> bool:
    """Return whether PopTorch computes on a model of an IPU."""
    return any(os.environ.get(name, "0") != "0" for name in MODELS)


def libraries() -> dict[str, str | None]:
    """Return the version of PopTorch, which is the SDK's."""
    return {"poptorch": poptorch.__version__}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads that compute on the host.

    Raises RunError: `no_device` if there is no IPU, `unsupported` if IPUs do not support the precision.
    """
    if not (on_ipu_model() or poptorch.ipuHardwareIsAvailable()):
        raise RunError("no_device", "PopTorch finds no IPU: are IPUOF_CONFIG_PATH or IPUOF_VIPU_API_HOST set?")
    require_precision(precision, PRECISIONS, "ipu")
    compute_on(threads)


def free_mib() -> None:
    """Return None: memory is allocated when a model is compiled."""


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: bool = False,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> IpuSession:
    """Return a session that takes over `model`, on the IPUs of this instance if there are several.

    Raises RunError: `unsupported` for a sampler and for what PopTorch's optimizers cannot do, `no_device` for too few
    IPUs.
    """
    if compiled:
        raise RunError("unsupported", "--compile: PopTorch compiles every model by itself. Leave it out")
    if not isinstance(rule, (OptimizerRule, InferenceRule)):
        raise RunError("unsupported", "PopTorch compiles steps of training and inference, and no sampler")
    return IpuSession(model, rule, precision, partition, instances=group.place.world if group else 1)


class IpuSession(SynchronousSession):
    """Executors for training and for inference over one model; the one in use has the IPUs.

    A call returns when its output is on the host.
    """

    def __init__(
        self,
        model: Objective,
        rule: OptimizerRule | InferenceRule,
        precision: str,
        partition: BatchPartition | None,
        instances: int = 1,
    ) -> None:
        self.half, self.instances = precision == "fp16", instances
        self.model = without_sdpa(model.half() if self.half else model)
        self.rule: Any = rule
        self.partition = partition or WHOLE_BATCH
        self.copies = 1  # of each batch of training
        if instances > 1:  # poprun's replicas: in the check, which is of one, each gets the whole batch
            replicas = local_replicas()
            self.copies = replicas // self.partition.replicas
            self.partition = self.partition._replace(replicas=replicas)
        self.training: Any = None
        self.inference: Any = None
        self.samples = 0  # of an inference call, whose shape is compiled
        self.lock = threading.Lock()  # an executor handles one call at a time
        if instances == 1:  # poprun has reserved those of several
            require_ipus(self.partition.devices)
        ipu_stages.mark_stages(self.model, self.partition)
        if self.recomputes:
            ipu_stages.keep_outputs(self.model)
        self.facts = DeviceFacts(
            kind="ipu",
            vendor="Graphcore",
            name=None if on_ipu_model() else chip_name(poptorch.ipuHardwareVersion()),
            devices=self.partition.devices,
            granularity="package",
            memory_mib=None,
            ranks=1,
            replicas=self.partition.replicas,
            execution=", ".join(self.execution()),
            simulated=on_ipu_model() or bool(getattr(poptorch, "SIMULATED", False)),
        )

    @property
    def recomputes(self) -> bool:
        """Whether activations are computed again in backward: in pipelines PopTorch does that anyway."""
        return self.partition.memory.recomputed or self.partition.strategy == "pipelined"

    def execution(self) -> Iterator[str]:
        """Yield how the model is compiled and divided."""
        partition = self.partition
        yield f"compiled by PopTorch {poptorch.__version__}"
        yield partition.strategy or "one stage"
        if partition.stages > 1 and partition.strategy != "phased" and tied_head(self.model.network) is not None:
            yield "head and embedding on the first IPU"
        if self.recomputes:
            yield "activations recomputed between outputs of blocks in training"
        if partition.memory.proportions:
            yield f"available memory proportion {' '.join(map(str, partition.memory.proportions))}"
        if partition.memory.io_tiles:
            yield f"{partition.memory.io_tiles} tiles for input and output"
        if partition.memory.states_off_chip:
            yield "optimizer states off chip"
        if self.half:
            yield "half partials, stochastic rounding in training"
        if self.instances > 1:
            yield f"{self.instances} instances by popdist"
        if CACHE in os.environ:
            yield executables.described(CACHE, os.environ[CACHE])
        yield from (f"{name} is set" for name in TELLING if name in os.environ)

    def mark(self) -> float:
        """Return the current time (s), after training has the IPUs back: reloading it is no part of the next step."""
        if self.training is not None:
            with compilation():
                self.attach(self.training, self.inference)
        return super().mark()

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch, normalised, in the run's precision. It stays on the host: PopTorch sends it with calls."""
        batch = normalised(batch, torch.contiguous_format)
        return batch._replace(inputs=self.to_precision(batch.inputs))

    def train(self, batch: Batch) -> StepReport:
        """Do forward, backward and update for each iteration of a call; the loss is the mean of all micro-batches."""
        batch = self.to_device(batch)
        with compilation():
            executor = self.training_executor(batch)
            tensors = (*as_tuple(batch.inputs), *as_tuple(batch.targets))
            losses = executor(*(torch.cat([tensor] * self.copies) if self.copies > 1 else tensor for tensor in tensors))
        updates = self.partition.device_iterations
        return StepReport(samples=batch.samples, updates=updates, loss=losses.float().mean().item)

    def infer(self, batch: Batch) -> StepReport:
        """Do a forward pass in evaluation mode."""
        output = self.run_inference(self.to_device(batch))
        return StepReport(batch.samples, updates=0, loss=None, output=functools.partial(to_host, output))

    def gradients(self) -> None:
        """Return nothing: gradients stay on the IPUs."""

    def observed(self) -> FirstStep:
        """Return nothing: a step is one program."""
        return FirstStep()

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Do a forward pass in evaluation mode; the host computes the loss of the real samples."""
        output = to_float32(self.run_inference(self.to_device(batch)))
        return evaluation_result(batch, output, self.model.loss_of(output, batch.targets))

    def infer_request(self, batch: Batch) -> Answer:
        """Answer a request; the executor itself measures the parts of its time. Threads take turns."""
        moved = self.to_device(batch)
        with self.lock:
            output = self.run_inference(moved)
            parts = self.inference.getHostIpuLatency, self.inference.getComputeLatency, self.inference.getIpuHostLatency
            sent, computed, fetched = (ask()[2] for ask in parts)  # minimum, maximum, mean
        return Answer(to_host(output), sent, computed, fetched)

    def begin(self, *_: object) -> Any:
        """Raise RunError (`unsupported`)."""
        raise RunError("unsupported", "texts are not continued on IPUs: PopTorch compiles one shape, and a text grows")

    def next_state(self, state: Any) -> Any:
        """Raise NotImplementedError: there is no state."""
        raise NotImplementedError

    def append_tokens(self, batch: Batch, tokens: object) -> Any:
        """Raise NotImplementedError: there is no state."""
        raise NotImplementedError

    def chain_sample(self, state: Any) -> ChainSample:
        """Raise NotImplementedError: there is no state."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, np.ndarray]:
        """Return the parameters, fetched from the IPUs."""
        if self.training is not None and self.training.isAttachedToDevice():  # otherwise detaching fetched them
            self.training.copyWeightsToHost()
        return {name: weight.astype(np.float32) for name, weight in weights(self.model).items()}

    def usage(self) -> Usage:
        """Return that PopTorch counts nothing."""
        return Usage.unknown(UNCOUNTED)

    def conditions(self) -> DeviceConditions:
        """Return the conditions that the SDK's library reports."""
        return DeviceConditions(dict(gcipuinfo.conditions()), None)

    def close(self) -> None:
        """Release the IPUs."""
        for executor in filter(None, (self.training, self.inference)):
            executor.destroy()
        del self.model, self.training, self.inference

    def training_executor(self, batch: Batch) -> Any:
        """Return the executor of training, attached to the IPUs."""
        if self.training is None:
            shape, overlapped = Nesting(batch.inputs, batch.targets), bool(self.partition.memory.io_tiles)
            step = TrainingStep(self.model, shape, self.half, overlapped).train()
            rule = optimizer(step, self.rule, self.half)
            options = self.options(batch.samples, training=True)
            self.training = poptorch.trainingModel(step, options=options, optimizer=rule)
        self.attach(self.training, self.inference)
        return self.training

    def run_inference(self, batch: Batch) -> Any:
        """Return the output for a batch. A batch smaller than the first is padded with its last sample."""
        if self.inference is None:
            partition = self.partition
            at_once = (partition.micro_batch or batch.samples) * partition.replicas
            largest = max(batch.samples, at_once * partition.accumulation)  # a first batch may lack unreadable samples
            self.samples = -(-largest // at_once) * at_once
            overlapped = bool(partition.memory.io_tiles)
            network = InferenceStep(self.model, Nesting(batch.inputs, None), overlapped).eval()
            self.inference = poptorch.inferenceModel(network, options=self.options(self.samples, training=False))
        with compilation():
            self.attach(self.inference, self.training)
            output = self.inference(*(pad_batch(tensor, self.samples) for tensor in as_tuple(batch.inputs)))
        return first_samples(output, batch.samples)

    def attach(self, wanted: Any, other: Any) -> None:
        """Attach the IPUs to the `wanted` executor, and give it the current weights."""
        if other is not None and other.isCompiled() and other.isAttachedToDevice():
            other.detachFromDevice()  # which copies the weights to the host
        if wanted.isCompiled() and not wanted.isAttachedToDevice():
            wanted.attachToDevice()
            wanted.copyWeightsToDevice()

    def options(self, samples: int, training: bool) -> Any:
        """Return PopTorch's options for a batch of `samples`."""
        return compiler_options(self.model, self.partition, samples, training, half=self.half, instances=self.instances)

    def to_precision(self, tensors: Any) -> Any:
        """Return floating-point tensors in the run's precision; leave integers unchanged."""
        if isinstance(tensors, tuple):
            return tuple(map(self.to_precision, tensors))
        return tensors.half() if self.half and tensors.is_floating_point() else tensors


def chip_name(version: int) -> str | None:
    """Return the name of the IPUs by the number of their architecture."""
    return (gcipuinfo.chip() or OF_SECOND) if version == SECOND else ARCHITECTURES.get(version)


def require_ipus(count: int) -> None:
    """Raise RunError (`no_device`) if there are fewer than `count` IPUs."""
    if not (on_ipu_model() or poptorch.ipuHardwareIsAvailable(count)):
        raise RunError("no_device", f"{count} IPUs are wanted, and PopTorch finds no partition of that size")
