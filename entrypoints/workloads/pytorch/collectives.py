"""Collectives between ranks, by torch.distributed, on buffers whose results follow from a formula."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from entrypoints.contract.group import Place
from entrypoints.contract.points import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    INCOMPARABLE,
    REDUCE_SCATTER,
    SEND_RECEIVE,
    Point,
)
from entrypoints.contract.statuses import RunError

PERIOD = 4093  # a prime, so that chunks of a buffer differ
ADDENDS = 32  # at most, of an element: their sum is at most 160, which bf16 has exactly
LARGEST = 5  # input
AT_ONCE = 1 << 22  # elements that are compared at once, so that comparing takes little memory
# From this version on gloo scatters sums, gathers into one tensor and adds bf16: measured with 1.13, 2.0 and 2.4.
COMPLETE_GLOO = (2, 4)
# Names that newer versions give the collectives of one tensor, and those that they deprecate.
GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the collective of a card's `problem.model`, as a module without parameters."""
    return Collective(model["operation"])


def require(operation: str, device: str, precision: str) -> None:
    """Raise RunError (`unsupported`) if this PyTorch cannot do the operation between ranks on a kind of device."""
    if device != "cpu" or torch.__version__ >= COMPLETE_GLOO:
        return
    version = f"PyTorch {torch.__version__} by gloo, as on CPUs; from 2.4 on it can"
    if operation == REDUCE_SCATTER:
        raise RunError("unsupported", f"{operation}: there is none in {version}")
    if precision != "fp32":
        raise RunError("unsupported", f"{operation} --precision {precision}: there is none in {version}")


class Collective(nn.Module):
    """One collective by its name."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation

    def opened(
        self, points: Sequence[Point], place: Place, hardware: torch.device, dtype: torch.dtype
    ) -> CollectiveBuffers:
        """Return the collective with buffers for all points."""
        return CollectiveBuffers(self.operation, points, place, hardware, dtype)


def numbers(positions: torch.Tensor, ranks: torch.Tensor | int, world: int) -> torch.Tensor:
    """Return the whole numbers from 0 to 5 that are input of `ranks` at `positions`.

    Each position is 0 on all but 32 ranks, so that sums are exact in every precision and order.
    """
    place = positions % PERIOD
    return (1 + (place * place + 31 * ranks) % PERIOD % LARGEST) * ((ranks - place) % world < ADDENDS)


class CollectiveBuffers:
    """The buffers of a rank: `source` has its input, `target` its result. Points use their beginnings."""

    def __init__(
        self, operation: str, points: Sequence[Point], place: Place, hardware: torch.device, dtype: torch.dtype
    ) -> None:
        self.place, self.hardware = place, hardware
        self.counts = [point.size // torch.empty(0, dtype=dtype).element_size() for point in points]
        self.source, self.target = (torch.empty(max(self.counts), dtype=dtype, device=hardware) for _ in range(2))
        self.collective, self.expected = COLLECTIVES[operation]
        self.in_place = operation == ALL_REDUCE
        for start in range(0, len(self.source), AT_ONCE):
            part = self.source[start : start + AT_ONCE]
            part.copy_(numbers(start + torch.arange(len(part), device=hardware), place.rank, place.world))
        positions = torch.arange(PERIOD, device=hardware)
        self.sums = torch.zeros_like(positions)
        for rank in range(place.world):
            self.sums += numbers(positions, rank, place.world)

    def fill(self, number: int) -> None:
        """Write the input where a call changes it."""
        if self.in_place:
            self.target[: self.counts[number]].copy_(self.source[: self.counts[number]])

    def call(self, number: int) -> None:
        """Do the collective once."""
        count = self.counts[number]
        self.collective(self.source[:count], self.target[:count], self.place)

    def deviation(self, number: int) -> float:
        """Do the collective once, and compare its result with sums and numbers of the formula."""
        count = self.counts[number]
        self.target[:count].fill_(math.nan)  # what the collective leaves out shows
        self.fill(number)
        self.call(number)
        chunk = count // self.place.world
        result = self.target[: chunk if self.expected is _scattered_sums else count]
        distance = 0.0
        for start in range(0, len(result), AT_ONCE):
            part = result[start : start + AT_ONCE].float()
            positions = start + torch.arange(len(part), device=self.hardware)
            difference = float((part - self.expected(self, positions, chunk)).abs().max())
            if not math.isfinite(difference):
                return INCOMPARABLE
            distance = max(distance, difference)
        return distance / float(self.sums.max())


def _all_reduce(_: torch.Tensor, target: torch.Tensor, __: Place) -> None:
    dist.all_reduce(target)


def _all_gather(source: torch.Tensor, target: torch.Tensor, place: Place) -> None:
    own = source[: len(source) // place.world]
    if own.device.type == "cpu" and torch.__version__ < COMPLETE_GLOO:
        dist.all_gather(list(target.chunk(place.world)), own)
    else:
        GATHER(target, own)


def _reduce_scatter(source: torch.Tensor, target: torch.Tensor, place: Place) -> None:
    SCATTER(target[: len(target) // place.world], source)


def _all_to_all(source: torch.Tensor, target: torch.Tensor, _: Place) -> None:
    dist.all_to_all_single(target, source)


def _send_receive(source: torch.Tensor, target: torch.Tensor, place: Place) -> None:
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    both = [dist.P2POp(dist.isend, source, after), dist.P2POp(dist.irecv, target, before)]
    for transfer in dist.batch_isend_irecv(both):
        transfer.wait()


def _sums(buffers: CollectiveBuffers, positions: torch.Tensor, _: int) -> torch.Tensor:
    return buffers.sums[positions % PERIOD]


def _scattered_sums(buffers: CollectiveBuffers, positions: torch.Tensor, chunk: int) -> torch.Tensor:
    return buffers.sums[(buffers.place.rank * chunk + positions) % PERIOD]


def _gathered(buffers: CollectiveBuffers, positions: torch.Tensor, chunk: int) -> torch.Tensor:
    return numbers(positions % chunk, positions // chunk, buffers.place.world)


def _exchanged(buffers: CollectiveBuffers, positions: torch.Tensor, chunk: int) -> torch.Tensor:
    rank, world = buffers.place.rank, buffers.place.world
    return numbers(rank * chunk + positions % chunk, positions // chunk, world)


def _received(buffers: CollectiveBuffers, positions: torch.Tensor, _: int) -> torch.Tensor:
    rank, world = buffers.place.rank, buffers.place.world
    return numbers(positions, (rank - 1) % world, world)


CollectiveCall = Callable[[torch.Tensor, torch.Tensor, Place], None]
ExpectedResult = Callable[[CollectiveBuffers, torch.Tensor, int], torch.Tensor]
COLLECTIVES: dict[str, tuple[CollectiveCall, ExpectedResult]] = {
    ALL_REDUCE: (_all_reduce, _sums),
    ALL_GATHER: (_all_gather, _gathered),
    REDUCE_SCATTER: (_reduce_scatter, _scattered_sums),
    ALL_TO_ALL: (_all_to_all, _exchanged),
    SEND_RECEIVE: (_send_receive, _received),
}
