"""What results decide about a contract: pass, fail or cannot tell for each clause on each node, with the interval.

A clause passes if the whole interval of each node keeps its limit, and fails if one of them is beyond it at a level
that is divided by the number of all decisions of the contract (Bonferroni, as in a gate of `compare`). Everything else
cannot be told: too few nodes or repeats, an interval that contains the limit, a busy host, results that do not compare.
"""

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sifmark.core.errors import GateError, UndecidedError
from sifmark.core.files import sha256_file
from sifmark.results.comparison.collection import collect
from sifmark.results.comparison.compare import Comparison, compare_collection
from sifmark.results.comparison.compatibility import NUMERICS
from sifmark.results.comparison.intervals import Ratio, mean
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.sessions import to_value
from sifmark.results.identity import RunIdentity, nodes_of
from sifmark.results.load import LoadedResult, load_all
from sifmark.studies.acceptance.contract import Clause, Contract
from sifmark.studies.acceptance.power import detectable
from sifmark.studies.asked import asked_of
from sifmark.studies.history.baseline import Baseline
from sifmark.studies.study import Run

# What ends a run from outside says nothing of the system.
_NOT_TO_BLAME = ("interrupted", "no_device", "unsupported")
_STATE = "status.state"


class Verdict(StrEnum):
    """What results decide about a clause or a contract."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class References:
    """What ratios are to: results that were read from paths, and kept baselines, by their names in the contract."""

    results: Mapping[str, Sequence[LoadedResult]]
    kept: Mapping[str, Baseline]


@dataclass(frozen=True)
class NodeVerdict:
    """What the repeats of one configuration on one node decide about a clause."""

    node: str
    verdict: Verdict
    reason: str  # unless it passed
    repeats: int = 0
    sessions: int = 0
    unit: str = ""
    value: float | None = None  # mean of the repeats
    quotient: float | None = None  # of the value to what is required, or to the baseline
    low: float | None = None  # ends of the interval of the quotient that decided
    high: float | None = None
    confidence: float | None = None  # of that interval
    limit: float | None = None  # of the quotient
    detectable: float | None = None  # shortfall, a fraction of what is required, that the repeats show with the power
    evidence: tuple[str, ...] = ()  # IDs of results


@dataclass(frozen=True)
class ClauseVerdict:
    """What results decide about a clause."""

    clause: Clause
    verdict: Verdict
    reason: str
    nodes: tuple[NodeVerdict, ...]


@dataclass(frozen=True)
class Acceptance:
    """What results decide about a contract."""

    contract: Contract
    clauses: tuple[ClauseVerdict, ...]
    evidence: tuple[tuple[str, str, str], ...]  # ID, file and SHA-256 of each result that counted
    invalid: tuple[str, ...]
    unused: int  # valid results of no clause

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole: it fails with one clause, and passes with all."""
        return worst(each.verdict for each in self.clauses)

    def require_accepted(self) -> None:
        """Raise GateError if a clause failed, UndecidedError if one cannot be told."""
        if self.verdict is Verdict.PASS:
            return
        those = [each for each in self.clauses if each.verdict is self.verdict]
        cause = f"{self.verdict}: {'; '.join(f'{each.clause.name}: {each.reason}' for each in those)}"
        if self.verdict is Verdict.FAIL:
            raise GateError(cause, "the table shows the interval that decided each clause", code="contract-failed")
        remedy = "--plan says how many repeats or sessions a decision needs; measure more, and judge all results"
        raise UndecidedError(cause, remedy, code="contract-undecided")


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return what all together come to: fail before cannot tell before pass."""
    found = set(verdicts)
    return next((each for each in (Verdict.FAIL, Verdict.CANNOT_TELL) if each in found), Verdict.PASS)


@dataclass(frozen=True)
class Evidence:
    """The results of each clause by node, and what is no evidence."""

    by_clause: Mapping[str, Mapping[str, list[LoadedResult]]]
    files: tuple[tuple[str, str, str], ...]  # ID, file and SHA-256 of each result
    invalid: tuple[str, ...]
    unused: int


def gather(runs: Sequence[Run], paths: Iterable[str]) -> Evidence:
    """Return the results at paths that are of runs of a contract's study: those whose command asks for the same.

    A node is the system of a result, or its host if it names none. Raises UsageError for a path without results.
    """
    wanted = {(asked_of(shlex.join(run.arguments)), run.nodes): run.group for run in runs}
    by_clause: dict[str, dict[str, list[LoadedResult]]] = defaultdict(lambda: defaultdict(list))
    files = dict[str, tuple[str, str, str]]()
    invalid, unused = [], 0
    for result in load_all(paths):
        if result.problems:
            invalid.append(f"{result.file}: {result.problems[0]}")
            continue
        origin = RunIdentity.of(result.document["provenance"]["command"], None)
        asked = asked_of(origin.arguments, result.document["workload"]["name"])
        clause = wanted.get((asked, nodes_of(result.document)))
        if clause is None:
            unused += 1
            continue
        node = origin.site or str(result.document["host"]["hostname"]["value"] or "unknown host")
        by_clause[clause][node].append(result)
        files[result.document["id"]] = result.document["id"], result.file, sha256_file(result.path)
    return Evidence(by_clause, tuple(sorted(files.values())), tuple(invalid), unused)


def judge(contract: Contract, evidence: Evidence, references: References) -> Acceptance:
    """Return what evidence decides about a contract."""
    verdicts = tuple(
        _judge_clause(contract, clause, evidence.by_clause.get(clause.name, {}), references)
        for clause in contract.clauses
    )
    return Acceptance(contract, verdicts, evidence.files, evidence.invalid, evidence.unused)


def _judge_clause(
    contract: Contract, clause: Clause, results: Mapping[str, Sequence[LoadedResult]], references: References
) -> ClauseVerdict:
    nodes = tuple(
        verdict
        for node in sorted(results)
        for verdict in _judge_node(contract, clause, node, results[node], references)
    )
    required = contract.nodes_of(clause)
    verdict = worst(each.verdict for each in nodes)
    reasons = [f"{each.node}: {each.reason}" for each in nodes if each.verdict is verdict and each.reason]
    if len(results) < required and verdict is not Verdict.FAIL:
        verdict = Verdict.CANNOT_TELL
        reasons.insert(0, f"{len(results)} of {required} nodes were measured")
    return ClauseVerdict(clause, verdict, "; ".join(reasons), nodes)


def comparison_of(
    contract: Contract, clause: Clause, results: Sequence[LoadedResult], references: References
) -> Comparison:
    """Return the comparison that results of a node are judged by."""
    kept = references.kept.get(clause.baseline)
    query = Query(
        metrics=(clause.metric,),
        allowed=frozenset(contract.allow),
        against=clause.ratio is not None,
        between=contract.between,
    )
    theirs = references.results.get(clause.baseline, ()) if clause.ratio is not None else ()
    collection = collect(results, theirs, query)
    if kept is not None and clause.ratio is not None:
        collection.add_baselines(kept.observations(query.extra_fields))
    return compare_collection(collection, query)


def _judge_node(
    contract: Contract, clause: Clause, node: str, results: Sequence[LoadedResult], references: References
) -> list[NodeVerdict]:
    """Return a verdict for each configuration of a node, which is one unless its image or driver changed meanwhile."""
    comparison = comparison_of(contract, clause, results, references)
    rows = [
        _judge_row(contract, clause, node, row, table.units[clause.metric])
        for table in comparison.tables
        for row in table.compared(comparison.query)
    ]
    ours = [each for each in comparison.excluded if each.result.side == "results"]
    states = Counter(_failure(each.result.fields) for each in ours)
    blamed = {state: count for state, count in states.items() if state not in _NOT_TO_BLAME}
    if blamed:
        reason = ", ".join(f"{count} of {len(results)} runs: {state}" for state, count in blamed.items())
        rows.append(NodeVerdict(node, Verdict.FAIL, reason, evidence=tuple(each.result.id for each in ours)))
    if comparison.refused:
        reason = f"not comparable with the baseline: {'; '.join(each.difference for each in comparison.refused)}"
        rows.append(NodeVerdict(node, Verdict.CANNOT_TELL, reason))
    if not rows:
        stopped = ", ".join(f"{count} {state}" for state, count in states.items())
        rows.append(NodeVerdict(node, Verdict.CANNOT_TELL, f"no run completed: {stopped}"))
    return rows


def _failure(fields: Mapping[str, object]) -> str:
    state = str(fields[_STATE])
    return state if state != "completed" else f"{NUMERICS} {fields.get(NUMERICS)}"


def _judge_row(contract: Contract, clause: Clause, node: str, row: RepeatGroup, unit: str) -> NodeVerdict:
    metric = clause.metric
    if clause.ratio is None:
        ratio = to_value(row, clause.value_in(unit), metric, contract.between, contract.allow)
    else:
        ratio = row.ratios.get(metric) or Ratio(None, reason=row.no_baseline)
    gate = clause.gate(contract.confidence)
    kept = gate.keeps(ratio, contract.rows)
    values = row.values(metric)
    level = contract.confidence if kept is not False else 1 - (1 - contract.confidence) / contract.rows
    bounds = ratio.bounds(level)
    reason = _reason(clause, ratio, kept, bounds)
    verdict = Verdict.CANNOT_TELL if kept is None else Verdict.PASS if kept else Verdict.FAIL
    if kept and len(values) < contract.repeats:
        verdict, reason = Verdict.CANNOT_TELL, f"{len(values)} of {contract.repeats} repeats"
    return NodeVerdict(
        node=node,
        verdict=verdict,
        reason=reason,
        repeats=len(values),
        sessions=len(row.by_session(metric)),
        unit=unit,
        value=mean(values).value,
        quotient=ratio.value,
        low=bounds[0] if bounds else None,
        high=bounds[1] if bounds else None,
        confidence=level if bounds else None,
        limit=gate.limit,
        detectable=_detectable(contract, clause, ratio),
        evidence=tuple(each.id for each in row.observations),
    )


def _reason(clause: Clause, ratio: Ratio, kept: bool | None, bounds: tuple[float, float] | None) -> str:
    if kept:
        return ""
    if bounds is None:
        return ratio.reason or "nothing was measured"
    of = "the baseline" if clause.ratio is not None else "what is required"
    shown = f"{clause.metric} is {bounds[0]:.3f} to {bounds[1]:.3f} times {of}"
    if kept is None and ratio.withheld:
        return f"{shown}, and there is a reservation: {ratio.withheld}"
    return f"{shown}, and the limit is {clause.gate(0.95).limit:.4g}"


def _detectable(contract: Contract, clause: Clause, ratio: Ratio) -> float | None:
    """Return the smallest shortfall that such repeats show with the contract's power; None without an interval."""
    if ratio.error is None:
        return None
    strict = 1 - (1 - contract.confidence) / contract.rows
    return shortfall_at(clause, detectable(ratio.error, ratio.freedom, strict, contract.power))


def shortfall_at(clause: Clause, distance: float) -> float:
    """Return the shortfall, a fraction of what is required, whose logarithm is `distance` beyond the limit."""
    if clause.is_maximum:
        return (1 + clause.tolerance) * math.exp(distance) - 1
    return 1 - (1 - clause.tolerance) * math.exp(-distance)


def distance_of(clause: Clause, shortfall: float) -> float:
    """Return how far beyond the limit the logarithm of a shortfall is; not above 0 if it is within the tolerance."""
    if clause.is_maximum:
        return math.log((1 + shortfall) / (1 + clause.tolerance))
    return math.log((1 - clause.tolerance) / (1 - shortfall))
