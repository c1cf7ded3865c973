"""What a comparison needs of a result: its group, its fields and its numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sifmark.results.catalogue import SETTING_PREFIX, Role, fields, paths_with
from sifmark.results.documents import Document, MetricValue, hashable, value_at
from sifmark.results.marks import marks_of_result
from sifmark.results.summary import MIXED, precision_kind
from sifmark.results.warnings import waited_percent

SETTING = SETTING_PREFIX
PRECISION, PRECISION_KIND = f"{SETTING}precision", f"{SETTING}precision_kind"
COMPILED, CONCURRENCY = f"{SETTING}compile", f"{SETTING}concurrency"
SERVING = "serving"  # the load on an engine
SERVING_LOAD = f"{SETTING}{SERVING}."  # how its fields begin
USERS = f"{SERVING_LOAD}concurrency"
PREFILL = "prefill_throughput"  # a metric that only generation has
# The data that a target was evaluated on. The same data may have another path, so their number identifies them.
EVALUATED = f"{SETTING}evaluated"
ENVIRONMENT = "environment."
# What only results of several ranks have: the hosts they ran on, and what carried their data.
NODES, NETWORK = "nodes", "transport.network"
# Where a result was measured, including defaults that a machine sets: a baseline may differ in these fields.
PLATFORM = tuple(path for path in paths_with(Role.PLATFORM) if path != NETWORK)
_NOT_SETTINGS = tuple(name for name in PLATFORM if not name.startswith(SETTING))


class ComparisonGroup(NamedTuple):
    """What results have in common that measure the same thing. `phase` is `steady` for all completed runs."""

    identity: str
    task: str
    phase: str
    source: str


class Session(NamedTuple):
    """The time in which a machine stays as it is: one boot, one job, one day. Repeats within one share its luck."""

    host: str = ""
    boot: str = ""
    job: str = ""
    day: str = ""  # UTC


UNKNOWN_SESSION = Session()


@dataclass(frozen=True, slots=True)
class Observation:
    """One result. `fields` has everything that distinguishes it from a repeat, by dotted path."""

    side: str
    file: str
    id: str
    title: str
    group: ComparisonGroup
    fields: dict[str, Any]
    numbers: dict[str, MetricValue]
    marks: frozenset[str] = frozenset()  # codes of reasons not to publish it
    session: Session = UNKNOWN_SESSION
    started: str = ""  # UTC, ISO 8601
    host: str | None = None
    waited: float = 0.0  # percentage of their time that its threads waited for a processor, if known

    @property
    def kind(self) -> str:
        """The kind of run, as `catalogue.kind_of` has it of a document."""
        task = self.group.task
        if task != "inference":
            return task
        if self.fields.get(CONCURRENCY):
            return "requests"
        return "generation" if PREFILL in self.numbers else task


def observe(
    document: Document, side: str, file: str, more_fields: Iterable[str], numbers: dict[str, MetricValue]
) -> Observation:
    """Return a valid result as an observation, with `more_fields` among its fields and with these numbers."""
    workload = document["workload"]
    named = {name: value_at(document, name) for name in (*_NOT_SETTINGS, *more_fields)}
    phase = document["status"]["phase"] or "none"
    return Observation(
        side=side,
        file=file,
        id=document["id"],
        title=workload["title"],
        group=ComparisonGroup(workload["identity"], workload["task"], phase, document["data"]["source"]),
        fields=_settings(document) | named | _environment(document) | _of_ranks(document),
        numbers=numbers,
        marks=frozenset(mark.code for mark in marks_of_result(document)),
        session=_session(document),
        started=document["started"],
        host=document["host"]["hostname"]["value"],
        waited=waited_percent(document),
    )


def _session(document: Document) -> Session:
    """Return the session of a result; results before 1.2 record neither boot nor job."""
    boot, job = (value_at(document, f"session.{name}.value") for name in ("boot", "job"))
    host = document["host"]["hostname"]["value"]
    return Session(str(host or ""), str(boot or ""), str(job or ""), document["started"][:10])


def _environment(document: Document) -> dict[str, Any]:
    """Return what of the user's environment changes the speed of libraries, as fields; results of 1.0 do not have it.

    Which devices are visible is left out: the result has the device itself.
    """
    environment = document.get("environment", {})
    variables = {
        f"{ENVIRONMENT}{name}": value
        for name, value in environment.get("variables", {}).items()
        if not name.endswith("VISIBLE_DEVICES")
    }
    if preloaded := environment.get("preloaded"):
        variables[f"{ENVIRONMENT}preloaded"] = " ".join(preloaded)
    return variables


def _of_ranks(document: Document) -> dict[str, Any]:
    """Return on how many nodes the ranks of a result were, and their network, as fields; of one rank, nothing."""
    if not (ranks := document.get("ranks")):
        return {}
    return {NODES: len({rank.get("host") for rank in ranks}), NETWORK: value_at(document, NETWORK)}


def _settings(document: Document) -> dict[str, Any]:
    """Return the settings that distinguish results, by dotted path."""
    configuration, names = document["configuration"], _distinguishing()
    settings = {SETTING + key: hashable(value) for key, value in configuration.items() if key in names - {SERVING}}
    load = configuration.get(SERVING) or {}  # each of its settings is one of its own
    settings |= {f"{SERVING_LOAD}{key}": hashable(value) for key, value in load.items()}
    settings[PRECISION_KIND] = precision_kind(configuration) or MIXED
    settings[COMPILED] = settings[COMPILED] or False  # as results have it whose `compile` is no mode
    for name, default in _defaults().items():
        if settings.get(name, default) == default:
            settings.pop(name, None)
    # Synthetic data without a path of evaluation data: the target is evaluated on the batch itself.
    on_batch = document["data"]["source"] == "synthetic" and not configuration["evaluation_path"]
    if document["target"] is not None and not on_batch:
        settings[EVALUATED] = _evaluation_data(document)
    return settings


@cache
def _distinguishing() -> frozenset[str]:
    """Return the keys of a configuration that separate rows."""
    paths = (each.path for each in fields() if each.role in (Role.SETTING, Role.PLATFORM))
    return frozenset(path.split(".")[1] for path in paths if path.startswith(SETTING))


@cache
def _defaults() -> Mapping[str, Any]:
    """Return the settings that older results lack, with the values that they had: these distinguish no results."""
    return {each.path: each.default for each in fields() if each.has_default}


def _evaluation_data(document: Document) -> str:
    """Return what the evaluations of a run with a target used, in words."""
    evaluations = document["target"]["evaluations"]
    samples = f"{evaluations[0]['samples']} samples" if evaluations else "no samples"
    return f"{samples} of {'other data' if document['configuration']['evaluation_path'] else 'the training data'}"
