"""The stage `trust`: is an image what was built, on the pinned base, by whom it says, with nothing added?"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sifmark.build import ledger
from sifmark.build.image import record_path
from sifmark.core.errors import REBUILD_REMEDY
from sifmark.core.process import thread_pool
from sifmark.core.settings import settings
from sifmark.engines import CheckFailed, should_check_signature
from sifmark.engines.locate import names_file
from sifmark.recipes.plan import BASE_DIGEST, BUILD_KEY, RECIPE, STAND_IN
from sifmark.recipes.recipe import load_recipe, recipe_names
from sifmark.trust.image import CheckSkipped, ImageUnderTest, pin_of_base


@dataclass(frozen=True)
class SignatureStatus:
    """Whether an image is signed, and by which of the keys that this site trusts."""

    there: bool
    by: str | None

    def __str__(self) -> str:
        known = "nobody says whose: no keys in sifmark.toml" if self.there else "none"
        return f"by {self.by}" if self.by else known


def check_trust(image: ImageUnderTest) -> list[str]:
    """Is it what was built, on the base that the recipe pins, with nothing added that would run?

    The record of a build here is a proof of its own. Everything else must be signed where this site trusts keys.
    """
    record = _record_that_counts(image)
    to_be_signed = image.to_be_signed or (bool(settings().keys) and not (record and record.is_proof))
    with thread_pool(1) as pool:  # Apptainer reads all of it too
        asked = pool.submit(check_signature, image, to_be_signed)
        image.inspection.identity()
        told = asked.result()
    checks = (
        partial(check_base_pin, image, told.by),
        partial(_require_proof, image, record, told.by),
        partial(_provenance, image),
    )
    base, recorded, provenance = _each(checks, told.by)
    return [recorded, f"base: {base}", f"provenance: {provenance}", f"signature: {told}"]


def require_unchanged(image: ImageUnderTest) -> None:
    """Raise SifmarkError unless an image of the engine's own, or a copy, is as it was built here.

    A trusted signature, now or when it was fetched, says so too.
    """
    record = _read_record(record_path(image.recipe, image.engine))
    try:
        if record is None or not record.is_proof:
            raise CheckFailed(f"{image.recipe} was not built here, nor fetched with a trusted signature", "")
        _hold_against(image, record, None)
    except CheckFailed as reason:
        try:
            image.inspection.signer(settings().keys)
        except CheckFailed as unsigned:
            told = f"{reason.cause}, and {unsigned.cause}"
            raise CheckFailed(told, "build it (--force), or fetch it with --key") from reason


def is_own_build(image: ImageUnderTest) -> bool:
    """Whether its digest is the one recorded of an image that was built here, or fetched with a trusted signature."""
    with suppress(CheckFailed):
        record = _record_that_counts(image)
        return record is not None and record.is_proof and bool(_hold_against(image, record, None))
    return False


def _each(checks: Iterable[Callable[[], str]], signer: str | None) -> list[str]:
    """What checks say; where one cannot be made here, a trusted signature stands in for it.

    All are made before Skipped is raised: what an image says of itself may keep one from being made, and no other.
    """
    said: list[str] = []
    not_made: list[CheckSkipped] = []
    for check in checks:
        try:
            said.append(check())
        except CheckSkipped as reason:
            said.append(str(reason))
            not_made.append(reason)
    if not_made and signer is None:
        raise not_made[0]
    return said


def check_signature(image: ImageUnderTest, to_be_signed: bool) -> SignatureStatus:
    """By whom it is signed. Raises Refuted where a signature is asked for and none holds."""
    there = image.inspection.signed()
    looked_at = should_check_signature(to_be_signed, lambda: there)
    return SignatureStatus(there, image.inspection.signer(settings().keys) if looked_at else None)


def _provenance(image: ImageUnderTest) -> str:
    return check_provenance(image) or "none in it"


def check_provenance(image: ImageUnderTest) -> str | None:
    """What its provenance is of; None where it has none. Raises Refuted where that is not this image and its labels."""
    if (found := image.inspection.provenance()) is None:
        return None
    statement, subjects = found
    try:
        told = json.loads(statement)
        stated = {subject["name"]: subject["digest"]["sha256"] for subject in told["subject"]}
        definition = told["predicate"]["buildDefinition"]
        claims = {
            RECIPE: definition["externalParameters"]["recipe"],
            BUILD_KEY: definition["internalParameters"]["buildKey"],
            BASE_DIGEST: f"sha256:{definition['resolvedDependencies'][0]['digest']['sha256']}",
        }
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise CheckFailed(f"its provenance does not read: {error!r}", REBUILD_REMEDY) from error
    if stated != subjects:
        raise CheckFailed("its provenance is of another image", REBUILD_REMEDY)
    for label, claim in claims.items():
        if (said := image.labels.get(label)) != claim:
            raise CheckFailed(f"its provenance says {claim}, its label {label} says {said}", REBUILD_REMEDY)
    return f"of this image; SBOM: {', '.join(sorted(image.inspection.sboms())) or 'none'}"


@dataclass(frozen=True)
class _Record:
    """What was written down beside an image when it was built or fetched."""

    identity: str
    digest: str

    @property
    def is_proof(self) -> bool:
        """Whether we know of what it tells that it was built here, or that a trusted signature held."""
        return ledger.is_trusted(self.digest)


def _record_that_counts(image: ImageUnderTest) -> _Record | None:
    """The record of an image in the folder of images; one elsewhere is of another place."""
    path = record_path(image.recipe, image.engine)
    here = not names_file(image.address) or Path(image.address).resolve().parent == path.parent.resolve()
    return _read_record(path) if here else None


def _read_record(path: Path) -> _Record | None:
    """A record; None where there is none. Raises Refuted for a damaged one."""
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text())
        return _Record(str(record["identity"]), str(record["digest"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckFailed(f"the record {path} is damaged: {error!r}", REBUILD_REMEDY) from error


def _require_proof(image: ImageUnderTest, record: _Record | None, signer: str | None) -> str:
    """How it stands to its record. Raises Refuted where it differs, Skipped where the record proves nothing."""
    identity = image.inspection.identity()
    if record is None:
        raise CheckSkipped(f"identity {identity}; no record of its build is here to hold it against")
    told = f"{_hold_against(image, record, signer)}: {identity}"
    if not record.is_proof:
        raise CheckSkipped(f"{told}; but it was not built here, and no trusted signature held when it was fetched")
    return told


def _hold_against(image: ImageUnderTest, record: _Record, signer: str | None) -> str:
    """How an image stands to a record. Raises Refuted where it differs."""
    identity = image.inspection.identity()
    if record.identity != identity:
        raise CheckFailed(f"its identity is {identity}, its build recorded {record.identity}", REBUILD_REMEDY)
    return image.inspection.require_digest(record.digest, signer)


def check_base_pin(image: ImageUnderTest, signer: str | None = None) -> str:
    """Say which base it is on. Raises Refuted where the recipe here pins another, Skipped where none is here.

    Pins move on: a signed image may be on an earlier base, or on one that only its builder has resolved.
    """
    digest = image.labels[BASE_DIGEST]
    if image.recipe not in recipe_names():
        raise CheckSkipped(f"its base is {digest}; no recipe {image.recipe!r} here to hold it against")
    base = load_recipe(image.recipe).base
    pin = pin_of_base(image)
    if pin is None:
        raise CheckSkipped(f"its base is a stand-in for {base.reference}, {digest}; no pins of stand-ins are here")
    if digest != pin.digest and signer:
        return f"{base.reference}, {digest} as {signer} signed it; the recipe here pins {pin.digest}"
    if digest != pin.digest:
        raise CheckFailed(
            f"its base is {digest}, pinned is {pin.digest}", f"check out the commit that it names, or {REBUILD_REMEDY}"
        )
    return f"{'a stand-in for ' if image.labels[STAND_IN] == 'true' else ''}{base.reference}, {digest} as pinned"
