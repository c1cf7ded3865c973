"""The parent process, from command line to exit code. Standard library and jsonschema only."""

from __future__ import annotations

import sys
from typing import Callable, Sequence

from entrypoints.cli.naming import runnable
from entrypoints.contract.statuses import USAGE_EXIT, UsageError
from entrypoints.planning import arguments
from entrypoints.planning.arguments import Options
from entrypoints.system import image
from entrypoints.system.console import aligned, fail


def main(argv: Sequence[str]) -> int:
    """Execute the command line and return the exit code."""
    try:
        wrong = image.other_python()
        if wrong:
            raise UsageError(*wrong, code="interpreter-unusable")
        options = arguments.parse(argv)
        return _verb(options.verb)(options)
    except UsageError as error:
        fail(error.cause, error.remedy, error.code)
        return USAGE_EXIT


def list_workloads(options: Options) -> int:
    """Print the workloads, as a table or as JSON; operations are those of a forward pass, if the workload is one."""
    if options.json:
        import json  # here: the table does not need it

        cards = [card._asdict() for card in runnable().values()]
        sys.stdout.write(json.dumps(cards, indent=2) + "\n")
        return 0
    rows = [("WORKLOAD", "TASKS", "UNIT", "PARAMETERS", "GFLOP/UNIT", "TITLE")]
    for card in runnable().values():
        unit, parameters = card.problem["unit"], f"{card.problem['parameters']:,}"
        operations = card.flops.get("forward_per_unit") or card.flops_per_unit(card.tasks[0])
        flops = f"{operations / 1e9:.3f}"
        rows.append((card.name, ",".join(card.tasks), unit, parameters, flops, card.title))
    sys.stdout.writelines(f"{line}\n" for line in aligned(rows))
    return 0


def show_version(_: Options) -> int:
    """Print version and build of this image."""
    built = image.read()
    text = f"{built['version']} (image {built['recipe']}, {built['build_key']})" if built else image.ABSENT
    sys.stdout.write(f"sifmark {text}\n")
    return 0


def _verb(name: str) -> Callable[[Options], int]:
    if name in AT_ONCE:
        return AT_ONCE[name]
    from entrypoints.cli import verbs  # late: listing the workloads does not need all of it

    return verbs.VERBS[name]


AT_ONCE = {"list": list_workloads, "version": show_version}
