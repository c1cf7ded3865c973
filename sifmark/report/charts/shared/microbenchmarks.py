"""Micro-benchmarks as charts need them: the sections that have them, and their operation."""

from collections.abc import Iterator

from sifmark.report.results import ReportResults, Section

MICROBENCHMARK = "microbenchmark"  # the task
MATMUL, MEMORY_COPY = "matmul", "memory_copy"


def sections_of(results: ReportResults, *operations: str) -> Iterator[Section]:
    """Yield the sections of micro-benchmarks, of these operations if any are named."""
    for section in results.sections:
        if section.key.task == MICROBENCHMARK and (not operations or operation_of(section) in operations):
            yield section


def operation_of(section: Section) -> str:
    """Return the operation of a micro-benchmark: `all_reduce` ...; empty if no run got so far."""
    for each in section.members:
        if points := each.document["points"]:
            return str(points["operation"])
    return ""
