"""One run in the parent: executed in a child, metered, and its outcome determined."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import socket
import sys
from datetime import datetime, timezone
from typing import Mapping, NamedTuple, Sequence

from entrypoints.contract.cards import Card
from entrypoints.contract.target import Target
from entrypoints.metering.energy import Consumed, Metered
from entrypoints.metering.meters import rapl
from entrypoints.planning.configuration import Configuration
from entrypoints.results.measurement import Measurement, fold
from entrypoints.results.outcome import Ending, Outcome, determine_outcome, inconsistent
from entrypoints.results.power import consumed, of_as_many_steps
from entrypoints.results.ranks import combined
from entrypoints.results.roofline import flops_of_unit, work_of_step
from entrypoints.runs.evaluation import evaluated
from entrypoints.runs.group import NOBODY_ELSE, Rank, Team, converse, ended
from entrypoints.runs.metered import metering
from entrypoints.runs.progress import Progress
from entrypoints.runs.supervise import Orders
from entrypoints.system import host, memory
from entrypoints.system.facts import Fact, fact
from entrypoints.system.feed import opened_feed


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
    with opened_feed(os.environ) as feed:
        return _execute(card, resolved, orders, team, Progress(resolved, card.problem["unit"], sys.stderr, feed))


def _execute(card: Card, resolved: Configuration, orders: Orders, team: Team, progress: Progress) -> ExecutedRun:
    length = f"{resolved.steps} steps" if resolved.steps else f"{resolved.duration_seconds:g} s"
    length += f", compiled ({resolved.compile})" if resolved.compile else ""
    progress.note(
        f"{resolved.workload} {resolved.task} on {resolved.device}: {resolved.precision}, "
        f"batch {resolved.batch_size}, {length}"
    )
    for note in (resolved.chosen_for or {"notes": []})["notes"]:
        progress.note(note)
    before = host.conditions(rapl.power_cap)
    started, counters = datetime.now(timezone.utc), host.counters()
    limit = resolved.memory_limit_mib or memory.default_limit(resolved.device, team.parts(resolved))
    limited = dataclasses.replace(resolved, memory_limit_mib=limit)
    places = team.assign("run", limited)
    with metering(resolved, orders, places, progress.note) as meter:
        progress.watts = meter.watts
        ranks = converse(
            limited, orders, places, follow=progress.follow, beat=progress.beat, team=team, rest=meter.rest
        )
    power, others = meter.recording(), [other.consumed for other in team.others]
    measurement, outcome = evaluated(
        lambda: judge(ranks, measured(ranks, power, card, resolved, others, len(places)), resolved, limit),
        lambda outcome: (fold([], card.problem["unit"], resolved.task), outcome),
    )
    progress.end()
    finished = datetime.now(timezone.utc)
    after = host.conditions_after(counters)
    return ExecutedRun(resolved, before, after, started, finished, measurement, outcome)


def measured(
    ranks: Sequence[Rank],
    power: Metered,
    card: Card,
    resolved: Configuration,
    others: Sequence[Consumed] = (),
    local_ranks: int | None = None,
) -> Measurement:
    """Return what ranks measured, of which the first `local_ranks` are those of this task, whose meter is `power`."""
    fold_one = functools.partial(
        fold,
        unit=card.problem["unit"],
        task=resolved.task,
        steps_per_epoch=resolved.steps_per_epoch,
        flops=flops_of_unit(card, resolved.task),
        work=work_of_step(card, resolved.task, resolved.as_json()),
        precision=resolved.precision,
        target=resolved.goal,
        measured_peak=resolved.measured_peak,
        serving=resolved.serving,
    )
    each = [fold_one(rank.messages, peak_process_mib=rank.ending.peak_mib) for rank in ranks if resolved.ranks > 1]

    def together(some: Sequence[Rank], own: Sequence[Measurement], tasks: Sequence[Consumed] = ()) -> Measurement:
        peaks = [rank.ending.peak_mib for rank in some if rank.ending.peak_mib is not None]
        messages = combined([rank.messages for rank in some], resolved.first_ranks)
        return fold_one(messages, peak_process_mib=max(peaks, default=None), power=power, ranks=own, tasks=tasks)

    if not others:
        return together(ranks, each)
    here = together(ranks[:local_ranks], each[:local_ranks])
    host_name = here.placed.host if here.placed else socket.gethostname()
    steps = min(len(rank.timed_steps) for rank in each)
    tasks = [of_as_many_steps(task, steps) for task in (consumed(here, host_name), *others)]
    return together(ranks, each, tasks)


def judge(
    ranks: Sequence[Rank], measurement: Measurement, resolved: Configuration, limit: int | None
) -> tuple[Measurement, Outcome]:
    """Return what the ranks of a run measured, and how it ended. `limit` is that of memory."""
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
