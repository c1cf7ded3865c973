"""How often does `study.screen` name an outlier of a healthy fleet, and how often a slow node?

Simulated fleets with a value of each measure for each node, screened with the limits of the command. Seeds are fixed.
"""

import argparse
import math
import random
import time
from collections.abc import Callable, Sequence

from sifmark.core.terminal import output
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import MetricValue
from sifmark.studies.analysis.screening import HOST, NAME, Limits, Screening, screen_nodes

MEASURES = ("throughput", "step_time_p99", "energy_per_unit", "power_mean", "idle_power", "cpu_clock")
GROUP = ComparisonGroup("simulated", "training", "steady", "synthetic")
DEVIATION = 0.01  # or the scale of Student's distribution
SLOW = 0.05  # so much slower is a slow node
WIDTHS = (5, 9, 5, 12, 15, 18)  # of columns

Noise = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    """Return a number of the standard normal distribution."""
    return chance.gauss(0, 1)


def students(freedom: float) -> Noise:
    """Return Student's distribution."""

    def draw(chance: random.Random) -> float:
        return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(freedom / 2, 2 / freedom))

    return draw


def screened(fleet: Sequence[Sequence[float]]) -> Screening:
    """Return the screening of nodes, of which each has the logarithm of each measure."""
    rows = []
    for number, node in enumerate(fleet):
        fields = {HOST: f"n{number:03}", NAME: "simulated"}
        numbers = {
            name: MetricValue(100 * math.exp(value), "1", None) for name, value in zip(MEASURES, node, strict=False)
        }
        observation = Observation("results", "", str(number), "simulated", GROUP, fields, numbers)
        rows.append(RepeatGroup("results", fields, [observation]))
    table = ComparisonTable(GROUP, "simulated", rows, {}, [])
    return screen_nodes(Comparison(Query(("throughput",)), [table], [], []), (), Limits())


def row(name: str, noise: Sequence[Noise], nodes: int, slow: int, count: int) -> tuple[str, ...]:
    """Return how many fleets had an outlier, and how many had all slow nodes named; and the rate that was stated."""
    chance = random.Random(f"{name} {len(noise)} {nodes} {slow}")  # noqa: S311 - no secret
    alarms = found = 0
    stated = 0.0
    for _ in range(count):
        fleet = [[DEVIATION * draw(chance) for draw in noise] for _ in range(nodes)]
        for node in fleet[:slow]:
            node[0] += math.log1p(-SLOW)
        screening = screened(fleet)
        named = {each.node for each in screening.outliers if each.measure == MEASURES[0]}
        alarms += bool(screening.outliers)
        found += named >= {f"n{number:03}" for number in range(slow)}
        stated += getattr(screening, "rate", None) or 0.0
    shares = (f"{alarms / count:.1%}", f"{found / count:.1%}" if slow else "-", f"{stated / count:.1%}")
    return (name, str(nodes), str(len(noise)), str(slow), *shares)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=200, metavar="N", help="for each number; default 200")
    count = parser.parse_args().fleets
    began = time.monotonic()
    output("noise               nodes  measures  slow  any outlier  all slow named  rate by own tails")
    kinds: list[tuple[str, Noise]] = [("normal", normal), ("Student's, 5", students(5)), ("Student's, 3", students(3))]
    cases = [(name, [noise] * many, 64, 0) for name, noise in kinds for many in (1, 6)]
    cases += [("Student's, 3 in one", [students(3), *[normal] * 5], 64, 0)]
    cases += [("normal", [normal] * many, nodes, 0) for nodes in (8, 16, 256) for many in (1,)]
    cases += [("normal", [normal] * many, 64, slow) for many, slow in ((1, 1), (1, 4), (1, 8), (6, 1))]
    cases += [("normal", [normal], nodes, 1) for nodes in (8, 16)]
    for name, noise, nodes, slow in cases:
        first, *rest = row(name, noise, nodes, slow, count)
        output(" ".join([f"{first:<19}", *(f"{cell:>{width}}" for cell, width in zip(rest, WIDTHS, strict=True))]))
    output(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
