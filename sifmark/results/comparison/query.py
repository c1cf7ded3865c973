"""What a comparison is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sifmark.results.catalogue import headlines
from sifmark.results.comparison.observation import Observation
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.sessions import BETWEEN

KEPT, PUBLISHED = "baseline", "published"  # kinds of reference, as in `baseline:NAME`
# Of a table of results, `default_metrics` puts the headlines of their kinds of run in place of these.
DEFAULT_METRICS = ("throughput", "step_time_p50", "peak_process_memory")
_MOST_HEADLINES = 3


@dataclass(frozen=True)
class Query:
    """The metrics to compare, the fields that may differ, and which results are the baselines."""

    metrics: tuple[str, ...] = DEFAULT_METRICS
    every_metric: bool = False  # all that any result has, in place of `metrics`
    more_fields: tuple[str, ...] = ()  # dotted paths that distinguish results, besides the usual ones
    optional_fields: tuple[str, ...] = ()  # the same, of which some or all may be in no result
    allowed: frozenset[str] = frozenset()  # fields that may differ although they make results incompatible
    against: bool = False  # the results of the other side are the baselines
    baseline: tuple[str, str] | None = None  # or those with this field and value
    between: float = BETWEEN  # standard deviation of sessions where results do not show it, a fraction

    @property
    def by_default(self) -> bool:
        """Whether no metrics were asked for, so that each table has the headlines of its results."""
        return self.metrics is DEFAULT_METRICS and not self.every_metric  # somebody may name the same ones

    @property
    def relative(self) -> bool:
        """Whether ratios are asked for."""
        return self.against or self.baseline is not None

    @property
    def named_fields(self) -> tuple[str, ...]:
        """The dotted paths that were asked for, and that a result has to have."""
        return (*self.more_fields, *([self.baseline[0]] if self.baseline else []))

    @property
    def extra_fields(self) -> tuple[str, ...]:
        """The dotted paths to read from results besides the usual ones."""
        return (*self.named_fields, *self.optional_fields)

    def is_baseline(self, candidate: RepeatGroup | Observation) -> bool:
        """Return whether others are divided by this one."""
        if self.baseline is None:
            return candidate.side == "against"
        name, value = self.baseline
        return _matches(candidate.fields.get(name), value)


def default_metrics(observations: Iterable[Observation]) -> tuple[str, ...]:
    """Return the metrics to compare of some results if none are asked for: headlines with a value, then memory."""
    results = list(observations)
    measured = {name for each in results for name, number in each.numbers.items() if number.value is not None}
    named = [name for name in headlines(*(each.kind for each in results)) if name in measured][:_MOST_HEADLINES]
    return tuple(dict.fromkeys((*named, DEFAULT_METRICS[-1]))) if named else DEFAULT_METRICS


def _matches(value: Any, wanted: str) -> bool:
    return value is not None and wanted in (str(value), str(value).lower())
