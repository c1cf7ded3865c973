"""Rules about counts: steps, units, updates, and how a batch is divided."""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, Sequence

from entrypoints.contract.choices import DATA_PARALLEL, IPU_SCHEDULES, MODEL_PARALLEL, PIPELINED, SHARDED, TENSOR
from entrypoints.results.quantiles import QUANTILES, quantile
from entrypoints.results.result import MOST_STEPS
from entrypoints.rules.facts import Facts, near
from entrypoints.rules.rule import ROUNDING, differ, rule

SEEDS = 2**32
LISTS = ("seconds", "losses", "data_wait_seconds")


@rule(
    "`steps.seconds`, `losses` and `data_wait_seconds` have `steps.count` entries, and are listed up to 1000",
    "The steps are what everything else follows from.",
)
def steps_are_listed(facts: Facts) -> Iterator[str]:
    """Compare the lengths of the lists of steps with the count."""
    for name in LISTS:
        listed = facts.steps[name]
        if listed is not None and len(listed) != facts.count:
            yield differ(f"steps.{name}", len(listed), facts.count, "steps.count")
    for name in ("seconds", "losses"):
        if (facts.steps[name] is None) != (facts.count > MOST_STEPS):
            yield f"steps.{name}: steps are listed if there are at most {MOST_STEPS}, and there are {facts.count}"


@rule(
    "completed: `steps.untimed` = `configuration.warmup_steps`, and `steps.count` = `configuration.steps` unless a "
    "target ended the run; in every state at most as many, but for a search for goodput, and `untimed` at most `count`",
    "A run that did less than it was asked for has not completed.",
)
def steps_are_those_asked_for(facts: Facts) -> Iterator[str]:
    """Compare the numbers of steps with those that were asked for."""
    asked, warmup = facts.configuration["steps"], facts.configuration["warmup_steps"]
    untimed = facts.untimed
    if untimed > facts.count:
        yield differ("steps.untimed", untimed, facts.count, "at most steps.count")
    if untimed > warmup or (facts.completed and not facts.target_reached and untimed != warmup):
        yield differ("steps.untimed", untimed, warmup, "configuration.warmup_steps")
    if asked is None:
        return
    most = math.inf if facts.served and facts.served["find_goodput"] else asked
    least = asked if facts.completed and not facts.target_reached else 0
    if not least <= facts.count <= most:
        yield differ("steps.count", facts.count, asked, "configuration.steps")


@rule(
    "completed and `configuration.duration_seconds` given: the timed steps last at least as long",
    "A shorter window was not what was asked for.",
    ROUNDING,
)
def window_is_as_long_as_asked_for(facts: Facts) -> Iterator[str]:
    """Compare the timed window with the requested duration."""
    asked, window = facts.configuration["duration_seconds"], facts.window
    if asked is None or window is None or not facts.completed or facts.target_reached:
        return
    if window < asked and not near(window, asked):
        yield differ("steps.seconds", window, asked, "configuration.duration_seconds")


@rule(
    "completed on the host by one rank and `configuration.duration_seconds` given: the timed steps but the last one "
    "are shorter; several ranks agree on more steps at once",
    "The window ends with the step that fills it.",
    ROUNDING,
)
def window_is_no_longer_than_asked_for(facts: Facts) -> Iterator[str]:
    """Compare the timed window with the requested duration, without its last step."""
    asked, window = facts.configuration["duration_seconds"], facts.window
    if asked is None or window is None or not facts.on_host or not facts.steps["quantiles"] or facts.ranks > 1:
        return
    before = window - (facts.timed[-1] if facts.timed else facts.steps["quantiles"]["p100"])
    if before > asked and not near(before, asked):
        yield differ("steps.seconds", before, asked, "configuration.duration_seconds without the last step")


@rule(
    "on CPUs a call has one iteration, and each stage of each replica is a device and a rank: a share of a node if "
    "there are several; only data that are decoded in steps have workers; seeds have 32 bits",
    "No command line gives another configuration.",
)
def settings_fit_the_device(facts: Facts) -> Iterator[str]:
    """Check what settings say about the device and the data."""
    given, device = facts.configuration, facts.document["accelerator"]
    if given["device"] == "cpu" and given["device_iterations"] != 1:
        yield differ("configuration.device_iterations", given["device_iterations"], 1, "the device cpu")
    if given["device"] == "cpu" and "count" in device:
        several = facts.ranks
        numbers = (("count", several), ("ranks", several), ("replicas", given["replicas"]))
        for name, value in (*numbers, ("granularity", "share" if several > 1 else "node")):
            if device[name] != value:
                yield differ(f"accelerator.{name}", device[name], value, "the device cpu")
    without = given["data"] in ("synthetic", "csv") or given["concurrency"] is not None
    if without != (given["data_workers"] is None):
        yield f"configuration.data_workers: {given['data_workers']!r} for the data {given['data']}"
    if given["seed"] >= SEEDS:
        yield f"configuration.seed: {given['seed']} has more than 32 bits"


@rule(
    "`steps.units` = `steps.count` x `batch_size` (x `device_iterations` in training); of a micro-benchmark x what all "
    "ranks do at all points",
    "Throughput counts units, and a step has a batch of them.",
)
def units_are_steps_times_batch(facts: Facts) -> Iterator[str]:
    """Compare the units with the steps."""
    expected = facts.count * facts.per_step
    if facts.steps["units"] != expected:
        yield differ("steps.units", facts.steps["units"], expected, "steps times batch")


@rule(
    "`steps.updates` = `steps.count` x `device_iterations` in training, else 0; in fp16 a scaler may have skipped "
    "some, but not all of a completed run",
    "Every training step updates the weights, unless its gradients overflow.",
)
def updates_follow_from_steps(facts: Facts) -> Iterator[str]:
    """Compare the updates with the steps."""
    expected = facts.count * facts.configuration["device_iterations"] if facts.task == "training" else 0
    updates = facts.steps["updates"]
    may_skip = facts.configuration["precision"] == "fp16" and facts.configuration["device"] != "ipu"
    if may_skip and 0 <= updates < expected and (updates or not facts.completed):
        return
    if updates != expected:
        yield differ("steps.updates", facts.steps["updates"], expected, "steps.count")


@rule(
    "`steps.quantiles` are those of the timed `steps.seconds`; they never fall from one to the next",
    "They stand for the steps where these are too many to list.",
    ROUNDING,
)
def quantiles_are_those_of_the_steps(facts: Facts) -> Iterator[str]:
    """Compute the quantiles again."""
    given = facts.steps["quantiles"]
    if (given is None) != (facts.timed_count <= 0):
        yield "steps.quantiles: there are quantiles where there are timed steps"
    elif given is not None:
        values = [given[f"p{share}"] for share in QUANTILES]
        if values != sorted(values) or values[0] < 0:
            yield f"steps.quantiles: {values} do not rise"
        if facts.timed:
            ordered = sorted(facts.timed)
            for share, value in zip(QUANTILES, values):
                expected = quantile(ordered, share / 100)
                if not near(value, expected):
                    yield differ(f"steps.quantiles.p{share}", value, expected, "steps.seconds")


@rule("0 <= each of `steps.data_wait_seconds` <= the step's seconds", "A step's time includes its wait.", ROUNDING)
def waits_are_parts_of_steps(facts: Facts) -> Iterator[str]:
    """Compare each wait with its step."""
    waits = facts.steps["data_wait_seconds"]
    if waits is None or facts.seconds is None:
        return
    for number, (wait, step) in enumerate(zip(waits, facts.seconds), start=1):
        if wait > step and not near(wait, step):
            yield differ(f"steps.data_wait_seconds of step {number}", wait, step, "at most the step's time")
            return


@rule(
    "`batch_size` = `micro_batch_size` x `gradient_accumulation` x `replicas` (x `device_iterations` outside training)",
    "A batch is what its parts make.",
)
def batch_is_the_product_of_its_parts(facts: Facts) -> Iterator[str]:
    """Multiply the parts of a batch."""
    configuration = facts.configuration
    product = configuration["micro_batch_size"] * configuration["gradient_accumulation"] * configuration["replicas"]
    if facts.task != "training":
        product *= configuration["device_iterations"]
    if product != configuration["batch_size"]:
        yield differ("configuration.batch_size", configuration["batch_size"], product, "the product of its parts")


@rule(
    "one of `steps` and `duration_seconds` bounds a run; `steps` = `epochs` x `steps_per_epoch` if epochs were asked "
    "for; warm-up leaves a step to time; a repeat's index is at most their number",
    "No command line gives another configuration.",
)
def length_is_bounded_once(facts: Facts) -> Iterator[str]:
    """Check what settings of the length say about each other."""
    given = facts.configuration
    if (given["steps"] is None) == (given["duration_seconds"] is None):
        yield "configuration.steps: either steps or duration_seconds bounds a run"
    if given["steps"] is not None and given["warmup_steps"] >= given["steps"]:
        yield differ(
            "configuration.warmup_steps", given["warmup_steps"], given["steps"], "fewer than configuration.steps"
        )
    if given["epochs"] is not None and given["steps"] != given["epochs"] * (given["steps_per_epoch"] or 0):
        yield "configuration.epochs: they are not configuration.steps in steps_per_epoch each"
    if given["repeat"]["index"] > given["repeat"]["of"]:
        yield "configuration.repeat: its index is larger than the number of runs"


@rule(
    "only training accumulates gradients, computes activations again or has a goal; only inference has requests; the "
    "host keeps only what ranks divide on accelerators; one stage and one rank have no strategy; only IPUs have "
    "instances, which share their replicas equally; a smoke run has no correctness check; synthetic data have no path",
    "No command line gives another configuration.",
)
def settings_fit_the_task(facts: Facts) -> Iterator[str]:
    """Check what settings say about each other and the task."""
    given, training = facts.configuration, facts.task == "training"
    if given["gradient_accumulation"] != 1 and not training:
        yield f"configuration.gradient_accumulation: {facts.task} has no gradients"
    if given.get("activation_checkpointing") and not training:
        yield f"configuration.activation_checkpointing: {facts.task} keeps no activations"
    if given["goal"] is not None and not training:
        yield f"configuration.goal: {facts.task} trains nothing"
    if given["concurrency"] is not None and facts.task != "inference":
        yield f"configuration.concurrency: {facts.task} answers no requests"
    yield from _about_parallelism(facts)
    if given["smoke"] and given["probe_numerics"]:
        yield "configuration.probe_numerics: a smoke run has no correctness check"
    if (given["data"] == "synthetic") != (given["data_path"] is None):
        yield "configuration.data_path: data on disk have a path, and synthetic data have none"


def _about_parallelism(facts: Facts) -> Iterator[str]:
    """Check how devices share the work."""
    given, of_ipus = facts.configuration, facts.configuration["device"] == "ipu"
    training_on_ipu = of_ipus and facts.task == "training"
    if given.get("offload") and (given["strategy"] not in SHARDED or given["device"] == "cpu") and not training_on_ipu:
        yield "configuration.offload: only what ranks divide on accelerators is kept on the host"
    if given.get("tune_kernels") and given["device"] != "cuda":
        yield f"configuration.tune_kernels: a {given['device']} has no kernels to try"
    if given["strategy"] not in _strategies(facts):
        yield "configuration.strategy: it says how several stages alternate, or how several ranks train"
    yield from _about_degrees(given, of_ipus)
    for name in ("memory_proportion", "io_tiles"):
        if given.get(name) is not None and not of_ipus:
            yield f"configuration.{name}: {given['device']} has no such setting"
    if len(given.get("memory_proportion") or [0]) not in (1, given["stages"]):
        yield "configuration.memory_proportion: there is one number for all stages, or one for each"
    instances = given.get("instances", 1)
    if instances != 1 and (not of_ipus or given["replicas"] % instances):
        yield f"configuration.instances: {instances} share no {given['replicas']} replicas on {given['device']}"


def _about_degrees(given: Mapping[str, Any], of_ipus: bool) -> Iterator[str]:
    """Check how many ranks lie along each dimension of a mesh."""
    parts = given.get("tensor", 1) * given.get("virtual_stages", 1)
    if (parts > 1 or given.get("shards")) and of_ipus:
        yield "configuration.tensor: an IPU has no such setting, nor virtual stages and shards"
    if given.get("virtual_stages", 1) > 1 and given["stages"] == 1:
        yield differ("configuration.virtual_stages", given["virtual_stages"], 1, "configuration.stages")
    if given.get("shards") and (given["strategy"] not in SHARDED or given["replicas"] % given["shards"]):
        yield "configuration.shards: only what replicas divide has shards, in equal groups of them"


def _strategies(facts: Facts) -> Sequence[str | None]:
    """Return the strategies that a run of these devices, stages and replicas can have."""
    given, training = facts.configuration, facts.task == "training"
    if given["device"] == "ipu":
        return IPU_SCHEDULES if given["stages"] > 1 else (None,)
    if training and given["replicas"] > 1:
        return DATA_PARALLEL
    if "tensor" not in given and given["stages"] > 1:  # of images that called all parts stages
        return MODEL_PARALLEL if training else (TENSOR,)
    of_parts = {PIPELINED: given["stages"], TENSOR: given.get("tensor", 1)}
    return [strategy for strategy, degree in of_parts.items() if degree > 1] or (None,)


@rule(
    "`steps_per_epoch` = `samples_per_epoch` // the samples of a step; `samples_per_epoch` = `data.samples` of data on "
    "disk, and a step has all `data.samples` of synthetic data",
    "An epoch is a pass over the data.",
)
def epochs_fit_the_data(facts: Facts) -> Iterator[str]:
    """Compare the size of an epoch with the data."""
    given, samples = facts.configuration, facts.document["data"]["samples"]
    of_epoch = given["samples_per_epoch"]
    expected = None if of_epoch is None else of_epoch // facts.per_step
    if given["steps_per_epoch"] != expected:
        yield differ("configuration.steps_per_epoch", given["steps_per_epoch"], expected, "samples_per_epoch")
    if samples is None or facts.task == "sampling":
        return
    if given["data"] != "synthetic" and of_epoch != samples:
        yield differ("configuration.samples_per_epoch", of_epoch, samples, "data.samples")
    batch = facts.per_step if facts.points is None else given["batch_size"]  # of buffers, a set for each rank
    if given["data"] == "synthetic" and samples != batch:
        yield differ("data.samples", samples, batch, "one synthetic batch")


@rule(
    "`data.source` = `configuration.data`; `data.skipped` lists the first ten of its count; at most a class a sample",
    "Both name the same data.",
)
def data_are_those_asked_for(facts: Facts) -> Iterator[str]:
    """Compare the data with the configuration."""
    data, skipped = facts.document["data"], facts.document["data"]["skipped"]
    if data["source"] != facts.configuration["data"]:
        yield differ("data.source", data["source"], facts.configuration["data"], "configuration.data")
    if len(skipped["examples"]) != min(skipped["count"], 10):
        yield differ("data.skipped.examples", len(skipped["examples"]), min(skipped["count"], 10), "data.skipped.count")
    if data["source"] == "synthetic" and skipped["count"]:
        yield "data.skipped.count: synthetic data have no damaged samples"
    if data["classes"] is not None and data["samples"] is not None and data["classes"] > data["samples"]:
        yield differ("data.classes", data["classes"], data["samples"], "at most data.samples")
