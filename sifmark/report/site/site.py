"""A site: everything that its pages say, made once from the results below a folder."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from sifmark.core.errors import SifmarkError, UsageError
from sifmark.report.forms import Figure
from sifmark.report.load import naming_field
from sifmark.report.results import ACCELERATOR, SIGNER, SITE
from sifmark.report.site.charts import Overview, SectionKey, history_chart, overview_of, workload_charts
from sifmark.report.site.folder import file_names, report_files
from sifmark.report.site.read import Fetched, SiteResult, SiteResults, read_results
from sifmark.report.site.register import Ranking, rankings_of
from sifmark.report.site.rows import FailureRow, Measurements, SeriesRow, device_of, measured, system_of
from sifmark.report.site.series import SeriesHistory, SiteHistory, site_history
from sifmark.report.site.studies import SiteStudy, site_studies
from sifmark.report.tables import Table, plain_table
from sifmark.report.write import is_safe
from sifmark.results.comparison.collection import no_such_field
from sifmark.results.comparison.compatibility import exclusion_fields

MOST_CHARTS = 1000  # on a site: each takes some milliseconds and 5 to 30 kB
MOST_OF_PAGE = 6  # histories drawn on the page of a device, system or workload


@dataclass(frozen=True)
class SiteOptions:
    """What a site is to have."""

    title: str = ""
    by: str = ""  # the field that names systems; by default `site` where every result has one
    most_charts: int = MOST_CHARTS
    anonymous: bool = False  # labels in place of names of hosts, users and paths
    anonymous_sites: bool = False  # and of sites
    with_results: bool = False  # copies of the results, to which pages link
    processes: int = 0  # 0: a few, as there are processors
    trusted_keys: tuple[str, ...] | None = None  # of a register: what none of them has signed does not count
    fetched: Fetched | None = None  # what came from registries


@dataclass(frozen=True)
class Facet:
    """The results of one device, one system or one workload, as a page shows them."""

    name: str
    page: str  # relative to the site: devices/NAME.html
    count: int  # of results
    newest: str  # the day of the newest
    systems: tuple[str, ...]
    devices: tuple[str, ...]
    workloads: tuple[str, ...]
    measured: Measurements
    histories: tuple[SeriesHistory, ...] = ()  # drawn on this page too
    charts: Mapping[SectionKey, Sequence[Figure]] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyPage:
    """A study with what it measured."""

    study: SiteStudy
    page: str
    systems: tuple[str, ...]
    measured: Measurements
    report: str  # the folder of its report within the site; empty without one

    def without_result(self, most: int) -> Table:
        """Return the runs that left no result, with why, `most` of them at most."""
        causes = list(self.study.without_result.items())[:most]
        return plain_table("without-result", "Runs without a result", ("run", "cause"), causes)


@dataclass
class Site:
    """A site."""

    title: str
    by: str
    results: SiteResults
    history: SiteHistory
    studies: tuple[StudyPage, ...]
    workloads: tuple[Facet, ...]
    devices: tuple[Facet, ...]
    systems: tuple[Facet, ...]  # none where devices name the systems
    overview: Overview  # workloads by systems
    history_charts: Mapping[str, Figure]  # by the name of the page of the series
    copied: frozenset[str] = frozenset()  # the results that the site has, too
    rankings: tuple[Ranking, ...] = ()  # of a register

    @property
    def noun(self) -> str:
        """What the field that names systems is called: site, signer or system."""
        return self.by if self.by in (SITE, SIGNER) else "system"

    @cached_property
    def series_pages(self) -> Mapping[str, str]:
        return self.history.pages_by_result()

    @cached_property
    def pages(self) -> Mapping[str, Mapping[str, str]]:
        """The pages of workloads, devices and systems by name."""
        kinds = {"workloads": self.workloads, "devices": self.devices, "systems": self.systems or self.devices}
        return {kind: {facet.name: facet.page for facet in facets} for kind, facets in kinds.items()}

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day on which runs began."""
        days = [each.started[:10] for each in self.results.members]
        return min(days), max(days)

    @property
    def chart_count(self) -> int:
        return len(self.history_charts) + sum(len(each) for facet in self.workloads for each in facet.charts.values())

    @property
    def rows(self) -> list[SeriesRow]:
        return [row for facet in self.workloads for row in facet.measured.rows]

    @property
    def unmeasured(self) -> list[str]:
        """The workloads of which every run failed, or which `compare` refuses."""
        return [facet.name for facet in self.workloads if not facet.measured.rows]

    @property
    def failures(self) -> list[FailureRow]:
        return [row for facet in self.workloads for row in facet.measured.failures]


def make_site(folders: Path | Sequence[Path], options: SiteOptions) -> Site:
    """Return the site of the results below folders.

    Raises UsageError for a folder without results, SifmarkError if none of them is valid.
    """
    if options.anonymous and options.with_results:
        cause = "results name hosts, users and paths, so a site with copies of them is not anonymous"
        raise UsageError(cause, "leave out --with-results", code="invalid-option")
    is_register = options.trusted_keys is not None
    if is_register and options.anonymous:
        cause = "a register says from whom each number is, so it is not anonymous"
        raise UsageError(cause, "leave out --anonymous, or --require-signature", code="invalid-option")
    more = (options.by,) if options.by and options.by != SIGNER else ()
    results = read_results(
        folders,
        more,
        options.anonymous,
        options.anonymous_sites,
        options.processes,
        options.trusted_keys,
        options.fetched,
    )
    _require_members(results)
    if options.by and all(each.observation.fields.get(options.by) is None for each in results.members):
        raise no_such_field(options.by, {name for each in results.members for name in each.observation.fields})
    by = options.by or (SIGNER if is_register else naming_field(each.observation for each in results.members))
    history = site_history(results.members, by)
    workloads = _facets(results.members, lambda each: each.workload, "workloads", by, history)
    newest = {each for facet in workloads for row in facet.measured.rows for each in row.ids}
    charted = [each for each in results.members if each.id in newest or exclusion_fields(each.observation)]
    charts = workload_charts(charted, by, options.most_charts)
    count = sum(len(figures) for sections in charts.values() for figures in sections.values())
    overview = overview_of([each for each in results.members if each.id in newest], by)
    drawn = history.with_page[: max(0, options.most_charts - count)]
    return Site(
        title=options.title or _title(results.places.title, options),
        by=by,
        results=results,
        history=history,
        studies=_studies(results, by),
        workloads=tuple(replace(facet, charts=charts.get(facet.name, {})) for facet in workloads),
        devices=_facets(results.members, device_of, "devices", by, history),
        systems=_facets(results.members, lambda each: system_of(each, by), "systems", by, history)
        if by != ACCELERATOR
        else (),
        overview=overview,
        copied=frozenset(_safe_files(results)) if options.with_results else frozenset(),
        history_charts={each.page: history_chart(each) for each in drawn},
        rankings=rankings_of(results.members, by) if is_register else (),
    )


def _require_members(results: SiteResults) -> None:
    """Raise SifmarkError if there is nothing that a site could show, with the first reason."""
    if results.members:
        return
    folder = shlex.quote(str(results.places.folder))
    if results.invalid:
        cause = f"no valid result below {results.places.folder}; {results.invalid[0]}"
        raise SifmarkError(cause, f"list all problems: sifmark results.validate {folder}", code="result-invalid")
    cause = f"no result is signed by a trusted key; {results.unsigned[0]}"
    raise SifmarkError(cause, "trust the keys of those who measured: --key FILE.pub", code="signature-untrusted")


def _title(name: str, options: SiteOptions) -> str:
    return "Results" if options.anonymous or name in ("", "results") else f"Results of {name}"


def copies(site: Site) -> dict[str, Path]:
    """Return what a site has copies of, by the name in the site: reports of studies, and results."""
    reports = {
        name: file
        for page in site.studies
        if page.study.report
        for name, file in report_files(page.study.report, page.report)
    }
    return reports | {f"results/{name}": site.results.places.path(name) for name in site.copied}


def _safe_files(results: SiteResults) -> set[str]:
    return {file for each in results.members if is_safe(file := each.observation.file)}


def _studies(results: SiteResults, by: str) -> tuple[StudyPage, ...]:
    studies = site_studies(results)
    names = file_names({study.path: study.path or "results" for study in studies})
    return tuple(
        StudyPage(
            study,
            f"studies/{names[study.path]}.html",
            _names(system_of(each, by) for each in study.results),
            measured(study.results, by),
            f"reports/{names[study.path]}" if study.report else "",
        )
        for study in studies
    )


def _facets(
    members: Sequence[SiteResult], name_of: Callable[[SiteResult], str], kind: str, by: str, history: SiteHistory
) -> tuple[Facet, ...]:
    """Return the results by a name, in the order of names, with the series of each that changed last."""
    by_name: dict[str, list[SiteResult]] = defaultdict(list)
    for each in members:
        by_name[name_of(each)].append(each)
    changed: dict[str, list[SeriesHistory]] = defaultdict(list)
    for series in history.with_page:
        if series.history.changes:
            changed[name_of(series.result)].append(series)
    names = file_names({name: name for name in by_name})
    return tuple(
        Facet(
            name=name,
            page=f"{kind}/{names[name]}.html",
            count=len(by_name[name]),
            newest=max(each.started for each in by_name[name])[:10],
            systems=_names(system_of(each, by) for each in by_name[name]),
            devices=_names(map(device_of, by_name[name])),
            workloads=_names(each.workload for each in by_name[name]),
            measured=measured(by_name[name], by),
            histories=tuple(changed[name][:MOST_OF_PAGE]),
        )
        for name in sorted(by_name)
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
