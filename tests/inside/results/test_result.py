"""The document against its schema: closed at every level, and null never without a reason."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from program import FILE, ROOT
from program import IMAGE as BUILT
from test_latency import RUN as REQUESTS
from test_metrics import NOTHING, RUN

from entrypoints.contract import cards
from entrypoints.metering.meters import rapl
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.results import numerics, result
from entrypoints.results.metrics.by_workload import (
    OF_ATTENTION,
    OF_CHAINS,
    OF_GENERATION,
    OF_POINTS,
    OF_RANKS,
    OF_SERVING,
    OF_TOKENS,
    TOKEN_TIMES,
    every_metric,
)
from entrypoints.results.outcome import Outcome
from entrypoints.system import environment, host, session

SCHEMA = json.loads((ROOT / "schemas" / "result-1.2.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
IMAGE = {**BUILT, "file": FILE}
CARD = cards.load()["resnet50"]
COMPLETED = Outcome("completed", 0, "all of it")
CRASHED = Outcome("crashed", 4, "gone")


def document(measurement, outcome, image=None, site=None, card=CARD, words=()):
    moment = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone.utc)
    context = result.Context(
        card=card,
        configuration=resolve(parse(words), card, None),
        image=image,
        host=host.facts(),
        session=session.facts({"SLURM_JOB_ID": "4711"}),
        conditions=host.conditions(rapl.power_cap),
        conditions_after=host.conditions_after(host.counters()),
        environment=environment.described({"OMP_NUM_THREADS": "2", "HOME": "/root"}),
        site=site,
        command=["resnet50"],
        started=moment,
        finished=moment,
        search=None,
        jsonschema_version="4.17.0",
        numerics=numerics.not_run("left out"),
    )
    return result.document(measurement, outcome, context)


WHOLE = document(RUN, COMPLETED, IMAGE, "here")


def objects(value, path=()):
    """Paths of all objects in a JSON value."""
    if isinstance(value, dict):
        yield path
        for key, item in value.items():
            yield from objects(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from objects(item, (*path, index))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def complaints(changed):
    return [error.message for error in VALIDATOR.iter_errors(changed)]


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("image", [IMAGE, None])
@pytest.mark.parametrize(("measurement", "outcome"), [(RUN, COMPLETED), (REQUESTS, COMPLETED), (NOTHING, CRASHED)])
def test_documents_are_valid_from_the_first_moment_of_a_run_on(measurement, outcome, image):
    assert complaints(document(measurement, outcome, image)) == []


@pytest.mark.parametrize("path", list(objects(WHOLE)), ids=lambda path: ".".join(map(str, path)) or "top")
def test_an_unknown_key_is_refused_at_every_level(path):
    changed = copy.deepcopy(WHOLE)
    at(changed, path)["an_unknown_key"] = 1
    assert complaints(changed)


@pytest.mark.parametrize("path", [path for path in objects(WHOLE) if path], ids=lambda path: ".".join(map(str, path)))
def test_an_object_without_its_first_key_is_refused(path):
    changed = copy.deepcopy(WHOLE)
    inner = at(changed, path)
    if path[-1] in ("libraries", "variables") or not inner:
        pytest.skip("an open map: no key of it is required")
    if path == ("metrics",):
        del inner["throughput"]
    else:
        del inner[next(iter(inner))]
    assert complaints(changed)


@pytest.mark.parametrize("path", [("metrics", "throughput"), ("host", "cores"), ("phases", "compile")])
def test_null_needs_a_reason_and_a_number_takes_none(path):
    key = "seconds" if path[0] == "phases" else "value"
    changed = copy.deepcopy(WHOLE)
    at(changed, path)[key] = None
    assert complaints(changed)
    at(changed, path)["reason"] = "nobody looked"
    assert complaints(changed) == []
    at(changed, path)[key] = 1
    assert complaints(changed)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), "2.0"),
        (("status", "state"), "fine"),
        (("status", "exit_code"), 255),
        (("started",), "yesterday"),
        (("workload", "identity"), "sha256:short"),
        (("configuration", "batch_size"), 0),
        (("metrics", "throughput", "value"), "3"),
        (("metrics", "Not A Name"), {"value": 1, "unit": "s"}),
        (("provenance", "image"), {}),
        (("provenance", "stand_in"), None),
        (("steps", "seconds"), [1.0] * 1001),
        (("data", "skipped", "examples"), ["x"] * 11),
    ],
)
def test_wrong_values_are_refused(path, value):
    changed = copy.deepcopy(WHOLE)
    at(changed, path[:-1])[path[-1]] = value
    assert complaints(changed)


def test_every_field_of_the_schema_says_what_it_is():
    def undescribed(schema, path):
        for name, field in schema.get("properties", {}).items():
            if isinstance(field, dict) and path[-1:] != ("if",):
                if "description" not in field:
                    yield (*path, name)
                yield from undescribed(field, (*path, name))
        if isinstance(schema.get("items"), dict):
            yield from undescribed(schema["items"], (*path, "items"))

    assert list(undescribed(SCHEMA, ())) == []
    for name, definition in SCHEMA["$defs"].items():
        assert "description" in definition
        assert list(undescribed(definition, (name,))) == []


def test_every_metric_of_this_version_stands_in_the_schema():
    assert set(every_metric()) == set(SCHEMA["properties"]["metrics"]["properties"])


def test_a_result_says_how_tokens_get_to_experts_in_the_run_and_in_the_check():
    card = cards.load()["gpt_oss_20b"]
    context: Any = SimpleNamespace(card=card, configuration=SimpleNamespace(task="training"))
    check = numerics.not_run("why")
    assert result.workload(context)["routing"] == "balanced"
    assert replace(check, routing="learnt").as_json()["routing"] == "learnt"
    context.card = cards.load()["llama_1b"]
    assert "routing" not in result.workload(context) and "routing" not in check.as_json()


@pytest.mark.parametrize(
    ("workload", "task", "possible"),
    [
        ("resnet50", "inference", frozenset()),
        ("lstm", "training", frozenset()),
        ("bert_base", "inference", OF_TOKENS),
        ("gpt2", "training", OF_TOKENS | OF_ATTENTION),
        ("gpt2", "inference", OF_TOKENS | OF_GENERATION | OF_ATTENTION),
        ("mcmc", "sampling", OF_CHAINS),
        ("memory_copy", "microbenchmark", OF_POINTS),
        ("llama_1b", "serving", OF_SERVING | TOKEN_TIMES),
    ],
)
def test_metrics_that_a_workload_cannot_have_are_left_out(workload, task, possible):
    values = document(RUN, COMPLETED, card=cards.load()[workload], words=("--task", task))["metrics"]
    some = OF_ATTENTION | OF_TOKENS | OF_GENERATION | OF_CHAINS | OF_POINTS | OF_SERVING
    always = set(every_metric()) - some - OF_RANKS
    assert set(values) & some == possible and set(values) - some == always


def test_numbers_are_finite_and_text_is_unicode():
    assert result.number(float("nan"), "s") == {"value": None, "unit": "s", "reason": "not a finite number: nan"}
    assert document(RUN, COMPLETED, site="caf\udce9")["site"] == "caf?"
    json.dumps(WHOLE, allow_nan=False).encode("utf-8")


def test_a_played_trace_makes_a_result_simulated():
    assert WHOLE["provenance"]["simulated"] and WHOLE["power"]["source"] == "made up"
    assert not document(NOTHING, CRASHED)["provenance"]["simulated"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("power", "scope"), "rack"),
        (("power", "method"), "guess"),
        (("power", "devices"), []),
        (("power", "samples"), 0),
        (("power", "reason"), "there was one"),
        (("requests", "count"), 2),
        (("epochs", 0, "energy"), None),
        (("configuration", "meter_period_seconds"), 0),
    ],
)
def test_wrong_values_on_power_are_refused(path, value):
    changed = copy.deepcopy(WHOLE)
    at(changed, path[:-1])[path[-1]] = value
    assert complaints(changed)


def test_time_stamps_are_utc_with_milliseconds():
    assert WHOLE["started"] == "2024-02-29T12:00:00.123Z"
