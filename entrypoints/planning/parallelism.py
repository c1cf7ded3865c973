"""How devices share the work of a run: replicas, stages, ranks and micro-batches, and what they can be asked for."""

from __future__ import annotations

import math

from entrypoints.contract.cards import Card
from entrypoints.contract.choices import DDP, FSDP, OFFLOADED, PARTED, PIPELINED, RANKED, STAGED, TENSOR, ZERO
from entrypoints.contract.session import BatchPartition
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options


def ranks(options: Options, device: str) -> int:
    """Return the processes of a run: one for each part of each replica; IPUs are those of one process."""
    return 1 if device == "ipu" else options.replicas * options.stages


def partition(options: Options, batch_size: int, device: str, usual: int | None) -> BatchPartition:
    """Return how a batch is divided: by the `usual` micro-batch if that divides it, otherwise as a whole.

    Ranks of a pipeline then have a micro-batch for each stage.
    """
    trained, strategy = options.task == "training", _strategy(options, device)
    whole = options.find_max_batch or options.concurrency  # a request's latency is measured in parts of one call
    fits = usual is not None and batch_size % (usual * options.replicas) == 0 and not whole
    by_stages = strategy == PIPELINED and device != "ipu"
    usually = options.replicas * (options.stages if by_stages else 1)
    at_once = options.micro_batch_size or (usual if fits else None) or max(1, batch_size // usually)
    times, left = divmod(batch_size, at_once * options.replicas)
    if left or not times:
        raise UsageError(
            f"--batch-size {batch_size}: it is no multiple of {at_once} samples at once times {options.replicas} "
            f"replicas. Give a multiple of {at_once * options.replicas}, or another --micro-batch-size"
        )
    filling = 2 * options.stages - 1 if trained and device == "ipu" else options.stages  # PopART counts the way back
    if strategy == PIPELINED and times < filling:
        raise UsageError(
            f"--stages {options.stages}: in {options.task} a pipeline is filled by {filling} micro-batches, and "
            f"--batch-size {batch_size} has {times} for each replica. "
            + ("Give --strategy sharded" if whole else "Give a larger batch, or a smaller --micro-batch-size")
        )
    accumulation, iterations = (times, options.device_iterations) if trained else (1, times)
    partition = BatchPartition(at_once, accumulation, options.replicas, iterations, options.stages, strategy)
    if device == "ipu" and partition.devices & (partition.devices - 1):
        raise UsageError(
            f"--replicas {options.replicas} and --stages {options.stages} want {partition.devices} IPUs, which are "
            "given out in powers of two. Give other numbers"
        )
    return partition


def _strategy(options: Options, device: str) -> str | None:
    """Return how stages take turns, or how ranks train together; None for one device, and for copies that answer."""
    asked, replicated = options.strategy, options.replicas > 1 and device != "ipu"
    elsewhere = "IPUs" if asked in STAGED and asked not in PARTED else "CPUs and GPUs" if asked == TENSOR else None
    if elsewhere and (elsewhere == "IPUs") != (device == "ipu"):
        raise UsageError(f"--strategy {asked} is for {elsewhere}. Take --strategy {PIPELINED}")
    if asked in (*STAGED, *PARTED) and options.stages == 1:
        raise UsageError(f"--strategy {asked}: one stage is all of the model. Add --stages 2 or more")
    if asked in RANKED and not (replicated and options.task == "training"):
        raise UsageError(f"--strategy {asked} is for training on several devices: add --replicas 2 or more")
    if asked in (FSDP, *ZERO[1:]) and options.compile:
        raise UsageError(
            f"--compile with --strategy {asked}: what gathers weights or divides gradients is not compiled. Leave one "
            "of them out, or take --strategy ddp or zero1"
        )
    if options.stages > 1:
        return asked or (PIPELINED if options.task == "training" or device == "ipu" else TENSOR)
    return asked or (DDP if replicated and options.task == "training" else None)


def recomputed(options: Options, framework: str, device: str) -> bool:
    """Return whether activations of blocks are computed again. Raises UsageError where nothing keeps them."""
    if not options.activation_checkpointing:
        return False
    if options.task != "training":
        raise UsageError(f"--activation-checkpointing: {options.task} keeps no activations. Leave it out")
    if framework != "pytorch" or device == "ipu":
        raise UsageError("--activation-checkpointing is for PyTorch on CPUs and GPUs. Leave it out")
    return True


def offloaded(options: Options, device: str, precision: str) -> bool:
    """Return whether the host keeps what ranks divide. Raises UsageError where it cannot."""
    if not options.offload:
        return False
    if options.strategy not in OFFLOADED:
        raise UsageError(f"--offload is for --strategy {', '.join(OFFLOADED)}: choose one of them, or leave it out")
    if device == "cpu":
        raise UsageError("--offload: a CPU keeps all in the memory of the host. Leave it out")
    if precision == "fp16":
        raise UsageError("--offload with --precision fp16: gradients are scaled on the device. Take --precision bf16")
    return True


def require(options: Options, card: Card, framework: str, device: str) -> None:
    """Raise UsageError for a division of the work that the framework, device, task or card does not have."""
    if (framework, device) != ("pytorch", "ipu") and options.device_iterations > 1:
        raise UsageError("--device-iterations is for IPUs, by PopTorch. Leave it out")
    if options.stages > 1 and framework != "pytorch":
        raise UsageError(f"--stages {options.stages}: only PyTorch cuts models here. Leave it out")
    if options.stages > 1 and device != "ipu":
        _require_transformer(options, card)
        _require_parts(options)
    if (framework, device) == ("tensorflow", "ipu") and options.replicas > 1:
        raise UsageError("--replicas of IPUs are made by PopTorch, and not by TensorFlow here. Leave it out")
    if options.replicas > 1 and device != "ipu":
        _require_ranks(options)
    _require_whole(options, framework, device)


def _require_whole(options: Options, framework: str, device: str) -> None:
    """Raise UsageError for a division of a batch that a search, requests, a task or a framework does not have."""
    if options.device_iterations > 1 and options.task != "training":
        raise UsageError(
            f"--device-iterations: of {options.task} they follow from --batch-size and --micro-batch-size. Leave it out"
        )
    divided = max(options.replicas, ranks(options, device)) > 1
    if options.find_max_batch and (options.micro_batch_size or options.device_iterations > 1 or divided):
        raise UsageError(
            "--find-max-batch searches on one replica for what fits at once. Give no --micro-batch-size, --replicas or "
            "--device-iterations"
        )
    if options.micro_batch_size is None:
        return
    if options.concurrency:
        raise UsageError("--micro-batch-size: a request is computed at once (--concurrency). Leave it out")
    if framework == "tensorflow":
        raise UsageError("--micro-batch-size is for PyTorch: TensorFlow computes a batch at once here. Leave it out")
    if options.task != "training" and device != "ipu":
        raise UsageError(
            f"--micro-batch-size: {options.task} accumulates no gradients. Give --batch-size, or --task training"
        )


def _require_ranks(options: Options) -> None:
    """Raise UsageError for what several ranks cannot do together."""
    remedies = {
        "--concurrency": (options.concurrency, "a client's latency is that of one device. Start a run for each device"),
        "--find-max-batch": (
            options.find_max_batch,
            f"it searches on one device. Find the batch there, and give {options.replicas} times as much",
        ),
        "--task sampling": (options.task == "sampling", "chains are sampled by one device. Leave --replicas out"),
    }
    for name, (value, why) in remedies.items():
        if value:
            raise UsageError(f"{name} with --replicas {options.replicas}: {why}")


def _require_transformer(options: Options, card: Card) -> None:
    where, model = f"--stages {options.stages}", card.problem.get("model", {})
    if card.family != "transformer":
        raise UsageError(f"{where}: {card.name} is no row of equal blocks of attention. Take --strategy fsdp")
    if options.strategy == TENSOR:
        features = math.gcd(model["heads"], model["feed_forward"])
        if features % options.stages:
            raise UsageError(
                f"{where} with --strategy {TENSOR}: {card.name} has {model['heads']} heads and {model['feed_forward']} "
                f"inner features, which parts of a block divide equally. Give a divisor of {features}"
            )
    elif model["layers"] < options.stages:
        raise UsageError(f"{where}: {card.name} has {model['layers']} blocks. Give as many stages or fewer")


def _require_parts(options: Options) -> None:
    """Raise UsageError for what ranks with parts of a model cannot do."""
    where = f"--stages {options.stages}"
    if options.strategy not in (None, *PARTED, *STAGED):
        raise UsageError(f"{where} with --strategy {options.strategy}: it has no stages. Leave one of them out")
    if options.strategy == PIPELINED and options.task != "training":
        raise UsageError(
            f"{where} with --strategy {PIPELINED}: in {options.task} all stages but one would wait. Take --strategy "
            f"{TENSOR}"
        )
    if options.concurrency:
        raise UsageError(f"{where} with --concurrency: requests are answered by one device. Leave one of them out")
    if options.replicas > 1:
        raise UsageError(
            f"{where} with --replicas {options.replicas}: stages are those of one copy of the model here. Leave one of "
            "them out, or take --strategy fsdp with as many replicas"
        )
    if options.compile:
        raise UsageError(f"--compile with {where}: parts of a model are not compiled here. Leave one of them out")
