"""The times of the steps of one run, the least steady one: what to look at if repeats differ."""

from collections.abc import Sequence
from typing import NamedTuple

from sifmark.report.charts import axes
from sifmark.report.charts.chart import RESERVATION, WORDS, Chart, ChartTable, Layer, Row, layer
from sifmark.report.charts.glyphs import layered, named_level, span, window
from sifmark.report.charts.theme import INK, MUTED, PAPER, style_of
from sifmark.report.charts.words import caption, chart_name
from sifmark.report.describe import remarks
from sifmark.report.results import ReportResult, Section
from sifmark.report.variants import system_labels
from sifmark.results.comparison.compatibility import exclusion_fields
from sifmark.results.comparison.scaling import BATCH
from sifmark.results.marks import FEW_REPEATS, UNSTEADY
from sifmark.results.numbers import format_number, format_quantity

_FEWEST = 10  # timed steps: fewer show nothing
_FAR_OUT = 3.0  # quartile ranges beyond the quartiles, from which `steadiness.outliers` of a result counts a step
_TITLE = "Step times of the least steady run"
_OUTLIER = "M-0.7,-0.7L0.7,0.7M-0.7,0.7L0.7,-0.7"  # a cross


class _Steps(NamedTuple):
    """The times of steps in s, by their number, which begins with 1."""

    untimed: Sequence[tuple[int, float]]
    timed: Sequence[tuple[int, float]]
    outliers: Sequence[tuple[int, float]]  # of the timed ones
    median: float


def step_times(section: Section) -> Chart | None:
    """Return the steps of the run whose steps changed most, or None if no result lists enough of them."""
    result = _least_steady(section)
    if result is None:
        return None
    steps, label = _steps(result), _label(section, result)
    every = [seconds for _, seconds in (*steps.untimed, *steps.timed)]
    first, last = steps.timed[0][0], steps.timed[-1][0]
    x = span("step", "", 0.0, last + 0.5)
    y = axes.quantity("time of a step", "s", [value for value in every if value > 0])
    median = f"median {format_quantity(steps.median, 's')}"
    drift = result.document["steadiness"]["drift"]["value"]
    change = "" if drift is None else f", drift {drift:+.1%}"
    words = f"{label}: {len(steps.timed)} timed steps, {median}{change}, {_outliers(steps)}"
    layers = [
        window(first - 0.5, last + 0.5, words, f"#{result.anchor}"),
        *named_level(steps.median, median),
        *_course(section, result, steps),
    ]
    text = caption(_TITLE, (), (), f"{words}.", *_of_marks(steps), *_reservation(result))
    return Chart(chart_name(section, "step-times"), _TITLE, text, layered(x, y, *layers), _table(steps))


def _least_steady(section: Section) -> ReportResult | None:
    """Return the measurement that was called unsteady, or else that with the largest drift and outliers."""

    def unsteadiness(result: ReportResult) -> tuple[bool, float]:
        steadiness = result.document["steadiness"]
        far = steadiness["outliers"] or {"share_of_time": 0.0}
        drift = abs(steadiness["drift"]["value"] or 0.0)
        return UNSTEADY.code in result.observation.marks, drift + far["share_of_time"]

    return max(filter(_is_listed, section.members), key=unsteadiness, default=None)


def _is_listed(result: ReportResult) -> bool:
    steps = result.document["steps"]
    if exclusion_fields(result.observation) or not steps["seconds"] or result.document.get("points"):
        return False
    return bool(len(steps["seconds"]) - steps["untimed"] >= _FEWEST)


def _steps(result: ReportResult) -> _Steps:
    steps = result.document["steps"]
    numbered = list(enumerate(steps["seconds"], start=1))
    untimed, timed = numbered[: steps["untimed"]], numbered[steps["untimed"] :]
    low, high = steps["quantiles"]["p25"], steps["quantiles"]["p75"]
    reach = _FAR_OUT * (high - low)
    far = [(number, seconds) for number, seconds in timed if not low - reach <= seconds <= high + reach]
    return _Steps(untimed, timed, far, steps["quantiles"]["p50"])


def _label(section: Section, result: ReportResult) -> str:
    fields, configuration = result.observation.fields, result.document["configuration"]
    words = [system_labels(section.results)[section.results.system(fields)], f"batch {fields[BATCH]}"]
    if configuration["repeat"]["of"] > 1:
        words.append(f"repeat {configuration['repeat']['index']}")
    return ", ".join(words)


def _outliers(steps: _Steps) -> str:
    count = len(steps.outliers)
    return f"{count} outlier{'' if count == 1 else 's'}"


def _course(section: Section, result: ReportResult, steps: _Steps) -> list[Layer]:
    """Return timed steps as a line, those before as circles, and crosses over outliers."""
    colour = style_of(section.results.systems.index(section.results.system(result.observation.fields))).colour.light
    line: Layer = {"type": "line", "strokeWidth": 1.1, "stroke": colour, "aria": False}
    circle: Layer = {"type": "point", "shape": "circle", "size": 26, "fill": PAPER.light, "stroke": MUTED.light}
    cross: Layer = {"type": "point", "shape": _OUTLIER, "size": 60, "stroke": INK.light, "strokeWidth": 1.4}
    return [
        layer(_rows(steps.timed), line),
        *(
            [layer(_worded(steps.untimed, "warm-up step"), {**circle, "filled": False}, **WORDS)]
            if steps.untimed
            else []
        ),
        *(
            [layer(_worded(steps.outliers, "outlier, step"), {**cross, "filled": False}, **WORDS)]
            if steps.outliers
            else []
        ),
    ]


def _rows(steps: Sequence[tuple[int, float]]) -> list[Row]:
    return [{"x": number, "y": seconds} for number, seconds in steps]


def _worded(steps: Sequence[tuple[int, float]], what: str) -> list[Row]:
    return [{**row, "description": f"{what} {row['x']}: {format_quantity(row['y'], 's')}"} for row in _rows(steps)]


def _of_marks(steps: _Steps) -> list[str]:
    shade = ["The shade is the timed window."]
    circles = ["Circles are steps before the timed window."] if steps.untimed else []
    crosses = ["Crosses are outliers: beyond three quartile ranges of the quartiles."] if steps.outliers else []
    return shade + circles + crosses


def _reservation(result: ReportResult) -> list[str]:
    reasons = [reason for reason in remarks([result]) if reason != FEW_REPEATS.name]  # it shows no mean
    return [f"{RESERVATION} {', '.join(reasons)}."] if reasons else []


def _table(steps: _Steps) -> ChartTable:
    kinds = dict.fromkeys((number for number, _ in steps.timed), "timed")
    kinds |= dict.fromkeys((number for number, _ in steps.untimed), "warm-up")
    kinds |= dict.fromkeys((number for number, _ in steps.outliers), "outlier")
    rows = ((str(number), kinds[number], format_number(seconds)) for number, seconds in (*steps.untimed, *steps.timed))
    return ChartTable(("step", "kind", "time [s]"), tuple(rows))
