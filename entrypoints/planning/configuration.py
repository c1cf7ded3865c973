"""What a run will do, with every default filled in."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Mapping, Sequence, TypedDict

from entrypoints.contract.cards import Card, labelled, tabular
from entrypoints.contract.choices import DEFAULT_MODE, PIPELINED, MeasuredPeak, precision_kind
from entrypoints.contract.group import Place
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.session import BatchPartition, IpuMemory
from entrypoints.contract.statuses import UsageError
from entrypoints.contract.target import Target
from entrypoints.data import formats, table
from entrypoints.data.source import Source
from entrypoints.devices import selection
from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import replay
from entrypoints.planning import compilation, device_defaults, measured_peak, microbenchmark, parallelism
from entrypoints.planning.arguments import Options
from entrypoints.planning.device_defaults import ChosenFor
from entrypoints.system import host
from entrypoints.system.image import binding_hint, target

SMOKE = {"batch_size": 2, "steps": 4, "warmup_steps": 1}
REQUESTS = 700  # timed by default: a 99th percentile needs 662
EVALUATION_STEPS = 100  # between two evaluations if data have no end
IDLE_SECONDS = 5.0  # fifty readings at the default period; an energy needs twenty
SYNTHETIC = "synthetic"
IMAGES_FOR = {  # what to take for a kind of device that an image does not have
    "cuda": "an image of the recipe cuda (NVIDIA) or rocm (AMD)",
    "xpu": "an image of the recipe xpu (Intel)",
    "hpu": "an image of the recipe hpu (Intel Gaudi)",
    "ipu": "an image of the recipe ipu (Graphcore)",
}
# Two batches of each worker process wait in shared memory: 5 GB for 64 of them and 256 photographs.
MOST_WORKERS = 64
# A CPU computes slower than so many decode beside it, and TensorFlow's are threads that share an interpreter lock.
FEW_WORKERS = 8


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

    @property
    def ranks(self) -> int:
        """The processes that compute the run: one for each stage of each replica, but of IPUs one computes several."""
        return self.instances if self.device == "ipu" else self.replicas * self.ranks_of_a_replica

    @property
    def devices(self) -> int:
        """The devices of all replicas."""
        return self.partition._replace(replicas=self.replicas).devices

    @property
    def ranks_of_a_replica(self) -> int:
        """The ranks that compute the same samples, each with a part of the model."""
        return 1 if self.device == "ipu" else self.stages

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
        parts = self.ranks_of_a_replica
        return place._replace(rank=place.rank // parts, world=place.world // parts)

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
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain values by field name."""
        return asdict(self)


def resolve(options: Options, card: Card, image: Mapping[str, Any] | None) -> Configuration:
    """Return the configuration of `options`, with the card's defaults for the image's device.

    Raises UsageError if options contradict each other, the card or the data.
    """
    _require_trace(options.meter)
    framework, device = framework_and_device(options, image)
    task = options.task or card.tasks[0]
    options = options._replace(task=task)
    _require_task(task, options, card)
    microbenchmark.require(options, card, device)
    defaults, chosen_for = _defaults(options, card, framework, device)
    options = options._replace(compile=compilation.asked_for(options.compile))
    batch_size = options.batch_size or defaults["batch_size"]
    parallelism.require(options, card, framework, device)
    options = parallelism.with_defaults(options, defaults, framework, device)
    partition = parallelism.partition(options, batch_size, device, defaults.get("micro_batch_size"), card)
    precision = options.precision or defaults["precision"]
    data, source = _data(options, card, framework)
    samples = _samples_per_epoch(options, partition.samples, source)
    per_epoch = samples // partition.samples if samples else None
    steps = _steps(options, defaults["steps"], per_epoch)
    how = (partition.accumulation, parallelism.ranks(options, device), options.concurrency)
    computed = compilation.Steps(framework, device, task, *how)
    compiled = compilation.mode(options.compile or defaults.get("compile"), computed)
    least = compilation.GRAPH_WARMUP if compilation.replayed(compiled, computed) else 1
    warmup = _warmup(options, defaults["warmup_steps"], steps, least)
    return Configuration(
        workload=card.name,
        task=task,
        framework=framework,
        device=device,
        precision=precision,
        precision_kind=precision_kind(precision, device, task),
        compile=compiled,
        activation_checkpointing=parallelism.recomputed(options, framework),
        offload=parallelism.offloaded(options, device, precision),
        tune_kernels=parallelism.tuned(options, framework, device),
        batch_size=batch_size,
        micro_batch_size=partition.micro_batch,
        gradient_accumulation=partition.accumulation,
        replicas=partition.replicas,
        instances=1,
        device_iterations=partition.device_iterations,
        stages=partition.stages,
        strategy=partition.strategy,
        memory_proportion=list(options.memory_proportion) if options.memory_proportion else None,
        io_tiles=options.io_tiles,
        cpu_bind=options.cpu_bind,
        concurrency=options.concurrency,
        steps=steps,
        duration_seconds=options.duration,
        epochs=options.epochs,
        warmup_steps=warmup,
        samples_per_epoch=samples,
        steps_per_epoch=per_epoch,
        data=data,
        data_path=None if data == SYNTHETIC else str(Path(options.data).resolve()),
        data_workers=_workers(options, source, framework, device),
        goal=_goal(options, card, per_epoch),
        evaluation_path=_evaluation_path(options, card, framework, source),
        seed=options.seed,
        threads=options.threads
        or defaults.get("threads")
        or max(1, host.usable_cores() // (options.concurrency or 1) // parallelism.ranks(options, device)),
        meter=options.meter,
        meter_period_seconds=options.meter_period,
        idle_seconds=_idle(options),
        smoke=options.smoke,
        probe_numerics=not (options.smoke or options.skip_numerics),
        time_limit_seconds=options.time_limit,
        memory_limit_mib=options.memory_limit,
        largest_size=microbenchmark.largest_size(options, card, defaults),
        measured_peak=measured_peak.read(options, precision, device),
        chosen_for=chosen_for,
        repeat={"index": 1, "of": options.repeat},
    )


def framework_and_device(options: Options, image: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return framework and device: the image's, or the CPU if asked for. Outside of images, any available device.

    Raises UsageError for a device that the image is not for.
    """
    framework, own = target(image)
    kinds = selection.offered_kinds(framework, own, image is not None)
    if options.device == selection.AUTO:
        return framework, selection.choose(kinds).kind
    if options.device not in (None, *kinds):
        other = f". For {options.device} take {IMAGES_FOR[options.device]}" if options.device in IMAGES_FOR else ""
        raise UsageError(f"--device {options.device}: this image is for {' or '.join(kinds)}{other}")
    return framework, options.device or own


def _require_task(task: str, options: Options, card: Card) -> None:
    if task not in card.tasks:
        raise UsageError(f"--task {task}: {card.name} can do {', '.join(card.tasks)}")
    if task == "sampling" and (options.epochs or options.samples_per_epoch):
        raise UsageError(
            "--epochs and --samples-per-epoch: sampling reads all observations at every step and has no epochs. "
            "Give --steps or --duration"
        )
    if options.concurrency and "generation" in card.problem:
        raise UsageError(
            f"--concurrency {options.concurrency}: {card.name} generates texts batch by batch. Leave it out"
        )
    if options.concurrency and task != "inference":
        raise UsageError(
            f"--concurrency {options.concurrency}: {task} answers no requests. Add --task inference, or leave it out"
        )


def _defaults(options: Options, card: Card, framework: str, device: str) -> tuple[dict[str, Any], ChosenFor | None]:
    """Return the card's defaults, and the device that they were chosen for.

    A run of requests has one sample a request, and one warm-up step more per stream.
    """
    of_card = card.defaults_for(device, str(options.task))
    chosen, chosen_for = device_defaults.for_device(of_card, framework, device, options)
    defaults = dict(chosen)
    if framework == "tensorflow" and "micro_batch_size" in defaults:  # it divides no batch
        defaults.update(batch_size=defaults.pop("micro_batch_size"))
    if options.concurrency:
        warmup = defaults["warmup_steps"] + options.concurrency
        defaults.update(batch_size=1, steps=warmup + REQUESTS, warmup_steps=warmup)
    if options.smoke:
        defaults.update(SMOKE, batch_size=min(SMOKE["batch_size"], defaults["batch_size"]))
    if options.task == MICROBENCHMARK:
        defaults.update(batch_size=options.replicas)  # each rank has its buffers
    return defaults, chosen_for


def _require_trace(meter: str) -> None:
    """Raise UsageError for a recorded trace that cannot be replayed, before anything runs."""
    name, _, place = meter.partition(":")
    if name != replay.NAME:
        return
    try:
        replay.find(place or None)
    except OSError as error:
        raise UsageError(f"--meter {meter}: {error.strerror}.{binding_hint(place)}") from None
    except MeterError as error:
        raise UsageError(f"--meter {meter}: {error}") from None


def _data(options: Options, card: Card, framework: str) -> tuple[str, Source | None]:
    """Return the name of the inputs, and their source if there is one."""
    if options.data == SYNTHETIC:
        return SYNTHETIC, None
    if tabular(card.problem):
        table.require(Path(options.data))
        return table.NAME, None
    name, source = formats.open_for(card, Path(options.data), str(options.task), framework)
    if options.concurrency and source.sequential:
        raise UsageError(
            f"--concurrency with --data {options.data}: {name} are read from the front, and requests ask for single "
            "samples. Give class folders or idx files, or leave --concurrency out"
        )
    return name, source


def _samples_per_epoch(options: Options, of_step: int, source: Source | None) -> int | None:
    if source is None:
        if options.epochs and not options.samples_per_epoch:
            raise UsageError("--epochs with synthetic data needs --samples-per-epoch: it has no end of its own")
        return _at_least_a_step(options.samples_per_epoch, of_step, "--samples-per-epoch")
    if options.samples_per_epoch:
        raise UsageError("--samples-per-epoch is for synthetic data: an epoch of --data is all its samples")
    return _at_least_a_step(source.samples, of_step, f"--data {options.data}")


def _at_least_a_step(samples: int | None, of_step: int, where: str) -> int | None:
    if samples is not None and samples < of_step:
        raise UsageError(
            f"{where}: {samples} samples do not fill one step of {of_step}. Give more, or a smaller --batch-size"
        )
    return samples


def _steps(options: Options, default: int, per_epoch: int | None) -> int | None:
    if options.duration:
        return None
    if options.epochs and per_epoch:
        return options.epochs * per_epoch
    return options.steps or default


def _warmup(options: Options, default: int, steps: int | None, least: int) -> int:
    """Return the warm-up steps, at least as many as are recorded before they are replayed.

    A short run reduces a default, but not a number that was asked for.
    """
    if options.warmup_steps is None:
        default = default if steps is None else min(default, max(1, steps // 2))
    warmup = options.warmup_steps or max(default, least)
    if warmup < least:
        raise UsageError(
            f"--warmup-steps {warmup} with --compile: CUDA graphs are recorded before they are replayed, which takes "
            f"{least} steps. Give --warmup-steps {least} or more, or --compile {DEFAULT_MODE}"
        )
    if steps is not None and warmup >= steps:
        raise UsageError(
            f"{warmup} warm-up of {steps} steps leave none to time. "
            f"Ask for at least {warmup + 1} steps, or for fewer --warmup-steps"
        )
    return warmup


def _goal(options: Options, card: Card, per_epoch: int | None) -> Target | None:
    """Return the target, evaluated after each epoch by default; None without one."""
    metric = "accuracy" if options.target_accuracy is not None else "loss"
    value = options.target_accuracy if options.target_accuracy is not None else options.target_loss
    if value is None:
        if options.evaluation_steps:
            raise UsageError("--evaluation-steps without --target-accuracy or --target-loss: nothing is evaluated")
        return None
    if options.task != "training":
        raise UsageError(f"--target-{metric}: {options.task} trains nothing. Leave it out, or --task training")
    if metric == "accuracy" and not labelled(card.problem):
        raise UsageError(f"--target-accuracy: {card.name} has no labels. Use --target-loss")
    if not (options.steps or options.epochs or options.duration or options.smoke):
        raise UsageError(f"--target-{metric} may never be reached: give --steps, --epochs or --duration as a bound")
    return {
        "metric": metric,
        "value": value,
        "evaluation_steps": options.evaluation_steps or per_epoch or EVALUATION_STEPS,
    }


def _evaluation_path(options: Options, card: Card, framework: str, trained: Source | None) -> str | None:
    """Return the path of the evaluation data, which is checked now so that no training is in vain; None without one."""
    if options.evaluation_data is None:
        return None
    if options.target_accuracy is None and options.target_loss is None:
        raise UsageError("--evaluation-data without --target-accuracy or --target-loss: nothing is evaluated")
    path = Path(options.evaluation_data)
    where = f"--evaluation-data {path}"
    try:
        _, source = formats.open_for(card, path, "inference", framework, "--evaluation-data")
    except UsageError as error:  # readers only know --data
        raise UsageError(str(error).replace("--data ", "--evaluation-data ", 1)) from None
    if trained:
        source.like(trained, where)
    if trained and labelled(card.problem):
        source.numbered_as(trained, where)
    return str(path.resolve())


def _idle(options: Options) -> float:
    if options.idle_seconds is not None:
        return options.idle_seconds
    return 0.0 if options.smoke else IDLE_SECONDS


def _workers(options: Options, source: Source | None, framework: str, device: str) -> int | None:
    if source is None:
        if options.data_workers is not None:
            raise UsageError("--data-workers is for --data PATH: synthetic data and tables are read by no worker")
        return None
    if options.concurrency:
        if options.data_workers is not None:
            raise UsageError("--data-workers with --concurrency: each stream decodes its own requests. Leave one out")
        return None
    if options.data_workers is not None:
        return options.data_workers
    return default_workers(parallelism.ranks(options, device), framework, device)


def default_workers(parts: int, framework: str, device: str) -> int:
    """Return the workers of a rank, of so many that divide the processors."""
    most = FEW_WORKERS if device == "cpu" or framework == "tensorflow" else MOST_WORKERS
    return max(1, min(host.usable_threads() // parts, most))
