"""What this image is, as the build wrote it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

PATH = Path(__file__).resolve().parent.parent / "image.json"
OUTSIDE = ("pytorch", "cpu")  # what a checkout runs
ABSENT = "not run from an image: there is no image.json beside the entrypoints"


def read(path: Path = PATH) -> Mapping[str, Any] | None:
    """The build's description of this image, or None in a checkout (`ABSENT` is the reason)."""
    if not path.is_file():
        return None
    image: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return image


def target(image: Mapping[str, Any] | None) -> tuple[str, str]:
    """Framework and device of an image, or of a checkout."""
    return (image["framework"], image["device"]) if image else OUTSIDE
