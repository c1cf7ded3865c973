"""The studies of a site: folders of results, with the states of their runs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from sifmark.report.describe import state_text
from sifmark.report.site.folder import report_of
from sifmark.report.site.read import Places, SiteResult, SiteResults
from sifmark.results.load import owner_of
from sifmark.studies.folder import system_folders
from sifmark.studies.states import failures_in
from sifmark.studies.study import Cause


@dataclass(frozen=True)
class SiteStudy:
    """A study, or a folder of results that are of none."""

    path: str  # of its folder, relative to that of all results; empty for that one
    title: str
    name: str  # empty for results of no study
    results: tuple[SiteResult, ...]
    without_result: Mapping[str, str]  # causes by run, of runs that left no result
    report: Path | None  # the folder of its report, if that is with its results

    @cached_property
    def states(self) -> Mapping[str, int]:
        """How many runs ended in each state, the most frequent first."""
        states = Counter(each.state for each in self.results)
        states[Cause.NO_RESULT] += len(self.without_result)
        return {state: count for state, count in states.most_common() if count}

    @property
    def state_text(self) -> str:
        """The counts of its runs by state: `36 completed, 2 out of memory`."""
        return ", ".join(f"{count} {state_text(state)}" for state, count in self.states.items())

    @cached_property
    def days(self) -> tuple[str, str]:
        """The first and the last day on which runs began."""
        days = [each.started[:10] for each in self.results]
        return min(days), max(days)

    @cached_property
    def newest(self) -> str:
        return max(each.started for each in self.results)

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        return tuple(sorted({each.workload for each in self.results}))


def site_studies(results: SiteResults) -> list[SiteStudy]:
    """Return the studies that have some results, those with the newest runs first."""
    by_parent: dict[str, list[SiteResult]] = defaultdict(list)
    for each in results.members:
        by_parent[each.folder].append(each)
    by_study: dict[str, list[SiteResult]] = defaultdict(list)
    for parent, members in by_parent.items():
        by_study[_study_folder(results.places, parent)].extend(members)
    studies = [_study(results, path, members) for path, members in by_study.items()]
    return sorted(studies, key=lambda study: (study.newest, study.path), reverse=True)


def _study_folder(places: Places, parent: str) -> str:
    """Return the path of the study that has a folder of results: the nearest that says so, else the outermost."""
    parts = PurePosixPath(parent).parts
    for count in range(len(parts), -1, -1):
        if owner_of(places.path("/".join(parts[:count]))):
            return "/".join(parts[:count])
    return parts[0] if parts and parts[0] != "." else ""


def _study(results: SiteResults, path: str, members: Sequence[SiteResult]) -> SiteStudy:
    folder, labels = results.places.path(path), results.labels
    owner = owner_of(folder)
    name, title = (owner.name, owner.title) if owner else ("", "")
    failures = {
        f"{system.name}/{key}": failure
        for system in (system_folders(folder) if name else ())
        for key, failure in sorted(failures_in(system).items())
    }
    if labels:
        path = labels.label("folder", path)
        failures = {f"run {number}": labels.text(cause) for number, cause in enumerate(failures.values(), start=1)}
    title = title or path or results.places.title
    return SiteStudy(path, title, name, tuple(members), failures, None if labels else report_of(folder))
