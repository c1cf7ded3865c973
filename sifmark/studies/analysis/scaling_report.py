"""Scaling curves as text, Markdown, rows of CSV, and JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from sifmark.results.comparison.intervals import CONFIDENCE, Ratio
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.tables import TableStyle, disturbances_of, percentage_text
from sifmark.results.documents import MetricValue
from sifmark.results.numbers import Scale, format_interval, format_quantity, scale_of
from sifmark.studies.analysis.scaling import ScalingCurve, ScalingPoint
from sifmark.studies.analysis.step_time import COMMUNICATION, EVIDENCE, PARTS, Part

MISSING = "-"
_NAMES = {"bus_bandwidth": "bus bandwidth", "power_per_device": "power/device", "rank_spread": "rank spread"}
COLUMNS = (
    *("title", "kind", "over", "strategy", "devices", "nodes", "batch_size", "repeats"),
    *("throughput", "throughput_low", "throughput_high", "unit", "ideal"),
    *("speedup", "speedup_low", "speedup_high", "efficiency", "efficiency_low", "efficiency_high", "reason"),
    *("step_seconds", "ideal_seconds", "lost_seconds"),
    *(f"{name.replace(' ', '_')}_seconds" for name in PARTS),
    *("gradient_all_reduce_seconds", *EVIDENCE, "bends"),
)


def report_lines(curves: Sequence[ScalingCurve], style: TableStyle, limit: float) -> Iterator[str]:
    """Yield each curve as two tables, where it bends, and what is not known and why."""
    for number, curve in enumerate(curves):
        if number:
            yield ""
        yield from _curve_lines(curve, style, limit)


def rows_of(curves: Sequence[ScalingCurve], limit: float) -> list[list[Any]]:
    """Return a row for each point, by COLUMNS. What is not known is None."""
    rows = []
    for curve in curves:
        bend = curve.bend(limit)
        for point in curve.points:
            record = _record(curve, point) | {"bends": bend is not None and bend.point is point}
            rows.append([record[name] for name in COLUMNS])
    return rows


def as_document(curves: Sequence[ScalingCurve], limit: float) -> dict[str, Any]:
    """Return everything as a document, with the reasons for what is not known."""
    return {"confidence": CONFIDENCE, "limit": limit, "curves": [_curve_record(curve, limit) for curve in curves]}


def _curve_lines(curve: ScalingCurve, style: TableStyle, limit: float) -> Iterator[str]:
    reference = curve.reference
    yield style.line(f"{curve.title}: {curve.kind} scaling over {curve.over}{_strategy(curve)}")
    yield style.line(f"reference: {_count(reference)}, batch {reference.row.fields[BATCH]}")
    yield ""
    yield from style.table(_speed_cells(curve))
    yield ""
    yield style.line("where the time of a step goes:")
    yield ""
    yield from style.table(_time_cells(curve))
    yield ""
    yield style.line(_bend_text(curve, limit))
    yield from map(style.line, dict.fromkeys(_notes(curve)))
    yield from map(style.line, disturbances_of([point.row for point in curve.points]))


def _strategy(curve: ScalingCurve) -> str:
    return f", {curve.strategy}" if curve.strategy else ""


def _count(point: ScalingPoint) -> str:
    nodes = f" of {point.nodes} nodes" if point.nodes > 1 else ""
    return f"{point.devices} device{'s' * (point.devices > 1)}{nodes}"


def _speed_cells(curve: ScalingCurve) -> list[list[str]]:
    values = [point.throughput.value for point in curve.points]
    scale = scale_of(curve.unit, (value for value in values if value is not None))
    head = ["devices", "nodes", "batch", "n", f"throughput [{scale.unit}]", "ideal", "speed-up", "efficiency"]
    return [head, *(_speed_row(point, scale) for point in curve.points)]


def _speed_row(point: ScalingPoint, scale: Scale) -> list[str]:
    measured, batch = point.throughput, point.row.fields[BATCH]
    value = MISSING if measured.value is None else scale.text(measured.value, measured.low, measured.high)
    ideal = MISSING if point.ideal is None else scale.text(point.ideal)
    counts = [point.devices, point.nodes, batch, measured.count]
    relative = [MISSING, MISSING] if point.is_reference else [_factor(point.speedup), percentage_text(point.efficiency)]
    return [*map(str, counts), value, ideal, *relative]


def _factor(ratio: Ratio) -> str:
    if ratio.value is None:
        return MISSING
    number, _, interval = format_interval(ratio.value, ratio.low, ratio.high).partition(" ")
    return f"{number}x {interval}".rstrip()


def _time_cells(curve: ScalingCurve) -> list[list[str]]:
    shown = [name for name in EVIDENCE if any(point.time.evidence[name].value is not None for point in curve.points)]
    head = ["devices", "nodes", "step", "ideal", "lost", *PARTS, *(_NAMES.get(name, name) for name in shown)]
    return [head, *(_time_row(point, shown) for point in curve.points)]


def _time_row(point: ScalingPoint, shown: Sequence[str]) -> list[str]:
    time = point.time
    parts = [time.lost, *(part.seconds for part in time.parts.values())]
    seconds = [_seconds(value, time.seconds) for value in (time.seconds, time.ideal, *parts)]
    if point.is_reference:
        seconds[2:] = [MISSING] * len(parts)
    evidence = [_evidence(time.evidence[name]) for name in shown]
    return [str(point.devices), str(point.nodes), *seconds, *evidence]


def _seconds(value: float | None, of: float | None = None) -> str:
    """Return a part of a time; what is less than a ten-thousandth of the whole is shown as nothing."""
    if value is None:
        return "not known"
    return format_quantity(0.0 if of and abs(value) < of / 10_000 else value, "s")


def _evidence(number: MetricValue) -> str:
    return MISSING if number.value is None else format_quantity(number.value, number.unit)


def _bend_text(curve: ScalingCurve, limit: float) -> str:
    bend = curve.bend(limit)
    if bend is None:
        reason = next((point.efficiency.reason for point in curve.points if point.efficiency.value is None), None)
        return f"efficiency is unknown: {reason}" if reason else f"no bend: efficiency stays above {limit:.0%}"
    doubt = "" if bend.certain else ", which repeats do not show for certain"
    cause = f"; {bend.cause}" if bend.cause else ""
    return f"bends at {_count(bend.point)}: efficiency is below {limit:.0%}{doubt}{cause}"


def _notes(curve: ScalingCurve) -> Iterator[str]:
    """Yield why something is not known, and what limits an explanation."""
    for point in curve.points[1:]:
        for name, part in point.time.parts.items():
            if part.seconds is None:
                yield f"not known: {name}: {part.reason}"
        if (reason := point.efficiency.reason) is not None:
            yield f"efficiency without an interval: {reason}"
        yield from _bound(point)
    if all(point.time.evidence["power_per_device"].value is None for point in curve.points):
        yield f"not known: power of devices: {curve.points[-1].time.evidence['power_per_device'].reason}"


def _bound(point: ScalingPoint) -> Iterator[str]:
    """Yield what the timed sum over ranks says about the part that is called communication."""
    spent, alone = point.time.parts[COMMUNICATION].seconds, point.time.all_reduce
    if spent is None or alone.seconds is None:
        return
    text = f"{_count(point)}: at the bandwidth of the sum before the run, all gradients take {_seconds(alone.seconds)}"
    if spent > alone.seconds:
        rest = _seconds(spent - alone.seconds)
        yield f"{text}; {rest} more were spent: waits for other ranks, or messages too small for that bandwidth"
    else:
        yield f"{text}, of which computing hides {_seconds(alone.seconds - max(spent, 0.0))}"


def _record(curve: ScalingCurve, point: ScalingPoint) -> dict[str, Any]:
    time, measured = point.time, point.throughput
    return {
        "title": curve.title,
        "kind": curve.kind,
        "over": curve.over,
        "strategy": curve.strategy,
        "devices": point.devices,
        "nodes": point.nodes,
        "batch_size": point.row.fields[BATCH],
        "repeats": measured.count,
        "throughput": measured.value,
        "unit": curve.unit,
        "ideal": point.ideal,
        "throughput_low": measured.low,
        "throughput_high": measured.high,
        **_ratio_record("speedup", point.speedup),
        **_ratio_record("efficiency", point.efficiency),
        "reason": point.efficiency.reason,
        "step_seconds": time.seconds,
        "ideal_seconds": time.ideal,
        "lost_seconds": time.lost,
        **{f"{name.replace(' ', '_')}_seconds": part.seconds for name, part in time.parts.items()},
        "gradient_all_reduce_seconds": time.all_reduce.seconds,
        **{name: number.value for name, number in time.evidence.items()},
    }


def _ratio_record(name: str, ratio: Ratio) -> dict[str, float | None]:
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def _curve_record(curve: ScalingCurve, limit: float) -> dict[str, Any]:
    bend = curve.bend(limit)
    return {
        "title": curve.title,
        "kind": curve.kind,
        "over": curve.over,
        "strategy": curve.strategy,
        "unit": curve.unit,
        "reference": {"devices": curve.reference.row.fields[DEVICES], "nodes": curve.reference.nodes},
        "bend": bend and {"devices": bend.point.devices, "certain": bend.certain, "cause": bend.cause},
        "points": [_point_record(curve, point) for point in curve.points],
    }


def _point_record(curve: ScalingCurve, point: ScalingPoint) -> dict[str, Any]:
    record = _record(curve, point)
    common = ("title", "kind", "over", "strategy", "unit")
    time = point.time
    return {
        **{name: value for name, value in record.items() if name not in common},
        "parts": {name: _part_record(part) for name, part in time.parts.items()},
        "gradient_all_reduce": _part_record(time.all_reduce),
        "evidence": {name: number._asdict() for name, number in time.evidence.items()},
        "results": [observation.file for observation in point.row.observations],
    }


def _part_record(part: Part) -> dict[str, Any]:
    return {"seconds": part.seconds} if part.seconds is not None else {"seconds": None, "reason": part.reason}
