"""An image that is being verified, and what its checks share."""

import re
from dataclasses import dataclass, field

from sifmark.core.settings import Settings
from sifmark.engines import CheckFailed, Engine, ImageInspection
from sifmark.recipes.base import read_stand_in_pins, stand_in_pin
from sifmark.recipes.labels import BASE_DIGEST, BUILD_KEY, PLATFORM, RECIPE, STAND_IN, WORKLOADS
from sifmark.recipes.recipe import load_recipe

_DIGEST = r"sha256:[0-9a-f]{64}"
_NAME = r"[a-z][a-z0-9_]{0,99}"
# What labels must look like before anything is done with them.
_LABEL_FORMS = {
    RECIPE: _NAME,
    WORKLOADS: rf"{_NAME}(,{_NAME}){{0,999}}",
    PLATFORM: r"[a-z0-9_]{1,100}",
    STAND_IN: r"true|false",
    BUILD_KEY: _DIGEST,
    BASE_DIGEST: _DIGEST,
}


class CheckSkipped(Exception):  # noqa: N818 - the outcome of a check, not a fault of the program
    """A check cannot be made here. `code` names the kind of reason, as of errors."""

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class ImageUnderTest:
    """An image whose labels have the form of ours."""

    engine: Engine
    address: str
    inspection: ImageInspection
    settings: Settings = field(compare=False)
    signature_required: bool = False  # by one of the trusted keys

    @property
    def labels(self) -> dict[str, str]:
        """The image's labels: what it says of itself."""
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
    def named_workloads(self) -> tuple[str, ...]:
        """The workload that the image is named for, else all of them."""
        workload = self.inspection.workload
        return (workload,) if workload in self.workloads else self.workloads


def image_under_test(engine: Engine, address: str, settings: Settings, signed: bool = False) -> ImageUnderTest:
    """Inspect an image. With `signed` a trusted signature is required, as it is if the settings say so.

    Raises CheckFailed if its labels do not have the form of ours.
    """
    inspection = engine.inspect(address)
    for label, form in _LABEL_FORMS.items():
        if re.fullmatch(form, inspection.labels.get(label, "")) is None:
            cause = f"its label {label} is {inspection.labels.get(label)!r:.100}"
            raise CheckFailed(cause, "is it an image that sifmark built?", code="not-sifmark-image")
    return ImageUnderTest(engine, address, inspection, settings, signed or settings.require_signature)


@dataclass(frozen=True)
class BasePin:
    """What is pinned here of a base like an image's; None for what is not stated."""

    digest: str | None
    framework_version: str | None  # or how it begins


def pin_of_base(image: ImageUnderTest) -> BasePin | None:
    """Return the pin of an image's base: the recipe's, or of a stand-in the generated one.

    None if this host has no pins of stand-ins.
    """
    base, platform = load_recipe(image.recipe).base, image.labels[PLATFORM]
    if image.labels[STAND_IN] == "false":
        return BasePin(base.digests.get(platform), base.framework_version)
    path = image.settings.stand_in_pins
    if not path.is_file():
        return None
    pin = stand_in_pin(read_stand_in_pins(path), base, platform) or {}
    return BasePin(pin.get("digest"), pin.get("framework_version"))
