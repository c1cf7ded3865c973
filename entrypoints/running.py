"""One run in the parent: execute it in a child, make the document, check it and write it."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any, Mapping, NamedTuple

from entrypoints import host, result
from entrypoints.arguments import Options
from entrypoints.cards import Card
from entrypoints.configuration import Configuration
from entrypoints.measurement import Measurement, fold
from entrypoints.messages import Message
from entrypoints.metrics import throughput
from entrypoints.output import Contract, Writer
from entrypoints.progress import Progress
from entrypoints.statuses import INVALID_RESULT_EXIT
from entrypoints.supervise import Child
from entrypoints.verdict import Ending, Verdict, judge


class Executed(NamedTuple):
    """What came of a child."""

    measurement: Measurement
    verdict: Verdict


def run(card: Card, image: Mapping[str, Any] | None, resolved: Configuration, options: Options) -> int:
    """Run, write the document, return the exit code. Raises UsageError before anything runs."""
    writer, contract = Writer(options.output), Contract()
    started = datetime.now(timezone.utc)
    facts, conditions = host.facts(), host.conditions()
    executed = execute(card, resolved)
    context = result.Context(
        card=card,
        configuration=resolved,
        image=image,
        host=facts,
        conditions=conditions,
        site=options.site,
        command=sys.argv[1:],
        started=started,
        finished=datetime.now(timezone.utc),
        jsonschema_version=contract.library_version,
    )
    return deliver(result.document(executed.measurement, executed.verdict, context), contract, writer)


def execute(card: Card, resolved: Configuration) -> Executed:
    """Run the configuration in a child, with progress on standard error."""
    messages: list[Message] = []
    progress = Progress(resolved, card.problem["unit"], sys.stderr)
    length = f"{resolved.steps} steps" if resolved.steps else f"{resolved.duration_seconds:g} s"
    progress.note(
        f"{resolved.workload} {resolved.task} on {resolved.device}: {resolved.precision}, "
        f"batch {resolved.batch_size}, {length}"
    )
    child = Child(resolved)
    for message in child.messages():
        messages.append(message)
        progress.follow(message)
    ending = Ending(child.process.returncode, child.stopped_by, next(iter(child.signals), None), child.oom_killed())
    verdict = judge(messages, ending)
    measurement = fold(messages, card.problem["unit"], resolved.task, resolved.steps_per_epoch, child.peak_memory_mib())
    rate = throughput(measurement)
    speed = "" if rate.value is None else f", {rate.value:.2f} {rate.unit}"
    progress.note(f"{resolved.workload} {resolved.task}: {verdict.state} ({verdict.message}){speed}")
    return Executed(measurement, verdict)


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
