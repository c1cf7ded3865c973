"""The numbers of a printed table as curves: along devices or a batch size, as figures of papers show them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from sifmark.report.charts import axes
from sifmark.report.charts.chart import Spec
from sifmark.report.charts.marks import Printed, layered, published
from sifmark.report.charts.words import short_phrase
from sifmark.report.outputs.ratios import condition_words
from sifmark.studies.published.figures import Figure, PublishedStudy, PublishedTable
from sifmark.studies.study import Scalar

_FEWEST = 3  # places of a curve that is worth a picture
# What numbers may be along, and what may differ with it.
_PLACES = {
    "devices": frozenset(("replicas", "instances", "nodes", "batch_size")),
    "batch_size": frozenset(("micro_batch_size", "batch_size_per_replica", "samples_per_epoch")),
    "micro_batch_size": frozenset(("batch_size", "batch_size_per_replica")),
}
_LABELS = ("device", "devices", "micro_batch_size", "batch_size", "stages", "strategy", "precision")

Curves = dict[tuple[tuple[str, tuple[Scalar, ...]], ...], list[Figure]]


def curve_specs(study: PublishedStudy, table: PublishedTable) -> list[Spec]:
    """Return a panel for each column of numbers and each condition that has enough places for a curve."""
    return [
        _panel(study, place, column, curves, _differing(table))
        for place in _PLACES
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
            apart = {place, *_PLACES[place]}
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
