"""Operations of one device: matrix products, and copies within its memory and between it and the host's."""

from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, Sequence

import torch
from torch import nn

from entrypoints.contract.group import Place
from entrypoints.contract.points import (
    HOST_DEVICE,
    INCOMPARABLE,
    MATMUL,
    MEMORY_COPY,
    PAGEABLE,
    PINNED,
    TO_DEVICE,
    Point,
)
from entrypoints.contract.statuses import RunError

PERIOD = 4093  # of the numbers in a copied buffer: a prime, so that no two pages are the same
LARGEST = 251  # of these numbers, which every precision has exactly
AT_ONCE = 1 << 22  # elements that are compared at once, so that comparing takes little memory
# Of the numbers in matrices, by the sum of multiples of row and column: elements of a product then depend on the
# remainders of their row and column alone. Factors differ, so that no matrix is its own transpose.
REMAINDERS, ROW_FACTOR, COLUMN_FACTOR = 11, 1, 3


def network(model: Mapping[str, Any]) -> nn.Module:
    """Return the operation of a card's `problem.model`, as a module without parameters."""
    return Kernel(model["operation"])


def require(operation: str, device: str, precision: str) -> None:
    """Do nothing: every device that has the precision has these operations."""


class Kernel(nn.Module):
    """One operation by its name."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation = operation

    def opened(
        self, points: Sequence[Point], _: Place, hardware: torch.device, dtype: torch.dtype
    ) -> MatrixProducts | MemoryCopies | HostCopies:
        """Return the operation with buffers for all points.

        Raises RunError (`unsupported`) if there is no pinned memory for the hardware.
        """
        return KERNELS[self.operation](points, hardware, dtype)


class MatrixProducts:
    """Products C = A B of square matrices: of normal numbers when timed, of whole ones from -1 to 1 when verified."""

    def __init__(self, points: Sequence[Point], hardware: torch.device, dtype: torch.dtype) -> None:
        self.sizes = [point.size for point in points]
        most = max(self.sizes) ** 2
        self.left, self.right, self.product = (torch.empty(most, dtype=dtype, device=hardware) for _ in range(3))

    def matrices(self, number: int) -> Sequence[torch.Tensor]:
        """Return both factors and the product."""
        size = self.sizes[number]
        return [flat[: size * size].view(size, size) for flat in (self.left, self.right, self.product)]

    def fill(self, number: int) -> None:
        """Draw both factors."""
        for factor in self.matrices(number)[:2]:
            factor.normal_()

    def write_pattern(self, number: int) -> None:
        """Write both factors, whose rows repeat."""
        left, right, _ = self.matrices(number)
        for matrix in (left, right):
            rows = pattern(torch.arange(REMAINDERS)[:, None], torch.arange(len(matrix)))
            for remainder, row in enumerate(rows.to(matrix)):
                matrix[remainder::REMAINDERS] = row

    def call(self, number: int) -> None:
        """Multiply once."""
        left, right, product = self.matrices(number)
        torch.matmul(left, right, out=product)

    def deviation(self, number: int) -> float:
        """Multiply once, and compare with the products of the rows and columns that repeat."""
        size, product = self.sizes[number], self.matrices(number)[2]
        self.write_pattern(number)
        product.fill_(math.nan)
        self.call(number)
        inner, remainders = torch.arange(size), torch.arange(REMAINDERS)
        rows, columns = pattern(remainders[:, None], inner), pattern(inner[:, None], remainders)
        expected = (rows.double() @ columns.double())[:, torch.arange(size) % REMAINDERS].to(product.device).float()
        distances = [
            float((product[remainder::REMAINDERS].float() - row).abs().max())
            for remainder, row in enumerate(expected[:size])
        ]
        return relative(distances, float(expected.abs().max()))


class MemoryCopies:
    """Copies of a buffer in the memory of the hardware."""

    def __init__(self, points: Sequence[Point], hardware: torch.device, dtype: torch.dtype) -> None:
        self.counts = counts_of(points, dtype)
        self.source, self.target = (torch.empty(max(self.counts), dtype=dtype, device=hardware) for _ in range(2))
        write(self.source)

    def fill(self, number: int) -> None:
        """Do nothing: a copy does not change its source."""

    def call(self, number: int) -> None:
        """Copy once."""
        count = self.counts[number]
        self.target[:count].copy_(self.source[:count])

    def deviation(self, number: int) -> float:
        """Copy once, and compare with the formula."""
        target = self.target[: self.counts[number]]
        target.fill_(math.nan)
        self.call(number)
        return difference(target)


class HostCopies:
    """Copies between the host and the hardware, from and to pinned and pageable memory of the host."""

    def __init__(self, points: Sequence[Point], hardware: torch.device, dtype: torch.dtype) -> None:
        self.points, self.counts, self.hardware = points, counts_of(points, dtype), hardware
        most = max(self.counts)
        self.device = torch.empty(most, dtype=dtype, device=hardware)
        try:
            pinned = torch.empty(most, dtype=dtype, pin_memory=True)
        except RuntimeError as error:
            raise RunError("unsupported", f"pinned memory with PyTorch {torch.__version__}: {error}"[:300]) from None
        self.host = {PINNED: pinned, PAGEABLE: torch.empty(most, dtype=dtype)}
        for buffer in (self.device, *self.host.values()):
            write(buffer)

    def buffers(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return source and target of a point."""
        count, point = self.counts[number], self.points[number]
        host, device = self.host[str(point.memory)][:count], self.device[:count]
        return (host, device) if point.direction == TO_DEVICE else (device, host)

    def fill(self, number: int) -> None:
        """Do nothing: a copy does not change its source, and all buffers have the same numbers."""

    def call(self, number: int) -> None:
        """Copy once. The host waits for pageable memory only."""
        source, target = self.buffers(number)
        target.copy_(source, non_blocking=self.points[number].memory == PINNED)

    def deviation(self, number: int) -> float:
        """Copy once, and compare with the formula."""
        source, target = self.buffers(number)
        write(source)
        target.fill_(math.nan)
        self.call(number)
        getattr(torch, self.hardware.type).synchronize()
        return difference(target)


def counts_of(points: Sequence[Point], dtype: torch.dtype) -> list[int]:
    """Return the elements of each point's buffer."""
    return [point.size // torch.empty(0, dtype=dtype).element_size() for point in points]


def pattern(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the whole numbers from -1 to 1 at rows and columns of a matrix."""
    place = (ROW_FACTOR * rows + COLUMN_FACTOR * columns) % REMAINDERS
    return (place**3 + place) % REMAINDERS % 3 - 1


def sequence(count: int, device: torch.device) -> torch.Tensor:
    """Return whole numbers from 0 to 250 for the first `count` places of a buffer."""
    place = torch.arange(count, device=device) % PERIOD
    return place * place % PERIOD % LARGEST


def parts(buffer: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the parts of a buffer, with the numbers that the formula has for them."""
    numbers = sequence(min(AT_ONCE, len(buffer)) + PERIOD, buffer.device).to(buffer.dtype)
    for start in range(0, len(buffer), AT_ONCE):
        part, first = buffer[start : start + AT_ONCE], start % PERIOD
        yield part, numbers[first : first + len(part)]


def write(buffer: torch.Tensor) -> None:
    """Write the numbers of the formula."""
    for part, numbers in parts(buffer):
        part.copy_(numbers)


def difference(buffer: torch.Tensor) -> float:
    """Return how far a buffer is from the numbers of the formula."""
    distances = [float((part.float() - numbers.float()).abs().max()) for part, numbers in parts(buffer)]
    return relative(distances, LARGEST - 1.0)


def relative(distances: Sequence[float], largest: float) -> float:
    """Return the greatest distance over the largest number; of distances that are not finite `INCOMPARABLE`."""
    return max(distances) / largest if all(map(math.isfinite, distances)) else INCOMPARABLE


KERNELS: dict[str, Any] = {MATMUL: MatrixProducts, MEMORY_COPY: MemoryCopies, HOST_DEVICE: HostCopies}
