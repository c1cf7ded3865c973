"""Acceptances as documents and as rows of tables, and where they are written."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from sifmark import __version__
from sifmark.core.schemas import check_document
from sifmark.results.numbers import format_quantity
from sifmark.studies.acceptance.judge import Acceptance, ClauseVerdict, NodeVerdict
from sifmark.studies.acceptance.plan import ClausePlan

SCHEMA = "acceptance-1.0"
COLUMNS = ("clause", "requirement", "node", "verdict", "repeats", "value", "interval", "limit", "detects", "reason")
PLAN_COLUMNS = ("clause", "requirement", "spread", "from", "repeats", "detects", "needs")

Document = dict[str, Any]


def as_document(acceptance: Acceptance) -> Document:
    """Return an acceptance as schemas/acceptance-1.0.json describes it."""
    contract = acceptance.contract
    document = {
        "schema_version": SCHEMA.removeprefix("acceptance-"),
        "sifmark": __version__,
        "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "contract": {
            "name": contract.name,
            "title": contract.title,
            "sha256": contract.sha256,
            "nodes": contract.nodes,
            "repeats": contract.repeats,
            "confidence": contract.confidence,
            "power": contract.power,
            "decisions": contract.rows,
            "between": contract.between,
            "allowed": list(contract.allow),
        },
        "verdict": acceptance.verdict,
        "clauses": list(map(_clause, acceptance.clauses)),
        "evidence": [{"id": id_, "file": file, "sha256": digest} for id_, file, digest in acceptance.evidence],
        "invalid": list(acceptance.invalid),
        "unused": acceptance.unused,
    }
    check_document(SCHEMA, document, "the acceptance")
    return document


def _clause(verdict: ClauseVerdict) -> Document:
    clause = verdict.clause
    return {
        "name": clause.name,
        "requirement": clause.text(),
        "run": dict(clause.run),
        "metric": clause.metric,
        "better": "less" if clause.is_maximum else "more",
        "value": clause.value,
        "unit": clause.unit or None,
        "ratio": clause.ratio,
        "baseline": clause.baseline or None if clause.ratio is not None else None,
        "tolerance": clause.tolerance,
        "verdict": verdict.verdict,
        "reason": verdict.reason or None,
        "nodes": list(map(_node, verdict.nodes)),
    }


def _node(node: NodeVerdict) -> Document:
    return {
        "node": node.node,
        "verdict": node.verdict,
        "reason": node.reason or None,
        "repeats": node.repeats,
        "sessions": node.sessions,
        "value": node.value,
        "unit": node.unit or None,
        "quotient": node.quotient,
        "low": node.low,
        "high": node.high,
        "confidence": node.confidence,
        "limit": node.limit,
        "detectable_shortfall": node.detectable,
        "results": list(node.evidence),
    }


def rows_of(acceptance: Acceptance) -> Iterator[list[Any]]:
    """Yield a row for each clause on each node, by COLUMNS."""
    for each in acceptance.clauses:
        first = [each.clause.name, each.clause.text()]
        if not each.nodes:
            yield [*first, "", str(each.verdict), 0, "", "", "", "", each.reason]
        for node in each.nodes:
            yield [*first, node.node, str(node.verdict), node.repeats, *_numbers(node), node.reason]


def _numbers(node: NodeVerdict) -> tuple[str, str, str, str]:
    """Return value, interval, limit and detectable shortfall as texts."""
    value = "" if node.value is None else format_quantity(node.value, node.unit)
    interval = "" if node.low is None or node.high is None else f"{node.low:.3f} to {node.high:.3f}"
    limit = "" if node.limit is None else f"{node.limit:.4g}"
    return value, interval, limit, percent(node.detectable)


def plan_rows(plans: Sequence[ClausePlan], repeats: int) -> Iterator[list[Any]]:
    """Yield a row for each clause, by PLAN_COLUMNS."""
    for each in plans:
        spread = "unknown" if each.spread is None else percent(each.spread)
        yield [each.clause.name, each.clause.text(), spread, each.source, repeats, percent(each.shortfall), each.needs]


def plan_document(plans: Sequence[ClausePlan], repeats: int) -> list[Document]:
    """Return a plan as programs read it."""
    return [
        {
            "clause": each.clause.name,
            "requirement": each.clause.text(),
            "spread": each.spread,
            "spread_from": each.source,
            "repeats": repeats,
            "detectable_shortfall": each.shortfall,
            "needed_repeats": each.needed.repeats if each.needed else None,
            "needed_sessions": each.needed.sessions if each.needed else None,
            "note": each.note or None,
        }
        for each in plans
    ]


def percent(fraction: float | None) -> str:
    """Return a fraction as a text: `3.2 %`; empty for None."""
    return "" if fraction is None else f"{100 * fraction:.3g} %"
