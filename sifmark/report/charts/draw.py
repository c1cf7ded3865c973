"""All charts that results can fill: every module of `of_section` and `overall` is asked."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from sifmark.report.charts import of_section, overall
from sifmark.report.charts.chart import Chart
from sifmark.report.results import ReportResults, Section

# The order of a page. A module that is not listed comes after these, by its name.
ORDER = (
    "heat_map",
    "ours_over_published",
    "roofline",
    "bandwidth",
    "throughput_by_batch",
    "scaling",
    "latency_by_throughput",
    "latency_parts",
    "energy_by_throughput",
    "energy_per_epoch",
    "power_over_time",
    "memory",
    "phases",
    "time_to_target",
    "step_times",
)


def charts_of(results: ReportResults) -> list[Chart]:
    """Return the charts of all results, then those of each section."""
    return [*overall_charts(results), *(chart for section in results.sections for chart in section_charts(section))]


def section_charts(section: Section) -> list[Chart]:
    """Return the charts that the results of a section can fill."""
    return [chart for module in _modules(of_section) if (chart := module.draw(section)) is not None]


def overall_charts(results: ReportResults) -> list[Chart]:
    """Return the charts that all results together can fill."""
    return [chart for module in _modules(overall) if (chart := module.draw(results)) is not None]


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    places = {name: place for place, name in enumerate(ORDER)}
    for name in sorted(names, key=lambda name: (places.get(name, len(places)), name)):
        yield importlib.import_module(f"{package.__name__}.{name}")
