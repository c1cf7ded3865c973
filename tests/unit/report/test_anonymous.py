"""Anonymous results: nothing that identifies a site is left, and what a reader needs is."""

import copy
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents import valid, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from sifmark.core.schemas import fast_validator
from sifmark.report.anonymous import WITHHELD, anonymiser_of
from sifmark.results.catalogue import fields
from sifmark.results.load import LoadedResult, load_all

CANARY = "zebra"
PUBLIC = ("id", "started", "workload", "steps", ("accelerator", "name"), ("accelerator", "execution"),
          ("provenance", "image", "build_key"), ("provenance", "software"), ("host", "cpu_model"),
          ("provenance", "image", "base", "digest"), ("configuration", "batch_size"),
          ("configuration", "precision"))  # fmt: skip


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
    """A document with a canary in every text that is private, and in every reason."""
    private = {each.path.replace("[]", "") for each in fields() if each.private}

    def put(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: put(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        if isinstance(value, list):
            return [put(each, path) for each in value]
        named = any(path == name or path.startswith(f"{name}.") for name in private)
        return f"{CANARY}.{CANARY}/x" if isinstance(value, str) and (named or path.endswith(".reason")) else value

    changed: dict[str, Any] = put(copy.deepcopy(document), "")
    return changed


def loaded(document: dict[str, Any], file: str = "results/x.json") -> LoadedResult:
    return LoadedResult(file, document)


def anonymous(*given_documents: dict[str, Any], sites: bool = True) -> list[dict[str, Any]]:
    results = [loaded(document, f"/home/{CANARY}/{number}.json") for number, document in enumerate(given_documents)]
    anonymiser = anonymiser_of(results, sites)
    return [anonymiser.result(result).document for result in results]


def test_no_private_text_is_left_and_the_document_is_one() -> None:
    before = planted(whole())
    (document,) = anonymous(before)
    assert len([path for path, text in texts(before) if CANARY in text]) > 20
    assert [(path, text) for path, text in texts(document) if CANARY in text] == []
    assert fast_validator("result-1.2").is_valid(document)


def test_a_text_of_which_the_catalogue_knows_nothing_is_withheld() -> None:
    document = whole() | {"new": {"text": CANARY, "list": [CANARY, CANARY]}}
    assert anonymous(document)[0]["new"] == {"text": WITHHELD, "list": [WITHHELD]}


def test_what_is_public_stays() -> None:
    before, (after,) = planted(whole()), anonymous(planted(whole()))
    for part in PUBLIC:
        ours, theirs = before, after
        for key in (part,) if isinstance(part, str) else part:
            ours, theirs = ours[key], theirs[key]
        assert ours == theirs, part


def test_parts_of_names_that_say_nothing_of_a_site_stay() -> None:
    document = valid(host__kernel={"value": f"6.1.0-{CANARY}"}, configuration__meter=f"rapl:/tmp/{CANARY}")
    document["host"]["kernel"]["value"] = f"6.1.0-{CANARY}"
    document["configuration"]["meter"] = f"rapl:/tmp/{CANARY}"
    document["environment"]["variables"] = {"OMP_NUM_THREADS": "4", "NCCL_SOCKET_IFNAME": CANARY}
    (after,) = anonymous(document)
    assert (after["host"]["kernel"]["value"], after["configuration"]["meter"]) == ("6.1.0", "rapl:path-1")
    assert after["environment"]["variables"] == {"OMP_NUM_THREADS": "4", "NCCL_SOCKET_IFNAME": "value-1"}


def test_sites_stay_unless_they_are_to_be_replaced() -> None:
    document = valid(site="alpha", host__hostname={"value": "alpha-node"})
    kept, replaced = anonymous(document, sites=False)[0], anonymous(document)[0]
    assert (kept["site"], replaced["site"]) == ("alpha", "site-1")
    assert kept["host"]["hostname"]["value"] == "host-1"


NAMES = st.text(string.ascii_lowercase + string.digits + "-.", min_size=3, max_size=12)


@settings(max_examples=examples(10))
@given(st.lists(NAMES, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_labels_depend_on_results_alone(hosts: list[str], chance: random.Random) -> None:
    results = []
    for number, host in enumerate(hosts):
        document = whole()
        document["host"]["hostname"] = {"value": host}
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
