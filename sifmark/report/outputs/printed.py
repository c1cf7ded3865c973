"""The tables of a published study, drawn from nothing but what the document prints: ratios as bars, and curves."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sifmark.report.charts import axes
from sifmark.report.charts.chart import WORDS, Chart, ChartTable, Layer, Spec, layer
from sifmark.report.charts.glyphs import Printed, layered, panel_chart, published, reference, stacked
from sifmark.report.charts.theme import MUTED, PAPER, SYSTEMS
from sifmark.report.charts.words import short_phrase
from sifmark.report.published import row_words, source_of
from sifmark.report.texts import distinct
from sifmark.results.catalogue import column_of
from sifmark.studies.published.figures import Bound, Conditions, Figure, PublishedStudy, PublishedTable, Reference
from sifmark.studies.study import Scalar

_CURVES = "The numbers of the table, as printed; lines join those that differ in nothing else."
_RANGES = "Bars and marks are hollow, as all that is published; a filled part is the range that is printed."
RELATIVE = "relative"
_AGAINST = "Against"  # the column whose cells say what a ratio is to
_PAIR = " > "  # in a cell that names both sides
_ALONG = ("devices", "batch_size", "batch_size_per_replica")  # numbers along which ratios make a curve
_LINE, _THICKNESS = 24, 15
_FEWEST = 3  # places of a curve that is worth a picture
# What numbers may be along, and what may differ with it.
_ALONG_CURVES = {
    "devices": frozenset(("replicas", "instances", "nodes", "batch_size")),
    "batch_size": frozenset(("micro_batch_size", "batch_size_per_replica", "samples_per_epoch")),
    "micro_batch_size": frozenset(("batch_size", "batch_size_per_replica")),
}
_LABELS = ("device", "devices", "micro_batch_size", "batch_size", "stages", "strategy", "precision")
Curves = dict[tuple[tuple[str, tuple[Scalar, ...]], ...], list[Figure]]


def pictures_of(study: PublishedStudy, table: PublishedTable) -> list[Chart]:
    """Return the ratios of a table as bars, and its numbers as curves; none of a table that has neither."""
    return [chart for chart in (draw_ratios(study, table), draw_curves(study, table)) if chart is not None]


def draw_ratios(study: PublishedStudy, table: PublishedTable) -> Chart | None:
    """Return the ratios that a table prints as bars or marks; None if it prints none."""
    panels = panels_of(study, table)
    if not panels:
        return None
    specs = [ratio_spec(panel) for panel in panels]
    words = [f"{table.title}.", f"{source_of(study, table)}.", _RANGES, *_not_comparable(table)]
    spec = specs[0] if len(specs) == 1 else stacked(*specs)
    return Chart(picture_name(study, table), table.title, " ".join(words), spec, _cells(table))


def draw_curves(study: PublishedStudy, table: PublishedTable) -> Chart | None:
    """Return the numbers of a table along devices or a batch size; None if they are not along these."""
    specs = curve_specs(study, table)
    if not specs:
        return None
    title = f"{table.title}: as curves"
    words = [f"{title}.", f"{source_of(study, table)}.", _CURVES, *_not_comparable(table)]
    return Chart(f"{picture_name(study, table)}-curves", title, " ".join(words), panel_chart(specs), _cells(table))


def picture_name(study: PublishedStudy, table: PublishedTable) -> str:
    """Return the name of a picture, as its files have it."""
    return re.sub(r"[^a-z0-9]+", "-", f"{study.name}-{table.name}".lower()).strip("-")


def _cells(table: PublishedTable) -> ChartTable:
    return ChartTable(table.columns, table.rows)


def _not_comparable(table: PublishedTable) -> list[str]:
    """Return why figures are never put beside results, each reason once."""
    reasons = dict.fromkeys(figure.not_comparable for figure in table.figures if figure.not_comparable)
    return [f"Not beside results: {'; '.join(reasons)}."] if reasons else []


@dataclass(frozen=True)
class PrintedRatio:
    """A ratio as the axis has it: times as printed, and a percentage converted to a ratio."""

    figure: Figure
    label: str
    low: float
    high: float

    @property
    def text(self) -> str:
        """What is printed; of a percentage, also what it says."""
        percent = "%" in self.figure.printed_unit
        return (
            short_phrase(f"{self.figure.column}: {self.figure.printed}")
            if percent
            else short_phrase(self.figure.printed)
        )


@dataclass(frozen=True)
class RatioPanel:
    """Ratios of one quantity to the same thing."""

    title: str
    to: str
    ratios: tuple[PrintedRatio, ...]

    @property
    def along(self) -> list[tuple[float, PrintedRatio]] | None:
        """The ratios by the number that differs, with where the ratio is 1 first; None if something else differs."""
        references = [each.figure.reference for each in self.ratios]
        first = references[0]
        if first is None or first.batch_times or len(first.conditions) != 1:
            return None
        ((name, values),) = first.conditions.items()
        own = [each.figure.conditions.get(name, ()) for each in self.ratios]
        if name not in _ALONG or len(self.ratios) < 2 or any(len(each) != 1 for each in (values, *own)):
            return None
        if len({each[0] for each in own}) < len(own):
            return None
        return [(float(each[0]), ratio) for each, ratio in zip(own, self.ratios, strict=True)]

    @property
    def axis(self) -> str:
        """The title of an axis."""
        return f"{short_phrase(self.title)}{'' if self.title.endswith(RELATIVE) else f', {RELATIVE}'} to {self.to}"

    @property
    def begin(self) -> float:
        """Where the ratio is 1."""
        to = self.ratios[0].figure.reference
        return float(next(iter(to.conditions.values()))[0]) if to else 1.0


def panels_of(study: PublishedStudy, table: PublishedTable) -> list[RatioPanel]:
    """Return the ratios of a table by quantity and what they are relative to."""
    panels: dict[tuple[str, str], list[PrintedRatio]] = {}
    for figure in table.figures:
        if figure.reference is not None and figure.number is not None and figure.low is not None:
            to = reference_words(study, figure.reference)
            relative = "%" in figure.printed_unit
            metric = column_of(str(figure.metric)).replace("_", " ").replace(".", " ")
            title = f"{metric}, {RELATIVE}" if relative else f"{figure.column} [{figure.printed_unit}]"
            low, high = (figure.low, figure.high or figure.low) if relative else (figure.number.low, figure.number.high)
            panels.setdefault((title, to), []).append(
                PrintedRatio(figure, _ratio_label(study, table, figure), low, high)
            )
    return [RatioPanel(title, to, tuple(ratios)) for (title, to), ratios in panels.items()]


def reference_words(study: PublishedStudy, to: Reference) -> str:
    """Return what a ratio is to, as a label: `NVIDIA A100, devices 8`."""
    parts = list(condition_words(study, to.conditions))
    parts += [] if to.batch_times is None else [f"{to.batch_times:g} times the batch size"]
    parts += [] if to.metric is None else [to.metric.replace("_", " ")]
    return short_phrase(", ".join(parts))


def ratio_spec(panel: RatioPanel) -> Spec:
    """Return a panel as a specification."""
    return _ratio_curve(panel, panel.along) if panel.along else _ratio_bars(panel)


def _ratio_label(study: PublishedStudy, table: PublishedTable, figure: Figure) -> str:
    to = figure.reference.conditions if figure.reference else {}
    row = row_words(table, figure.row)
    row = "" if table.columns[0] == _AGAINST or _PAIR in row else row
    own = {name: figure.conditions[name] for name in to if name in figure.conditions and (not row or name == "device")}
    return ", ".join(filter(None, [*condition_words(study, own), row])) or figure.column


def condition_words(study: PublishedStudy, conditions: Conditions) -> Iterator[str]:
    """Yield conditions as parts of a label: `NVIDIA A100`, `8 devices`, `batch size 64`."""
    for name, values in conditions.items():
        if name == "device":
            yield " or ".join(_device(study, str(value)) for value in values)
        elif name == "devices":
            yield f"{' or '.join(map(str, values))} device{'' if values == (1,) else 's'}"
        elif all(isinstance(value, str) for value in values):
            yield " or ".join(map(str, values))
        else:
            yield f"{name.replace('_', ' ')} {' or '.join(map(str, values))}"


def _device(study: PublishedStudy, name: str) -> str:
    """Return a device as the document calls it, without where it is."""
    return re.split(r", |: ", study.devices[name].title)[0].rsplit(" of ", 1)[0]


def _ratio_bars(panel: RatioPanel) -> Spec:
    """Return a hollow bar for each ratio, with the printed text at its end, below that of what it is relative to."""
    labels = distinct([panel.to, *(short_phrase(each.label) for each in panel.ratios)])
    bars = [
        {"y": label, "x": each.high, "low": each.low, "text": each.text, "description": _ratio_words(panel, each)}
        for label, each in zip(labels[1:], panel.ratios, strict=True)
    ]
    base = {"y": labels[0], "x": 1.0, "low": 1.0, "text": "1", "description": f"{panel.to}: 1"}
    x = axes.from_zero(short_phrase(panel.title), "1", [1.0, *(1.3 * each.high for each in panel.ratios)])
    y = axes.names(None, labels, labelLimit=330, domain=False, ticks=False)
    encoding = {"x": {"field": "x", **x}, "y": {"field": "y", **y}}
    return {"layer": list(_bar_layers(bars, base)), "encoding": encoding, "height": {"step": _LINE}}


def _bar_layers(bars: Sequence[dict[str, object]], base: dict[str, object]) -> Iterator[Layer]:
    bar = {"type": "bar", "height": _THICKNESS, "strokeWidth": 1.2}
    yield layer([base], bar | {"fill": MUTED.light, "fillOpacity": 0.3, "stroke": MUTED.light}, **WORDS)
    yield layer(bars, bar | {"fill": PAPER.light, "stroke": SYSTEMS[0].light}, **WORDS)
    ranges = [each for each in bars if each["low"] != each["x"]]
    mark = {"type": "bar", "height": _THICKNESS, "fill": SYSTEMS[0].light, "fillOpacity": 0.25, "aria": False}
    if ranges:
        yield layer(ranges, mark, x2={"field": "low"})
    text = {"type": "text", "align": "left", "dx": 5, "aria": False}
    yield layer([base, *bars], text, text={"field": "text", "type": "nominal"})


def _ratio_curve(panel: RatioPanel, along: Sequence[tuple[float, PrintedRatio]]) -> Spec:
    """Return ratios along a number as hollow diamonds; of devices, with the line of ideal scaling."""
    to = panel.ratios[0].figure.reference
    name = next(iter(to.conditions)) if to else ""
    begin = Printed(panel.begin, 1.0, 1.0, "ratios", f"{panel.to}: 1")
    marks = [Printed(x, each.low, each.high, "ratios", _ratio_words(panel, each)) for x, each in along]
    marks = sorted([begin, *marks], key=lambda mark: float(mark.x))
    ideal = [(float(mark.x), float(mark.x) / panel.begin) for mark in marks] if name == "devices" else []
    values = [*(mark.high for mark in marks), *(y for _, y in ideal)]
    x = axes.doubling(name.replace("_", " "), [mark.x for mark in marks])
    quantity = axes.logarithmic if ideal else axes.from_zero
    y = quantity(panel.axis, "1", values)
    return layered(x, y, *reference([ideal] if ideal else []), *published(marks))


def _ratio_words(panel: RatioPanel, ratio: PrintedRatio) -> str:
    bound = "" if ratio.figure.bound in (Bound.EXACT, Bound.RANGE) else f", {ratio.figure.bound}"
    return f"{ratio.label}: {panel.title} {ratio.figure.printed}{bound}, relative to {panel.to}"


def curve_specs(study: PublishedStudy, table: PublishedTable) -> list[Spec]:
    """Return a panel for each column of numbers and each condition that has enough places for a curve."""
    return [
        _panel(study, place, column, curves, _differing(table))
        for place in _ALONG_CURVES
        for column in dict.fromkeys(figure.column for figure in table.figures)
        if _is_curved(curves := _curves(table, place, column), place)
    ]


def _is_curved(curves: Curves, place: str) -> bool:
    return any(_places(members, place) >= _FEWEST for members in curves.values())


def _places(figures: Sequence[Figure], place: str) -> int:
    return len({_at(figure, place) for figure in figures})


def _curves(table: PublishedTable, place: str, column: str) -> Curves:
    """Return the numbers of a column by all conditions but the place and what differs with it."""
    curves: Curves = defaultdict(list)
    for figure in table.figures:
        usable = figure.number is not None and figure.metric is not None and figure.reference is None
        if usable and figure.column == column and len(figure.conditions.get(place, ())) == 1:
            apart = {place, *_ALONG_CURVES[place]}
            kept = ((name, values) for name, values in figure.conditions.items() if name not in apart)
            curves[tuple(sorted(kept))].append(figure)
    return {key: members for key, members in curves.items() if _places(members, place) > 1}


def _at(figure: Figure, place: str) -> float:
    return float(figure.conditions[place][0])


def _panel(study: PublishedStudy, place: str, column: str, curves: Curves, differing: Collection[str]) -> Spec:
    marks = list(_marks(study, place, curves, differing))
    x = axes.doubling(place.replace("_", " "), [mark.x for mark in marks])
    figure = next(iter(curves.values()))[0]
    unit = "" if figure.printed_unit in column else figure.printed_unit
    quantity = axes.logarithmic if place == "devices" else axes.quantity
    y = quantity(axes.titled(short_phrase(column), unit), "1", [mark.high for mark in marks])
    return layered(x, y, *published(marks))


def _marks(study: PublishedStudy, place: str, curves: Curves, differing: Collection[str]) -> Iterator[Printed]:
    for key, members in curves.items():
        label = ", ".join(condition_words(study, {name: values for name, values in key if name in differing}))
        ordered = sorted(members, key=lambda figure: _at(figure, place))
        falls = bool(ordered[0].number and ordered[-1].number and ordered[0].number.low > ordered[-1].number.low)
        named = ordered[0] if falls else ordered[-1]  # above its highest end a label has room
        for figure in ordered:
            number = figure.number
            if number is not None:
                words = ", ".join(filter(None, [label, f"{place.replace('_', ' ')} {_at(figure, place):g}"]))
                text = f"{words}: {figure.column} {figure.printed}"
                note = short_phrase(label) if label and figure is named else ""
                yield Printed(_at(figure, place), number.low, number.high, str(key), text, note=note)


def _differing(table: PublishedTable) -> list[str]:
    """Return the conditions that tell curves of a table apart, in words that a label has room for."""
    values = {name: {figure.conditions.get(name) for figure in table.figures} for name in _LABELS}
    return [name for name in _LABELS if len(values[name]) > 1]
