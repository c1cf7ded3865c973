"""A stand-in for PopTorch: the calls, argument names and defaults of `api.json`, and nothing else, on this host's CPU.

`POPTORCH_STAND_IN_SDK` (3.1 to 3.4) says which version it stands in for, `POPTORCH_STAND_IN_IPUS` how many IPUs there
are. An executor computes on a copy of the model, as an IPU has its own weights. Half precision is computed in single.
What `api.json` has and this file does not raises NotImplementedError: a test needs it first.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import inspect
import json
import os
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

SIMULATED = True
SDK = os.environ.get("POPTORCH_STAND_IN_SDK", "3.3")
API = json.loads((Path(__file__).parent / "api.json").read_text())
__version__ = f"{SDK}.0"
NAMES = {name: entry for name, entry in API["names"].items() if SDK in entry.get("sdks", [SDK])}
if SDK not in API["torch"]:
    raise ImportError(f"POPTORCH_STAND_IN_SDK={SDK}: it is one of {', '.join(API['torch'])}")
_GIVEN = {"True": True, "False": False, "None": None}


class Error(Exception):
    """What PopTorch raises."""


class RecoverableError(Error):
    """A device that may be used again."""


class UnrecoverableError(Error):
    """A device that may not."""


def bound(name, arguments, named):
    """Arguments by name, as the signature of a version has them. Raises TypeError as Python would."""
    entry = NAMES[name]
    parameters = [
        inspect.Parameter(
            parameter,
            getattr(inspect.Parameter, kind.upper()),
            default=_GIVEN.get(default[0], default[0]) if default else inspect.Parameter.empty,
        )
        for parameter, kind, *default in entry["parameters"]
    ]
    values = inspect.Signature(parameters).bind(*arguments, **named).arguments
    for parameter, kind in entry.get("types", {}).items():
        if parameter in values and type(values[parameter]).__name__ != kind:
            raise TypeError(f"{name}: {parameter} is of type {type(values[parameter]).__name__}, and not {kind}")
    return dict(values)


def versioned(name):
    """For what is written here: it has the signature of `api.json`, and is not there in a version that lacks it."""

    def wrap(function):
        if name not in NAMES:
            return None
        method = NAMES[name]["kind"] == "method"

        @functools.wraps(function)
        def called(*arguments, **named):
            bound(name, arguments[1:] if method else arguments, named)
            return function(*arguments, **named)

        return called

    return wrap


class Recorder:
    """An object of options: every method that `api.json` has notes its arguments and returns the object."""

    def __init__(self, name, owner=None):
        self.__dict__.update(name=name, owner=owner, values={}, frozen=False)

    def __getattr__(self, attribute):
        name = f"{self.name}.{attribute}"
        if name not in NAMES:
            raise AttributeError(f"PopTorch {SDK} has no {name}")
        return functools.partial(self.note, attribute, name)

    def __setattr__(self, attribute, value):
        raise AttributeError(f"{self.name}.{attribute} is no attribute that may be set")

    def note(self, attribute, name, *arguments, **named):
        if (self.owner or self).frozen:
            raise AttributeError(f"{name}: the options are frozen since they were given away; clone() them")
        values = bound(name, arguments, named)
        wanted, error = VALUES.get(attribute, (None, None))
        if wanted and not wanted(next(iter(values.values()))):
            raise error(f"{name}: it takes no {values}")
        self.values[attribute] = values
        return self

    def value(self, attribute, default):
        """The only argument that a method was called with."""
        return next(iter(self.values[attribute].values())) if attribute in self.values else default


# What a method takes, and what it raises for anything else.
VALUES: dict[str, tuple[Any, Any]] = {
    "setPartialsType": (lambda kind: kind in (torch.float32, torch.float16), ValueError),
    "setExecutionStrategy": (
        lambda strategy: isinstance(strategy, (PipelinedExecution, SerialPhasedExecution)),
        AssertionError,
    ),
    "accumulationAndReplicationReductionType": (lambda kind: kind.name in ("Sum", "Mean"), ValueError),
    "setAvailableMemoryProportion": (
        lambda shares: all(key[:3] == "IPU" and key[3:].isdigit() and 0 <= shares[key] <= 1 for key in shares),
        AssertionError,
    ),
    "numIOTiles": (lambda count: 32 <= count <= 192 and count % 2 == 0, AssertionError),
    "setOptimizerLocation": (lambda place: isinstance(place, TensorLocationSettings), AssertionError),
}


class TensorLocationSettings(Recorder):
    """As poptorch.TensorLocationSettings."""

    def __init__(self, **named):
        super().__init__("poptorch.TensorLocationSettings")
        bound("poptorch.TensorLocationSettings", (), named)


class Options(Recorder):
    """As poptorch.Options."""

    def __init__(self, *arguments, **named):
        super().__init__("poptorch.Options")
        bound("poptorch.Options", arguments, named)
        parts = ("Precision", "Training", "Distributed", "TensorLocations", "_Popart")
        self.__dict__.update({part: Recorder(f"poptorch.Options.{part}", self) for part in parts})

    def freeze(self):
        """As it is once a DataLoader or a model has them."""
        self.__dict__["frozen"] = True
        return self

    ipus_per_replica: Any = None  # of an instance, which popdist says

    def reduce(self, model):
        """Average gradients over instances, if there are several."""

    @property
    def strategy(self):
        """The execution strategy."""
        return self.value("setExecutionStrategy", None) or PipelinedExecution()


def _enumerations():
    for name, entry in API["enums"].items():
        if SDK in entry.get("sdks", [SDK]) and entry["members"]:
            short = name.rpartition(".")[2]
            yield short, enum.Enum(short, entry["members"])


globals().update(_enumerations())


class PipelinedExecution:
    """Stages that work on different micro-batches."""

    def __init__(self, *args):
        bound("poptorch.PipelinedExecution", args, {})
        self.stages = [] if len(args) == 1 and isinstance(args[0], globals()["AutoStage"]) else args
        if not all(isinstance(stage, Stage) for stage in self.stages):
            raise NotImplementedError("the stand-in has stages as poptorch.Stage, or numbered as their IPUs")
        self.by_block = {block: place for place, stage in enumerate(self.stages) for block in stage.block_ids}
        if len(self.by_block) != sum(len(stage.block_ids) for stage in self.stages):
            raise AssertionError("a block is associated with more than one stage")

    def number(self, block, ipu):
        """The stage of a block that begins: its place among those that are named, or the number of its IPU."""
        if self.stages and block not in self.by_block:
            raise AssertionError(f"Unknown Block '{block}' list of expected Blocks: {list(self.by_block)}")
        return self.by_block[block] if self.stages else ipu

    def count(self, ipus):
        """How many stages there are."""
        return len(self.stages) or ipus


class ShardedExecution(PipelinedExecution):
    """Stages one after the other."""


class Stage:
    """Blocks that lie on one IPU: that of the blocks, unless it is named."""

    def __init__(self, *block_ids):
        if not all(isinstance(block, str) for block in block_ids):
            raise TypeError("poptorch.Stage takes names of blocks")
        self.block_ids, self.on = block_ids, None

    @versioned("poptorch.Stage.ipu")
    def ipu(self, ipu):
        self.on = ipu
        return self


class Phase:
    """Stages side by side."""

    def __init__(self, *arg):
        self.stages = arg


class SerialPhasedExecution:
    """Phases one after the other."""

    def __init__(self, *phases):
        if not phases or not all(isinstance(phase, Phase) for phase in phases):
            raise AssertionError("phases are given one by one")
        self.phases = phases

    def ipus(self, of_blocks):
        """All phases are on one IPU."""
        on = {
            of_blocks[stage.block_ids[0]] if stage.on is None else stage.on
            for phase in self.phases
            for stage in phase.stages
        }
        if on != {0}:
            raise Error(f"phases lie on IPUs {sorted(on)}: serial ones share one")
        return 1


class ParallelPhasedExecution(SerialPhasedExecution):
    """Phases on two groups of IPUs in turn."""


RUNNING: list[Any] = []  # names and IPUs of the blocks that began, in the order of one forward pass
KEPT: list[Any] = []  # shapes of what is not computed again in backward
OVERLAPPED: list[str] = []  # that inputs and outputs travel while others are computed


@versioned("poptorch.BeginBlock")
def BeginBlock(layer_to_call, user_id=None, ipu_id=None):
    if hasattr(layer_to_call, "_block"):
        raise Error("the module belongs to a block already")
    layer_to_call._block = (user_id, ipu_id)
    layer_to_call.register_forward_pre_hook(_begun)
    return layer_to_call


def _begun(layer, _):
    RUNNING.append(layer._block)


@versioned("poptorch.recomputationCheckpoint")
def recomputationCheckpoint(*tensors):
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return type(tensors[0])(map(recomputationCheckpoint, tensors[0]))
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ValueError("All inputs must be tensors")
    KEPT.extend(tensor.shape for tensor in tensors)
    return tensors[0] if len(tensors) == 1 else tensors


@versioned("poptorch.set_overlap_for_input")
def set_overlap_for_input(input_tensors, mode):
    OVERLAPPED.append(f"input {mode.name}")
    return input_tensors


@versioned("poptorch.set_overlap_for_output")
def set_overlap_for_output(output_tensors, mode):
    OVERLAPPED.append(f"output {mode.name}")
    return output_tensors


class Places:
    """On which IPUs the weights of a model are read, as its blocks say."""

    def __init__(self, names):
        self.names, self.ipus = names, {}

    def __call__(self, layer, _):
        for weight in layer._parameters.values():
            if weight is not None and RUNNING:
                self.ipus.setdefault(id(weight), set()).add(RUNNING[-1][1])

    @contextlib.contextmanager
    def noted(self):
        RUNNING.clear()
        hook = torch.nn.modules.module.register_module_forward_pre_hook(self)
        try:
            yield
        finally:
            hook.remove()

    def require_one_each(self):
        """As PopART's pipeline.cpp has it."""
        for weight, ipus in self.ipus.items():
            if len(ipus) > 1:
                raise Error(
                    f"Can not copy variable tensor {self.names.get(weight)} between virtual graphs when pipelining. "
                    "All pipeline stages using this tensor should be on the same graph."
                )


@versioned("poptorch.identity_loss")
def identity_loss(x, reduction):
    if reduction not in ("sum", "mean", "none"):
        raise ValueError(f"reduction is {reduction!r}")
    loss = x if reduction == "none" else getattr(x, reduction)()
    loss._begins_autograd = True
    return loss


class Fleet:
    """The IPUs of this host, and who holds how many. `count` are there, `busy` are held by others."""

    def __init__(self):
        self.count, self.busy, self.held = int(os.environ.get("POPTORCH_STAND_IN_IPUS", "16")), 0, {}

    def take(self, executor, count):
        if count & (count - 1):
            raise Error(f"{count} IPUs are no power of two")
        if sum(self.held.values()) + self.busy + count > self.count:
            raise Error(f"Failed to acquire {count} IPU(s)")
        self.held[id(executor)] = count

    def give_back(self, executor):
        self.held.pop(id(executor), None)


FLEET = Fleet()
WRAPPED: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()  # models that an executor of training has


@versioned("poptorch.ipuHardwareIsAvailable")
def ipuHardwareIsAvailable(num_ipus=1):
    modelled = os.environ.get("POPTORCH_IPU_MODEL", "0") != "0"
    return not modelled and num_ipus <= FLEET.count and not num_ipus & (num_ipus - 1)


@versioned("poptorch.ipuHardwareVersion")
def ipuHardwareVersion():
    if not ipuHardwareIsAvailable():
        raise AssertionError("no hardware is there")
    return 2


def _no_fused_attention(*_, **__):
    raise Error("scaled_dot_product_attention: no such operation")


class PoplarExecutor:
    """A model with weights of its own, as on an IPU."""

    def __init__(self, model, options, training, optimizer=None):
        self.user_model, self._options, self.training = model, options.freeze(), training
        self.user_optimizer = optimizer
        self.device_model: Any = None
        self.device_optimizer: Any = None
        self.shape: list[Any] | None = None
        self.seconds = [0.0, 0.0, 0.0]

    @property
    def ipus(self):
        """How many a copy of the model needs, by its blocks."""
        blocks = dict(layer._block for layer in self.user_model.modules() if hasattr(layer, "_block"))
        strategy = self._options.strategy
        if isinstance(strategy, SerialPhasedExecution):
            return strategy.ipus(blocks)
        return max([0, *(ipu for ipu in blocks.values() if ipu is not None)]) + 1

    @property
    def replicas(self):
        return self._options.value("replicationFactor", 1)

    @property
    def accumulation(self):
        return self._options.Training.value("gradientAccumulation", 1)

    @property
    def rounds(self):
        """Micro-batches of each replica in a call."""
        return self._options.value("deviceIterations", 1) * (self.accumulation if self.training else 1)

    def isCompiled(self):
        return self.device_model is not None

    def isAttachedToDevice(self):
        return self.isCompiled() and id(self) in FLEET.held

    @versioned("poptorch.PoplarExecutor.attachToDevice")
    def attachToDevice(self):
        if not self.isCompiled() or self.isAttachedToDevice():
            raise Error("not compiled, or attached already")
        FLEET.take(self, self.ipus * self.replicas)

    @versioned("poptorch.PoplarExecutor.detachFromDevice")
    def detachFromDevice(self):
        if not self.isAttachedToDevice():
            raise Error("not attached")
        if self.training:
            self.copyWeightsToHost()
        FLEET.give_back(self)

    @versioned("poptorch.PoplarExecutor.destroy")
    def destroy(self):
        FLEET.give_back(self)
        self.device_model = None
        WRAPPED.discard(self.user_model)

    @versioned("poptorch.PoplarExecutor.copyWeightsToHost")
    def copyWeightsToHost(self):
        if not self.isCompiled():
            raise Error("not compiled")
        self._copy(self.device_model, self.user_model)

    @versioned("poptorch.PoplarExecutor.copyWeightsToDevice")
    def copyWeightsToDevice(self):
        self._copy(self.user_model, self.device_model)

    @staticmethod
    def _copy(source, target):
        with torch.no_grad():
            for value, other in zip(source.state_dict().values(), target.state_dict().values()):
                other.copy_(value)

    @versioned("poptorch.PoplarExecutor.compile")
    def compile(self, *args):
        if self.isCompiled():
            return
        self._require_rounds()
        instance, disabled = self._options.ipus_per_replica, "disable" in self._options.Distributed.values
        if int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")) > 1 and not (instance or disabled):
            raise Error("the options make one run of all processes of mpirun")
        if instance and (disabled or instance != self.ipus):
            raise Error(f"an instance with {instance} IPUs for each replica has a model for {self.ipus}")
        FLEET.take(self, self.ipus * self.replicas)
        self.device_model, self.device_optimizer = copy.deepcopy((self.user_model, self.user_optimizer))
        self.device_model.float()
        self.shape = [(tensor.shape, tensor.dtype) for tensor in args]

    def _require_rounds(self):
        if not self.training and self.accumulation != 1:
            raise Error("inference accumulates no gradients")
        strategy, locations = self._options.strategy, self._options.TensorLocations.values
        pipelined = type(strategy) is PipelinedExecution
        if pipelined and "numIOTiles" in locations:
            raise Error("tiles for input and output are for sharded and phased execution")
        stages = strategy.count(self.ipus) if pipelined else 1
        given, needed = (self.accumulation, 2 * stages - 1) if self.training else (self.rounds, stages)
        if pipelined and given < needed:  # as PopART counts: stages of the way back too
            raise Error(f"a pipeline of {stages} stages is not filled by {given} micro-batches, but by {needed}")

    @versioned("poptorch.PoplarExecutor.__call__")
    def __call__(self, *args):
        self._require_inputs(args)
        self.compile(*args)
        if not self.isAttachedToDevice():
            raise Error("the executor is not attached to a device")
        if self.shape != [(tensor.shape, tensor.dtype) for tensor in args]:
            raise Error("inputs have another shape or type than those that were compiled for")
        pieces = [[_computed(piece) for piece in tensor.chunk(self.rounds * self.replicas)] for tensor in args]
        genuine = getattr(functional, "scaled_dot_product_attention", None)
        if genuine:
            functional.scaled_dot_product_attention = _no_fused_attention
        try:
            outputs = (self._train if self.training else self._infer)(list(zip(*pieces)))
        finally:
            if genuine:
                functional.scaled_dot_product_attention = genuine
        self.seconds = [seconds / self.rounds for seconds in (0.001, 0.01, 0.002)]
        return self._gathered(outputs)

    def _require_inputs(self, tensors):
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.requires_grad:
                raise Error("inputs are tensors of the host that need no gradient")
            if tensor.dtype == torch.bfloat16:
                raise Error("bfloat16 is no type of an IPU")
            if len(tensor) % (self.rounds * self.replicas):
                raise AssertionError(f"{len(tensor)} samples are not {self.rounds} x {self.replicas} micro-batches")

    def _train(self, micro_batches):
        per_update = self.accumulation * self.replicas
        losses = []
        for start in range(0, len(micro_batches), per_update):
            for position, tensors in enumerate(micro_batches[start : start + per_update]):
                others = position >= self.accumulation  # replicas, whose running means do not come back
                kept = [buffer.clone() for buffer in self.device_model.buffers()] if others else []
                loss = self._run(tensors)
                if not getattr(loss, "_begins_autograd", False):
                    raise Error("no loss is marked")
                (loss / per_update).backward()
                losses.append(loss.detach())
                for buffer, before in zip(self.device_model.buffers(), kept):
                    buffer.copy_(before)
            self._options.reduce(self.device_model)
            self.device_optimizer.update(self.device_model)
        return losses

    def _infer(self, micro_batches):
        with torch.no_grad():
            return [_typed(self._run(tensors), self.type) for tensors in micro_batches]

    def _run(self, tensors):
        """One forward pass, whose blocks have to follow each other as the strategy says."""
        KEPT.clear()
        OVERLAPPED.clear()
        places = Places({id(weight): name for name, weight in self.device_model.named_parameters()})
        with places.noted():
            output = self.device_model(*tensors)
        if not isinstance(self._options.strategy, SerialPhasedExecution):
            self._require_order()
            if type(self._options.strategy) is PipelinedExecution:
                places.require_one_each()
        return output

    @property
    def type(self):
        """Of the weights."""
        return next(self.user_model.parameters()).dtype

    def _require_order(self):
        strategy = self._options.strategy
        stages = [strategy.number(*block) for block in RUNNING]
        most = strategy.count(self.ipus)
        if sorted(stages) != stages or (self.ipus > 1 and [*dict.fromkeys(stages)] != list(range(most))):
            raise Error(f"stages ran as {stages} of {most}: a later one may not go back to an earlier one")

    def _gathered(self, outputs):
        if self._options.value("outputMode", None) is not globals()["OutputMode"].All:
            raise NotImplementedError("the stand-in gathers all outputs")
        if isinstance(outputs[0], tuple):
            return tuple(map(_together, zip(*outputs)))
        return _together(outputs)

    @versioned("poptorch.PoplarExecutor.getHostIpuLatency")
    def getHostIpuLatency(self):
        return _of_iterations(self.seconds[0])

    @versioned("poptorch.PoplarExecutor.getComputeLatency")
    def getComputeLatency(self):
        return _of_iterations(self.seconds[1])

    @versioned("poptorch.PoplarExecutor.getIpuHostLatency")
    def getIpuHostLatency(self):
        return _of_iterations(self.seconds[2])

    def __getattr__(self, attribute):
        name = f"poptorch.PoplarExecutor.{attribute}"
        if name in NAMES:
            raise NotImplementedError(f"the stand-in does not do {name}")
        raise AttributeError(f"PopTorch {SDK} has no {name}")


def _of_iterations(mean):
    """Least, most and mean over the iterations of the last call."""
    return (mean / 2, mean * 2, mean)


def _typed(output, kind):
    if isinstance(output, tuple):
        return tuple(_typed(part, kind) for part in output)
    return output.to(kind) if output.is_floating_point() else output


def _computed(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor


def _together(outputs):
    joined = torch.stack(list(outputs)) if outputs[0].dim() == 0 else torch.cat(list(outputs))
    return joined.int() if joined.dtype == torch.int64 else joined


@versioned("poptorch.trainingModel")
def trainingModel(model, options=None, optimizer=None):
    if model in WRAPPED:
        raise RuntimeError("the model is wrapped already")
    WRAPPED.add(model)
    return PoplarExecutor(model, options or Options(), True, optimizer)


@versioned("poptorch.inferenceModel")
def inferenceModel(model, options=None):
    if model.training:
        raise Error("the model is in training mode")
    return PoplarExecutor(model, options or Options(), False)


class DataLoader(torch.utils.data.DataLoader):
    """Freezes the options; of the rest, batches of one call."""

    def __init__(self, options, dataset, batch_size=1, **named):
        super().__init__(dataset, batch_size=batch_size, **named)
        options.freeze()


class optim:  # a module there
    """Optimizers: what PyTorch's compute, with the arguments of `api.json`, by name."""

    class _Optimizer:
        kind: Any = None

        def __init__(self, params, *positional, **named):
            name = f"poptorch.optim.{type(self).__name__}"
            if positional:
                raise TypeError(f"{name}: positions of arguments differ by version; give names")
            given = bound(name, (params,), named)
            own = inspect.signature(self.kind).parameters
            chosen = {key: value for key, value in given.items() if key in own and value is not None}
            self.largest = given.get("max_grad_norm")
            self.inner = self.kind(**chosen)

        def update(self, model):
            """One update by the gradients that are there."""
            if self.largest is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), self.largest)
            self.inner.step()
            self.inner.zero_grad()

    class SGD(_Optimizer):
        kind = torch.optim.SGD

    class Adam(_Optimizer):
        kind = torch.optim.Adam

    class AdamW(_Optimizer):
        kind = torch.optim.AdamW

    class RMSprop(_Optimizer):
        kind = torch.optim.RMSprop


def __getattr__(attribute):
    name = f"poptorch.{attribute}"
    if name in NAMES:
        raise NotImplementedError(f"the stand-in does not do {name}")
    raise AttributeError(f"PopTorch {SDK} has no {name}")
