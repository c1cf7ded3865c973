"""Means and ratios of rows whose repeats were measured in sessions: stretches in which a machine stayed as it was.

Repeats of one session say how processes differ, not how sessions do: another day or boot moves all of them together.
Where a side has three sessions or more, their means are the sample. Otherwise the spread between sessions is taken from
the other side, if that is the same machine in enough sessions, or is `between`, which is assumed. Sides that took turns
in the same sessions share what moves these, so that it cancels.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from sifmark.results.comparison import intervals
from sifmark.results.comparison.intervals import Mean, Ratio, log_ratio, variance
from sifmark.results.comparison.observation import Session
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.marks import FEWEST_REPEATS, WITHHOLDING

BETWEEN = 0.01  # standard deviation of the means of sessions, as a fraction: what is assumed where nothing shows it
ONE_SESSION = "within one session each"
# Sides that take turns differ by one place in the order of their runs: A B A B. One after the other, by half of all.
_MOST_APART = 1.0

Repeats = Mapping[Session, Sequence[tuple[str, float]]]  # by session, each with the time when it started


class Part(NamedTuple):
    """A part of the variance of a logarithm, with its degrees of freedom: infinite if it is known."""

    variance: float
    freedom: float = math.inf


@dataclass(frozen=True)
class Side:
    """The mean logarithm of one side, and the parts of its variance within sessions and between them."""

    centre: float
    within: Part
    between: Part
    sessions: int


def mean(row: RepeatGroup, metric: str) -> Mean:
    """Return the mean of a row; with three sessions or more its interval is that of their means."""
    repeats = row.by_session(metric)
    every = [value for runs in repeats.values() for _, value in runs]
    if len(repeats) < FEWEST_REPEATS or min(every) <= 0:
        return replace(intervals.mean(every, row.missing_reason(metric)), sessions=len(repeats))
    of_sessions = intervals.mean([math.exp(fmean(logs)) for logs in _logarithms(repeats)])
    return replace(of_sessions, count=len(every), sessions=len(repeats))


def ratio(
    row: RepeatGroup, reference: RepeatGroup, metric: str, between: float = BETWEEN, allowed: Collection[str] = ()
) -> Ratio:
    """Return the ratio of a row to its baseline, with the interval that a verdict rests on, or why there is none.

    `between` is the standard deviation of sessions that is assumed, a fraction. Marks among `allowed` withhold nothing.
    """
    above, below = row.by_session(metric), reference.by_session(metric)
    values, others = ([value for runs in side.values() for _, value in runs] for side in (above, below))
    plain = intervals.ratio(values, others)
    if plain.low is None:
        return plain
    doubt = _doubt(row, reference, allowed)
    if took_turns(above, below):
        return replace(_paired(above, below) if len(above) >= FEWEST_REPEATS else plain, withheld=doubt)
    spreads = [spread for side in (above, below) if (spread := _spread(side))]
    history = spreads[0] if len(spreads) == 1 and row.hosts & reference.hosts - {None} else None
    first, second = (_side(_logarithms(side), history or Part(math.log1p(between) ** 2)) for side in (above, below))
    parts = [first.between, second.between]
    if history:  # which is one estimate for both sides
        parts = [Part(sum(part.variance for part in parts), history.freedom)]
    whole = log_ratio(first.centre - second.centre, *summed([first.within, second.within, *parts]))
    if first.sessions == second.sessions == 1:
        whole = replace(whole, low=plain.low, high=plain.high, scope=ONE_SESSION)
    return replace(whole, withheld=doubt)


def to_value(
    row: RepeatGroup, value: float, metric: str, between: float = BETWEEN, allowed: Collection[str] = ()
) -> Ratio:
    """Return the ratio of a row to a value that has no spread, with the interval that a verdict rests on.

    `between` and `allowed` are as in `ratio`.
    """
    repeats = row.by_session(metric)
    every = [number for runs in repeats.values() for _, number in runs]
    plain = intervals.mean(every, row.missing_reason(metric))
    if plain.value is None or min(every) <= 0 or plain.low is None:
        quotient = None if plain.value is None else plain.value / value
        return Ratio(quotient, reason=plain.reason or "only positive values have a ratio")
    side = _side(_logarithms(repeats), Part(math.log1p(between) ** 2))
    whole = log_ratio(side.centre - math.log(value), *summed([side.within, side.between]))
    return replace(whole, withheld=_doubt(row, row, allowed))


def took_turns(above: Repeats, below: Repeats) -> bool:
    """Return whether both sides ran in the same sessions, as often in each, and took turns: A B A B, or A B B A."""
    if above.keys() != below.keys():
        return False
    pairs = [(runs, below[session]) for session, runs in above.items()]
    return all(len(ours) == len(theirs) and _alternate(ours, theirs) for ours, theirs in pairs)


def _alternate(above: Sequence[tuple[str, float]], below: Sequence[tuple[str, float]]) -> bool:
    order = sorted([(started, True) for started, _ in above] + [(started, False) for started, _ in below])
    places = ([place for place, (_, first) in enumerate(order) if first is side] for side in (True, False))
    first, second = map(fmean, places)
    return abs(first - second) <= _MOST_APART


def _paired(above: Repeats, below: Repeats) -> Ratio:
    """Return the ratio of sides that took turns in three sessions or more: the sample is their difference in each."""
    first, second = _logarithms(above), _logarithms({session: below[session] for session in above})
    differences = [fmean(ours) - fmean(theirs) for ours, theirs in zip(first, second, strict=True)]
    count = len(differences)
    return log_ratio(fmean(differences), math.sqrt(variance(differences) / count), count - 1)


def _side(sessions: Sequence[Sequence[float]], spread: Part) -> Side:
    """Return a side: from its sessions if there are enough, else with a variance between sessions known otherwise."""
    means, count = [fmean(logs) for logs in sessions], len(sessions)
    if count >= FEWEST_REPEATS:
        return Side(fmean(means), Part(0.0), Part(variance(means) / count, count - 1), count)
    every = [logarithm for logs in sessions for logarithm in logs]
    freedom = len(every) - count
    squares = math.fsum((x - centre) ** 2 for logs, centre in zip(sessions, means, strict=True) for x in logs)
    within = Part(squares / freedom / len(every), freedom)
    # Of two sessions the spread is hardly known, but not smaller than it looks.
    most = max(spread.variance, variance(means) if count > 1 else 0.0)
    shares = sum((len(logs) / len(every)) ** 2 for logs in sessions)
    return Side(fmean(every), within, Part(most * shares, spread.freedom), count)


def _spread(repeats: Repeats) -> Part | None:
    """Return the variance between the sessions of one side, if it has enough of them to show it."""
    if len(repeats) < FEWEST_REPEATS:
        return None
    return Part(variance([fmean(logs) for logs in _logarithms(repeats)]), len(repeats) - 1)


def summed(parts: Iterable[Part]) -> tuple[float, float]:
    """Return the standard error of a sum, and its degrees of freedom by Welch and Satterthwaite."""
    every = [part for part in parts if part.variance > 0]
    total = math.fsum(part.variance for part in every)
    if not every:
        return 0.0, 1.0
    # Divided first: squares of tiny variances would vanish.
    inverse = sum((part.variance / total) ** 2 / part.freedom for part in every)
    return math.sqrt(total), 1 / inverse if inverse else math.inf


def _logarithms(repeats: Repeats) -> list[list[float]]:
    return [[math.log(value) for _, value in runs] for runs in repeats.values()]


def _doubt(row: RepeatGroup, reference: RepeatGroup, allowed: Collection[str]) -> str:
    """Return the marks of either side that withhold a verdict, in words."""
    marks = frozenset().union(*(each.marks for side in (row, reference) for each in side.observations))
    return ", ".join(mark.name for code, mark in WITHHOLDING.items() if code in marks and code not in allowed)
