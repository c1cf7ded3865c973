"""Peak memory by model, at the batch size that most of them ran with."""

from collections import Counter
from collections.abc import Iterator, Sequence

from sifmark.report.charts.chart import Chart
from sifmark.report.charts.series import system_labels, variant, variant_fields
from sifmark.report.charts.shared.bars import Bar, BarPart, Bars, chart_of_bars, published_bars
from sifmark.report.charts.shared.memory_limits import ALLOCATED, OF_METRIC, PROCESS, limits_of
from sifmark.report.charts.words import failure_text
from sifmark.report.results import Failure, Point, ReportResults, Section
from sifmark.results.comparison.scaling import BATCH

_TASK = "training"  # memory of inference is mostly that of the weights


def draw(results: ReportResults) -> Chart | None:
    """Return a bar for each model, system and variant of its training, if two models ran with the same batch size."""
    sections = [section for section in results.sections if section.key.task == _TASK]
    metric = ALLOCATED if any(section.points(ALLOCATED) for section in sections) else PROCESS
    every = {section.key: section.points(metric) for section in sections}
    batch = _most_common(list(every.values()))
    models = [section for section in sections if any(_at(point, batch) for point in every[section.key])]
    if len(models) < 2:
        return None
    points = {section.key: [point for point in every[section.key] if _at(point, batch)] for section in models}
    failed = [each for section in models for each in section.failures if _batch_of(each) == batch]
    limits = limits_of(results, [point for members in points.values() for point in members])
    title = f"Peak {OF_METRIC[metric]} by model ({_TASK}, batch size {batch})"
    what = Bars("memory-by-model", title, f"peak {OF_METRIC[metric]}", (BarPart("memory", metric),), limits.named)
    bars = [bar for section in models for bar in _bars(section, points[section.key], failed)]
    bars += [bar for section in models for bar in _published(section, metric, batch)]
    return chart_of_bars(results, what.kind, what, bars, failed, limits.drawn)


def _most_common(sections: Sequence[Sequence[Point]]) -> int | None:
    """Return the batch size of the most models, of several the largest."""
    counts = Counter(batch for points in sections for batch in {point.fields.get(BATCH) for point in points})
    return max(counts, key=lambda batch: (counts[batch], batch), default=None)


def _at(point: Point, batch: int | None) -> bool:
    return batch is not None and point.fields.get(BATCH) == batch


def _batch_of(failure: Failure) -> int | None:
    batch: int | None = failure.result.observation.fields.get(BATCH)
    return batch


def _bars(section: Section, points: Sequence[Point], failed: Sequence[Failure]) -> Iterator[Bar]:
    """Yield the bars of a model: by system what was measured, then what failed."""
    labels, names = system_labels(section.results), variant_fields(section.results, points, BATCH)
    model, systems = _model(section), section.results.systems
    for point in sorted(points, key=lambda point: systems.index(point.system)):
        words = [model, labels[point.system], variant(point.fields, names)]
        yield Bar(", ".join(filter(None, words)), point.system, (point,), "", f"#{point.results[0].anchor}")
    for failure in section.failures:
        if failure in failed:
            words = [model, labels[failure.system], variant(failure.result.observation.fields, names)]
            link = f"#{failure.result.anchor}"
            yield Bar(", ".join(filter(None, words)), failure.system, (), failure_text(failure), link)


def _published(section: Section, metric: str, batch: int | None) -> list[Bar]:
    """Return the published figures of a model at a batch size, or of those that do not say at which."""
    marks = [mark for mark in section.published(metric) if mark.conditions.get(BATCH) in (batch, None)]
    return published_bars(marks, _model(section))


def _model(section: Section) -> str:
    return str(section.members[0].document["workload"]["name"])
