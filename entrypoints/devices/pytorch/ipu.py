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

import contextlib
import functools
import os
import threading
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from entrypoints.contract.session import (
    Answer,
    Batch,
    BatchPartition,
    ChainSample,
    DeviceConditions,
    DeviceFacts,
    EvaluationResult,
    FirstStep,
    OptimizerRule,
    Rule,
    StepReport,
    Usage,
)
from entrypoints.devices import executables
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
from entrypoints.devices.pytorch.shared.transfer import normalised
from entrypoints.devices.pytorch.strategies import ipu_stages
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.metering.meters import gcipuinfo
from entrypoints.workloads.pytorch.build import Objective, tied_head, weights, without_sdpa
from entrypoints.workloads.pytorch.optimizers import parameter_groups

PRECISIONS = ("fp32", "fp16")  # PopTorch makes fp16 of bf16
MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")  # environment variables that ask for a model of an IPU
# Environment variables that the result records: options of PopTorch and of Poplar; and that of kept executables.
TELLING = ("POPTORCH_DEFAULT_OPTIONS", "POPLAR_ENGINE_OPTIONS")
ARCHITECTURES = {1: "GC2", 21: "C600"}
SECOND, OF_SECOND = 2, "GC200 or Bow"
CACHE = "POPTORCH_CACHE_DIR"
PIECE = 128  # tokens of a text whose loss is computed at once, as in Graphcore's GPT-2
PREFETCHED = 3  # batches that wait on the host, as in Graphcore's networks for images
RECOMPUTE_ALL = 4  # popart.RecomputationType.RecomputeAll: everything but what is marked as kept
# Patterns of PopART for a head with the weights of the embedding, as in Graphcore's GPT-2: one layout, one gradient.
TIED = {"TiedGather": True, "TiedGatherAccumulate": True}
LOSS_SCALING = 128.0  # in half precision, so that small gradients do not vanish; PopTorch undoes it
WHOLE_BATCH = BatchPartition(0)  # each batch in one piece
UNCOUNTED = "PopTorch does not report it"
# Texts of PopTorch's errors, in lower case, and their states. Busy IPUs count as available until used.
REFUSALS = {"out of memory": "out_of_memory", "failed to acquire": "no_device"}


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
    if not isinstance(rule, OptimizerRule):
        raise RunError("unsupported", "PopTorch compiles steps of training and inference, and no sampler")
    return IpuSession(model, rule, precision, partition, instances=group.place.world if group else 1)


class TrainingStep(nn.Module):
    """A whole training step in PopTorch's form: a module from tensors to the loss, where autograd begins."""

    def __init__(self, objective: Objective, shape: Nesting, single: bool, overlapped: bool = False) -> None:
        super().__init__()
        self.objective, self.shape, self.single, self.overlapped = objective, shape, single, overlapped

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Map inputs and targets, one after the other, to a scalar."""
        inputs, targets = self.shape.nested(overlapped_inputs(tensors) if self.overlapped else tensors)
        output, _ = self.objective(inputs)
        loss = poptorch.identity_loss(self.mean_loss(output, targets), reduction="none")
        return overlapped_output(loss) if self.overlapped else loss

    def mean_loss(self, output: Any, targets: Any) -> torch.Tensor:
        """Return the mean loss; of many tokens as the sum of that of pieces, so that no copy of all logits is made."""
        pieces = zip(*(tensor.split(PIECE, 1) for tensor in (output, targets))) if by_token(output, targets) else None
        if pieces is None:
            return self.objective.loss_of(to_float32(output) if self.single else output, targets)
        shares = [self.share_of_loss(piece, expected, output.shape[1]) for piece, expected in pieces]
        return torch.stack(shares).sum()

    def share_of_loss(self, output: torch.Tensor, targets: torch.Tensor, length: int) -> torch.Tensor:
        """Return what a piece of texts of `length` tokens adds to the mean loss."""
        loss = self.objective.loss_of(to_float32(output) if self.single else output, targets)
        return loss * (output.shape[1] / length)


class InferenceStep(nn.Module):
    """The network alone, in PopTorch's form."""

    def __init__(self, objective: Objective, shape: Nesting, overlapped: bool = False) -> None:
        super().__init__()
        self.objective, self.shape, self.overlapped = objective, shape, overlapped

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Map inputs, one after the other, to the output."""
        inputs, _ = self.shape.nested(overlapped_inputs(tensors) if self.overlapped else tensors)
        output = self.objective(inputs)[0]
        return overlapped_output(output) if self.overlapped else output


def by_token(output: Any, targets: Any) -> bool:
    """Return whether the loss is a mean over tokens, in texts of more than one piece, whose logits are large."""
    one_each = isinstance(output, torch.Tensor) and isinstance(targets, torch.Tensor) and output.dim() == 3
    return one_each and output.shape[:2] == targets.shape and output.shape[1] > PIECE


def overlapped_inputs(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return inputs that are sent while the call before is computed."""
    mode = poptorch.OverlapMode.OverlapDeviceIterationLoop
    return [poptorch.set_overlap_for_input(tensor, mode) for tensor in tensors]


def overlapped_output(output: Any) -> Any:
    """Return outputs that are fetched while the next ones are computed."""
    return poptorch.set_overlap_for_output(output, poptorch.OverlapMode.OverlapDeviceIterationLoop)


class IpuSession(SynchronousSession):
    """Executors for training and for inference over one model; the one in use has the IPUs.

    A call returns when its output is on the host.
    """

    def __init__(
        self,
        model: Objective,
        rule: OptimizerRule,
        precision: str,
        partition: BatchPartition | None,
        instances: int = 1,
    ) -> None:
        self.half, self.instances = precision == "fp16", instances
        self.model = without_sdpa(model.half() if self.half else model)
        self.rule, self.partition = rule, partition or WHOLE_BATCH
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

    def iterate(self, state: Any) -> Any:
        """Raise NotImplementedError: there is no state."""
        raise NotImplementedError

    def continued(self, batch: Batch, tokens: object) -> Any:
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
        partition = self.partition
        options = self.own_options()
        options.randomSeed(torch.initial_seed())  # the run's seed, which built the model; the default is the clock
        options.outputMode(poptorch.OutputMode.All)
        if training:
            options.deviceIterations(partition.device_iterations)
            options.Training.gradientAccumulation(partition.accumulation)
            options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Mean)
        else:
            at_once = partition.micro_batch * partition.replicas
            options.deviceIterations(samples // at_once if at_once else 1)
        if self.half:
            options.Precision.setPartialsType(torch.float16)
            options.Precision.enableStochasticRounding(training)
        if partition.strategy:
            options.setExecutionStrategy(ipu_stages.strategy(self.model, partition))
            if tied_head(self.model.network) is not None:
                options._Popart.setPatterns(TIED)
        self.set_memory(options, training)
        return options

    def set_memory(self, options: Any, training: bool) -> None:
        """Set how much memory operations get, which tiles exchange data, and what is kept or stored elsewhere."""
        partition, memory = self.partition, self.partition.memory
        if memory.proportions:
            ipus = 1 if partition.strategy == "phased" else partition.stages
            shares = memory.proportions if len(memory.proportions) > 1 else [*memory.proportions] * ipus
            options.setAvailableMemoryProportion({f"IPU{number}": share for number, share in enumerate(shares)})
        if memory.io_tiles:
            options.TensorLocations.numIOTiles(memory.io_tiles)
            options._Popart.set("defaultPrefetchBufferingDepth", PREFETCHED)
            if not partition.strategy:  # a pipeline of one stage does not overlap them
                options.setExecutionStrategy(poptorch.ShardedExecution())
        if training and memory.states_off_chip:
            place = poptorch.TensorLocationSettings().useOnChipStorage(False)
            shared = partition.replicas > 1  # each replica then has a share of them
            options.TensorLocations.setOptimizerLocation(place.useReplicatedTensorSharding(shared))
        if training and memory.recomputed and partition.strategy != "pipelined":
            options._Popart.set("explicitRecomputation", True)
            options._Popart.set("autoRecomputation", RECOMPUTE_ALL)

    def own_options(self) -> Any:
        """Return PopTorch's options with the replicas of this process, alone or as an instance among others."""
        if self.instances > 1:
            return instance_options(self.partition)
        options = poptorch.Options()
        options.Distributed.disable()  # otherwise mpirun's variables join separate runs into one
        options.replicationFactor(self.partition.replicas)
        return options

    def to_precision(self, tensors: Any) -> Any:
        """Return floating-point tensors in the run's precision; leave integers unchanged."""
        if isinstance(tensors, tuple):
            return tuple(map(self.to_precision, tensors))
        return tensors.half() if self.half and tensors.is_floating_point() else tensors


def instance_options(partition: BatchPartition) -> Any:
    """Return PopTorch's options of an instance. Not every SDK has popdist, so it is imported late."""
    from entrypoints.devices.pytorch.strategies import instances

    return instances.options(partition)


def local_replicas() -> int:
    """Return the replicas of this instance."""
    from entrypoints.devices.pytorch.strategies import instances

    return instances.local_replicas()


def chip_name(version: int) -> str | None:
    """Return the name of the IPUs by the number of their architecture."""
    return (gcipuinfo.chip() or OF_SECOND) if version == SECOND else ARCHITECTURES.get(version)


def require_ipus(count: int) -> None:
    """Raise RunError (`no_device`) if there are fewer than `count` IPUs."""
    if not (on_ipu_model() or poptorch.ipuHardwareIsAvailable(count)):
        raise RunError("no_device", f"{count} IPUs are wanted, and PopTorch finds no partition of that size")


def optimizer(model: nn.Module, rule: OptimizerRule, half: bool) -> Any:
    """Return PopTorch's optimizer for a rule. Raises RunError (`unsupported`) for what it cannot do."""
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
    """Translate errors of calls that may compile.

    Raises RunError: `out_of_memory` if the model is too large, `no_device` if others have the IPUs, or
    `compile_failure`. Hardware failures remain PopTorch's errors.
    """
    try:
        yield
    except poptorch.Error as error:
        text = str(error)
        state = next((state for words, state in REFUSALS.items() if words in text.lower()), None)
        if state is None and isinstance(error, (poptorch.RecoverableError, poptorch.UnrecoverableError)):
            raise
        raise RunError(state or "compile_failure", text[:1000]) from error
