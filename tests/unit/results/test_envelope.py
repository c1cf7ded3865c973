"""Signed results: who signed a file, and what an envelope does not vouch for."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import documents
import pytest
from unit.keys import KINDS, make_key
from unit.refusals import refused

from sifmark.commands.results import sign_files, verify_files
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.keys import key_id
from sifmark.core.settings import Settings
from sifmark.results.comparison.compare import compare_results
from sifmark.results.comparison.query import Query
from sifmark.results.envelope import envelope_path, sign_results, signer_of


@pytest.fixture
def result(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "a.json"
    file.write_text(json.dumps(documents.from_image()))
    return file


def code_of(file: Path, *keys: str) -> str:
    with pytest.raises(SifmarkError) as caught:
        signer_of(file, keys)
    return caught.value.code


@pytest.mark.parametrize("kind", KINDS)
def test_a_signed_result_names_its_signer(tmp_path: Path, result: Path, kind: str) -> None:
    key, public = make_key(tmp_path, "site", kind)
    _, other = make_key(tmp_path, "other", kind)
    envelope = sign_results(result, key)
    assert envelope == envelope_path(result) and envelope.name == "a.json.dsse"
    assert signer_of(result, (other, public)) == key_id(Path(public))
    assert code_of(result, other) == "signature-untrusted" == code_of(result)


def test_the_statement_is_about_the_file_and_its_image(tmp_path: Path, result: Path) -> None:
    key, public = make_key(tmp_path, "site")
    envelope = json.loads(sign_results(result, key).read_text())
    statement = json.loads(b64decode(envelope["payload"]))
    document, image = documents.from_image(), statement["predicate"]["results"][0]["image"]
    assert statement["subject"][0]["name"] == "a.json"
    assert statement["predicate"]["signer"] == key_id(Path(public))
    assert statement["predicate"]["results"][0]["id"] == document["id"]
    assert image["identity"] == document["provenance"]["image"]["file"]["identity"]


def test_only_a_valid_result_is_signed(tmp_path: Path, result: Path) -> None:
    key, _ = make_key(tmp_path, "site")
    forged = documents.from_image()
    forged["metrics"]["throughput"]["value"] *= 10
    result.write_text(json.dumps(forged))
    with refused(SifmarkError, "result-invalid", "throughput"):
        sign_results(result, key)
    assert not envelope_path(result).exists()


def signed_again(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the statement in an envelope, and leave the signature."""
    envelope = json.loads(envelope_path(file).read_text())
    statement = json.loads(b64decode(envelope["payload"]))
    change(statement)
    envelope["payload"] = b64encode(json.dumps(statement).encode()).decode()
    envelope_path(file).write_text(json.dumps(envelope))


def test_what_was_changed_is_refused(tmp_path: Path, result: Path) -> None:
    key, public = make_key(tmp_path, "site")
    assert code_of(result, public) == "signature-missing"
    sign_results(result, key)
    original = result.read_text()
    result.write_text(original + " ")
    assert code_of(result, public) == "signature-invalid"
    result.write_text(original)
    signed_again(result, lambda statement: statement["predicate"].update(signer="else"))
    assert code_of(result, public) == "signature-untrusted"
    copied = result.with_name("b.json")
    sign_results(result, key)
    copied.write_text(original.replace("resnet50", "resnet51"))
    envelope_path(copied).write_text(envelope_path(result).read_text())
    assert code_of(copied, public) == "signature-invalid"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"payload": 1}', '{"payload": "", "payloadType": "x", "signatures": []}', "[" * 10_000]
)
def test_a_file_that_is_no_envelope_is_refused(tmp_path: Path, result: Path, text: str) -> None:
    _, public = make_key(tmp_path, "site")
    envelope_path(result).write_text(text)
    assert code_of(result, public) == "document-invalid"


def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, result: Path) -> None:
    key, public = make_key(tmp_path, "site")
    for private in (Path(public), tmp_path / "none.pem"):
        with refused(UsageError, "key-unusable") as caught:
            sign_results(result, private)
        assert private.name in caught.value.cause
    sign_results(result, key)
    assert code_of(result, str(key)) == "key-unusable"


def test_a_comparison_may_ask_for_signatures(tmp_path: Path, result: Path) -> None:
    key, public = make_key(tmp_path, "site")
    sign_results(result, key)
    other = result.with_name("b.json")
    other.write_text(json.dumps(documents.valid()))
    query = Query(("throughput",))
    compared = compare_results([str(result.parent)], query, "", (public,))
    assert [line.rpartition("/")[2] for line in compared.unsigned] == ["b.json: it is not signed"]
    assert len(compared.compared) == 1
    assert compare_results([str(result.parent)], query).unsigned == []


def test_commands_sign_and_verify(
    tmp_path: Path, result: Path, site: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    key, public = make_key(tmp_path, "site")
    with refused(UsageError, "invalid-option"):
        sign_files([str(result)], site, "", "table")
    with refused(UsageError, "no-trusted-key"):
        verify_files([str(result)], site, "table")
    trusting = replace(site, keys=(public,), results_key=key)
    with refused(SifmarkError, "signature-untrusted", "1 of 1 file"):
        verify_files([str(result)], trusting, "json")
    assert json.loads(capsys.readouterr().out)[0]["reason"] == "it is not signed"
    sign_files([str(result.parent)], trusting, "", "table")
    verify_files([str(result.parent)], trusting, "json")
    assert json.loads(capsys.readouterr().out.partition("\n")[2])[0]["signer"] == key_id(Path(public))
