"""The pins of the stand-in bases, which `ci/setup/stand-in` generates for hosts that reach no public registry."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sifmark.core.errors import SifmarkError
from sifmark.core.schemas import check_document
from sifmark.recipes.recipe import Base


def read_stand_in_pins(path: Path) -> dict[str, Any]:
    """Return the generated pins of the stand-in bases. Raises SifmarkError if they are missing or cannot be read."""
    try:
        pins: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        cause = f"no test bases in the cache ({path} is missing)"
        remedy = "build on the vendors' bases: --bases pinned; or make test bases: ci/setup/stand-in"
        raise SifmarkError(cause, remedy, code="stand-ins-missing") from None
    except ValueError as error:
        raise SifmarkError(f"{path}: {error}", "make it again: ci/setup/stand-in", code="document-invalid") from error
    check_document("pins-1.0", pins, str(path))
    return pins


def stand_in_pin(pins: Mapping[str, Any], base: Base, platform: str) -> Mapping[str, Any] | None:
    """Return the pin of the stand-in for a base on a platform, or None if there is none."""
    pin: Mapping[str, Any] | None = pins["bases"].get(base.reference, {}).get(platform)
    return pin
