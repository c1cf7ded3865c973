"""Rules about the correctness check: a state follows from its deviations."""

from __future__ import annotations

from functools import lru_cache
from typing import Iterator

from entrypoints.contract import reference
from entrypoints.contract.cards import generates
from entrypoints.contract.choices import FP8, SERVING
from entrypoints.contract.points import CHECKS, MICROBENCHMARK
from entrypoints.contract.reference import Reference
from entrypoints.results.numerics import FAILED, NOT_PROVABLE, NOT_RUN, PASSED
from entrypoints.rules.facts import Document, Facts
from entrypoints.rules.identity import card_of, cards_by_identity
from entrypoints.rules.rule import differ, rule

ANY_PRECISION = ("1.0",)  # schemas whose `passed` may rest on another precision than the run's
PROVES = "fp32"  # the precision that is always checked
SKIPPED = "the check was skipped"  # how the reason begins if a run did not ask for it
CUT, UNCHECKED = "the check ended in", "was not checked"  # and how it begins or ends if a run did
RUN_CHECKS = {
    "training": ("gradients", "samples", "dropout"),
    "inference": ("answers", "generation"),
    "sampling": ("trajectory",),
    MICROBENCHMARK: CHECKS,
    SERVING: (),
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
    "in training by several ranks each precision with tolerances has the deviations of `ranks`, the clipped one if the "
    "card clips, within the tolerances of the check or `mismatched`; no other run has them",
    "What one rank computes says nothing about the exchange between ranks.",
)
def ranks_are_checked(facts: Facts) -> Iterator[str]:
    """Judge what the check says about the exchange between ranks."""
    card, together = card_of(facts), facts.trained_together
    for number, each in enumerate(facts.document["numerics"]["precisions"]):
        field, deviations = f"numerics.precisions.{number}.ranks", each.get("ranks", [])
        mismatched = set(each["mismatched"])
        names = [item["quantity"] for item in deviations]
        if not together or each["worst"] is None or card is None:
            expected = list(dict.fromkeys(names)) if together else []
        else:
            clipped = "gradient_norm" in card.problem.get("optimizer", {})
            expected = reference.by_ranks(clipped, each["precision"])
        if sorted(names) != sorted(expected):
            yield differ(field, ", ".join(names), ", ".join(expected), "configuration.strategy")
        for item in deviations:
            if _beyond(item) != (item["quantity"] in mismatched):
                yield differ(field, item["deviation"], item["tolerance"], f"mismatched, of {item['quantity']}")
            if item["tolerance"] > reference.tolerance_by_ranks(item["quantity"], each["precision"]):
                yield f"{field}: {item['quantity']} has the tolerance {item['tolerance']}"


@rule(
    "`numerics.state` is `failed` if a precision or a check of the run failed; `passed` if the run's own precision "
    "passed, or both checks of a micro-benchmark; without `probe_numerics` it is "
    "`not_run` or `failed`; each precision and the run are checked once",
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
    passed = _passed(states, own, facts.document["schema_version"]) or _results_passed(facts)
    if numerics["state"] == PASSED and not passed:
        yield f"numerics.state: passed where {own}, the run's precision, has {states.get(own, 'no state')}"
    if not facts.configuration["probe_numerics"] and numerics["state"] not in (NOT_RUN, FAILED):
        yield differ("numerics.state", numerics["state"], NOT_RUN, "configuration.probe_numerics")


@rule(
    "`numerics.run_checks` are of the run's task, and made after a step: gradients, samples and dropout of training, "
    "answers or generation of inference, trajectory of sampling, results of a micro-benchmark; none of request streams",
    "A check that the run cannot have made was not made.",
)
def run_checks_fit_the_task(facts: Facts) -> Iterator[str]:
    """Compare the names of the checks with the task."""
    possible = () if facts.configuration["concurrency"] or not facts.count else RUN_CHECKS[facts.task]
    for number, each in enumerate(facts.document["numerics"].get("run_checks", [])):
        if each["check"] not in possible:
            yield f"numerics.run_checks.{number}.check: {each['check']} in {facts.task} with {facts.count} steps"


@rule(
    "`numerics.state` is that of the run's precision, `not_run` with the reason that the check ended early or was "
    "skipped, or `not_provable` without any; only fp32 and the run's precision are checked",
    "A check that was not made is no proof.",
)
def whole_check_is_that_of_its_parts(facts: Facts) -> Iterator[str]:
    """Put the parts together again."""
    numerics, own = facts.document["numerics"], facts.configuration["precision"]
    if facts.document["schema_version"] in ANY_PRECISION or numerics["state"] == FAILED:
        return
    states = {each["precision"]: each["state"] for each in numerics["precisions"]}
    for precision in sorted(set(states) - {PROVES, own}):
        yield f"numerics.precisions: {precision} is neither {PROVES} nor the run's precision"
    if numerics["state"] != NOT_RUN:
        without = PASSED if _results_passed(facts) else NOT_PROVABLE
        expected = states.get(own, NOT_RUN if states else without)
        if numerics["state"] != expected:
            yield differ("numerics.state", numerics["state"], expected, "numerics.precisions")
        return
    reason, asked = numerics["reason"], facts.configuration["probe_numerics"]
    cut = reason.startswith(CUT) or (reason.endswith(UNCHECKED) and own not in states)
    if not (cut if asked else reason.startswith(SKIPPED) and not states):
        yield f"numerics.reason: {reason[:80]!r} where probe_numerics is {asked}"


@rule(
    "quantities of the check are those of the stored reference, with at most its tolerances for the kind of device; a "
    "precision without tolerances, or that it says is not provable, has not passed, and no other is not provable",
    "A wider tolerance lets a mistake pass.",
    "smaller tolerances: they have only grown, with each machine that was measured; on a kind of device that was not, "
    f"{reference.LEEWAY:g} times those of CPUs, not provable, except in FP8, whose tolerances are of no device",
)
def tolerances_are_those_of_the_reference(facts: Facts) -> Iterator[str]:
    """Compare with the reference of the card, if this sifmark has it."""
    precisions = facts.document["numerics"]["precisions"]
    stored = reference_of(facts.document["workload"]["identity"]) if precisions else None
    stored = reference.OF_ENGINES if facts.served else stored and stored.in_float8()
    if stored is None:
        return
    stored = stored.on(facts.configuration["device"])
    if facts.trained_together:
        stored = stored.by_ranks(clipped=True)
    for number, each in enumerate(precisions):
        field, tolerances = f"numerics.precisions.{number}", stored.tolerances.get(each["precision"], {})
        provable, worst = bool(tolerances) and each["precision"] not in stored.not_provable, each["worst"]
        allowed = tolerances.get(worst["quantity"], 0.0) if worst else 0.0
        lenient = stored.leeway > 1 and each["precision"] != FP8
        if worst and each["state"] != PASSED and lenient and worst["tolerance"] > allowed:
            provable, allowed = False, allowed * stored.leeway
        doubted = each["state"] == NOT_PROVABLE and worst  # without tolerances: an earlier sifmark had none for it
        if (each["state"] == PASSED and not provable) or (doubted and provable):
            expected = PASSED if provable else NOT_PROVABLE
            yield differ(f"{field}.state", each["state"], expected, f"the reference of {stored.workload}")
        if worst and worst["tolerance"] > allowed:
            least = tolerances.get(worst["quantity"])
            yield differ(f"{field}.worst.tolerance", worst["tolerance"], least, f"the reference of {stored.workload}")
        for quantity in sorted(set(each["mismatched"]) - set(tolerances)):
            yield f"{field}.mismatched: {quantity[:60]!r} is no quantity of the reference of {stored.workload}"


@rule(
    "a completed run has the check that every run of its task has: gradients of training, answers or generation of "
    "inference, trajectory of sampling, results of a micro-benchmark; not on IPUs nor of requests, and no "
    "gradients in fp16 and in networks that skip blocks at random",
    "A check that is left out hides what it has seen.",
)
def completed_run_is_checked(facts: Facts) -> Iterator[str]:
    """Look for the check of the run that every run of its task has."""
    given, card = facts.configuration, card_of(facts)
    if facts.document["schema_version"] in ANY_PRECISION or not facts.completed or facts.has_requests:
        return
    if given["device"] == "ipu" or card is None:  # programs of IPUs do not show what they compute
        return
    skipped = given["precision"] == "fp16" or card.problem["model"].get("stochastic_depth")  # they may overflow
    if facts.task == "training" and skipped:
        return
    inference = "generation" if generates(card.problem, facts.task) else "answers"
    check = {"training": "gradients", "inference": inference, "sampling": "trajectory", MICROBENCHMARK: CHECKS[-1]}[
        facts.task
    ]
    if all(each["check"] != check for each in facts.document["numerics"]["run_checks"]):
        yield f"numerics.run_checks: completed {facts.task} has the check {check}"


@lru_cache(maxsize=None)
def reference_of(identity: str) -> Reference | None:
    """Return the reference of the card with an identity; None without one, or if its file system is gone by now."""
    card = cards_by_identity().get(identity)
    try:
        return card and reference.load(card)
    except OSError:
        return None


def _passed(states: Document, own: str, version: str) -> bool:
    if version in ANY_PRECISION:
        return own in states and PASSED in states.values()
    return bool(states.get(own) == PASSED)


def _results_passed(facts: Facts) -> bool:
    """Return whether all results of a micro-benchmark were right, before the timed window and after it."""
    checks = facts.document["numerics"].get("run_checks", [])
    return set(CHECKS).issubset(each["check"] for each in checks if each["state"] == PASSED)


def _beyond(worst: Document) -> bool:
    deviation = worst["deviation"]
    return bool(deviation is None or deviation > worst["tolerance"])
