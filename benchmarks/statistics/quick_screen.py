"""How far from the median of earlier screenings is a healthy node, and how often is one named, or a slow one found?

Simulated screenings with normal or Student's noise, judged as `study.screen --quick` does. Seeds are fixed.
"""

import argparse
import math
import random
from collections.abc import Callable
from statistics import median, quantiles

from sifmark.core.terminal import output
from sifmark.doctor.quick.fleet import LEAST, LIMITS, SCALE, judged
from sifmark.results.catalogue import Direction

LEVEL = 2000  # one healthy value in so many is named, if nothing but the deviation counts
MEASURES = 8

Noise = Callable[[random.Random], float]


def normal(chance: random.Random) -> float:
    """Return a number of the standard normal distribution."""
    return chance.gauss(0, 1)


def students(chance: random.Random) -> float:
    """Return one of Student's distribution with three degrees of freedom."""
    return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3))


def limit(count: int, trials: int, chance: random.Random) -> float:
    """Return the distance that one healthy value in LEVEL exceeds, with so many earlier screenings."""
    distances = []
    for _ in range(trials):
        sample = [normal(chance) for _ in range(count)]
        centre = median(sample)
        scale = SCALE * median(abs(value - centre) for value in sample)
        distances.append((centre - normal(chance)) / scale)
    return quantiles(distances, n=LEVEL)[-1]


def named(count: int, slower: float, deviation: float, noise: Noise, trials: int, chance: random.Random) -> float:
    """Return how often a node is named that is slower by a fraction in one of MEASURES."""
    found = 0
    for _ in range(trials):
        verdicts = []
        for place in range(MEASURES):
            earlier = [math.exp(deviation * noise(chance)) for _ in range(count)]
            value = math.exp(deviation * noise(chance)) * (1 - slower * (place == 0))
            verdicts.append(judged(value, earlier, Direction.HIGHER, LEAST)[-1])
        found += any(verdicts)
    return found / trials


def main() -> None:
    """Print the limits that fleet.py has, and how often nodes are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000, help="simulated screenings; limits take 50 times as many")
    trials = parser.parse_args().trials
    chance = random.Random(1)  # noqa: S311 - a simulation
    output(f"{'earlier':>8} {'limit':>6} {'here':>6}")
    for count, used in reversed(LIMITS):
        output(f"{count:>8} {used:>6} {limit(count, 50 * trials, chance):>6.1f}")
    output(f"\nnamed, of {trials} screenings by {MEASURES} measures:")
    output(f"{'noise':<16} {'earlier':>8} {'healthy':>8} {'7 % slower':>11} {'10 %':>6} {'20 %':>6}")
    kinds = (("normal, 1 %", normal, 0.01), ("Student's, 1 %", students, 0.01), ("normal, 3 %", normal, 0.03))
    for name, noise, deviation in kinds:
        for count in (5, 10, 20, 100):
            rates = [named(count, slower, deviation, noise, trials, chance) for slower in (0.0, 0.07, 0.1, 0.2)]
            output(f"{name:<16} {count:>8} {rates[0]:>8.2%} {rates[1]:>11.1%} {rates[2]:>6.1%} {rates[3]:>6.1%}")


if __name__ == "__main__":
    main()
