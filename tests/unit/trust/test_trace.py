"""The links from a result back to its sources: each link in every status that it may have."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import TRAINING, from_image
from unit.fakes import FakeEngine, FakeInspection, labels_of, sha256
from unit.keys import make_key

from sifmark.attestations.sbom import CYCLONEDX
from sifmark.builds import ledger
from sifmark.builds.records import record_path
from sifmark.commands.results import trace_results
from sifmark.core import git
from sifmark.core.checks import Check, Status
from sifmark.core.errors import SifmarkError, UsageError
from sifmark.core.files import write_json
from sifmark.core.settings import Settings
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, REVISION, STAND_IN
from sifmark.recipes.plan import make_plan
from sifmark.results.envelope import sign_results
from sifmark.results.load import LoadedResult, load_file, load_text
from sifmark.trust.image import image_under_test
from sifmark.trust.trace import STATES, Tracer, link_document

KEY, OTHER = "site.pub", "other.pub"
COMMIT = "0f" * 20
PROVEN, CLAIMED, BROKEN, MISSING = Status.PASSED, Status.WARNING, Status.FAILED, Status.SKIPPED


@pytest.fixture
def engine(site: Settings) -> FakeEngine:
    """An engine with the image of recipe cpu that the sources here give."""
    engine = FakeEngine(site)
    engine.add("cpu", labels={BUILD_KEY: make_plan("cpu", site).build_key})
    return engine


def image_of(engine: FakeEngine) -> FakeInspection:
    return engine.images["fake:cpu"]


def document_of(image: FakeInspection, **changes: Any) -> dict[str, Any]:
    """A result of an image, as `sifmark run` would have made it."""
    labels = image.labels
    claims = {
        "recipe": "cpu",
        "build_key": labels[BUILD_KEY],
        "platform": labels[PLATFORM],
        "stand_in": labels[STAND_IN] == "true",
        "revision": COMMIT,
        "base__digest": labels[BASE_DIGEST],
        "file": {
            "identity": image.runs,
            "digest": image.file,
            "signer": None,
            "seen_by": "sifmark run",
        },
    }
    made = {f"provenance__image__{name}": value for name, value in claims.items()}
    document = from_image(**{**made, **changes})
    file = document["provenance"]["image"]["file"]
    if None in (file["identity"], file["digest"], file["signer"]):
        file.setdefault("reason", "nobody looked")
    return document


def links(engine: FakeEngine, document: dict[str, Any], named: bool = False, **settings: Any) -> dict[str, Check]:
    site = replace(engine.settings, **settings)
    image = image_under_test(engine, "fake:cpu", site) if named else None
    loaded, problems = load_text(json.dumps(document).encode())
    assert not problems, problems
    traced = Tracer(engine, site, image).trace(LoadedResult("x.json", loaded))
    return {link.name: link for link in traced}


def trust(engine: FakeEngine) -> None:
    image = image_of(engine)
    write_json(record_path("cpu", engine), {"identity": image.runs, "digest": image.file})
    ledger.record_trusted(image.file, engine.settings)


def test_everything_is_proven_where_all_is_here(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "revision", lambda: COMMIT)
    image_of(engine).signed_by = KEY
    traced = links(engine, document_of(image_of(engine)), keys=(KEY,))
    assert list(traced) == [
        *("result", "image", "signature", "provenance", "packages", "base", "recipe", "workload", "commit")
    ]
    assert traced.pop("result").status is CLAIMED, "nobody has signed it"
    assert {link.status for link in traced.values()} == {PROVEN}, traced


def test_a_signed_result_says_who_vouches_for_it(engine: FakeEngine, tmp_path: Path) -> None:
    (key, public), (_, other) = make_key(tmp_path, "site"), make_key(tmp_path, "other")
    file = tmp_path / "result.json"
    file.write_text(json.dumps(document_of(image_of(engine))))

    def result_link(*keys: str) -> Check:
        (loaded,) = load_file(str(file))
        return Tracer(engine, replace(engine.settings, keys=keys)).trace(loaded)[0]

    assert result_link(public).status is CLAIMED
    sign_results(file, key)
    assert result_link(public).status is PROVEN and "signed by site.pub" in result_link(public).detail
    assert result_link(other).status is CLAIMED and link_document(result_link(other))["state"] == "valid"
    file.write_text(file.read_text() + "\n")
    assert result_link(public).status is BROKEN and "differs from what was signed" in result_link(public).detail


def test_a_result_that_is_not_valid_leads_nowhere(engine: FakeEngine) -> None:
    traced = Tracer(engine, engine.settings).trace(LoadedResult("x.json", {}, ("no schema",)))
    assert traced == [Check("result", BROKEN, "no schema")]


def test_a_result_from_outside_an_image_has_none(engine: FakeEngine) -> None:
    document = json.loads(TRAINING.read_text())
    traced = Tracer(engine, engine.settings).trace(LoadedResult("x.json", document, ()))
    assert [(link.name, link.status) for link in traced] == [("result", CLAIMED), ("image", MISSING)]


NO_FILE = {"identity": None, "digest": None, "signer": None, "seen_by": None, "reason": "nobody saw it"}
ONLY_DIGEST = {"identity": None, "digest": sha256("before it was signed"), "signer": None, "seen_by": "entrypoint"}


@pytest.mark.parametrize(
    ("changes", "fields", "named", "status", "said"),
    [
        ({}, {}, False, PROVEN, "sifmark run saw sha256:"),
        ({}, {}, True, PROVEN, "sifmark run saw sha256:"),
        ({"recipe": "cuda"}, {}, False, CLAIMED, "no image of recipe cuda is here"),
        ({"recipe": "nosuch"}, {}, False, CLAIMED, "no image of recipe nosuch is here"),
        ({"file": NO_FILE}, {}, False, CLAIMED, "the image here has the same build key"),
        ({"file": NO_FILE, "build_key": sha256("x")}, {}, False, CLAIMED, "the image here is another"),
        ({"file": NO_FILE, "build_key": sha256("x")}, {}, True, BROKEN, "nobody saw it"),
        ({"file__identity": sha256("x")}, {}, False, CLAIMED, "the image here is another"),
        ({"file__identity": sha256("x")}, {}, True, BROKEN, "sifmark run saw"),
        ({"file": ONLY_DIGEST}, {"signed_by": OTHER}, False, CLAIMED, "which signing changes"),
        ({"file": ONLY_DIGEST}, {}, False, CLAIMED, "the image here is another"),
        ({"file": ONLY_DIGEST}, {}, True, BROKEN, "entrypoint saw"),
        ({"build_key": sha256("x")}, {}, False, BROKEN, f"the label {BUILD_KEY}"),
        ({"base__digest": sha256("x")}, {}, False, BROKEN, f"the label {BASE_DIGEST}"),
        ({"platform": "riscv64"}, {}, False, BROKEN, f"the label {PLATFORM}"),
        ({"stand_in": True}, {}, False, BROKEN, f"the label {STAND_IN}"),
    ],
)
def test_the_image_that_ran(
    engine: FakeEngine, changes: dict[str, Any], fields: dict[str, Any], named: bool, status: Status, said: str
) -> None:
    for name, value in fields.items():
        setattr(image_of(engine), name, value)
    claims = {f"provenance__image__{name}": value for name, value in changes.items()}
    link = links(engine, document_of(image_of(engine), **claims), named)["image"]
    assert link.status is status and said in link.detail, link


def test_another_revision_than_the_label_s_is_broken(engine: FakeEngine) -> None:
    image_of(engine).labels[REVISION] = "1e" * 20
    link = links(engine, document_of(image_of(engine)))["image"]
    assert link.status is BROKEN and COMMIT in link.detail


def test_only_the_file_s_digest_was_seen(engine: FakeEngine) -> None:
    file = {"identity": None, "digest": image_of(engine).file, "signer": None, "seen_by": "entrypoint"}
    assert links(engine, document_of(image_of(engine), provenance__image__file=file))["image"].status is PROVEN


@pytest.mark.parametrize(
    ("signed_by", "claimed", "keys", "status", "said"),
    [
        (None, None, (), MISSING, "none"),
        (None, KEY, (), BROKEN, "but the image is not signed"),
        (None, KEY, (KEY,), BROKEN, "but the image is not signed"),
        (KEY, None, (), MISSING, "none"),
        (KEY, KEY, (), CLAIMED, "no key is trusted here to check it by"),
        (KEY, None, (KEY,), PROVEN, f"by {KEY}"),
        (KEY, KEY, (KEY,), PROVEN, f"by {KEY}"),
        (KEY, f"{KEY} (0123456789ab)", (KEY,), PROVEN, f"which the result calls {KEY} (0123456789ab)"),
        (KEY, OTHER, (KEY,), BROKEN, f"the result says by {OTHER}, it is by {KEY}"),
        (OTHER, None, (KEY,), BROKEN, "by none of the keys"),
    ],
)
def test_the_signature(
    engine: FakeEngine, signed_by: str | None, claimed: str | None, keys: tuple[str, ...], status: Status, said: str
) -> None:
    image_of(engine).signed_by = signed_by
    document = document_of(image_of(engine), provenance__image__file__signer=claimed)
    link = links(engine, document, keys=keys)["signature"]
    assert link.status is status and said in link.detail, link


@pytest.mark.parametrize(
    ("signed", "covers", "built", "status"),
    [
        (True, True, False, PROVEN),
        (True, False, False, CLAIMED),  # a Docker image's attestations are not in it
        (False, True, True, PROVEN),
        (False, False, True, PROVEN),
        (False, True, False, CLAIMED),
    ],
)
def test_what_lies_beside_what_runs_is_vouched_for(
    engine: FakeEngine, signed: bool, covers: bool, built: bool, status: Status
) -> None:
    image = image_of(engine)
    image.signed_by, image.signature_covers_attestations = KEY if signed else None, covers
    if built:
        trust(engine)
    traced = links(engine, document_of(image), keys=(KEY,) if signed else ())
    assert (traced["provenance"].status, traced["packages"].status) == (status, status)
    assert traced["packages"].detail == f"2 in {CYCLONEDX}"


@pytest.mark.parametrize(
    ("fields", "provenance", "packages"),
    [
        ({"statement": b""}, MISSING, CLAIMED),
        ({"statement": b"{}"}, BROKEN, CLAIMED),
        ({"documents": {}}, CLAIMED, MISSING),
        ({"documents": {CYCLONEDX: b"{"}}, CLAIMED, BROKEN),
        ({"documents": {CYCLONEDX: b"[]"}}, CLAIMED, BROKEN),
    ],
)
def test_attestations_that_are_missing_or_damaged(
    engine: FakeEngine, fields: dict[str, Any], provenance: Status, packages: Status
) -> None:
    for name, value in fields.items():
        setattr(image_of(engine), name, value)
    traced = links(engine, document_of(image_of(engine)))
    assert (traced["provenance"].status, traced["packages"].status) == (provenance, packages)


def test_without_the_image_its_contents_are_claimed(engine: FakeEngine) -> None:
    document = document_of(image_of(engine), provenance__image__file__signer=KEY)
    engine.images.clear()
    traced = links(engine, document)
    assert {name: traced[name].status for name in ("signature", "provenance", "packages", "base")} == dict.fromkeys(
        ("signature", "provenance", "packages", "base"), CLAIMED
    )
    assert traced["signature"].detail == f"by {KEY}, as sifmark run saw"


def test_a_base_that_is_pinned_no_more_is_claimed(engine: FakeEngine) -> None:
    image_of(engine).labels[BASE_DIGEST] = sha256("an earlier one")
    link = links(engine, document_of(image_of(engine)))["base"]
    assert link.status is CLAIMED and "pinned is" in link.detail


@pytest.mark.parametrize(
    ("changes", "revision", "statuses"),
    [
        ({}, COMMIT, (PROVEN, PROVEN, PROVEN)),
        ({}, "1e" * 20, (PROVEN, PROVEN, CLAIMED)),
        ({"provenance__image__revision": f"{COMMIT}-dirty"}, COMMIT, (PROVEN, PROVEN, CLAIMED)),
        ({"provenance__image__revision": None}, COMMIT, (PROVEN, PROVEN, MISSING)),
        ({"workload__identity": sha256("x")}, COMMIT, (PROVEN, BROKEN, PROVEN)),
    ],
)
def test_sources(
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    revision: str,
    statuses: tuple[Status, Status, Status],
) -> None:
    monkeypatch.setattr(git, "revision", lambda: revision)
    traced = links(engine, document_of(image_of(engine), **changes))
    assert tuple(traced[name].status for name in ("recipe", "workload", "commit")) == statuses


@pytest.mark.parametrize("recipe", ["cpu", "nosuch"])
def test_other_sources_prove_nothing(engine: FakeEngine, recipe: str) -> None:
    engine.images.clear()
    image = FakeInspection(labels_of("cpu"))  # of another build key
    traced = links(engine, document_of(image, provenance__image__recipe=recipe))
    assert {traced[name].status for name in ("recipe", "workload", "commit")} == {CLAIMED}
    assert ("no recipe" if recipe == "nosuch" else "another build key") in traced["recipe"].detail


def test_an_image_is_hashed_once_for_all_its_results(engine: FakeEngine) -> None:
    tracer = Tracer(engine, engine.settings)
    loaded, _ = load_text(json.dumps(document_of(image_of(engine))).encode())
    for _ in range(3):
        tracer.trace(LoadedResult("x.json", loaded, ()))
    assert engine.inspected == ["fake:cpu"]


def test_words_of_links_are_a_contract() -> None:
    assert [STATES[status] for status in Status] == ["verified", "unverified", "contradicted", "missing"]
    assert link_document(Check("base", CLAIMED, "x")) == {"name": "base", "state": "unverified", "detail": "x"}


def test_a_broken_link_fails(site: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SifmarkError) as error:
        trace_results([str(tmp_path / "x.json")], site, "", "table")
    assert error.value.code == "trace-broken" and "contradicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("require", "ci", "code"),
    [
        ("", "", None),
        ("", "true", "trace-incomplete"),
        ("image,commit", "", "trace-incomplete"),
        ("result", "true", "trace-incomplete"),
    ],
)
def test_a_required_link_must_be_verified(
    site: Settings, monkeypatch: pytest.MonkeyPatch, require: str, ci: str, code: str | None
) -> None:
    """Of a result that was made outside an image."""
    monkeypatch.setenv("CI", ci)
    with nullcontext() if code is None else pytest.raises(SifmarkError, check=lambda error: error.code == code):
        trace_results([str(TRAINING)], site, "", "json", require)


def test_a_link_that_there_is_none_of_cannot_be_required(site: Settings) -> None:
    with pytest.raises(UsageError, match="no link 'pakages'.*"):
        trace_results([str(TRAINING)], site, "", "json", "pakages")


def test_a_result_of_0_1_0_is_traced_as_it_was_then(
    trusting: Settings, made_by_0_1_0: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real image and result of an earlier version; its sources are not those of today."""
    trace_results([str(made_by_0_1_0 / "from-image.json")], trusting, str(made_by_0_1_0 / "cpu.sif"), "json")
    ((traced),) = json.loads(capsys.readouterr().out)
    ((expected),) = json.loads((made_by_0_1_0 / "expected-trace.json").read_text())
    words = {"proven": "verified", "claimed": "unverified", "broken": "contradicted", "missing": "missing"}
    links = [{"name": e["name"], "state": words[e["standing"]], "detail": e["told"]} for e in expected["links"][1:6]]
    assert Path(traced["file"]).name == expected["file"] and traced["links"][1:6] == links
    assert traced["links"][0]["state"] == "valid"
    assert [link["name"] for link in traced["links"]] == [link["name"] for link in expected["links"]]
