"""Scaling curves as text, Markdown, rows of CSV, and JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sifmark.core.console import fold_first
from sifmark.results.catalogue import column_of
from sifmark.results.comparison.columns import SYSTEM_NAMES, cell_text
from sifmark.results.comparison.intervals import CONFIDENCE, Ratio
from sifmark.results.comparison.repeats import varying_fields
from sifmark.results.comparison.scaling import BATCH, DEVICES, EXECUTION, STEPS, follows_devices
from sifmark.results.comparison.tables import TableStyle, disturbances_of, efficiency_text, factor_text, percentage_text
from sifmark.results.documents import MetricValue
from sifmark.results.numbers import Scale, compact, format_quantity, scale_of
from sifmark.studies.analysis.scaling import ScalingCurve, ScalingPoint
from sifmark.studies.analysis.step_time import COMMUNICATION, EVIDENCE, PARTS, Part

MISSING, UNKNOWN = "-", "not known"
_NAME_WIDTH = 20  # columns that the name of a workload gets at least
_NAMES = {"bus_bandwidth": "bus bandwidth", "power_per_device": "power/device", "rank_spread": "rank spread"}
_SHORT = {"devices": "dev"}  # on a narrow terminal
COLUMNS = (
    *("title", "kind", "over", "strategy", "devices", "nodes", "batch_size", "repeats"),
    *("throughput", "throughput_low", "throughput_high", "unit", "ideal"),
    *("speedup", "speedup_low", "speedup_high", "efficiency", "efficiency_low", "efficiency_high", "reason"),
    *("step_seconds", "ideal_seconds", "lost_seconds"),
    *(f"{name.replace(' ', '_')}_seconds" for name in PARTS),
    *("gradient_all_reduce_seconds", *EVIDENCE, "bends"),
)


def report_lines(curves: Sequence[ScalingCurve], style: TableStyle, limit: float) -> Iterator[str]:
    """Yield the efficiency of each curve, then tables by workload and kind of scaling, and last what is not known."""
    named = _named(curves)
    if len(curves) > 1:
        overview = _overview(named, limit, style)
        if style.width is not None:
            overview = fold_first(overview, style.width, _NAME_WIDTH)
        yield from style.table(overview)
    groups: dict[tuple[str, ...], list[_Named]] = defaultdict(list)
    for each in named:
        groups[_group_of(each.curve)].append(each)
    for number, members in enumerate(groups.values()):
        yield from [""] * (len(curves) > 1 or number > 0)
        yield from _group_lines(members, style, limit)
    texts = [*_counted(map(_notes, named))]
    rows = {id(point.row.observations): point.row for curve in curves for point in curve.points}
    texts += disturbances_of(list(rows.values()))
    texts += _counted(map(_bounds, named))
    yield from [""] * bool(texts)
    yield from style.notes(texts)


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


def _counted(notes: Iterable[Iterable[str]]) -> list[str]:
    """Return the notes of curves, each once with the number of curves."""
    counts = Counter(note for of_curve in notes for note in dict.fromkeys(of_curve))
    return [f"{note} ({count} curves)" if count > 1 else note for note, count in counts.items()]


@dataclass(frozen=True)
class _Named:
    """A curve, and what tells its system from those of other curves; empty if all are of one."""

    system: str
    curve: ScalingCurve

    @property
    def batch(self) -> int:
        """The batch size with which it begins."""
        return int(self.curve.reference.row.fields[BATCH])

    @property
    def place(self) -> str:
        """Which curve of a table it is: `alpha, from batch 32`."""
        return ", ".join(filter(None, (self.system, f"from batch {self.batch}")))


def _named(curves: Sequence[ScalingCurve]) -> list[_Named]:
    """Return curves with the names of their systems."""
    by_title: dict[str, list[ScalingCurve]] = defaultdict(list)
    for curve in curves:
        by_title[curve.title].append(curve)
    names = {id(c): name for each in by_title.values() for c, name in zip(each, _names_of(each), strict=True)}
    return [_Named(names[id(curve)], curve) for curve in curves]


def _names_of(curves: Sequence[ScalingCurve]) -> Iterator[str]:
    """Yield what tells the systems of curves of one workload apart: site or device, and what else differs within it."""
    rows = [curve.reference.row for curve in curves]
    varying = [name for name in varying_fields(rows) if not _is_of_scaling(name)]
    system = next((name for name in SYSTEM_NAMES if name in varying), None)
    values: dict[str, dict[Any, set[Any]]] = {name: defaultdict(set) for name in varying}
    for row in rows:
        for name in varying:
            values[name][system and row.fields.get(system)].add(row.fields.get(name))
    more = [name for name in varying if name != system and any(len(each) > 1 for each in values[name].values())]
    for row in rows:
        texts = [f"{column_of(name)} {cell_text(row.fields.get(name))}" for name in more]
        yield " ".join([*([cell_text(row.fields.get(system))] if system else []), *texts])


def _is_of_scaling(name: str) -> bool:
    """Return whether a field is that of a point, or of the workload, and not of a system."""
    return follows_devices(name) or name in (EXECUTION, STEPS)


def _group_of(curve: ScalingCurve) -> tuple[str, ...]:
    return curve.title, curve.kind, curve.over, curve.strategy or "", curve.unit


def _systems(named: Iterable[_Named]) -> list[str]:
    return list(dict.fromkeys(each.system for each in named))


def _overview(named: Sequence[_Named], limit: float, style: TableStyle) -> list[list[str]]:
    """Return a row for each kind of scaling and first batch: the efficiency of each system on the most devices."""
    systems = _systems(named)
    rows: dict[tuple[Any, ...], dict[str, str]] = defaultdict(dict)
    for each in named:
        curve, last = each.curve, each.curve.points[-1]
        name = f"{curve.title.partition(',')[0]}, {curve.kind} over {curve.over}{_strategy(curve)}"
        bends = " bends" if curve.bend(limit) else ""
        key = (name, each.batch, f"{curve.reference.devices} to {last.devices}")
        rows[key][each.system] = efficiency_text(last.efficiency, style) + bends
    heads = ["efficiency", "batch", "devices", *(system or "last point" for system in systems)]
    return [heads, *([*map(str, key), *(cells.get(each, MISSING) for each in systems)] for key, cells in rows.items())]


def _group_lines(members: Sequence[_Named], style: TableStyle, limit: float) -> Iterator[str]:
    """Yield curves of one workload and kind of scaling: their speed, where the time goes, and where they bend."""
    curve, systems = members[0].curve, _systems(members)
    yield style.line(f"{curve.title}: {curve.kind} scaling over {curve.over}{_strategy(curve)}")
    if len(members) == 1:
        yield style.line(f"reference: {_count(curve.reference)}, batch {members[0].batch}")
    yield ""
    if len(systems) == 1:
        yield from style.table(_speed_cells(members))
    else:
        yield style.line(f"throughput [{_scale_of(members).unit}], and efficiency")
        for table in style.parts(systems, lambda part: _system_cells(members, part, style)):
            yield from style.table(table)
    yield ""
    yield style.line("where the time of a step goes:")
    yield ""
    yield from _time_lines(members, style)
    yield ""
    yield from map(style.line, _bends(members, limit))


def _system_cells(members: Sequence[_Named], systems: Sequence[str], style: TableStyle) -> list[list[str]]:
    """Return a row for each point of any curve, with throughput and efficiency of these systems."""
    scale = _scale_of(members)
    rows: dict[tuple[int, ...], dict[str, str]] = defaultdict(dict)
    for each in members:
        for point in each.curve.points:
            key = (each.batch, point.devices, point.nodes, point.row.fields[BATCH])
            rows[key][each.system] = _point_text(point, scale, style)
    kept = {key: cells for key, cells in sorted(rows.items()) if cells.keys() & set(systems)}
    heads = ["devices", "nodes", "batch", *systems]
    table = [heads]
    table += [[*map(str, key[1:]), *(cells.get(each, MISSING) for each in systems)] for key, cells in kept.items()]
    return table if any(key[2] > 1 for key in kept) else [[row[0], *row[2:]] for row in table]


def _point_text(point: ScalingPoint, scale: Scale, style: TableStyle) -> str:
    measured = point.throughput
    value = MISSING if measured.value is None else scale.text(measured.value, measured.low, measured.high)
    text = value if style.width is None else compact(value)
    return text if point.is_reference else f"{text}  {efficiency_text(point.efficiency, style)}"


def _scale_of(members: Sequence[_Named]) -> Scale:
    values = [point.throughput.value for each in members for point in each.curve.points]
    return scale_of(members[0].curve.unit, (value for value in values if value is not None))


def _bends(members: Sequence[_Named], limit: float) -> Iterator[str]:
    """Yield where each curve bends; those that do not are named together."""
    alone = len(members) == 1
    straight = [each.place for each in members if each.curve.bend(limit) is None and _is_known(each.curve)]
    if straight:
        yield f"no bend: efficiency stays above {limit:.0%}" + ("" if alone else f": {'; '.join(straight)}")
    for each in members:
        if each.place not in straight:
            yield _bend_text(each.curve, limit) if alone else f"{each.place}: {_bend_text(each.curve, limit)}"


def _is_known(curve: ScalingCurve) -> bool:
    return all(point.efficiency.value is not None for point in curve.points)


def _strategy(curve: ScalingCurve) -> str:
    return f", {curve.strategy}" if curve.strategy else ""


def _count(point: ScalingPoint) -> str:
    nodes = f" of {point.nodes} nodes" if point.nodes > 1 else ""
    return f"{point.devices} device{'s' * (point.devices > 1)}{nodes}"


def _speed_cells(members: Sequence[_Named]) -> list[list[str]]:
    """Return a row for each point of the curves of one system."""
    scale = _scale_of(members)
    head = ["devices", "nodes", "batch", "n", f"throughput [{scale.unit}]", "ideal", "speed-up", "efficiency"]
    return [head, *(_speed_row(point, scale) for each in members for point in each.curve.points)]


def _speed_row(point: ScalingPoint, scale: Scale) -> list[str]:
    measured, batch = point.throughput, point.row.fields[BATCH]
    value = MISSING if measured.value is None else scale.text(measured.value, measured.low, measured.high)
    ideal = MISSING if point.ideal is None else scale.text(point.ideal)
    counts = [point.devices, point.nodes, batch, measured.count]
    relative = (
        [MISSING, MISSING] if point.is_reference else [factor_text(point.speedup), percentage_text(point.efficiency)]
    )
    return [*map(str, counts), value, ideal, *relative]


def _time_lines(members: Sequence[_Named], style: TableStyle) -> Iterator[str]:
    """Yield the table of the parts of steps; without the evidence, where a terminal has no room for it."""
    points = [(each.system, point) for each in members for point in each.curve.points]
    shown = [name for name in EVIDENCE if any(point.time.evidence[name].value is not None for _, point in points)]
    table = _time_cells(points, shown)
    if style.has_room(table):
        yield from style.table(table)
        return
    table = _time_cells([(name, point) for name, point in points if not point.is_reference], ())
    kept = [number for number, name in enumerate(table[0]) if name not in ("step", "ideal")]
    table = [[_SHORT.get(row[number], row[number]) for number in kept] for row in table]
    yield from style.table(table)
    if shown:
        names = ", ".join(("step", "ideal", *(_NAMES.get(name, name) for name in shown)))
        yield style.line(f"for {names} too: --format csv, or a wider terminal")


def _time_cells(points: Sequence[tuple[str, ScalingPoint]], shown: Sequence[str]) -> list[list[str]]:
    """Return a row for each point, with the parts of its step that any of them knows, and this evidence."""
    head = ["devices", "nodes", "batch", "step", "ideal", "lost", *PARTS, *(_NAMES.get(name, name) for name in shown)]
    rows = [_time_row(point, shown) for _, point in points]
    texts = {name: {row[number] for row in rows} for number, name in enumerate(head)}
    unknown = {name for name in PARTS if texts[name] <= {MISSING, UNKNOWN}}
    if texts["nodes"] == {"1"} and len({name for name, _ in points}) > 1:
        unknown.add("nodes")
    table = [[cell for cell, name in zip(row, head, strict=True) if name not in unknown] for row in (head, *rows)]
    if len({name for name, _ in points}) == 1:
        return table
    return [[name, *row] for name, row in zip(["system", *(name for name, _ in points)], table, strict=True)]


def _time_row(point: ScalingPoint, shown: Sequence[str]) -> list[str]:
    time = point.time
    parts = [time.lost, *(part.seconds for part in time.parts.values())]
    seconds = [_seconds(value, time.seconds) for value in (time.seconds, time.ideal, *parts)]
    if point.is_reference:
        seconds[2:] = [MISSING] * len(parts)
    evidence = [_evidence(time.evidence[name]) for name in shown]
    return [str(point.devices), str(point.nodes), str(point.row.fields[BATCH]), *seconds, *evidence]


def _seconds(value: float | None, of: float | None = None) -> str:
    """Return a part of a time; what is less than a ten-thousandth of the whole is shown as nothing."""
    if value is None:
        return UNKNOWN
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


def _notes(named: _Named) -> Iterator[str]:
    """Yield why something is not known."""
    curve = named.curve
    for point in curve.points[1:]:
        for name, part in point.time.parts.items():
            if part.seconds is None:
                yield f"not known: {name}: {part.reason}"
        if (reason := point.efficiency.reason) is not None:
            yield f"efficiency without an interval: {reason}"
    if all(point.time.evidence["power_per_device"].value is None for point in curve.points):
        yield f"not known: power of devices: {curve.points[-1].time.evidence['power_per_device'].reason}"


def _bounds(named: _Named) -> Iterator[str]:
    """Yield what limits the explanation of the point with the most devices."""
    place = f"{named.system}, " if named.system else ""
    yield from (f"{place}{text}" for text in _bound(named.curve.points[-1]))


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
