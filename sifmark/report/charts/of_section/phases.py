"""Where time goes before a run is at its speed: compilation and the first epochs, or the phases until then."""

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.shared.bars import BarPart, Bars, bar_chart
from sifmark.report.charts.shared.microbenchmarks import MICROBENCHMARK
from sifmark.report.results import Section

_EPOCHS = Bars(
    kind="epochs",
    title="Compilation, first and second epoch",
    quantity="time",
    parts=(
        BarPart("compilation", "phases.compile", within_next=True),
        BarPart("first epoch", "epochs.1"),
        BarPart("second epoch", "epochs.2"),
    ),
    explanation="Compilation is the first step, with which the first epoch begins.",
)
_PHASES = Bars(
    kind="phases",
    title="Time until the timed window",
    quantity="time",
    parts=(
        BarPart("import", "phases.import"),
        BarPart("data", "phases.data"),
        BarPart("model", "phases.model"),
        BarPart("first step", "phases.compile"),
        BarPart("warm-up", "phases.warmup"),
    ),
    explanation="The first step includes compilation; warm-up is the rest of it.",
)


def draw(section: Section) -> Chart | None:
    """Return bars of the first two epochs, or, of runs without epochs, of the phases before the timed window."""
    if section.key.task == MICROBENCHMARK:
        return None
    return bar_chart(section, _EPOCHS) or bar_chart(section, _PHASES)
