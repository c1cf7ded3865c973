"""The parent process, from command line to exit code. Standard library and jsonschema only."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any, Mapping, Sequence

from entrypoints import arguments, cards, configuration, image, naming
from entrypoints.arguments import Options
from entrypoints.cards import Card
from entrypoints.configuration import Configuration
from entrypoints.statuses import USAGE_EXIT, UsageError

# A check is the smallest run there is: forward on one sample, twice.
CHECK: dict[str, Any] = {
    "task": "inference",
    "precision": None,
    "batch_size": 1,
    "concurrency": None,
    "steps": 2,
    "warmup_steps": 1,
    "data": "synthetic",
    "meter": "none",
}


def main(argv: Sequence[str]) -> int:
    """Do what the command line asks; the return value is the exit code."""
    try:
        options = arguments.parse(argv)
        return VERBS[options.verb](options)
    except UsageError as error:
        say(f"{error}")
        return USAGE_EXIT


def say(text: str) -> None:
    """One line for people."""
    sys.stderr.write(f"sifmark: {text}\n")


def resolve(options: Options) -> tuple[Card, Mapping[str, Any] | None, Configuration]:
    """The card that is meant, this image, and the configuration. Raises UsageError."""
    known = cards.load()
    card = known[naming.choose(options.workload, os.environ, list(known))]
    built = image.read()
    return card, built, configuration.resolve(options, card, built)


def run(options: Options) -> int:
    """Run a workload and put the document where it was asked for."""
    from entrypoints import running  # late: it brings jsonschema, which the other verbs do without

    return running.run(*resolve(options), options)


def check(options: Options) -> int:
    """Test the image on the named workload or on all; a device that is not there is a skip."""
    from entrypoints import running

    for name in [options.workload] if options.workload else list(cards.load()):
        card, _, resolved = resolve(dataclasses.replace(options, workload=name, **CHECK))
        verdict = running.execute(card, resolved).verdict
        skipped = verdict.state == "no_device"
        say(f"check of {name}: {'skipped' if skipped else verdict.state}, {verdict.message}")
        if verdict.exit_code and not skipped:
            return verdict.exit_code
    return 0


def describe(options: Options) -> int:
    """What would run, as JSON on standard output."""
    card, built, resolved = resolve(options)
    workload = {**dataclasses.asdict(card), "identity": card.identity}
    described = {"workload": workload, "configuration": resolved.as_json(), "image": built}
    sys.stdout.write(json.dumps(described, indent=2) + "\n")
    return 0


def list_workloads(_: Options) -> int:
    """Table of the workloads on standard output."""
    rows = [("WORKLOAD", "TASKS", "UNIT", "PARAMETERS", "TITLE")]
    for card in cards.load().values():
        unit, parameters = card.problem["unit"], f"{card.problem['parameters']:,}"
        rows.append((card.name, ",".join(card.tasks), unit, parameters, card.title))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
        sys.stdout.write(line.rstrip() + "\n")
    return 0


def show_version(_: Options) -> int:
    """Version and build of this image on standard output."""
    built = image.read()
    text = f"{built['version']} (image {built['recipe']}, {built['build_key']})" if built else image.ABSENT
    sys.stdout.write(f"sifmark {text}\n")
    return 0


VERBS = {"run": run, "check": check, "describe": describe, "list": list_workloads, "version": show_version}
