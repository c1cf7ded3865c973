"""Write a report of results: what `Results.report` and the command `report` call."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sifmark.core import paths as project
from sifmark.core.console import printable, step, warn
from sifmark.core.errors import UsageError, unknown_name
from sifmark.core.keys import require_trusted_keys
from sifmark.core.settings import Settings, load_settings
from sifmark.report.anonymous import anonymiser_of
from sifmark.report.load import load_report_results, references_at
from sifmark.report.paper import require_width
from sifmark.report.published import with_published
from sifmark.report.report import Report, make_report
from sifmark.report.results import ReportResults
from sifmark.results.catalogue import path_of
from sifmark.results.comparison.query import KEPT, PUBLISHED
from sifmark.results.comparison.sessions import BETWEEN
from sifmark.results.load import load_all, require_valid
from sifmark.studies.history.baseline import read_baseline
from sifmark.studies.load import load_study, result_paths
from sifmark.studies.published.comparison import compare_with_published
from sifmark.studies.study import Study


@dataclass(frozen=True)
class _Options:
    """Of which results a report is, and beside what they are put."""

    paths: tuple[str, ...]
    study: str = ""
    variant: str = ""
    results: str = "results"
    against: str = ""
    by: str = ""  # dotted path of the field that names systems
    baseline: str = ""
    anonymous: bool = False  # hosts, users and paths
    anonymous_sites: bool = False  # sites too
    trusted_keys: Sequence[str] | None = None  # if signatures are required
    only: frozenset[str] = frozenset()  # IDs of results; empty for all at the paths
    between: float = BETWEEN  # standard deviation between sessions, a fraction
    allowed: frozenset[str] = frozenset()  # dotted paths of fields that may differ although they should not

    @property
    def kind(self) -> str:
        """The kind of reference that `against` names; empty for a path."""
        kind, colon, _ = self.against.partition(":")
        return kind if colon and kind in (KEPT, PUBLISHED) else ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.against.partition(":")[2]


@dataclass(frozen=True)
class WrittenReport:
    """A report, and the names of its files below its folder."""

    report: Report
    folder: Path
    names: tuple[str, ...]

    def require_complete(self) -> None:
        """Raise SifmarkError if documents are not valid, or lack the signature that was required."""
        require_valid(self.report.results.invalid, self.report.results.unsigned, "; the report has the others")


def report(
    paths: Sequence[str | Path],
    folder: str | Path = "report",
    *,
    study: str = "",
    variant: str = "",
    results: str = "results",
    against: str = "",
    by: str = "",
    baseline: str = "",
    title: str = "",
    anonymous: bool = False,
    anonymous_sites: bool = False,
    trusted_keys: Sequence[str] | None = None,
    only: Iterable[str] = (),
    allow: Iterable[str] = (),
    between: float = BETWEEN,
    paper: float | None = None,
    settings: Settings | None = None,
) -> WrittenReport:
    """Write a report of results into a folder: a page, tables and charts. With `only`, of those with these IDs.

    Without paths it is of the results of `study`, or of its `variant`, in the folder `results`. `against` is a kept
    baseline, published figures or the path of other results. Fields in `allow` may differ although they should not,
    and `between` is the spread of sessions, both as for `compare`. With `trusted_keys` only results that one of them
    has signed count. `paper` is a width in mm: charts of it as PDF and PNG, and tables for LaTeX, are added.

    Raises UsageError for a width that no paper has. Raises SifmarkError if there is no valid result, or if `paper` or
    charts that the study declares need the extra `report`.
    """
    from sifmark.report.write import folder_of_report, write_report

    if paper is not None:
        require_width(paper)
    options = _Options(
        tuple(map(str, paths)),
        study,
        variant,
        results,
        against,
        path_of(by) if by else "",
        baseline,
        anonymous=anonymous or anonymous_sites,
        anonymous_sites=anonymous_sites,
        trusted_keys=trusted_keys,
        only=frozenset(only),
        between=between,
        allowed=frozenset(map(path_of, allow)),
    )
    target = Path(folder)
    folder_of_report(target)
    require_trusted_keys(trusted_keys)
    with step("read results"):
        results_of_it = _results(options, settings or load_settings())
        made = make_report(results_of_it, _study(options) if study else None, title)
    names = []
    with step(f"write {folder}") as progress:
        for name in write_report(made, target, paper):
            names.append(name)
            progress.detail(name)
    if options.kind == PUBLISHED and not (made.results.published or made.results.over_published):
        warn(printable(f"no result is the counterpart of a figure of {options.name}: the report says why"))
    return WrittenReport(made, target, tuple(names))


def _study(options: _Options) -> Study:
    """Return the study of the report. In an anonymous one, only those that sifmark ships have their names."""
    study = load_study(options.study, options.variant)
    known = study.file.parent == project.STUDIES or not options.anonymous
    return study if known else replace(study, name="study-1")


def _results(options: _Options, settings: Settings) -> ReportResults:
    """Return the results of the report, with what they are put beside."""
    paths = options.paths or result_paths((), options.study, options.results, options.variant)
    _require_kind(options)
    reference = "" if options.kind else options.against
    anonymiser = None
    if options.anonymous:
        mentioned = load_all((*paths, *([reference] if reference else [])))
        anonymiser = anonymiser_of(mentioned, options.anonymous_sites)
    results = load_report_results(
        paths, options.by, options.baseline, options.trusted_keys, anonymiser, options.only, options.allowed
    )
    results = replace(results, between=options.between)
    if reference:
        observations = references_at(reference, results.by, options.trusted_keys, anonymiser)
        return replace(results, references=observations, reference_name="reference" if anonymiser else reference)
    if options.kind == KEPT:
        kept = read_baseline(settings.baselines, options.name).observations((results.by,))
        return replace(results, references=tuple(kept), reference_name=options.name)
    if options.kind == PUBLISHED:
        return with_published(
            results, compare_with_published(options.name, paths, options.allowed, (), options.trusted_keys)
        )
    return results


def _require_kind(options: _Options) -> None:
    """Raise UsageError for a value of --against that means nothing here."""
    if options.kind and not options.name:
        raise unknown_name("kind of reference", options.against, (f"{KEPT}:NAME", f"{PUBLISHED}:NAME", "RESULTS"))
    if options.against and options.baseline and options.kind != PUBLISHED:
        cause = "--against and --baseline both name what systems are divided by"
        raise UsageError(cause, "ask for one of them", code="invalid-option")
    if options.kind == KEPT and (options.anonymous or options.trusted_keys is not None):
        option = "--anonymous" if options.anonymous else "--require-signature"
        remedy = "put them beside the results of the baseline themselves: --against RESULTS"
        raise UsageError(f"a kept baseline has no results for {option}", remedy, code="invalid-option")
