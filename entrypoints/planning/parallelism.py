"""How devices share the work of a run: replicas, stages, ranks and micro-batches, and what they can be asked for."""

from __future__ import annotations

import math
from typing import Any, Mapping

from entrypoints.contract.cards import Card, head_sizes
from entrypoints.contract.choices import (
    ALL,
    DATA_PARALLEL,
    DDP,
    FSDP,
    IPU_SCHEDULES,
    PIPELINED,
    SERVING,
    SHARDED,
    TENSOR,
    ZERO,
)
from entrypoints.contract.session import BatchPartition
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options

# Where one call does several updates.
SEVERAL_PER_CALL = (("pytorch", "ipu"), ("tensorflow", "ipu"), ("tensorflow", "cuda"))


def ranks(device: str, replicas: int, parts: int, instances: int = 1) -> int:
    """Return the processes of a run: one for each part of each replica, but of IPUs one computes several."""
    return instances if device == "ipu" else replicas * parts


def shards(options: Options) -> int | None:
    """Return how many replicas share what a strategy divides, if that was asked for."""
    return options.replicas if options.shards == ALL else options.shards  # type: ignore[return-value]


def with_defaults(options: Options, defaults: Mapping[str, Any], device: str) -> Options:
    """Return the options, with the card's `defaults` of what only IPUs have.

    Memory proportions of each stage are those of as many stages.
    """
    chosen: dict[str, Any] = {"device_iterations": options.device_iterations or 1}
    if device == "ipu" and not options.smoke:
        training, whole = options.task == "training", options.find_max_batch
        usual = defaults.get("device_iterations", 1) if training and not whole else 1
        proportions = defaults.get("memory_proportion", ())
        fits = len(proportions) in (1, options.stages)
        chosen = {
            "device_iterations": options.device_iterations or usual,
            "memory_proportion": options.memory_proportion or (tuple(proportions) if fits else None),
        }
    return options._replace(**chosen)


def partition(options: Options, batch_size: int, device: str, usual: int | None, card: Card) -> BatchPartition:
    """Return how a batch is divided: by the `usual` micro-batch if that divides it, otherwise as a whole.

    Ranks of a pipeline have a micro-batch for each stage, unless the usual one fills it.
    """
    trained, strategy = options.task == "training", _strategy(options, device)
    whole = options.find_max_batch or options.concurrency  # a request's latency is measured in parts of one call
    by_stages, filling = options.stages > 1 and device != "ipu", _filling(options, device, card)
    step = (usual or 0) * options.replicas  # samples that all ranks compute at once
    fits = step > 0 and batch_size % step == 0 and not whole and (not by_stages or batch_size >= filling * step)
    usually = options.replicas * (options.stages if by_stages else 1)
    at_once = options.micro_batch_size or (usual if fits else None) or max(1, batch_size // usually)
    times, left = divmod(batch_size, at_once * options.replicas)
    if left or not times:
        raise UsageError(
            f"--batch-size {batch_size}: it is no multiple of {at_once} samples at once times {options.replicas} "
            "replicas",
            f"give a multiple of {at_once * options.replicas}, or another --micro-batch-size",
        )
    if (strategy == PIPELINED or by_stages) and times < filling:
        raise UsageError(
            f"--stages {options.stages}: in {options.task} a pipeline is filled by {filling} micro-batches, and "
            f"--batch-size {batch_size} has {times} for each replica",
            "give --strategy sharded" if whole else "give a larger batch, or a smaller --micro-batch-size",
        )
    if options.virtual_stages > 1 and times % options.stages:
        raise UsageError(
            f"--virtual-stages {options.virtual_stages}: stages take turns in rounds of {options.stages} micro-batches,"
            f" and --batch-size {batch_size} has {times} for each replica",
            "give a multiple of them",
        )
    accumulation, iterations = (times, options.device_iterations or 1) if trained else (1, times)
    partition = BatchPartition(at_once, accumulation, options.replicas, iterations, options.stages, strategy)
    if device == "ipu" and partition.devices & (partition.devices - 1):
        raise UsageError(
            f"--replicas {options.replicas} and --stages {options.stages} want {partition.devices} IPUs, which are "
            "given out in powers of two",
            "give other numbers",
        )
    return partition


def _filling(options: Options, device: str, card: Card) -> int:
    """Return how many micro-batches fill a pipeline. PopART counts the way back, and a head that is with its embedding.

    The data then come back to the first IPU.
    """
    if device != "ipu":
        return options.stages
    stages = options.stages + bool(card.problem["model"].get("head", {}).get("tied"))
    return 2 * stages - 1 if options.task == "training" else stages


def _strategy(options: Options, device: str) -> str | None:
    """Return how ranks train together, or what divides a single copy of the model; None for one device, and for copies
    that answer. Of IPUs, how stages take turns."""
    asked = options.strategy
    if device == "ipu":
        return _schedule_of_ipus(options)
    if asked in IPU_SCHEDULES and asked != PIPELINED:
        raise UsageError(f"--strategy {asked} is for IPUs", f"take --strategy {PIPELINED}")
    replicated = options.replicas > 1 and options.task == "training"
    if asked in DATA_PARALLEL and not replicated:
        raise UsageError(f"--strategy {asked} is for training on several devices", "add --replicas 2 or more")
    degrees = {PIPELINED: ("--stages", options.stages), TENSOR: ("--tensor", options.tensor)}
    if asked in degrees and degrees[asked][1] == 1:
        raise UsageError(f"--strategy {asked}: one device has all of the model", f"add {degrees[asked][0]} 2 or more")
    if asked in degrees and replicated:
        raise UsageError(
            f"--strategy {asked} with --replicas {options.replicas}: it does not say how replicas train together",
            f"take --strategy {FSDP}, and keep {degrees[asked][0]}",
        )
    if replicated:
        return asked or (FSDP if options.tensor > 1 else DDP)
    return asked or (PIPELINED if options.stages > 1 else TENSOR if options.tensor > 1 else None)


def _schedule_of_ipus(options: Options) -> str | None:
    asked = options.strategy
    if asked == TENSOR:
        raise UsageError(f"--strategy {asked} is for CPUs and GPUs", f"take --strategy {PIPELINED}")
    if asked in IPU_SCHEDULES and options.stages == 1:
        raise UsageError(f"--strategy {asked}: one stage is all of the model", "add --stages 2 or more")
    if asked in DATA_PARALLEL:
        raise UsageError(f"--strategy {asked} is for training on several devices", "add --replicas 2 or more")
    return (asked or PIPELINED) if options.stages > 1 else None


def recomputed(options: Options, framework: str) -> bool:
    """Return whether activations of blocks are computed again. Raises UsageError where nothing keeps them."""
    if not options.activation_checkpointing:
        return False
    if options.task != "training":
        raise UsageError(f"--activation-checkpointing: {options.task} keeps no activations", "leave it out")
    if framework != "pytorch":
        raise UsageError("--activation-checkpointing is for PyTorch", "leave it out")
    return True


def tuned(options: Options, framework: str, device: str) -> bool:
    """Return whether every kernel is tried. Raises UsageError where that cannot be asked for."""
    if options.tune_kernels and (framework, device) != ("pytorch", "cuda"):
        raise UsageError("--tune-kernels is for PyTorch on GPUs of AMD", "leave it out")
    return options.tune_kernels


def offloaded(options: Options, device: str, precision: str) -> bool:
    """Return whether the host keeps what ranks divide. Raises UsageError where it cannot."""
    if not options.offload:
        return False
    if device == "ipu":
        if options.task != "training":
            raise UsageError(f"--offload: {options.task} has no optimizer states", "leave it out")
        return True
    if options.strategy not in SHARDED:
        raise UsageError(f"--offload is for --strategy {', '.join(SHARDED)}", "choose one of them, or leave it out")
    if device == "cpu":
        raise UsageError("--offload: a CPU keeps all in the memory of the host", "leave it out")
    if precision == "fp16":
        raise UsageError("--offload with --precision fp16: gradients are scaled on the device", "take --precision bf16")
    return True


def require(options: Options, card: Card, framework: str, device: str) -> None:
    """Raise UsageError for a division of the work that the framework, device, task or card does not have."""
    _require_ipu(options, framework, device)
    if device == "hpu" and (_parts(options) or options.strategy not in (None, DDP)):
        given = _parts(options) or f"--strategy {options.strategy}"
        raise UsageError(f"{given}: on Gaudi, devices train by --strategy {DDP} here, and by no other", "leave it out")
    if (framework, device) not in SEVERAL_PER_CALL and (options.device_iterations or 1) > 1:
        raise UsageError("--device-iterations is for IPUs, and for GPUs in TensorFlow", "leave it out")
    if device != "ipu" and (options.device_iterations or 1) > 1 and options.replicas > 1:
        raise UsageError("--device-iterations with --replicas: ranks exchange gradients between calls", "leave one out")
    if _parts(options) and framework != "pytorch":
        raise UsageError(f"{_parts(options)}: only PyTorch cuts models here", "leave it out")
    if _parts(options) and device != "ipu" and options.task != SERVING:
        _require_transformer(options, card)
        _require_parts(options)
    _require_degrees(options, device)
    if (framework, device) == ("tensorflow", "ipu"):
        for name, wanted in {"--replicas": options.replicas > 1, "--offload": options.offload}.items():
            if wanted:
                raise UsageError(f"{name}: on IPUs, only PyTorch has it here, and not TensorFlow", "leave it out")
    if options.replicas > 1 and device != "ipu":
        _require_ranks(options)
    _require_whole(options, framework, device)


def _require_ipu(options: Options, framework: str, device: str) -> None:
    """Raise UsageError for what only IPUs have, and what does not fit their stages or their framework."""
    if device != "ipu":
        given = {
            "--memory-proportion": options.memory_proportion,
            "--io-tiles": options.io_tiles,
        }
        for name, value in given.items():
            if value:
                raise UsageError(f"{name} is for IPUs", "leave it out")
        return
    if options.memory_proportion and len(options.memory_proportion) not in (1, options.stages):
        raise UsageError(
            f"--memory-proportion has {len(options.memory_proportion)} numbers, and --stages is {options.stages}",
            "give one for all stages, or one for each",
        )
    if options.io_tiles is None:
        return
    if options.io_tiles % 2 and framework == "pytorch":
        raise UsageError(f"--io-tiles {options.io_tiles}: PopTorch takes an even number", "give one from 32 to 192")
    if framework == "tensorflow" and (options.device_iterations or 1) == 1:
        raise UsageError(
            "--io-tiles: in TensorFlow a batch is sent while another one of the same call is trained on",
            "add --device-iterations 2 or more for training, or leave it out",
        )
    if options.stages > 1 and options.strategy in (None, PIPELINED):
        raise UsageError("--io-tiles: PopTorch has none in a pipeline", "leave it out, or take --strategy sharded")


def _require_whole(options: Options, framework: str, device: str) -> None:
    """Raise UsageError for a division of a batch that a search, requests, a task or a framework does not have."""
    several = (options.device_iterations or 1) > 1
    if several and options.task != "training":
        raise UsageError(
            f"--device-iterations: of {options.task} they follow from --batch-size and --micro-batch-size",
            "leave it out",
        )
    divided = max(options.replicas, ranks(device, options.replicas, options.stages * options.tensor)) > 1
    if options.find_max_batch and (options.micro_batch_size or several or divided):
        raise UsageError(
            "--find-max-batch searches on one replica for what fits at once",
            "give no --micro-batch-size, --replicas or --device-iterations",
        )
    if options.micro_batch_size is None:
        return
    if options.concurrency:
        raise UsageError("--micro-batch-size: a request is computed at once (--concurrency)", "leave it out")
    if framework == "tensorflow":
        raise UsageError("--micro-batch-size is for PyTorch: TensorFlow computes a batch at once here", "leave it out")
    if options.task != "training" and device != "ipu":
        raise UsageError(
            f"--micro-batch-size: {options.task} accumulates no gradients", "give --batch-size, or --task training"
        )


def _require_ranks(options: Options) -> None:
    """Raise UsageError for what several ranks cannot do together."""
    remedies = {
        "--concurrency": (
            options.concurrency,
            "a client's latency is that of one device",
            "start a run for each device",
        ),
        "--find-max-batch": (
            options.find_max_batch,
            "it searches on one device",
            f"find the batch there, and give {options.replicas} times as much",
        ),
        "--task sampling": (options.task == "sampling", "chains are sampled by one device", "leave --replicas out"),
    }
    for name, (value, why, remedy) in remedies.items():
        if value:
            raise UsageError(f"{name} with --replicas {options.replicas}: {why}", remedy)


def _parts(options: Options) -> str:
    """Return the options that divide one copy of a model; nothing if it is whole."""
    degrees = {"--stages": options.stages, "--tensor": options.tensor}
    return " ".join(f"{option} {degree}" for option, degree in degrees.items() if degree > 1)


def _require_transformer(options: Options, card: Card) -> None:
    """Raise UsageError for a network that is not divided into so many parts."""
    model, given = card.problem.get("model", {}), card.problem.get("input", {})
    if card.family not in ("transformer", "decoder"):
        raise UsageError(
            f"{_parts(options)}: {card.name} is no row of equal blocks of attention", "take --strategy fsdp"
        )
    if "adapter" in model and options.tensor > 1:
        raise UsageError(
            f"--tensor {options.tensor}: adapters of {card.name} are not divided", "take --strategy fsdp in its place"
        )
    if "experts" in model and options.tensor > 1:
        raise UsageError(
            f"--tensor {options.tensor}: experts of {card.name} are not divided", "take --strategy fsdp in its place"
        )
    heads = math.gcd(model["heads"], head_sizes(model).kv_heads)
    features = math.gcd(heads, model["feed_forward"])
    if features % options.tensor:
        raise UsageError(
            f"--tensor {options.tensor}: {card.name} has {heads} heads and {model['feed_forward']} inner features, "
            "which parts of a block divide equally",
            f"give a divisor of {features}",
        )
    if options.task == "training" and given.get("length", 0) % options.tensor:
        raise UsageError(
            f"--tensor {options.tensor}: {card.name} has {given['length']} positions, of which each device has as many",
            "give a divisor of them",
        )
    stages = options.stages * options.virtual_stages
    if model["layers"] < stages:
        virtual = f" --virtual-stages {options.virtual_stages}" if options.virtual_stages > 1 else ""
        raise UsageError(
            f"--stages {options.stages}{virtual}: {card.name} has {model['layers']} blocks",
            "give as many stages or fewer",
        )


def _require_parts(options: Options) -> None:
    """Raise UsageError for what ranks with parts of a model cannot do."""
    where = _parts(options)
    if options.stages > 1 and options.task != "training":
        raise UsageError(
            f"{where}: in {options.task} all stages of a pipeline but one would wait", "take --tensor in its place"
        )
    if options.concurrency:
        raise UsageError(f"{where} with --concurrency: requests are answered by one device", "leave one of them out")
    if options.strategy == ZERO[0] or (options.tensor > 1 and options.strategy == DDP):
        raise UsageError(
            f"{where} with --strategy {options.strategy}: it wants whole models", f"take --strategy {FSDP}"
        )
    if options.compile and options.task != "training":
        raise UsageError(f"--compile with {where}: parts that answer are not compiled here", "leave one of them out")


def _require_degrees(options: Options, device: str) -> None:
    """Raise UsageError for degrees that do not fit each other, or the device."""
    if device == "ipu":
        asked = (
            (options.tensor > 1, "--tensor"),
            (options.virtual_stages > 1, "--virtual-stages"),
            (options.shards, "--shards"),
        )
        for given, name in asked:
            if given:
                raise UsageError(f"{name} is for CPUs and GPUs", "leave it out")
    if options.virtual_stages > 1 and options.stages == 1:
        raise UsageError(f"--virtual-stages {options.virtual_stages}: there is no pipeline", "add --stages 2 or more")
    groups = shards(options)
    if groups is None:
        return
    if options.strategy not in SHARDED:
        raise UsageError(f"--shards is for --strategy {', '.join(SHARDED)}", "choose one of them, or leave it out")
    if options.replicas % groups:
        raise UsageError(
            f"--shards {options.shards}: --replicas {options.replicas} make no groups of as many", "give a divisor"
        )
