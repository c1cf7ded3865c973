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
    ChainSample,
    DeviceConditions,
    DeviceFacts,
    Division,
    EvaluationResult,
    OptimizerRule,
    Rule,
    StepReport,
    Usage,
)
from entrypoints.devices.host_session import Waiting
from entrypoints.devices.pytorch.shared.tensors import Nesting, filled, first, flat, in_single, judged, on_host
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.pytorch.build import Objective, cuts, plain_attention, weights
from entrypoints.workloads.pytorch.optimizers import parameter_groups

PRECISIONS = ("fp32", "fp16")  # PopTorch makes fp16 of bf16
MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")  # environment: compute on a model of an IPU
# Environment: executables that are compiled already, options of PopTorch's and Poplar's.
TELLING = ("POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS", "POPLAR_ENGINE_OPTIONS")
ARCHITECTURES = {1: "GC2", 21: "C600"}
SECOND, OF_SECOND = 2, "GC200 or Bow"
LOSS_SCALING = 128.0  # in half precision, else small gradients vanish; PopTorch takes it off again
AT_ONCE = Division(0)  # whatever a batch is
UNCOUNTED = "PopTorch does not tell"
# What PopTorch says, in small letters, and the state that it means; busy IPUs count as available until they are wanted.
REFUSALS = {"out of memory": "out_of_memory", "failed to acquire": "no_device"}


def modelled() -> bool:
    """Whether PopTorch was told to compute on a model of an IPU."""
    return any(os.environ.get(name, "0") != "0" for name in MODELS)


def libraries() -> dict[str, str | None]:
    """The version of PopTorch, which is that of the SDK."""
    return {"poptorch": poptorch.__version__}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set the threads of the host's own part.

    Raises RunError: `no_device` where there is no IPU, `unsupported` for a precision that it has not.
    """
    if not (modelled() or poptorch.ipuHardwareIsAvailable()):
        raise RunError("no_device", "PopTorch finds no IPU: are IPUOF_CONFIG_PATH or IPUOF_VIPU_API_HOST set?")
    require_precision(precision, PRECISIONS, "ipu")
    compute_on(threads)


def free_mib() -> None:
    """Nobody knows: memory is given out when a model is compiled."""


def open_session(
    model: Objective, rule: Rule, precision: str, compiled: bool = False, division: Division | None = None
) -> IpuSession:
    """A session over `model`, which it takes over.

    Raises RunError (`unsupported`) for a sampler, for what PopTorch's optimizers cannot do, for too few IPUs.
    """
    if compiled:
        raise RunError("unsupported", "--compile: PopTorch compiles every model by itself. Leave it out")
    if not isinstance(rule, OptimizerRule):
        raise RunError("unsupported", "PopTorch compiles steps of training and inference, and no sampler")
    return IpuSession(model, rule, precision, division)


class Trained(nn.Module):
    """The whole step as PopTorch wants it: tensors in, and the loss, where autograd begins, out."""

    def __init__(self, objective: Objective, shape: Nesting, single: bool) -> None:
        super().__init__()
        self.objective, self.shape, self.single = objective, shape, single

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Inputs and targets, one after the other -> a scalar."""
        inputs, targets = self.shape.nested(tensors)
        output, _ = self.objective(inputs)
        output = in_single(output) if self.single else output
        return poptorch.identity_loss(self.objective.loss_of(output, targets), reduction="none")


class Applied(nn.Module):
    """The network alone."""

    def __init__(self, objective: Objective, shape: Nesting) -> None:
        super().__init__()
        self.objective, self.shape = objective, shape

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Inputs, one after the other -> the output."""
        inputs, _ = self.shape.nested(tensors)
        return self.objective(inputs)[0]


class IpuSession(Waiting):
    """Executors for training and for inference over one model; the one that is asked has the IPUs.

    A call returns when its output is on the host.
    """

    def __init__(self, model: Objective, rule: OptimizerRule, precision: str, division: Division | None) -> None:
        self.half = precision == "fp16"
        self.model = plain_attention(model.half() if self.half else model)
        self.rule, self.division = rule, division or AT_ONCE
        self.training: Any = None
        self.inference: Any = None
        self.samples = 0  # of a call of inference, whose shape is compiled
        self.turn = threading.Lock()  # an executor answers one call at a time
        require_ipus(self.division.devices)
        cut(self.model, self.division.stages)
        how = f"compiled by PopTorch {poptorch.__version__}, {self.division.strategy or 'one stage'}"
        how += ", half partials, stochastic rounding in training" if self.half else ""
        how += "".join(f", {name} is set" for name in TELLING if name in os.environ)
        self.facts = DeviceFacts(
            kind="ipu",
            vendor="Graphcore",
            name=None if modelled() else name(poptorch.ipuHardwareVersion()),
            devices=self.division.devices,
            granularity="package",
            memory_mib=None,
            ranks=1,
            replicas=self.division.replicas,
            execution=how,
            simulated=modelled() or bool(getattr(poptorch, "SIMULATED", False)),
        )

    def mark(self) -> float:
        """Now, when training has the IPUs back from an evaluation: to load it again is no part of the next step."""
        if self.training is not None:
            with compilation():
                self.take_turns(self.training, self.inference)
        return super().mark()

    def place(self, batch: Batch) -> Batch:
        """The batch as it is, its numbers in the run's precision: PopTorch sends it with each call."""
        return batch._replace(inputs=self.cast(batch.inputs))

    def train(self, batch: Batch) -> StepReport:
        """Forward, backward and update, as often as a call has iterations, and the mean loss of all micro-batches."""
        batch = self.place(batch)
        with compilation():
            executor = self.trainer(batch)
            losses = executor(*flat(batch.inputs), *flat(batch.targets))
        updates = self.division.device_iterations
        return StepReport(samples=batch.samples, updates=updates, loss=losses.float().mean().item)

    def infer(self, batch: Batch) -> StepReport:
        """Forward in evaluation mode."""
        self.applied(self.place(batch))
        return StepReport(samples=batch.samples, updates=0, loss=None)

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Forward in evaluation mode; the loss is the host's to compute, of as many samples as there are."""
        output = in_single(self.applied(self.place(batch)))
        return judged(batch, output, self.model.loss_of(output, batch.targets))

    def respond(self, batch: Batch) -> Answer:
        """Forward in evaluation mode; the executor itself counts the parts of its time. Threads take turns."""
        placed = self.place(batch)
        with self.turn:
            output = self.applied(placed)
            parts = self.inference.getHostIpuLatency, self.inference.getComputeLatency, self.inference.getIpuHostLatency
            sent, computed, fetched = (ask()[2] for ask in parts)  # least, most, mean
        return Answer(on_host(output), sent, computed, fetched)

    def begin(self, *_: object) -> Any:
        """Raises RunError (`unsupported`)."""
        raise RunError("unsupported", "texts are not continued on IPUs: PopTorch compiles one shape, and a text grows")

    def iterate(self, state: Any) -> Any:
        """There is no state."""
        raise NotImplementedError

    def draw(self, state: Any) -> ChainSample:
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

    def trainer(self, batch: Batch) -> Any:
        """The executor of training, with the IPUs."""
        if self.training is None:
            step = Trained(self.model, Nesting(batch.inputs, batch.targets), self.half).train()
            rule = optimizer(step, self.rule, self.half)
            options = self.options(batch.samples, training=True)
            self.training = poptorch.trainingModel(step, options=options, optimizer=rule)
        self.take_turns(self.training, self.inference)
        return self.training

    def applied(self, batch: Batch) -> Any:
        """The output for a batch. Where it is smaller than those before, its last sample is repeated and left out."""
        if self.inference is None:
            division = self.division
            together = (division.micro_batch or batch.samples) * division.replicas
            most = max(batch.samples, together * division.accumulation)  # a first batch may lack what does not read
            self.samples = -(-most // together) * together
            network = Applied(self.model, Nesting(batch.inputs, None)).eval()
            self.inference = poptorch.inferenceModel(network, options=self.options(self.samples, training=False))
        with compilation():
            self.take_turns(self.inference, self.training)
            output = self.inference(*(filled(tensor, self.samples) for tensor in flat(batch.inputs)))
        return first(output, batch.samples)

    def take_turns(self, wanted: Any, other: Any) -> None:
        """Give the IPUs to an executor, and it the weights that the other one left."""
        if other is not None and other.isCompiled() and other.isAttachedToDevice():
            other.detachFromDevice()  # which brings the weights to the host
        if wanted.isCompiled() and not wanted.isAttachedToDevice():
            wanted.attachToDevice()
            wanted.copyWeightsToDevice()

    def options(self, samples: int, training: bool) -> Any:
        """What PopTorch is told of a batch of so many samples."""
        division = self.division
        options = poptorch.Options()
        options.Distributed.disable()  # else mpirun's variables make one run of what are several
        options.randomSeed(torch.initial_seed())  # the run's, which the model was built by; else it is the clock's
        options.replicationFactor(division.replicas)
        options.outputMode(poptorch.OutputMode.All)
        if training:
            options.deviceIterations(division.device_iterations)
            options.Training.gradientAccumulation(division.accumulation)
            options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
        else:
            options.deviceIterations(samples // ((division.micro_batch or samples) * division.replicas))
        if self.half:
            options.Precision.setPartialsType(torch.float16)
            options.Precision.enableStochasticRounding(training)
        if division.strategy:
            options.setExecutionStrategy(strategy(division))
        return options

    def cast(self, tensors: Any) -> Any:
        """Numbers in the run's precision; what counts stays."""
        if isinstance(tensors, tuple):
            return tuple(map(self.cast, tensors))
        return tensors.half() if self.half and tensors.is_floating_point() else tensors


def name(version: int) -> str | None:
    """Of the IPUs, by the number of their architecture."""
    return (gcipuinfo.chip() or OF_SECOND) if version == SECOND else ARCHITECTURES.get(version)


def require_ipus(count: int) -> None:
    """Raise RunError (`no_device`) where there are not so many."""
    if not (modelled() or poptorch.ipuHardwareIsAvailable(count)):
        raise RunError("no_device", f"{count} IPUs are wanted, and PopTorch finds no partition of that size")


def cut(model: Objective, stages: int) -> None:
    """Mark where each stage begins: the layers are shared out evenly, in their order. A strategy may say other IPUs."""
    if stages == 1:
        return
    marks = cuts(model.network)
    if len(marks) < stages:
        raise RunError("unsupported", f"--stages {stages}: this model can be cut into {len(marks)}")
    poptorch.BeginBlock(model.network, user_id=block(0), ipu_id=0)
    for stage in range(1, stages):
        poptorch.BeginBlock(marks[stage * len(marks) // stages], user_id=block(stage), ipu_id=stage)


def block(stage: int) -> str:
    """The name of a stage's layers."""
    return f"stage{stage}"


def strategy(division: Division) -> Any:
    """How the stages take turns."""
    if division.strategy == "phased":
        stages = [poptorch.Stage(block(stage)).ipu(0) for stage in range(division.stages)]
        return poptorch.SerialPhasedExecution(*map(poptorch.Phase, stages))
    kinds = {"pipelined": poptorch.PipelinedExecution, "sharded": poptorch.ShardedExecution}
    return kinds[str(division.strategy)](poptorch.AutoStage.SameAsIpu)


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
