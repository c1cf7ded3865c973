"""Batches as tensors: one synthetic batch, images decoded by worker threads, or requests.

Workers are threads, since Pillow and NumPy release the interpreter lock, and TensorFlow does not survive a fork.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
import tensorflow as tf

from entrypoints.contract.cards import Card, pictures, reconstructs
from entrypoints.contract.group import ALONE, Place
from entrypoints.contract.session import Batch, Normalisation
from entrypoints.data.generated import formula, raw_images, synthetic
from entrypoints.data.images import decoding
from entrypoints.data.images.records import Records
from entrypoints.data.images.samples import Reader, Sample, require_readable, stack
from entrypoints.data.source import Source
from entrypoints.data.table import TableRows

Make = Callable[[], Batch]
AHEAD = 2  # batches per worker, as in PyTorch's loader
SHUFFLED = 1024  # size of the shuffle buffer in records: some 100 MiB of photographs


class Record(NamedTuple):
    """A record of a file, None if it cannot be read, and its position, which seeds its crop."""

    name: str
    content: bytes | None
    position: tuple[int, int, int]  # epoch, index of the file, index of the record there


def synthetic_batch(card: Card, batch_size: int, seed: int) -> Batch:
    """Return one batch generated from `seed`."""
    return from_arrays(synthetic.batch(card.problem, batch_size, synthetic.SeededRandom(seed)))


def slice_of(batch: Batch, first: int, samples: int) -> Batch:
    """Return so many samples of a batch, from the `first` one on."""

    def part(tensor: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU"):
            return tensor[first : first + samples]

    inputs, targets = tf.nest.map_structure(part, (batch.inputs, batch.targets))
    return batch._replace(inputs=inputs, targets=targets)


def formula_batch(card: Card, batch_size: int) -> Batch:
    """Return one batch arrays by `data.generated.formula`."""
    return from_arrays(synthetic.batch(card.problem, batch_size, formula.Formula()))


def from_arrays(arrays: synthetic.SyntheticBatch) -> Batch:
    """Return generated arrays as a batch: images (N, C, H, W) as (N, H, W, C), anything else unchanged."""
    if isinstance(arrays.inputs, np.ndarray) and arrays.inputs.ndim == 4:
        inputs = np.ascontiguousarray(arrays.inputs.transpose(0, 2, 3, 1))
        return as_batch(inputs, inputs if arrays.targets is arrays.inputs else arrays.targets)
    return Batch(tensors(arrays.inputs), tensors(arrays.targets), tokens=arrays.tokens, padding=arrays.padding)


def table_batch(table: TableRows) -> Batch:
    """Return the features (N, F) and targets (N,) of a table as a batch."""
    return from_arrays(synthetic.observations(*table))


def tensors(arrays: synthetic.Arrays) -> Any:
    """Return arrays as tensors in the host's memory, also if there is a GPU."""
    if isinstance(arrays, tuple):
        return tuple(map(tensors, arrays))
    with tf.device("CPU"):
        return tf.convert_to_tensor(arrays)


def as_batch(inputs: np.ndarray, targets: synthetic.Arrays | None, skipped: Sequence[str] = ()) -> Batch:
    """Return images (N, H, W, C) and targets, which may be the images, as tensors."""
    tensor = tensors(inputs)
    if targets is not None:
        targets = tensor if targets is inputs else tensors(targets)
    return Batch(tensor, targets, tuple(skipped))


def source_batches(
    card: Card, task: str, source: Source, batch_size: int, workers: int, seed: int, place: Place = ALONE
) -> Iterator[Batch]:
    """Return endless batches of a source, those of a rank; the workers start immediately.

    Raises RunError (`data_error`) if no sample of a batch can be read.
    """
    if isinstance(source, Records):
        return record_batches(card, task, source, batch_size, workers, seed, place)
    return _ahead(_batches(card, task, source, batch_size, seed, place), workers)


def record_batches(
    card: Card, task: str, source: Records, batch_size: int, workers: int, seed: int, place: Place = ALONE
) -> Iterator[Batch]:
    """Return endless batches of the records in TFRecord files, those of a rank; the workers start immediately.

    A record is a `tf.train.Example` with an image file in `image/encoded` and its class, from 0, in
    `image/class/label`. For training an epoch shuffles the files, and records within `SHUFFLED`. Damaged records are
    skipped, and so is a file from its first wrong checksum on. Raises RunError (`data_error`) if no record of a batch
    can be read.
    """
    make = functools.partial(_of_records, card, task, seed)
    return _ahead((functools.partial(make, chunk) for chunk in _chunks(source, batch_size, task, seed, place)), workers)


def evaluation_batches(card: Card, source: Source, batch_size: int, workers: int) -> Iterator[Batch]:
    """Return all samples once, in order, cut as for inference. A batch without readable samples has no inputs."""
    source.share()
    reader = Reader(source, card, "inference", seed=0)

    def of_records(records: Sequence[Record]) -> Batch:
        read = ((record, _sample(card, "inference", 0, record)) for record in records)
        return _batch_of([sample or Sample(None, 0, (record.name,)) for record, sample in read], card)

    def of_samples(start: int) -> Batch:
        return _batch_of(list(reader.each(reader.order(0), 0, start, batch_size)), card)

    makes: Iterator[Make]
    if isinstance(source, Records):
        records = _epoch(source, 0, range(source.units))
        chunks = iter(lambda: list(itertools.islice(records, batch_size)), [])
        makes = (functools.partial(of_records, chunk) for chunk in chunks)
    else:
        makes = (functools.partial(of_samples, start) for start in range(0, source.samples, batch_size))
    return _ahead(makes, workers)


def synthetic_requests(card: Card, batch_size: int, seed: int) -> Iterator[Make]:
    """Return endless requests generated from `seed`. Each call cuts raw images again; other data stay the same."""
    if not pictures(card.problem):
        batch = synthetic_batch(card, batch_size, seed)
        return itertools.repeat(lambda: batch)
    rule, random = card.problem["input"], np.random.default_rng(seed)
    raw = raw_images.photographs(rule, batch_size, seed)

    def make() -> Batch:
        cut = np.stack([decoding.pixels(image, rule, "inference", random) for image in raw])
        return as_batch(decoding.normalised(cut, Normalisation.of(rule)), None)

    return itertools.repeat(make)


def source_requests(card: Card, source: Source, batch_size: int, seed: int) -> Iterator[Make]:
    """Return endless requests of a source that is not sequential. Each call reads its samples in the calling thread.

    A call raises RunError (`data_error`) if none of its samples can be read.
    """
    return _batches(card, "inference", source, batch_size, seed)


def _batches(card: Card, task: str, source: Source, batch_size: int, seed: int, place: Place = ALONE) -> Iterator[Make]:
    """Yield what makes each batch of a rank, endlessly: of each global batch its part."""
    source.share()
    reader, whole = Reader(source, card, task, seed), batch_size * place.world

    def make(order: Sequence[int], epoch: int, start: int) -> Batch:
        samples = list(reader.samples(order, epoch, start, batch_size))
        return require_readable(_batch_of(samples, card), f"no image of {source.path} can be read")

    for epoch in itertools.count():
        order = reader.order(epoch)
        for start in range(0, source.samples - whole + 1, whole):
            yield functools.partial(make, order, epoch, start + place.rank * batch_size)


def _batch_of(samples: Sequence[Sample], card: Card) -> Batch:
    """Return the readable samples as one batch of tensors, normalised, without inputs if there are none."""
    own_targets = reconstructs(card.problem)
    pixels, labels, skipped, seconds = stack(samples, own_targets)
    if pixels is None:
        return Batch(None, None, skipped)
    inputs = decoding.normalised(pixels, Normalisation.of(card.problem["input"]))
    return as_batch(inputs, inputs if own_targets else labels, skipped)._replace(decode_seconds=seconds)


def _ahead(batches: Iterator[Make], workers: int) -> Iterator[Batch]:
    """Yield the results of calls in order, made ahead by `workers` threads; without workers, by the calling thread."""
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
        finally:  # do not wait for calls that have not begun
            for future in waiting:
                future.cancel()

    return taken()


def _chunks(source: Records, batch_size: int, task: str, seed: int, place: Place) -> Iterator[list[Record]]:
    """Yield a rank's batches of records endlessly, without the partial last global batch of an epoch."""
    whole, before = batch_size * place.world, batch_size * place.rank
    for epoch in itertools.count():
        random = np.random.default_rng([seed, epoch])
        if task == "training":
            records = _shuffled(_epoch(source, epoch, random.permutation(source.units).tolist()), random)
        else:
            records = _epoch(source, epoch, range(source.units))
        for _ in range(source.samples // whole):
            yield list(itertools.islice(records, whole))[before : before + batch_size]


def _epoch(source: Records, epoch: int, order: Iterable[int]) -> Iterator[Record]:
    """Return every record once, with the files in the given order."""
    return itertools.chain.from_iterable(_records(source, index, epoch) for index in order)


def _records(source: Records, index: int, epoch: int) -> Iterator[Record]:
    """Yield the counted number of records of a file, read ahead by TensorFlow; unreadable ones have no content."""
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
    """Yield all records, each drawn at random from the next `SHUFFLED`."""
    waiting: list[Record] = []
    for record in records:
        waiting.append(record)
        if len(waiting) > SHUFFLED:
            yield waiting.pop(int(random.integers(len(waiting))))
    while waiting:
        yield waiting.pop(int(random.integers(len(waiting))))


def _of_records(card: Card, task: str, seed: int, records: Sequence[Record]) -> Batch:
    """Return a full batch of records. The next readable record replaces an unreadable one."""
    read = [_sample(card, task, seed, record) for record in records]
    skipped = tuple(record.name for record, sample in zip(records, read) if sample is None)
    readable: Sample | None = next((sample for sample in read if sample), None)
    complete = []
    for sample in reversed(read):
        readable = sample or readable
        complete.append(readable or Sample(None, 0))
    complete[-1] = complete[-1]._replace(skipped=skipped)
    batch = _batch_of(complete[::-1], card)
    return require_readable(batch, f"no record can be read: {', '.join(skipped[:3])}")


def _sample(card: Card, task: str, seed: int, record: Record) -> Sample | None:
    """Return the cut image of a record, or None if the record is damaged or its class is not one of the card's."""
    began = time.perf_counter()
    try:
        features = tf.train.Example.FromString(record.content).features.feature
        label = features["image/class/label"].int64_list.value[0]
        random = np.random.default_rng([seed, *record.position])
        content = features["image/encoded"].bytes_list.value[0]
        pixels = decoding.pixels_of_file(content, card.problem["input"], task, random)
    except MemoryError:
        raise
    except Exception:  # a damaged file makes Pillow raise nearly anything
        return None
    if not 0 <= label < card.problem["model"].get("classes", label + 1):
        return None
    return Sample(pixels, label, seconds=time.perf_counter() - began)
