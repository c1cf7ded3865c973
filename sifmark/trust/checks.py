"""Whether to trust an image: is it what was built, on the pinned base, by whom it says, with nothing added?"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sifmark.builds import ledger
from sifmark.builds.records import BuildRecord, read_record, record_path
from sifmark.core.errors import REBUILD_REMEDY
from sifmark.core.process import thread_pool
from sifmark.engines import CheckFailed, should_check_signature
from sifmark.engines.locate import names_file
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, RECIPE, STAND_IN
from sifmark.recipes.recipe import load_recipe, recipe_names
from sifmark.trust.image import CheckSkipped, ImageUnderTest, pin_of_base


@dataclass(frozen=True)
class SignatureStatus:
    """Whether an image is signed, and by which of the keys that this site trusts."""

    present: bool
    signer: str | None

    def __str__(self) -> str:
        if self.signer:
            return f"by {self.signer}"
        return "key unknown: no keys in sifmark.toml" if self.present else "none"


def check_trust(image: ImageUnderTest) -> list[str]:
    """Check contents, record, base pin, provenance and signature of an image. Return what each check found.

    The record of a build here proves an image. Every other image needs a signature, if this site trusts keys. Raises
    CheckFailed, or CheckSkipped if something cannot be checked and no trusted signature stands in for it.
    """
    image.inspection.require_covered()
    record = _local_record(image)
    proven = record is not None and _is_proof(record, image)
    required = image.signature_required or (bool(image.settings.keys) and not proven)
    with thread_pool(1) as pool:  # Apptainer reads all of it too
        pending = pool.submit(check_signature, image, required)
        image.inspection.identity()
        signature = pending.result()
    checks = (
        partial(check_base_pin, image, signature.signer),
        partial(_require_proof, image, record, signature.signer),
        partial(_describe_provenance, image),
    )
    base, recorded, provenance = _run_checks(checks, signature.signer)
    return [recorded, f"base: {base}", f"provenance: {provenance}", f"signature: {signature}"]


def require_unchanged(image: ImageUnderTest) -> None:
    """Raise CheckFailed unless an image, or the copy of one, is as it was built here.

    A trusted signature, now or when it was fetched, is as good.
    """
    record = read_record(image.recipe, image.engine, strict=True)
    try:
        if record is None or not _is_proof(record, image):
            cause = f"{image.recipe} was not built here, nor fetched with a trusted signature"
            raise CheckFailed(cause, code="not-built-here")
        _compare_with_record(image, record, None)
    except CheckFailed as reason:
        _require_signature(image, reason)


def _require_signature(image: ImageUnderTest, reason: CheckFailed) -> None:
    """Raise CheckFailed, with the reason why one is needed, unless an image has a trusted signature."""
    try:
        image.inspection.signer(image.settings.keys)
    except CheckFailed as unsigned:
        cause = f"{reason.cause}, and {unsigned.cause}"
        raise CheckFailed(cause, "build it (--force), or fetch it with --key", code=reason.code) from reason


def is_own_build(image: ImageUnderTest) -> bool:
    """Return whether the image is the one recorded as built here, or fetched with a trusted signature."""
    with suppress(CheckFailed):
        record = _local_record(image)
        return record is not None and _is_proof(record, image) and bool(_compare_with_record(image, record, None))
    return False


def _run_checks(checks: Iterable[Callable[[], str]], signer: str | None) -> list[str]:
    """Return what checks found. A trusted signature stands in for a check that cannot be made here.

    All are made before CheckSkipped is raised: what an image says of itself may prevent one check, but no other.
    """
    findings: list[str] = []
    skipped: list[CheckSkipped] = []
    for check in checks:
        try:
            findings.append(check())
        except CheckSkipped as reason:
            findings.append(str(reason))
            skipped.append(reason)
    if skipped and signer is None:
        raise skipped[0]
    return findings


def check_signature(image: ImageUnderTest, required: bool) -> SignatureStatus:
    """Return whether an image is signed, and by whom. Raises CheckFailed if a required signature is not valid."""
    present, keys = image.inspection.signed(), image.settings.keys
    wanted = should_check_signature(required, keys, lambda: present)
    return SignatureStatus(present, image.inspection.signer(keys) if wanted else None)


def _describe_provenance(image: ImageUnderTest) -> str:
    return check_provenance(image) or "none in it"


def check_provenance(image: ImageUnderTest) -> str | None:
    """Return what an image's provenance covers, or None if it has none.

    Raises CheckFailed if it is of another image, or contradicts the labels.
    """
    if (attested := image.inspection.provenance()) is None:
        return None
    content, subjects = attested
    stated, claims = _read_provenance(content)
    if stated != subjects:
        raise CheckFailed("its provenance is of another image", REBUILD_REMEDY, code="provenance-mismatch")
    for label, claim in claims.items():
        if (value := image.labels.get(label)) != claim:
            cause = f"its provenance says {claim}, its label {label} says {value}"
            raise CheckFailed(cause, REBUILD_REMEDY, code="provenance-mismatch")
    return f"of this image; SBOM: {', '.join(sorted(image.inspection.sboms())) or 'none'}"


def _read_provenance(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """Return the subjects of a statement with their SHA-256, and what labels must say. Raises CheckFailed."""
    try:
        statement = json.loads(content)
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        definition = statement["predicate"]["buildDefinition"]
        return subjects, {
            RECIPE: definition["externalParameters"]["recipe"],
            BUILD_KEY: definition["internalParameters"]["buildKey"],
            BASE_DIGEST: f"sha256:{definition['resolvedDependencies'][0]['digest']['sha256']}",
        }
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        cause = f"its provenance does not read: {error!r}"
        raise CheckFailed(cause, REBUILD_REMEDY, code="document-invalid") from error


def _is_proof(record: BuildRecord, image: ImageUnderTest) -> bool:
    """Return whether the ledger confirms a record: the image was built here, or a trusted signature was valid."""
    return ledger.is_trusted(record.digest, image.settings)


def _local_record(image: ImageUnderTest) -> BuildRecord | None:
    """Return the record of an image in the engine's home. One beside a file elsewhere proves nothing here.

    Raises CheckFailed for a damaged record.
    """
    home = record_path(image.recipe, image.engine).parent.resolve()
    if names_file(image.address) and Path(image.address).resolve().parent != home:
        return None
    return read_record(image.recipe, image.engine, strict=True)


def _require_proof(image: ImageUnderTest, record: BuildRecord | None, signer: str | None) -> str:
    """Compare an image with its record. Raises CheckFailed if it differs, CheckSkipped if the record proves nothing."""
    identity = image.inspection.identity()
    if record is None:
        reason = f"identity {identity}; there is no record of its build here"
        raise CheckSkipped(reason, code="record-missing")
    comparison = f"{_compare_with_record(image, record, signer)}: {identity}"
    if not _is_proof(record, image):
        reason = f"{comparison}; but it was not built here, and it had no trusted signature when it was pulled"
        raise CheckSkipped(reason, code="not-built-here")
    return comparison


def _compare_with_record(image: ImageUnderTest, record: BuildRecord, signer: str | None) -> str:
    """Return how an image relates to a record. Raises CheckFailed if it differs."""
    identity = image.inspection.identity()
    if record.identity != identity:
        cause = f"its identity is {identity}, its build recorded {record.identity}"
        raise CheckFailed(cause, REBUILD_REMEDY, code="digest-mismatch")
    return image.inspection.require_digest(record.digest, signer)


def check_base_pin(image: ImageUnderTest, signer: str | None = None) -> str:
    """Return which base an image is on.

    Raises CheckFailed if the recipe here pins another, CheckSkipped if no pin is here. Pins change: a signed image may
    be on an earlier base, or on one that only its builder has resolved.
    """
    digest = image.labels[BASE_DIGEST]
    if image.recipe not in recipe_names():
        reason = f"its base is {digest}; no recipe {image.recipe!r} here to compare it with"
        raise CheckSkipped(reason, code="recipe-missing")
    base = load_recipe(image.recipe).base
    pin = pin_of_base(image)
    if pin is None:
        reason = f"its base is a test base in place of {base.reference}, {digest}; there are no pins of test bases here"
        raise CheckSkipped(reason, code="stand-ins-missing")
    if digest != pin.digest and signer:
        return f"{base.reference}, {digest} as {signer} signed it; the recipe here pins {pin.digest}"
    if digest != pin.digest:
        cause = f"its base is {digest}, pinned is {pin.digest}"
        remedy = f"check out the commit that it names, or {REBUILD_REMEDY}"
        raise CheckFailed(cause, remedy, code="base-mismatch")
    replaced = "a test base in place of " if image.labels[STAND_IN] == "true" else ""
    return f"{replaced}{base.reference}, {digest} as pinned"
