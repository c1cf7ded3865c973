"""How often does `study.screen` name an outlier of a healthy fleet, and how often a slow node?

Simulated fleets with runs of each node, screened with the limits of the command. Each run has its own noise; where it
says so, half of the variance is of the node instead, and is the same in all its runs. Seeds are fixed.
"""

import argparse
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sifmark.core.terminal import output
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.observation import ComparisonGroup, Observation
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.documents import MetricValue
from sifmark.studies.analysis.screening import HOST, NAME, Limits, Outlier, Screening, screen_nodes

MEASURES = ("throughput", "step_time_p99", "energy_per_unit", "power_mean", "idle_power", "cpu_clock")
GROUP = ComparisonGroup("simulated", "training", "steady", "synthetic")
DEVIATION = 0.01  # of normal noise, or the scale of another
SIZES = (5, 8, 16, 64, 256)
WIDTHS = (5, 8, 4, 4, 4, 7, 8, 11, 10)  # of columns

Noise = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    """Return a number of the standard normal distribution."""
    return chance.gauss(0, 1)


def students(freedom: float) -> Noise:
    """Return Student's distribution."""

    def draw(chance: random.Random) -> float:
        return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(freedom / 2, 2 / freedom))

    return draw


def skewed(chance: random.Random) -> float:
    """Return a lognormal number of skewness 1.75 and a standard deviation of 1.2."""
    return 2 * math.exp(0.5 * chance.gauss(0, 1))


KINDS: dict[str, Noise] = {
    "normal": normal,
    "Student's, 5": students(5),
    "Student's, 3": students(3),
    "lognormal": skewed,
}


@dataclass(frozen=True)
class Fleet:
    """A kind of fleet that is simulated."""

    noise: str
    nodes: int
    measures: int = 1
    runs: int = 1
    slow: int = 0  # nodes
    drop: float = 0.05  # of their throughput
    of_node: bool = False  # half of the variance is

    def draw(self, chance: random.Random) -> Screening:
        """Return the screening of one such fleet."""
        noise = KINDS[self.noise]
        share = math.sqrt(0.5) if self.of_node else 0.0
        rows = []
        for number in range(self.nodes):
            fields = {HOST: f"n{number:03}", NAME: "simulated"}
            constant = [share * noise(chance) for _ in range(self.measures)]
            observations = []
            for run in range(self.runs):
                values = [of_node + math.sqrt(1 - share**2) * noise(chance) for of_node in constant]
                logarithms = [DEVIATION * value for value in values]
                logarithms[0] += math.log1p(-self.drop) if number < self.slow else 0.0
                numbers = {
                    name: MetricValue(100 * math.exp(each), "1", None)
                    for name, each in zip(MEASURES, logarithms, strict=False)
                }
                observations.append(Observation("results", "", f"{number}-{run}", "simulated", GROUP, fields, numbers))
            rows.append(RepeatGroup("results", fields, observations))
        table = ComparisonTable(GROUP, "simulated", rows, {}, [])
        return screen_nodes(Comparison(Query(("throughput",)), [table], [], []), (), Limits())

    def row(self, count: int) -> list[str]:
        """Return how many of `count` fleets had an outlier, how many had nodes to measure again, and what was found."""
        chance = random.Random(str(self))  # noqa: S311 - no secret
        screenings = [self.draw(chance) for _ in range(count)]
        slow = {f"n{number:03}" for number in range(self.slow)}
        outlier = sum(bool(each.outliers) for each in screenings)
        suspect = sum(bool(each.suspects) for each in screenings)
        named = sum(_nodes(each.outliers) >= slow for each in screenings)
        either = sum(_nodes([*each.outliers, *each.suspects]) >= slow for each in screenings)
        shares = [outlier, suspect, *((named, either) if slow else ())]
        described = [self.nodes, self.measures, self.runs, self.slow, f"{self.drop:.0%}" if slow else "-"]
        return [*map(str, described), *(f"{each / count:.1%}" for each in shares)]


def _nodes(outliers: Sequence[Outlier]) -> set[str]:
    return {each.node for each in outliers if each.measure == MEASURES[0]}


def healthy() -> Iterator[Fleet]:
    """Yield fleets without a slow node."""
    for noise in KINDS:
        yield from (Fleet(noise, nodes) for nodes in SIZES)
        yield from (Fleet(noise, nodes, 6) for nodes in (8, 64))
        yield from (Fleet(noise, 64, measures, 3) for measures in (1, 6))
        yield Fleet(noise, 64, 6, 5)
        yield Fleet(noise, 64, 6, 3, of_node=True)


def ill() -> Iterator[Fleet]:
    """Yield fleets with slow nodes."""
    for runs in (1, 2, 3):
        yield from (Fleet("normal", 64, 1, runs, slow) for slow in (1, 4, 8))
        yield from (Fleet("normal", 64, 1, runs, 1, drop) for drop in (0.03, 0.1))
        yield Fleet("normal", 64, 6, runs, 1)
        yield from (Fleet("normal", nodes, 1, runs, 1, 0.1) for nodes in (8, 16))
    yield from (Fleet("normal", 64, 6, 3, 1, of_node=True),)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=200, metavar="N", help="for each row; default 200")
    count = parser.parse_args().fleets
    head = ["nodes", "measures", "runs", "slow", "by", "outlier", "suspects", "slow: named", "or suspect"]
    output(f"{'noise':<22}" + " ".join(f"{name:>{width}}" for name, width in zip(head, WIDTHS, strict=True)))
    for fleet in (*healthy(), *ill()):
        name = f"{fleet.noise}, half of node" if fleet.of_node else fleet.noise
        cells = zip(fleet.row(count), WIDTHS, strict=False)
        output(f"{name:<22}" + " ".join(f"{cell:>{width}}" for cell, width in cells))


if __name__ == "__main__":
    main()
