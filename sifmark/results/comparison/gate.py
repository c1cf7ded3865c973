"""A gate: a limit that the ratios of a comparison to their baselines must keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from sifmark.core.console import counted
from sifmark.core.errors import UsageError
from sifmark.results.catalogue import Direction, direction_of
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.intervals import CONFIDENCE, Ratio
from sifmark.results.comparison.query import Query

# Of gates over rows that all keep the limit: the side of the interval that is beyond it.
FALSE_FAILURES = (1 - CONFIDENCE) / 2


class GateDecision(StrEnum):
    """What a gate decides about a comparison."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class GateVerdict:
    """A gate's decision, and the reason unless it passed."""

    decision: GateDecision
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether every ratio is certain to keep the limit."""
        return self.decision is GateDecision.PASSED


@dataclass(frozen=True)
class Gate:
    """A limit for the ratio of a row to its baseline: the least, or with `above` the most that it may be."""

    limit: float
    above: bool = False
    confidence: float = CONFIDENCE

    @classmethod
    def of(cls, minimum: float | None = None, maximum: float | None = None) -> "Gate":
        """Return the gate with one limit. Raises UsageError for none, both, or one that is no number above 0."""
        if (minimum is None) == (maximum is None):
            remedy = "one of them, once for each metric: --fail-below 0.95 (minimum), or --fail-above 1.05 (maximum)"
            raise UsageError("a gate has one limit", remedy, code="invalid-option")
        limit = float(minimum if minimum is not None else maximum or 0)
        if not 0 < limit < inf:
            cause = f"a gate's limit is a number above 0, not {limit:g}"
            raise UsageError(cause, "for example 0.95, or 1.05", code="invalid-option")
        return cls(limit, above=maximum is not None)

    @property
    def side(self) -> str:
        """The side of the limit where no ratio may be."""
        return "above" if self.above else "below"

    def suits(self, metric: str) -> bool:
        """Return whether a value of the metric on the wrong side is worse; of some metrics none is better."""
        return direction_of(metric) is not (Direction.HIGHER if self.above else Direction.LOWER)

    def keeps(self, ratio: Ratio | None, rows: int = 1) -> bool | None:
        """Return whether the whole interval keeps the limit, or None if that cannot be told.

        A ratio breaks the limit at a level that is divided by the number of `rows` (Bonferroni): of gates over rows
        that all keep it, at most FALSE_FAILURES fail.
        """
        if ratio is None or ratio.withheld or (bounds := ratio.bounds(self.confidence)) is None:
            return None
        if all(map(self._is_good, bounds)):
            return True
        strict = ratio.bounds(1 - (1 - self.confidence) / rows) or bounds
        return None if any(map(self._is_good, strict)) else False

    def _is_good(self, bound: float) -> bool:
        return bound <= self.limit if self.above else bound >= self.limit

    def judge(self, comparison: Comparison, allow_missing: bool = False) -> GateVerdict:
        """Return whether the judged metric of every row keeps the limit.

        It is the first of those that were asked for, or else the first headline of a table of which more is better. A
        baseline without a counterpart leaves that undecided, unless `allow_missing`.
        """
        query = comparison.query
        if not query.metrics:
            return GateVerdict(GateDecision.UNDECIDED, "no result has a metric to judge")
        judged = [(row, _judged(table, query)) for table in comparison.tables for row in table.compared(query)]
        ratios = [row.ratios.get(metric) for row, metric in judged]
        kept = [self.keeps(ratio, len(ratios)) for ratio in ratios]
        metric = " or ".join(dict.fromkeys(metric for _, metric in judged)) or query.metrics[0]
        limit = f"is {self.side} {self.limit:g} times its baseline"
        if worse := kept.count(False):
            reason = f"{metric} of {worse} of {counted(len(kept), 'row')} {limit}"
            return GateVerdict(GateDecision.FAILED, reason)
        lonely = [] if allow_missing else comparison.unmatched_baselines
        if unclear := _unclear(comparison, kept, len(lonely)):
            doubts = dict.fromkeys(ratio.withheld for ratio in ratios if ratio and ratio.withheld)
            why = f" ({', '.join(doubts)})" if doubts else ""
            return GateVerdict(GateDecision.UNDECIDED, f"cannot tell of {unclear} whether {metric} {limit}{why}")
        return GateVerdict(GateDecision.PASSED)

    def require_sense(self, comparison: Comparison) -> None:
        """Raise UsageError without a baseline, or if the limit would let the worse pass."""
        if not comparison.query.relative:
            remedy = "add --baseline RESULTS, --baseline FIELD=VALUE or --against baseline:NAME"
            raise UsageError("a gate needs a baseline", remedy, code="invalid-option")
        for metric in comparison.query.metrics[:1]:
            if not self.suits(metric):
                better, other = ("more", "--fail-below 0.95") if self.above else ("less", "--fail-above 1.05")
                cause = f"a gate {self.side} {self.limit:g} with {metric}: {better} of it is better"
                raise UsageError(cause, f"limit it on the other side: {other}", code="invalid-option")


def _judged(table: ComparisonTable, query: Query) -> str:
    """Return the metric of a table that a gate judges; the rate of a whole sweep is none."""
    first = query.metrics[0]
    headlines = (name for name in table.metrics if direction_of(name) is Direction.HIGHER)
    return next(headlines, first) if query.by_default else first


def _unclear(comparison: Comparison, kept: Sequence[bool | None], lonely: int) -> str:
    """Return what the gate cannot decide about, in words; empty if it can decide about all."""
    undecided = kept.count(None)
    excluded = [out for out in comparison.excluded if not comparison.query.is_baseline(out.result)]
    parts = [counted(len(excluded), "excluded result")] if excluded else []
    parts += [counted(lonely, "baseline without a counterpart", "baselines without a counterpart")] if lonely else []
    parts += [f"{undecided} of {counted(len(kept), 'row')}"] if undecided or not (kept or parts) else []
    return " and ".join(parts)
