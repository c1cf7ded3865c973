"""The interface between the measuring loop and hardware.

A device receives a model whose `forward(inputs, targets)` returns `(output, loss)` and a declarative optimizer
rule. It compiles forward, backward and update itself, since some vendors do the three in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Protocol, Sequence, Union

from entrypoints.contract.group import Place
from entrypoints.contract.points import LastLevelCache, Point

# What the vendors' management libraries report of a device; the result's schema has units and meanings.
DEVICE_CONDITIONS = (
    *("driver", "power_cap", "clock", "clock_max", "memory_clock", "performance_state", "temperature", "ecc"),
    *("throttling", "partitioning", "persistence", "memory_used", "other_processes"),
)


# How TorchInductor compiled a model, by its own counts: graphs that were captured, breaks between them, functions that
# were compiled again, CUDA graphs that were recorded, those that it did without; whether its cache had the code; and
# models for inference whose weights are constants of it.
COMPILATION_FACTS = (
    "graphs",
    "graph_breaks",
    "recompilations",
    "cuda_graphs",
    "cuda_graphs_skipped",
    "cache",
    "frozen",
)
# What computed: the kernels of attention, the arithmetic of matrix products, the allocator of the device's memory, what
# chooses among kernels by trying them, which convolutions were fused with what follows them, and what kernels of
# attention took when they were tried, and which linear layers were in FP8.
BACKEND_FACTS = (
    "attention",
    "matmul_precision",
    "allocator",
    "autotuning",
    "convolutions",
    "attention_trials",
    "float8",
)


@dataclass(frozen=True)
class OptimizerRule:
    """Name and hyper-parameters of an optimizer, for the device to build its own from."""

    name: str
    learning_rate: float
    weight_decay: float  # an L2 penalty added to the gradient, or subtracted from the weights if the name says so
    no_weight_decay_on: tuple[str, ...]
    gradient_norm: float | None  # largest allowed norm of all gradients together; None: no limit
    settings: Mapping[str, Any]  # other settings of the named optimizer, as on the card

    @classmethod
    def from_problem(cls, optimizer: Mapping[str, Any], batch_size: int) -> OptimizerRule:
        """Return the rule of a card's `problem.optimizer` at a global batch of `batch_size` samples."""
        settings = dict(optimizer)
        rate = settings.pop("learning_rate")
        return cls(
            name=settings.pop("name"),
            learning_rate=rate["value"] * (batch_size / rate["per_samples"] if rate["scaling"] == "linear" else 1.0),
            weight_decay=settings.pop("weight_decay"),
            no_weight_decay_on=tuple(settings.pop("no_weight_decay_on")),
            gradient_norm=settings.pop("gradient_norm", None),
            settings=settings,
        )


@dataclass(frozen=True)
class SamplerRule:
    """Name and hyper-parameters of a sampler, as in a card's `problem.sampler`."""

    name: str
    leapfrog_steps: int  # of one transition
    step_size: float  # at the start
    target_acceptance: float
    increment: float  # fraction by which a step grows that is accepted more often
    decrement: float  # fraction by which one shrinks that is accepted less often


@dataclass(frozen=True)
class PointRule:
    """Name of the operation that a micro-benchmark repeats."""

    operation: str


@dataclass(frozen=True)
class InferenceRule:
    """That a model only answers: nothing ever changes its weights, and there is no optimizer."""


Rule = Union[OptimizerRule, SamplerRule, PointRule, InferenceRule]

# Of losses in fp16. PyTorch's own start, 2^16, overflows in the first updates of lstm and resnet50 on an H200, which
# are skipped then: the timed steps would have less to do than their number says.
FIRST_SCALE = 2.0**10
PREFETCHED = 3  # batches for an IPU that wait on the host, as in Graphcore's networks for images


class IpuMemory(NamedTuple):
    """How a model uses the memory of IPUs."""

    proportions: Sequence[float] | None = None  # of an IPU's memory, for what operations need while they run: of each
    io_tiles: int | None = None  # of an IPU that only exchange data with the host; None: all compute
    recomputed: bool = False  # whether blocks keep only their output for backward
    states_off_chip: bool = False  # whether the optimizer's states are in the streaming memory beside the IPUs


class BatchPartition(NamedTuple):
    """How the samples of a call are divided. The product of the first four numbers is the whole."""

    micro_batch: int  # samples that are computed at once
    accumulation: int = 1  # micro-batches whose gradients make one update
    replicas: int = 1  # copies of the model, each with different samples
    device_iterations: int = 1  # in one call: updates, or micro-batches of inference
    stages: int = 1  # parts of a copy of the model
    strategy: str | None = None  # one of choices.STRATEGIES, if there are several stages
    memory: IpuMemory = IpuMemory()
    tensor: int = 1  # devices that divide each block

    @property
    def samples(self) -> int:
        """Samples of a call."""
        return self.micro_batch * self.accumulation * self.replicas * self.device_iterations

    @property
    def devices(self) -> int:
        """Devices that all replicas use: one for each part of a stage; phases run in turn on one device."""
        return self.replicas * self.tensor * (1 if self.strategy == "phased" else self.stages)


def rule_of(problem: Mapping[str, Any], batch_size: int, task: str = "training") -> Rule:
    """Return what a device does by a card's `problem`: sample, repeat an operation, answer if the task is inference, or
    train with a global batch of `batch_size` samples."""
    if "sampler" in problem:
        return SamplerRule(**problem["sampler"])
    if "optimizer" not in problem:
        return PointRule(problem["model"]["operation"])
    if task == "inference":
        return InferenceRule()
    return OptimizerRule.from_problem(problem["optimizer"], batch_size)


class Normalisation(NamedTuple):
    """What a network takes of images that are bytes: their share of 255, less the mean, over the standard deviation."""

    mean: tuple[float, ...]  # by channel
    standard_deviation: tuple[float, ...]

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> Normalisation:
        """Return that of a card's `problem.input`."""
        return cls(tuple(rule["mean"]), tuple(rule["standard_deviation"]))


class Batch(NamedTuple):
    """One batch as the framework's tensors, a single one or a tuple of them, samples along the first axis.

    Images that were decoded may be bytes (N, H, W, C): a quarter of what has to be sent to a device. The session
    normalises them there.

    Also the samples that were unreadable when it was made, and the seconds in which it was decoded and augmented,
    summed over its samples; None if nothing was. Tokens are counted if samples consist of them.
    """

    inputs: Any
    targets: Any
    skipped: tuple[str, ...] = ()
    decode_seconds: float | None = None
    tokens: int | None = None
    padding: int | None = None  # positions without a token
    numbers: Any = None  # of the samples in their source, if more than a loss is asked of the model
    normalisation: Normalisation | None = None  # of inputs that are bytes, and of targets that are these inputs

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs)


class StepReport(NamedTuple):
    """What one call did: samples, optimizer updates, and ways to read the loss and the output.

    Calling them may wait for the device; `loss` is None if the task has no loss, `output` if it has one. `skipped`, if
    updates may be skipped, returns how many were: a scaler of gradients skips one if a gradient is not finite. It is
    read once the device has done the step, and does not wait.
    """

    samples: int
    updates: int
    loss: Callable[[], float] | None
    output: Callable[[], Any] | None = None
    skipped: Callable[[], int] | None = None

    @property
    def done_updates(self) -> int:
        """The updates that were not skipped, once the device has done the step."""
        return self.updates - (self.skipped() if self.skipped else 0)


class EvaluationResult(NamedTuple):
    """Loss and correct answers of the model on one batch, in evaluation mode."""

    samples: int
    loss: float  # mean over the batch
    right: int | None  # samples whose likeliest class is their label; None without labels
    output: Any = None  # on the host, if the samples have numbers: a NumPy array, or a tuple of them


class Answer(NamedTuple):
    """The answer to an inference request: the output on the host, and the seconds of each part."""

    output: Any  # NumPy array, or a tuple of them
    transfer: float  # inputs to the device
    compute: float
    retrieval: float  # output to the host


class ChainSample(NamedTuple):
    """State of C Markov chains after their last transition, as NumPy arrays on the host."""

    position: Any  # (C, parameters), all parameters of the network in sequence, laid out as in PyTorch
    log_density: Any  # (C,), up to a constant
    accepted: Any  # (C,), whether the proposal was accepted
    log_acceptance: Any  # (C,), the logarithm of the acceptance ratio
    step_size: Any  # (C,), of the next transition
    evaluations: int  # of the density's gradient, for all chains together, since their start


class FirstStep(NamedTuple):
    """What a session saw of its first training step; None where the device does not show it."""

    samples: int | None = None  # that passed through the network
    dropped: Mapping[str, float] | None = None  # by dropout, the fraction that it drops; 0.0 if it was not applied


class DeviceFacts(NamedTuple):
    """The hardware of a session. `granularity` is what each of `devices` is: die, tile, package, board or node."""

    kind: str
    vendor: str | None
    name: str | None
    devices: int
    granularity: str
    memory_mib: float | None
    ranks: int
    replicas: int
    execution: str  # how the model was run: eager or compiled, memory layout
    simulated: bool
    identifier: str | None = None  # the device's name in the vendor's management library, if the framework reports it
    mesh: list[int] | None = None  # ranks along each dimension of `group.Mesh`, if they compute one model together


class Executed(NamedTuple):
    """How a model was run in fact, read from the framework after the first steps, on the monotonic clock (s).

    `execution` replaces what the device's facts say. `facts` are by names of COMPILATION_FACTS, if it was compiled, and
    BACKEND_FACTS; None where the framework does not show them.
    """

    began: float
    ended: float
    execution: str
    facts: Mapping[str, Any]


class Usage(NamedTuple):
    """What a session used of its devices since it was opened, in MiB; a text is the reason why there is no number."""

    peak_allocated: float | str  # tensors, by the framework's own count
    peak_reserved: float | str  # memory that the framework reserved for them
    host_device_traffic: float | str  # both ways, weights included
    window_peak_allocated: float | str = "the session does not count it by itself"  # as the first, in the timed window

    @classmethod
    def unknown(cls, reason: str) -> Usage:
        """Return a value without any fact, for one reason."""
        return cls(reason, reason, reason, reason)


class DeviceConditions(NamedTuple):
    """Conditions of the devices: facts (value, unit, reason) by name (DEVICE_CONDITIONS), or why there are none.

    If devices differ, one text has all values, separated by commas.
    """

    facts: Mapping[str, Any]
    reason: str | None

    @classmethod
    def unknown(cls, reason: str) -> DeviceConditions:
        """Return a value without any fact, for one reason."""
        return cls({}, reason)


class Operation(Protocol):
    """The operation of a micro-benchmark on buffers of a device, at points that are called by their number."""

    def fill(self, number: int) -> None:
        """Write the input of a point."""

    def call(self, number: int) -> None:
        """Do the operation once. The device may be done later."""

    def deviation(self, number: int) -> float:
        """Do the operation once, on its input, and return how far its result is from what the input's formula gives.

        That is the largest distance of a number over the largest number; infinite if there are others than finite
        ones. Waits for the device.
        """


class Session(Protocol):
    """A model, its optimizer and its device, ready to be stepped."""

    facts: DeviceFacts
    asynchronous: bool  # calls return before the device is done: marks and losses are read later

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch in the memory that the device reads fastest, for data that is used repeatedly."""

    def feed(self, batches: Iterator[Batch], targets: bool) -> Iterator[Any]:
        """Return what yields batches for `receive`, with or without targets. A device may fetch and copy them ahead."""

    def receive(self, fed: Any) -> Batch:
        """Return a batch of `feed`, for which the device waits if it has not arrived there. The host does not wait."""

    def train(self, batch: Batch) -> StepReport:
        """Run forward, backward and update."""

    def infer(self, batch: Batch) -> StepReport:
        """Run the forward pass without gradients."""

    def evaluate(self, batch: Batch) -> EvaluationResult:
        """Run the forward pass and compare with the targets. Waits for the device."""

    def infer_request(self, batch: Batch) -> Answer:
        """Answer one inference request, from the host's memory back into it. Several threads may call it at once."""

    def begin(self, batch: Batch, iterations: int, chains: int = 1) -> Any:
        """Return the state after the first of `iterations` iterations.

        For texts, after the first new token of each; the newest tokens (N, 1) are its `token`. For Markov chains over
        one batch of observations, after the first transition of each; step sizes adapt during `iterations`, and more
        may follow.
        """

    def next_state(self, state: Any) -> Any:
        """Return the next state. The given one is no longer valid."""

    def append_tokens(self, batch: Batch, tokens: Sequence[Any]) -> tuple[Batch, Any]:
        """Return texts with new tokens, each (N, 1), at their end, and these tokens on the host (N, K)."""

    def last_level_cache(self) -> LastLevelCache | None:
        """Return the caches before the device's memory; None if the framework and the host do not say."""

    def operation(self, points: Sequence[Point], place: Place) -> Operation:
        """Return the operation of a micro-benchmark, with buffers on the device that the points share."""

    def chain_sample(self, state: Any) -> ChainSample:
        """Return the current sample of a state's chains. Waits for the device."""

    def weights(self) -> Mapping[str, Any]:
        """Return the network's weights by name, as NumPy arrays; a later step may change them."""

    def gradients(self) -> Mapping[str, float] | None:
        """Return by weight the fraction of its units for which the last training step had a gradient that is not 0.

        Units are the first axis of a matrix or kernel, and the second one; the smaller fraction counts. Of an embedding
        only the second one: not every entry is in a batch. A vector has 1.0 or 0.0, and a gradient that is not finite
        NaN. Left out are weights of units that may have none by chance. None if the device does not show its gradients,
        or if they overflowed and a later step will have smaller ones. Waits for the device.
        """

    def observed(self) -> FirstStep:
        """Return what was seen of the first training step. Called after it, before anything else is computed."""

    def reset_peak_memory(self) -> None:
        """Note that the timed window begins or ends: memory peaks count from here on, and nothing more is tuned."""

    def usage(self) -> Usage:
        """Return what has been used of the devices so far."""

    def conditions(self) -> DeviceConditions:
        """Return the current conditions of the devices."""

    def mark(self) -> object:
        """Mark a point in the device's stream of work, without waiting for it."""

    def seconds_between(self, earlier: object, later: object) -> float | None:
        """Return the time between two marks in s, or None if the device has not passed the later one."""

    def wait(self, mark: Any) -> None:
        """Wait until the device has passed a mark."""

    def synchronise(self) -> None:
        """Wait until the device has finished everything it was given."""

    def close(self) -> None:
        """Release the device."""
