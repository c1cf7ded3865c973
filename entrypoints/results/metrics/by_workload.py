"""All metrics by name, and those that a workload can have."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any, Callable, Mapping

from entrypoints.contract.cards import causal, generates, tokenised
from entrypoints.contract.choices import SERVING
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.results.measurement import Measurement
from entrypoints.results.metrics import (
    attention,
    chains,
    compute,
    devices,
    energy,
    generation,
    latency,
    points,
    ranks,
    serving,
    steps,
    throughput,
    tokens,
    training,
)
from entrypoints.results.metrics.metric import Metric

MetricFunction = Callable[[Measurement], Metric]
ALWAYS = (throughput, steps, latency, training, devices, compute, energy)


def _defined_in(*modules: ModuleType) -> dict[str, MetricFunction]:
    """Return the public functions that modules define, by name."""
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


OF_ATTENTION = frozenset(_defined_in(attention))
OF_TOKENS = frozenset(_defined_in(tokens))
OF_GENERATION = frozenset(_defined_in(generation))
OF_CHAINS = frozenset(_defined_in(chains))
OF_RANKS = frozenset(_defined_in(ranks))
OF_POINTS = frozenset(_defined_in(points))
OF_SERVING = frozenset(_defined_in(serving))
TOKEN_TIMES = {name for name in OF_GENERATION if name.startswith("time_")}  # which an engine's requests have, too


def every_metric() -> dict[str, MetricFunction]:
    """Return every metric, in the order of their names."""
    return dict(sorted(_defined_in(*ALWAYS, attention, tokens, generation, chains, ranks, points, serving).items()))


def possible_metrics(problem: Mapping[str, Any], task: str, ranks: int) -> dict[str, MetricFunction]:
    """Return every metric, except those of causal attention, tokens, texts, chains, ranks, points and an engine's
    requests if it has none."""
    impossible = impossible_metrics(problem, task, ranks)
    return {name: metric for name, metric in every_metric().items() if name not in impossible}


def impossible_metrics(problem: Mapping[str, Any], task: str, ranks: int) -> frozenset[str]:
    """Return the names of the metrics that a workload cannot have on so many ranks."""
    return (
        (frozenset() if causal(problem) and task != SERVING else OF_ATTENTION)
        | (frozenset() if tokenised(problem) and task != SERVING else OF_TOKENS)
        | (OF_GENERATION - TOKEN_TIMES if task == SERVING else OF_SERVING)
        | (frozenset() if generates(problem, task) or task == SERVING else OF_GENERATION)
        | (frozenset() if task == "sampling" else OF_CHAINS)
        | (frozenset() if ranks > 1 else OF_RANKS)
        | (frozenset() if task == MICROBENCHMARK else OF_POINTS)
    )
