"""GPUs of NVIDIA and AMD, both called GPU in TensorFlow. This has not yet been run on one."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import tensorflow as tf

from entrypoints.contract.session import (
    Batch,
    BatchPartition,
    DeviceConditions,
    DeviceFacts,
    Rule,
    SamplerRule,
    Usage,
)
from entrypoints.contract.statuses import RunError
from entrypoints.devices.missing_device import no_gpu
from entrypoints.devices.selection import require_precision
from entrypoints.devices.tensorflow.shared.session import TensorFlowSession, execution
from entrypoints.devices.tensorflow.strategies.group import Group
from entrypoints.metering.amd.conditions import conditions as amd_conditions
from entrypoints.metering.amd.conditions import partition_mode
from entrypoints.metering.nvidia.conditions import conditions as nvidia_conditions
from entrypoints.system.facts import MIB
from entrypoints.system.gpu_software import driver_library
from entrypoints.workloads.tensorflow import lstm
from entrypoints.workloads.tensorflow.build import Objective
from entrypoints.workloads.tensorflow.layers import Convolution, compute_in

AMPERE = (8, 0)  # compute capability: the first with TF32 and bf16
AMD = tf.test.is_built_with_rocm()
DIES_OF_A_MODULE = ("MI250", "MI200")  # TensorFlow sees each of the two dies of a module
HARDWARE = "/device:GPU:0"
HALF = {"bf16": tf.bfloat16, "fp16": tf.float16}


def libraries() -> dict[str, str | None]:
    """Return the versions of the libraries below TensorFlow that it was built for, and of NVIDIA's driver library."""
    built = tf.sysconfig.get_build_info()
    names = ("rocm", "miopen") if AMD else ("cuda", "cudnn")
    versions = {name: str(built[f"{name}_version"]) for name in names if f"{name}_version" in built}
    return {**versions, "libcuda": None if AMD else driver_library()}


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Use the rank's GPU, or the first one, let its memory grow, and set whether it may use TF32.

    Raises RunError: `no_device` if there is no GPU, `unsupported` if this session does not support the precision.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        built_for = tf.sysconfig.get_build_info().get("rocm_version" if AMD else "cuda_version")
        raise no_gpu(AMD, f"TensorFlow {tf.__version__}", built_for and str(built_for))
    tf.config.set_visible_devices(gpus[:1], "GPU")
    tf.config.experimental.set_memory_growth(gpus[0], True)
    description = details()
    require_precision(precision, precisions(description), str(description.get("device_name", gpus[0].name)))
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    tf.config.threading.set_intra_op_parallelism_threads(threads)


def details() -> Mapping[str, Any]:
    """Return what TensorFlow reports of the first GPU: `device_name`, and `compute_capability` of NVIDIA's."""
    description: Mapping[str, Any] = tf.config.experimental.get_device_details(tf.config.get_visible_devices("GPU")[0])
    return description


def precisions(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the supported precisions. On AMD's, what TensorFlow computes in half precision is not known.

    TensorFlow 2.6 has no LSTM of cuDNN in bf16, 2.21 has one; the version between them that brought it is not known.
    """
    if AMD:
        return ("fp32",)
    newer = description.get("compute_capability", (0, 0)) >= AMPERE
    half = [name for name, dtype in HALF.items() if dtype.name in types_of("CudnnRNN")]
    return ("fp32", "tf32", *half) if newer else ("fp32", *(name for name in half if name != "bf16"))


def types_of(operation: str) -> Sequence[str]:
    """Return the names of the types that an operation of this TensorFlow takes as `T`."""
    from tensorflow.python.framework import op_def_registry

    attributes = op_def_registry.get(operation).attr
    return [tf.as_dtype(kind).name for each in attributes if each.name == "T" for kind in each.allowed_values.list.type]


def adapt(model: Objective, precision: str, compiled: bool) -> str:
    """Let the layers of a model use what GPUs have, and return what that is. XLA takes no operation of cuDNN."""
    library = None if compiled else lstm.MIOPEN if AMD else lstm.CUDNN
    used = {}
    for layer in model.submodules:
        if isinstance(layer, Convolution) and layer.groups > 1:
            layer.groups_together = used["groups convolved together"] = True
        elif isinstance(layer, lstm.Lstm) and library:
            layer.library = library
            used[f"LSTM by {'MIOpen' if AMD else 'cuDNN'}"] = True
    if precision in HALF:
        compute_in(model, HALF[precision])
        used[f"layers and weights of inference in {precision}, weights of training in fp32"] = True
    return "".join(f", {what}" for what in used)


def free_mib() -> float | None:
    """Return None: TensorFlow does not report it."""
    return None


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> GpuSession:
    """Return a session that takes over `model`. Raises RunError (`unsupported`) for a sampler in half precision."""
    if precision in HALF and isinstance(rule, SamplerRule):
        raise RunError("unsupported", f"--precision {precision}: chains are sampled in single precision in TensorFlow")
    name = str(details().get("device_name", "unknown"))
    mode = partition_mode() if AMD else None
    die = AMD and (mode or any(module in name for module in DIES_OF_A_MODULE))
    name += f" ({mode})" if mode else ""  # the vendor's peaks are for whole GPUs
    vendor = "AMD" if AMD else "NVIDIA"
    by_xla = bool(compiled)
    how = f"{execution(by_xla)}{adapt(model, precision, by_xla)}; the host waits for each call"
    how += f" of {partition.device_iterations} updates" if partition and partition.device_iterations > 1 else ""
    facts = DeviceFacts("cuda", vendor, name, 1, "die" if die else "package", None, 1, 1, how, False)
    return GpuSession(model, rule, by_xla, facts, HARDWARE, partition, group, HALF.get(precision))


class GpuSession(TensorFlowSession):
    """A session on a GPU. TensorFlow has no events, so a call is done when one of its numbers was read back."""

    def __init__(
        self,
        model: Objective,
        rule: Rule,
        compiled: bool,
        facts: DeviceFacts,
        hardware: str,
        partition: BatchPartition | None = None,
        group: Group | None = None,
        dtype: tf.DType | None = None,
    ) -> None:
        self.facts, self.hardware = facts, hardware
        self.memory = hardware.rpartition("device:")[2]
        tf.config.experimental.reset_memory_stats(self.memory)
        self.peaks: list[float] = []  # MiB, until the timed window and in it
        super().__init__(model, rule, compiled, partition, group, dtype)

    def to_device(self, batch: Batch) -> Batch:
        """Return the batch on the GPU."""
        return batch._replace(
            inputs=self.tensors_to_device(batch.inputs), targets=self.tensors_to_device(batch.targets)
        )

    def tensors_to_device(self, tensors: Any) -> Any:
        """Return a tensor, or each of a tuple, on the GPU."""
        if isinstance(tensors, tuple):
            return tuple(map(self.tensors_to_device, tensors))
        if not isinstance(tensors, tf.Tensor) or tensors.device.endswith(self.hardware):
            return tensors
        with tf.device(self.hardware):
            return tf.identity(tensors)

    def wait_for(self, result: Any) -> Any:
        """Return `result` when the GPU has computed it. The GPU has one queue, so a copy to the host comes last."""
        first = tf.nest.flatten(result)[0]
        tf.reshape(first, [-1])[:1].numpy()
        return result

    def usage(self) -> Usage:
        """Return the peaks of TensorFlow's allocator."""
        peaks = [*self.peaks, self.current_peak()]
        uncounted = "TensorFlow does not report reserved memory", "TensorFlow does not count transfers"
        return Usage(max(peaks), *uncounted, peaks[1] if len(peaks) > 1 else "the timed window did not begin")

    def reset_peak_memory(self) -> None:
        """Count peaks from here on."""
        self.peaks.append(self.current_peak())
        tf.config.experimental.reset_memory_stats(self.memory)

    def current_peak(self) -> float:
        """Return the most MiB that were allocated at one time since the last restart."""
        return float(tf.config.experimental.get_memory_info(self.memory)["peak"] / MIB)

    def conditions(self) -> DeviceConditions:
        """Return the conditions that the vendor's management library reports."""
        return DeviceConditions(dict((amd_conditions if AMD else nvidia_conditions)(None)), None)
