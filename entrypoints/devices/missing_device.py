"""Why a device cannot be used, in place of a framework's traceback."""

from __future__ import annotations

import contextlib
import glob
import platform
from pathlib import Path

from entrypoints.contract.statuses import RunError
from entrypoints.metering.nvidia.conditions import why_no_gpu

MODULES = Path("/sys/module")


def require_files(pattern: str, flag: str) -> None:
    """Raise RunError (`no_device`) if no device file matches `pattern`; `flag` is the container option that maps it."""
    if not glob.glob(pattern):  # noqa: PTH207 - a pattern from the root
        raise RunError("no_device", f"there is no {pattern} here; in a container: was it started with {flag}?")


def kernel_driver(*names: str) -> str:
    """Return the loaded driver and its version, or the kernel's version if the driver has none."""
    for name in names:
        with contextlib.suppress(OSError):
            return f"{name} {(MODULES / name / 'version').read_text().strip()}"
    loaded = [name for name in names if (MODULES / name).is_dir()]
    return f"{' or '.join(loaded or names)} of Linux {platform.release()}{'' if loaded else ', which is not loaded'}"


def no_gpu(amd: bool, framework: str, built_for: str | None) -> RunError:
    """Return why a framework built for a version of CUDA or ROCm finds no GPU. Raises RunError if device files lack."""
    if built_for is None:
        return RunError("no_device", f"{framework} is a build for the CPU: it knows neither CUDA nor ROCm")
    require_files("/dev/kfd" if amd else "/dev/nvidia[0-9]*", "--bind /dev/kfd --bind /dev/dri" if amd else "--nv")
    if amd:
        access = "may this user read /dev/kfd and /dev/dri/renderD* (groups render and video)?"
        age = f"If so: is {kernel_driver('amdgpu')} within two releases of ROCm {built_for}, which AMD supports?"
        return RunError("no_device", f"{framework}, built for ROCm {built_for}, finds no GPU: {access} {age}")
    why = why_no_gpu(built_for) or "is CUDA_VISIBLE_DEVICES empty?"
    return RunError("no_device", f"{framework}, built for CUDA {built_for}, finds no GPU: {why}")
