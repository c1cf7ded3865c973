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
from sifmark.results.catalogue import path_of
from sifmark.results.comparison.query import KEPT, PUBLISHED
from sifmark.results.comparison.sessions import BETWEEN
from sifmark.results.load import load_all, require_valid
from sifmark.studies.history.baseline import read_baseline
from sifmark.studies.load import load_study, result_paths
from sifmark.studies.published.comparison import compare_with_published
from sifmark.studies.study import Study


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
    kind, name = _kind_of(against)
    anonymous = anonymous or anonymous_sites
    if against and baseline and kind != PUBLISHED:
        cause = "--against and --baseline both name what systems are divided by"
        raise UsageError(cause, "ask for one of them", code="invalid-option")
    if kind == KEPT and (anonymous or trusted_keys is not None):
        option = "--anonymous" if anonymous else "--require-signature"
        remedy = "put them beside the results of the baseline themselves: --against RESULTS"
        raise UsageError(f"a kept baseline has no results for {option}", remedy, code="invalid-option")
    target = Path(folder)
    folder_of_report(target)
    require_trusted_keys(trusted_keys)
    allowed, by = frozenset(map(path_of, allow)), path_of(by) if by else ""
    with step("read results"):
        chosen = tuple(map(str, paths)) or result_paths((), study, results, variant)
        reference = "" if kind else against
        mentioned = (*chosen, reference) if reference else chosen
        anonymiser = anonymiser_of(load_all(mentioned), anonymous_sites) if anonymous else None
        read = load_report_results(chosen, by, baseline, trusted_keys, anonymiser, frozenset(only), allowed)
        read = replace(read, between=between, prices=(settings or load_settings()).prices)
        if reference:
            beside = references_at(reference, read.by, trusted_keys, anonymiser)
            read = replace(read, references=beside, reference_name="reference" if anonymiser else reference)
        elif kind == KEPT:
            kept = read_baseline((settings or load_settings()).baselines, name).observations((read.by,))
            read = replace(read, references=tuple(kept), reference_name=name)
        elif kind == PUBLISHED:
            read = with_published(read, compare_with_published(name, chosen, allowed, (), trusted_keys))
        made = make_report(read, _study(study, variant, anonymous) if study else None, title)
    names = []
    with step(f"write {folder}") as progress:
        for file in write_report(made, target, paper):
            names.append(file)
            progress.detail(file)
    if kind == PUBLISHED and not (made.results.published or made.results.over_published):
        warn(printable(f"no result is the counterpart of a figure of {name}: the report says why"))
    return WrittenReport(made, target, tuple(names))


def _kind_of(against: str) -> tuple[str, str]:
    """Return the kind of reference that `against` names, empty for a path, and its name. Raises UsageError."""
    kind, colon, name = against.partition(":")
    if not colon or kind not in (KEPT, PUBLISHED):
        return "", ""
    if not name:
        raise unknown_name("kind of reference", against, (f"{KEPT}:NAME", f"{PUBLISHED}:NAME", "RESULTS"))
    return kind, name


def _study(name: str, variant: str, anonymous: bool) -> Study:
    """Return the study of the report. In an anonymous one, only those that sifmark ships have their names."""
    study = load_study(name, variant)
    known = study.file.parent == project.STUDIES or not anonymous
    return study if known else replace(study, name="study-1")
