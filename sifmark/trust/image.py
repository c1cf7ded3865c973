"""An image that is to be verified, and what its stages share."""

import re
from dataclasses import dataclass

from sifmark.core.settings import settings
from sifmark.engines import CheckFailed, Engine, ImageInspection
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


class CheckSkipped(Exception):  # noqa: N818 - it is no error
    """A stage cannot be judged here."""


@dataclass(frozen=True)
class ImageUnderTest:
    """An image whose labels have the form that ours have."""

    engine: Engine
    address: str
    inspection: ImageInspection
    to_be_signed: bool = False  # by one of the trusted keys

    @property
    def labels(self) -> dict[str, str]:
        """What it says of itself."""
        return self.inspection.labels

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
        named = self.inspection.workload
        return (named,) if named in self.workloads else self.workloads


def image_under_test(tool: Engine, address: str, signed: bool) -> ImageUnderTest:
    """An image of an engine. Raises Refuted where its labels are not of the form that ours have."""
    inspection = tool.inspect(address)
    for key, form in _CLAIMS.items():
        if re.fullmatch(form, inspection.labels.get(key, "")) is None:
            raise CheckFailed(
                f"its label {key} is {inspection.labels.get(key)!r}", "is it an image that sifmark built?"
            )
    return ImageUnderTest(tool, address, inspection, signed or settings().require_signature)


@dataclass(frozen=True)
class BasePin:
    """What is stated here of a base like an image's; None for each that nothing states."""

    digest: str | None
    framework_version: str | None  # or how it begins


def pin_of_base(image: ImageUnderTest) -> BasePin | None:
    """By the recipe here, or by the pins that came with a stand-in; None where no such pins are here."""
    base, platform = load_recipe(image.recipe).base, image.labels[PLATFORM]
    if image.labels[STAND_IN] == "false":
        return BasePin(base.digests.get(platform), base.framework_version)
    if not settings().stand_in_pins.is_file():
        return None
    stated = stand_in_pin(stand_in_pins(settings().stand_in_pins), base, platform) or {}
    return BasePin(stated.get("digest"), stated.get("framework_version"))
