"""How often is "faster" or "slower" said of what does not differ, and how often of what does?

Simulated repeats, compared as `compare --against` and its gate do, with their defaults. Seeds are fixed. Noise is of
logarithms. Between sessions (days of one machine) it is 1 %, and 0.3 % within one, unless it says otherwise.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import NamedTuple

from sifmark.core import paths
from sifmark.core.terminal import output
from sifmark.results.comparison.compare import Comparison, compare_observations
from sifmark.results.comparison.compatibility import FIELDS
from sifmark.results.comparison.gate import Gate, GateDecision
from sifmark.results.comparison.observation import Observation, Session, observe
from sifmark.results.comparison.query import Query
from sifmark.results.documents import MetricValue

FIRST = datetime(2026, 3, 1, 8, tzinfo=UTC)
METRIC = "throughput"
REPEATS = (3, 5, 10)
BETWEEN, WITHIN = 0.01, 0.003
DRIFT = 0.02  # over a whole session
ROWS = 50  # of a gate
WIDTH = 9  # of a column


class Run(NamedTuple):
    """A run of one side: when it started, and the logarithm of what it measured."""

    side: str
    started: datetime
    logarithm: float
    row: int = 0


Simulate = Callable[[random.Random, int, float], list[Run]]  # of repeats on a side, the first so much slower


def compared(runs: Iterable[Run]) -> Comparison:
    """Return the comparison of one side with the other."""
    base = _example()
    observations = []
    for number, run in enumerate(runs):
        started = run.started.isoformat().replace("+00:00", "Z")
        observations.append(
            replace(
                base,
                side=run.side,
                file=f"{number}.json",
                id=str(number),
                fields=base.fields | {"configuration.batch_size": run.row},
                numbers={METRIC: MetricValue(100 * math.exp(run.logarithm), "images/s", None)},
                session=Session("node", f"boot of {started[:10]}", "", started[:10]),
                started=started,
                host="node",
            )
        )
    return compare_observations(observations, Query((METRIC,), against=True))


@cache
def _example() -> Observation:
    """Return a completed training without marks, of the newest example."""
    file = max((paths.SCHEMAS / "examples").glob("result-*/training.json"))
    return replace(observe(json.loads(file.read_text()), "results", str(file), FIELDS, {}), marks=frozenset())


def verdict(runs: Iterable[Run]) -> str:
    """Return the verdict on the only row."""
    (row,) = compared(runs).compared
    return row.ratios[METRIC].verdict


def sessions(
    chance: random.Random, repeats: int, slower: float, days: int = 1, before: int = 1, between: float = BETWEEN
) -> list[Run]:
    """Return repeats of `days` after those of as many other days, or of as many as `before`."""
    runs = []
    for day in range(before + days):
        side = "against" if day < before else "results"
        centre = chance.gauss(0, between) - (slower if side == "results" else 0)
        start = FIRST + timedelta(days=day)
        runs += [
            Run(side, start + timedelta(minutes=minute), centre + chance.gauss(0, WITHIN)) for minute in range(repeats)
        ]
    return runs


def drifting(chance: random.Random, repeats: int, slower: float, in_turn: bool = False) -> list[Run]:
    """Return one session in which all becomes slower: one side after the other, or in turn."""
    runs = []
    for place in range(2 * repeats):
        first = place % 2 if in_turn else place >= repeats
        side = "results" if first else "against"
        logarithm = chance.gauss(0, 0.005) - DRIFT * place / (2 * repeats - 1) - (slower if first else 0)
        runs.append(Run(side, FIRST + timedelta(minutes=place), logarithm))
    return runs


CASES: dict[str, Simulate] = {
    "another day": sessions,
    "three days each": partial(sessions, days=3, before=3),
    "a day, after ten": partial(sessions, before=10),
    "a day, after ten, 3 % between": partial(sessions, before=10, between=0.03),
    "one after the other, drift 2 %": drifting,
    "in turn, drift 2 %": partial(drifting, in_turn=True),
}


def verdicts(count: int) -> Iterator[Sequence[str]]:
    """Yield by case how often a difference was stated: of sides that are alike, and of one that is slower."""
    yield ["repeats", *(f"{by:.0%}, {n}" for by in (0, 0.02, 0.05) for n in REPEATS)]
    for name, simulate in CASES.items():
        cells = []
        for slower in (0.0, 0.02, 0.05):
            for repeats in REPEATS:
                chance = random.Random(f"{name} {slower} {repeats}")  # noqa: S311 - no secret
                loss = -math.log1p(-slower)
                said = [verdict(simulate(chance, repeats, loss)) for _ in range(count)]
                cells.append(_share(sum(each in ("less", "more") for each in said), count))
        yield [name, *cells]


def coverage(count: int) -> Iterator[Sequence[str]]:
    """Yield how often the interval of a mean contains what was simulated."""
    yield ["interval of a mean", *(f"{n}" for n in REPEATS)]
    cases: dict[str, Callable[[random.Random, int], list[Run]]] = {
        "one session, noise 1 %": partial(_one_session, deviation=0.01),
        "one session, noise 30 %": partial(_one_session, deviation=0.3),
        "five sessions of so many": lambda chance, repeats: sessions(chance, repeats, 0, days=0, before=5),
    }
    for name, simulate in cases.items():
        cells = []
        for repeats in REPEATS:
            chance = random.Random(f"{name} {repeats}")  # noqa: S311 - no secret
            inside = 0
            for _ in range(count):
                runs = [run._replace(side="results") for run in simulate(chance, repeats)]
                mean = compared(runs).compared[0].means[METRIC]
                inside += mean.low is not None and mean.high is not None and mean.low <= 100 <= mean.high
            cells.append(_share(inside, count))
        yield [name, *cells]


def _one_session(chance: random.Random, repeats: int, deviation: float) -> list[Run]:
    return [Run("results", FIRST + timedelta(minutes=place), chance.gauss(0, deviation)) for place in range(repeats)]


def gates(count: int) -> Iterator[Sequence[str]]:
    """Yield how often a gate over many rows failed, and how often it could not decide."""
    yield [f"gate, {ROWS} rows, 5 repeats", "fails", "undecided"]
    cases: dict[str, tuple[float, Simulate, float]] = {
        "1.0, in turn, none differs": (1.0, partial(drifting, in_turn=True), 0.0),
        "1.0, another day": (1.0, sessions, 0.0),
        "0.97, another day": (0.97, sessions, 0.0),
        "0.97, a day after ten": (0.97, partial(sessions, before=10), 0.0),
        "0.97, a day after ten, 10 % slower": (0.97, partial(sessions, before=10), 0.1),
    }
    for name, (limit, simulate, slower) in cases.items():
        chance = random.Random(name)  # noqa: S311 - no secret
        decisions = []
        for _ in range(max(1, count // 10)):
            runs = [
                run._replace(row=row)
                for row in range(ROWS)
                for run in simulate(chance, 5, -math.log1p(-slower) if not row else 0.0)
            ]
            decisions.append(Gate(limit).judge(compared(runs)).decision)
        shares = [decisions.count(each) for each in (GateDecision.FAILED, GateDecision.UNDECIDED)]
        yield [name, *(_share(each, len(decisions)) for each in shares)]


def nightly(count: int) -> Iterator[Sequence[str]]:
    """Yield how often the gate of the documents, 0.97 with three repeats, failed or could not decide about one row."""
    yield ["gate 0.97, one row, 3 repeats", "fails", "undecided"]
    for between in (0.01, 0.02, 0.03):
        for before in (1, 10):
            name = f"{between:.0%} between, {before} before"
            chance = random.Random(name)  # noqa: S311 - no secret
            decisions = [
                Gate(0.97).judge(compared(sessions(chance, 3, 0, before=before, between=between))).decision
                for _ in range(count)
            ]
            shares = [decisions.count(each) for each in (GateDecision.FAILED, GateDecision.UNDECIDED)]
            yield [name, *(_share(each, count) for each in shares)]


def _share(number: int, count: int) -> str:
    return f"{number / count:.1%}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, metavar="N", help="for each number; default 1000")
    count = parser.parse_args().trials
    for table in (verdicts, coverage, gates, nightly):
        for first, *cells in table(count):
            output(f"{first:<36}" + " ".join(f"{cell:>{WIDTH}}" for cell in cells))


if __name__ == "__main__":
    main()
