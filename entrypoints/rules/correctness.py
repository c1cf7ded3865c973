"""Rules about the correctness check: a state follows from its deviations."""

from __future__ import annotations

from typing import Iterator

from entrypoints.results.numerics import FAILED, NOT_RUN, PASSED
from entrypoints.rules.facts import Document, Facts
from entrypoints.rules.rule import differ, rule

ANY_PRECISION = ("1.0",)  # schemas whose `passed` may rest on another precision than the run's
RUN_CHECKS = {
    "training": ("gradients", "samples", "dropout"),
    "inference": ("answers", "generation"),
    "sampling": ("trajectory",),
}


@rule(
    "a precision failed exactly if a quantity is beyond its tolerance, which `worst` then is and `mismatched` names; a "
    "check of the run exactly if it has faults",
    "The state of a check is its numbers.",
)
def checks_follow_from_deviations(facts: Facts) -> Iterator[str]:
    """Judge each precision again."""
    for number, each in enumerate(facts.document["numerics"]["precisions"]):
        field, failed = f"numerics.precisions.{number}", each["state"] == FAILED
        if failed != bool(each["mismatched"]) or (each["worst"] is None and each["state"] in (PASSED, FAILED)):
            yield f"{field}.state: {each['state']} with {len(each['mismatched'])} quantities beyond their tolerance"
        elif each["worst"] is not None and _beyond(each["worst"]) != failed:
            yield differ(
                f"{field}.worst.deviation", each["worst"]["deviation"], each["worst"]["tolerance"], each["state"]
            )
    for number, each in enumerate(facts.document["numerics"].get("run_checks", [])):
        if (each["state"] == FAILED) != bool(each["faults"]):
            yield f"numerics.run_checks.{number}.state: {each['state']} with {len(each['faults'])} faults"


@rule(
    "`numerics.state` is `failed` if a precision or a check of the run failed; `passed` if the run's own precision "
    "passed; without `probe_numerics` it is `not_run` or `failed`; each precision and the run are checked once",
    "A check that did not run in the run's precision says nothing about it.",
)
def correctness_is_that_of_the_run(facts: Facts) -> Iterator[str]:
    """Judge the whole check again."""
    numerics, own = facts.document["numerics"], facts.configuration["precision"]
    states = {each["precision"]: each["state"] for each in numerics["precisions"]}
    if len(states) != len(numerics["precisions"]):
        yield "numerics.precisions: a precision is named twice"
    of_run = {each["check"]: each["state"] for each in numerics.get("run_checks", [])}  # schema 1.0 has none
    if len(of_run) != len(numerics.get("run_checks", [])):
        yield "numerics.run_checks: a check is named twice"
    together = [*states.values(), *of_run.values()]
    if (FAILED in together) != (numerics["state"] == FAILED):
        yield f"numerics.state: {numerics['state']} where its parts have {', '.join(together) or 'no state'}"
    if numerics["state"] == PASSED and not _passed(states, own, facts.document["schema_version"]):
        yield f"numerics.state: passed where {own}, the run's precision, has {states.get(own, 'no state')}"
    if not facts.configuration["probe_numerics"] and numerics["state"] not in (NOT_RUN, FAILED):
        yield differ("numerics.state", numerics["state"], NOT_RUN, "configuration.probe_numerics")


@rule(
    "`numerics.run_checks` are of the run's task, and made after a step: gradients, samples and dropout of training, "
    "answers or generation of inference, trajectory of sampling; none of request streams",
    "A check that the run cannot have made was not made.",
)
def run_checks_fit_the_task(facts: Facts) -> Iterator[str]:
    """Compare the names of the checks with the task."""
    possible = () if facts.configuration["concurrency"] or not facts.count else RUN_CHECKS[facts.task]
    for number, each in enumerate(facts.document["numerics"].get("run_checks", [])):
        if each["check"] not in possible:
            yield f"numerics.run_checks.{number}.check: {each['check']} in {facts.task} with {facts.count} steps"


def _passed(states: Document, own: str, version: str) -> bool:
    if version in ANY_PRECISION:
        return own in states and PASSED in states.values()
    return bool(states.get(own) == PASSED)


def _beyond(worst: Document) -> bool:
    deviation = worst["deviation"]
    return bool(deviation is None or deviation > worst["tolerance"])
