"""What computed, as PyTorch shows it: kernels of attention, arithmetic of products, allocator and autotuning."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch
from torch import nn

from entrypoints.contract.choices import MAX_AUTOTUNE
from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.workloads.pytorch.transformer import SelfAttention

try:
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:  # of a version that has another place for it
    TorchDispatchMode = None  # type: ignore[assignment, misc]

# Operations by which PyTorch computes attention in one, and what a result calls them. Elsewhere it is written out.
KERNELS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_fused_attention_overrideable": "vendor's",
    "_scaled_dot_product_attention_math_for_mps": "math",
}
WRITTEN_OUT = "math"
ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def has_attention(network: nn.Module) -> bool:
    """Return whether a network has attention."""
    return any(isinstance(layer, SelfAttention) for layer in network.modules())


def one_sample(inputs: Any) -> Any:
    """Return a copy of the first sample of a batch, which keeps nothing else of it."""
    first = tuple(tensor[:1].clone() for tensor in as_tuple(inputs))
    return first if isinstance(inputs, tuple) else first[0]


def attention_kernels(model: nn.Module, inputs: Any, autocast: Any, training: bool) -> str | None:
    """Return the kernels that a model's attention takes for `inputs`: they are computed once, uncompiled.

    The state of random generators, and the mode of the model, are as before.
    """
    if TorchDispatchMode is None:
        return None
    mode, operations = model.training, Operations()
    devices = [torch.cuda.current_device()] if as_tuple(inputs)[0].device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(training), autocast:
        model.train(training)
        try:
            with operations:
                model(inputs)
        finally:
            model.train(mode)
    kernels = sorted({KERNELS[name] for name in operations.names if name in KERNELS})
    return ", ".join(kernels) or WRITTEN_OUT


if TorchDispatchMode is not None:

    class Operations(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Notes the names of operations."""

        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled meanwhile, and skipping it would import a second of code

        def __torch_dispatch__(self, operation: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
            """Note an operation and do it."""
            self.names.append(str(operation).split(".")[1] if "." in str(operation) else str(operation))
            return operation(*arguments, **(named or {}))


class AttentionObserver:
    """Sees by a sample of the first batch which kernels compute a network's attention, if it has any."""

    def __init__(self, model: nn.Module, looks: bool) -> None:
        self.model, self.looks = model, looks and has_attention(model)
        self.sample: Any = None
        self.taken: str | None = None

    def look_at(self, inputs: Any) -> None:
        """Keep a sample of the first batch, to see later how the network computes it."""
        if self.looks and self.sample is None:
            self.sample = one_sample(inputs)

    def kernels(self, autocast: Any, training: bool) -> str | None:
        """Return the kernels of the network's attention; None if it has none, or nobody looks."""
        if self.sample is not None and self.taken is None:
            with contextlib.suppress(RuntimeError):  # out of memory: a result can lack this fact, and not the rest
                self.taken = attention_kernels(self.model, self.sample, autocast, training)
            self.sample, self.looks = None, False
        return self.taken


def matmul_precision(kind: str, dtype: torch.dtype | None) -> str:
    """Return the arithmetic of matrix products: what they are cast to, and what single precision is computed in."""
    if kind == "cuda":
        single = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
    else:
        single = {"highest": "fp32"}.get(torch.get_float32_matmul_precision(), torch.get_float32_matmul_precision())
    if dtype is None:
        return single
    half = str(dtype).replace("torch.", "")
    reduced = f"allow_{'bf16' if dtype == torch.bfloat16 else 'fp16'}_reduced_precision_reduction"
    sums = "reduced" if kind == "cuda" and getattr(torch.backends.cuda.matmul, reduced, False) else "fp32"
    return f"{half} with sums in {sums}" if sums == "fp32" else f"{half} with sums that may be {half}"


def allocator(kind: str) -> str | None:
    """Return the allocator of the device's memory with its settings; None for the host, which has its own fact."""
    if kind == "cpu":
        return None
    backend = "native"
    if kind == "cuda" and hasattr(torch.cuda, "get_allocator_backend"):
        backend = torch.cuda.get_allocator_backend()
    settings = [f"{name}={os.environ[name]}" for name in ALLOCATOR_SETTINGS if os.environ.get(name)]
    return "; ".join([backend, *settings])


def autotuning(kind: str, mode: str | None) -> str:
    """Return what chooses among kernels by trying them."""
    tried = ["cudnn.benchmark"] if kind == "cuda" and torch.backends.cudnn.benchmark else []
    tunable = getattr(torch.cuda, "tunable", None)
    tried += ["TunableOp"] if kind == "cuda" and tunable is not None and tunable.is_enabled() else []
    tried += ["TorchInductor"] if mode == MAX_AUTOTUNE else []
    return ", ".join(tried) or "none"
