"""What comparisons say in words, and how their tables are written: as text, for a terminal, and in Markdown."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sifmark.core.console import align_columns, counted, fold, has_room, markdown_lines, markdown_text, printable
from sifmark.results.catalogue import column_of, fields
from sifmark.results.comparison.columns import cell_text
from sifmark.results.comparison.compare import Comparison, ComparisonTable
from sifmark.results.comparison.compatibility import NUMERICS, Excluded, Incompatibility
from sifmark.results.comparison.intervals import CANNOT_TELL, CONFIDENCE, Ratio
from sifmark.results.comparison.observation import PRECISION, PRECISION_KIND
from sifmark.results.comparison.query import Query
from sifmark.results.comparison.repeats import RepeatGroup
from sifmark.results.comparison.scaling import BATCH, DEVICES
from sifmark.results.comparison.sessions import ONE_SESSION
from sifmark.results.marks import BUSY, FEWEST_REPEATS, STALLED_RUN, THROTTLED_RUN, UNSTEADY
from sifmark.results.numbers import FEWER_DIGITS, WIDE, format_interval, format_number
from sifmark.results.summary import HALF
from sifmark.results.warnings import STALLED

ITERATIONS = "configuration.device_iterations"
MOST_FIELDS = 8  # in one note
# Fields that are not worth mentioning if all results have this value.
EXPECTED = {each.path: each.usual for each in fields() if each.is_usual_known}
_DISTURBANCES = {
    BUSY: "the host was busy",
    STALLED_RUN: f"something stopped the run for over {STALLED:.0%} of the timed window",
    THROTTLED_RUN: "heat or hardware held the clocks of a device down",
    UNSTEADY: "not steady within the timed window",
}
Cells = list[str]
T = TypeVar("T")


_NUMBER = re.compile(r"[\d.,/]*|-")  # what ends together in a column
MOST_NOTES = 12


@dataclass(frozen=True)
class TableStyle:
    """How tables are written, and the lines around them, which may hold untrusted text."""

    table: Callable[[list[Cells]], Iterator[str]]
    line: Callable[[str], str]
    width: int | None = None  # columns of a terminal, which nothing exceeds; None: whole words, and no limit
    plain: bool = True  # or markup, in which nothing is padded
    blocks: bool = False  # whether the terminal has characters such as those of a scale

    def has_room(self, table: Sequence[Sequence[str]]) -> bool:
        """Return whether no column has to be folded."""
        return has_room(table, self.width)

    def parts(self, systems: Sequence[T], table_of: Callable[[Sequence[T]], list[Cells]]) -> list[list[Cells]]:
        """Return one table with all systems, or several with fewer each where that makes them fit."""
        tables: list[list[Cells]] = []
        for size in range(max(1, len(systems)), 0, -1):
            begins = range(0, max(1, len(systems)), size)
            tables = [table_of(systems[begin : begin + size]) for begin in begins]
            if all(map(self.has_room, tables)):
                break
        return tables

    def notes(self, notes: Sequence[str]) -> Iterator[str]:
        """Yield notes as lines: the first ones, and how many there are besides."""
        yield from map(self.line, notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield self.line(f"and {counted(len(notes) - MOST_NOTES, 'note')} more: --format json has them all")


def text_style(width: int | None = None, blocks: bool = False) -> TableStyle:
    """Return the style of texts: for a terminal of that many columns, or without a limit."""

    def table(rows: list[Cells]) -> Iterator[str]:
        numbers = [{*column} != {"-"} and all(map(_NUMBER.fullmatch, column)) for column in zip(*rows[1:], strict=True)]
        return align_columns([[printable(cell) for cell in row] for row in rows], numbers, width=width)

    def line(text: str) -> str:
        return printable(text) if width is None else "\n".join(fold(printable(text), width, indent=2))

    return TableStyle(table, line, width, blocks=blocks)


TEXT = text_style()
MARKDOWN = TableStyle(markdown_lines, markdown_text, plain=False)


def incompatibility_text(incompatibility: Incompatibility) -> str:
    """Return an incompatibility in one line."""
    counts = ", ".join(f"{value}: {count}" for value, count in incompatibility.counts.items())
    examples = ", ".join(f"{file} ({value})" for value, file in incompatibility.examples.items())
    return printable(f"{column_of(incompatibility.field)} ({counts}): {incompatibility.why}; for example {examples}")


def exclusion_text(excluded: Excluded) -> str:
    """Return which result is left out, by which fields and why, in one line."""
    return printable(f"{excluded.result.file}: {excluded.reason}")


def ratio_text(ratio: Ratio, unit: str, brief: bool = False) -> str:
    """Return a ratio in words: `1.371x faster ± 2.4 %`, `1.02x [0.91, 1.14], no difference shown`.

    If it is `brief`, a note has to say why one cannot tell.
    """
    if ratio.value is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{format_number(ratio.value)}x, {CANNOT_TELL}"
    if ratio.doubt:
        return f"{factor_text(ratio)}, {CANNOT_TELL}" + ("" if brief else f": {ratio.doubt}")
    if ratio.low <= 1 <= ratio.high:
        return f"{factor_text(ratio)}, no difference shown"
    more, less = _words(unit)
    if ratio.low > 1:
        return factor_text(ratio, more)
    return factor_text(Ratio(1 / ratio.value, 1 / ratio.high, 1 / max(ratio.low, 1e-300)), less)


def _words(unit: str) -> tuple[str, str]:
    """Return what more and less of a metric with this unit means."""
    if unit.endswith("/s"):
        return "faster", "slower"
    return ("slower", "faster") if unit == "s" else ("more", "less")


def session_notes(rows: Sequence[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield what the verdicts allow for, and what an interval does not cover."""
    ratios = [ratio for row in rows for ratio in row.ratios.values()]
    if any(ratio.scope and not ratio.withheld for ratio in ratios):
        yield (
            f"ratios and intervals are {ONE_SESSION}; faster, slower, more and less allow for sessions that differ by "
            f"{100 * query.between:g} % (standard deviation, --between)"
        )
    elif any(mean.sessions >= FEWEST_REPEATS for row in rows for mean in row.means.values()):
        yield "the means of sessions are the sample where a side has three or more of them: boots, days or jobs"


def factor_text(ratio: Ratio, word: str = "") -> str:
    """Return a ratio with its interval: `1.371x faster ± 2.4 %`; a dash without a value."""
    if ratio.value is None:
        return "-"
    number, _, interval = format_interval(ratio.value, ratio.low, ratio.high).partition(" ")
    return " ".join(filter(None, (f"{number}x", word, interval)))


def reference_name(row: RepeatGroup) -> str:
    """Return what scaling is relative to: `1 device, batch_size 256`."""
    return f"{counted(row.fields[DEVICES], 'device')}, batch_size {row.fields[BATCH]}"


def percentage_text(ratio: Ratio) -> str:
    """Return a ratio in percent: `93% [91%, 95%]`."""
    if ratio.value is None:
        return "-"
    interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.0%}, {ratio.high:.0%}]"
    return f"{ratio.value:.0%}{interval}"


def efficiency_text(ratio: Ratio, style: TableStyle) -> str:
    """Return an efficiency with its interval, on a terminal in points up to ten: `93% ±2`."""
    text = percentage_text(ratio)
    if style.width is None or ratio.value is None or ratio.low is None or ratio.high is None:
        return text
    reach = 100 * max(ratio.high - ratio.value, ratio.value - ratio.low)
    return f"{ratio.value:.0%} ±{reach:.0f}" if reach <= WIDE else text


def notes_of(comparison: Comparison) -> Iterator[str]:
    """Yield what a reader of the tables must know, each once and with the number of results or rows it is about."""
    tables, query = comparison.tables, comparison.query
    rows = [row for table in tables for row in table.rows]
    yield from _how_computed(rows)
    if any(row.fields.get("provenance.stand_in") for row in rows):
        yield "warning: these images have test bases, not those of the vendors. Do not publish these numbers"
    for table in tables:
        yield from _unlike(table)
    yield from session_notes(rows, query)
    states = Counter(observation.fields[NUMERICS] for row in rows for observation in row.observations)
    for state in ("not_run", "not_provable"):
        if states[state]:
            yield f"correctness not checked: {states[state]} results, {NUMERICS} {state}"
    yield from disturbances_of(rows)
    hosts = max((len(row.hosts) for row in rows), default=1)
    if hosts > 1:
        yield f"repeats of {hosts} hosts are in one row: --by host.hostname separates them"
    if lonely := len(comparison.unmatched_baselines):
        have = counted(lonely, "baseline has", "baselines have")
        yield f"no ratio: {have} no counterpart with the same configuration"
    yield from _references(tables)
    missing = Counter(note for row in rows for note in dict.fromkeys(_missing(row)))
    yield from (f"{note} ({count} rows)" if count > 1 else note for note, count in missing.items())


def _how_computed(rows: Sequence[RepeatGroup]) -> Iterator[str]:
    """Yield what the numbers and their intervals are, if any has one."""
    means = [mean for row in rows for mean in row.means.values() if mean.value is not None]
    if not means:
        return
    counts = sorted({mean.count for mean in means})
    count = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    if all(mean.low is None for mean in means):
        yield f"no intervals: {count} {'run' if count == '1' else 'runs'} of each, where {FEWEST_REPEATS} are needed"
        return
    kinds = "geometric means" if all(mean.geometric for mean in means) else "means"
    yield f"{kinds} of {count} fresh-process repeats, with {CONFIDENCE:.0%} intervals (Student's, Welch's)"


def counts_of(rows: Iterable[RepeatGroup]) -> int:
    """Return how many repeats all numbers of some rows rest on; 0 if they do not rest on equally many."""
    counts = {mean.count for row in rows for mean in row.means.values() if mean.value is not None}
    return counts.pop() if len(counts) == 1 else 0


def _references(tables: Iterable[ComparisonTable]) -> Iterator[str]:
    """Yield what scaling is relative to: the files of the first reference, and how many others there are."""
    found = {id(scaling.reference): scaling.reference for table in tables for _, scaling in table.scalings}
    for reference in list(found.values())[:1]:
        first, *repeats = (observation.file for observation in reference.observations)
        more = f" and its {len(repeats)} repeats" if repeats else ""
        others = f"; and {counted(len(found) - 1, 'other reference')}" if len(found) > 1 else ""
        yield f"reference of scaling, {reference_name(reference)}: {first}{more}{others}"


def _unlike(table: ComparisonTable) -> Iterator[str]:
    """Yield which words mean different things in the rows of a table."""
    iterations = sorted({row.fields.get(ITERATIONS) or 1 for row in table.rows})
    if table.group.task == "training" and len(iterations) > 1:
        calls = " or ".join(map(str, iterations))
        yield f"a step is a call of {calls} updates (device_iterations), and step times are of whole calls"
    kinds_of_precision = {row.fields.get(PRECISION_KIND) for row in table.rows if row.fields.get(PRECISION) in HALF}
    if len(kinds_of_precision) > 1:
        yield "half precision is pure in some of these results, and mixed in others: weights and sums are not the same"


def unlike_baselines(rows: Iterable[RepeatGroup], query: Query) -> Iterator[str]:
    """Yield the fields, besides the one that was asked for, in which rows differ from the baselines of their ratios."""
    asked = {query.baseline[0]} if query.baseline else set()
    if PRECISION in asked:
        asked.add(PRECISION_KIND)
    differing: dict[str, str] = {}
    for row in rows:
        if row.baseline is not None:
            before = row.baseline.fields
            for name in row.fields.keys() - asked:
                if before.get(name) != row.fields[name]:
                    differing.setdefault(name, f"{cell_text(before.get(name))} / {cell_text(row.fields[name])}")
    if differing:
        texts = [f"{column_of(name)} {change}" for name, change in sorted(differing.items())]
        more = f" and {len(texts) - MOST_FIELDS} more" if len(texts) > MOST_FIELDS else ""
        yield f"the columns differ in {', '.join(texts[:MOST_FIELDS])}{more}"


def disturbances_of(rows: Sequence[RepeatGroup]) -> Iterator[str]:
    """Yield what disturbed runs, each with the number of its results and one of them."""
    for mark, what in _DISTURBANCES.items():
        if files := [file for row in rows for file in row.marked(mark)]:
            again = "" if mark is UNSTEADY else ". Do not publish these numbers"
            extent = _waited(rows) if mark is BUSY else ""
            yield f"warning: {what} in {counted(len(files), 'result')}{extent}, for example {files[0]}{again}"


def _waited(rows: Sequence[RepeatGroup]) -> str:
    """Return how long the threads of disturbed runs waited: ` (threads waited 81 to 92 % of their time)`."""
    waited = [each.waited for row in rows for each in row.observations if BUSY.code in each.marks and each.waited]
    ends = dict.fromkeys(format_number(end, FEWER_DIGITS) for end in (min(waited), max(waited))) if waited else ()
    return f" (threads waited {' to '.join(ends)} % of their time)" if ends else ""


def _missing(row: RepeatGroup) -> Iterator[str]:
    """Yield why a row has no number, no interval or no ratio somewhere."""
    for metric, mean in row.means.items():
        ratio = row.ratios.get(metric)
        if mean.count < len(row.observations):
            yield f"{metric}: {row.missing_reason(metric) or mean.reason}"
        if ratio is not None and ratio.reason and mean.count:
            yield f"cannot tell: {ratio.reason}"
    if row.no_baseline:
        yield f"no ratio: {row.no_baseline}"
    for scaling in row.scalings:
        if scaling.efficiency.reason:
            yield f"cannot tell: {scaling.efficiency.reason}"
