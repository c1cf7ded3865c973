"""Energy per unit by throughput, with the runs that no other run beats in both."""

from collections.abc import Iterable

from sifmark.report.charts import axes
from sifmark.report.charts.chart import Chart
from sifmark.report.charts.marks import Datum, circled, curves, layered, notes
from sifmark.report.charts.series import CONCURRENCY, Place, most_complete
from sifmark.report.charts.shared.trades import throughput_axis, trade_lines, trade_table
from sifmark.report.charts.words import caption, chart_name, of_absent, of_rest, scopes
from sifmark.report.results import Section
from sifmark.results.comparison.scaling import BATCH

_TITLE = "Energy by throughput"
_METRIC = "energy_per_unit"
_BATCHES, _CLIENTS = Place(BATCH, "batch size"), Place(CONCURRENCY, "clients", (BATCH,))
_NOTE = "Circles mark the Pareto front: no other run has both more throughput and less energy per unit."


def draw(section: Section) -> Chart | None:
    """Return energy per unit over throughput, if two results have both."""
    by_requests = any(_CLIENTS.of(point.fields) for point in section.points(_METRIC))
    place = _CLIENTS if by_requests else _BATCHES
    trades = trade_lines(section, _METRIC, place)
    pairs = [pair for _, own in trades for pair in own]
    if len(pairs) < 2:
        return None
    lines = most_complete([line for line, _ in trades])
    marks = [mark for line in lines for mark in line.marks]
    unit, energy_unit = pairs[0][0].unit, f"J/{section.unit.removesuffix('s')}"
    values = [value for mark in marks for value in (mark.y, *mark.repeats)]
    y = axes.quantity("energy", energy_unit, values, [mark.high for mark in marks])
    layers = [*circled(pareto_front(marks)), *curves(lines), *notes(lines)]
    points = [first for first, _ in pairs]
    words = caption(
        _TITLE,
        points,
        (),
        _NOTE,
        f"Numbers at the ends of lines: {place.name}.",
        *scopes(points),
        *of_absent(section.failures),
        *of_rest(len(trades), len(lines)),
    )
    names = [axes.titled("throughput", unit), axes.titled("energy", energy_unit)]
    table = trade_table(place, names, ((line.label, pair) for line, own in trades for pair in own))
    spec = layered(throughput_axis(unit, lines), y, *layers)
    return Chart(chart_name(section, "energy-by-throughput"), _TITLE, words, spec, table)


def pareto_front(marks: Iterable[Datum]) -> list[Datum]:
    """Return the marks that none beats in both more throughput and less energy, from the fastest on."""
    front: list[Datum] = []
    for mark in sorted(marks, key=lambda mark: (-float(mark.x), mark.y)):
        if not front or mark.y < front[-1].y:
            front.append(mark)
    return front
