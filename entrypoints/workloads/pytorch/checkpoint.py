"""Checkpoints of a model's state by torch.distributed.checkpoint, written to the current folder.

A save is over when its files are on the storage: the writer calls fsync on each. An asynchronous one copies the state
to the host, lets the caller go on, and writes in a thread.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

import torch
from torch import nn

from entrypoints.contract.group import Place
from entrypoints.contract.points import SAVE, STAGE, Point
from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch.kernels import LARGEST, relative, sequence

SINCE = (2, 6)  # before it, an asynchronous save needs ranks, or does not copy the state of a CPU
PART = 1 << 24  # bytes of a tensor, as of a matrix of 2048 x 2048 numbers
PREFIX = ".sifmark-checkpoint-"


def network(_: Mapping[str, Any]) -> nn.Module:
    """Return the operation, as a module without parameters."""
    return Checkpoint()


def require(_: str, __: str, ___: str) -> None:
    """Raise RunError (`unsupported`) if this PyTorch has no asynchronous checkpoints of one process."""
    if torch.__version__ < SINCE or not torch.distributed.is_available():
        raise RunError(
            "unsupported",
            f"checkpoint: PyTorch {torch.__version__} has no torch.distributed.checkpoint.async_save for one process; "
            f"from {'.'.join(map(str, SINCE))} on it has. Take an image with a newer PyTorch",
        )


class Checkpoint(nn.Module):
    """The operation."""

    def opened(self, points: Sequence[Point], _: Place, hardware: torch.device, dtype: torch.dtype) -> Checkpoints:
        """Return the operation with the largest state. Raises RunError (`unsupported`) if there is no folder for it."""
        return Checkpoints(points, hardware, dtype)


class Checkpoints:
    """Saves of tensors of 16 MiB, as many as a point's size has: synchronous ones, asynchronous ones as long as the
    caller is held, and asynchronous ones until they are written."""

    def __init__(self, points: Sequence[Point], hardware: torch.device, dtype: torch.dtype) -> None:
        self.points = points
        each = PART // torch.empty(0, dtype=dtype).element_size()
        count = max(point.size for point in points) // PART
        self.tensors = [torch.empty(each, dtype=dtype, device=hardware) for _ in range(count)]
        for number, tensor in enumerate(self.tensors):
            tensor.copy_(numbers(number, tensor))
        self.pending: Any = None  # a save that is being written
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=str(Path.cwd())))
        except OSError as error:
            raise RunError(
                "unsupported",
                f"checkpoint: nothing can be written to {Path.cwd()}: {error.strerror}. Start it in a folder on the "
                "storage that is to be measured",
            ) from None
        for known in ("torch.distributed is", "Detected an existing checkpoint"):  # one process, which overwrites
            warnings.filterwarnings("ignore", message=known)

    def state(self, number: int) -> dict[str, torch.Tensor]:
        """Return the state that a point saves."""
        return {f"part.{part}": self.tensors[part] for part in range(self.points[number].size // PART)}

    def fill(self, number: int) -> None:  # noqa: ARG002 - others are of a point
        """Wait until the save before is written."""
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def call(self, number: int) -> None:
        """Save once."""
        import torch.distributed.checkpoint as checkpoints

        mode = self.points[number].mode
        writer = checkpoints.FileSystemWriter(str(self.folder), overwrite=True)
        if mode == SAVE:
            checkpoints.save(self.state(number), storage_writer=writer)
            return
        saving: Any = checkpoints.async_save(self.state(number), storage_writer=writer)
        self.pending = getattr(saving, "upload_completion", saving)  # where the copy is asynchronous, too
        if mode != STAGE:
            self.fill(number)

    def deviation(self, number: int) -> float:
        """Save once, change the state as soon as the caller may, load what was saved, and compare."""
        import torch.distributed.checkpoint as checkpoints

        self.fill(number)
        state = self.state(number)
        self.call(number)
        for tensor in state.values():
            tensor.fill_(math.nan)
        self.fill(number)
        checkpoints.load(state, checkpoint_id=str(self.folder))
        return difference(state)

    def close(self) -> None:
        """Remove what was written."""
        self.fill(0)
        shutil.rmtree(str(self.folder), ignore_errors=True)


def numbers(part: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole numbers of the formula for a part of the state: those of each part are shifted by one."""
    return sequence(len(tensor) + part, tensor.device)[part:]


def difference(state: Mapping[str, torch.Tensor]) -> float:
    """Return how far a state is from the numbers of the formula."""
    distances = [
        float((tensor.float() - numbers(part, tensor).float()).abs().max())
        for part, tensor in enumerate(state.values())
    ]
    return relative(distances, LARGEST - 1.0)
