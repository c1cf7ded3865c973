"""Whether an image is trusted: record, signature, base pin and provenance, in all combinations that matter."""

from dataclasses import replace
from typing import Any

import pytest
from unit.fakes import FakeEngine, FakeInspection, sha256, statement_of

from sifmark.builds import ledger
from sifmark.builds.records import record_path
from sifmark.core.errors import SifmarkError
from sifmark.core.files import write_json
from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, RECIPE, STAND_IN, WORKLOADS
from sifmark.trust.checks import (
    SignatureStatus,
    check_base_pin,
    check_provenance,
    check_signature,
    check_trust,
    is_own_build,
    require_unchanged,
)
from sifmark.trust.image import CheckSkipped, ImageUnderTest, image_under_test

KEY, OTHER = "site.pub", "other.pub"


@pytest.fixture
def engine(site: Settings) -> FakeEngine:
    return FakeEngine(site)


def under_test(engine: FakeEngine, keys: tuple[str, ...] = (), signed: bool = False, **fields: Any) -> ImageUnderTest:
    engine.add("cpu", **fields)
    return image_under_test(engine, "fake:cpu", replace(engine.settings, keys=keys), signed)


def record(engine: FakeEngine, image: FakeInspection, trusted: bool = True, **fields: str) -> None:
    """Record an image as its build did; with `trusted` in the ledger too."""
    facts = {"identity": image.runs, "digest": image.file, **fields}
    write_json(record_path("cpu", engine), facts)
    if trusted:
        ledger.record_trusted(facts["digest"], engine.settings)


def outcome(image: ImageUnderTest) -> str:
    """What the check says of an image: passed, or the code of what it raised."""
    try:
        check_trust(image)
    except (CheckFailed, CheckSkipped) as reason:
        return reason.code
    return "passed"


@pytest.mark.parametrize("signed_by", [None, KEY, OTHER])
@pytest.mark.parametrize("keys", [(), (KEY,)])
@pytest.mark.parametrize("recorded", ["none", "copied", "built"])
def test_a_record_or_a_signature_is_a_proof(
    engine: FakeEngine, signed_by: str | None, keys: tuple[str, ...], recorded: str
) -> None:
    """The table of decisions, written once more from the rules."""
    image = under_test(engine, keys, signed_by=signed_by)
    if recorded != "none":
        record(engine, engine.images["fake:cpu"], trusted=recorded == "built")
    needed = bool(keys) and recorded != "built"
    if (needed or (keys and signed_by)) and signed_by not in keys:
        expected = "signature-untrusted" if signed_by else "signature-missing"
    elif recorded == "built" or (keys and signed_by):
        expected = "passed"
    else:
        expected = "record-missing" if recorded == "none" else "not-built-here"
    assert outcome(image) == expected


@pytest.mark.parametrize("signed_by", [None, KEY])
@pytest.mark.parametrize("keys", [(), (KEY,)])
def test_what_no_signature_covers_is_refused_also_without_a_record(
    engine: FakeEngine, signed_by: str | None, keys: tuple[str, ...]
) -> None:
    hidden = CheckFailed("bytes behind its last object", code="image-altered")
    assert outcome(under_test(engine, keys, signed_by=signed_by, covered=hidden)) == "image-altered"


@pytest.mark.parametrize(("signed_by", "code"), [(None, "signature-missing"), (KEY, "passed")])
def test_a_signature_that_is_asked_for_must_be_there(engine: FakeEngine, signed_by: str | None, code: str) -> None:
    image = under_test(engine, (KEY,), signed=True, signed_by=signed_by)
    record(engine, engine.images["fake:cpu"])
    assert outcome(image) == code


def test_without_a_key_no_signature_can_be_asked_for(engine: FakeEngine) -> None:
    assert outcome(under_test(engine, signed=True, signed_by=KEY)) == "no-trusted-key"


def test_what_each_check_found_is_said(engine: FakeEngine) -> None:
    image = under_test(engine)
    record(engine, engine.images["fake:cpu"])
    recorded, base, provenance, signature = check_trust(image)
    assert recorded == f"as recorded: {image.inspection.identity()}"
    assert base.startswith("base: docker.io/") and base.endswith(" as pinned")
    assert provenance == "provenance: of this image; SBOM: sbom.cyclonedx.json"
    assert signature == "signature: none"


@pytest.mark.parametrize(
    ("changed", "keys", "signed_by", "code"),
    [
        ({"identity": sha256("other")}, (), None, "digest-mismatch"),
        ({"identity": sha256("other")}, (KEY,), KEY, "digest-mismatch"),  # no signature makes another image of it
        ({"digest": sha256("other")}, (), None, "digest-mismatch"),
        ({"digest": sha256("other")}, (KEY,), KEY, "passed"),  # it was signed since
    ],
)
def test_an_image_that_is_not_as_recorded(
    engine: FakeEngine, changed: dict[str, Any], keys: tuple[str, ...], signed_by: str | None, code: str
) -> None:
    image = under_test(engine, keys, signed_by=signed_by)
    record(engine, engine.images["fake:cpu"], **changed)
    assert outcome(image) == code


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"identity": "a"}', "null"])
def test_a_damaged_record_proves_nothing(engine: FakeEngine, text: str) -> None:
    image = under_test(engine)
    record_path("cpu", engine).parent.mkdir(parents=True)
    record_path("cpu", engine).write_text(text)
    assert outcome(image) == "record-damaged"


@pytest.mark.parametrize(
    ("labels", "keys", "signed_by", "code"),
    [
        ({BASE_DIGEST: sha256("other")}, (), None, "base-mismatch"),
        ({BASE_DIGEST: sha256("other")}, (KEY,), KEY, "passed"),  # pins move on
        ({STAND_IN: "true"}, (), None, "stand-ins-missing"),
        ({STAND_IN: "true"}, (KEY,), KEY, "passed"),
        ({RECIPE: "nosuch"}, (), None, "recipe-missing"),
    ],
)
def test_an_image_on_another_base(
    engine: FakeEngine, labels: dict[str, Any], keys: tuple[str, ...], signed_by: str | None, code: str
) -> None:
    image = under_test(engine, keys, signed_by=signed_by, labels=labels)
    record(engine, engine.images["fake:cpu"])
    assert outcome(image) == code


def test_which_base_a_signed_image_is_on(engine: FakeEngine) -> None:
    digest = sha256("other")
    image = under_test(engine, labels={BASE_DIGEST: digest})
    assert f"{digest} as {KEY} signed it; the recipe here pins " in check_base_pin(image, KEY)


PINS = {"registry": "127.0.0.1:1", "schema_version": "1.0"}


@pytest.mark.parametrize(("pinned", "code"), [("stand-in", "passed"), ("moved on", "base-mismatch"), (None, "passed")])
def test_a_stand_in_has_pins_of_its_own(engine: FakeEngine, pinned: str | None, code: str) -> None:
    image = under_test(engine, labels={BASE_DIGEST: sha256("stand-in"), STAND_IN: "true"})
    from sifmark.core.environment import platform_name
    from sifmark.recipes.recipe import load_recipe

    pin = {"digest": sha256(pinned), "python": "3.11"} if pinned else None
    bases = {load_recipe("cpu").base.reference: {platform_name(): pin}} if pin else {}
    write_json(engine.settings.stand_in_pins, {**PINS, "bases": bases})
    record(engine, engine.images["fake:cpu"])
    assert outcome(image) == (code if pinned else "base-mismatch")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"subjects": {"image": "1" * 64}}, "provenance-mismatch"),
        ({"labels": {RECIPE: "cuda"}}, "provenance-mismatch"),
        ({"labels": {BUILD_KEY: sha256("other")}}, "provenance-mismatch"),
        ({"labels": {BASE_DIGEST: sha256("other")}}, "provenance-mismatch"),
        ({"statement": b"{"}, "document-invalid"),
        ({"statement": b"[]"}, "document-invalid"),
        ({"statement": b"{}"}, "document-invalid"),
        ({"statement": b"[" * 100_000}, "document-invalid"),
    ],
)
def test_provenance_of_another_image(engine: FakeEngine, changed: dict[str, Any], code: str) -> None:
    image = under_test(engine)
    ours = image.inspection
    assert isinstance(ours, FakeInspection)
    ours.statement = statement_of({**ours.labels, **changed.get("labels", {})}, changed.get("subjects", ours.subjects))
    ours.statement = changed.get("statement", ours.statement)
    with pytest.raises(CheckFailed) as error:
        check_provenance(image)
    assert error.value.code == code


def test_an_image_without_provenance(engine: FakeEngine) -> None:
    image = under_test(engine, statement=b"")
    record(engine, engine.images["fake:cpu"])
    assert check_provenance(image) is None
    assert check_trust(image)[2] == "provenance: none in it"


@pytest.mark.parametrize(
    ("label", "value"),
    [(RECIPE, "../../etc"), (RECIPE, ""), (WORKLOADS, "a,,b"), (STAND_IN, "no"), (BUILD_KEY, "sha256:0")],
)
def test_labels_of_another_form_are_not_ours(engine: FakeEngine, label: str, value: str) -> None:
    engine.add("cpu", labels={label: value})
    with pytest.raises(CheckFailed) as error:
        image_under_test(engine, "fake:cpu", engine.settings)
    assert error.value.code == "not-sifmark-image"


def test_the_workload_that_an_image_is_named_for(engine: FakeEngine) -> None:
    every = under_test(engine).workloads
    assert under_test(engine, workload="resnet50").named_workloads == ("resnet50",)
    assert under_test(engine, workload="nosuch").named_workloads == every
    assert under_test(engine).named_workloads == every and len(every) > 1


@pytest.mark.parametrize(
    ("keys", "signed_by", "said"),
    [
        ((), None, "none"),
        ((), KEY, "key unknown: no keys in sifmark.toml"),
        ((KEY,), KEY, f"by {KEY}"),
    ],
)
def test_whose_signature_it_is(engine: FakeEngine, keys: tuple[str, ...], signed_by: str | None, said: str) -> None:
    status = check_signature(under_test(engine, keys, signed_by=signed_by), required=False)
    assert str(status) == said
    assert status == SignatureStatus(signed_by is not None, signed_by if keys else None)


@pytest.mark.parametrize("signed_by", [None, KEY])
@pytest.mark.parametrize("recorded", ["none", "copied", "changed", "built"])
def test_what_may_be_signed(engine: FakeEngine, signed_by: str | None, recorded: str) -> None:
    image = under_test(engine, (KEY,), signed_by=signed_by)
    if recorded != "none":
        changed = {"identity": sha256("other")} if recorded == "changed" else {}
        record(engine, engine.images["fake:cpu"], trusted=recorded != "copied", **changed)
    assert is_own_build(image) == (recorded == "built")
    if recorded == "built" or signed_by:
        require_unchanged(image)
        return
    with pytest.raises(CheckFailed) as error:
        require_unchanged(image)
    assert error.value.code == ("digest-mismatch" if recorded == "changed" else "not-built-here")
    assert error.value.cause.endswith(", and it is not signed")


def test_a_record_beside_a_file_elsewhere_is_of_another_place(engine: FakeEngine) -> None:
    """Not even where it is the same image: a record that came along proves nothing."""
    image = engine.add("cpu")
    record(engine, image)
    elsewhere = f"{engine.settings.cache}/cpu.sif"
    engine.images[elsewhere] = image
    assert outcome(image_under_test(engine, elsewhere, engine.settings)) == "record-missing"
    here = f"{engine.home}/cpu.sif"
    engine.images[here] = image
    assert outcome(image_under_test(engine, here, engine.settings)) == "passed"


def test_a_ledger_that_others_may_write_to_proves_nothing(engine: FakeEngine) -> None:
    image = under_test(engine)
    record(engine, engine.images["fake:cpu"])
    engine.settings.cache.chmod(0o777)
    with pytest.raises(SifmarkError) as error:
        check_trust(image)
    assert error.value.code == "path-shared"


def test_trust_ends_with_the_key(site: Settings, tmp_path) -> None:
    key = tmp_path / "site.pub"
    key.write_text("a public key")
    trusting = replace(site, keys=(str(key),))
    from sifmark.core.keys import key_id

    ledger.record_trusted(sha256("image"), trusting, key_id(key))
    ledger.copy_trust(sha256("signed"), sha256("image"), trusting)
    assert ledger.is_trusted(sha256("image"), trusting) and ledger.is_trusted(sha256("signed"), trusting)
    assert not ledger.is_trusted(sha256("image"), site)
    assert not ledger.is_trusted("../../etc/passwd", trusting) and not ledger.is_trusted(sha256("new"), trusting)
