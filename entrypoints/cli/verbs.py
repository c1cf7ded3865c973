"""The verbs that resolve a configuration: run, check, describe."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Mapping

from entrypoints.cli import naming
from entrypoints.contract.cards import Card
from entrypoints.contract.statuses import UsageError
from entrypoints.devices import selection
from entrypoints.planning import configuration, plan
from entrypoints.planning.arguments import Options
from entrypoints.results.outcome import Verdict
from entrypoints.system import image
from entrypoints.system.console import say


def run(options: Options) -> int:
    """Run a workload, once or more, or all of them, and put the documents where they were asked for."""
    from entrypoints.runs.series import Series  # late: it brings jsonschema, which the other verbs do without

    meant, built = naming.find(options)
    if options.device == selection.AUTO:
        choice = selection.choose(selection.offered_kinds(*image.target(built), built is not None))
        say(f"--device auto: {choice.kind}, since {choice.why}")
    planned = [(card, plans(options, card, built)) for card in meant]
    refused = [(card, found) for card, found in planned if isinstance(found, UsageError)]
    if len(refused) == len(planned):
        raise refused[0][1]
    for card, refusal in refused:
        say(f"left out: {card.name}: {refusal}")
    runs = [(card, found) for card, found in planned if not isinstance(found, UsageError)]
    return Series(runs, built, options).run()


def plans(
    options: Options, card: Card, built: Mapping[str, Any] | None
) -> list[configuration.Configuration] | UsageError:
    """The runs of a workload, or why it cannot take the options."""
    try:
        return plan.plan(options, card, built)
    except UsageError as error:
        return error


def check(options: Options) -> int:
    """Probe the numerics of the workload that is meant, or of all; a device that is not there is a skip.

    What has been computed for one workload is not computed again for another that is probed alike.
    """
    from entrypoints.contract import reference
    from entrypoints.runs import numerics_check
    from entrypoints.runs.supervise import Orders

    orders = Orders(options.time_limit)
    known = naming.runnable()
    one = None if options.all else naming.named(options.workload, os.environ, list(known))
    meant, built = naming.find(options if one else options._replace(all=True))
    verdicts: dict[tuple[str, str], Verdict] = {}
    for card in meant:
        resolved = configuration.resolve(options, card, built)
        probed = (reference.probed_problem(card), resolved.precision)
        if probed not in verdicts:
            verdicts[probed] = numerics_check.check(card, resolved, orders)
        verdict = verdicts[probed]
        skipped = verdict.state == "no_device"
        say(f"check of {card.name}: {'skipped' if skipped else verdict.state}, {verdict.message}")
        if verdict.exit_code and not skipped:
            return verdict.exit_code
    return 0


def describe(options: Options) -> int:
    """What would run, as JSON on standard output; where several runs would, one a line."""
    meant, built = naming.find(options)
    planned = [(card, run) for card in meant for run in plan.plan(options, card, built)]
    for card, resolved in planned:
        workload = {**card._asdict(), "identity": card.identity}
        described = {"workload": workload, "configuration": resolved.as_json(), "image": built}
        sys.stdout.write(json.dumps(described, indent=None if len(planned) > 1 else 2) + "\n")
    return 0


VERBS = {"run": run, "check": check, "describe": describe}
