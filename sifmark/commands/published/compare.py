"""The compare command with --against published:NAME: results beside the figures of a published study."""

from collections.abc import Sequence

from sifmark.commands.answers import MARKDOWN, MOST_LISTED, TABLE, Table, answer, report_copies
from sifmark.commands.compare import PUBLISHED, CompareOptions, full_name, require_trusted_keys
from sifmark.core.console import output, printable, status, warn
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.results.comparison.tables import exclusion_text
from sifmark.studies.published.comparison import PublishedComparison, compare_with_published
from sifmark.studies.published.reports import COLUMNS, CSV_COLUMNS, as_record, csv_row, notes, table_rows

_REMEDY = (
    "the notes above say what differs: measure with the settings of the study (sifmark published.show {0}), or add "
    "--allow FIELD"
)


def compare_published(options: CompareOptions) -> None:
    """Print published figures beside results. Raises SifmarkError if nothing could be compared."""
    require_trusted_keys(options.trusted_keys)
    name = options.reference.removeprefix(PUBLISHED)
    _require_meaning(options)
    comparison = compare_with_published(
        name, options.paths, map(full_name, options.allow), options.metric_names, options.trusted_keys
    )
    _answer(comparison, options.format)
    _report_left_out(comparison)
    _conclude(comparison, name)


def _require_meaning(options: CompareOptions) -> None:
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


def _answer(comparison: PublishedComparison, form: str) -> None:
    rows = table_rows(comparison)
    table = (
        Table(COLUMNS, rows) if form in (TABLE, MARKDOWN) else Table(CSV_COLUMNS, list(map(csv_row, comparison.rows)))
    )
    if rows or form not in (TABLE, MARKDOWN):
        answer(form, as_record(comparison), table)
    lines = [printable(line) for line in notes(comparison)]
    if form == TABLE and rows:
        output("\n".join(["", *lines[:MOST_LISTED], *_rest(lines)]))
    else:
        _list(lines)


def _report_left_out(comparison: PublishedComparison) -> None:
    results = comparison.results
    report_copies(results.duplicates)
    left_out = [*results.invalid, *results.unsigned, *map(exclusion_text, results.excluded)]
    if left_out:
        _list([f"excluded: {line}" for line in left_out])
        warn(f"{len(left_out)} results are excluded")


def _list(lines: Sequence[str]) -> None:
    for line in [*lines[:MOST_LISTED], *_rest(lines)]:
        status(line)


def _rest(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_LISTED
    return [f"and {more} notes more: --format json has them all"] if more > 0 else []


def _conclude(comparison: PublishedComparison, name: str) -> None:
    results = comparison.results
    if results.invalid:
        remedy = "repair or remove them: sifmark results.validate lists the problems"
        raise SifmarkError(f"{len(results.invalid)} documents are not valid", remedy, code="result-invalid")
    if results.unsigned:
        cause = f"{len(results.unsigned)} documents are not signed by a trusted key"
        raise SifmarkError(cause, "leave them out, or trust their key: --key", code="signature-untrusted")
    if not comparison.rows:
        cause = f"no result is the counterpart of a figure of {name}"
        raise SifmarkError(cause, _REMEDY.format(name), code="results-incomparable")
