"""The command compare: results in groups, against a baseline, and a gate for pipelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands.answers import (
    CSV,
    JSON,
    MARKDOWN,
    MOST_LISTED,
    TABLE,
    Table,
    answer,
    list_left_out,
    report_copies,
)
from sifmark.commands.framework import (
    command,
    format_option,
    key_option,
    option,
    results_argument,
    signature_flag,
)
from sifmark.commands.pipelines import add_summary
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.keys import require_trusted_keys
from sifmark.core.terminal import is_verbose, output, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.results.comparison.compare import Comparison
    from sifmark.results.comparison.gate import Gate, GateVerdict
    from sifmark.results.comparison.observation import Observation
    from sifmark.results.comparison.query import Query
    from sifmark.studies.published.comparison import PublishedComparison

EVERY_METRIC = "all"
KEPT = "baseline"  # the kind of `--against baseline:NAME`
PUBLISHED = "published:"  # the beginning of `--against published:NAME`, which published.py carries out
_UNDECIDED_REMEDY = (
    "measure again, with more repeats on both sides: --repeat 3 or more; the notes above say what was excluded"
)
_INCOMPARABLE_REMEDY = "select comparable results, or override with --allow FIELD"


_PUBLISHED_REMEDY = (
    "the notes above say what differs: measure with the settings of the study (sifmark published.show {0}), or add "
    "--allow FIELD"
)


class GateError(SifmarkError):
    """The gate failed. The exit code is 7."""

    exit_code = 7


@dataclass(frozen=True)
class CompareOptions:
    """The options of the command line."""

    paths: tuple[str, ...]
    baseline: str = ""  # FIELD=VALUE, or where other results are
    metrics: str = ""
    by: str = ""
    allow: tuple[str, ...] = ()
    format: str = "table"
    fail_below: str = ""
    fail_above: str = ""
    trusted_keys: tuple[str, ...] | None = None  # if signatures are required
    reference: str = ""  # KIND:NAME, instead of a baseline among results
    baselines: Path = Path("baselines")  # the folder of those of the kind KEPT

    def query(self) -> Query:
        """Return what is asked of the results. Raises UsageError."""
        from sifmark.results.catalogue import path_of
        from sifmark.results.comparison.query import DEFAULT_METRICS, Query

        every = self.metrics == EVERY_METRIC
        return Query(
            metrics=DEFAULT_METRICS if every or not self.metrics else self._metrics(),
            every_metric=every,
            more_fields=tuple(map(path_of, _words(self.by))),
            allowed=frozenset(map(path_of, self.allow)),
            against=bool(self.against or self.reference),
            baseline=self._baseline_field(),
        )

    @property
    def against(self) -> str:
        """Where the results are that are the baselines; empty if a field distinguishes them."""
        return "" if self._field_and_value() else self.baseline

    def gate(self) -> Gate | None:
        """Return the gate, or None if there is none. Raises UsageError."""
        if self.fail_below and self.fail_above:
            remedy = "ask for one of them, once for each metric"
            raise UsageError("--fail-below and --fail-above are two gates", remedy, code="invalid-option")
        if not self.fail_below and not self.fail_above:
            return None
        from sifmark.results.comparison.gate import Gate

        gate = Gate(0.0, above=bool(self.fail_above))
        gate = Gate(_ratio(self.fail_below or self.fail_above, _option(gate)), gate.above)
        if not self.baseline and not self.reference:
            remedy = "add --baseline RESULTS, --baseline FIELD=VALUE or --against baseline:NAME"
            raise UsageError(f"{_option(gate)} needs a baseline", remedy, code="invalid-option")
        return gate

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that are asked for by name."""
        return () if self.metrics == EVERY_METRIC else _words(self.metrics)

    def _metrics(self) -> tuple[str, ...]:
        if metrics := _words(self.metrics):
            return metrics
        raise UsageError("--metrics is empty", f"name some, or {EVERY_METRIC}", code="invalid-option")

    def _baseline_field(self) -> tuple[str, str] | None:
        from sifmark.results.catalogue import path_of

        name, value = self._field_and_value() or ("", "")
        is_field = bool(name and value)
        if self.baseline and not is_field and not glob(self.baseline):  # noqa: PTH207
            cause = f"--baseline {self.baseline!r} is neither FIELD=VALUE nor a path with results"
            raise UsageError(cause, "for example precision=fp32", code="invalid-option")
        return (path_of(name), value) if is_field else None

    def _field_and_value(self) -> tuple[str, str] | None:
        """Return the two sides of FIELD=VALUE, or None for a path, which may contain the sign too."""
        name, equals, value = self.baseline.partition("=")
        return (name, value) if equals and not Path(self.baseline).exists() else None


@command("compare", example="compare results/ --baseline site=alpha")
@results_argument()
@option(
    "--baseline",
    "Other results, or those with this value, are the baselines.",
    "RESULTS|FIELD=VALUE",
    completes="file",
)
@option(
    "--against",
    "A kept baseline, baseline:NAME; or published figures, published:NAME[/TABLE].",
    "KIND:NAME",
)
@option("--metrics", "Metrics, with commas, or 'all'.", "METRICS")
@option("--by", "More fields that separate rows, with commas.", "FIELDS")
@option(
    "--allow",
    "Compare results that differ in this field, although they should not. Repeatable.",
    "FIELD",
    multiple=True,
)
@option("--fail-below", "Exit with 7 if the first metric is below this ratio to its baseline.", "RATIO")
@option("--fail-above", "Exit with 7 if it is above; for metrics where less is better.", "RATIO")
@signature_flag
@key_option
@format_option
def compare_command(
    settings: Settings,
    paths: Sequence[str],
    baseline: str = "",
    against: str = "",
    metrics: str = "",
    by: str = "",
    allow: Sequence[str] = (),
    fail_below: str = "",
    fail_above: str = "",
    require_signature: bool = False,
    form: str = "table",
) -> None:
    """Compare results, and refuse what is not comparable."""
    options = CompareOptions(
        *(tuple(paths), baseline, metrics, by, tuple(allow), form, fail_below, fail_above),
        trusted_keys=settings.keys if require_signature else None,
        reference=against,
        baselines=settings.baselines,
    )
    if against.startswith(PUBLISHED):
        compare_published(options)
    else:
        compare(options)


def compare(options: CompareOptions) -> None:
    """Print the comparison. Raises SifmarkError if something cannot be compared, GateError if the gate fails."""
    from sifmark.results.comparison.compare import compare_results
    from sifmark.results.comparison.gate import GateDecision, GateVerdict
    from sifmark.results.comparison.tables import as_markdown

    gate = options.gate()
    require_trusted_keys(options.trusted_keys)
    query = options.query()
    references = _references(options, query)
    comparison = compare_results(options.paths, query, options.against, options.trusted_keys, references)
    if gate is not None:
        _require_direction(gate, comparison)
    if comparison.tables or options.format == "json":
        output(_written(comparison, options.format))
        add_summary("Comparison", lambda: as_markdown(comparison).splitlines())
    report_left_out(comparison)
    verdict = gate.judge(comparison) if gate is not None else GateVerdict(GateDecision.PASSED)
    _conclude(comparison, verdict)
    if gate is not None:
        status(f"the gate passed: no ratio is {gate.side} {gate.limit:g}")


def _written(comparison: Comparison, form: str) -> str:
    from sifmark.results.comparison.exports import as_csv, as_json
    from sifmark.results.comparison.tables import as_markdown, as_text

    if form in (JSON, CSV):
        return as_json(comparison) if form == JSON else as_csv(comparison)
    return (as_markdown if form == MARKDOWN else as_text)(comparison, details=is_verbose())


def _references(options: CompareOptions, query: Query) -> Sequence[Observation]:
    """Return what `--against KIND:NAME` names as the baselines of the comparison. Raises SifmarkError."""
    if not options.reference:
        return ()
    if options.baseline:
        cause = "--against and --baseline both name baselines"
        raise UsageError(cause, "ask for one of them", code="invalid-option")
    kind, _, name = options.reference.partition(":")
    if kind != KEPT or not name:
        raise unknown_name("kind of reference", options.reference, (f"{KEPT}:NAME", f"{PUBLISHED}NAME"))
    if options.trusted_keys is not None:
        remedy = "compare with the signed results themselves: --baseline RESULTS"
        raise UsageError("a baseline has no signatures of its results", remedy, code="invalid-option")
    from sifmark.studies.history.baseline import read_baseline  # here: most comparisons need none

    return list(read_baseline(options.baselines, name).observations(query.extra_fields))


def _require_direction(gate: Gate, comparison: Comparison) -> None:
    """Raise UsageError for a gate that would let the worse pass."""
    for metric in comparison.query.metrics[:1]:
        if not gate.suits(metric):
            better, option, limit = ("more", "below", 0.95) if gate.above else ("less", "above", 1.05)
            cause = f"{_option(gate)} with {metric}: {better} of it is better"
            raise UsageError(cause, f"use --fail-{option}, for example {limit}", code="invalid-option")


def report_left_out(comparison: Comparison) -> None:
    """Write to stderr which results were not compared, and why."""
    from sifmark.results.catalogue import column_of
    from sifmark.results.comparison.tables import exclusion_text, incompatibility_text

    report_copies(comparison.duplicates)
    for lines in (comparison.invalid, comparison.unsigned, list(map(exclusion_text, comparison.excluded))):
        list_left_out("excluded", lines)
    if comparison.excluded:
        counts = Counter(field for excluded in comparison.excluded for field in excluded.fields)
        reasons = ", ".join(f"{column_of(field)}: {count}" for field, count in counts.items())
        hint = "--allow FIELD includes them, in rows of their own"
        warn(f"{len(comparison.excluded)} results are excluded ({reasons}); {hint}")
    if shared := _on_both_sides(comparison):
        warn(f"{shared} results are baselines too, and hide a change of the others; leave them out")
    for incompatibility in comparison.refused:
        warn(f"refused: {incompatibility_text(incompatibility)}")


def _on_both_sides(comparison: Comparison) -> int:
    """Return how many runs are on both sides."""
    sides: dict[str, set[str]] = {"results": set(), "against": set()}
    for row in (row for table in comparison.tables for row in table.rows):
        sides[row.side].update(observation.id for observation in row.observations)
    return len(sides["results"] & sides["against"])


def _conclude(comparison: Comparison, verdict: GateVerdict) -> None:
    """Raise GateError if the gate failed, SifmarkError if something was not compared or not decided."""
    from sifmark.results.comparison.gate import GateDecision

    if unsteady := verdict.unsteady:
        example = f"for example {printable(unsteady[0])}"
        status(f"the gate rests on {len(unsteady)} results that were not steady, {example}")
    if verdict.decision is GateDecision.FAILED:
        raise GateError(verdict.reason, "the ratios above show which", code="gate-failed")
    problems = _problems(comparison)
    if verdict.decision is GateDecision.UNDECIDED:
        if not problems:
            raise SifmarkError(verdict.reason, _UNDECIDED_REMEDY, code="gate-undecided")
        problems.insert(0, verdict.reason)
    if problems:
        code, remedy = "results-incomparable", _INCOMPARABLE_REMEDY
        if comparison.unsigned:
            code, remedy = "signature-untrusted", "trust their keys with --key, or leave these results out"
        if comparison.invalid:
            code, remedy = "result-invalid", "repair or remove them: sifmark results.validate says what is wrong"
        raise SifmarkError("; ".join(problems), remedy, code=code)


def _problems(comparison: Comparison) -> list[str]:
    problems = []
    if comparison.excluded and not any(row.ratios or not comparison.query.relative for row in comparison.compared):
        problems.append("nothing is left to compare")
    if comparison.invalid:
        problems.append(f"{len(comparison.invalid)} documents are not valid")
    if comparison.unsigned:
        problems.append(f"{len(comparison.unsigned)} documents are not signed by a trusted key")
    if comparison.refused:
        fields = ", ".join(sorted({incompatibility.field for incompatibility in comparison.refused}))
        problems.append(f"refused to compare what differs in {fields}")
    return problems


def _ratio(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise UsageError(
            f"{option} {text!r} is not a number above 0", "for example 0.95, or 1.05", code="invalid-option"
        )
    return value


def _option(gate: Gate) -> str:
    return f"--fail-{gate.side}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def compare_published(options: CompareOptions) -> None:
    """Print published figures beside results. Raises SifmarkError if nothing could be compared."""
    from sifmark.results.catalogue import path_of
    from sifmark.studies.published.comparison import compare_with_published

    require_trusted_keys(options.trusted_keys)
    name = options.reference.removeprefix(PUBLISHED)
    _require_published_options(options)
    comparison = compare_with_published(
        name, options.paths, map(path_of, options.allow), options.metric_names, options.trusted_keys
    )
    _answer_published(comparison, options.format)
    _report_left_out_published(comparison)
    _conclude_published(comparison, name)


def _require_published_options(options: CompareOptions) -> None:
    """Raise UsageError for options that mean nothing here."""
    unused = {
        "--baseline": options.baseline,
        "--by": options.by,
        "--fail-below": options.fail_below,
        "--fail-above": options.fail_above,
    }
    if given := [option for option, value in unused.items() if value]:
        cause = f"{given[0]} has no meaning with published figures, which were measured on other machines"
        raise UsageError(cause, "leave it out, or compare with --baseline", code="invalid-option")


def _answer_published(comparison: PublishedComparison, form: str) -> None:
    from sifmark.studies.published.reports import COLUMNS, CSV_COLUMNS, as_record, csv_row, notes, table_rows

    rows = table_rows(comparison)
    table = (
        Table(COLUMNS, rows) if form in (TABLE, MARKDOWN) else Table(CSV_COLUMNS, list(map(csv_row, comparison.rows)))
    )
    if rows or form not in (TABLE, MARKDOWN):
        answer(form, as_record(comparison), table)
    lines = [printable(line) for line in notes(comparison)]
    if form == TABLE and rows:
        output("\n".join(["", *lines[:MOST_LISTED], *_more_lines(lines)]))
    else:
        _list_lines(lines)


def _report_left_out_published(comparison: PublishedComparison) -> None:
    from sifmark.results.comparison.tables import exclusion_text

    results = comparison.results
    report_copies(results.duplicates)
    left_out = [*results.invalid, *results.unsigned, *map(exclusion_text, results.excluded)]
    if left_out:
        _list_lines([f"excluded: {line}" for line in left_out])
        warn(f"{len(left_out)} results are excluded")


def _list_lines(lines: Sequence[str]) -> None:
    for line in [*lines[:MOST_LISTED], *_more_lines(lines)]:
        status(line)


def _more_lines(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_LISTED
    return [f"and {more} notes more: --format json has them all"] if more > 0 else []


def _conclude_published(comparison: PublishedComparison, name: str) -> None:
    results = comparison.results
    if results.invalid:
        remedy = "repair or remove them: sifmark results.validate lists the problems"
        raise SifmarkError(f"{len(results.invalid)} documents are not valid", remedy, code="result-invalid")
    if results.unsigned:
        cause = f"{len(results.unsigned)} documents are not signed by a trusted key"
        raise SifmarkError(cause, "leave them out, or trust their key: --key", code="signature-untrusted")
    if not comparison.rows:
        cause = f"no result is the counterpart of a figure of {name}"
        raise SifmarkError(cause, _PUBLISHED_REMEDY.format(name), code="results-incomparable")
