"""Graphcore IPUs, through PopTorch: one call compiles, or runs, forward, backward and update of a whole batch.

Calls and their arguments are those of PopTorch 3.1 to 3.4; nothing here was run on an IPU.
"""

from __future__ import annotations

from entrypoints.contract.statuses import RunError

try:
    import poptorch  # first of all: without it there is no use of PyTorch, which may not be here either
except (ImportError, OSError) as absent:
    raise RunError("no_device", f"PopTorch cannot be imported: {absent}") from absent
except AssertionError as mismatch:  # each build of it goes with one version of PyTorch, and asserts that
    from importlib.metadata import version

    raise RunError(
        "unsupported",
        f"PopTorch {version('poptorch')} is built for another PyTorch than {version('torch')}, which is here: "
        f"{mismatch or 'it does not say which'}. Use an image whose base has both",
    ) from mismatch

import contextlib
import os
import threading
from typing import Any, Iterator, Mapping

import numpy as np
import torch
from torch import nn

from entrypoints.contract.session import (
    Answer,
    Batch,
    BatchPartition,
    DeviceConditions,
    DeviceFacts,
    Draw,
    Judged,
    OptimizerRule,
    Rule,
    StepReport,
    Usage,
)
from entrypoints.devices.host_session import SynchronousSession
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
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.pytorch.build import Objective, stage_boundaries, weights, without_sdpa
from entrypoints.workloads.pytorch.optimizers import parameter_groups

PRECISIONS = ("fp32", "fp16")  # PopTorch makes fp16 of bf16
MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")  # environment: compute on a model of an IPU
# Environment: executables that are compiled already, options of PopTorch's and Poplar's.
TELLING = ("POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS", "POPLAR_ENGINE_OPTIONS")
ARCHITECTURES = {1: "GC2", 21: "C600"}
SECOND, OF_SECOND = 2, "GC200 or Bow"
LOSS_SCALING = 128.0  # in half precision, else small gradients vanish; PopTorch takes it off again
WHOLE_BATCH = BatchPartition(0)  # whatever a batch is
UNCOUNTED = "PopTorch does not tell"
# What PopTorch says, in small letters, and the state that it means; busy IPUs count as available until they are wanted.
REFUSALS = {"out of memory": "out_of_memory", "failed to acquire": "no_device"}


def on_ipu_model() -> bool:
    """Whether PopTorch was told to compute on a model of an IPU."""
    return any(os.environ.get(name, "0") != "0" for name in MODELS)


def libraries() -> dict[str, str | None]:
    """The version of PopTorch, which is that of the SDK."""
    return {"poptorch": poptorch.__version__}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads of the host's own part.

    Raises RunError: `no_device` where there is no IPU, `unsupported` for a precision that it has not.
    """
    if not (on_ipu_model() or poptorch.ipuHardwareIsAvailable()):
        raise RunError("no_device", "PopTorch finds no IPU: are IPUOF_CONFIG_PATH or IPUOF_VIPU_API_HOST set?")
    require_precision(precision, PRECISIONS, "ipu")
    compute_on(threads)


def free_mib() -> None:
    """Nobody knows: memory is given out when a model is compiled."""


def open_session(
    model: Objective, rule: Rule, precision: str, compiled: bool = False, partition: BatchPartition | None = None
) -> IpuSession:
    """A session over `model`, which it takes over.

    Raises RunError (`unsupported`) for a sampler, for what PopTorch's optimizers cannot do, for too few IPUs.
    """
    if compiled:
        raise RunError("unsupported", "--compile: PopTorch compiles every model by itself. Leave it out")
    if not isinstance(rule, OptimizerRule):
        raise RunError("unsupported", "PopTorch compiles steps of training and inference, and no sampler")
    return IpuSession(model, rule, precision, partition)


class TrainingStep(nn.Module):
    """The whole step as PopTorch wants it: tensors in, and the loss, where autograd begins, out."""

    def __init__(self, objective: Objective, shape: Nesting, single: bool) -> None:
        super().__init__()
        self.objective, self.shape, self.single = objective, shape, single

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Inputs and targets, one after the other -> a scalar."""
        inputs, targets = self.shape.nested(tensors)
        output, _ = self.objective(inputs)
        output = to_float32(output) if self.single else output
        return poptorch.identity_loss(self.objective.loss_of(output, targets), reduction="none")


class InferenceStep(nn.Module):
    """The network alone."""

    def __init__(self, objective: Objective, shape: Nesting) -> None:
        super().__init__()
        self.objective, self.shape = objective, shape

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Inputs, one after the other -> the output."""
        inputs, _ = self.shape.nested(tensors)
        return self.objective(inputs)[0]


class IpuSession(SynchronousSession):
    """Executors for training and for inference over one model; the one that is asked has the IPUs.

    A call returns when its output is on the host.
    """

    def __init__(self, model: Objective, rule: OptimizerRule, precision: str, partition: BatchPartition | None) -> None:
        self.half = precision == "fp16"
        self.model = without_sdpa(model.half() if self.half else model)
        self.rule, self.partition = rule, partition or WHOLE_BATCH
        self.training: Any = None
        self.inference: Any = None
        self.samples = 0  # of a call of inference, whose shape is compiled
        self.lock = threading.Lock()  # an executor answers one call at a time
        require_ipus(self.partition.devices)
        mark_stages(self.model, self.partition.stages)
        how = f"compiled by PopTorch {poptorch.__version__}, {self.partition.strategy or 'one stage'}"
        how += ", half partials, stochastic rounding in training" if self.half else ""
        how += "".join(f", {name} is set" for name in TELLING if name in os.environ)
        self.facts = DeviceFacts(
            kind="ipu",
            vendor="Graphcore",
            name=None if on_ipu_model() else chip_name(poptorch.ipuHardwareVersion()),
            devices=self.partition.devices,
            granularity="package",
            memory_mib=None,
            ranks=1,
            replicas=self.partition.replicas,
            execution=how,
            simulated=on_ipu_model() or bool(getattr(poptorch, "SIMULATED", False)),
        )

    def mark(self) -> float:
        """Now, when training has the IPUs back from an evaluation: to load it again is no part of the next step."""
        if self.training is not None:
            with compilation():
                self.attach(self.training, self.inference)
        return super().mark()

    def to_device(self, batch: Batch) -> Batch:
        """The batch as it is, its numbers in the run's precision: PopTorch sends it with each call."""
        return batch._replace(inputs=self.to_precision(batch.inputs))

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward and update, as often as a call has iterations, and the mean loss of all micro-batches."""
        batch = self.to_device(batch)
        with compilation():
            executor = self.training_executor(batch)
            losses = executor(*as_tuple(batch.inputs), *as_tuple(batch.targets))
        updates = self.partition.device_iterations
        return StepReport(samples=batch.samples, updates=updates, loss=losses.float().mean().item)

    def infer(self, batch: Batch) -> StepReport:
        """Forward in evaluation mode."""
        self.run_inference(self.to_device(batch))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> Judged:
        """Forward in evaluation mode; the loss is the host's to compute, of as many samples as there are."""
        output = to_float32(self.run_inference(self.to_device(batch)))
        return evaluation_result(batch, output, self.model.loss_of(output, batch.targets))

    def infer_request(self, batch: Batch) -> Answer:
        """Forward in evaluation mode; the executor itself counts the parts of its time. Threads take turns."""
        placed = self.to_device(batch)
        with self.lock:
            output = self.run_inference(placed)
            parts = self.inference.getHostIpuLatency, self.inference.getComputeLatency, self.inference.getIpuHostLatency
            sent, computed, fetched = (ask()[2] for ask in parts)  # least, most, mean
        return Answer(to_host(output), sent, computed, fetched)

    def begin(self, *_: object) -> Any:
        """Raises RunError (`unsupported`)."""
        raise RunError("unsupported", "texts are not continued on IPUs: PopTorch compiles one shape, and a text grows")

    def iterate(self, state: Any) -> Any:
        """There is no state."""
        raise NotImplementedError

    def chain_sample(self, state: Any) -> Draw:
        """There is no state."""
        raise NotImplementedError

    def weights(self) -> Mapping[str, np.ndarray]:
        """The parameters, fetched from the IPUs."""
        if self.training is not None and self.training.isAttachedToDevice():  # else they came when it was detached
            self.training.copyWeightsToHost()
        return {name: weight.astype(np.float32) for name, weight in weights(self.model).items()}

    def usage(self) -> Usage:
        """Nothing that PopTorch counts."""
        return Usage.unknown(UNCOUNTED)

    def conditions(self) -> DeviceConditions:
        """As the SDK's library tells them."""
        return DeviceConditions(dict(gcipuinfo.conditions()), None)

    def close(self) -> None:
        """Let go of the IPUs."""
        for executor in filter(None, (self.training, self.inference)):
            executor.destroy()
        del self.model, self.training, self.inference

    def training_executor(self, batch: Batch) -> Any:
        """The executor of training, with the IPUs."""
        if self.training is None:
            step = TrainingStep(self.model, Nesting(batch.inputs, batch.targets), self.half).train()
            rule = optimizer(step, self.rule, self.half)
            options = self.options(batch.samples, training=True)
            self.training = poptorch.trainingModel(step, options=options, optimizer=rule)
        self.attach(self.training, self.inference)
        return self.training

    def run_inference(self, batch: Batch) -> Any:
        """The output for a batch. Where it is smaller than those before, its last sample is repeated and left out."""
        if self.inference is None:
            partition = self.partition
            together = (partition.micro_batch or batch.samples) * partition.replicas
            most = max(batch.samples, together * partition.accumulation)  # a first batch may lack what does not read
            self.samples = -(-most // together) * together
            network = InferenceStep(self.model, Nesting(batch.inputs, None)).eval()
            self.inference = poptorch.inferenceModel(network, options=self.options(self.samples, training=False))
        with compilation():
            self.attach(self.inference, self.training)
            output = self.inference(*(pad_batch(tensor, self.samples) for tensor in as_tuple(batch.inputs)))
        return first_samples(output, batch.samples)

    def attach(self, wanted: Any, other: Any) -> None:
        """Give the IPUs to an executor, and it the weights that the other one left."""
        if other is not None and other.isCompiled() and other.isAttachedToDevice():
            other.detachFromDevice()  # which brings the weights to the host
        if wanted.isCompiled() and not wanted.isAttachedToDevice():
            wanted.attachToDevice()
            wanted.copyWeightsToDevice()

    def options(self, samples: int, training: bool) -> Any:
        """What PopTorch is told of a batch of so many samples."""
        partition = self.partition
        options = poptorch.Options()
        options.Distributed.disable()  # else mpirun's variables make one run of what are several
        options.randomSeed(torch.initial_seed())  # the run's, which the model was built by; else it is the clock's
        options.replicationFactor(partition.replicas)
        options.outputMode(poptorch.OutputMode.All)
        if training:
            options.deviceIterations(partition.device_iterations)
            options.Training.gradientAccumulation(partition.accumulation)
            options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
        else:
            options.deviceIterations(samples // ((partition.micro_batch or samples) * partition.replicas))
        if self.half:
            options.Precision.setPartialsType(torch.float16)
            options.Precision.enableStochasticRounding(training)
        if partition.strategy:
            options.setExecutionStrategy(strategy(partition))
        return options

    def to_precision(self, tensors: Any) -> Any:
        """Numbers in the run's precision; what counts stays."""
        if isinstance(tensors, tuple):
            return tuple(map(self.to_precision, tensors))
        return tensors.half() if self.half and tensors.is_floating_point() else tensors


def chip_name(version: int) -> str | None:
    """Of the IPUs, by the number of their architecture."""
    return (gcipuinfo.chip() or OF_SECOND) if version == SECOND else ARCHITECTURES.get(version)


def require_ipus(count: int) -> None:
    """Raise RunError (`no_device`) where there are not so many."""
    if not (on_ipu_model() or poptorch.ipuHardwareIsAvailable(count)):
        raise RunError("no_device", f"{count} IPUs are wanted, and PopTorch finds no partition of that size")


def mark_stages(model: Objective, stages: int) -> None:
    """Mark where each stage begins: the layers are shared out evenly, in their order. A strategy may say other IPUs."""
    if stages == 1:
        return
    marks = stage_boundaries(model.network)
    if len(marks) < stages:
        raise RunError("unsupported", f"--stages {stages}: this model can be cut into {len(marks)}")
    poptorch.BeginBlock(model.network, user_id=stage_name(0), ipu_id=0)
    for stage in range(1, stages):
        poptorch.BeginBlock(marks[stage * len(marks) // stages], user_id=stage_name(stage), ipu_id=stage)


def stage_name(stage: int) -> str:
    """The name of a stage's layers."""
    return f"stage{stage}"


def strategy(partition: BatchPartition) -> Any:
    """How the stages take turns."""
    if partition.strategy == "phased":
        stages = [poptorch.Stage(stage_name(stage)).ipu(0) for stage in range(partition.stages)]
        return poptorch.SerialPhasedExecution(*map(poptorch.Phase, stages))
    kinds = {"pipelined": poptorch.PipelinedExecution, "sharded": poptorch.ShardedExecution}
    return kinds[str(partition.strategy)](poptorch.AutoStage.SameAsIpu)


def optimizer(model: nn.Module, rule: OptimizerRule, half: bool) -> Any:
    """The optimizer that a rule names, by PopTorch's own. Raises RunError (`unsupported`) for what it cannot do."""
    groups, settings = parameter_groups(model, rule), rule.settings
    chosen: dict[str, Any] = {"lr": rule.learning_rate, "loss_scaling": LOSS_SCALING if half else 1.0}
    if rule.gradient_norm is not None:
        chosen["max_grad_norm"] = rule.gradient_norm
    if rule.name == "sgd":
        momentum = {"momentum": settings["momentum"], "nesterov": settings["nesterov"]}
        return poptorch.optim.SGD(groups, use_combined_accum=False, **momentum, **chosen)
    if rule.name == "rmsprop":
        own = {"alpha": settings["smoothing"], "eps": settings["epsilon"], "momentum": settings["momentum"]}
        return poptorch.optim.RMSprop(groups, use_tf_variant=False, **own, **chosen)
    kinds = {"adam": poptorch.optim.Adam, "adamw": poptorch.optim.AdamW}
    if rule.name not in kinds:
        raise RunError("unsupported", f"{rule.name} on ipu: PopTorch's does not limit the norm of gradients")
    return kinds[rule.name](groups, betas=tuple(settings["betas"]), eps=settings["epsilon"], **chosen)


@contextlib.contextmanager
def compilation() -> Iterator[None]:
    """For calls that may compile. Raises RunError: `out_of_memory` where a model is too large, `no_device` where others
    have the IPUs, or `compile_failure`. Hardware that fails is PopTorch's error as it is."""
    try:
        yield
    except poptorch.Error as error:
        text = str(error)
        state = next((state for words, state in REFUSALS.items() if words in text.lower()), None)
        if state is None and isinstance(error, (poptorch.RecoverableError, poptorch.UnrecoverableError)):
            raise
        raise RunError(state or "compile_failure", text[:1000]) from error
