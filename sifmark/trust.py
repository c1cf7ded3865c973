"""The stage `trust`: is an image what was built, on the pinned base, by whom it says, with nothing added?"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sifmark.build import record_of
from sifmark.engines import Refuted, signature_counts
from sifmark.errors import AGAIN
from sifmark.execute import names_file
from sifmark.plan import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, STAND_IN
from sifmark.recipe import load_recipe, recipe_names
from sifmark.run import side_by_side
from sifmark.settings import settings
from sifmark.subject import Skipped, Subject, stand_in_of


@dataclass(frozen=True)
class Signature:
    """Whether an image is signed, and by which of the keys that this site trusts."""

    there: bool
    by: str | None

    def __str__(self) -> str:
        known = "nobody says whose: no keys in sifmark.toml" if self.there else "none"
        return f"by {self.by}" if self.by else known


def trust(image: Subject) -> list[str]:
    """Is it what was built, on the base that the recipe pins, with nothing added that would run?"""
    image.evidence.require_alone()
    with side_by_side(1) as pool:  # Apptainer reads all of it too
        asked = pool.submit(signature, image)
        image.evidence.identity()
        told = asked.result()
    base, recorded = (_or_signed(check, image, told.by is not None) for check in (matches_pin, _matches_record))
    return [recorded, f"base: {base}", f"provenance: {came_from(image) or 'none in it'}", f"signature: {told}"]


def _or_signed(check: Callable[[Subject], str], image: Subject, by_name: bool) -> str:
    """What a check says; where it cannot be made here, a trusted signature stands in for it."""
    try:
        return check(image)
    except Skipped as reason:
        if not by_name:
            raise
        return str(reason)


def signature(image: Subject) -> Signature:
    """By whom it is signed. Raises Refuted where a signature is asked for and none holds."""
    there = image.evidence.signed()
    looked_at = signature_counts(image.to_be_signed, lambda: there)
    return Signature(there, image.evidence.signer(settings().keys) if looked_at else None)


def came_from(image: Subject) -> str | None:
    """What its provenance is of; None where it has none. Raises Refuted where that is not this image and its labels."""
    if (found := image.evidence.provenance()) is None:
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
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Refuted(f"its provenance does not read: {error!r}", AGAIN) from error
    if stated != subjects:
        raise Refuted("its provenance is of another image", AGAIN)
    for label, claim in claims.items():
        if image.labels[label] != claim:
            raise Refuted(f"its provenance says {claim}, its label {label} says {image.labels[label]}", AGAIN)
    return f"of this image; SBOM: {', '.join(sorted(image.evidence.sboms())) or 'none'}"


def _matches_record(image: Subject) -> str:
    identity = image.evidence.identity()
    path = _record_beside(image)
    if not path.is_file():
        raise Skipped(f"identity {identity}; no record of its build is here to hold it against")
    try:
        record = json.loads(path.read_text())
        recorded, digest = record["identity"], record["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refuted(f"its build record {path} is damaged: {error}", AGAIN) from error
    if recorded != identity:
        raise Refuted(f"its identity is {identity}, its build recorded {recorded}", AGAIN)
    return f"{image.evidence.require_digest(digest)}: {identity}"


def _record_beside(image: Subject) -> Path:
    """A file's record lies beside it, wherever it is; an engine's own images have theirs in the folder of images."""
    record = record_of(image.recipe, image.engine)
    return Path(image.address).with_name(record.name) if names_file(image.address) else record


def matches_pin(image: Subject) -> str:
    """Say which base it is on. Raises Refuted where the recipe here pins another, Skipped where none is here."""
    digest, platform = image.labels[BASE_DIGEST], image.labels[PLATFORM]
    if image.recipe not in recipe_names():
        raise Skipped(f"its base is {digest}; no recipe {image.recipe!r} here to hold it against")
    base = load_recipe(image.recipe).base
    stand_in = image.labels[STAND_IN] == "true"
    if stand_in and not settings().stand_in_pins.is_file():
        raise Skipped(f"its base is a stand-in for {base.reference}, {digest}; no pins of stand-ins are here")
    pinned = stand_in_of(base, platform).get("digest") if stand_in else base.digests.get(platform)
    if digest != pinned:
        raise Refuted(f"its base is {digest}, pinned is {pinned}", AGAIN)
    return f"{'a stand-in for ' if stand_in else ''}{base.reference}, {digest} as pinned"
