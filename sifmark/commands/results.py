"""Commands for results: show, validate, sign, verify, push, trace, export."""

from __future__ import annotations

import os
import shlex
import sys
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands import framework as cli
from sifmark.commands.answers import TABLE, Table, answer, list_left_out, output_style
from sifmark.core.console import counted, printable
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.keys import require_trusted_keys
from sifmark.core.terminal import is_quiet, output, output_table, output_width, paint, status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sifmark.core.settings import Settings
    from sifmark.library import Results
    from sifmark.results.consumers import Consumer
    from sifmark.results.export import ExportCounts
    from sifmark.results.load import LoadedResult

# The formats of other programs: the keys of sifmark.results.consumers.CONSUMERS, which loads slowly.
_CONSUMERS = ("openmetrics", "mllog", "bencher", "customBiggerIsBetter", "customSmallerIsBetter", "junit")


@cli.command("results.show", example="results.show results/")
@cli.results_argument()
@cli.flag("--all-metrics", "Also name the metrics without a value, and why.")
@cli.format_option
def show_results(paths: Sequence[str], form: str = TABLE, all_metrics: bool = False) -> None:
    """Print a summary of results."""
    from sifmark.library import load
    from sifmark.results.summary import summary_row

    results = load(paths)
    rows = [summary_row(result.document) for result in results]
    table = Table(list(rows[0]) if rows else [], [list(row.values()) for row in rows])
    many = len(results) > 1 and not all_metrics
    answer(form, rows, table, lambda: _show_table(results) if many else _show_each(results, all_metrics))
    list_left_out((), len(results.duplicates))
    if problems := [printable(f"{file}: {texts[0]}") for file, texts in results.invalid.items()]:
        remedy = f"see all problems: sifmark results.validate {shlex.join(paths)}"
        raise SifmarkError("\n".join(problems), remedy, code="result-invalid")


def _show_table(results: Results) -> None:
    """Print a table for each system with a row for repeats; a command for one result shows the rest."""
    from sifmark.results.comparison.listing import listing

    output("\n".join(listing(((result.file, result.document) for result in results), output_style())))
    status(f"{counted(len(results), 'result')}; one in full:")
    status(f"  sifmark results.show {shlex.quote(results[0].file)}")


def _show_each(results: Results, every_metric: bool) -> None:
    from sifmark.results.summary import summary
    from sifmark.studies.published.nearest import nearest_lines

    width = output_width()
    published = nearest_lines(([result.document] for result in results), brief=width is not None)
    for number, (result, line) in enumerate(zip(results, published, strict=True)):
        lines = summary(result.document, every_metric, line, width)
        output("\n".join(map(printable, [""] * bool(number) + lines)))


@cli.command("results.validate", example="results.validate results/")
@cli.results_argument()
@cli.flag("--finished", "Fail also unless each run completed or ran out of memory.")
@cli.option("--run", "Fail also for results of other runs of a study than that with this key.", "KEY", name="key")
@cli.option("--image", "With --run: what the study calls an image that was not there when the key was made.", "NAME")
@cli.format_option
def validate_results(
    paths: Iterable[str], form: str = TABLE, finished: bool = False, key: str | None = None, image: str = ""
) -> None:
    """Check results against the schema that they name."""
    from sifmark.results.identity import require_key
    from sifmark.results.load import load_all

    if key is not None:
        require_key(key)
    problems = {
        file: [problem for result in results for problem in _problems(result, finished, key, image)]
        for file, results in groupby(load_all(paths), key=lambda result: result.file)
    }
    documents = [{"file": file, "valid": not texts, "problems": texts} for file, texts in problems.items()]
    rows = [(file, "invalid" if texts else "valid", "; ".join(texts)) for file, texts in problems.items()]

    def show() -> None:
        for file, state, _ in rows:
            if problems[file] or not is_quiet():
                output(f"{paint(state)}  {printable(file)}")
            for problem in problems[file]:
                output(f"  {printable(problem)}")

    answer(form, documents, Table(("file", "state", "problems"), rows), show)
    if invalid := sum(map(bool, problems.values())):
        cause = f"not valid: {invalid} of {counted(len(problems), 'file')}"
        raise SifmarkError(cause, "the lines above name each field", code="result-invalid")
    status(f"{len(problems)} valid")


def _problems(result: LoadedResult, finished: bool, key: str | None, image: str) -> Iterator[str]:
    from sifmark.results.finished import unfinished_reason
    from sifmark.results.identity import unlike_key

    yield from result.problems
    if result.problems:
        return
    if finished and (reason := unfinished_reason(result)):
        yield reason
    if key is not None and (difference := unlike_key(result.document, key, image)):
        yield f"belongs to another run: {difference}"


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
    rows = [(file, str(envelope)) for file, envelope in envelopes.items()]
    documents = [{"file": file, "envelope": envelope} for file, envelope in rows]
    shown = "\n".join(printable(f"signed: {envelope}") for _, envelope in rows)
    answer(form, documents, Table(("file", "envelope"), rows), lambda: output(shown))


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
    rows = [(file, "signed" if signer else "not signed", signer or reason or "") for file, signer, reason in verdicts]

    def show() -> None:
        for file, state, detail in rows:
            if state != "signed" or not is_quiet():
                output(f"{paint(state)}  {printable(file)}  {printable(detail)}")

    answer(form, documents, Table(("file", "state", "detail"), rows), show)
    if refuted := sum(signer is None for _, signer, _ in verdicts):
        cause = f"not signed by a key that is trusted here: {refuted} of {counted(len(verdicts), 'file')}"
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


@cli.command("results.push", example="results.push results/ --registry registry.site.example/sifmark")
@cli.results_argument()
@cli.registry_option
@cli.tag_option
@cli.format_option
def push_files(paths: Iterable[str], settings: Settings, registry: str = "", tag: str = "", form: str = TABLE) -> None:
    """Attach signed result files to their images in a registry.

    Each file, with its signature, refers to the image that made its results. `report.site` reads them there.
    """
    from sifmark.publish.results import push_results
    from sifmark.results.load import files_of

    pushed = list(push_results(list(files_of(paths)), registry, tag, settings))
    documents = [{"file": each.file, "reference": each.reference, "image": each.image} for each in pushed]
    rows = [tuple(document.values()) for document in documents]
    shown = "\n".join(printable(f"pushed: {each.file}: {each.reference}") for each in pushed)
    answer(form, documents, Table(("file", "reference", "image"), rows), lambda: output(shown))


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
@cli.output_option("File to write, instead of standard output.", "FILE", "target")
@cli.option(
    "--format",
    "A table: csv, json, jsonl, parquet, duckdb; or what another program reads: openmetrics, mllog, bencher, "
    "customBiggerIsBetter, customSmallerIsBetter, junit. [default: that of the file's suffix, or csv]",
    "FORMAT",
    name="form",
    choices=("csv", "json", "jsonl", "parquet", "duckdb", *_CONSUMERS),
)
@cli.option(
    "--table",
    "runs: a row for each run and metric; points: curves inside results; steps: single steps, and power.",
    choices=("runs", "points", "steps"),
)
def export_results(paths: Sequence[str], target: str = "", form: str = "", table: str = "") -> None:
    """Write results for other programs.

    Tables are tidy. Other programs are Prometheus, MLPerf's tools, Bencher, github-action-benchmark and CI systems.
    """
    from sifmark.results.consumers import consumer_of
    from sifmark.results.export import ExportCounts, require_elsewhere
    from sifmark.results.load import require_valid

    file = Path(target) if target and target != "-" else None
    counts = ExportCounts()
    if file is not None:
        require_elsewhere(file, paths)
    consumer = consumer_of(form, file.suffix if file else "")
    if consumer and table:
        remedy = "leave out --table, or choose csv, json, jsonl, parquet or duckdb"
        raise UsageError("this format is no table", remedy, code="invalid-option")
    written = (
        _export_text(paths, consumer, file, counts) if consumer else _export_table(paths, table, form, file, counts)
    )
    if file is not None:
        output(f"exported: {printable(target)}, {written} of {counted(counts.runs, 'run')}")
    list_left_out(counts.invalid, counts.duplicates, "left out")
    require_valid(counts.invalid, more="; the table has the others")


def _export_table(paths: Sequence[str], table: str, form: str, file: Path | None, counts: ExportCounts) -> str:
    """Write a tidy table, and return what it has."""
    from sifmark.results.export import format_of, rows_of, write_file, write_rows
    from sifmark.results.tidy import Table as TidyTable

    chosen, of = format_of(form, file), TidyTable(table or TidyTable.RUNS)
    every = rows_of(paths, of, counts)
    rows = chain(list(islice(every, 1)), every)
    _require_some(counts)
    if file is None:
        write_rows(rows, of, chosen, sys.stdout)
    else:
        write_file(rows, of, chosen, file)
    return counted(counts.rows, "row")


def _export_text(paths: Sequence[str], consumer: Consumer, file: Path | None, counts: ExportCounts) -> str:
    """Write the format of another program, and return what it has."""
    from sifmark.core.files import write_text
    from sifmark.results.export import valid_results

    text = consumer.write(valid_results(paths, counts))
    _require_some(counts)
    if file is None:
        sys.stdout.write(text)
    else:
        write_text(file, text)
    return counted(text.count("\n"), "line")


def _require_some(counts: ExportCounts) -> None:
    """Raise SifmarkError if there is nothing to export: an earlier file stays."""
    if not counts.runs:
        cause = f"no valid result to export; {len(counts.invalid)} are not valid, for example {counts.invalid[0]}"
        raise SifmarkError(cause, "list all problems: sifmark results.validate", code="result-invalid")
