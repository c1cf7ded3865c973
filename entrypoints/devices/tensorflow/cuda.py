"""GPUs of NVIDIA and AMD, through TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from entrypoints.devices.absence import not_yet, require_files
from entrypoints.statuses import RunError


def prepare(*_: object) -> None:
    """Raises RunError: `no_device` where there is no GPU, `unsupported` where there is one."""
    found = tf.config.list_physical_devices("GPU")
    if not found:
        amd = tf.test.is_built_with_rocm()
        require_files("/dev/kfd" if amd else "/dev/nvidia0", "--rocm" if amd else "--nv")
        raise RunError("no_device", f"TensorFlow {tf.__version__} finds no GPU")
    raise not_yet(found[0].name)
