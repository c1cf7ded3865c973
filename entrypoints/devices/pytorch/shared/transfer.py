"""Batches on their way to a device: pinned, copied while it computes, and normalised there."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from types import ModuleType
from typing import Any, Callable, Iterator, NamedTuple

import torch

from entrypoints.contract.session import Batch, Normalisation
from entrypoints.devices.pytorch.shared.tensors import as_tuple

AHEAD = 1  # batches that have arrived and wait for the one in use; the next is copied meanwhile
TICK = 0.2  # seconds between checks whether batches are still wanted
Copy = Callable[[Batch], Batch]


def pinned(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    """Return a tensor in pinned memory, from which a device of this kind copies without the processor.

    PyTorch before 2.6 pins for GPUs of Intel only with its extension, which has to be asked by name. Where nothing pins
    for them, return the tensor itself.
    """
    if kind == "cuda":
        return tensor.pin_memory()
    with contextlib.suppress(RuntimeError):  # also NotImplementedError
        return tensor.pin_memory()
    with contextlib.suppress(RuntimeError):
        return tensor.pin_memory(kind)
    return tensor


def normalised(batch: Batch, layout: torch.memory_format = torch.channels_last) -> Batch:
    """Return a batch whose inputs are bytes as float32 (N, C, H, W), where it is. Return others unchanged."""
    if batch.normalisation is None:
        return batch
    mean, deviation = constants(batch.normalisation, batch.inputs.device)
    inputs = torch.sub(batch.inputs.permute(0, 3, 1, 2), mean).div_(deviation)
    inputs = inputs.contiguous(memory_format=layout)
    targets = inputs if batch.targets is batch.inputs else batch.targets
    return batch._replace(inputs=inputs, targets=targets, normalisation=None)


@functools.lru_cache(maxsize=None)
def constants(rule: Normalisation, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of bytes (1, C, 1, 1), copied to a device once: such a copy is waited for."""
    mean, deviation = (
        torch.tensor([255 * value for value in values], dtype=torch.float32).reshape(1, -1, 1, 1).to(device)
        for values in rule
    )
    return mean, deviation


class Transit(NamedTuple):
    """A batch whose copy is under way, and the event after it on the stream that copies."""

    batch: Batch
    arrived: Any


class CopyingFeed:
    """Batches that a separate thread fetches, pins and copies on a separate stream, before they are asked for.

    The thread is a daemon, since a device may never answer.
    """

    def __init__(self, batches: Iterator[Batch], copy: Copy, runtime: ModuleType, hardware: torch.device) -> None:
        self.batches, self.copy, self.runtime = batches, copy, runtime
        self.stream = runtime.Stream(hardware)
        self.arriving: queue.Queue[Transit | BaseException] = queue.Queue(AHEAD)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, name="transfer", daemon=True)
        self.thread.start()

    def __iter__(self) -> Iterator[Transit]:
        """Return itself."""
        return self

    def __next__(self) -> Transit:
        """Return the next batch. Waits until it is fetched and pinned; raises what the thread raised."""
        taken = self.arriving.get()
        if isinstance(taken, BaseException):
            self.arriving.put(taken)  # for the next call
            raise taken
        return taken

    def run(self) -> None:
        """Copy all batches, as long as they are wanted."""
        try:
            torch.set_num_threads(1)  # as DataLoader's pinning thread: copies leave the processors to the workers
            with self.runtime.stream(self.stream):
                for batch in self.batches:
                    if not self.put(self.sent(batch)):
                        return
            self.put(StopIteration())
        except BaseException as error:  # the main thread has to raise any of them
            self.put(error)

    def sent(self, batch: Batch) -> Transit:
        """Return a batch once its copy is queued."""
        copied, event = self.copy(batch), self.runtime.Event()
        event.record(self.stream)
        return Transit(copied, event)

    def put(self, item: Transit | BaseException) -> bool:
        """Hand over an item. Return whether more are wanted."""
        while not self.over.is_set():
            try:
                self.arriving.put(item, timeout=TICK)
            except queue.Full:
                continue
            return True
        return False

    def close(self) -> None:
        """Fetch no more. A thread that waits for a device or for workers ends with the process."""
        self.over.set()
        self.thread.join(2 * TICK)


def received(transit: Transit, stream: Any) -> Batch:
    """Return a batch that work queued on `stream` from now on may use. The device waits, not the host."""
    stream.wait_event(transit.arrived)
    for tensors in (transit.batch.inputs, transit.batch.targets):
        for tensor in as_tuple(tensors):
            if tensor is not None:
                tensor.record_stream(stream)  # so that its memory is not given to the next copy too early
    return transit.batch


class ThreadStreams:
    """A stream of the device for each thread that makes requests, so that these overlap."""

    def __init__(self, runtime: ModuleType, hardware: torch.device) -> None:
        self.runtime, self.hardware = runtime, hardware
        self.local, self.count = threading.local(), 0

    def own(self) -> Any:
        """Return a context in which the calling thread queues work on its own stream, after that of the session."""
        if not hasattr(self.local, "stream"):
            self.local.stream = self.runtime.Stream(self.hardware)
            self.local.stream.wait_stream(self.runtime.current_stream(self.hardware))  # which moved the weights
            self.count += 1
        return self.runtime.stream(self.local.stream)

    def wait(self) -> None:
        """Wait for what the calling thread has queued on its current stream, and for nothing else.

        Several threads that wait leave the processors to those that decode; one alone looks all the time.
        """
        sleeping = self.count > 1 and self.hardware.type == "cuda"
        event = self.runtime.Event(blocking=True) if sleeping else self.runtime.Event()
        event.record()
        event.synchronize()
