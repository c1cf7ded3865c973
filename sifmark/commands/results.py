"""Commands for results: show, validate, sign, verify, trace, export."""

from __future__ import annotations

import os
import shlex
import sys
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, list_left_out, report_copies
from sifmark.core.console import printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.keys import require_trusted_keys
from sifmark.core.terminal import is_quiet, output, output_table, paint, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sifmark.core.settings import Settings
    from sifmark.results.load import LoadedResult

    Problems = dict[str, list[str]]  # by file


@cli.command("results.show", example="results.show results/")
@cli.results_argument()
@cli.flag("--all-metrics", "Also name the metrics without a value, and why.")
@cli.format_option
def show_results(paths: Sequence[str], form: str = TABLE, all_metrics: bool = False) -> None:
    """Print a summary of results."""
    from sifmark.results.load import load_all
    from sifmark.results.summary import summary_row

    results = list(load_all(paths))
    documents = [result.document for result in results if not result.problems]
    rows = [summary_row(document) for document in documents]
    table = Table(list(rows[0]) if rows else [], [list(row.values()) for row in rows])
    many = len(documents) > 1 and not all_metrics
    answer(form, rows, table, lambda: _show_table(results) if many else _show_each(documents, all_metrics))
    problems = [f"{printable(result.file)}: {printable(result.problems[0])}" for result in results if result.problems]
    if problems:
        remedy = f"see all problems: sifmark results.validate {shlex.join(paths)}"
        raise SifmarkError("\n".join(problems), remedy, code="result-invalid")


def _show_table(results: Iterable[LoadedResult]) -> None:
    """Print a row for each valid result; a command for one of them shows the rest."""
    from sifmark.results.summary import SHORT_COLUMNS, short_row
    from sifmark.results.warnings import warnings_of

    valid = [result for result in results if not result.problems]
    output_table(*SHORT_COLUMNS, rows=[short_row(result.document) for result in valid])
    marked = "; ! marks a warning" if any(any(warnings_of(result.document)) for result in valid) else ""
    status(f"{len(valid)} results{marked}; one in full: sifmark results.show {shlex.quote(valid[0].file)}")


def _show_each(documents: Iterable[dict[str, Any]], every_metric: bool) -> None:
    from sifmark.results.summary import summary

    for number, document in enumerate(documents):
        lines = summary(document, every_metric)
        output("\n".join(map(printable, [""] * bool(number) + lines)))


@cli.command("results.validate", example="results.validate results/")
@cli.results_argument()
@cli.flag("--finished", "Fail also unless each run completed or ran out of memory.")
@cli.option("--run", "Fail also for results of other runs of a study than that with this key.", "KEY", name="key")
@cli.format_option
def validate_results(paths: Iterable[str], form: str = TABLE, finished: bool = False, key: str = "") -> None:
    """Check results against the schema that they name."""
    from sifmark.results.load import load_all

    problems = {
        file: [problem for result in results for problem in _problems(result, finished, key)]
        for file, results in groupby(load_all(paths), key=lambda result: result.file)
    }
    documents = [{"file": file, "valid": not texts, "problems": texts} for file, texts in problems.items()]
    rows = [(file, _validity(texts), "; ".join(texts)) for file, texts in problems.items()]
    answer(form, documents, Table(("file", "state", "problems"), rows), lambda: _show_validity(problems))
    if invalid := sum(map(bool, problems.values())):
        cause = f"{invalid} of {len(problems)} files are not valid"
        raise SifmarkError(cause, "the lines above name each field", code="result-invalid")
    status(f"{len(problems)} valid")


def _problems(result: LoadedResult, finished: bool, key: str) -> Iterator[str]:
    from sifmark.results.finished import unfinished_reason
    from sifmark.results.identity import RunIdentity, identity_of

    yield from result.problems
    if result.problems:
        return
    if finished and (reason := unfinished_reason(result)):
        yield reason
    if key and (difference := identity_of(result.document).difference(RunIdentity("", "", "", key))):
        yield f"belongs to another run: {difference}"


def _show_validity(problems: Problems) -> None:
    """Print a line for each file, if quiet only for those that are not valid, and for each problem."""
    for file, texts in problems.items():
        if texts or not is_quiet():
            output(f"{paint(_validity(texts))}  {printable(file)}")
        for problem in texts:
            output(f"  {printable(problem)}")


def _validity(problems: list[str]) -> str:
    return "invalid" if problems else "valid"


@cli.command("results.sign", example="results.sign results/ --key site.pem")
@cli.results_argument()
@cli.option("--key", "Private key in PEM form. [default: results_key]", "FILE")
@cli.format_option
def sign_files(paths: Iterable[str], settings: Settings, key: str = "", form: str = TABLE) -> None:
    """Sign result files: a signed statement goes beside each."""
    from sifmark.results.envelope import sign_results
    from sifmark.results.load import files_of

    private = Path(key) if key else settings.results_key
    if private is None:
        remedy = "name one: --key FILE.pem, or results_key in sifmark.toml"
        raise UsageError("which key should sign?", remedy, code="invalid-option")
    envelopes = {file: sign_results(Path(file), private) for file in files_of(paths)}
    documents = [{"file": file, "envelope": str(envelope)} for file, envelope in envelopes.items()]
    rows = [(file, str(envelope)) for file, envelope in envelopes.items()]
    answer(form, documents, Table(("file", "envelope"), rows), lambda: _show_signed(envelopes.values()))


def _show_signed(envelopes: Iterable[Path]) -> None:
    for envelope in envelopes:
        output(f"signed: {printable(str(envelope))}")


@cli.command("results.verify", example="results.verify results/ --key site.pub")
@cli.results_argument()
@cli.key_option
@cli.format_option
def verify_files(paths: Iterable[str], settings: Settings, form: str = TABLE) -> None:
    """Check that result files are signed by a trusted key."""
    from sifmark.results.load import files_of

    require_trusted_keys(settings.keys)
    verdicts = [(file, *_verdict(Path(file), settings.keys)) for file in files_of(paths)]
    documents = [{"file": file, "signer": signer, "reason": reason} for file, signer, reason in verdicts]
    rows = [(file, _signature(signer), signer or reason) for file, signer, reason in verdicts]
    answer(form, documents, Table(("file", "state", "detail"), rows), lambda: _show_verified(rows))
    if refuted := [file for file, signer, _ in verdicts if signer is None]:
        cause = f"{len(refuted)} of {len(verdicts)} files are not signed by a key that is trusted here"
        raise SifmarkError(cause, "the lines above say why", code="signature-untrusted")
    status(f"{len(verdicts)} signed")


def _verdict(file: Path, keys: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the signer of a file, or None and the reason."""
    from sifmark.results.envelope import signer_of

    try:
        return signer_of(file, keys), None
    except SifmarkError as error:
        if isinstance(error, UsageError):
            raise
        return None, error.cause


def _signature(signer: str | None) -> str:
    return "signed" if signer else "not signed"


def _show_verified(rows: Sequence[tuple[str, str, str | None]]) -> None:
    """Print a line for each file, if quiet only for those that no trusted key has signed."""
    for file, state, detail in rows:
        if state != "signed" or not is_quiet():
            output(f"{paint(state)}  {printable(file)}  {printable(detail or '')}")


@cli.command("results.trace", example="results.trace result.json")
@cli.results_argument()
@cli.option("--image", "The image that ran. [default: the recipe's image here]", "NAME", completes="image")
@cli.option("--require", "Fail unless these links are verified, with commas. [with CI set: image]", "LINKS")
@cli.key_option
@cli.format_option
@cli.engine_option
def trace_results(
    paths: Iterable[str], settings: Settings, image: str = "", form: str = TABLE, require: str = ""
) -> None:
    """Trace results back to image, SBOM, recipe and commit."""
    from sifmark.trust.trace import link_document, links_named, require_links
    from sifmark.trust.trace import trace_results as trace

    required = links_named(require or ("image" if os.environ.get("CI") else ""))
    traces = [(file, list(map(link_document, links)), links) for file, links in trace(paths, settings, image)]
    documents = [{"file": file, "links": links} for file, links, _ in traces]
    rows = [(file, *link.values()) for file, links, _ in traces for link in links]

    def show() -> None:
        for file, links, _ in traces:
            output(printable(file))
            output_table("link", "state", "detail", rows=[list(link.values()) for link in links])

    answer(form, documents, Table(("file", "link", "state", "detail"), rows), show)
    require_links([(file, links) for file, _, links in traces], required)


@cli.command("results.export", example="results.export results/ --output runs.parquet")
@cli.results_argument()
@cli.output_option("File for the table, instead of standard output.", "FILE", "target")
@cli.option(
    "--format",
    "Format of the table. [default: that of the file's suffix, or csv]",
    name="form",
    choices=("csv", "json", "jsonl", "parquet", "duckdb"),
)
@cli.option(
    "--table",
    "runs: a row for each run and metric; points: curves inside results; steps: single steps, and power.",
    choices=("runs", "points", "steps"),
)
def export_results(paths: Sequence[str], target: str = "", form: str = "", table: str = "runs") -> None:
    """Write a tidy table of results for other programs."""
    from sifmark.results.export import ExportCounts, format_of, require_elsewhere, rows_of, write_file, write_rows
    from sifmark.results.tidy import Table as TidyTable

    file = Path(target) if target and target != "-" else None
    chosen, of, counts = format_of(form, file), TidyTable(table), ExportCounts()
    if file is not None:
        require_elsewhere(file, paths)
    rows = rows_of(paths, of, counts)
    first = list(islice(rows, 1))
    if not counts.runs:
        cause = f"no valid result to export; {len(counts.invalid)} are not valid, for example {counts.invalid[0]}"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
    if file is None:
        write_rows(chain(first, rows), of, chosen, sys.stdout)
    else:
        write_file(chain(first, rows), of, chosen, file)
        output(f"exported: {printable(target)}, {counts.rows} rows of {counts.runs} runs")
    report_copies(counts.duplicates)
    list_left_out("left out", counts.invalid)
    if counts.invalid:
        cause = f"{len(counts.invalid)} documents are not valid; the table has the others"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
