"""The verbs that resolve a configuration: run, check, describe."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any, Mapping, Sequence

from entrypoints.cli import naming
from entrypoints.cli.bounds import bounds
from entrypoints.contract.cards import Card
from entrypoints.contract.points import MICROBENCHMARK
from entrypoints.contract.statuses import UNPROVEN_EXIT, UsageError
from entrypoints.devices import selection
from entrypoints.planning import plan
from entrypoints.planning.arguments import Options
from entrypoints.planning.configuration import Configuration
from entrypoints.planning.resolve import resolve
from entrypoints.results.outcome import Outcome
from entrypoints.runs.launch import LOCAL_REPLICAS, POPRUN, Launch, launch_of
from entrypoints.system import image
from entrypoints.system.console import status


def run(options: Options) -> int:
    """Run one workload or all, once or repeatedly, and write the documents to the requested place."""
    from entrypoints.runs.series import Series  # late: it imports jsonschema, which the other verbs do not need

    meant, built = naming.find(options)
    if options.device == selection.AUTO:
        choice = selection.choose(selection.offered_kinds(*image.target(built), built is not None))
        status(f"--device auto: {choice.kind}, since {choice.why}")
    runs = [(card, in_instances(each)) for card, each in possible_plans(options, meant, built)]
    return Series(runs, built, options, shared_launch(options, [run for _, each in runs for run in each])).run()


def in_instances(runs: Sequence[Configuration]) -> list[Configuration]:
    """Return the runs, those with several replicas of IPUs with the instances that poprun has started.

    Raises UsageError for what instances cannot do.
    """
    launch = _launch() if any(run.device == "ipu" and run.replicas > 1 for run in runs) else None
    if launch is None or launch.launcher != POPRUN:
        return list(runs)
    for run in runs:
        if run.concurrency:
            raise UsageError(
                "--concurrency with poprun: a request is answered by one instance", "start a run without it"
            )
        if run.replicas % launch.tasks:
            raise UsageError(
                f"--replicas {run.replicas}: poprun has started {launch.tasks} instances, which cannot share them "
                "equally",
                "give the number of its --num-replicas",
            )
        local = os.environ.get(LOCAL_REPLICAS, "")
        if local.isdecimal() and int(local) * launch.tasks != run.replicas:
            total = int(local) * launch.tasks
            raise UsageError(
                f"--replicas {run.replicas}: poprun has --num-replicas {total}", "give both the same number"
            )
    return [replace(run, instances=launch.tasks) for run in runs]


def _launch() -> Launch | None:
    """Return the launch that this process is a task of. Raises UsageError if its variables contradict each other."""
    try:
        return launch_of(os.environ)
    except ValueError as error:
        raise UsageError(str(error), "start this by a launcher, or without its variables") from None


def shared_launch(options: Options, runs: Sequence[Configuration]) -> Launch | None:
    """Return the launch whose tasks share the ranks of the runs; None if this process starts all of them.

    Raises UsageError if the launch cannot share them equally.
    """
    if all(run.ranks == 1 for run in runs):
        _require_no_rendezvous(options, "one device needs no other task")
        return None
    launch = _launch()
    if launch is None or launch.tasks == 1:
        _require_no_rendezvous(options, "no launcher has started several tasks")
        return None
    for run in runs:
        if run.ranks % launch.tasks:
            degrees = {"--replicas": run.replicas, "--stages": run.stages, "--tensor": run.tensor}
            asked = " ".join(f"{option} {degree}" for option, degree in degrees.items() if degree > 1)
            raise UsageError(
                f"{asked}: {launch.launcher} has started {launch.tasks} tasks, which cannot share them equally",
                "give a multiple, or start another number of tasks",
            )
    return launch._replace(head=options.rendezvous[0], port=options.rendezvous[1]) if options.rendezvous else launch


def _require_no_rendezvous(options: Options, why: str) -> None:
    """Raise UsageError if the tasks of a launch were to meet somewhere."""
    if options.rendezvous:
        raise UsageError(f"--rendezvous: {why}", "leave it out")


def possible_plans(
    options: Options, meant: Sequence[Card], built: Mapping[str, Any] | None
) -> list[tuple[Card, list[Configuration]]]:
    """Return the runs of each workload that can take the options, and say which ones cannot.

    Raises UsageError if none can.
    """
    planned = [(card, plans(options, card, built)) for card in meant]
    refused = [(card, planned_runs) for card, planned_runs in planned if isinstance(planned_runs, UsageError)]
    if len(refused) == len(planned):
        raise refused[0][1]
    for card, refusal in refused:
        status(f"left out: {card.name}: {refusal}")
    able = [(card, planned_runs) for card, planned_runs in planned if not isinstance(planned_runs, UsageError)]
    return [(planned_runs[0].computed(card), planned_runs) for card, planned_runs in able]


def plans(options: Options, card: Card, built: Mapping[str, Any] | None) -> list[Configuration] | UsageError:
    """Return the runs of a workload, or why it cannot take the options."""
    try:
        return plan.plan(options, card, built)
    except UsageError as error:
        return error


def check(options: Options) -> int:
    """Run the correctness check of the selected workload, or of all; a missing device is a skip.

    A result computed for one workload is reused for others with the same check.
    """
    from entrypoints.contract import reference
    from entrypoints.runs import numerics_check
    from entrypoints.runs.supervise import Orders

    orders = Orders(options.time_limit)
    cards = naming.runnable()
    named_workload = None if options.all else naming.named(options.workload, os.environ, list(cards))
    meant, built = naming.find(options if named_workload else options._replace(all=True))
    if named_workload and MICROBENCHMARK in meant[0].tasks:
        status(f"check of {named_workload}: skipped, a micro-benchmark verifies its results in every run")
    meant = [card for card in meant if MICROBENCHMARK not in card.tasks]
    outcomes: dict[tuple[str, str], Outcome] = {}
    for card in meant:
        resolved = resolve(options, card, built)
        probed = (reference.probed_problem(card), resolved.precision)
        if probed not in outcomes:
            outcomes[probed] = numerics_check.check(card, resolved, orders)
        outcome = outcomes[probed]
        skipped = outcome.state == "no_device"
        status(f"check of {card.name}: {'skipped' if skipped else outcome.state}, {outcome.message}")
        if outcome.exit_code and not skipped:
            return outcome.exit_code
    return 0


def describe(options: Options) -> int:
    """Print what would run: for people, or as JSON, of several runs one per line."""
    meant, built = naming.find(options)
    planned = [(card, run) for card, runs in possible_plans(options, meant, built) for run in runs]
    for card, resolved in planned:
        workload = {**card._asdict(), "identity": card.identity}
        described = {
            "workload": workload,
            "configuration": resolved.as_json(),
            "image": built,
            "bounds": bounds(card, resolved),
        }
        text = (
            json.dumps(described, indent=None if len(planned) > 1 else 2) if options.json else _description(described)
        )
        sys.stdout.write(text + "\n")
    return 0


def _description(described: Mapping[str, Any]) -> str:
    """Return what would run, in lines for people: the workload, then each setting that has a value."""
    workload, configuration = described["workload"], described["configuration"]
    operations = (f"{value / 1e9:.4g} GFLOP {name.replace('_', ' ')}" for name, value in workload["flops"].items()
                  if isinstance(value, (int, float)))  # fmt: skip
    facts = {
        "parameters": f"{workload['problem']['parameters']:,}",
        "operations": ", ".join(operations),
        **{name: value for name, value in configuration.items() if value not in (None, False) and name != "workload"},
    }
    lines = [f"{configuration['workload']}: {workload['title']}"]
    for name, value in facts.items():
        text = " of ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
        text = _device_and_notes(value) if name == "chosen_for" else text
        lines.append(f"  {name.replace('_', ' '):<24}{text}")
    for number, each in enumerate(described["bounds"]):
        rate = f"{each['throughput']:,.4g}" if each["throughput"] < 1e4 else f"{each['throughput']:,.0f}"
        name = "" if number else "at most"
        lines.append(f"  {name:<24}{rate} {each['unit']} on {each['count']} x {each['device']}, by {each['limit']}")
    return "\n".join(lines)


def _device_and_notes(chosen_for: Mapping[str, Any]) -> str:
    memory = f"{chosen_for['memory_mib']:.0f} MiB" if chosen_for["memory_mib"] else "unknown memory"
    return "; ".join([f"{chosen_for['name'] or 'an unknown device'} with {memory}", *chosen_for["notes"]])


def prove(options: Options) -> int:
    """Try out a device from end to end, and write a folder with a page that says what held."""
    from entrypoints.proof.conduct import Proof
    from entrypoints.proof.finding import FAILED

    cards, built = naming.runnable(), image.read()
    if options.workload:
        naming.choose(options.workload, {}, list(cards))
    proof = Proof(options, cards, built)
    findings = proof.run()
    failed = [finding.claim for finding in findings if finding.state == FAILED]
    counts = ", ".join(f"{failed.count(claim)} {claim}" for claim in sorted(set(failed)))
    status(f"proof: {f'failed: {counts}' if failed else 'nothing failed'}; see {proof.folder / 'proof.html'}")
    return UNPROVEN_EXIT if failed else 0


VERBS = {"run": run, "check": check, "describe": describe, "prove": prove}
