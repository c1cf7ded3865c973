"""One run in the parent: executed in a child, metered, and its outcome determined."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
import time
from datetime import datetime, timezone
from typing import Callable, Iterator, Mapping, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.target import Target
from entrypoints.metering.energy import Metered, rest_needed
from entrypoints.metering.meter import Absence
from entrypoints.metering.meters import rapl
from entrypoints.metering.sampling import Sampler
from entrypoints.metering.selection import open_meter
from entrypoints.planning.configuration import Configuration
from entrypoints.results.measurement import Measurement, fold
from entrypoints.results.outcome import Ending, Outcome, determine_outcome, inconsistent
from entrypoints.results.ranks import combined
from entrypoints.runs.evaluation import evaluated
from entrypoints.runs.group import NOBODY_ELSE, Rank, Team, converse, ended
from entrypoints.runs.progress import Progress
from entrypoints.runs.ranks import counted_elsewhere
from entrypoints.runs.supervise import Orders
from entrypoints.system import host, memory
from entrypoints.system.facts import Fact, fact


class ExecutedRun(NamedTuple):
    """A run: its configuration, measurement and outcome, and the host's conditions before and after it."""

    configuration: Configuration
    conditions: Mapping[str, Fact]
    conditions_after: Mapping[str, Fact]
    started: datetime
    finished: datetime
    measurement: Measurement
    outcome: Outcome


def not_begun(card: Card, resolved: Configuration, conditions: Mapping[str, Fact]) -> ExecutedRun:
    """Return a run that was never started."""
    now = datetime.now(timezone.utc)
    outcome = determine_outcome([], Ending(returncode=None, stopped_by="time_limit", signal=None, oom_killed=False))
    after, nothing = host.conditions_after(host.counters()), fold([], card.problem["unit"], resolved.task)
    return ExecutedRun(resolved, conditions, after, now, now, nothing, outcome)


def execute(card: Card, resolved: Configuration, orders: Orders, team: Team = NOBODY_ELSE) -> ExecutedRun:
    """Run the configuration in a child, with progress on standard error."""
    progress = Progress(resolved, card.problem["unit"], sys.stderr)
    length = f"{resolved.steps} steps" if resolved.steps else f"{resolved.duration_seconds:g} s"
    progress.note(
        f"{resolved.workload} {resolved.task} on {resolved.device}: {resolved.precision}, "
        f"batch {resolved.batch_size}, {length}"
    )
    before = host.conditions(rapl.power_cap)
    started, counters = datetime.now(timezone.utc), host.counters()
    limit = resolved.memory_limit_mib or memory.default_limit(resolved.device)
    with metering(resolved, orders, progress) as metered:
        limited = dataclasses.replace(resolved, memory_limit_mib=limit)
        ranks = converse(limited, orders, follow=progress.follow, team=team)
    power = metered()
    measurement, outcome = evaluated(
        lambda: judge(ranks, power, card, resolved, limit),
        lambda outcome: (fold([], card.problem["unit"], resolved.task), outcome),
    )
    progress.end()
    finished = datetime.now(timezone.utc)
    after = host.conditions_after(counters)
    return ExecutedRun(resolved, before, after, started, finished, measurement, outcome)


def judge(
    ranks: Sequence[Rank],
    power: Metered,
    card: Card,
    resolved: Configuration,
    limit: int | None,
) -> tuple[Measurement, Outcome]:
    """Return what the ranks of a run measured, and how it ended. `limit` is that of memory."""
    measurement = fold(
        combined([rank.messages for rank in ranks]),
        card.problem["unit"],
        resolved.task,
        resolved.steps_per_epoch,
        max((rank.ending.peak_mib for rank in ranks if rank.ending.peak_mib is not None), default=None),
        power,
        card.flops_per_unit(resolved.task),
        resolved.precision,
        resolved.goal,
        resolved.measured_peak,
    )
    outcome = ended(ranks)
    if outcome.state == "out_of_memory":
        outcome = outcome._replace(message=f"{outcome.message}; {bounds(measurement, resolved, limit)}")
    elif outcome.state == "completed" and resolved.goal:
        sentence = pursued(measurement, resolved.goal)
        outcome = outcome._replace(message=sentence) if sentence else inconsistent(["the target was never evaluated"])
    return measurement, outcome


def pursued(measurement: Measurement, target: Target) -> str | None:
    """Return how the pursuit of a target ended, as a sentence; None if it was never evaluated."""
    aim = f"{target['metric']} {target['value']:g}"
    if measurement.reaching:
        return f"the target, {aim}, was reached after {measurement.reaching.steps} steps"
    values = [getattr(evaluation, target["metric"]) for evaluation in measurement.evaluations]
    values = [value for value in values if value is not None]
    if not values:
        return None
    best = (max if target["metric"] == "accuracy" else min)(filter(math.isfinite, values), default=values[-1])
    return f"the target, {aim}, was not reached in {len(measurement.steps)} steps; the best was {best:.4g}"


def bounds(measurement: Measurement, resolved: Configuration, limit: int | None) -> str:
    """Return the batch that did not fit, and the memory limits, as a sentence."""
    limits = {
        "--memory-limit" if resolved.memory_limit_mib else "nine tenths of free memory": limit,
        "control group": fact(host.memory_limit)["value"],
        "host": fact(host.memory_mib)["value"],
        "device": measurement.device and measurement.device.memory_mib,
    }
    texts = [f"{name} {mib:.0f} MiB" for name, mib in limits.items() if mib is not None]
    return f"batch {resolved.batch_size}, limits of memory: {', '.join(texts) or 'unknown'}"


@contextlib.contextmanager
def metering(resolved: Configuration, orders: Orders, progress: Progress) -> Iterator[Callable[[], Metered]]:
    """Meter power while the context is open, idle power first; yield a function that then returns the recording."""
    meter = open_meter(resolved.meter, resolved.device)
    if isinstance(meter, Absence):
        absence = meter
        yield lambda: absence
        return
    sampler = Sampler(meter, resolved.meter_period_seconds)
    elsewhere = counted_elsewhere(meter.facts.source, meter.facts.devices)
    # A rank that does not count rests too: otherwise the counting one would take its work for idle power.
    with contextlib.nullcontext() if elsewhere else sampler.running():
        if resolved.idle_seconds:
            source, devices = meter.facts.source, ", ".join(meter.facts.devices)
            seconds = max(resolved.idle_seconds, rest_needed(meter.facts, resolved.meter_period_seconds))
            progress.note(f"measuring idle power for {seconds:g} s ({source}: {devices})")
            orders.rest(seconds)
            sampler.idle_until = time.monotonic()
        yield sampler.recording if elsewhere is None else lambda: Absence(elsewhere)
