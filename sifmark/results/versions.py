"""What metrics of results of earlier schema versions are called today, where their meaning has changed.

Before schema 1.2, rates of operations counted causal attention in full, and a 99th percentile of steps was of any
number of them. Documents keep what was written; whoever compares metrics reads them in today's terms.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from sifmark.core.paths import import_shared

BEFORE_NEEDED = ("1.0", "1.1")  # versions whose rates of operations count all pairs of places
STEP_P99 = "step_time_p99"
_FULL = "_full_attention"
_OF_OPERATIONS = ("achieved_flops", "utilisation", "utilisation_of_measured_peak")
_COUNTED_IN_FULL = "before schema 1.2 it counted causal attention in full: see {}"

T = TypeVar("T")


def is_in_todays_terms(version: str) -> bool:
    """Return whether all metrics of a schema version mean what they mean today."""
    return version not in BEFORE_NEEDED


def with_full_attention(
    numbers: Mapping[str, T], identity: str, name: str, without: Callable[[T, str], T]
) -> dict[str, T]:
    """Return the metrics of a result before schema 1.2, its rates of operations under their names of today.

    `without` returns a metric without its value, for a reason. A workload that no card describes counts as causal if it
    has tokens: a rate of all pairs is right under the new name, also where every place sees all others.
    """
    causal = _is_causal(identity, name)
    if causal is None:
        causal = "token_throughput" in numbers
    if not causal:
        return dict(numbers)
    moved = [each for each in _OF_OPERATIONS if each in numbers]
    return {
        **numbers,
        **{f"{each}{_FULL}": numbers[each] for each in moved},
        **{each: without(numbers[each], _COUNTED_IN_FULL.format(f"{each}{_FULL}")) for each in moved},
    }


def too_few_steps(timed: int) -> str:
    """Return why a 99th percentile is not one of so many timed steps; empty if it is."""
    reason: str = import_shared("results.metrics.metric").too_few_steps(timed)
    return reason


def highest_percentile(requests: int) -> int:
    """Return the highest percentile of the latency that there are enough requests for, in %; the median of any."""
    least: Mapping[float, int] = import_shared("results.metrics.metric").LEAST
    return max((round(100 * share) for share, count in least.items() if share < 1 and count <= requests), default=50)


@cache
def _is_causal(identity: str, name: str) -> bool | None:
    """Return whether a workload has causal attention, by the card of its identity or else of its name; None without."""
    known: Any = import_shared("rules.identity")
    card = known.cards_by_identity().get(identity) or known.cards_by_name().get(name)
    return None if card is None else bool(import_shared("contract.cards").causal(card.problem))
