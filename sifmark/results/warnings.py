"""Reasons not to publish a result, in words."""

from collections.abc import Iterator
from typing import Any

DO_NOT_PUBLISH = "Do not publish this number."


def warnings_of(document: dict[str, Any]) -> Iterator[str]:
    """Yield what makes a valid result unfit for publication."""
    if document["provenance"]["stand_in"]:
        yield f"this image has a test base, not that of the vendor. {DO_NOT_PUBLISH}"
    if document["provenance"].get("simulated"):
        yield f"the device was simulated. {DO_NOT_PUBLISH}"
    steadiness = document["steadiness"]
    if steadiness["steady"] is False:
        drift = steadiness["drift"]["value"]
        change = "" if drift is None else f" by {drift:+.1%}"
        yield f"step times changed{change} over the timed window. Warm up for longer, or run for longer"
