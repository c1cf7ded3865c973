"""The load on an engine that follows from options: arrivals, lengths, limits."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Mapping

from entrypoints.contract.choices import SERVING
from entrypoints.contract.statuses import UsageError
from entrypoints.planning.arguments import Options
from entrypoints.serving.early_stopping import FEWEST
from entrypoints.serving.load import CLOSED, OFFLINE, POISSON, TRANSFORMERS, VLLM, Serving

LENGTHS, SMOKE_LENGTHS = ((1024, 1024), (128, 128)), ((32, 32), (8, 8))
FRAMEWORK, DEVICES = "pytorch", ("cpu", "cuda")  # that engines have here
OURS = ("--engine", "--rate", "--arrivals", "--lengths", "--limits", "--find-goodput")


def require(options: Options, framework: str, device: str) -> None:
    """Raise UsageError for what serving cannot do, and for its options with another task."""
    if options.task != SERVING:
        ours = (options.engine, options.rate, options.arrivals, options.lengths, options.limits, options.find_goodput)
        for name, value in zip(OURS, ours):
            if value:
                raise UsageError(f"{name} is for --task serving, and this is {options.task}", "add it, or leave it out")
        return
    if framework != FRAMEWORK or device not in DEVICES:
        raise UsageError(
            f"--task serving: no engine here runs on {device} beside {framework}", "take an image of cpu, cuda or rocm"
        )
    theirs = {
        "--duration": options.duration,
        "--epochs": options.epochs,
        "--samples-per-epoch": options.samples_per_epoch,
        "--compile": options.compile,
        "--batch-size": options.batch_size,
        "--batch-sizes": options.batch_sizes,
        "--micro-batch-size": options.micro_batch_size,
        "--find-max-batch": options.find_max_batch,
        "--replicas": options.replicas > 1,
        "--stages": options.stages > 1,
        "--data": options.data != "synthetic",
        "--measured-peak": options.measured_peak,
    }
    for name, given in theirs.items():
        if given:
            raise UsageError(
                f"{name}: an engine batches requests by itself, and a run is a number of them",
                "leave it out; --steps is the number of requests",
            )
    _require_load(options)


def require_proof(load: Serving | None, steps: int | None, warmup: int) -> None:
    """Raise UsageError if goodput is looked for with fewer timed requests than prove a limit."""
    if load and load["find_goodput"] and steps and steps - warmup < FEWEST:
        raise UsageError(
            f"--find-goodput: {steps - warmup} timed requests prove no 99th percentile",
            f"give --steps {warmup + FEWEST} or more",
        )


def _require_load(options: Options) -> None:
    """Raise UsageError for a load that contradicts itself."""
    if options.rate and options.concurrency:
        raise UsageError(
            "--rate with --concurrency: requests are due at times of their own, or clients send when they have answers",
            "leave one of them out",
        )
    if (options.arrivals or options.find_goodput) and not options.rate:
        raise UsageError("--arrivals and --find-goodput are of an open loop", "add --rate, in requests/s")


def load(options: Options, defaults: Mapping[str, Any]) -> Serving | None:
    """Return the load of a run; None of another task."""
    if options.task != SERVING:
        return None
    kind, burstiness = options.arrivals or (POISSON, None)
    prompt, new = options.lengths or (SMOKE_LENGTHS if options.smoke else LENGTHS)
    first_token, token = options.limits or (milliseconds / 1000 for milliseconds in defaults["limits"])
    return {
        "engine": options.engine or (VLLM if find_spec(VLLM) else TRANSFORMERS),
        "arrivals": kind if options.rate else CLOSED if options.concurrency else OFFLINE,
        "rate": options.rate,
        "burstiness": burstiness if options.rate else None,
        "concurrency": options.concurrency,
        "prompt_lengths": list(prompt),
        "answer_lengths": list(new),
        "first_token_limit": first_token,
        "token_limit": token,
        "find_goodput": options.find_goodput,
    }
