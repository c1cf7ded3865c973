"""The charts of a report as a list: what each shows, of which kinds of runs, and when. `forms` draws them.

A workload has three charts at most that answer what its kind of run is measured for, and others on a condition.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sifmark.core.console import counted
from sifmark.report.describe import (
    MIB_PER_GIB,
    describe_failure,
    describe_published,
    factor_text,
    field_text,
    listed,
    mean_text,
    memory_of_device,
    quantity_text,
    short,
    slug,
)
from sifmark.report.forms import (
    LONGEST_NAME,
    Axis,
    BarChart,
    BarRow,
    Cross,
    Diamond,
    Figure,
    Level,
    LineChart,
    Place,
    RatioChart,
    RatioRow,
    Series,
    Spot,
    axis_up,
    grouped,
    place_of,
    places_axis,
    shown,
    spot_of,
    system_labels,
)
from sifmark.report.results import Point, ReportResult, ReportResults, Section
from sifmark.report.svg import tick_text
from sifmark.report.workloads import GENERATION, REQUESTS, SERVING, Workload
from sifmark.results.comparison.intervals import mean
from sifmark.results.comparison.observation import SERVING_LOAD
from sifmark.results.comparison.scaling import BATCH, DEVICES, WEAK
from sifmark.results.marks import UNSTEADY
from sifmark.results.numbers import format_number, format_quantity, format_scaled, scale_of

MOST_FIGURES = 3
RATE, MEMORY = "rate", "memory"
ENERGY, FIRST_TOKEN = "energy_per_unit", "time_to_first_token_p50"
TOKEN_GAP, TOKEN_TIME = "time_between_tokens_p50", "time_per_output_token_p50"
TAIL, TARGET, GOODPUT = "latency_p99", "time_to_target", "goodput"
ALLOCATED, PROCESS = "peak_allocated_memory", "peak_process_memory"
LATENCY_PARTS = ("preprocessing", "transfer", "compute", "retrieval", "other")
_FARTHEST_LIMIT = 8.0  # of the largest value: a limit of memory that is farther away is not drawn
_LEAST_EFFICIENCY = 70.0  # percent, where its axis begins unless a system is below
_MOST_NAMED = 2  # systems at one limit
_FEWEST_STEPS = 10
MOST_PUBLISHED = 40  # ratios to published figures in a chart
BANDWIDTH_OF_ALL, _BUS_BANDWIDTH = "small_message_latency", "bus_bandwidth_gb_per_second"  # what every sweep has


@dataclass(frozen=True)
class Lines:
    """A chart of one metric of a workload over another one, or over the load of a device."""

    kind: str  # as its files are called
    title: str
    metric: str  # RATE for that by which systems are ranked, MEMORY for that of devices or processes
    over: str = ""  # a metric; empty for the load
    is_log: bool = False  # up
    note: str = ""
    inverse: bool = False  # whether across there is 1 / `over`
    failures: bool = False
    capacity: bool = False
    budget: bool = False
    named_at_top: bool = False

    def draw(self, workload: Workload) -> Figure | None:
        """Return the chart, or None where no line has two marks."""
        metric = _metric(workload, self.metric)
        points = workload.alone(metric)
        placed = sorted(self._placed(workload, points), key=lambda pair: workload.load_of(pair[1].fields))
        groups = grouped(workload.results, placed, workload.load, BATCH)
        if not any(len(members) > 1 for _, _, members in groups):
            return None
        scale = scale_of(points[0].unit, (point.value for _, point in placed))
        series = shown(
            [
                Series(
                    place_of(workload.results, name), label, tuple(self._spots(workload, label, members, scale.factor))
                )
                for name, label, members in groups
            ],
            {place_of(workload.results, name): point.value for name, point in workload.best.items()},
        )
        crosses = _crosses(workload) if self.failures and not self.over else []
        diamonds = [] if self.over else _diamonds(workload, metric, scale.factor)
        levels = self._budget(workload, scale.factor)
        if self.capacity and metric == ALLOCATED:
            levels += _capacities(workload, series, scale.factor)
        values = [spot.y for each in series for spot in each.spots]
        by_itself = not self.over and not self.capacity  # elsewhere the ends tell more than their ratio
        y = axis_up(_per(scale.unit), values, self.is_log, by_itself)
        chart = LineChart(
            f"{self.title}: {_reach(series, scale.unit)}",
            series,
            self._across(workload, placed, [*crosses, *diamonds]),
            y,
            crosses,
            levels,
            diamonds,
            named_at="top" if self.named_at_top else "right",
        )
        left = f"{len(groups) - len(series)} more lines are in the table" if len(groups) > len(series) else ""
        limits = "dashed: what a device has" if self.capacity and levels else ""
        signs = [limits, "✕ failed" if crosses else "", "◇ published" if diamonds else ""]
        note = ", ".join(filter(None, [self.note, "" if self.over else _devices(workload), *signs, left]))
        return Figure(slug(workload.anchor, self.kind), self.title, note, chart.plot())

    def _placed(self, workload: Workload, points: Iterable[Point]) -> Iterator[Place]:
        for point in points:
            load = workload.load_of(point.fields)
            if not load:
                continue
            if self.over:
                other = workload.beside(point, _metric(workload, self.over))
                if other and other.value > 0:
                    yield (1 / other.value if self.inverse else other.value), point
            else:
                yield float(load), point

    def _spots(self, workload: Workload, label: str, members: Iterable[Place], factor: float) -> tuple[Spot, ...]:
        return tuple(
            spot_of(x, point, label, workload.load_text(workload.load_of(point.fields)), factor) for x, point in members
        )

    def _across(self, workload: Workload, placed: list[Place], others: Iterable[Cross | Diamond]) -> Axis:
        if self.over:
            name = _metric(workload, self.over)
            unit = "tokens/s per user" if self.inverse else workload.points(name)[0].unit
            return Axis(unit)
        return places_axis(_load_words(workload), [*(x for x, _ in placed), *(each.x for each in others)])

    def _budget(self, workload: Workload, factor: float) -> list[Level]:
        budget = budget_of(workload) if self.budget else None
        return [] if budget is None else [Level(budget / factor, budget_text(budget))]


def _metric(workload: Workload, name: str) -> str:
    return {RATE: workload.rate, MEMORY: memory_metric(workload)}.get(name, name)


def _load_words(workload: Workload) -> str:
    return "clients" if workload.has_clients else "batch size"


def _devices(workload: Workload) -> str:
    count = workload.fewest
    return "" if count is None else "one device" if count == 1 else f"{count} devices"


def _per(unit: str) -> str:
    return "" if unit == "1" else unit


def _reach(series: Iterable[Series], unit: str) -> str:
    """Return how far each line reaches, in words: all that readers without eyes get of a chart at once."""
    return "; ".join(
        f"{each.label} {format_number(min(spot.y for spot in each.spots), 3)}"
        f" to {format_number(max(spot.y for spot in each.spots), 3)} {_per(unit)}".rstrip()
        for each in series
    )


def _crosses(workload: Workload) -> list[Cross]:
    """Return the runs on the fewest devices that failed, once for each system and load."""
    return [
        Cross(
            float(load),
            place_of(workload.results, system),
            describe_failure(failure, workload.load_text(load)),
        )
        for system, lost in workload.lost.items()
        for load, failure in lost.items()
    ]


def _diamonds(workload: Workload, metric: str, factor: float) -> list[Diamond]:
    """Return the published figures that have a place among these: of as many devices, or of unsaid ones."""
    return [
        Diamond(float(load), end / factor, describe_published(mark, workload.load_text(load)))
        for mark in workload.section.published(metric)
        if isinstance(load := mark.conditions.get(workload.load), int)
        and mark.conditions.get(DEVICES, workload.fewest) == workload.fewest
        for end in dict.fromkeys(filter(None, (mark.low, mark.high)))
    ]


def memory_metric(workload: Workload) -> str:
    """Return the metric of memory: of devices, or of processes on hosts that compute themselves."""
    return ALLOCATED if workload.points(ALLOCATED) else PROCESS


def _capacities(workload: Workload, series: Iterable[Series], factor: float) -> list[Level]:
    """Return what a device of each system has, in units of `factor` MiB; systems with the same share a line."""
    largest = max(spot.y for each in series for spot in each.spots)
    systems: dict[float, list[str]] = defaultdict(list)
    for name, point in workload.best.items():
        if memory := memory_of_device(point.results[0].document):
            systems[round(memory)].append(name)
    levels = []
    for memory, names in systems.items():
        if memory / factor <= _FARTHEST_LIMIT * largest:
            system = place_of(workload.results, names[0]) if len(names) == 1 else None
            words = f"{_whose(names, workload)}: {memory / MIB_PER_GIB:.3g} GiB"
            levels.append(Level(memory / factor, words, system))
    return levels


def _whose(names: list[str], workload: Workload) -> str:
    if len(names) > _MOST_NAMED:
        return "each system" if len(names) == len(workload.best) else f"{len(names)} systems"
    return listed([short(name, LONGEST_NAME) for name in names])


def budget_of(workload: Workload) -> float | None:
    """Return the least round latency in s (1, 2 or 5 of a power of ten) within which each system answers 99 % of
    its requests at some load; None if no latency was measured.
    """
    least: dict[str, float] = {}
    for point in workload.alone(TAIL):
        least[point.system] = min(point.value, least.get(point.system, math.inf))
    if not least:
        return None
    needed = max(least.values())
    power = 10.0 ** math.floor(math.log10(needed))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= needed)


def budget_text(seconds: float) -> str:
    """Return a round time: `10 ms`."""
    scale = scale_of("s", [seconds])
    return f"{seconds / scale.factor:g} {scale.unit}"


def within_budget(workload: Workload) -> dict[str, Point]:
    """Return the highest measured rate of each system of which 99 % of requests were within the budget."""
    budget, best = budget_of(workload), dict[str, Point]()
    for tail in workload.alone(TAIL):
        rate = workload.beside(tail, workload.rate)
        if budget is None or rate is None or tail.value > budget:
            continue
        if tail.system not in best or rate.value > best[tail.system].value:
            best[tail.system] = rate
    return {name: best[name] for name in workload.results.systems if name in best}


def efficiency(workload: Workload) -> Figure | None:
    """Return the efficiency of scaling over devices, or None if no runs differ in the number of devices alone."""
    curves, results = workload.curves, workload.results
    if not curves:
        return None
    series = []
    labels = system_labels(results)
    for name, curve in curves.items():
        label = labels[name]
        spots = [Spot(float(curve.reference.fields[DEVICES]), 100.0, words=f"{label}: the reference")]
        for point, ratio in curve.points:
            value, low, high = (None if end is None else 100 * end for end in (ratio.value, ratio.low, ratio.high))
            words = f"{label}, {point.fields[DEVICES]} devices: {format_number(value or 0.0, 3)} %"
            spots.append(Spot(float(point.fields[DEVICES]), value or 0.0, low, high, words, bool(point.marks)))
        end = f"{spots[-1].y:.0f} %"
        series.append(Series(place_of(results, name), label, tuple(spots), end))
    lowest = min(spot.y for each in series for spot in each.spots)
    low = _LEAST_EFFICIENCY if lowest > _LEAST_EFFICIENCY else math.floor(max(0.0, lowest - 10) / 10) * 10.0
    highest = max(100.0, *(spot.y for each in series for spot in each.spots)) + 2
    across = places_axis("devices", [spot.x for each in series for spot in each.spots])
    up = Axis("efficiency", low=low, high=highest, words=lambda value: f"{value:g} %")
    ends = ", ".join(f"{each.label} {each.end} on {each.spots[-1].x:g} devices" for each in series)
    chart = LineChart(f"Efficiency of scaling: {ends}", shown(series), across, up, levels=[Level(100.0)])
    first = next(iter(curves.values()))
    same = f"{first.reference.fields[BATCH]:,} {workload.section.unit}"
    note = f"{same} per device" if first.kind == WEAK else f"{same} on all devices together"
    if low > 0:
        note += f"; the axis begins at {low:g} %"
    return Figure(slug(workload.anchor, "scaling"), f"Scaling to {across.at[-1]:g} devices", note, chart.plot())


def rate_within_budget(workload: Workload) -> Figure | None:
    """Return bars of the highest rate of each system within the budget of latency."""
    rates, budget = within_budget(workload), budget_of(workload)
    if budget is None or not rates:
        return None
    limit, unit = budget_text(budget), next(iter(rates.values())).unit
    rows = [row._replace(text=format_number(point.value)) for row, point in _bars(workload, rates)]
    label = f"Highest rate with 99 % of requests within {limit}: " + "; ".join(f"{r.label} {r.text}" for r in rows)
    note = f"{unit}, the highest with p99 ≤ {limit}"
    return Figure(slug(workload.anchor, "within-budget"), f"Rate within {limit}", note, BarChart(label, rows).plot())


def limits_text(point: Point) -> str:
    """Return the limits of a goodput, for the first token and for each further one: `2 s / 100 ms`."""
    limits = (point.fields.get(f"{SERVING_LOAD}{name}") for name in ("first_token_limit", "token_limit"))
    return " / ".join(budget_text(limit) for limit in limits if limit)


def goodputs(workload: Workload) -> dict[str, list[Point]]:
    """Return the largest rates within limits by what these are, systems in their order; of a system the highest."""
    best: dict[str, dict[str, Point]] = defaultdict(dict)
    for point in workload.alone(GOODPUT):
        known = best[limits_text(point)]
        if point.system not in known or point.value > known[point.system].value:
            known[point.system] = point
    return {
        limits: [known[name] for name in workload.results.systems if name in known] for limits, known in best.items()
    }


def goodput(workload: Workload) -> Figure | None:
    """Return bars of the largest rate at which each system keeps the limits of its answers, or None without one."""
    found, labels = goodputs(workload), system_labels(workload.results)
    if not found:
        return None
    rows = [
        BarRow(
            place_of(workload.results, point.system),
            labels[point.system],
            ((point.value, f"{labels[point.system]}: {quantity_text(point.mean, point.unit)}"),),
            format_number(point.value),
            group=limits,
        )
        for limits, points in found.items()
        for point in points
    ]
    label = "Goodput: " + "; ".join(f"{row.label} {row.text}, {row.group}" for row in rows)
    note = "requests/s of which 99 % keep both limits: to the first token / to each further one"
    return Figure(slug(workload.anchor, GOODPUT), "Requests within limits", note, BarChart(label, rows).plot())


def time_to_target(workload: Workload) -> Figure | None:
    """Return a bar for each system that trained to a target: its fastest."""
    fastest: dict[str, Point] = {}
    for point in workload.points(TARGET):
        if point.system not in fastest or point.value < fastest[point.system].value:
            fastest[point.system] = point
    if not fastest:
        return None
    rows = [
        row._replace(note=f"{row.note}, {field_text(DEVICES, point.fields.get(DEVICES))}")
        for row, point in _bars(workload, fastest)
    ]
    label = "Time to the target: " + "; ".join(f"{row.label} {row.text}" for row in rows)
    return Figure(slug(workload.anchor, "target"), "Time to the target", "the fastest", BarChart(label, rows).plot())


def _bars(workload: Workload, points: Mapping[str, Point]) -> Iterator[tuple[BarRow, Point]]:
    """Yield a bar for the point of each system, with its load below."""
    labels = system_labels(workload.results)
    for name, point in points.items():
        words = f"{labels[name]}: {quantity_text(point.mean, point.unit)}"
        load = workload.load_text(workload.load_of(point.fields))
        text = format_quantity(point.value, point.unit)
        yield BarRow(place_of(workload.results, name), labels[name], ((point.value, words),), text, load), point


def latency_parts(workload: Workload) -> Figure | None:
    """Return the parts of the mean latency at the least, a middle and the highest load that systems share."""
    metrics = [f"latency_{part}_mean" for part in LATENCY_PARTS]
    by_load: dict[int, list[tuple[Point, list[float]]]] = defaultdict(list)
    for point in workload.alone(metrics[0]):
        parts = [other.value if (other := workload.beside(point, name)) else 0.0 for name in metrics]
        by_load[workload.load_of(point.fields)].append((point, parts))
    if not by_load:
        return None
    most = max(len({point.system for point, _ in each}) for each in by_load.values())
    loads = sorted(load for load, each in by_load.items() if len({point.system for point, _ in each}) == most)
    chosen = sorted({loads[0], loads[len(loads) // 2], loads[-1]})
    labels = system_labels(workload.results)
    rows = [
        BarRow(
            *(place_of(workload.results, point.system), labels[point.system]),
            tuple(
                (value, f"{labels[point.system]}, {workload.load_text(load)}, {part}: {format_quantity(value, 's')}")
                for part, value in zip(LATENCY_PARTS, parts, strict=True)
            ),
            format_quantity(sum(parts), "s"),
            group=workload.load_text(load),
        )
        for load in chosen
        for point, parts in sorted(by_load[load], key=lambda pair: place_of(workload.results, pair[0].system))
    ]
    label = "Parts of the mean latency: " + "; ".join(f"{row.group}, {row.label} {row.text}" for row in rows)
    note = "mean latency of a request; other is waiting"
    chart = BarChart(label, rows, LATENCY_PARTS)
    return Figure(slug(workload.anchor, "latency-parts"), "Where the time goes", note, chart.plot())


def unsteady_steps(workload: Workload) -> Figure | None:
    """Return the timed steps of the least steady run, if one is marked as unsteady."""
    excluded = {each.result.observation.id for each in workload.failures}
    marked = [
        each
        for each in workload.section.members
        if workload.has(each.observation) and each.observation.id not in excluded and _is_unsteady(each)
    ]
    result = max(marked, key=lambda each: abs(each.document["steadiness"]["drift"]["value"] or 0.0), default=None)
    if result is None:
        return None
    steps = result.document["steps"]
    timed = list(enumerate(steps["seconds"], start=1))[steps["untimed"] :]
    scale = scale_of("s", (seconds for _, seconds in timed))
    system = workload.results.system(result.observation.fields)
    spots = tuple(Spot(float(number), seconds / scale.factor) for number, seconds in timed)
    median = steps["quantiles"]["p50"] / scale.factor
    series = Series(place_of(workload.results, system), system, spots)
    low, high = min(spot.y for spot in spots), max(spot.y for spot in spots)
    room = max(high - low, median * 0.02) * 0.1
    up = Axis(scale.unit, low=low - room, high=high + room)
    across = Axis("step", low=spots[0].x - 1, high=spots[-1].x + 1)
    drift = result.document["steadiness"]["drift"]["value"]
    load = workload.load_text(workload.load_of(result.observation.fields))
    note = f"{system}, {load}" + (f", drift {drift:+.1%}" if drift else "")
    level = Level(median, f"median {format_number(median, 3)} {scale.unit}")
    chart = LineChart(
        f"Step times of a run that is not steady: {note}", [series], across, up, levels=[level], dots=False
    )
    return Figure(slug(workload.anchor, "step-times"), "Steps of the least steady run", note, chart.plot())


def _is_unsteady(result: ReportResult) -> bool:
    steps = result.document["steps"]
    enough = bool(steps["seconds"]) and len(steps["seconds"]) - steps["untimed"] >= _FEWEST_STEPS
    return enough and UNSTEADY.code in result.observation.marks


def bandwidth(section: Section) -> Figure | None:
    """Return the bandwidth of a micro-benchmark by the size of messages, or None if it moves no data."""
    placed = _by_size(section)
    ways = {way for way, _, _ in placed}
    groups: dict[tuple[str, str], list[tuple[int, Point, list[float]]]] = defaultdict(list)
    for way, point, sizes in placed:
        for size, values in sizes.items():
            groups[point.system, way].append((size, point, values))
    series, labels = [], system_labels(section.results)
    for (system, way), members in groups.items():
        label = ", ".join(filter(None, [labels[system], way if len(ways) > 1 else ""]))
        spots = tuple(_size_spot(label, *each) for each in sorted(members, key=lambda each: each[0]))
        series.append(Series(place_of(section.results, system), label, spots))
    if not any(len(each.spots) > 1 for each in series):
        return None
    across = Axis("message size", True, words=lambda size: f"{tick_text(size)}B")
    chart = LineChart(f"Bandwidth: {_reach(series, 'GB/s')}", shown(series), across, Axis("GB/s, logarithmic", True))
    name = slug(section.workload, "bandwidth")
    return Figure(
        name, f"{section.short_title}: bandwidth by size", "bus bandwidth, as nccl-tests counts it", chart.plot()
    )


def _by_size(section: Section) -> list[tuple[str, Point, dict[int, list[float]]]]:
    """Return by way between memories, or to save, and point what the repeats measured of each size. Of pageable memory
    nothing."""
    ways = []
    for point in section.points(BANDWIDTH_OF_ALL):
        values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in point.results:
            for row in (result.document["points"] or {}).get("measured", ()):
                if row.get(_BUS_BANDWIDTH) and row.get("memory") != "pageable":
                    way = str(row["direction"] or row.get("mode") or "").replace("_", " ")
                    values[way][row["size"]].append(row[_BUS_BANDWIDTH])
        ways += [(way, point, dict(sizes)) for way, sizes in values.items()]
    return ways


def _size_spot(label: str, size: int, point: Point, values: list[float]) -> Spot:
    measured = mean(values)
    words = f"{label}, {format_scaled(size, 'B')}: {mean_text(measured)} GB/s, {counted(measured.count, 'repeat')}"
    return Spot(float(size), measured.value or 0.0, measured.low, measured.high, words, bool(point.marks))


def over_published(results: ReportResults) -> Figure | None:
    """Return the ratios of what was measured to what was published, or None if no figure has a counterpart."""
    every = results.over_published[:MOST_PUBLISHED]
    if not every:
        return None
    labels = system_labels(results)
    systems = [place_of(results, results.system(each.results[0].observation.fields)) for each in every]
    rows = [
        RatioRow(
            system,
            short(each.label) + (f", {labels[results.systems[system]]}" if len(set(systems)) > 1 else ""),
            each.ratio,
            "; ".join([f"measured {each.measured}, published {each.published}: {each.verdict}", *each.remarks]),
            short(each.table, 60),
            bool(each.marks),
        )
        for each, system in zip(every, systems, strict=True)
    ]
    label = f"Measured over published: {'; '.join(f'{r.label} {factor_text(r.ratio.value or 1.0)}' for r in rows[:12])}"
    left = len(results.over_published) - len(every)
    note = "at the line both are the same" + (f"; {left} more are in the table" if left else "")
    return Figure("ours-over-published", "Measured over published", note, RatioChart(label, rows).plot())


_BY_LOAD = Lines("throughput", "Throughput by batch size", RATE, failures=True)
_ENERGY = Lines("energy", "Energy and throughput", ENERGY, over=RATE, note="lower right is better")
_MEMORY = Lines("memory", "Memory by batch size", MEMORY, capacity=True, failures=True)
Draw = Callable[[Workload], Figure | None]
# By the kind of run, the most telling one first: a workload shows the first MOST_FIGURES that its results fill.
_OF_KIND: Mapping[str, tuple[Draw, ...]] = {
    GENERATION: (
        Lines(
            *("interactivity", "Throughput and interactivity", RATE),
            over=TOKEN_GAP,
            inverse=True,
            named_at_top=True,
            note="upper right is better; of a user: 1 / time between tokens, median",
        ).draw,
        Lines("first-token", "Time to the first token", FIRST_TOKEN, note="median").draw,
        Lines("energy-by-batch", "Energy by batch size", ENERGY, is_log=True).draw,
        _BY_LOAD.draw,
        _MEMORY.draw,
    ),
    REQUESTS: (
        Lines(
            "latency", "Latency and throughput", TAIL, over=RATE, is_log=True, budget=True, note="99th percentile"
        ).draw,
        rate_within_budget,
        latency_parts,
        _ENERGY.draw,
    ),
    SERVING: (
        Lines(
            *("interactivity", "Throughput and interactivity", "output_token_throughput_per_device"),
            over=TOKEN_TIME,
            inverse=True,
            named_at_top=True,
            note="of a device; upper right is better; of a user: 1 / time per output token, median",
        ).draw,
        goodput,
        Lines("first-token", "Time to the first token", FIRST_TOKEN, note="median").draw,
        Lines("energy-by-clients", "Energy of a token by clients", "energy_per_output_token", is_log=True).draw,
    ),
}
_USUAL: tuple[Draw, ...] = (_BY_LOAD.draw, efficiency, _ENERGY.draw, _MEMORY.draw)
_OUT_OF_MEMORY: tuple[Draw, ...] = (_BY_LOAD.draw, efficiency, _MEMORY.draw, _ENERGY.draw)
_ON_CONDITION: tuple[Draw, ...] = (time_to_target, unsteady_steps)


def figures_of(workload: Workload) -> list[Figure]:
    lost = any(each.state == "out_of_memory" for each in workload.failures)
    chosen = _OF_KIND.get(workload.kind, _OUT_OF_MEMORY if lost else _USUAL)
    figures = [figure for draw in chosen if (figure := draw(workload))]
    return [*figures[:MOST_FIGURES], *(figure for draw in _ON_CONDITION if (figure := draw(workload)))]
