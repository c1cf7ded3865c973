"""Batches as tensors: one synthetic batch again and again, images decoded by worker threads, or requests.

Threads serve as workers, since Pillow and NumPy let others run while they work, and TensorFlow does not survive a fork.
"""

from __future__ import annotations

import functools
import io
import itertools
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.cards import Card, pictures, reconstructs
from entrypoints.contract.session import Batch
from entrypoints.data.generated import formula, raw_images, synthetic
from entrypoints.data.images import decoding
from entrypoints.data.images.records import Records
from entrypoints.data.images.samples import Reader, Sample, require_readable, stack
from entrypoints.data.source import Source
from entrypoints.data.table import Table

Make = Callable[[], Batch]
AHEAD = 2  # batches for each worker, as PyTorch's loader has them
SHUFFLED = 1024  # records that wait to be drawn from: some 100 MiB of photographs


class Record(NamedTuple):
    """One record of a file, None where it cannot be had, and what its cut depends on."""

    name: str
    content: bytes | None
    place: tuple[int, int, int]  # epoch, index of the file, index of the record there


def synthetic_batch(card: Card, batch_size: int, seed: int) -> Batch:
    """One batch generated from `seed`."""
    return from_arrays(synthetic.batch(card.problem, batch_size, synthetic.Random(seed)))


def formula_batch(card: Card, batch_size: int) -> Batch:
    """One batch made by `data.generated.formula`."""
    return from_arrays(synthetic.batch(card.problem, batch_size, formula.Formula()))


def from_arrays(made: synthetic.Drawn) -> Batch:
    """Images as `as_batch` has them; what else there is as it is."""
    if isinstance(made.inputs, np.ndarray) and made.inputs.ndim == 4:
        return as_batch(made.inputs, made.targets)
    return Batch(tensors(made.inputs), tensors(made.targets), tokens=made.tokens, padding=made.padding)


def table_batch(table: Table) -> Batch:
    """Features (N, F) and targets (N,) of a table."""
    return from_arrays(synthetic.observations(*table))


def tensors(arrays: synthetic.Arrays) -> Any:
    """Arrays as tensors in the host's memory, also where TensorFlow would rather have them on a GPU."""
    if isinstance(arrays, tuple):
        return tuple(map(tensors, arrays))
    with tf.device("CPU"):
        return tf.convert_to_tensor(arrays)


def as_batch(inputs: np.ndarray, targets: synthetic.Arrays | None, skipped: Sequence[str] = ()) -> Batch:
    """Images (N, C, H, W) and their labels, or themselves, as tensors, the images (N, H, W, C)."""
    tensor = tensors(np.ascontiguousarray(inputs.transpose(0, 2, 3, 1)))
    if targets is not None:
        targets = tensor if targets is inputs else tensors(targets)
    return Batch(tensor, targets, tuple(skipped))


def source_batches(card: Card, task: str, source: Source, batch_size: int, workers: int, seed: int) -> Iterator[Batch]:
    """Endless batches of a source; the workers start at once.

    Raises RunError (`data_error`) when no sample can be read.
    """
    if isinstance(source, Records):
        return record_batches(card, task, source, batch_size, workers, seed)
    return _ahead(_batches(card, task, source, batch_size, seed), workers)


def record_batches(card: Card, task: str, source: Records, batch_size: int, workers: int, seed: int) -> Iterator[Batch]:
    """Endless batches of the records in TFRecord files; the workers start at once.

    A record is a `tf.train.Example` with an image file in `image/encoded` and its class, from 0, in
    `image/class/label`. For training an epoch shuffles the files, and records within `SHUFFLED`. Damaged records are
    passed over, and a file from its first wrong checksum on. Raises RunError (`data_error`) when no record of a batch
    can be read.
    """
    make = functools.partial(_of_records, card, task, seed)
    return _ahead((functools.partial(make, chunk) for chunk in _chunks(source, batch_size, task, seed)), workers)


def evaluation_batches(card: Card, source: Source, batch_size: int, workers: int) -> Iterator[Batch]:
    """All samples once, in order, cut as for inference. A batch of which nothing is readable has no inputs."""
    source.share()
    own_targets, reader = reconstructs(card.problem), Reader(source, card, "inference", seed=0)

    def of_records(records: Sequence[Record]) -> Batch:
        read = ((record, _sample(card, "inference", 0, record)) for record in records)
        return _batch_of([sample or Sample(None, 0, (record.name,)) for record, sample in read], own_targets)

    def of_samples(start: int) -> Batch:
        return _batch_of(list(reader.each(reader.order(0), 0, start, batch_size)), own_targets)

    makes: Iterator[Make]
    if isinstance(source, Records):
        records = _epoch(source, 0, range(source.units))
        chunks = iter(lambda: list(itertools.islice(records, batch_size)), [])
        makes = (functools.partial(of_records, chunk) for chunk in chunks)
    else:
        makes = (functools.partial(of_samples, start) for start in range(0, source.samples, batch_size))
    return _ahead(makes, workers)


def synthetic_requests(card: Card, batch_size: int, seed: int) -> Iterator[Make]:
    """Endless requests generated from `seed`: of raw images, cut anew by each that is called; else as they are."""
    if not pictures(card.problem):
        batch = synthetic_batch(card, batch_size, seed)
        return itertools.repeat(lambda: batch)
    rule, random = card.problem["input"], np.random.default_rng(seed)
    raw = raw_images.photographs(rule, batch_size, seed)

    def make() -> Batch:
        return as_batch(np.stack([decoding.pixels(image, rule, "inference", random) for image in raw]), None)

    return itertools.repeat(make)


def source_requests(card: Card, source: Source, batch_size: int, seed: int) -> Iterator[Make]:
    """Endless requests of a source that is not sequential, read when one is called, by the thread that calls.

    A call raises RunError (`data_error`) when no sample can be read.
    """
    return _batches(card, "inference", source, batch_size, seed)


def _batches(card: Card, task: str, source: Source, batch_size: int, seed: int) -> Iterator[Make]:
    source.share()
    reader, own_targets = Reader(source, card, task, seed), reconstructs(card.problem)

    def make(order: Sequence[int], epoch: int, start: int) -> Batch:
        samples = list(reader.samples(order, epoch, start, batch_size))
        return require_readable(_batch_of(samples, own_targets), f"no image of {source.path} can be read")

    for epoch in itertools.count():
        order = reader.order(epoch)
        for start in range(0, source.samples - batch_size + 1, batch_size):
            yield functools.partial(make, order, epoch, start)


def _batch_of(samples: Sequence[Sample], own_targets: bool) -> Batch:
    """The readable ones of samples as one batch of tensors; no inputs without any."""
    inputs, targets, skipped, seconds = stack(samples, own_targets)
    if inputs is None:
        return Batch(None, None, skipped)
    return as_batch(inputs, targets, skipped)._replace(decode_seconds=seconds)


def _ahead(batches: Iterator[Make], workers: int) -> Iterator[Batch]:
    """What the calls give, in order; `workers` threads make them, some ahead of who takes them. None: the caller."""
    if not workers:
        return (make() for make in batches)
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[Batch]] = deque(pool.submit(make) for make in itertools.islice(batches, AHEAD * workers))

    def taken() -> Iterator[Batch]:
        try:
            for make in batches:
                yield waiting.popleft().result()
                waiting.append(pool.submit(make))
            while waiting:
                yield waiting.popleft().result()
        finally:  # whoever takes no more must not wait for what is not begun
            for future in waiting:
                future.cancel()

    return taken()


def _chunks(source: Records, batch_size: int, task: str, seed: int) -> Iterator[list[Record]]:
    """Records in batches, for ever; the last of an epoch is dropped where it is partial."""
    for epoch in itertools.count():
        random = np.random.default_rng([seed, epoch])
        if task == "training":
            records = _shuffled(_epoch(source, epoch, random.permutation(source.units).tolist()), random)
        else:
            records = _epoch(source, epoch, range(source.units))
        for _ in range(source.samples // batch_size):
            yield list(itertools.islice(records, batch_size))


def _epoch(source: Records, epoch: int, order: Iterable[int]) -> Iterator[Record]:
    """Every record once, the files in this order."""
    return itertools.chain.from_iterable(_records(source, index, epoch) for index in order)


def _records(source: Records, index: int, epoch: int) -> Iterator[Record]:
    """As many records of a file as were counted, read ahead by TensorFlow; those that cannot be had have no content."""
    name, count = source.files[index]
    path = source.path / name if source.path.is_dir() else source.path
    records = iter(tf.data.TFRecordDataset(str(path)).prefetch(tf.data.AUTOTUNE))
    for number in range(count):
        try:
            content = next(records).numpy()
        except (StopIteration, tf.errors.OpError):
            for lost in range(number, count):
                yield Record(f"{name}:{number}-", None, (epoch, index, lost))
            return
        yield Record(f"{name}:{number}", content, (epoch, index, number))


def _shuffled(records: Iterator[Record], random: np.random.Generator) -> Iterator[Record]:
    """All of them, each drawn from the `SHUFFLED` that come next."""
    waiting: list[Record] = []
    for record in records:
        waiting.append(record)
        if len(waiting) > SHUFFLED:
            yield waiting.pop(int(random.integers(len(waiting))))
    while waiting:
        yield waiting.pop(int(random.integers(len(waiting))))


def _of_records(card: Card, task: str, seed: int, records: Sequence[Record]) -> Batch:
    """The batch of these records. The next that is readable takes the place of one that is not, so that it is whole."""
    read = [_sample(card, task, seed, record) for record in records]
    skipped = tuple(record.name for record, sample in zip(records, read) if sample is None)
    readable: Sample | None = next((sample for sample in read if sample), None)
    whole = []
    for sample in reversed(read):
        readable = sample or readable
        whole.append(readable or Sample(None, 0))
    whole[-1] = whole[-1]._replace(skipped=skipped)
    batch = _batch_of(whole[::-1], reconstructs(card.problem))
    return require_readable(batch, f"no record can be read: {', '.join(skipped[:3])}")


def _sample(card: Card, task: str, seed: int, record: Record) -> Sample | None:
    """The image of a record, cut for a task; None where the record is damaged or its class not one of the card's."""
    began = time.perf_counter()
    try:
        features = tf.train.Example.FromString(record.content).features.feature
        image = decoding.decode(io.BytesIO(features["image/encoded"].bytes_list.value[0]))
        label = features["image/class/label"].int64_list.value[0]
        random = np.random.default_rng([seed, *record.place])
        pixels = decoding.pixels(image, card.problem["input"], task, random)
    except MemoryError:
        raise
    except Exception:  # a damaged file makes Pillow raise nearly anything
        return None
    if not 0 <= label < card.problem["model"].get("classes", label + 1):
        return None
    return Sample(pixels, label, seconds=time.perf_counter() - began)
