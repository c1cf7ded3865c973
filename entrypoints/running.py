"""One run in the parent: execute it in a child, make the document, check it and write it."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from datetime import datetime, timezone
from typing import Any, Callable, Iterator, Mapping, NamedTuple

from entrypoints import host, result
from entrypoints.arguments import Options
from entrypoints.cards import Card
from entrypoints.configuration import Configuration
from entrypoints.energy import Metered
from entrypoints.measurement import Measurement, fold
from entrypoints.messages import Message
from entrypoints.meters import Absence, open_meter
from entrypoints.metrics import throughput
from entrypoints.numerics import Numerics, not_run
from entrypoints.numerics import judge as judge_numerics
from entrypoints.output import Contract, Writer
from entrypoints.progress import Progress
from entrypoints.reference import load as load_reference
from entrypoints.sampling import Sampler
from entrypoints.statuses import INVALID_RESULT_EXIT
from entrypoints.steadiness import warning
from entrypoints.supervise import Child, Orders
from entrypoints.verdict import Verdict, judge, with_numerics


class Executed(NamedTuple):
    """What came of a child."""

    measurement: Measurement
    verdict: Verdict


def run(card: Card, image: Mapping[str, Any] | None, resolved: Configuration, options: Options) -> int:
    """Run, write the document, return the exit code. Raises UsageError before anything runs."""
    writer, contract = Writer(options.output), Contract()
    started = datetime.now(timezone.utc)
    facts, conditions, counters = host.facts(), host.conditions(), host.counters()
    orders = Orders(resolved.time_limit_seconds)
    numerics = prove(card, resolved, orders)
    executed = execute(card, resolved, orders, numerics)
    context = result.Context(
        card=card,
        configuration=resolved,
        image=image,
        host=facts,
        conditions=conditions,
        conditions_after=host.conditions_after(counters),
        site=options.site,
        command=sys.argv[1:],
        started=started,
        finished=datetime.now(timezone.utc),
        numerics=numerics,
        jsonschema_version=contract.library_version,
    )
    return deliver(result.document(executed.measurement, executed.verdict, context), contract, writer)


def check(card: Card, resolved: Configuration) -> Verdict:
    """Probe the numerics and nothing else."""
    verdict, numerics = probe(card, resolved, Orders(resolved.time_limit_seconds))
    judged = with_numerics(verdict, numerics)
    return judged if judged.exit_code else judged._replace(message=f"numerics {numerics}")


def prove(card: Card, resolved: Configuration, orders: Orders) -> Numerics:
    """Probe the numerics before a run that asks for it, with notes on standard error."""
    if not resolved.probe_numerics:
        return not_run(f"the probe was left out ({'--smoke' if resolved.smoke else '--skip-numerics'})")
    if load_reference(card) is None:
        return judge_numerics([], None)
    progress = Progress(resolved, card.problem["unit"], sys.stderr)
    progress.note(f"{resolved.workload} on {resolved.device}: probing numerics")
    _, numerics = probe(card, resolved, orders)
    progress.note(f"{resolved.workload} on {resolved.device}: numerics {numerics}")
    return numerics


def probe(card: Card, resolved: Configuration, orders: Orders) -> tuple[Verdict, Numerics]:
    """Probe the numerics in a child of its own, so that nothing of it is left in the run."""
    child = Child(resolved, orders, "probe")
    messages = list(child.messages())
    verdict = judge(messages, child.ending())
    if verdict.state != "completed":
        return verdict, not_run(f"the probe ended in {verdict.state}: {verdict.message}")
    return verdict, judge_numerics(messages, load_reference(card))


def execute(card: Card, resolved: Configuration, orders: Orders, numerics: Numerics) -> Executed:
    """Run the configuration in a child, with progress on standard error."""
    messages: list[Message] = []
    progress = Progress(resolved, card.problem["unit"], sys.stderr)
    length = f"{resolved.steps} steps" if resolved.steps else f"{resolved.duration_seconds:g} s"
    progress.note(
        f"{resolved.workload} {resolved.task} on {resolved.device}: {resolved.precision}, "
        f"batch {resolved.batch_size}, {length}"
    )
    with metering(resolved, orders, progress) as metered:
        child = Child(resolved, orders)
        for message in child.messages():
            messages.append(message)
            progress.follow(message)
    verdict = with_numerics(judge(messages, child.ending()), numerics)
    measurement = fold(
        messages,
        card.problem["unit"],
        resolved.task,
        resolved.steps_per_epoch,
        child.peak_memory_mib(),
        metered(),
        card.flops_per_unit(resolved.task),
        resolved.precision,
    )
    rate = throughput(measurement)
    speed = "" if rate.value is None else f", {rate.value:.2f} {rate.unit}"
    progress.note(f"{resolved.workload} {resolved.task}: {verdict.state} ({verdict.message}){speed}")
    if unsteady := warning(measurement):
        progress.note(unsteady)
    return Executed(measurement, verdict)


@contextlib.contextmanager
def metering(resolved: Configuration, orders: Orders, progress: Progress) -> Iterator[Callable[[], Metered]]:
    """Meter power as long as the context is open, idle power first; what was metered is for asking afterwards."""
    meter = open_meter(resolved.meter, resolved.device)
    if isinstance(meter, Absence):
        absence = meter
        yield lambda: absence
        return
    sampler = Sampler(meter, resolved.meter_period_seconds)
    with sampler.running():
        if resolved.idle_seconds:
            source, devices = meter.facts.source, ", ".join(meter.facts.devices)
            progress.note(f"measuring idle power for {resolved.idle_seconds:g} s ({source}: {devices})")
            orders.rest(resolved.idle_seconds)
            sampler.idle_until = time.monotonic()
        yield sampler.recording


def deliver(document: Mapping[str, Any], contract: Contract, writer: Writer) -> int:
    """Validate and write. Where either fails the document still goes somewhere: measuring it took time."""
    complaints = contract.problems(document)
    if complaints:
        sys.stderr.write("sifmark: the result does not validate, a defect of sifmark:\n")
        sys.stderr.write("\n".join([*complaints, json.dumps(document), ""]))
        return INVALID_RESULT_EXIT
    try:
        writer.write(document)
    except OSError as error:
        sys.stderr.write(f"sifmark: the result could not be written: {error}. Here it is:\n")
        sys.stderr.write(json.dumps(document, allow_nan=False) + "\n")
        return INVALID_RESULT_EXIT
    exit_code: int = document["status"]["exit_code"]
    return exit_code
