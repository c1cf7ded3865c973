"""Anonymous results: nothing that identifies a site is left, and what a reader needs is."""

import copy
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import valid, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from sifmark.core.schemas import fast_validator, read_schema
from sifmark.report.anonymous import _BY_LAST, _RULES, Anonymiser, anonymiser_of
from sifmark.results.load import LoadedResult, load_all

CANARY = "zebra"  # in every name and text that could say where a result is from
PRIVATE = {
    "site": f"{CANARY}-centre",
    "host.hostname.value": f"node1.{CANARY}.example",
    "host.kernel.value": f"6.1.0-{CANARY}",
    "ranks.host": f"node2.{CANARY}.example",
    "power.devices.host": f"node2.{CANARY}.example",
    "power.devices.name": f"GPU-{CANARY}",
    "accelerator.identifier": f"GPU-{CANARY}",
    "ranks.device": f"GPU-{CANARY}",
    "configuration.data_path": f"/home/{CANARY}/data",
    "configuration.evaluation_path": f"/scratch/{CANARY}/test data",
    "configuration.meter": f"rapl:/tmp/{CANARY}",
    "power.source": CANARY,
    "data.part": f"{CANARY}-images",
    "data.skipped.examples": f"{CANARY}/1.png (truncated)",
    "conditions.memory_allocator.value": f"/opt/{CANARY}/libfast.so",
    "environment.variables": f"{CANARY}0",
    "environment.preloaded": f"lib{CANARY}.so",
    "provenance.image.recipe": CANARY,
    "provenance.image.base.reference": f"registry.{CANARY}.example/base:1",
    "provenance.image.file.signer": f"{CANARY}.pub (0123456789ab)",
}
# What a message of anybody may mention.
MESSAGE = (
    f"cannot read '/home/{CANARY}/my data/1.png', /p/{CANARY}/x.json, {CANARY}/results/x.json or ~{CANARY}/x "
    f"on node1.{CANARY}.example, node1, GPU-{CANARY}, of {CANARY}-centre; ask {CANARY}@{CANARY}.example, "
    f"https://{CANARY}.example/x, {CANARY}"
)
COMMAND = [
    *("resnet50", "--batch-size", "8", "--precision=bf16", "--smoke", "--output", f"results/{CANARY}/x.json"),
    *(f"--data=/home/{CANARY}/data", "--site", f"{CANARY}-centre", "--meter", f"rapl:/tmp/{CANARY}"),
    *("--rendezvous", f"node1.{CANARY}.example:29500", "--tag", CANARY),
]


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted path and the content of every text of a document."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from texts(each, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, path)
    elif isinstance(value, str):
        yield path, value


def planted(document: dict[str, Any]) -> dict[str, Any]:
    """A document with canaries wherever a text may identify a site."""

    def put(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: put(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        if isinstance(value, list):
            return [put(each, path) for each in value]
        if not isinstance(value, str):
            return value
        if path.endswith(("reason", "message", "faults", "other_processes.value", "partitioning.value")):
            return MESSAGE
        return next((text for name, text in PRIVATE.items() if path == name or path.startswith(f"{name}.")), value)

    changed: dict[str, Any] = put(copy.deepcopy(document), "")
    changed["provenance"]["command"] = COMMAND
    return changed


def loaded(document: dict[str, Any], file: str = "results/x.json") -> LoadedResult:
    return LoadedResult(file, document)


def anonymous(*given_documents: dict[str, Any], sites: bool = True) -> list[dict[str, Any]]:
    results = [loaded(document, f"/home/{CANARY}/{number}.json") for number, document in enumerate(given_documents)]
    anonymiser = anonymiser_of(results, sites)
    return [anonymiser.result(result).document for result in results]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_every_text_of_the_schema_is_kept_for_a_reason_or_replaced(version: str) -> None:
    schema = read_schema(f"result-{version}")
    for path in text_paths(schema, schema):
        covered = path.rpartition(".")[2] in _BY_LAST or any(
            path == name or path.startswith(f"{name}.") for name in (*_RULES, "provenance.command")
        )
        assert covered, path


def text_paths(node: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the dotted path of every text that a schema describes, without those of which it lists all values."""
    if "$ref" in node:
        target = schema["$defs"][node["$ref"].rpartition("/")[2]]
        yield from text_paths(target, schema, path)
    types = node.get("type", [])
    if "string" in (types if isinstance(types, list) else [types]) and "enum" not in node:
        yield path
    for key, each in node.get("properties", {}).items():
        if isinstance(each, dict):
            yield from text_paths(each, schema, f"{path}.{key}".lstrip("."))
    for each in (node.get("items"), node.get("additionalProperties"), *node.get("oneOf", ())):
        if isinstance(each, dict):
            yield from text_paths(each, schema, path)


def test_no_canary_is_left() -> None:
    (document,) = anonymous(planted(whole()))
    assert CANARY in json.dumps(planted(whole()))
    left = [(path, text) for path, text in texts(document) if CANARY in text]
    assert left == []
    assert fast_validator("result-1.1").is_valid(document)


def test_a_text_that_no_rule_is_about_becomes_a_label() -> None:
    document = whole() | {"new": {"text": CANARY}}
    assert anonymous(document)[0]["new"]["text"].startswith("value-")


def test_names_that_matter_stay() -> None:
    before, (after,) = planted(whole()), anonymous(planted(whole()))
    for part in (
        *("id", "started", "workload", "metrics", "steps", "phases"),
        *(("accelerator", name) for name in ("kind", "vendor", "name", "execution")),
        *(("provenance", "image", name) for name in ("build_key", "lock", "revision", "version")),
        *(("provenance", "software"), ("provenance", "image", "base", "digest"), ("host", "cpu_model")),
        *(("configuration", name) for name in ("batch_size", "precision", "threads")),
        *((("provenance", "image", "file", "identity")), ("provenance", "image", "file", "digest")),
    ):
        ours, theirs = before, after
        for key in (part,) if isinstance(part, str) else part:
            ours, theirs = ours[key], theirs[key]
        if part != "phases" and part != "metrics":
            assert ours == theirs, part
    assert after["host"]["kernel"]["value"] == "6.1.0"


def test_a_command_keeps_what_it_asks_for() -> None:
    document = planted(whole())
    document["configuration"] |= {"batch_size": 8, "precision": "bf16", "data_path": f"/home/{CANARY}/data"}
    document["workload"]["name"] = "resnet50"
    (after,) = anonymous(document)
    words = after["provenance"]["command"]
    data = after["configuration"]["data_path"]
    assert words[:5] == ["resnet50", "--batch-size", "8", "--precision=bf16", "--smoke"]
    assert words[7] == f"--data={data}" and data.startswith("path-")
    assert words[8:10] == ["--site", after["site"]] and after["site"] == "site-1"
    assert words[12:14] == ["--rendezvous", f"{after['host']['hostname']['value']}:29500"]
    assert words[14:] == ["--tag", "value-1"] or (words[14] == "--tag" and words[15].startswith("value-"))


def test_sites_stay_unless_they_are_to_be_replaced() -> None:
    document = valid(site="alpha", host__hostname={"value": "alpha-node"})
    kept, replaced = anonymous(document, sites=False)[0], anonymous(document)[0]
    assert (kept["site"], replaced["site"]) == ("alpha", "site-1")
    assert kept["host"]["hostname"]["value"] == "host-1"
    assert "--site=alpha" in kept["provenance"]["command"] and "--site=site-1" in replaced["provenance"]["command"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("no space left on /scratch/mueller/x: 3 GiB of 4", "no space left on path-1: 3 GiB of 4"),
        ("no package of intel-rapl in /sys/class/powercap", "no package of intel-rapl in /sys/class/powercap"),
        ("/dev/kfd does not open", "/dev/kfd does not open"),
        ("mail mueller@site.example or 10.1.2.3", "mail host-1 or host-2"),
        ("login7.hpc.site.de is down; torch.nn.functional works", "host-1 is down; torch.nn.functional works"),
        ("412.5 images/s, 1.37x", "412.5 images/s, 1.37x"),
        ("GPU-01234567-89ab-cdef-0123-456789abcdef fell off", "device-1 fell off"),
        ("see https://wiki.site.example/x?y=1.", "see path-1"),
        ("cannot open './data/mueller/a.json'", "cannot open 'path-1'"),
    ],
)
def test_what_looks_like_a_name_of_a_site_is_replaced_in_texts(text: str, left: str) -> None:
    assert Anonymiser().text(text) == left


def test_a_user_is_replaced_wherever_a_path_gave_the_name_away() -> None:
    first = valid(status__message="queue of mueller is full")
    second = valid(configuration__data_path="/home/mueller/data")
    first["status"]["message"] = "queue of mueller is full"
    second["configuration"]["data_path"] = "/home/mueller/data"
    assert anonymous(first, second)[0]["status"]["message"] == "queue of user-1 is full"


NAMES = st.text(string.ascii_lowercase + string.digits + "-.", min_size=3, max_size=12)


@settings(max_examples=10)
@given(st.lists(NAMES, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_labels_depend_on_results_alone(hosts: list[str], chance: random.Random) -> None:
    results = []
    for number, host in enumerate(hosts):
        document = whole()
        document["host"]["hostname"] = {"value": host}
        document["status"]["message"] = f"{host} at /data/{host}/x"
        results.append(loaded(document, f"{number}.json"))
    shuffled = list(results)
    chance.shuffle(shuffled)
    first, second = anonymiser_of(results), anonymiser_of(shuffled)
    assert [first.result(each) for each in results] == [second.result(each) for each in results]
    labels = [first.result(each).document["host"]["hostname"]["value"] for each in results]
    assert all((a == b) == (hosts[i] == hosts[j]) or hosts[i].partition(".")[0] == hosts[j].partition(".")[0]
               for i, a in enumerate(labels) for j, b in enumerate(labels))  # fmt: skip


def test_files_that_are_no_results_are_named_without_their_content(tmp_path: Path) -> None:
    folder = tmp_path / CANARY
    folder.mkdir()
    (folder / "a.json").write_text(f'{{"schema_version": "{CANARY}"}}')
    results = list(load_all([str(folder)]))
    left = anonymiser_of(results).result(results[0])
    assert left.file == "result-1.json" and CANARY not in "".join(left.problems)
    assert left.path == folder / "a.json"
