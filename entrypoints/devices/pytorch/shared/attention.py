"""Which kernel computes attention on GPUs of NVIDIA: the fastest for the first batch, tried once.

PyTorch has a fixed order of its kernels, which differs between versions and is not always that of their speeds.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import Any, Callable, Iterator, Mapping, Sequence

import torch
from torch import nn

from entrypoints.devices.pytorch.shared.tensors import as_tuple
from entrypoints.workloads.pytorch.transformer import SelfAttention

# PyTorch's names of its own kernels by those in a result; what is written out computes all that they do not.
KERNELS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "memory-efficient": "EFFICIENT_ATTENTION"}
WRITTEN_OUT = "MATH"
Timing = Callable[[Callable[[], Any]], float]  # of a call, in s


def can_choose() -> bool:
    """Return whether this PyTorch takes an order of its kernels, as from 2.6 on."""
    context = getattr(getattr(torch.nn, "attention", None), "sdpa_kernel", None)
    return context is not None and "set_priority" in inspect.signature(context).parameters


def newer_kernels() -> Sequence[str]:
    """Return the kernels of other packages that PyTorch can take for its flash attention, such as FA3 and FA4."""
    listed = getattr(torch.nn.attention, "list_flash_attention_impls", tuple)
    return list(listed())


def trial(
    layer: SelfAttention, samples: int, length: int, masked: bool, hardware: torch.device, dtype: torch.dtype
) -> Callable[[], None]:
    """Return a call that computes a layer's attention of `samples` texts of a length; in training also backward."""
    numbers = (layer.heads, layer.kv_heads, layer.kv_heads)  # of queries, keys and values
    shape = (samples, length, sum(numbers), layer.size)
    heads = torch.randn(shape, device=hardware, dtype=dtype, requires_grad=layer.training)
    mask = torch.ones(samples, 1, 1, length, dtype=torch.bool, device=hardware) if masked else None
    gradient = torch.ones(samples, layer.heads, length, layer.size, device=hardware, dtype=dtype)

    def call() -> None:
        query, key, value = heads.transpose(1, 2).split(numbers, 1)
        attended = layer.attend(query, key, value, mask)
        if layer.training:
            torch.autograd.grad(attended, heads, gradient)

    return call


def in_order(names: Sequence[str]) -> Any:
    """Return a context in which the kernels of these names are taken in their order, and others are not."""
    kernels = [getattr(torch.nn.attention.SDPBackend, KERNELS.get(name, name)) for name in names]
    return torch.nn.attention.sdpa_kernel(kernels, set_priority=True)


def seconds_of_kernels(call: Callable[[], None], seconds: Timing) -> Mapping[str, float]:
    """Return the seconds of a call by each kernel that can compute it."""
    measured = {}
    for name in (*KERNELS, *newer_kernels()):
        with contextlib.suppress(RuntimeError, ImportError, ValueError), taken(name):
            measured[name] = seconds(call)
    return measured


@contextlib.contextmanager
def taken(name: str) -> Iterator[None]:
    """Take one kernel alone, of PyTorch or of another package."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # PyTorch gives its reasons against a kernel as warnings
        if name not in KERNELS:
            torch.nn.attention.activate_flash_attention_impl(name)
            stack.callback(torch.nn.attention.restore_flash_attention_impl)
        stack.enter_context(in_order([name if name in KERNELS else "flash"]))
        yield


class AttentionChoice:
    """The choice of a session for a network, if it has attention in half precision."""

    def __init__(self, network: nn.Module, hardware: torch.device, dtype: torch.dtype | None, seconds: Timing) -> None:
        layers = [layer for layer in network.modules() if isinstance(layer, SelfAttention) and layer.fused]
        self.network, self.layer = network, layers[0] if layers else None
        self.hardware, self.dtype, self.seconds = hardware, dtype, seconds
        self.open = self.layer is not None and dtype is not None and can_choose()
        self.order: contextlib.ExitStack = contextlib.ExitStack()
        self.said: str | None = None  # what a result says of it

    def make(self, inputs: Any, most: int | None, training: bool) -> None:
        """Choose at the first call: for texts (N, T) or images, at most so many at once.

        The state of random generators, and the mode of the layer, are as before.
        """
        if not self.open:
            return
        self.open = False
        layer: Any = self.layer
        samples, length = as_tuple(inputs)[0].shape[:2]
        length = getattr(self.network, "length", length)  # of images, which have other axes
        masked = not layer.causal and getattr(self.network, "padded", False)
        mode, devices = layer.training, [self.hardware] if self.hardware.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(training):
            layer.train(training)
            try:
                call = trial(layer, min(samples, most or samples), length, masked, self.hardware, self.dtype)
                self.take(seconds_of_kernels(call, self.seconds))
            finally:
                layer.train(mode)

    def take(self, measured: Mapping[str, float]) -> None:
        """Take kernels in the order of their measured seconds, from now on."""
        names = sorted(measured, key=lambda name: measured[name])
        if not names:
            return
        if names[0] not in KERNELS:
            torch.nn.attention.activate_flash_attention_impl(names[0])
            self.order.callback(torch.nn.attention.restore_flash_attention_impl)
        # Another package's kernel takes the place of flash; kernels that failed here may compute other shapes.
        order = list(dict.fromkeys(name if name in KERNELS else "flash" for name in [*names, *KERNELS]))
        self.order.enter_context(in_order([*order, WRITTEN_OUT]))
        self.said = ", ".join(f"{name} {1000 * measured[name]:.3g} ms" for name in names)

    def close(self) -> None:
        """Take PyTorch's order again."""
        self.order.close()
