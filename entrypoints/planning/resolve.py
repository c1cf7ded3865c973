"""The configuration that follows from options, the card and the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from entrypoints.contract.cards import Card, generates
from entrypoints.contract.choices import SERVING, precision_kind
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.statuses import UsageError
from entrypoints.devices import selection
from entrypoints.metering.meter import MeterError
from entrypoints.metering.meters import replay
from entrypoints.planning import (
    compilation,
    device_defaults,
    float8,
    inputs,
    length,
    measured_peak,
    microbenchmark,
    parallelism,
    serving,
)
from entrypoints.planning.arguments import Options
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.device_defaults import ChosenFor
from entrypoints.serving.early_stopping import REQUESTS
from entrypoints.system import host
from entrypoints.system.image import binding_hint, target

SMOKE = {"batch_size": 2, "steps": 4, "warmup_steps": 1}
IDLE_SECONDS = 5.0  # fifty readings at the default period; an energy needs twenty
IMAGES_FOR = {  # what to take for a kind of device that an image does not have
    "cuda": "an image of the recipe cuda (NVIDIA) or rocm (AMD)",
    "xpu": "an image of the recipe xpu (Intel)",
    "hpu": "an image of the recipe hpu (Intel Gaudi)",
    "ipu": "an image of the recipe ipu (Graphcore)",
}


def resolve(options: Options, card: Card, image: Mapping[str, Any] | None) -> Configuration:
    """Return the configuration of `options`, with the card's defaults for the image's device.

    Raises UsageError if options contradict each other, the card or the data.
    """
    _require_trace(options.meter)
    framework, device = framework_and_device(options, image)
    task = options.task or card.tasks[0]
    options = options._replace(task=task)
    _require_task(task, options, card)
    _require_ported(card, device)
    microbenchmark.require(options, card, device)
    serving.require(options, framework, device)
    float8.require(options, card, framework, device)
    defaults, chosen_for = _defaults(options, card, framework, device)
    options = options._replace(compile=compilation.asked_for(options.compile))
    batch_size = options.batch_size or defaults["batch_size"]
    parallelism.require(options, card, framework, device)
    options = parallelism.with_defaults(options, defaults, device)
    partition = parallelism.partition(options, batch_size, device, defaults.get("micro_batch_size"), card)
    precision = options.precision or defaults["precision"]
    data, source = inputs.open_data(options, card, framework)
    samples = inputs.samples_per_epoch(options, partition.samples, source)
    per_epoch = samples // partition.samples if samples else None
    steps = length.steps(options, defaults["steps"], per_epoch)
    load = serving.load(options, defaults)
    ranks = 1 if load else parallelism.ranks(device, options.replicas, options.stages * options.tensor)
    how = (partition.accumulation, ranks, options.concurrency)
    computed = compilation.Steps(framework, device, task, *how)
    compiled = compilation.mode(options.compile or defaults.get("compile"), computed)
    least = compilation.GRAPH_WARMUP if compilation.replayed(compiled, computed) else 1
    warmup = length.warmup_steps(options, defaults["warmup_steps"], steps, least)
    serving.require_proof(load, steps, warmup)
    return Configuration(
        workload=card.name,
        task=task,
        framework=framework,
        device=device,
        precision=precision,
        precision_kind=precision_kind(precision, device, task),
        fp8_scaling=float8.scaling(options, precision),
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
        virtual_stages=options.virtual_stages,
        tensor=options.tensor,
        shards=parallelism.shards(options),
        strategy=partition.strategy,
        memory_proportion=list(options.memory_proportion) if options.memory_proportion else None,
        io_tiles=options.io_tiles,
        cpu_bind=options.cpu_bind,
        concurrency=None if load else options.concurrency,
        serving=load,
        steps=steps,
        duration_seconds=options.duration,
        epochs=options.epochs,
        warmup_steps=warmup,
        samples_per_epoch=samples,
        steps_per_epoch=per_epoch,
        data=data,
        data_path=None if data == inputs.SYNTHETIC else str(Path(options.data).resolve()),
        data_workers=inputs.workers(options, source, ranks, framework, device),
        goal=length.goal(options, card, per_epoch),
        evaluation_path=inputs.evaluation_path(options, card, framework, source),
        seed=options.seed,
        threads=options.threads
        or defaults.get("threads")
        or max(1, host.usable_cores() // ((not load and options.concurrency) or 1) // ranks),
        meter=options.meter,
        meter_period_seconds=options.meter_period,
        idle_seconds=_idle(options),
        smoke=options.smoke,
        probe_numerics=not (options.smoke or options.skip_numerics),
        time_limit_seconds=options.time_limit,
        memory_limit_mib=options.memory_limit,
        largest_size=microbenchmark.largest_size(options, card, defaults),
        measured_peak=measured_peak.read(options, precision, device, ranks),
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
    if options.device is not None and options.device not in kinds:
        other = IMAGES_FOR.get(options.device)
        remedy = f"for {options.device} take {other}" if other else "leave it out, or take another image"
        raise UsageError(f"--device {options.device}: this image is for {' or '.join(kinds)}", remedy)
    return framework, options.device or own


def _require_task(task: str, options: Options, card: Card) -> None:
    if task not in card.tasks:
        raise UsageError(f"--task {task}: {card.name} can do {', '.join(card.tasks)}", "give that, or another workload")
    if task == "sampling" and (options.epochs or options.samples_per_epoch):
        raise UsageError(
            "--epochs and --samples-per-epoch: sampling reads all observations at every step and has no epochs",
            "give --steps or --duration",
        )
    if options.concurrency and generates(card.problem, task):
        raise UsageError(
            f"--concurrency {options.concurrency}: {card.name} generates texts batch by batch", "leave it out"
        )
    if options.concurrency and task not in ("inference", SERVING):
        raise UsageError(
            f"--concurrency {options.concurrency}: {task} answers no requests", "add --task inference, or leave it out"
        )


def _require_ported(card: Card, device: str) -> None:
    if device == "ipu" and card.set == "2026":
        raise UsageError(
            f"{card.name}: the set of 2026 is not for IPUs, whose last framework is PyTorch 2.0",
            "take a workload of the papers, or another device",
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
    if options.concurrency and options.task != SERVING:
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
        raise UsageError(
            f"--meter {meter}: {error.strerror}", f"correct the path{binding_hint(place)}", "file-unreadable"
        ) from None
    except MeterError as error:
        raise UsageError(f"--meter {meter}: {error}", "name another recording", "data-damaged") from None


def _idle(options: Options) -> float:
    if options.idle_seconds is not None:
        return options.idle_seconds
    return 0.0 if options.smoke else IDLE_SECONDS
