"""The plan of a contract: what shortfall its repeats show, and how many repeats or sessions the wanted one needs.

The spread of repeats is that of earlier results of the same runs, else that of their baseline, else the one that the
contract states.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from sifmark.core.console import counted
from sifmark.results.comparison.intervals import variance
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.sessions import Part
from sifmark.results.marks import FEWEST_REPEATS
from sifmark.studies.acceptance.contract import Clause, Contract
from sifmark.studies.acceptance.judge import Evidence, References, comparison_of, distance_of, shortfall_at
from sifmark.studies.acceptance.power import Design, detectable


@dataclass(frozen=True)
class ClausePlan:
    """What the repeats of a clause can show."""

    clause: Clause
    spread: float | None  # standard deviation of repeats, a fraction; None if it is unknown
    source: str  # of the spread
    shortfall: float | None = None  # that the contract's repeats show with its power, in one session
    needed: Design | None = None  # the smallest that shows the contract's shortfall
    note: str = ""

    @property
    def needs(self) -> str:
        """What the wanted shortfall needs, in words."""
        if self.needed is None:
            return self.note
        each = counted(self.needed.repeats, "repeat")
        return each if self.needed.sessions == 1 else f"{self.needed.sessions} sessions of {each}"


def plan_of(contract: Contract, evidence: Evidence, references: References) -> list[ClausePlan]:
    """Return what the repeats of each clause can show."""
    return [_plan(contract, clause, evidence, references) for clause in contract.clauses]


def _plan(contract: Contract, clause: Clause, evidence: Evidence, references: References) -> ClausePlan:
    results = [each for those in evidence.by_clause.get(clause.name, {}).values() for each in those]
    rows = comparison_of(contract, clause, results, references).compared
    baselines = [row.baseline for row in rows if row.baseline]
    pooled, source = _spread(clause, rows, baselines)
    if pooled is None:
        note = "unknown: state the spread of repeats (spread = 0.01), or give results of earlier runs"
        return ClausePlan(clause, None, source, note=note)
    between = math.log1p(contract.between) ** 2
    reference = _reference(baselines, pooled, between, clause)
    design = Design(pooled, between, reference, contract.repeats)
    level = 1 - (1 - contract.confidence) / contract.rows
    shown = shortfall_at(clause, detectable(*design.error, level, contract.power))
    plan = ClausePlan(clause, math.expm1(math.sqrt(pooled)), source, shown)
    distance = distance_of(clause, contract.shortfall)
    if distance <= 0:
        return replace(plan, note=f"a shortfall of {100 * contract.shortfall:.3g} % is within the tolerance")
    if needed := design.with_enough(distance, level, contract.power):
        return replace(plan, needed=needed)
    return replace(plan, note="no number of repeats: a better known baseline, or a larger shortfall")


def _spread(clause: Clause, rows: Sequence[RepeatGroup], baselines: Sequence[RepeatGroup]) -> tuple[float | None, str]:
    """Return the variance of the logarithms of repeats within a session, and what shows it."""
    for source, those in (("earlier results", rows), ("the baseline", baselines)):
        pooled, freedom = _pooled(those, clause.metric)
        if freedom >= FEWEST_REPEATS - 1:
            return pooled, source
    if clause.spread is not None:
        return math.log1p(clause.spread) ** 2, "the contract"
    return None, "nothing"


def _pooled(rows: Sequence[RepeatGroup], metric: str) -> tuple[float, int]:
    """Return the variance within sessions over all rows, and its degrees of freedom."""
    samples = [sample for row in rows for sample in _sessions(row, metric) if len(sample) > 1]
    freedom = sum(len(sample) - 1 for sample in samples)
    squares = math.fsum(variance(sample) * (len(sample) - 1) for sample in samples)
    return (squares / freedom if freedom else 0.0), freedom


def _sessions(row: RepeatGroup, metric: str) -> Iterator[list[float]]:
    for runs in row.by_session(metric).values():
        if min(value for _, value in runs) > 0:
            yield [math.log(value) for _, value in runs]


def _reference(baselines: Sequence[RepeatGroup], pooled: float, between: float, clause: Clause) -> Part:
    """Return the variance of the mean of a baseline: of its sessions if it has enough, else as of one session.

    Without a baseline at hand, one of FEWEST_REPEATS repeats in a session is presumed.
    """
    if clause.ratio is None:
        return Part(0.0)
    samples = [sample for row in baselines[:1] for sample in _sessions(row, clause.metric)]
    if len(samples) >= FEWEST_REPEATS:
        return Part(variance([fmean(sample) for sample in samples]) / len(samples), len(samples) - 1)
    count = sum(map(len, samples)) or FEWEST_REPEATS
    return Part(pooled / count + between / max(1, len(samples)))
