"""Shared by benchmarks: sides measured in turn, ratios within a round, and their report."""

import argparse
import math
import os
import platform
import resource
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from sifmark.core.errors import UsageError
from sifmark.core.files import write_json
from sifmark.core.process import run
from sifmark.core.terminal import output, status

WANTED = 0.95  # confidence of the interval, if there are enough rounds

Times = Mapping[str, float]  # seconds by quantity
Round = Mapping[str, Times]  # by side


@dataclass(frozen=True)
class Spent:
    """The cost of a command. `cpu_seconds` are user and system time of it and of every descendant waited for."""

    seconds: float
    cpu_seconds: float
    output: str


@dataclass(frozen=True)
class Summary:
    """Ratios of several rounds. The interval `low`..`high` contains the true median with probability `confidence`."""

    rounds: int
    median: float
    low: float
    high: float
    confidence: float
    least: float
    most: float


def parser(description: str | None, pairs: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    grammar = argparse.ArgumentParser(description=description)
    grammar.add_argument("--pairs", type=positive, default=pairs, metavar="N", help=f"rounds; default {pairs}")
    grammar.add_argument("--json", type=Path, metavar="FILE", help="keep every time and ratio there")
    return grammar


def positive(text: str) -> int:
    """Return a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def require_folder(path: Path | None) -> None:
    """Raise UsageError, before anything is measured, for a file that could not be written afterwards."""
    if path is not None and not os.access(path.absolute().parent, os.W_OK):
        cause = f"--json {path}: its folder is missing or not writable"
        raise UsageError(cause, "name a file in one that is", code="invalid-option")


def spend(argv: Sequence[str | Path], **environment: str) -> Spent:
    """Run a command to its end and return its cost. Raises CommandError if it fails."""
    before = _children_cpu()
    done = run(argv, environment=cast("Any", environment))
    return Spent(done.seconds, _children_cpu() - before, done.output)


def measure(count: int, sides: Mapping[str, Callable[[], Times]]) -> list[Round]:
    """Run every side once a round, every other round in reverse order, so that a steady drift cancels out."""
    rounds: list[Round] = []
    for number in range(count):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        times = {}
        for name in names:
            status(f"round {number + 1}/{count}: {name}")
            os.sync()  # so that no side waits for another's writes
            times[name] = sides[name]()
        rounds.append(times)
    return rounds


def compare(rounds: Sequence[Round], reference: str) -> dict[str, dict[str, Summary]]:
    """Return for each other side and quantity its ratios to the reference of the same round, summarised."""
    return {
        side: {name: summarise([each[side][name] / each[reference][name] for each in rounds]) for name in times}
        for side, times in rounds[0].items()
        if side != reference
    }


def summarise(ratios: Sequence[float]) -> Summary:
    """Return the median, its interval and the extremes.

    The interval lies between two order statistics: exact for any distribution, whereas a bootstrap of five values would
    claim too much. Each value is below the true median with probability one half, so the k-th smallest and k-th largest
    enclose it unless fewer than k fall on one side. k is the largest that reaches `WANTED`, or 1.
    """
    ordered = sorted(ratios)
    ranks = range(1, (len(ordered) + 1) // 2 + 1)
    rank = max((k for k in ranks if _coverage(len(ordered), k) >= WANTED), default=1)
    return Summary(
        rounds=len(ordered),
        median=statistics.median(ordered),
        low=ordered[rank - 1],
        high=ordered[-rank],
        confidence=_coverage(len(ordered), rank),
        least=ordered[0],
        most=ordered[-1],
    )


def report(name: str, rounds: Sequence[Round], reference: str, about: Mapping[str, Any], target: Path | None) -> None:
    """Print the ratios, and save them with all times in `target`."""
    compared = compare(rounds, reference)
    output(f"time of each side / time of {reference}, {len(rounds)} rounds; below 1 is quicker than {reference}")
    output(f"{'side':<14}{'time':<14}{'median':>8}   {'interval of the median':<28}{'min':>8}{'max':>8}")
    for side, summaries in compared.items():
        for quantity, summary in summaries.items():
            interval = f"{summary.low:.4f} .. {summary.high:.4f} ({summary.confidence:.0%})"
            numbers = f"{summary.median:>8.4f}   {interval:<28}{summary.least:>8.4f}{summary.most:>8.4f}"
            output(f"{side:<14}{quantity:<14}{numbers}")
    if target is not None:
        ratios = {
            side: {key: asdict(summary) for key, summary in summaries.items()} for side, summaries in compared.items()
        }
        document = {"benchmark": name, "reference": reference, "host": host(), "about": about}
        write_json(target, {**document, "seconds": rounds, "ratios": ratios})


def tell(summaries: Mapping[str, Summary]) -> None:
    """Print summaries as lines of a table, by name."""
    output(f"{'':<28}{'median':>10}   {'interval of the median':<32}{'min':>10}{'max':>10}")
    for name, summary in summaries.items():
        interval = f"{summary.low:.4f} .. {summary.high:.4f} ({summary.confidence:.0%})"
        output(f"{name:<28}{summary.median:>10.4f}   {interval:<32}{summary.least:>10.4f}{summary.most:>10.4f}")


def _coverage(count: int, rank: int) -> float:
    outside = sum(math.comb(count, below) for below in range(rank)) / 2**count
    return float(max(0.0, 1 - 2 * outside))


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def host() -> dict[str, Any]:
    """Return the machine, and its current load."""
    return {
        "platform": platform.platform(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "load_average_at_end": os.getloadavg()[0],
    }
