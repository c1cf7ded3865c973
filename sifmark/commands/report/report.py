"""The report command: a folder with a page, tables and charts of results."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.commands.answers import Table, answer, list_left_out, report_copies
from sifmark.commands.compare import KEPT, PUBLISHED, full_name, require_trusted_keys
from sifmark.commands.report.packages import require_packages
from sifmark.commands.study.paths import result_paths
from sifmark.core.console import output_table, printable, status, step, warn
from sifmark.core.errors import SifmarkError, UsageError, unknown_name
from sifmark.core.files import human_size
from sifmark.core.settings import Settings
from sifmark.report.anonymous import anonymiser_of
from sifmark.report.load import load_report_results, references_at
from sifmark.report.published import with_published
from sifmark.report.report import Report, make_report
from sifmark.report.results import ReportResults
from sifmark.results.load import load_all
from sifmark.studies.history.baseline import read_baseline
from sifmark.studies.load import load_study
from sifmark.studies.published.comparison import compare_with_published
from sifmark.studies.study import Study

PUBLISHED_KIND = PUBLISHED.removesuffix(":")


@dataclass(frozen=True)
class ReportOptions:
    """The options of the command line."""

    paths: tuple[str, ...]
    study: str = ""
    results: str = "results"
    against: str = ""
    by: str = ""
    baseline: str = ""
    title: str = ""
    anonymous: bool = False  # hosts, users and paths
    anonymous_sites: bool = False  # sites too
    trusted_keys: tuple[str, ...] | None = None  # if signatures are required
    output: str = "report"
    format: str = "table"

    @property
    def kind(self) -> str:
        """The kind of reference that --against names; empty for a path."""
        kind, colon, _ = self.against.partition(":")
        return kind if colon and kind in (KEPT, PUBLISHED_KIND) else ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.against.partition(":")[2]

    @property
    def folder(self) -> Path:
        """Where the report goes."""
        return Path(self.output)


def write_report(options: ReportOptions, settings: Settings) -> None:
    """Write a report and print which files it has. Raises SifmarkError."""
    require_packages("a report")
    from sifmark.report.write import PAGE, folder_of_report
    from sifmark.report.write import write_report as write

    folder_of_report(options.folder)
    require_trusted_keys(options.trusted_keys)
    with step("read results"):
        report = make_report(_results(options, settings), _study(options), options.title)
    with step(f"write {options.output}") as progress:
        names = []
        for name in write(report, options.folder):
            names.append(name)
            progress.detail(name)
    _answer(options, names)
    _report_left_out(report)
    _report_no_counterpart(options, report.results)
    page = options.folder / PAGE
    status(f"open {printable(str(page))} in a browser")
    _conclude(report.results)


def _study(options: ReportOptions) -> Study | None:
    return load_study(options.study) if options.study else None


def _results(options: ReportOptions, settings: Settings) -> ReportResults:
    """Return the results of the report, with what they are put beside."""
    paths = options.paths or result_paths((), options.study, options.results)
    _require_kind(options)
    reference = "" if options.kind else options.against
    anonymiser = None
    if options.anonymous:
        mentioned = load_all((*paths, *([reference] if reference else [])))
        anonymiser = anonymiser_of(mentioned, options.anonymous_sites)
    by = full_name(options.by) if options.by else ""
    results = load_report_results(paths, by, options.baseline, options.trusted_keys, anonymiser)
    if reference:
        observations = references_at(reference, results.by, options.trusted_keys, anonymiser)
        return replace(results, references=observations, reference_name="reference" if anonymiser else reference)
    if options.kind == KEPT:
        kept = read_baseline(settings.baselines, options.name).observations((results.by,))
        return replace(results, references=tuple(kept), reference_name=options.name)
    if options.kind == PUBLISHED_KIND:
        return with_published(results, compare_with_published(options.name, paths, (), (), options.trusted_keys))
    return results


def _require_kind(options: ReportOptions) -> None:
    """Raise UsageError for a value of --against that means nothing here."""
    if options.kind and not options.name:
        raise unknown_name("kind of reference", options.against, (f"{KEPT}:NAME", f"{PUBLISHED}NAME", "RESULTS"))
    if options.against and options.baseline and options.kind != PUBLISHED_KIND:
        cause = "--against and --baseline both name what systems are divided by"
        raise UsageError(cause, "ask for one of them", code="invalid-option")
    if options.kind == KEPT and (options.anonymous or options.trusted_keys is not None):
        option = "--anonymous" if options.anonymous else "--require-signature"
        remedy = "put them beside the results of the baseline themselves: --against RESULTS"
        raise UsageError(f"a kept baseline has no results for {option}", remedy, code="invalid-option")


def _answer(options: ReportOptions, names: Sequence[str]) -> None:
    sizes = {str(options.folder / name): (options.folder / name).stat().st_size for name in names}
    document = {"folder": options.output, "files": [{"file": file, "size": size} for file, size in sizes.items()]}
    answer(options.format, document, Table(("file", "bytes"), list(sizes.items())), lambda: _show(options, names))


def _show(options: ReportOptions, names: Sequence[str]) -> None:
    """Print the files; of a folder, how many it has."""
    folders = Counter(name.partition("/")[0] for name in names if "/" in name)
    rows = [
        (printable(str(options.folder / name)), human_size((options.folder / name).stat().st_size))
        for name in names
        if "/" not in name
    ]
    rows += [(printable(f"{options.folder / folder}/"), f"{count} files") for folder, count in folders.items()]
    output_table("file", "size", rows=rows)


def _report_left_out(report: Report) -> None:
    report_copies(report.results.duplicates)
    list_left_out("left out", [printable(f"{each.file}: {each.reason}") for each in report.left_out])
    for each in report.refused:
        warn(printable(f"not compared: {each.reason}; for example {each.file}"))
    if report.notices:
        reasons = ", ".join(f"{notice.mark.name} ({notice.count})" for notice in report.notices)
        warn(f"not for publication: {reasons}")


def _report_no_counterpart(options: ReportOptions, results: ReportResults) -> None:
    if options.kind == PUBLISHED_KIND and not (results.published or results.over_published):
        why = f"sifmark compare RESULTS --against {options.against} says why"
        warn(printable(f"no result is the counterpart of a figure of {options.name}: {why}"))


def _conclude(results: ReportResults) -> None:
    """Raise SifmarkError if documents are not valid, or lack the signature that was required."""
    if results.invalid:
        remedy = "repair or remove them, and write the report again: sifmark results.validate lists the problems"
        raise SifmarkError(f"{len(results.invalid)} documents are not valid", remedy, code="result-invalid")
    if results.unsigned:
        cause = f"{len(results.unsigned)} documents are not signed by a trusted key"
        raise SifmarkError(cause, "leave them out, or trust their key: --key", code="signature-untrusted")
