"""Whether the code that ran computes what the workload's card says: the check's numbers against stored ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Mapping, NamedTuple, Sequence

from entrypoints.contract import points
from entrypoints.contract.choices import FP8
from entrypoints.contract.messages import Message, Probed, RunCheck
from entrypoints.contract.reference import BY_RANKS, Reference
from entrypoints.results.json_values import Json, finite

PASSED, FAILED, NOT_PROVABLE, NOT_RUN = "passed", "failed", "not_provable", "not_run"
MOST_FAULTS = 20  # in a result
NO_REFERENCE = "there are no stored values for this problem"
UNMEASURED = "rounding on this kind of device was not measured, so that {:g} times the tolerances are allowed"


class Deviation(NamedTuple):
    """A quantity's deviation from its stored value, relative in the L2 norm, and its tolerance."""

    quantity: str
    value: float  # NaN if the quantity is missing or has another size
    tolerance: float

    def __str__(self) -> str:
        """Return the quantity and its two numbers."""
        how_far = f"{self.value:.2g}" if math.isfinite(self.value) else "beyond all measure"
        return f"{self.quantity} deviates by {how_far} where {self.tolerance:.2g} is allowed"

    @property
    def share(self) -> float:
        """Deviation over tolerance; above 1 the quantity does not match."""
        return self.value / self.tolerance if math.isfinite(self.value) else math.inf


class PrecisionResult(NamedTuple):
    """Result of the correctness check in one precision."""

    precision: str
    state: str
    reason: str | None
    worst: Deviation | None
    mismatched: tuple[str, ...]  # quantities
    by_ranks: tuple[Deviation, ...] = ()  # of ranks that train together


@dataclass(frozen=True)
class Numerics:
    """Result of the whole correctness check."""

    state: str
    reason: str | None
    precisions: tuple[PrecisionResult, ...] = ()
    run_checks: tuple[RunCheck, ...] = ()  # of the run itself
    seconds: float | None = None  # that it took before the run, if it began
    routing: str | None = None  # of tokens to experts in the network that was checked, if it has any

    def __str__(self) -> str:
        """Return the state, and the reason or the deviations."""
        worst = [f"{result.precision}: {result.worst}" for result in self.precisions if result.worst]
        return "; ".join([self.state.replace("_", " "), *([self.reason] if self.reason else worst)])

    def as_json(self) -> Json:
        """Return the check's part of the document."""
        precisions = [
            {
                "precision": result.precision,
                "state": result.state,
                **({"reason": result.reason} if result.reason else {}),
                **({"ranks": [_worst(item) for item in result.by_ranks]} if result.by_ranks else {}),
                "worst": _worst(result.worst),
                "mismatched": list(result.mismatched),
            }
            for result in self.precisions
        ]
        of_run = [
            {"check": check.name, "state": FAILED if check.faults else PASSED, "faults": check.faults[:MOST_FAULTS]}
            for check in self.run_checks
        ]
        reason = {"reason": self.reason} if self.reason else {}
        took = {} if self.seconds is None else {"seconds": self.seconds}
        routed = {} if self.routing is None else {"routing": self.routing}
        return {"state": self.state, **reason, **took, **routed, "precisions": precisions, "run_checks": of_run}


def cut_by(state: str) -> str:
    """Return how the reason of a check begins that ended in a state."""
    return f"the check ended in {state}"


def not_run(reason: str) -> Numerics:
    """Return the result of a check that did not run."""
    return Numerics(NOT_RUN, reason)


def with_run_checks(numerics: Numerics, checks: Sequence[RunCheck]) -> Numerics:
    """Return the result with the checks of the run itself. One that failed fails all."""
    whole = replace(numerics, run_checks=tuple(checks))
    if numerics.state == NOT_PROVABLE and set(points.CHECKS).issubset(check.name for check in checks):
        whole = replace(whole, state=PASSED, reason=None)  # results were compared with what a formula gives
    failed = next((check for check in checks if check.faults), None)
    if failed is None or numerics.state == FAILED:
        return whole
    more = f" and {len(failed.faults) - 1} more" if len(failed.faults) > 1 else ""
    return replace(whole, state=FAILED, reason=f"{failed.faults[0]}{more}")


def compare_with_reference(
    messages: Sequence[Message], reference: Reference | None, precision: str, cut: str | None = None
) -> Numerics:
    """Compare the check's messages with the reference of a run in `precision`. One failed precision fails all.

    If the check was cut short, with `cut` as the reason, only complete precisions can fail, and none can pass.
    """
    if reference is None:
        return not_run(cut) if cut else Numerics(NOT_PROVABLE, NO_REFERENCE)
    values_by_precision: dict[str, dict[str, Sequence[float]]] = {}
    for message in messages:
        if isinstance(message, Probed):
            values_by_precision.setdefault(message.precision, {})[message.quantity] = message.values
    whole = {
        name: values
        for name, values in values_by_precision.items()
        if not cut or set(reference.tolerances.get(name, reference.values)) <= set(values)
    }
    results = tuple(_compare_precision(name, values, reference) for name, values in whole.items())
    return _together(results, precision, cut)


def _together(results: tuple[PrecisionResult, ...], precision: str, cut: str | None) -> Numerics:
    own = next((result for result in results if result.precision == precision), None)
    failed = next((result for result in results if result.state == FAILED), None)
    if failed:
        return Numerics(FAILED, failed.reason, results)
    if cut or own is None:
        return Numerics(NOT_RUN, cut or f"{precision} was not checked", results)
    return Numerics(own.state, own.reason, results)


def _compare_precision(precision: str, values: Mapping[str, Sequence[float]], reference: Reference) -> PrecisionResult:
    tolerances = reference.tolerances.get(precision)
    if tolerances is None:
        return PrecisionResult(precision, NOT_PROVABLE, f"there are no tolerances for {precision}", None, ())
    deviations = [
        Deviation(quantity, deviation(values.get(quantity, ()), reference.values[quantity]), tolerance)
        for quantity, tolerance in tolerances.items()
    ]
    unproven = reference.not_provable.get(precision)
    if reference.leeway > 1 and precision != FP8 and any(item.share > 1 for item in deviations):
        deviations = [
            item if item.quantity in BY_RANKS else item._replace(tolerance=item.tolerance * reference.leeway)
            for item in deviations
        ]
        unproven = unproven or UNMEASURED.format(reference.leeway)
    worst = max(deviations, key=lambda item: item.share)
    mismatched = tuple(item.quantity for item in deviations if item.share > 1)
    by_ranks = tuple(item for item in deviations if item.quantity in BY_RANKS)
    if mismatched:
        what = f"{BY_RANKS[worst.quantity]}; " if worst.quantity in BY_RANKS else ""
        reason = f"{what}{len(mismatched)} of {len(deviations)} quantities do not match in {precision}; {worst}"
        return PrecisionResult(precision, FAILED, reason, worst, mismatched, by_ranks)
    return PrecisionResult(precision, NOT_PROVABLE if unproven else PASSED, unproven, worst, (), by_ranks)


def deviation(values: Sequence[float], stored: Sequence[float]) -> float:
    """Return |computed - stored| / |stored| in the L2 norm, without the division if all stored values are 0; NaN if the
    values are not finite or differ in number."""
    if len(values) != len(stored) or not all(map(math.isfinite, values)):
        return math.nan
    distance = math.hypot(*(a - b for a, b in zip(values, stored)))
    return distance / (math.hypot(*stored) or 1.0)


def _worst(worst: Deviation | None) -> Json | None:
    if worst is None:
        return None
    return {"quantity": worst.quantity, "deviation": finite(worst.value), "tolerance": worst.tolerance}
