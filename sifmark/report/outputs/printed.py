"""The tables of a published study, drawn from nothing but what the document prints: ratios as bars, and curves."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sifmark.report import forms
from sifmark.report.describe import distinct, short, slug, titled
from sifmark.report.forms import Axis, BarChart, BarRow, LineChart, Series, Spot, numbered, places_axis
from sifmark.report.published import row_words
from sifmark.report.svg import Plot, Rule
from sifmark.results.catalogue import column_of
from sifmark.studies.published.figures import Bound, Conditions, Figure, PublishedStudy, PublishedTable, Reference
from sifmark.studies.study import Scalar

LONGEST_PHRASE = 44  # characters of a phrase of a document, such as the title of a column, as a label
WIDTH = 178.0  # mm: labels of rows are as long as documents make them
RELATIVE = "relative"
_AGAINST = "Against"  # the column whose cells say what a ratio is to
_PAIR = " > "  # in a cell that names both sides
_ALONG = ("devices", "batch_size", "batch_size_per_replica")  # numbers along which ratios make a curve
_FEWEST = 3  # places of a curve that is worth a picture
# What numbers may be along, and what may differ with it.
_ALONG_CURVES = {
    "devices": frozenset(("replicas", "instances", "nodes", "batch_size")),
    "batch_size": frozenset(("micro_batch_size", "batch_size_per_replica", "samples_per_epoch")),
    "micro_batch_size": frozenset(("batch_size", "batch_size_per_replica")),
}
_LABELS = ("device", "devices", "micro_batch_size", "batch_size", "stages", "strategy", "precision")
Curves = dict[tuple[tuple[str, tuple[Scalar, ...]], ...], list[Figure]]


def short_phrase(text: str) -> str:
    return short(text, LONGEST_PHRASE)


def pictures_of(study: PublishedStudy, table: PublishedTable) -> list[forms.Figure]:
    """Return the ratios of a table as bars or marks, and its numbers as curves; none of a table that has neither."""
    name, title = slug(study.name, table.name), f"{table.title}: as curves"
    curves = tuple(_curve_plots(study, table))
    return [*numbered(name, table.title, draw_ratios(study, table)), *numbered(f"{name}-curves", title, curves)]


def draw_ratios(study: PublishedStudy, table: PublishedTable) -> list[Plot]:
    """Return the ratios that a table prints, a plot for each quantity and what it is relative to."""
    return [
        _ratio_curve(panel, panel.along) if panel.along else _ratio_bars(panel) for panel in panels_of(study, table)
    ]


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
        return f"{short_phrase(self.title)}{'' if self.title.endswith(RELATIVE) else f', {RELATIVE}'} to {self.to}"

    @property
    def begin(self) -> float:
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


def _ratio_bars(panel: RatioPanel) -> Plot:
    """Return a bar for each ratio, with the printed text at its end, below that of what it is relative to."""
    labels = distinct([panel.to, *(short_phrase(each.label) for each in panel.ratios)])
    ranges = any(each.low != each.high for each in panel.ratios)
    rows = [BarRow(None, labels[0], ((1.0, f"{panel.to}: 1"),), "1")]
    for label, each in zip(labels[1:], panel.ratios, strict=True):
        words = ratio_words(panel, each)
        parts = ((each.low, words), (each.high - each.low, words)) if each.low != each.high else ((each.high, words),)
        rows.append(BarRow(0, label, parts, each.text))
    return BarChart(f"{panel.title}, to {panel.to}", rows, ("printed", "up to") if ranges else ()).plot()


def _ratio_curve(panel: RatioPanel, along: Sequence[tuple[float, PrintedRatio]]) -> Plot:
    """Return ratios along a number; of devices, with the line of ideal scaling."""
    to = panel.ratios[0].figure.reference
    name = next(iter(to.conditions)) if to else ""
    spots = [Spot(panel.begin, 1.0, words=f"{panel.to}: 1")]
    spots += [_spot(x, each.low, each.high, ratio_words(panel, each)) for x, each in along]
    spots.sort(key=lambda spot: spot.x)
    is_scaling = name == "devices"
    ends = [(spot.x, spot.x / panel.begin) for spot in (spots[0], spots[-1])] if is_scaling else []
    values = [*(spot.y for spot in spots), *(y for _, y in ends)]
    up = Axis(panel.axis, is_scaling, low=min(values) / 1.15, high=max(values) * 1.15) if ends else Axis(panel.axis)
    x = places_axis(name.replace("_", " "), [spot.x for spot in spots])
    plot = LineChart(panel.axis, [Series(0, "", tuple(spots))], x, up).plot()
    if ends:
        first, last = ((plot.across(x), plot.down(y)) for x, y in ends)
        plot.backdrop.append(Rule(*first, *last, look="ideal"))
    return plot


def _spot(x: float, low: float, high: float, words: str) -> Spot:
    """Return a printed number, hollow as all that is published; of a range the upper end, with its reach."""
    return Spot(x, high, low if low != high else None, high if low != high else None, words, hollow=True)


def ratio_words(panel: RatioPanel, ratio: PrintedRatio) -> str:
    bound = "" if ratio.figure.bound in (Bound.EXACT, Bound.RANGE) else f", {ratio.figure.bound}"
    return f"{ratio.label}: {panel.title} {ratio.figure.printed}{bound}, relative to {panel.to}"


def _curve_plots(study: PublishedStudy, table: PublishedTable) -> Iterator[Plot]:
    """Yield a plot for each column of numbers and each condition that has enough places for a curve."""
    for place in _ALONG_CURVES:
        for column in dict.fromkeys(figure.column for figure in table.figures):
            if _is_curved(curves := _curves(table, place, column), place):
                yield _curve_plot(study, place, column, curves, _differing(table))


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


def _curve_plot(study: PublishedStudy, place: str, column: str, curves: Curves, differing: Collection[str]) -> Plot:
    words = [
        ", ".join(condition_words(study, {name: values for name, values in key if name in differing})) for key in curves
    ]
    names = distinct(map(short_phrase, words)) if len(words) > 1 else [""]
    series = [
        Series(number, label, _spots(label, place, members))
        for number, (label, members) in enumerate(zip(names, curves.values(), strict=True))
    ]
    figure = next(iter(curves.values()))[0]
    unit = "" if figure.printed_unit in column else figure.printed_unit
    up = Axis(titled(short_phrase(column), unit), is_log=place == "devices")
    across = places_axis(place.replace("_", " "), [spot.x for each in series for spot in each.spots])
    return LineChart(f"{column} by {place.replace('_', ' ')}", series, across, up).plot()


def _spots(label: str, place: str, members: Sequence[Figure]) -> tuple[Spot, ...]:
    spots = []
    for figure in sorted(members, key=lambda figure: _at(figure, place)):
        if figure.number is not None:
            words = ", ".join(filter(None, [label, f"{place.replace('_', ' ')} {_at(figure, place):g}"]))
            text = f"{words}: {figure.column} {figure.printed}"
            spots.append(_spot(_at(figure, place), figure.number.low, figure.number.high, text))
    return tuple(spots)


def _differing(table: PublishedTable) -> list[str]:
    """Return the conditions that tell curves of a table apart, in words that a label has room for."""
    values = {name: {figure.conditions.get(name) for figure in table.figures} for name in _LABELS}
    return [name for name in _LABELS if len(values[name]) > 1]
