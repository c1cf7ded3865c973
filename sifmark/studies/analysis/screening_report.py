"""A screening as text, rows of CSV, JSON, and commands for an administrator, which are only printed."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sifmark.results.comparison.tables import TableStyle
from sifmark.results.numbers import format_number, format_quantity
from sifmark.studies.analysis.node_names import compress
from sifmark.studies.analysis.screening import Outlier, Screening

COLUMNS = ("kind", "node", "test", "measure", "value", "unit", "usual", "ratio", "tail", "against", "worse", "reason")
LONGEST_REASON = 120  # characters that `sinfo -R` still shows
_HEAD = ("node", "test", "measure", "value", "usual", "ratio", "chance", "against", "")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def report_lines(screening: Screening, style: TableStyle) -> Iterator[str]:
    """Yield what is to be said, failures first."""
    yield style.line(f"{len(screening.nodes)} nodes, compared by {screening.judged} measures of their tests")
    yield from map(style.line, rate_lines(screening))
    if screening.failures:
        yield from _titled("failed, or no result", [("node", "test", "reason"), *screening.failures], style)
    if screening.outliers:
        yield from _titled("outliers", [_HEAD, *map(_outlier_cells, screening.outliers)], style)
    if screening.suspects:
        yield from _titled("measure again", [_HEAD, *map(_outlier_cells, screening.suspects)], style)
        yield ""
        yield style.line("rare large deviations may explain these: more runs of every node will tell")
    if screening.oddities:
        yield from _titled(
            "other facts than most nodes", [("node", "fact", "value", "usual"), *screening.oddities], style
        )
    if not (screening.failures or screening.outliers or screening.suspects) and screening.judged:
        yield style.line("no node failed, and none differs from the others by more than chance explains")
    if screening.notes:
        yield ""
        yield from map(style.line, screening.notes)


def rate_lines(screening: Screening) -> Iterator[str]:
    """Yield how often a healthy fleet has an outlier, and which differences are not named."""
    limits = screening.limits
    small = f"differences below {100 * limits.least:.3g} % are not named"
    if screening.suspect_rate is None:
        yield small
        return
    yield f"a healthy fleet has an outlier in about {100 * limits.level:.3g} % of all screenings; {small}"
    rate = f"{100 * screening.suspect_rate:.2g} %"
    yield f"with tails as this fleet's values may have, {rate} of healthy fleets have a node to measure again"


def drain_commands(screening: Screening) -> Iterator[str]:
    """Yield the commands that take the named nodes out of service, for an administrator to run."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node, reason in safe_names(screening).items():
        by_reason[reason].append(node)
    for reason, nodes in by_reason.items():
        text = f"sifmark: {reason}"[:LONGEST_REASON]
        yield shlex.join(["scontrol", "update", f"nodename={compress(nodes)}", "state=drain", f"reason={text}"])


def safe_names(screening: Screening) -> dict[str, str]:
    """Return the named nodes whose names are those of hosts, each with its reason."""
    return {node: reason for node, reason in screening.named.items() if _NODE_NAME.fullmatch(node)}


def rows_of(screening: Screening) -> list[list[Any]]:
    """Return a row for each failure, outlier and fact, by COLUMNS."""
    records: list[dict[str, Any]] = [{"kind": "failure", **each._asdict()} for each in screening.failures]
    records += [{"kind": "outlier", **each._asdict()} for each in screening.outliers]
    records += [{"kind": "suspect", **each._asdict()} for each in screening.suspects]
    records += [
        {"kind": "fact", "node": each.node, "measure": each.fact, "value": each.value, "usual": each.usual}
        for each in screening.oddities
    ]
    return [[record.get(name) for name in COLUMNS] for record in records]


def as_document(screening: Screening) -> dict[str, Any]:
    """Return everything as a document."""
    return {
        "nodes": list(screening.nodes),
        "measures": screening.judged,
        "level": screening.limits.level,
        "suspect_rate": screening.suspect_rate,
        "least_difference": screening.limits.least,
        "failures": [each._asdict() for each in screening.failures],
        "outliers": [each._asdict() for each in screening.outliers],
        "suspects": [each._asdict() for each in screening.suspects],
        "facts": [each._asdict() for each in screening.oddities],
        "named": screening.named,
        "commands": list(drain_commands(screening)),
        "notes": list(screening.notes),
    }


def _titled(title: str, rows: Sequence[Sequence[str]], style: TableStyle) -> Iterator[str]:
    yield ""
    yield style.line(f"{title}:")
    yield ""
    yield from style.table([list(row) for row in rows])


def _outlier_cells(outlier: Outlier) -> list[str]:
    values = [format_quantity(value, outlier.unit) for value in (outlier.value, outlier.usual)]
    ratio = f"{outlier.value - outlier.usual:+.1f}" if outlier.ratio is None else f"{outlier.ratio:.3f}x"
    verdict = "worse" if outlier.worse else ""
    names = [outlier.node, outlier.test, outlier.measure]
    return [*names, *values, ratio, _chance(outlier.tail), outlier.against, verdict]


def _chance(tail: float) -> str:
    """Return how unlikely a healthy node differs as much."""
    return "all others are equal" if tail == 0 else f"1 in {format_number(1 / tail)}" if tail > 1e-9 else "under 1e-9"
