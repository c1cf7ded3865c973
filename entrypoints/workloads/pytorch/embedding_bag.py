"""Sums of rows of large tables, which are all over them: what recommenders read of their memory.

The tables are one after another in one buffer, so that a call is one operation, as in FBGEMM's tables in batches.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from entrypoints.contract.group import Place
from entrypoints.contract.points import LOOKUPS, ROW, ROWS_PER_LOOKUP, Point
from entrypoints.contract.statuses import RunError
from entrypoints.workloads.pytorch.kernels import AT_ONCE, PERIOD, relative, sequence

OF_A_SAMPLE = sum(LOOKUPS)
ANY = 1 << 40  # drawn below it, the rest by a number of rows is as good as even


def network(_: Mapping[str, Any]) -> nn.Module:
    """Return the operation, as a module without parameters."""
    return EmbeddingBag()


def require(_: str, device: str, precision: str) -> None:
    """Raise RunError (`unsupported`) if this PyTorch does not add up rows on a CPU in bf16, as 1.13 does not."""
    if (device, precision) != ("cpu", "bf16"):
        return
    row, index = torch.zeros(1, 1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.long)
    try:
        functional.embedding_bag(index, row, index, mode="sum")
    except RuntimeError as error:
        cause = f"embedding_bag in bf16: PyTorch {torch.__version__} has none on CPUs: {str(error).splitlines()[0]}"
        raise RunError("unsupported", f"{cause[:250]}. Take --precision fp32") from None


class EmbeddingBag(nn.Module):
    """The operation."""

    def opened(self, points: Sequence[Point], _: Place, hardware: torch.device, dtype: torch.dtype) -> Bags:
        """Return the operation with its tables."""
        return Bags(points, hardware, dtype)


class Bags:
    """Sums of the rows that samples look up in each table, as many samples as a point's size has rows for.

    Each call has samples of its own, so that caches hold none of its rows because the call before had them too.
    """

    def __init__(self, points: Sequence[Point], hardware: torch.device, dtype: torch.dtype) -> None:
        self.pattern = rows_of_pattern(hardware)
        self.tables = torch.empty(OF_A_SAMPLE * ROWS_PER_LOOKUP, ROW, dtype=dtype, device=hardware)
        for part in self.tables.split(PERIOD):
            part.copy_(self.pattern[: len(part)])
        bytes_of_a_sample = OF_A_SAMPLE * ROW * self.tables.element_size()
        self.samples = [point.size // bytes_of_a_sample for point in points]
        self.indices = drawn(max(*self.samples, ROWS_PER_LOOKUP), hardware)  # about every row, if not more
        ends = torch.tensor((0, *LOOKUPS), device=hardware).cumsum(0)
        starts = torch.arange(max(self.samples), device=hardware)[:, None] * OF_A_SAMPLE + ends[:-1]
        self.starts = starts.flatten()  # of bags, in the indices of a call
        self.next = 0  # sample

    def fill(self, number: int) -> None:
        """Do nothing: no call changes its tables."""

    def looked_up(self, number: int) -> torch.Tensor:
        """Return the rows that the next call of a point looks up, (samples, 214), and go on to those after them."""
        samples = self.samples[number]
        first = self.next if self.next + samples <= len(self.indices) else 0
        self.next = first + samples
        return self.indices[first : self.next]

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums (samples, 26, 128) of rows of samples."""
        starts = self.starts[: len(rows) * len(LOOKUPS)]
        return functional.embedding_bag(rows.flatten(), self.tables, starts, mode="sum").view(-1, len(LOOKUPS), ROW)

    def call(self, number: int) -> None:
        """Add up once."""
        self.sums(self.looked_up(number))

    def deviation(self, number: int) -> float:
        """Add up once, and compare with sums of what the formula has for the rows."""
        rows = self.looked_up(number)
        at_once = max(1, AT_ONCE // (OF_A_SAMPLE * ROW))
        distances = [
            float((made.float() - self.expected(of)).abs().max())
            for made, of in zip(self.sums(rows).split(at_once), rows.split(at_once))
        ]
        return relative(distances, float(max(LOOKUPS)))

    def expected(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums (samples, 26, 128) of few samples, by the formula."""
        return torch.stack([table.sum(1) for table in self.pattern[rows % PERIOD].split(LOOKUPS, 1)], 1)


def rows_of_pattern(hardware: torch.device) -> torch.Tensor:
    """Return the numbers -1, 0 and 1 of the first rows of a table (4093, 128); the others repeat them.

    Sums of as many as a bag has are exact in every precision.
    """
    return (sequence(PERIOD * ROW, hardware).view(PERIOD, ROW) % 3 - 1).float()


def drawn(samples: int, hardware: torch.device) -> torch.Tensor:
    """Return rows that samples look up (samples, 214), those of a table beside each other; each is as likely."""
    lookups = torch.tensor(LOOKUPS, device=hardware)
    rows = (lookups * ROWS_PER_LOOKUP).repeat_interleave(lookups)
    first = rows.new_tensor((0, *LOOKUPS[:-1])).cumsum(0).repeat_interleave(lookups) * ROWS_PER_LOOKUP
    return torch.randint(ANY, (samples, OF_A_SAMPLE), device=hardware) % rows + first
