"""How often does `study.history` report a change that is none, and after how many nights one that is?

Simulated series of one session a night, each analysed on its own as the command does, with its defaults. Seeds are
fixed. Correlated noise is an autoregressive process of first order with the standard deviation that is stated.
"""

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from sifmark.core.terminal import output
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.studies.history.changes import Change, histories
from sifmark.studies.history.series import HistoryRun, RunSession, Series

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
NEAR = 2  # nights by which a change may be dated too early or too late
CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
DEVIATIONS = (0.01, 0.02, 0.04)
DRIFTS = ((0.03, 0.01, 200), (0.05, 0.01, 200), (0.1, 0.01, 200), (0.05, 0.01, 60), (0.05, 0.02, 200))
AFTER = (3, 4, 5, 6, 7, 8, 10, 14)  # nights


def series(logarithms: Sequence[float]) -> Series:
    """Return a series with a run each night."""
    group = ComparisonGroup("simulated", "training", "steady", "synthetic")
    sessions = []
    for night, value in enumerate(logarithms):
        observation = Observation("results", "", str(night), "simulated", group, {}, {})
        run = HistoryRun(FIRST + timedelta(days=night), 100 * math.exp(value), observation, {}, {})
        sessions.append(RunSession((run,)))
    return Series(group, "simulated", {}, "throughput", "images/s", tuple(sessions))


def reported(logarithms: Sequence[float]) -> list[int]:
    """Return the nights at which a change is reported."""
    return [(change.before - FIRST).days for change in changes(logarithms)]


def changes(logarithms: Sequence[float]) -> tuple[Change, ...]:
    """Return the changes of a series."""
    (history,) = histories([series(logarithms)])
    return history.changes


def noise(chance: random.Random, nights: int, deviation: float, correlation: float = 0.0) -> list[float]:
    """Return normal noise; that of a night resembles that of the night before by the correlation."""
    values = [chance.gauss(0, deviation)]
    new = deviation * math.sqrt(1 - correlation**2)
    while len(values) < nights:
        values.append(correlation * values[-1] + chance.gauss(0, new))
    return values


def heavy_tailed(chance: random.Random, nights: int) -> list[float]:
    """Return noise of Student's distribution with three degrees of freedom, at a scale of 1 %."""
    return [0.01 * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 1 / 1.5)) for _ in range(nights)]


def slow_nights(chance: random.Random, nights: int) -> list[float]:
    """Return noise of 1 %, and one night of ten 6 % slower."""
    return [chance.gauss(0, 0.01) - 0.06 * (chance.random() < 0.1) for _ in range(nights)]


def false_alarms(count: int, nights: int) -> Iterator[tuple[str, ...]]:
    """Yield by noise how many of `count` series without a change were reported to have one."""
    yield "noise, no change", "nights", "series with a change"
    for correlation in CORRELATIONS:
        for deviation in DEVIATIONS:
            chance = random.Random(f"{correlation} {deviation} {nights}")  # noqa: S311 - no secret
            alarms = sum(bool(reported(noise(chance, nights, deviation, correlation))) for _ in range(count))
            yield f"correlation {correlation}, {deviation:.0%}", str(nights), _share(alarms, count)
    for name, make in (("Student's, 3 degrees of freedom", heavy_tailed), ("1 night of 10 slow", slow_nights)):
        chance = random.Random(f"{name} {nights}")  # noqa: S311 - no secret
        yield name, str(nights), _share(sum(bool(reported(make(chance, nights))) for _ in range(count)), count)


def power(count: int, drop: float, deviation: float, nights: int) -> Iterator[tuple[str, ...]]:
    """Yield how many of `count` series with a drop before their last nights were reported to have it."""
    yield ("drop, noise, nights", *map(str, AFTER))
    shares = []
    for after in AFTER:
        chance = random.Random(f"{drop} {deviation} {nights} {after}")  # noqa: S311 - no secret
        found = 0
        for _ in range(count):
            values = noise(chance, nights, deviation)
            values[-after:] = [value + math.log1p(-drop) for value in values[-after:]]
            found += any(abs(place - (nights - after)) <= NEAR for place in reported(values))
        shares.append(_share(found, count))
    yield (f"{drop:.0%}, {deviation:.0%}, {nights}", *shares)


def drifts(count: int) -> Iterator[tuple[str, ...]]:
    """Yield how many series that drift were reported to have a change, and how many of these changes are drifts."""
    yield "drift in all, noise, nights", "change", "drift", "changes"
    for amount, deviation, nights in DRIFTS:
        chance = random.Random(f"drift {amount} {deviation} {nights}")  # noqa: S311 - no secret
        found = named = total = 0
        for _ in range(count):
            line = [amount * night / nights for night in range(nights)]
            those = changes([a + b for a, b in zip(noise(chance, nights, deviation), line, strict=True)])
            found += bool(those)
            named += bool(those) and all(each.gradual for each in those)
            total += len(those)
        label = f"{amount:.0%}, {deviation:.0%}, {nights}"
        yield label, _share(found, count), _share(named, count), f"{total / max(1, found):.1f}"


def _share(number: int, count: int) -> str:
    return f"{number / count:.1%}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=100, metavar="N", help="for each number; default 100")
    parser.add_argument("--nights", type=int, default=200, metavar="N", help="of series without a change; default 200")
    arguments = parser.parse_args()
    count = arguments.series
    for row in false_alarms(count, arguments.nights):
        output("  ".join([f"{row[0]:<32}", *(f"{cell:>6}" for cell in row[1:])]))
    for drop, deviation, nights in ((0.05, 0.01, 200), (0.05, 0.01, 90), (0.1, 0.02, 200), (0.03, 0.01, 200)):
        for row in power(count, drop, deviation, nights):
            output("  ".join([f"{row[0]:<32}", *(f"{cell:>6}" for cell in row[1:])]))
    for row in drifts(count):
        output("  ".join([f"{row[0]:<32}", *(f"{cell:>7}" for cell in row[1:])]))


if __name__ == "__main__":
    main()
