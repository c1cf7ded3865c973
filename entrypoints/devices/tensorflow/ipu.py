"""Graphcore IPUs, through Graphcore's build of TensorFlow."""

from __future__ import annotations

from entrypoints.devices.absence import not_yet
from entrypoints.statuses import RunError

try:
    from tensorflow.python import ipu  # noqa: F401 - only Graphcore's build has it
except ImportError as absent:
    raise RunError("no_device", f"this TensorFlow is not Graphcore's: {absent}") from absent


def prepare(*_: object) -> None:
    """Raises RunError (`unsupported`)."""
    raise not_yet("an IPU")
