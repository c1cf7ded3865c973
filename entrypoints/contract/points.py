"""Micro-benchmarks: an operation at points, each of one size, and what is counted there.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md, github.com/NVIDIA/nccl-tests): the algorithm bandwidth is the
size over the time of a call, where the size is the larger buffer of one rank; the bus bandwidth is that times a factor
by which it does not depend on the number of ranks.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

MICROBENCHMARK = "microbenchmark"  # the task
MATMUL, MEMORY_COPY, HOST_DEVICE, CHECKPOINT = "matmul", "memory_copy", "host_device", "checkpoint"
EMBEDDING_BAG = "embedding_bag"
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL, SEND_RECEIVE = "all_to_all", "send_receive"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECEIVE)
OPERATIONS = (*COLLECTIVES, CHECKPOINT, EMBEDDING_BAG, HOST_DEVICE, MATMUL, MEMORY_COPY)
TO_DEVICE, TO_HOST = "host_to_device", "device_to_host"
PINNED, PAGEABLE = "pinned", "pageable"
# Of a checkpoint: saved while the caller waits; asynchronously, as long as the caller waits, and until it is written.
SAVING = SAVE, STAGE, WRITE = ("save", "async_blocked", "async_save")
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}
GIGA = 1e9  # bytes, as in nccl-tests
INCOMPARABLE = 1e18  # a deviation of a result that has numbers which are not finite
OF_ALL_SIZES = "a sweep is of all sizes: see peak_flops and points.measured"  # why it has no rate of its own
CHECKS = ("results", "last_results")  # of a run: before the timed window, and after it
# Largest deviation of a result from what follows from its input by a formula, over the largest number of the result.
# Buffers are moved, and sums of them are sums of whole numbers that each precision has exactly.
EXACT = 0.0
# Products are sums of whole numbers below 2^24. In half precision the result is rounded, and so may be parts of a sum.
TOLERANCES_OF_PRODUCTS = {"fp32": 1e-6, "tf32": 1e-6, "bf16": 0.03, "fp16": 0.005}
BEYOND_CACHE = 4  # sizes of the last-level caches that a buffer in memory has at least, as in STREAM (stream/ref.html)
COPIED_BUFFERS = 2
# Rows that a sample of DLRM-DCNv2 looks up in each of its tables, and numbers in a row (--multi_hot_sizes and
# --embedding_dim of recommendation_v2/torchrec_dlrm/README.MD, github.com/mlcommons/training at commit 3e2f7317).
LOOKUPS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
ROW = 128
# Rows of a table for each look-up of a sample: with as many, every row is as likely as any other, and in fp32 tables
# of 2.2 GB are four times the largest caches of the table of peaks.
ROWS_PER_LOOKUP = 20_000
TABLE_NUMBERS = sum(LOOKUPS) * ROWS_PER_LOOKUP * ROW


class Point(NamedTuple):
    """An operation at one size, and how often it is called between two marks of the clock."""

    operation: str  # one of OPERATIONS
    size: int  # bytes; of matmul the rows and columns of each matrix
    calls: int
    direction: str | None = None  # between host and device
    memory: str | None = None  # of the host, as the device's driver sees it
    mode: str | None = None  # of a checkpoint: one of SAVING

    @property
    def work(self) -> int:
        """What a call does: bytes, or floating-point operations of a product of two square matrices."""
        return 2 * self.size**3 if self.operation == MATMUL else self.size

    @property
    def label(self) -> str:
        """The point in words."""
        words = (self.operation, self.direction, self.memory, self.mode, str(self.size))
        return " ".join(word.replace("_", " ") for word in words if word)


class Omitted(NamedTuple):
    """A size of a micro-benchmark that is not measured, and why."""

    size: int
    reason: str


class LastLevelCache(NamedTuple):
    """The last caches before the memory of a device, all that it uses together."""

    bytes: float
    source: str

    @property
    def left_from(self) -> float:
        """The bytes from which on a copy is one in memory."""
        return BEYOND_CACHE * self.bytes

    @property
    def held(self) -> float:
        """The bytes up to which the caches hold both buffers of a copy."""
        return self.bytes / COPIED_BUFFERS


class Verified(NamedTuple):
    """How far the results of all points, in order, are from what the formula of their inputs gives."""

    deviations: list[float]


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth.

    Those of collectives are in nccl-tests, and so is that of send_receive (src/sendrecv.cu); a copy within a memory
    reads and writes every byte, as in STREAM (McCalpin, cs.virginia.edu/stream). Tables give the rows that are looked
    up, and get a sum of each; the indices, 1.6 % of that in fp32, do not count.
    """
    if operation == ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    if operation in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL):
        return (ranks - 1) / ranks
    if operation == EMBEDDING_BAG:
        return 1 + len(LOOKUPS) / sum(LOOKUPS)
    return 2.0 if operation == MEMORY_COPY else 1.0


def tolerance(operation: str, precision: str) -> float:
    """Return the largest deviation of a correct result."""
    return TOLERANCES_OF_PRODUCTS[precision] if operation == MATMUL else EXACT


def operation_of(problem: Mapping[str, Any]) -> str | None:
    """Return the operation of a card's problem, if it is a micro-benchmark."""
    operation: str | None = problem["model"].get("operation")
    return operation
