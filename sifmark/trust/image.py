"""An image that is to be verified, and what its stages share."""

import re
from dataclasses import dataclass

from sifmark.core.settings import settings
from sifmark.engines import Engine, Evidence, Refuted
from sifmark.recipes.plan import (
    BASE_DIGEST,
    BUILD_KEY,
    PLATFORM,
    RECIPE,
    STAND_IN,
    WORKLOADS,
    stand_in_pin,
    stand_in_pins,
)
from sifmark.recipes.recipe import load_recipe

_DIGEST = r"sha256:[0-9a-f]{64}"
# What a label must look like before anything is done with it.
_CLAIMS = {
    RECIPE: r"[a-z][a-z0-9_]*",
    WORKLOADS: r"[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*",
    PLATFORM: r"[a-z0-9_]+",
    STAND_IN: r"true|false",
    BUILD_KEY: _DIGEST,
    BASE_DIGEST: _DIGEST,
}


class Skipped(Exception):  # noqa: N818 - it is no error
    """A stage cannot be judged here."""


@dataclass(frozen=True)
class Subject:
    """An image whose labels have the form that ours have."""

    engine: Engine
    address: str
    evidence: Evidence
    to_be_signed: bool = False  # by one of the trusted keys

    @property
    def labels(self) -> dict[str, str]:
        """What it says of itself."""
        return self.evidence.labels

    @property
    def recipe(self) -> str:
        """The recipe that the image says it is of."""
        return self.labels[RECIPE]

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that the image says it has."""
        return tuple(sorted(self.labels[WORKLOADS].split(",")))

    @property
    def meant(self) -> tuple[str, ...]:
        """The workload that the image is named for, else all of them."""
        named = self.evidence.workload
        return (named,) if named in self.workloads else self.workloads


def subject_of(tool: Engine, address: str, signed: bool) -> Subject:
    """An image of an engine. Raises Refuted where its labels are not of the form that ours have."""
    evidence = tool.evidence(address)
    for key, form in _CLAIMS.items():
        if re.fullmatch(form, evidence.labels.get(key, "")) is None:
            raise Refuted(f"its label {key} is {evidence.labels.get(key)!r}", "is it an image that sifmark built?")
    return Subject(tool, address, evidence, signed or settings().require_signature)


@dataclass(frozen=True)
class Pin:
    """What is stated here of a base like an image's; None for each that nothing states."""

    digest: str | None
    framework_version: str | None  # or how it begins


def pinned_for(image: Subject) -> Pin | None:
    """By the recipe here, or by the pins that came with a stand-in; None where no such pins are here."""
    base, platform = load_recipe(image.recipe).base, image.labels[PLATFORM]
    if image.labels[STAND_IN] == "false":
        return Pin(base.digests.get(platform), base.framework_version)
    if not settings().stand_in_pins.is_file():
        return None
    stated = stand_in_pin(stand_in_pins(settings().stand_in_pins), base, platform) or {}
    return Pin(stated.get("digest"), stated.get("framework_version"))
