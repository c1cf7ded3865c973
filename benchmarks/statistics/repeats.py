"""What do intervals hold of repeats that end when their interval is narrow, as `sifmark run --repeat auto` does?

Simulated repeats with normal noise of several sizes, relative to the width that is asked for. Seeds are fixed.

- `covers`: how often the 95 % interval that `compare` prints afterwards contains the true mean;
- `within`: how often the measured mean is within the width of the true one;
- `repeats`, `reached`: their mean number, and how often the width was reached before the limit;
- `false`: how often two equal systems that take turns, each until both are known, are said to differ;
- `false under drift`: the same while the machine becomes 2 % slower in 20 runs, and, for comparison, with as many
  repeats of the first before those of the second.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from itertools import chain

from sifmark.core.terminal import output
from sifmark.engines.repeating import MOST, Figure, Repeats, Unit, repeat
from sifmark.results.comparison import intervals

WITHIN = 0.02
DEVIATIONS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # of one repeat, in widths
FIGURE = Figure("simulated", "training", 1, "throughput", "images/s")
AUTO, NEVER = Repeats(MOST, WITHIN), ("no difference shown", "cannot tell")
DRIFT = -0.001  # of the machine's speed in each run


def measured(chance: random.Random, systems: int, deviation: float, drift: float = 0.0) -> list[list[float]]:
    """Return what repeats of equal systems measured, which took turns until the mean of each was known."""
    units, runs = [Unit(str(number)) for number in range(systems)], iter(range(systems * MOST))

    def start(_place: int) -> tuple[int, dict[Figure, float]]:
        return 0, {FIGURE: speed(chance, next(runs), deviation, drift)}

    repeat(units, AUTO, start)
    return [unit.measured[FIGURE] for unit in units]


def speed(chance: random.Random, run: int, deviation: float, drift: float) -> float:
    """Return what a run measured, as a part of the true speed."""
    return (1 + drift * run) * (1 + chance.gauss(0, deviation))


def differ(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two systems are said to differ."""
    return intervals.ratio(first, second).verdict not in NEVER


def coverage(count: int) -> Iterator[tuple[str, ...]]:
    """Yield by noise what holds of one system."""
    yield "noise / width", "covers", "within", "repeats", "reached"
    for part in DEVIATIONS:
        chance = random.Random(f"one {part}")  # noqa: S311 - no secret
        groups = [measured(chance, 1, part * WITHIN)[0] for _ in range(count)]
        means = [intervals.mean(values) for values in groups]
        covers = sum((mean.low or 0) <= 1 <= (mean.high or 0) for mean in means)
        within = sum(1 - WITHIN <= (mean.value or 0) <= 1 + WITHIN for mean in means)
        number = sum(map(len, groups)) / count
        reached = sum(map(AUTO.are_enough, groups))
        yield f"{part:g}", *(_share(each, count) for each in (covers, within)), f"{number:.1f}", _share(reached, count)


def verdicts(count: int) -> Iterator[tuple[str, ...]]:
    """Yield by noise how often equal systems are said to differ."""
    yield "noise / width", "false", "false under drift", "first one, then the other"
    for part in DEVIATIONS:
        chance, shares = random.Random(f"two {part}"), []  # noqa: S311 - no secret
        for drift in (0.0, DRIFT):
            pairs = [measured(chance, 2, part * WITHIN, drift) for _ in range(count)]
            shares.append(sum(differ(*pair) for pair in pairs))
        numbers = [len(first) for first, _ in pairs]
        apart = [[speed(chance, run, part * WITHIN, DRIFT) for run in range(2 * number)] for number in numbers]
        shares.append(sum(differ(each[: len(each) // 2], each[len(each) // 2 :]) for each in apart))
        yield f"{part:g}", *(_share(share, count) for share in shares)


def _share(number: int, count: int) -> str:
    return f"{number / count:.1%}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, metavar="N", help="simulations of each; default 2000")
    count = parser.parse_args().count
    for row in chain(coverage(count), verdicts(count)):
        output("  ".join(f"{cell:>13}" for cell in row))


if __name__ == "__main__":
    main()
