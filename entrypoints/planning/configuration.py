"""What a run will do, with every default filled in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Sequence, TypedDict

from entrypoints.contract import reference
from entrypoints.contract.cards import Card
from entrypoints.contract.choices import PIPELINED, MeasuredPeak
from entrypoints.contract.group import Parallelism, Place
from entrypoints.contract.session import BatchPartition, IpuMemory
from entrypoints.contract.target import Target
from entrypoints.planning import compilation, parallelism
from entrypoints.planning.device_defaults import ChosenFor
from entrypoints.serving.load import Serving


class Repeat(TypedDict):
    """The index of a run among its repeats, from 1, and their number."""

    index: int
    of: int


@dataclass(frozen=True)
class Configuration:
    """One run. Exactly one of `steps` (all of them, with warm-up) and `duration_seconds` is set."""

    workload: str
    task: str
    framework: str
    device: str
    precision: str
    precision_kind: str | None  # mixed or pure: what is computed in half precision; None: no such numbers
    fp8_scaling: str | None  # what has a scale of its own in FP8: each tensor, or each row
    compile: str | None  # how the framework compiles the model, if it would not by itself: a mode of torch.compile
    activation_checkpointing: bool  # whether blocks are computed again in backward, so that they keep less until then
    offload: bool  # whether the host keeps and updates what ranks divide: optimizer states, and gradients and weights
    batch_size: int  # global: of an update, or of a call in inference
    micro_batch_size: int  # times accumulation, replicas and, in inference, device iterations: the batch
    gradient_accumulation: int
    replicas: int
    instances: int  # processes with equally many replicas of IPUs each, as poprun has started them
    device_iterations: int  # per call: updates in training, micro-batches of a replica in inference
    stages: int
    virtual_stages: int  # of each rank of a pipeline
    tensor: int  # ranks that divide each block
    shards: int | None  # ranks that share one copy of what a strategy divides; None: those of a node
    strategy: str | None
    memory_proportion: Sequence[float] | None  # of an IPU, for what operations need: of all stages, or of each
    io_tiles: int | None  # of an IPU
    cpu_bind: str  # auto: several ranks are bound to processors; none: they are left as started
    concurrency: int | None  # streams of requests; None if batches follow each other
    steps: int | None
    duration_seconds: float | None
    epochs: int | None
    warmup_steps: int
    samples_per_epoch: int | None
    steps_per_epoch: int | None
    data: str  # synthetic, or the format of the data at data_path
    data_path: str | None
    data_workers: int | None
    goal: Target | None
    evaluation_path: str | None  # of the evaluation samples; None: the training data
    seed: int
    threads: int
    meter: str  # auto, none, or NAME[:PLACE]
    meter_period_seconds: float
    idle_seconds: float  # of rest before the run, if there is a meter
    smoke: bool
    probe_numerics: bool
    time_limit_seconds: float | None  # for all runs together
    memory_limit_mib: int | None  # of the workload's process
    largest_size: int | None  # of a micro-benchmark, bytes or rows of a matrix; None: every size of its card
    measured_peak: MeasuredPeak | None  # of a device like this one
    chosen_for: ChosenFor | None  # the device that the card's defaults were chosen for
    repeat: Repeat
    serving: Serving | None = None  # the load on an engine, and its limits
    tune_kernels: bool = False  # whether a GPU of AMD tries every kernel in the first steps

    def of_size(self, batch_size: int, memory_limit_mib: int | None) -> Configuration:
        """Return the same with another batch, computed at once, within a memory limit."""
        per_epoch = self.samples_per_epoch // batch_size if self.samples_per_epoch else None
        return replace(
            self,
            batch_size=batch_size,
            micro_batch_size=batch_size,
            steps_per_epoch=per_epoch,
            memory_limit_mib=memory_limit_mib,
        )

    def computed(self, card: Card) -> Card:
        """Return the card of what is computed: of a smoke run on a CPU, the network that the correctness check has.

        A large one would take minutes there. Data of one's own may have tokens that the smaller one lacks.
        """
        reduced = self.smoke and self.device == "cpu" and self.data_path is None
        return reference.reduced_card(card) if reduced else card

    @property
    def ranks(self) -> int:
        """The processes that compute the run."""
        if self.serving:  # an engine starts processes of its own
            return 1
        return parallelism.ranks(self.device, self.replicas, self.stages * self.tensor, self.instances)

    @property
    def devices(self) -> int:
        """The devices of all replicas."""
        return self.partition._replace(replicas=self.replicas).devices

    @property
    def first_ranks(self) -> Sequence[int]:
        """A rank of each replica: others of it compute the same samples, each with a part of the model."""
        return range(self.ranks) if self.device == "ipu" else range(0, self.replicas * self.tensor, self.tensor)

    @property
    def parallelism(self) -> Parallelism:
        """How the ranks compute one model together."""
        degrees = (self.stages, self.tensor, self.shards, self.virtual_stages)
        return Parallelism(self.strategy, *degrees, self.offload)

    @property
    def recomputed_by_framework(self) -> bool:
        """Whether the model itself computes activations again; for IPUs the compiler does."""
        return self.activation_checkpointing and self.device != "ipu"

    def staged(self, partition: BatchPartition | None, samples: int) -> BatchPartition | None:
        """Return a division of so many samples with the stages of this run, if they are those of IPUs.

        Stages that would be filled by more micro-batches come one after the other.
        """
        if self.device != "ipu" or self.framework != "pytorch":
            return partition
        strategy = "sharded" if self.strategy == PIPELINED else self.strategy
        divided = partition or BatchPartition(samples)
        return divided._replace(stages=self.stages, strategy=strategy, memory=self.partition.memory)

    @property
    def replayed(self) -> bool:
        """Whether steps are replayed as CUDA graphs, unless PyTorch finds a reason against it."""
        how = (self.task, self.gradient_accumulation, self.ranks, self.concurrency)
        return compilation.replayed(self.compile, compilation.Steps(self.framework, self.device, *how))

    @property
    def trained_together(self) -> bool:
        """Whether several ranks train one model. What instances of IPUs exchange is their framework's."""
        return self.device != "ipu" and self.ranks > 1 and self.strategy is not None

    def data_place(self, place: Place) -> Place:
        """Return the place of a rank among the replicas: ranks of one replica have the same samples."""
        if self.device == "ipu":
            return place
        return place._replace(rank=place.rank // self.tensor % self.replicas, world=self.replicas)

    @property
    def partition(self) -> BatchPartition:
        """How the samples of a step are divided by one rank."""
        return BatchPartition(
            self.micro_batch_size,
            self.gradient_accumulation,
            self.replicas // self.instances if self.device == "ipu" else 1,
            self.device_iterations,
            self.stages,
            self.strategy,
            IpuMemory(self.memory_proportion, self.io_tiles, self.activation_checkpointing, self.offload),
            self.tensor,
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values by field name."""
        return asdict(self)
