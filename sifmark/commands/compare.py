"""The command compare: results in groups, against a baseline, and a gate for pipelines."""

from __future__ import annotations

from collections import Counter
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.commands.answers import (
    CSV,
    JSON,
    MARKDOWN,
    MOST_LISTED,
    TABLE,
    Table,
    answer,
    list_left_out,
    output_style,
)
from sifmark.commands.pipelines import add_summary
from sifmark.core.console import comma_separated, counted, fraction, printable
from sifmark.core.errors import GateError, SifmarkError, UndecidedError, UsageError
from sifmark.core.keys import require_trusted_keys
from sifmark.core.terminal import is_verbose, output, output_width, status, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.results.comparison.compare import Comparison
    from sifmark.results.comparison.compatibility import Excluded
    from sifmark.results.comparison.gate import GateVerdict
    from sifmark.studies.published.comparison import PublishedComparison

EVERY_METRIC = "all"
PUBLISHED = "published:"  # the beginning of `--against published:NAME`
_SIDES = ("results", "against")  # of a comparison with other results
_UNDECIDED_REMEDY = (
    "measure again with --repeat 3 or more, on several days or in turns (--interleave); --between, --allow MARK and "
    "--allow-missing change what is asked for; the notes above say what was left out"
)
_INCOMPARABLE_REMEDY = "select comparable results, or override with --allow FIELD"
_PUBLISHED_REMEDY = (
    "the notes above say what differs: measure with the settings of the study (sifmark published.show {0}), or add "
    "--allow FIELD"
)


@cli.command("compare", example="compare results/ --baseline site=alpha")
@cli.results_argument()
@cli.option(
    "--baseline", "Other results, or those with this value, are the baselines.", "RESULTS|FIELD=VALUE", completes="file"
)
@cli.option("--against", "A kept baseline, baseline:NAME; or published figures, published:NAME[/TABLE].", "KIND:NAME")
@cli.option("--metrics", "Metrics, with commas, or 'all'.", "METRICS")
@cli.option("--by", "More fields that separate rows, with commas.", "FIELDS")
@cli.option(
    "--allow",
    "Compare results that differ in this field, although they should not; or judge those with this mark: busy, "
    "stopped, unsteady. Repeatable.",
    "FIELD",
    multiple=True,
)
@cli.between_option
@cli.option("--fail-below", "Exit with 7 if the first metric is below this ratio to its baseline.", "RATIO", kind=float)
@cli.option("--fail-above", "Exit with 7 if it is above; for metrics where less is better.", "RATIO", kind=float)
@cli.flag("--allow-missing", "Let a gate pass although baselines have no counterpart.")
@cli.signature_flag
@cli.key_option
@cli.format_option
def compare(
    settings: Settings,
    paths: Sequence[str],
    baseline: str = "",
    against: str = "",
    metrics: str = "",
    by: str = "",
    allow: Sequence[str] = (),
    between: str = "",
    fail_below: float | None = None,
    fail_above: float | None = None,
    allow_missing: bool = False,
    require_signature: bool = False,
    form: str = TABLE,
) -> None:
    """Compare results, and refuse what is not comparable."""
    from sifmark import library
    from sifmark.results.comparison.gate import Gate
    from sifmark.results.comparison.query import DEFAULT_METRICS
    from sifmark.results.comparison.sessions import BETWEEN
    from sifmark.results.comparison.text import as_markdown

    gated = fail_below is not None or fail_above is not None
    trusted_keys = settings.keys if require_signature else None
    if against.startswith(PUBLISHED):
        _require_unused({"--baseline": baseline, "--by": by, "--fail-below": fail_below, "--fail-above": fail_above})
        require_trusted_keys(trusted_keys)
        chosen = () if metrics == EVERY_METRIC else _words(metrics)
        _compare_published(against.removeprefix(PUBLISHED), paths, allow, chosen, trusted_keys, form)
        return
    gate = Gate.of(fail_below, fail_above) if gated else None
    asked = library.compare(
        *paths,
        baseline=_baseline(baseline) if baseline else None,
        against=against,
        metrics=metrics if metrics == EVERY_METRIC else _words(metrics) if metrics else DEFAULT_METRICS,
        by=_words(by),
        allow=allow,
        between=fraction(between, "--between") if between else BETWEEN,
        trusted_keys=trusted_keys,
        settings=settings,
    )
    verdict = asked.gate(fail_below, fail_above, allow_missing=allow_missing) if gate else None
    if asked.compared.tables or form == JSON:
        output(_written(asked.compared, form))
        add_summary("Comparison", lambda: as_markdown(asked.compared).splitlines())
    report_left_out(asked.compared)
    _conclude(asked.compared, verdict)
    if gate:
        status(f"the gate passed: no ratio is {gate.side} {gate.limit:g}")


def _baseline(text: str) -> dict[str, str] | str:
    """Return a field with its value, or the path of other results, which may contain the sign too."""
    name, equals, value = text.partition("=")
    if equals and name and value and not Path(text).exists():
        return {name: value}
    if not glob(text):  # noqa: PTH207
        cause = f"--baseline {text!r} is neither FIELD=VALUE nor a path with results"
        raise UsageError(cause, "for example precision=fp32", code="invalid-option")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(comma_separated(text)))


def _written(comparison: Comparison, form: str) -> str:
    from sifmark.results.comparison.exports import as_csv, as_json
    from sifmark.results.comparison.text import as_markdown, as_text

    if form in (JSON, CSV):
        return as_json(comparison) if form == JSON else as_csv(comparison)
    if form == MARKDOWN:
        return as_markdown(comparison, details=is_verbose())
    return as_text(comparison, is_verbose(), output_style())


def report_left_out(comparison: Comparison) -> None:
    """Write to stderr which results were not compared, and why."""
    from sifmark.results.catalogue import column_of
    from sifmark.results.comparison.tables import exclusion_text, incompatibility_text

    list_left_out(comparison.invalid, comparison.duplicates)
    list_left_out(comparison.unsigned)
    if comparison.excluded and output_width() is not None and not is_verbose():
        left_out = counted(len(comparison.excluded), "run is", "runs are")
        status(f"{left_out} left out: {_reasons(comparison.excluded)}; --verbose lists them")
    elif comparison.excluded:
        list_left_out(map(exclusion_text, comparison.excluded))
        counts = Counter(field for excluded in comparison.excluded for field in excluded.fields)
        reasons = ", ".join(f"{column_of(field)}: {count}" for field, count in counts.items())
        are = counted(len(comparison.excluded), "result is", "results are")
        warn(f"{are} excluded ({reasons}); --allow FIELD includes them, in rows of their own")
    rows = [row for table in comparison.tables for row in table.rows]
    sides = ({each.id for row in rows if row.side == side for each in row.observations} for side in _SIDES)
    if shared := len(set.intersection(*sides)):
        are = counted(shared, "result is a baseline", "results are baselines")
        warn(f"{are} too, and hides a change of the others; leave it out of one side")
    for incompatibility in comparison.refused:
        warn(f"refused: {incompatibility_text(incompatibility)}")


def _reasons(excluded: Sequence[Excluded]) -> str:
    """Return why results are left out, counted: `5 out of memory, 1 crashed`."""
    from sifmark.results.catalogue import column_of
    from sifmark.results.comparison.compatibility import format_value

    counts = Counter(
        (field, format_value(each.result.fields.get(field))) for each in excluded for field in each.fields[:1]
    )
    texts = (
        f"{count} {value.replace('_', ' ')}" if field == "status.state" else f"{count} {column_of(field)} {value}"
        for (field, value), count in counts.most_common()
    )
    return ", ".join(texts)


def _conclude(comparison: Comparison, verdict: GateVerdict | None) -> None:
    """Raise GateError if the gate failed, UndecidedError if it cannot tell, SifmarkError if something was refused."""
    from sifmark.results.comparison.gate import GateDecision
    from sifmark.results.load import require_valid

    problems = []
    if verdict:
        if verdict.decision is GateDecision.FAILED:
            raise GateError(verdict.reason, "the ratios above show which", code="gate-failed")
        if verdict.decision is GateDecision.UNDECIDED:
            problems.append(verdict.reason)
    if comparison.excluded and not any(row.ratios or not comparison.query.relative for row in comparison.compared):
        problems.append("nothing is left to compare")
    if comparison.refused:
        fields = ", ".join(sorted({incompatibility.field for incompatibility in comparison.refused}))
        problems.append(f"refused to compare what differs in {fields}")
    require_valid(comparison.invalid, comparison.unsigned, "".join(f"; {problem}" for problem in problems))
    if verdict and problems == [verdict.reason]:
        raise UndecidedError(verdict.reason, _UNDECIDED_REMEDY, code="gate-undecided")
    if problems:
        raise SifmarkError("; ".join(problems), _INCOMPARABLE_REMEDY, code="results-incomparable")


def _require_unused(options: dict[str, Any]) -> None:
    """Raise UsageError for options that mean nothing with published figures."""
    if given := [option for option, value in options.items() if value not in ("", None)]:
        cause = f"{given[0]} has no meaning with published figures, which were measured on other machines"
        raise UsageError(cause, "leave it out, or compare with --baseline", code="invalid-option")


def _compare_published(
    name: str,
    paths: Sequence[str],
    allow: Sequence[str],
    metrics: Sequence[str],
    trusted_keys: Sequence[str] | None,
    form: str,
) -> None:
    """Print published figures beside results. Raises SifmarkError if nothing could be compared."""
    from sifmark.results.catalogue import path_of
    from sifmark.results.comparison.tables import exclusion_text
    from sifmark.results.load import require_valid
    from sifmark.studies.published.comparison import compare_with_published

    comparison = compare_with_published(name, paths, map(path_of, allow), metrics, trusted_keys)
    _answer_published(comparison, form)
    results = comparison.results
    list_left_out([*results.invalid, *results.unsigned, *map(exclusion_text, results.excluded)], results.duplicates)
    require_valid(results.invalid, results.unsigned)
    if not comparison.rows:
        cause = f"no result is the counterpart of a figure of {name}"
        raise SifmarkError(cause, _PUBLISHED_REMEDY.format(name), code="results-incomparable")


def _answer_published(comparison: PublishedComparison, form: str) -> None:
    from sifmark.studies.published.reports import COLUMNS, CSV_COLUMNS, as_record, csv_row, notes, table_rows

    rows, for_people = table_rows(comparison), form in (TABLE, MARKDOWN)
    if rows or not for_people:
        table = Table(COLUMNS, rows) if for_people else Table(CSV_COLUMNS, list(map(csv_row, comparison.rows)))
        answer(form, as_record(comparison), table)
    every = [printable(line) for line in notes(comparison)]
    more = len(every) - MOST_LISTED
    lines = every[:MOST_LISTED] + [f"and {counted(more, 'note')} more: --format json has them all"] * (more > 0)
    if form == TABLE and rows:
        output("\n".join(["", *lines]))
    else:
        for line in lines:
            status(line)
