"""The catalogue of metrics and fields: complete, and the same as what images measure."""

import json
import re
from typing import Any

import documents
import pytest

from entrypoints.rules.metrics import units_of_metrics
from sifmark.core.schemas import read_schema
from sifmark.results import catalogue
from sifmark.results.catalogue import (
    SCHEMA,
    Direction,
    Role,
    column_of,
    direction_of,
    fields,
    headlines,
    kind_of,
    metric_of,
    metrics,
    path_of,
)

KINDS = {"training", "inference", "requests", "generation", "sampling", "microbenchmark", "serving"}


def leaves(value: Any, path: str = "") -> set[str]:
    """The dotted paths of the scalars, and of lists and maps of scalars, in a document."""
    if isinstance(value, dict) and value:
        return {path + rest for key, inner in value.items() for rest in leaves(inner, f".{key}")}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return {path + rest for inner in value for rest in leaves(inner, "[]")}
    return {path}


def test_every_metric_has_all_its_facts_and_no_other() -> None:
    for rule in read_schema(SCHEMA)["properties"]["metrics"]["properties"].values():
        assert {"label", "unit", "direction", "kinds"} <= set(rule["x-metric"])
        assert set(rule["x-metric"]) <= {"label", "unit", "direction", "kinds", "headline", "needs"}
    assert all(set(each.kinds) <= KINDS and set(each.headline) <= set(each.kinds) for each in metrics().values())
    assert all(headlines(kind) for kind in KINDS)
    labels = [each.label for each in metrics().values()]
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("unit", ["images", "samples", "bytes"])
def test_units_are_those_that_images_measure_in(unit: str) -> None:
    measured = units_of_metrics(unit, "training")
    assert {name: each.unit_of(unit) for name, each in metrics().items()} == measured


def test_every_field_of_real_results_is_in_the_catalogue() -> None:
    known = {each.path for each in fields()}
    facts = {each.path.removesuffix(".value") for each in fields() if each.fact}
    for file in sorted(documents.EXAMPLES.glob("*.json")):
        document = json.loads(file.read_text())
        del document["metrics"]
        for path in leaves(document):
            name = path.removeprefix(".")
            beside_a_fact = re.sub(r"\.(unit|reason)$", "", name)
            within = any(name.startswith(f"{each}.") for each in known)  # a key of a map
            empty = any(each.startswith((f"{name}.", f"{name}[]")) for each in known)
            assert name in known or beside_a_fact in facts or within or empty, name


def test_each_setting_states_its_own_role() -> None:
    """A new setting would otherwise separate rows, or fail to, without anybody having chosen so."""
    settings = read_schema(SCHEMA)["properties"]["configuration"]["properties"]
    of_a_load = settings.pop("serving")["properties"]
    for name, rule in {**settings, **of_a_load}.items():
        assert rule.get("x-role") in set(Role), name


def test_annotations_say_nothing_unheard_of() -> None:
    text = json.dumps(read_schema(SCHEMA))
    assert set(re.findall(r'"(x-[a-z]+)"', text)) == {
        *("x-metric", "x-role", "x-private", "x-compare", "x-usual", "x-history", "x-screening")
    }
    assert {each.history for each in fields()} == {"", "stated", "measured"}
    assert {each.screening for each in fields()} == {"", "equal"}


def test_each_text_is_called_public_or_private() -> None:
    """What the schema says nothing of is withheld from anonymous reports."""
    assert [each.path for each in fields() if each.private is None] == []
    text = {"type": "string"}
    new = {"a": {"type": ["string", "null"]}, "b": {"items": text}, "c": {"additionalProperties": text}}
    new |= {"d": {"enum": ["x"]}, "e": {"type": "integer"}}
    found = catalogue._walk("new", {"properties": new}, {"x-role": "identity"})
    assert [each.private for each in found] == [None, None, None, "", ""]


def test_what_is_private_covers_names_of_a_site() -> None:
    private = {each.column for each in fields() if each.private}
    assert {
        "site",
        "host.hostname",
        "session.boot",
        "session.job",
        "data_path",
        "provenance.command",
        "status.message",
        "ranks[].host",
    } <= private
    assert not {"precision", "batch_size", "accelerator.name", "started", "steps.seconds"} & private


def test_names_in_tables_lead_back_to_their_paths() -> None:
    assert all(path_of(column_of(each.path)) == each.path for each in fields())
    assert (column_of("configuration.batch_size"), path_of("batch_size")) == ("batch_size", "configuration.batch_size")
    assert (column_of("host.hostname.value"), path_of("host.hostname")) == ("host.hostname", "host.hostname.value")
    assert path_of("environment.OMP_NUM_THREADS") == "environment.OMP_NUM_THREADS"


def test_phases_epochs_and_warm_times_have_directions() -> None:
    assert direction_of("phases.compile.warm") is direction_of("epochs.3") is Direction.LOWER
    assert direction_of("epochs.3.throughput") is Direction.HIGHER
    assert metric_of("unheard_of") is None and direction_of("unheard_of") is Direction.NONE


@pytest.mark.parametrize(("clients", "kind"), [(None, "inference"), (4, "requests")])
def test_clients_make_a_run_one_of_requests(clients: int | None, kind: str) -> None:
    document = json.loads((documents.EXAMPLES / "inference.json").read_text())
    document["configuration"]["concurrency"] = clients
    assert kind_of(document) == kind
