"""Commands that write reports: a page of results with tables and charts, and sites of many studies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sifmark.commands.answers import TABLE, Table, answer, answer_record, list_left_out, report_copies
from sifmark.commands.compare import KEPT, PUBLISHED, full_name
from sifmark.commands.framework import (
    argument,
    by_option,
    command,
    flag,
    format_option,
    key_option,
    option,
    results_argument,
    results_folder_option,
    signature_flag,
)
from sifmark.commands.results import require_trusted_keys
from sifmark.core.console import output, output_table, printable, status, step, warn
from sifmark.core.errors import SifmarkError, UsageError, missing_extra, unknown_name
from sifmark.core.files import human_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sifmark.core.settings import Settings
    from sifmark.report.report import Report
    from sifmark.report.results import ReportResults

EXTRA, PACKAGES = "report", {"jinja2": "jinja2", "vl_convert": "vl-convert-python"}  # by module
PUBLISHED_KIND = PUBLISHED.removesuffix(":")
anonymous_flag = flag("--anonymous", "Replace hosts, users and paths by labels.")
anonymous_sites_flag = flag("--anonymous-sites", "Replace names of sites too.")


def require_packages(purpose: str) -> None:
    """Raise SifmarkError if a package of the extra is missing. `purpose` is what needs them: `a report`."""
    if missing := [package for module, package in PACKAGES.items() if find_spec(module) is None]:
        raise missing_extra(EXTRA, purpose, missing)


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


@command("report", example="report results/ --output report/")
@results_argument(required=False)
@option(
    "--study",
    "The study whose questions are answered; without RESULTS, its results.",
    "STUDY",
    completes="study",
)
@results_folder_option
@option(
    "--against",
    "Also show a kept baseline, published figures, or other results.",
    "KIND:NAME|RESULTS",
    completes="file",
)
@by_option
@option("--baseline", "The system that others are divided by. [default: the first]", "SYSTEM")
@option("--title", "Title of the report. [default: the study's]", "TEXT")
@anonymous_flag
@anonymous_sites_flag
@signature_flag
@key_option
@option("--output", "Folder of the report. [default: report]", "FOLDER", short="-o", name="folder", completes="folder")
@format_option
def report(
    settings: Settings,
    paths: Sequence[str] = (),
    study: str = "",
    results: str = "results",
    against: str = "",
    by: str = "",
    baseline: str = "",
    title: str = "",
    anonymous: bool = False,
    anonymous_sites: bool = False,
    require_signature: bool = False,
    folder: str = "report",
    form: str = TABLE,
) -> None:
    """Write a report of results: a page, tables and charts.

    With answers in words, what should not be published, and what was left out, and why.
    """
    options = ReportOptions(
        *(tuple(paths), study, results, against, by, baseline, title),
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        trusted_keys=settings.keys if require_signature else None,
        output=folder,
        format=form,
    )
    write_report(options, settings)


def write_report(options: ReportOptions, settings: Settings) -> None:
    """Write a report and print which files it has. Raises SifmarkError."""
    require_packages("a report")
    from sifmark.report.report import make_report
    from sifmark.report.write import PAGE, folder_of_report
    from sifmark.report.write import write_report as write
    from sifmark.studies.load import load_study

    folder_of_report(options.folder)
    require_trusted_keys(options.trusted_keys)
    with step("read results"):
        report = make_report(
            _results(options, settings), load_study(options.study) if options.study else None, options.title
        )
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


def _results(options: ReportOptions, settings: Settings) -> ReportResults:
    """Return the results of the report, with what they are put beside."""
    from sifmark.report.anonymous import anonymiser_of
    from sifmark.report.load import load_report_results, references_at
    from sifmark.report.published import with_published
    from sifmark.results.load import load_all
    from sifmark.studies.history.baseline import read_baseline
    from sifmark.studies.load import result_paths
    from sifmark.studies.published.comparison import compare_with_published

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


@command("report.site", example="report.site results/ --output public/")
@argument(
    "folders",
    "Folders with results of studies, sites or dates.",
    "FOLDER",
    nargs=-1,
    completes="folder",
)
@by_option
@option("--title", "Title of the site. [default: the folder's name]", "TEXT")
@option("--charts", "Most charts; the rest has tables alone. [default: 100]", "N", least=0)
@flag("--with-results", "Also copy the results, and link to them.")
@anonymous_flag
@anonymous_sites_flag
@option("--output", "Folder of the site. [default: public]", "FOLDER", short="-o", name="target", completes="folder")
@format_option
def site(
    folders: Sequence[str],
    by: str = "",
    title: str = "",
    charts: int = 100,
    with_results: bool = False,
    anonymous: bool = False,
    anonymous_sites: bool = False,
    target: str = "public",
    form: str = TABLE,
) -> None:
    """Write a site of many studies and dates: static pages.

    With the history of each configuration, and a page for each device, workload and study. It needs no scripts and no
    network, so any web server will do.
    """
    require_packages("a site of reports")
    from sifmark.report.site.folder import folder_of_site, write_site
    from sifmark.report.site.pages import site_pages
    from sifmark.report.site.site import SiteOptions, copies, draw, make_site

    options = SiteOptions(
        title=title,
        by=by,
        most_charts=charts,
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        with_results=with_results,
    )
    folder_of_site(Path(target))
    made = make_site([Path(folder) for folder in folders], options)
    status(f"{len(made.results.members)} results read; drawing {len(made.charts())} charts")
    pages = dict(site_pages(made, draw(made, options.processes)))
    vanished = write_site(Path(target), {**copies(made), **pages})
    list_left_out("left out, not valid", made.results.invalid)
    report_copies(made.results.duplicates)
    count = sum(name.endswith(".html") for name in pages)
    document = {
        "folder": target,
        "pages": count,
        "removed": len(vanished),
        "results": len(made.results.members),
        "charts": len(made.charts()),
        "series": len(made.history.series),
        "changes": len(made.history.changes()),
        "invalid": len(made.results.invalid),
        "duplicates": made.results.duplicates,
    }
    text = f"written: {printable(target)}/index.html and {count - 1} pages more"
    answer_record(form, document, lambda: output(text))
