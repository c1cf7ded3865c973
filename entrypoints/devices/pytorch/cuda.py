"""GPUs of NVIDIA and AMD, both called cuda in PyTorch."""

from __future__ import annotations

import functools
import re
from typing import Mapping

import torch
from torch import nn

from entrypoints.contract.choices import FP8
from entrypoints.contract.points import LastLevelCache
from entrypoints.contract.session import Batch, BatchPartition, DeviceFacts, Executed, Rule
from entrypoints.contract.statuses import RunError
from entrypoints.devices.missing_device import no_gpu
from entrypoints.devices.pytorch.shared import gpu, rocm
from entrypoints.devices.pytorch.shared.attention import AttentionChoice
from entrypoints.devices.pytorch.shared.compiling import require_triton
from entrypoints.devices.pytorch.shared.inference import fusing, grouping
from entrypoints.devices.pytorch.shared.session import AUTOCAST
from entrypoints.devices.pytorch.shared.threads import compute_on
from entrypoints.devices.pytorch.strategies.group import Group
from entrypoints.devices.selection import require_precision
from entrypoints.metering.amd.conditions import conditions as amd_conditions
from entrypoints.metering.nvidia.conditions import conditions as nvidia_conditions
from entrypoints.system.gpu_software import driver_library
from entrypoints.workloads.pytorch import float8
from entrypoints.workloads.pytorch.build import Objective

AMPERE = (8, 0)  # compute capability: the first with TF32 and bf16
ADA = (8, 9)  # and the first with FP8
AMD = torch.version.hip is not None
# The first PyTorch with kernels of an LSTM's cell in bf16, and the first that leaves it to cuDNN, which needs a version
# with it too: github.com/pytorch/pytorch, pull requests 116927 and 164411.
BF16_LSTM, BF16_LSTM_OF_CUDNN, CUDNN_WITH_BF16_LSTM = (2, 3), (2, 10), 91300
# Compute units of a die distinguish MI250 and MI250X, for which drivers have one name. PyTorch shows each die.
UNITS_OF = {104: "AMD Instinct MI250", 110: "AMD Instinct MI250X"}
BUILT_FOR = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<only>[af]?)")
# Compute units of MI308X, MI300A and MI300X, and of the MI350 series; one of several partitions has other numbers.
WHOLE = {"gfx942": (80, 228, 304), "gfx950": (256,)}
WITH_FP8 = ("gfx94", "gfx95", "gfx12")  # MI300, MI350 and RDNA 4
DIES_OF_A_MODULE = ("gfx90a",)  # MI200: PyTorch sees each of the two dies of a module (MI210 has one)


def libraries() -> dict[str, str | None]:
    """Return the versions of the libraries below PyTorch that it was built for, and of NVIDIA's driver library."""
    kernels = torch.backends.cudnn.version()
    return {
        "rocm" if AMD else "cuda": torch.version.hip or torch.version.cuda,
        "miopen" if AMD else "cudnn": str(kernels) if kernels else None,
        "libcuda": None if AMD else driver_library(),
    }


def tune() -> None:
    """Let every kernel be tried. Raises RunError (`unsupported`) if this is no PyTorch for GPUs of AMD."""
    if not AMD:
        raise RunError("unsupported", "--tune-kernels is for GPUs of AMD: leave it out")
    rocm.tune()


def prepare(precision: str, threads: int, _: int = 1) -> None:
    """Set whether PyTorch may use TF32, and the threads that compute on the host.

    Raises RunError: `no_device` if there is no GPU, `unsupported` if this PyTorch has no kernels for the GPU or the GPU
    does not support the precision.
    """
    if not torch.cuda.is_available():
        raise no_gpu(AMD, f"PyTorch {torch.__version__}", torch.version.hip or torch.version.cuda)
    require_kernels(torch.cuda.get_arch_list())
    require_precision(precision, precisions(), torch.cuda.get_device_name())
    if precision == FP8:
        float8.require(torch.device("cuda"))
    compute_on(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if AMD:
        rocm.prepare()
    torch.backends.cudnn.benchmark = True  # the first step finds the fastest convolution for each shape


def require_kernels(built: list[str]) -> None:
    """Raise RunError (`unsupported`) if this PyTorch was not `built` for the GPU's architecture."""
    if AMD:
        own = architecture(torch.cuda.get_device_properties(torch.cuda.current_device()))
        runs = own in ("", *built) or any("generic" in name for name in built)
    else:
        own = "sm_{}{}".format(*torch.cuda.get_device_capability())
        runs = any(_runs(torch.cuda.get_device_capability(), name) for name in built)
    if built and not runs:
        version = torch.version.hip or torch.version.cuda
        raise RunError(
            "unsupported",
            f"{torch.cuda.get_device_name()} is {own}, and PyTorch {torch.__version__}, built for "
            f"{'ROCm' if AMD else 'CUDA'} {version}, has kernels for {', '.join(built)}: take an image on another base",
        )


def _runs(capability: tuple[int, int], built: str) -> bool:
    """Return whether kernels run on a GPU: machine code runs on later GPUs of its generation, PTX on all later ones.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    match = BUILT_FOR.fullmatch(built)
    if match is None:
        return True  # a newer form of name: the first kernel decides
    target = int(match["major"]), int(match["minor"])
    if match["only"] == "a":
        return target == capability
    return target <= capability and ((match["kind"] == "compute" and not match["only"]) or target[0] == capability[0])


def precisions() -> tuple[str, ...]:
    """Return the precisions that the GPU supports. PyTorch has no TF32 on AMD's."""
    if AMD:
        has_fp8 = architecture(torch.cuda.get_device_properties(torch.cuda.current_device())).startswith(WITH_FP8)
        return ("fp32", "bf16", "fp16", *((FP8,) if has_fp8 else ()))
    capability = torch.cuda.get_device_capability()
    if capability < AMPERE:
        return ("fp32", "fp16")
    return ("fp32", "tf32", "bf16", "fp16", *((FP8,) if capability >= ADA else ()))


def free_mib() -> float | None:
    """Return the free memory of the GPU in MiB."""
    return gpu.free_mib(torch.cuda)


def open_session(
    model: Objective,
    rule: Rule,
    precision: str,
    compiled: str | None = None,
    partition: BatchPartition | None = None,
    group: Group | None = None,
) -> gpu.GpuSession:
    """Return a session that takes over `model`.

    Raises RunError (`unsupported`) if it is to be compiled and cannot be compiled here, or if this PyTorch does not
    compute its layers in this precision.
    """
    if compiled:
        require_triton(None if AMD else torch.cuda.get_device_capability())
    note = note_on_lstm(model, precision, torch.backends.cudnn.version() or 0)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    device_facts = facts(properties)
    read_conditions = functools.partial(amd_conditions if AMD else nvidia_conditions, device_facts.identifier)
    kernels = rocm.described() if AMD else None  # before any is found
    if AMD:
        choose_layout(model, precision, group)
    how = (precision, compiled, partition, device_facts, read_conditions, group)
    session = CudaSession(torch.cuda, model, rule, *how)
    for text in filter(None, (note, kernels)):
        session.note(text)
    return session


def served_by(engine: str, devices: int) -> gpu.ServedGpu:
    """Return the devices of an engine that has a model of its own."""
    device_facts = facts(torch.cuda.get_device_properties(torch.cuda.current_device()))
    read_conditions = functools.partial(amd_conditions if AMD else nvidia_conditions, device_facts.identifier)
    return gpu.ServedGpu(device_facts._replace(devices=devices, execution=f"by {engine}"), read_conditions)


class CudaSession(gpu.GpuSession):
    """A session on GPUs of NVIDIA or AMD."""

    chosen: AttentionChoice | None = None  # of the kernel of attention, from the first batch on
    groups: Mapping[grouping.Shape, int] | None = None  # of convolutions that only answer, from the first batch on

    def look_at(self, batch_on_device: Batch, training: bool) -> None:
        """Choose the kernel of attention and groups of convolutions by the first batch; AMD's GPUs keep PyTorch's."""
        if self.chosen is None and not AMD:
            seconds = functools.partial(fusing.fastest, self)
            self.chosen = AttentionChoice(self.model.network, self.hardware, self.dtype, seconds)
            self.chosen.make(batch_on_device.inputs, self.micro_batch, training)
        if self.answers and self.groups is None and not AMD:
            self.groups = self.faster_groups(batch_on_device)
        super().look_at(batch_on_device, training)

    def faster_groups(self, batch_on_device: Batch) -> Mapping[grouping.Shape, int]:
        """Give grouped convolutions the fastest numbers of groups, before anything is compiled, and return them."""
        seconds = functools.partial(fusing.fastest, self)
        with torch.no_grad(), self.autocast():
            fastest = grouping.fastest_groups(self.model, lambda: self.model(batch_on_device.inputs), seconds)
            grouping.merge(self.model, fastest)
        return fastest

    def executed(self) -> Executed:
        """Return how the model was run so far, with the seconds of the kernels of attention that were tried."""
        executed = super().executed()
        tried = self.chosen.said if self.chosen else None
        joined = filter(None, (executed.facts["convolutions"], grouping.described(self.groups or {})))
        facts = {"attention_trials": tried, "convolutions": "; ".join(joined) or None}
        return executed._replace(facts={**executed.facts, **facts})

    def close(self) -> None:
        """Release the model, and the order of kernels."""
        if self.chosen:
            self.chosen.close()
        super().close()

    def last_level_cache(self) -> LastLevelCache | None:
        """Return the L2 cache of a GPU of NVIDIA; those of AMD have caches behind it that PyTorch does not name."""
        properties = None if AMD else torch.cuda.get_device_properties(self.hardware)
        size = getattr(properties, "L2_cache_size", 0)  # old ones lack it, as PyTorch 1.13
        return LastLevelCache(float(size), "the driver: L2_cache_size") if size else None


def note_on_lstm(model: nn.Module, precision: str, cudnn: int) -> str | None:
    """Return what a result says of LSTMs in bf16, which cuDNN does not compute before some version; None if it does.

    Raises RunError (`unsupported`) if this PyTorch does not compute them at all.
    """
    if precision != "bf16" or not any(isinstance(layer, nn.LSTM) for layer in model.modules()):
        return None
    if torch.__version__ < BF16_LSTM:
        raise RunError(
            "unsupported",
            f"--precision bf16: PyTorch {torch.__version__} computes no LSTM in bf16 on GPUs, from 2.3 on it does. "
            "Take --precision fp16 or fp32",
        )
    if AMD or (torch.__version__ >= BF16_LSTM_OF_CUDNN and cudnn >= CUDNN_WITH_BF16_LSTM):
        return None
    return "LSTM in bf16 by PyTorch's own cells: cuDNN computes it from PyTorch 2.10 and cuDNN 9.13 on"


def choose_layout(model: Objective, precision: str, group: Group | None) -> None:
    """Choose the memory format of images that is faster here."""
    hardware = torch.device("cuda", torch.cuda.current_device())
    seconds = rocm.seconds_of(hardware, AUTOCAST[precision], torch.cuda.synchronize)
    rocm.choose_layout(model, seconds, (lambda own: group.agree([own])[0]) if group else float)


def facts(properties: object) -> DeviceFacts:
    """Return what the session runs on."""
    name, units = torch.cuda.get_device_name(), properties.multi_processor_count  # type: ignore[attr-defined]
    if "MI250" in name:
        name = UNITS_OF.get(units, name)
    own = architecture(properties)
    part = AMD and own in WHOLE and units not in WHOLE[own]
    die = "MI250" in name or (own in DIES_OF_A_MODULE and "MI210" not in name)
    uuid = None if AMD else getattr(properties, "uuid", None)  # from torch 2.4 on; ROCm's differs from amdsmi's
    named = f"{'MIG' if ' MIG ' in name else 'GPU'}-{uuid}" if uuid else None
    return gpu.facts(
        kind="cuda",
        vendor="AMD" if AMD else "NVIDIA",
        name=f"{name} ({units} compute units)" if part else name,  # the vendor's peaks are for whole GPUs
        granularity="die" if die or part else "package",
        memory=properties.total_memory,  # type: ignore[attr-defined]
        identifier=pci_address(properties) if AMD and not part else named,
    )


def pci_address(properties: object) -> str | None:
    """Return the PCI address of a GPU of AMD, by which amdsmi names it; None before torch 2.5. Partitions of a GPU
    share it."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    given = [number for number in numbers if number is not None]
    return "{:04x}:{:02x}:{:02x}.0".format(*given) if len(given) == 3 else None


def architecture(properties: object) -> str:
    """Return the architecture of an AMD GPU, or an empty string before torch 2.2."""
    return str(getattr(properties, "gcnArchName", "")).split(":")[0]
