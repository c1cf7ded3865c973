"""Which runs of a study results are of: by their keys, and without one by what their command asks the image for."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sifmark.report.results import ReportResult, ReportResults
from sifmark.results.identity import nodes_of
from sifmark.studies.asked import asked_of
from sifmark.studies.expand import expand
from sifmark.studies.load import load_study, variant_names
from sifmark.studies.study import Run, Study, System

RunsOf = Mapping[str, Sequence[Run]]


def runs_of_results(results: ReportResults, study: Study) -> RunsOf:
    """Return by the ID of each result the runs of a study and its variants that it is of, one for each cell.

    A result without a key, or with one that no run has, was copied or is a repeat that the study does not ask for. It
    is of the runs on its system, on as many nodes, whose command asks the image for the same.
    """
    file = str(study.file)
    variants = () if study.variant else variant_names(file)
    studies = [study, *(load_study(file, variant) for variant in variants)]
    images, runs = _images(results), [run for each in studies for run in _planned(results, each)]
    by_key: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        for image in images[run.system]:
            by_key[run.key(image)].append(run)
    of_results = {each.observation.id: by_key.get(each.origin.key, []) for each in results.members}
    others = [each for each in results.members if not of_results[each.observation.id]]
    return of_results | (_by_command(others, runs) if others else {})


def missing_runs(results: ReportResults, study: Study) -> tuple[int, dict[str, int]]:
    """Return how many runs a study has on the systems that results are of, and by system how many lack a result."""
    planned = Counter(map(_command, {run.key(""): run for run in _planned(results, study)}.values()))
    found = Counter(_command(runs[0]) for runs in runs_of_results(results, study).values() if runs)
    missing: Counter[str] = Counter()
    for command, count in (planned - found).items():
        missing[command[0]] += count
    return planned.total(), dict(sorted(missing.items()))


def _command(run: Run) -> tuple[str, int, tuple[str, ...]]:
    return run.system, run.nodes, run.arguments


def _planned(results: ReportResults, study: Study) -> Iterator[Run]:
    """Yield the runs on the systems that results are of; a study can be run on others than its own."""
    own = {system.name: system for system in study.systems}
    for site in sorted({result.origin.site for result in results.members}):
        yield from expand(study, [own.get(site) or System(site, "")])


def _images(results: ReportResults) -> Mapping[str, set[str]]:
    """Return what the images of each system may be called in keys: an ID, or a recipe whose image was not there."""
    images: dict[str, set[str]] = defaultdict(set)
    for each in results.members:
        recorded = each.document["provenance"]["image"] or {}
        images[each.origin.site].update(filter(None, (each.origin.image, recorded.get("recipe"))))
    return images


def _by_command(results: Iterable[ReportResult], runs: Iterable[Run]) -> dict[str, list[Run]]:
    by_command: dict[tuple[str, int, object], list[Run]] = defaultdict(list)
    for run in runs:
        if run.repeat == 1:
            by_command[run.system, run.nodes, asked_of(shlex.join(run.arguments))].append(run)
    return {
        each.observation.id: by_command.get((each.origin.site, nodes_of(each.document), asked), [])
        for each in results
        if (asked := asked_of(each.origin.arguments, each.document["workload"]["name"])) is not None
    }
