"""The energy of whole jobs as text, Markdown, rows of CSV, and JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from sifmark.results.comparison.tables import TableStyle
from sifmark.results.numbers import format_number, format_scaled
from sifmark.studies.analysis.energy.measured import EnergyRow, MeasuredEnergy
from sifmark.studies.analysis.energy.prices import EnergyPrices

COLUMNS = (
    *("name", "runs", "own_joules", "own_seconds", "own_watts", "own_covers", "own_reason"),
    *("whole_joules", "whole_seconds", "whole_watts", "whole_covers", "whole_reason"),
    *("energy_ratio", "power_ratio", "basis", "facility_kwh", "cost", "currency", "co2_grams"),
)
MISSING = "-"
WHOLE, OWN = "whole", "own meter"


def report_lines(rows: Sequence[EnergyRow], prices: EnergyPrices, style: TableStyle) -> Iterator[str]:
    """Yield a table of energies, one of cost and carbon if the site gave numbers, and what is missing and why."""
    head = ["", "runs", "our meter", "in", "covers", "whole", "in", "covers", "energy", "power"]
    yield from style.table([head, *map(_cells, rows)])
    if prices != EnergyPrices():
        yield ""
        yield from style.table([_cost_head(prices), *(_cost_cells(row, prices) for row in rows)])
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


def basis(row: EnergyRow) -> tuple[str, float | None]:
    """Return which energy cost and carbon are of: the whole if it is known, else that of our own meter."""
    return (OWN, row.own.joules) if row.whole.joules is None else (WHOLE, row.whole.joules)


def _cells(row: EnergyRow) -> list[str]:
    parts = [text for part in (row.own, row.whole) for text in _energy_cells(part)]
    ratios = [MISSING if ratio is None else f"{format_number(ratio)}x" for ratio in (row.energy_ratio, row.power_ratio)]
    return [row.name, str(len(row.runs)), *parts, *ratios]


def _energy_cells(part: MeasuredEnergy) -> list[str]:
    joules = MISSING if part.joules is None else format_scaled(part.joules, "J")
    return [joules, MISSING if part.seconds is None else f"{format_number(part.seconds)} s", part.covers]


def _cost_head(prices: EnergyPrices) -> list[str]:
    return [
        "",
        "of",
        "kWh" + (f" x PUE {prices.pue:g}" if prices.pue else ""),
        f"cost [{prices.currency or '-'}]",
        "CO2 [g]",
    ]


def _cost_cells(row: EnergyRow, prices: EnergyPrices) -> list[str]:
    of, joules = basis(row)
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
        if any(basis(row)[0] == OWN and row.own.joules is not None for row in rows):
            yield "of our meter: cost and carbon are those of the metered devices in the timed windows alone"


def _record(row: EnergyRow, prices: EnergyPrices) -> dict[str, Any]:
    of, joules = basis(row)
    return {
        "name": row.name,
        "runs": len(row.runs),
        **_part_record("own", row.own),
        **_part_record("whole", row.whole),
        "energy_ratio": row.energy_ratio,
        "power_ratio": row.power_ratio,
        "basis": of,
        "facility_kwh": prices.facility_kwh(joules),
        "cost": prices.cost(joules),
        "currency": prices.currency or None,
        "co2_grams": prices.carbon(joules),
    }


def _part_record(name: str, part: MeasuredEnergy) -> dict[str, Any]:
    return {
        f"{name}_joules": part.joules,
        f"{name}_seconds": part.seconds,
        f"{name}_watts": part.watts,
        f"{name}_covers": part.covers,
        f"{name}_reason": part.reason or None,
    }
