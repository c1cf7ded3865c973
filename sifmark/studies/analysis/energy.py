"""Energy of runs and whole jobs side by side, what each covers, and its cost and emissions by a site's own numbers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

from sifmark.core.errors import UsageError
from sifmark.results.comparison.tables import TableStyle
from sifmark.results.numbers import format_number, format_quantity

COLUMNS = (
    *("name", "runs", "own_joules", "own_seconds", "own_watts", "own_covers", "own_reason"),
    *("whole_joules", "whole_seconds", "whole_watts", "whole_covers", "whole_reason"),
    *("energy_ratio", "power_ratio", "basis", "facility_kwh", "cost", "currency", "co2_grams"),
)
UNKNOWN_SCOPE = "not said"
MISSING = "-"
WHOLE, OWN = "whole", "own meter"
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class MeasuredEnergy:
    """Joules over some seconds, or None with the reason."""

    joules: float | None
    seconds: float | None
    covers: str  # such as `4 x board`, or `the nodes of the job`
    reason: str = ""

    @property
    def watts(self) -> float | None:
        """The mean power, which can be compared where times differ."""
        return _ratio(self.joules, self.seconds)


@dataclass(frozen=True)
class MeteredRun:
    """A run: when and where it was, and the energy of its timed window by the meter of its result."""

    file: str
    label: str
    started: float  # seconds since 1970
    finished: float
    hosts: frozenset[str]
    own: MeasuredEnergy

    def overlaps(self, other: "MeteredRun") -> bool:
        """Return whether another run was in progress at the same time."""
        return self.started < other.finished and other.started < self.finished


@dataclass(frozen=True)
class EnergyRow:
    """A run, or the runs of a job, with the energy of the whole by another source."""

    name: str
    runs: tuple[MeteredRun, ...]
    own: MeasuredEnergy
    whole: MeasuredEnergy

    @property
    def energy_ratio(self) -> float | None:
        """The energy of the whole over that of the timed windows."""
        return _ratio(self.whole.joules, self.own.joules)

    @property
    def power_ratio(self) -> float | None:
        """The mean power of the whole over that in the timed windows."""
        return _ratio(self.whole.watts, self.own.watts)

    @property
    def basis(self) -> tuple[str, float | None]:
        """The energy that cost and emissions are of: the whole if it is known, else that of our own meter."""
        return (OWN, self.own.joules) if self.whole.joules is None else (WHOLE, self.whole.joules)


@dataclass(frozen=True)
class EnergyPrices:
    """A site's numbers; None where it gives none."""

    price_per_kwh: float | None = None
    currency: str = ""
    co2_grams_per_kwh: float | None = None
    pue: float | None = None  # power usage effectiveness: energy of the facility over that of its computers

    def facility_kwh(self, joules: float | None) -> float | None:
        """Return the energy of the facility in kWh, cooling included if the site gave its PUE."""
        return None if joules is None else joules / JOULES_PER_KWH * (self.pue or 1.0)

    def cost(self, joules: float | None) -> float | None:
        """Return the cost of what computers used, in the currency."""
        return _product(self.facility_kwh(joules), self.price_per_kwh)

    def carbon(self, joules: float | None) -> float | None:
        """Return the emissions, in grams of CO2 or its equivalent, as the site counts them."""
        return _product(self.facility_kwh(joules), self.co2_grams_per_kwh)


def metered_run(file: str, document: dict[str, Any]) -> MeteredRun:
    """Return a valid result as a run with its energy."""
    workload, ranks = document["workload"], document.get("ranks") or ()
    hosts = {document["host"]["hostname"]["value"], *(rank.get("host") for rank in ranks)} - {None}
    started, finished = (datetime.fromisoformat(document[name]).timestamp() for name in ("started", "finished"))
    label = f"{workload['name']} {workload['task']}, batch {document['configuration']['batch_size']}"
    return MeteredRun(file, label, started, finished, frozenset(hosts), _own(document))


def total(runs: Iterable[MeteredRun]) -> MeasuredEnergy:
    """Return the energy of the timed windows of several runs; None if that of one is unknown.

    Runs side by side have no time in all: their mean power is not their energy over the sum of their windows.
    """
    parts = list(runs)
    covers = ", ".join(sorted({run.own.covers for run in parts})) or UNKNOWN_SCOPE
    if not parts:
        return MeasuredEnergy(None, None, covers, "no result of a run within the job")
    if bad := next((run for run in parts if run.own.joules is None), None):
        return MeasuredEnergy(None, None, covers, f"{bad.file}: {bad.own.reason}")
    joules = sum(run.own.joules or 0.0 for run in parts)
    side_by_side = any(first.overlaps(second) for first, second in combinations(parts, 2))
    return MeasuredEnergy(joules, None if side_by_side else sum(run.own.seconds or 0.0 for run in parts), covers)


def prices_of(site: Mapping[str, Any], **options: Any) -> EnergyPrices:
    """Return the numbers of `[energy]` in sifmark.toml, replaced by options that were given. Raises UsageError."""
    given = {name: value for name, value in options.items() if value not in (None, "", 0.0)}
    prices = EnergyPrices(**{**site, **given})
    for name, least in (("price_per_kwh", 0.0), ("co2_grams_per_kwh", 0.0), ("pue", 1.0)):
        value = getattr(prices, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise UsageError(f"{name} = {value:g}", f"give a number from {least:g}", code="invalid-option")
    if prices.price_per_kwh is not None and not prices.currency:
        remedy = '--currency EUR, or currency = "EUR" below [energy] in sifmark.toml'
        raise UsageError("a price needs its currency", remedy, code="invalid-option")
    return prices


def report_lines(rows: Sequence[EnergyRow], prices: EnergyPrices, style: TableStyle) -> Iterator[str]:
    """Yield a table of energies, one of cost and emissions if the site gave numbers, and what is missing and why."""
    head = ["", "runs", "our meter", "in", "covers", "whole", "in", "covers", "energy", "power"]
    yield from style.table([head, *map(_cells, rows)])
    if prices != EnergyPrices():
        kwh = "kWh" + (f" x PUE {prices.pue:g}" if prices.pue else "")
        yield ""
        yield from style.table(
            [["", "of", kwh, f"cost [{prices.currency or '-'}]", "CO2 [g]"], *(_priced(row, prices) for row in rows)]
        )
    yield ""
    yield from map(style.line, dict.fromkeys(_notes(rows, prices)))


def rows_of(rows: Sequence[EnergyRow], prices: EnergyPrices) -> list[list[Any]]:
    """Return rows by COLUMNS. What is unknown is None."""
    return [[_record(row, prices)[name] for name in COLUMNS] for row in rows]


def as_document(rows: Sequence[EnergyRow], prices: EnergyPrices) -> dict[str, Any]:
    """Return everything as a document."""
    records = [_record(row, prices) | {"results": [run.file for run in row.runs]} for row in rows]
    numbers = {
        "price_per_kwh": prices.price_per_kwh,
        "currency": prices.currency or None,
        "co2_grams_per_kwh": prices.co2_grams_per_kwh,
        "pue": prices.pue,
    }
    return {"prices": numbers, "rows": records}


def _own(document: dict[str, Any]) -> MeasuredEnergy:
    metric, power = document["metrics"].get("energy"), document["power"]
    covers = f"{len(power.get('devices', ()))} x {power['scope']}" if "scope" in power else "nothing: no meter"
    if metric is None or metric["value"] is None:
        reason = power.get("reason") or (metric or {}).get("reason") or "the result has no energy"
        return MeasuredEnergy(None, None, covers, reason)
    return MeasuredEnergy(metric["value"], document["phases"]["steady"]["seconds"], covers)


def _cells(row: EnergyRow) -> list[str]:
    parts = [text for part in (row.own, row.whole) for text in _energy_cells(part)]
    ratios = [MISSING if ratio is None else f"{format_number(ratio)}x" for ratio in (row.energy_ratio, row.power_ratio)]
    return [row.name, str(len(row.runs)), *parts, *ratios]


def _energy_cells(part: MeasuredEnergy) -> list[str]:
    joules = MISSING if part.joules is None else format_quantity(part.joules, "J")
    return [joules, MISSING if part.seconds is None else f"{format_number(part.seconds)} s", part.covers]


def _priced(row: EnergyRow, prices: EnergyPrices) -> list[str]:
    of, joules = row.basis
    values = (prices.facility_kwh(joules), prices.cost(joules), prices.carbon(joules))
    return [row.name, of, *(MISSING if value is None else format_number(value) for value in values)]


def _notes(rows: Sequence[EnergyRow], prices: EnergyPrices) -> Iterator[str]:
    yield "our meter: the timed windows of the runs; whole: from begin to end, with start, warm-up and checks"
    yield "energy and power: the whole over our meter; power compares means, so that the length of both does not count"
    for row in rows:
        for what, part in (("our meter", row.own), ("whole", row.whole)):
            if part.joules is None and part.reason:
                yield f"not known: {row.name}, {what}: {part.reason}"
    if prices != EnergyPrices():
        if prices.pue is None:
            yield "without a PUE, cooling and power conversion are not included"
        if any(row.basis[0] == OWN and row.own.joules is not None for row in rows):
            yield "of our meter: cost and carbon are those of the metered devices in the timed windows alone"


def _record(row: EnergyRow, prices: EnergyPrices) -> dict[str, Any]:
    of, joules = row.basis
    record: dict[str, Any] = {"name": row.name, "runs": len(row.runs)}
    for name, part in (("own", row.own), ("whole", row.whole)):
        record |= {f"{name}_joules": part.joules, f"{name}_seconds": part.seconds, f"{name}_watts": part.watts}
        record |= {f"{name}_covers": part.covers, f"{name}_reason": part.reason or None}
    return record | {
        "energy_ratio": row.energy_ratio,
        "power_ratio": row.power_ratio,
        "basis": of,
        "facility_kwh": prices.facility_kwh(joules),
        "cost": prices.cost(joules),
        "currency": prices.currency or None,
        "co2_grams": prices.carbon(joules),
    }


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference


def _product(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor
