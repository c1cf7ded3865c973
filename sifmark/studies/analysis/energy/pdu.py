"""Power over time as a power distribution unit or a node's controller recorded it, integrated over runs.

A CSV file with a header: `time` and `watts`, and `node` if it has several nodes. Readings may be uneven. As for our own
meters, energy needs a window of twenty periods and no gap of more than five; else it is unknown, with the reason.
"""

import csv
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median

from sifmark.core.errors import UsageError
from sifmark.studies.analysis.energy.clock import seconds_since_1970
from sifmark.studies.analysis.energy.measured import EnergyRow, MeasuredEnergy, MeteredRun

ALL = ""  # the node of a file that does not name nodes
FEWEST_PERIODS = 20
MOST_MISSING = 5  # periods between two readings, above which there is a gap
MOST_NAMED = 3  # gaps in a message
_COLUMNS = ("time", "watts")


@dataclass(frozen=True)
class PowerSeries:
    """Readings of power, by time."""

    times: tuple[float, ...]  # seconds since 1970, increasing
    watts: tuple[float, ...]

    @cached_property
    def period(self) -> float:
        """The usual time between two readings, in seconds."""
        return median(after - before for before, after in pairwise(self.times))

    def energy(self, start: float, end: float, covers: str) -> MeasuredEnergy:
        """Return the energy between two times: trapezoids, cut at the edges."""
        if reason := self._problem(start, end):
            return MeasuredEnergy(None, None, covers, reason)
        first, last = bisect_right(self.times, start), bisect_left(self.times, end)
        inner = list(zip(self.times[first:last], self.watts[first:last], strict=True))
        points = [(start, self._at(start)), *inner, (end, self._at(end))]
        joules = math.fsum((b - a) * (p + q) / 2 for (a, p), (b, q) in pairwise(points))
        return MeasuredEnergy(joules, end - start, covers)

    def gaps(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return the gaps that reach into a time."""
        longest = self.period * MOST_MISSING
        first, last = bisect_right(self.times, start) - 1, bisect_left(self.times, end) + 1
        return [(a, b) for a, b in pairwise(self.times[max(0, first) : last]) if b - a > longest]

    def _problem(self, start: float, end: float) -> str:
        if self.times[0] > start or self.times[-1] < end:
            missing = [f"begins {self.times[0] - start:.3g} s after the run does"] if self.times[0] > start else []
            missing += [f"ends {end - self.times[-1]:.3g} s before the run does"] if self.times[-1] < end else []
            return f"the recording {' and '.join(missing)}"
        if gaps := self.gaps(start, end):
            named = ", ".join(f"{b - a:.3g} s from {_clock(a)}" for a, b in gaps[:MOST_NAMED])
            return f"{len(gaps)} gaps in the recording, above {MOST_MISSING} periods of {self.period:.3g} s: {named}"
        if end - start < FEWEST_PERIODS * self.period:
            return f"the run of {end - start:.3g} s is shorter than {FEWEST_PERIODS} periods of {self.period:.3g} s"
        return ""

    def _at(self, time: float) -> float:
        """Return the power at a time between two readings."""
        after = max(1, bisect_left(self.times, time))
        (a, b), (p, q) = self.times[after - 1 : after + 1], self.watts[after - 1 : after + 1]
        return p + (q - p) * (time - a) / (b - a)


def read_pdu(path: Path, zone: tzinfo | None, offset: float = 0.0) -> dict[str, PowerSeries]:
    """Return the readings of a file by node; `offset` is added to its times. Raises UsageError naming the line."""
    readings: dict[str, dict[float, float]] = defaultdict(dict)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for node, time, watts in _readings(path, stream, zone):
                readings[node][time + offset] = watts
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}", "give a CSV file with time and watts", code="file-unreadable") from error
    if not readings or any(len(values) < 2 for values in readings.values()):
        raise UsageError(
            f"{path} has no two readings of a node", "give a CSV file with time and watts", code="document-invalid"
        )
    return {node: PowerSeries(*zip(*sorted(values.items()), strict=True)) for node, values in readings.items()}


def rows_of_pdu(runs: Sequence[MeteredRun], series: Mapping[str, PowerSeries], covers: str) -> list[EnergyRow]:
    """Return a row for each run, with the energy from its beginning to its end: of its nodes, if the file has them."""
    return [EnergyRow(run.label, (run,), run.own, _whole(run, runs, series, covers)) for run in runs]


def _whole(
    run: MeteredRun, runs: Sequence[MeteredRun], series: Mapping[str, PowerSeries], covers: str
) -> MeasuredEnergy:
    if ALL in series:
        others = [each for each in runs if each is not run and run.overlaps(each)]
        if others:
            reason = f"{others[0].file} ran at the same time, and the recording does not say which node used what"
            return MeasuredEnergy(None, None, covers, reason)
        return series[ALL].energy(run.started, run.finished, covers)
    by_short_name = {node.partition(".")[0]: values for node, values in series.items()}
    parts = []
    for host in sorted(run.hosts):
        values = series.get(host) or by_short_name.get(host.partition(".")[0])
        if values is None:
            return MeasuredEnergy(None, None, covers, f"the recording has no node {host}")
        if shared := next(
            (each for each in runs if each is not run and host in each.hosts and run.overlaps(each)), None
        ):
            return MeasuredEnergy(None, None, covers, f"{shared.file} ran on {host} at the same time")
        parts.append(values.energy(run.started, run.finished, covers))
    return _sum(parts, covers)


def _sum(parts: Sequence[MeasuredEnergy], covers: str) -> MeasuredEnergy:
    if not parts:
        return MeasuredEnergy(None, None, covers, "the result does not name its host")
    if bad := next((part for part in parts if part.joules is None), None):
        return bad
    return MeasuredEnergy(sum(part.joules or 0.0 for part in parts), parts[0].seconds, covers)


def _readings(path: Path, stream: Iterable[str], zone: tzinfo | None) -> Iterator[tuple[str, float, float]]:
    reader = csv.DictReader(stream)
    names = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    if missing := [name for name in _COLUMNS if name not in names]:
        has = ", ".join(filter(None, names)) or "none"
        remedy = "the first line names the columns: time,watts or time,node,watts"
        raise UsageError(f"{path} has no column {' and '.join(missing)}; it has {has}", remedy, code="document-invalid")
    for row in reader:
        text = (row[names["watts"]] or "").strip()
        if text.lower() in ("", "nan", "null", "n/a"):
            continue  # a reading that failed: it shows as a gap
        try:
            time, watts = seconds_since_1970((row[names["time"]] or "").strip(), zone), _watts(text)
        except ValueError as error:
            remedy = "correct the line; --time-zone names the zone of times without one"
            raise UsageError(f"{path}:{reader.line_num}: {error}", remedy, code="document-invalid") from error
        yield (row[names["node"]] or "").strip() if "node" in names else ALL, time, watts


def _watts(text: str) -> float:
    try:
        watts = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number of watts") from None
    if not 0 <= watts < 1e9:
        raise ValueError(f"{text} W is no power")
    return watts


def _clock(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"
