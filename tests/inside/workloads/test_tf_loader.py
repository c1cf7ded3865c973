"""The TensorFlow loader on small photographs in folders and in TFRecord files, with damaged ones among them."""

from __future__ import annotations

import io
import itertools

import pytest
from packed import example

tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Normalisation  # noqa: E402
from entrypoints.contract.statuses import RunError, UsageError  # noqa: E402
from entrypoints.data.images import decoding, records  # noqa: E402
from entrypoints.data.images.folder import Folder  # noqa: E402
from entrypoints.workloads.tensorflow import loader  # noqa: E402

CARDS = cards.load_for("tensorflow")
CARD = CARDS["resnet50"]
COUNT = 10


def photograph(number):
    """A JPEG file of noise."""
    raw = np.random.default_rng(number).integers(256, size=(40, 50, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(raw).save(stream, "JPEG")
    return stream.getvalue()


@pytest.fixture()
def photos(tmp_path):
    for number in range(COUNT):
        folder = tmp_path / f"class{number % 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(photograph(number))
    return tmp_path


def write(file, records):
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)
    return file


@pytest.fixture()
def files(tmp_path):
    """Two files of five records each, labels from 0."""
    halves = (range(5), range(5, 10))
    return [
        write(tmp_path / f"{half[0]}.tfrecord", [example(photograph(number), number) for number in half])
        for half in halves
    ]


def folder_batches(folder, count, task="training", size=4, workers=2, seed=0, card=CARD):
    stream = loader.source_batches(card, task, Folder(folder), size, workers, seed)
    return list(itertools.islice(stream, count))


def record_batches(files, count, task="training", size=4, workers=2, seed=0, card=CARD):
    return list(itertools.islice(loader.record_batches(card, task, source_of(files), size, workers, seed), count))


def source_of(files):
    return records.open_source(files[0].parent, files, "training", None)


def cut(content, card=CARD):
    """What inference is given of an image, (height, width, channels)."""
    pixels = decoding.pixels(decoding.decode(content), card.problem["input"], "inference", np.random.default_rng())
    return decoding.normalised(pixels, Normalisation.of(card.problem["input"]))


def test_shapes_types_and_labels(photos):
    (batch,) = folder_batches(photos, 1, task="inference", size=COUNT)
    assert batch.inputs.shape == (COUNT, 224, 224, 3) and batch.inputs.dtype == tf.float32
    assert batch.targets.numpy().tolist() == [0] * 5 + [1] * 5
    assert np.array_equal(batch.inputs[1], cut(photograph(2)))


def test_records_hold_what_the_files_do(files):
    batches = record_batches(files, 2, task="inference", size=5)
    for half, batch in zip((range(5), range(5, 10)), batches):
        assert batch.targets.numpy().tolist() == list(half) and batch.targets.dtype == tf.int64
        for place, number in enumerate(half):
            assert np.array_equal(batch.inputs[place], cut(photograph(number)))


@pytest.mark.parametrize("read", [folder_batches, record_batches])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_depend_on_the_seed_and_not_on_the_workers(photos, files, read, workers):
    source = photos if read is folder_batches else files
    for alone, other in zip(read(source, 4, workers=0), read(source, 4, workers=workers)):
        assert np.array_equal(alone.inputs, other.inputs) and np.array_equal(alone.targets, other.targets)
    assert not np.array_equal(read(source, 1, seed=1)[0].inputs, read(source, 1, seed=2)[0].inputs)


def test_an_epoch_takes_each_record_once_in_another_order(files):
    first, second = record_batches(files, 2, size=COUNT)
    assert sorted(first.targets.numpy()) == sorted(second.targets.numpy()) == list(range(COUNT))
    assert first.targets.numpy().tolist() != second.targets.numpy().tolist()


def test_a_partial_batch_ends_an_epoch(files):
    first, two, three = record_batches(files, 3, task="inference", size=4)
    assert [batch.targets.numpy().tolist() for batch in (first, two, three)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [0, 1, 2, 3],
    ]


def test_images_are_their_own_targets_where_there_are_no_labels(photos, files):
    card = CARDS["image_compression"]
    for batch in (folder_batches(photos, 1, card=card)[0], record_batches(files, 1, card=card)[0]):
        assert batch.inputs.shape == (4, 28, 28, 1) and batch.targets is batch.inputs
        assert float(tf.reduce_min(batch.inputs)) >= 0 and float(tf.reduce_max(batch.inputs)) <= 1


def test_damaged_records_are_passed_over_and_named(tmp_path):
    wrong = {
        1: example(photograph(1)[:200], 1),
        2: b"no example",
        4: example(photograph(4), 1000),  # the card knows 0 to 999
        5: tf.train.Example().SerializeToString(),
    }
    records = [wrong.get(number, example(photograph(number), number)) for number in range(6)]
    (batch,) = record_batches([write(tmp_path / "a.tfrecord", records)], 1, task="inference", size=6)
    assert batch.skipped == tuple(f"a.tfrecord:{number}" for number in wrong)
    assert batch.targets.numpy().tolist() == [0, 3, 3, 3, 0, 0]  # the next readable, around the end


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_file_goes_no_further_than_its_first_wrong_checksum(files, damage):
    content = bytearray(files[0].read_bytes())
    third = content.index(photograph(2))
    content = content[:third] if damage == "cut" else content[:third] + b"x" + content[third + 1 :]
    files[0].write_bytes(bytes(content))
    first, two = record_batches(files, 2, task="inference", size=3)
    if damage == "cut":  # found when records were counted
        assert source_of(files).lost[0].startswith("0.tfrecord (cut short") and source_of(files).samples == 7
        assert first.skipped == two.skipped == ()
        assert (first.targets.numpy().tolist(), two.targets.numpy().tolist()) == ([0, 1, 5], [6, 7, 8])
    else:  # as many as were counted, so that an epoch stays as long as it was said to be
        assert first.skipped == two.skipped == ("0.tfrecord:2-",)
        assert (first.targets.numpy().tolist(), two.targets.numpy().tolist()) == ([0, 1, 0], [5, 5, 5])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_takes_all_once_and_puts_nothing_in_the_place_of_what_is_damaged(photos, files, workers):
    (photos / "class0" / "2.jpg").write_bytes(b"")
    content = bytearray(files[1].read_bytes())
    place = content.index(photograph(7))
    content[place] ^= 1
    files[1].write_bytes(bytes(content))
    for source, labels, skipped in (
        (Folder(photos), [[0, 0, 0], [0, 1, 1, 1], [1, 1]], {"class0/2.jpg"}),
        (source_of(files), [[0, 1, 2, 3], [4, 5, 6]], {"5.tfrecord:2-"}),
    ):
        batches = list(loader.evaluation_batches(CARD, source, 4, workers))
        read = [batch.targets.numpy().tolist() for batch in batches if batch.inputs is not None]
        assert read == labels, read
        assert {name for batch in batches for name in batch.skipped} == skipped


def test_nothing_readable_is_a_data_error(photos, tmp_path):
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(UsageError, match="contain no record"):
        source_of([write(tmp_path / "empty.tfrecord", [])])
    nothing = write(tmp_path / "nothing.tfrecord", [b"no example"] * 4)
    for read, source in ((folder_batches, photos), (record_batches, [nothing])):
        with pytest.raises(RunError) as raised:
            read(source, 1)
        assert raised.value.state == "data_error"


def test_requests_hold_what_batches_hold(photos):
    (photos / "class0" / "0.jpg").write_bytes(b"")
    stream = loader.source_requests(CARD, Folder(photos), 5, seed=0)
    for make, batch in zip(stream, folder_batches(photos, 3, task="inference", size=5)):
        assert np.array_equal(make().inputs, batch.inputs)
        assert make().skipped == batch.skipped


def test_synthetic_requests_and_batches_come_from_the_seed():
    first, same, other = (next(loader.synthetic_requests(CARD, 2, seed))() for seed in (1, 1, 2))
    assert first.inputs.shape == (2, 224, 224, 3) and first.targets is None
    assert np.array_equal(first.inputs, same.inputs) and not np.array_equal(first.inputs, other.inputs)
    first, same, other = (loader.synthetic_batch(CARD, 2, seed) for seed in (1, 1, 2))
    assert first.inputs.shape == (2, 224, 224, 3) and first.targets.dtype == tf.int64
    assert np.array_equal(first.inputs, same.inputs) and not np.array_equal(first.inputs, other.inputs)
