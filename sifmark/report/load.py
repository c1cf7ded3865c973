"""Reading the results of a report, and what they are put beside."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from sifmark.core.errors import unknown_name
from sifmark.report.anonymous import Anonymiser
from sifmark.report.results import ACCELERATOR, SITE, Document, ReportResult, ReportResults, origin_of
from sifmark.results.comparison.collection import load_observations
from sifmark.results.comparison.observation import Observation
from sifmark.results.comparison.query import Query
from sifmark.results.documents import MetricValue
from sifmark.results.identity import RunIdentity
from sifmark.results.load import LoadedResult


def load_report_results(
    paths: Iterable[str],
    by: str = "",
    baseline: str = "",
    trusted_keys: Sequence[str] | None = None,
    anonymiser: Anonymiser | None = None,
    only: Collection[str] = (),
    allowed: Collection[str] = (),
) -> ReportResults:
    """Return the results at some paths, in an order that does not depend on that of the paths.

    With `only`, the IDs of some, those alone. `allowed` are fields, by dotted path, that may differ although they
    make results incompatible.

    `by` is the field that names systems: `site` where every result has one. With an `anonymiser`, which was made of
    the same results, labels stand for names, also for that of `baseline`.

    Raises UsageError for a path without results, or a field or baseline that no result has.
    """
    documents: dict[str, Document] = {}

    def keep(document: Document) -> Mapping[str, MetricValue]:
        documents[document["id"]] = document
        return {}

    if anonymiser and by and baseline:
        baseline = anonymiser.value(by, baseline)
    query = Query(
        every_metric=True,
        more_fields=(by,) if by else (),
        allowed=frozenset(allowed),
        baseline=(by, baseline) if by and baseline else None,
    )
    origins: dict[str, RunIdentity] = {}

    def replaced(result: LoadedResult) -> LoadedResult:
        if anonymiser is None:
            return result
        if not result.problems:
            origins[result.document["id"]] = origin_of(result.document)
        return anonymiser.result(result)

    clean = anonymiser.text if anonymiser else str
    collection = load_observations(sorted(set(paths)), query, "", trusted_keys, keep, replaced)
    if only:
        collection.observations = [each for each in collection.observations if each.id in only]
    collection.require_names(query)
    if not by:
        by = naming_field(collection.observations)
        baseline = anonymiser.value(by, baseline) if anonymiser and baseline else baseline
    _require_system(baseline, by, collection.observations)
    members = (
        ReportResult(each, documents[each.id], own_origin=origins.get(each.id)) for each in collection.observations
    )
    return ReportResults(
        members=tuple(sorted(members, key=lambda each: (each.document["started"], each.observation.id))),
        invalid=tuple(sorted(collection.invalid)),
        unsigned=tuple(sorted(map(clean, collection.unsigned))),
        duplicates=collection.duplicates,
        by=by,
        baseline=baseline or _first_system(collection.observations, by),
        signed=trusted_keys is not None,
        allowed=frozenset(allowed),
        anonymous=anonymiser is not None,
    )


def references_at(
    path: str, by: str, trusted_keys: Sequence[str] | None = None, anonymiser: Anonymiser | None = None
) -> tuple[Observation, ...]:
    """Return the results at a path as what all systems are divided by. Raises UsageError if there are none."""
    query = Query(every_metric=True, more_fields=(by,))
    replaced = anonymiser.result if anonymiser else None
    return tuple(load_observations((), query, path, trusted_keys, None, replaced).observations)


def naming_field(observations: Iterable[Observation]) -> str:
    """Return the field that names systems: `site` where every result has one, else the name of the device."""
    sites = [each.fields.get(SITE) for each in observations]
    return SITE if sites and None not in sites else ACCELERATOR


def _require_system(name: str, by: str, observations: Sequence[Observation]) -> None:
    names = {str(each.fields[by]) for each in observations if each.fields.get(by) is not None}
    if name and names and name not in names:
        raise unknown_name("system", name, names)


def _first_system(observations: Sequence[Observation], by: str) -> str:
    names = sorted(str(value) for each in observations if (value := each.fields.get(by)) is not None)
    return names[0] if names else ""
