"""Graphcore IPUs, through PopTorch."""

from __future__ import annotations

from entrypoints.devices.absence import not_yet
from entrypoints.statuses import RunError

try:
    import poptorch
except ImportError as absent:
    raise RunError("no_device", f"PopTorch cannot be imported: {absent}") from absent


def prepare(*_: object) -> None:
    """Raises RunError: `no_device` where there is no IPU, `unsupported` where there is one."""
    if not poptorch.ipuHardwareIsAvailable():
        raise RunError("no_device", "PopTorch finds no IPU: are IPUOF_CONFIG_PATH or IPUOF_VIPU_API_HOST set?")
    raise not_yet("an IPU")
