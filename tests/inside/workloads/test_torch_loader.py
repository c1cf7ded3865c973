"""The loader on real photographs, with damaged files among them, and on files of many samples."""

from __future__ import annotations

import io
import itertools
from typing import Any

import packed
import photographs
import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.group import Place  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.data import formats  # noqa: E402
from entrypoints.data.generated import raw_images  # noqa: E402
from entrypoints.data.images import decoding, samples  # noqa: E402
from entrypoints.data.images.folder import Folder  # noqa: E402
from entrypoints.devices.pytorch.shared.transfer import normalised  # noqa: E402
from entrypoints.workloads.pytorch import loader  # noqa: E402

CARD = cards.load()["resnet50"]


@pytest.fixture()
def photos(tmp_path):
    return photographs.write(tmp_path)


def batches(folder, count, task="training", size=4, workers=2, seed=0):
    stream = loader.source_batches(CARD, task, Folder(folder), size, workers, seed)
    return list(itertools.islice(stream, count))


def damage(folder):
    whole = (folder / "colour" / "coffee.jpg").read_bytes()
    (folder / "colour" / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "grey" / "empty.png").write_bytes(b"")
    (folder / "grey" / "text.jpg").write_text("no image at all")
    return {"colour/broken.jpg", "grey/empty.png", "grey/text.jpg"}


def test_shapes_types_and_labels(photos):
    (batch,) = batches(photos, 1, task="inference", size=12)
    assert batch.inputs.shape == (12, 224, 224, 3) and batch.inputs.dtype == torch.uint8
    assert batch.targets.tolist() == [0] * 6 + [1] * 6
    assert batch.skipped == ()
    images = normalised(batch).inputs
    assert images.shape == (12, 3, 224, 224) and images.dtype == torch.float32
    assert -2.2 < images.min() < -1 and 1 < images.max() < 2.7


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_depend_on_the_seed_and_not_on_the_workers(photos, workers):
    for alone, other in zip(batches(photos, 4, workers=0), batches(photos, 4, workers=workers)):
        assert torch.equal(alone.inputs, other.inputs) and torch.equal(alone.targets, other.targets)
    assert not torch.equal(batches(photos, 1, seed=1)[0].inputs, batches(photos, 1, seed=2)[0].inputs)


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_what_one_takes(photos, workers):
    ranks = [
        itertools.islice(
            loader.source_batches(CARD, "training", Folder(photos), 3, workers, 0, Place(rank, 2, 0, 1)), 5
        )
        for rank in range(2)
    ]
    for alone, *shares in zip(batches(photos, 5, size=6, workers=0), *ranks):
        assert torch.equal(alone.inputs, torch.cat([share.inputs for share in shares]))
        assert torch.equal(alone.targets, torch.cat([share.targets for share in shares]))


def test_every_epoch_has_another_order_and_other_crops(photos):
    first, second = batches(photos, 2, size=12)
    assert sorted(first.targets.tolist()) == sorted(second.targets.tolist())
    assert not torch.equal(first.inputs, second.inputs)


def test_damaged_files_are_passed_over_and_named(photos):
    names = damage(photos)
    made = batches(photos, 6, size=5)
    assert all(len(batch.inputs) == 5 for batch in made)
    assert {name for batch in made for name in batch.skipped} == names


def test_the_next_readable_image_takes_the_place(photos):
    damage(photos)
    for path in photos.glob("colour/*"):
        path.write_bytes(b"")
    (batch,) = batches(photos, 1, task="inference", size=4)
    assert batch.targets.tolist() == [1] * 4


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_takes_all_once_and_puts_nothing_in_the_place_of_what_is_damaged(photos, workers):
    for name in ("astronaut.jpg", "astronaut.png"):  # the first two
        (photos / "colour" / name).write_bytes(b"")
    for size, sizes in ((2, [0, 2, 2, 2, 2, 2]), (5, [3, 5, 2]), (12, [10])):
        made = list(loader.evaluation_batches(CARD, Folder(photos), size, workers))
        assert [0 if batch.inputs is None else len(batch.inputs) for batch in made] == sizes
        assert {name for batch in made for name in batch.skipped} == {"colour/astronaut.jpg", "colour/astronaut.png"}
        labels = [int(label) for batch in made if batch.inputs is not None for label in batch.targets]
        assert labels == [0] * 4 + [1] * 6


def test_nothing_readable_is_a_data_error(photos):
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no image of") as raised:
        batches(photos, 1)
    assert raised.value.state == "data_error"


def requested(folder, count, size=5):
    stream = loader.source_requests(CARD, Folder(folder), size, seed=0)
    return [make() for make in itertools.islice(stream, count)]


@pytest.mark.full
def test_requests_hold_what_batches_hold(photos):
    """Also with damaged files, and over the edge of an epoch: 15 images make three requests of five."""
    damage(photos)
    for request, other in zip(requested(photos, 5), batches(photos, 5, task="inference", size=5)):
        assert torch.equal(request.inputs, other.inputs) and torch.equal(request.targets, other.targets)
        assert request.inputs.shape == (5, 224, 224, 3) and request.normalisation == other.normalisation
    named = {name for batch in requested(photos, 5) for name in batch.skipped}
    assert named == {"colour/broken.jpg", "grey/empty.png", "grey/text.jpg"}


@pytest.mark.full
def test_a_request_of_which_nothing_is_readable_is_a_data_error(photos):
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no image of") as raised:
        requested(photos, 1)
    assert raised.value.state == "data_error"


def test_a_file_is_read_when_its_request_is_made(photos):
    """Listing requests costs nothing: what reading costs stands in the latency."""
    stream = loader.source_requests(CARD, Folder(photos), 1, seed=0)
    first = next(stream)
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(RunError):
        first()


def test_synthetic_requests_cut_raw_images_made_from_the_seed():
    first, same, other = (next(loader.synthetic_requests(CARD, 2, seed))() for seed in (1, 1, 2))
    assert first.inputs.shape == (2, 224, 224, 3) and first.inputs.dtype == torch.uint8
    assert torch.equal(first.inputs, same.inputs) and not torch.equal(first.inputs, other.inputs)
    assert not torch.equal(first.inputs[0], first.inputs[1])
    raw = raw_images.photographs(CARD.problem["input"], 2, seed=1)
    assert [(image.mode, image.size) for image in raw] == [("RGB", (512, 384))] * 2
    cut = decoding.pixels(raw[0], CARD.problem["input"], "inference", np.random.default_rng())
    assert np.array_equal(first.inputs[0].numpy(), cut)


def test_synthetic_batches_come_from_the_seed():
    first, same, other = (loader.synthetic_batch(CARD, 2, seed) for seed in (1, 1, 2))
    assert first.inputs.shape == (2, 3, 224, 224) and first.targets.dtype == torch.int64
    assert torch.equal(first.inputs, same.inputs) and not torch.equal(first.inputs, other.inputs)
    assert first.targets.max() < 1000


# Files of many samples

SMALL = cards.load()["image_compression"]


def png(level, depth=8):
    return packed.grey_png(20, 20, depth, level)


def levels(batch):
    """What the images of a batch of even grey were made of: their mean brightness in 256 steps."""
    return [round(float(image.float().mean())) for image in batch.inputs]


def drawn(source, count, task="training", size=4, workers=0, seed=0, card=SMALL):
    return list(itertools.islice(loader.source_batches(card, task, source, size, workers, seed), count))


@pytest.mark.full
@given(st.integers(1, 9), st.integers(1, 5), st.booleans())
def test_workers_share_every_epoch_by_turns(per_epoch, workers, sequential):
    """What DataLoader takes from endless workers in turn is one epoch after the other, each batch once."""

    def stream(worker):
        for epoch in itertools.count():
            for first, count in samples.shares(epoch, per_epoch, worker, workers, sequential):
                yield from ((epoch, number) for number in range(first, first + count))

    streams = [stream(worker) for worker in range(workers)]
    taken = [next(streams[turn % workers]) for turn in range(4 * per_epoch)]
    for epoch in range(4):
        of_epoch = taken[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(of_epoch) == [(epoch, number) for number in range(per_epoch)]
        assert sequential or of_epoch == sorted(of_epoch)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_an_epoch_of_shards_is_the_same_samples_whoever_reads_them(tmp_path, workers):
    """Two shards, also for five workers; 23 samples make five batches of four, and another three are dropped each."""
    packed.shards(tmp_path, [13, 10], image=lambda number: png(10 * number))
    alone, shared = (drawn(open_source(tmp_path), 10, workers=count) for count in (0, workers))
    epochs = []
    for batches in (alone, shared):
        of = [sorted(level for batch in batches[at : at + 5] for level in levels(batch)) for at in (0, 5)]
        assert all(len(set(taken)) == 20 for taken in of)
        epochs.append(of)
    assert epochs[0] == epochs[1]


def test_shards_are_mixed_for_training_and_in_order_for_inference(tmp_path):
    packed.shards(tmp_path, [12, 12], image=lambda number: png(10 * number))
    source = open_source(tmp_path)
    order = [level for batch in drawn(source, 6, "inference") for level in levels(batch)]
    assert order == [10 * number for number in range(24)]
    first, again = ([level for batch in drawn(source, 6, seed=3) for level in levels(batch)] for _ in range(2))
    assert first == again and sorted(first) == order and first != order
    halves = {level < 120 for level in first[:12]}
    assert len(halves) == 2, "one worker mixes both shards"


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_read_parts_of_an_epoch_of_shards(tmp_path, workers):
    """Two ranks make two batches of four each, and seven samples are dropped."""
    packed.shards(tmp_path, [13, 10], image=lambda number: png(10 * number))
    ranks = [
        list(itertools.islice(loader.source_batches(CARD, "training", source, 4, workers, 0, Place(rank, 2, 0, 1)), 4))
        for rank, source in enumerate([open_source(tmp_path), open_source(tmp_path)])
    ]
    for epoch in (slice(0, 2), slice(2, 4)):
        taken = [level for batches in ranks for batch in batches[epoch] for level in levels(batch)]
        assert len(taken) == len(set(taken)) == 16


@given(st.integers(0, 40), st.integers(1, 50))
def test_mixing_loses_nothing_and_holds_little(count, most):
    asked: list[Any] = []

    def entries():
        for number in range(count):
            asked.append(number)
            yield number

    mixed: list[Any] = []
    for entry in samples.mix(entries(), most, np.random.default_rng(1)):
        assert len(asked) - len(mixed) <= most + 1
        mixed.append(entry)
    assert sorted(mixed) == list(range(count))


@pytest.mark.parametrize("workers", [0, 2])
def test_what_cannot_be_read_in_shards_is_named_and_batches_stay_whole(tmp_path, workers):
    jpeg = photograph("JPEG")
    damaged = [("n0/zero", b"", 0), ("n0/short", jpeg[: len(jpeg) // 2], 1), ("n0/label", png(0), 1000)]
    packed.shard(tmp_path / "a.tar", [*[(f"n0/{at}", png(100), 0) for at in range(8)], *damaged])
    content = packed.shard(tmp_path / "b.tar", [("x", png(100), 0), ("y", png(0) * 9, 1)]).read_bytes()
    (tmp_path / "b.tar").write_bytes(content[:2048])
    source = open_source(tmp_path)
    assert source.samples == 12 and source.lost[0].startswith("b.tar (cut short or damaged after byte 1024")
    batches = drawn(source, 9, workers=workers, card=CARD)
    assert all(len(batch.inputs) == 4 and batch.targets.max() < 2 for batch in batches)
    names = {name for batch in batches for name in batch.skipped}
    assert names == {"a.tar/n0/zero.jpg", "a.tar/n0/short.jpg", "a.tar/n0/label.jpg (label 1000)"}


def test_a_shard_that_broke_after_it_was_counted(tmp_path):
    packed.shards(tmp_path, [4, 4], image=lambda number: png(10 * number))
    source = open_source(tmp_path)
    (tmp_path / "train-000001.tar").write_bytes(b"gone")
    made = drawn(source, 2, "inference")
    assert [level for batch in made for level in levels(batch)] == [0, 10, 20, 30] + [30] * 4
    assert "rest is lost" in made[1].skipped[0]


def test_nothing_readable_in_shards_is_a_data_error(tmp_path):
    packed.shards(tmp_path, [6], image=lambda number: b"no image")
    with pytest.raises(RunError, match="no image of") as raised:
        drawn(open_source(tmp_path), 1)
    assert raised.value.state == "data_error"


def test_deep_and_printed_colours_in_shards(tmp_path):
    """16-bit grey and CMYK are decoded as they are from files."""
    packed.shard(tmp_path / "a.tar", [("deep", png(100 * 256 + 7, 16), 0), ("printed", photograph("JPEG", "CMYK"), 0)])
    (batch,) = drawn(open_source(tmp_path), 1, "inference", 2)
    assert batch.skipped == () and levels(batch)[0] == 100


def test_the_seconds_of_decoding_are_told(tmp_path):
    packed.shards(tmp_path, [8], image=lambda number: png(10 * number))
    assert all(batch.decode_seconds > 0 for batch in drawn(open_source(tmp_path), 2, workers=1))
    assert loader.synthetic_batch(CARD, 2, 0).decode_seconds is None


@pytest.mark.parametrize("task", ["training", "inference"])
def test_idx_images_are_the_bytes_of_the_file(tmp_path, task):
    random = np.random.default_rng(5)
    images, labels = random.integers(256, size=(8, 28, 28), dtype=np.uint8), [3] * 8
    packed.idx(tmp_path, images.tolist(), labels)
    (batch,) = drawn(open_source(tmp_path, task), 1, task, 8, workers=1 if task == "training" else 0)
    expected = torch.from_numpy(images.astype(np.float32) / 255)[:, None]
    batch = normalised(batch)
    decoded = sorted(batch.inputs, key=lambda image: float(image.sum()))
    assert torch.equal(torch.stack(decoded), torch.stack(sorted(expected, key=lambda image: float(image.sum()))))
    assert batch.targets is batch.inputs or torch.equal(batch.targets, batch.inputs)
    (request,) = (make() for make in itertools.islice(loader.source_requests(SMALL, open_source(tmp_path), 8, 0), 1))
    assert torch.equal(normalised(request).inputs, expected)


def test_idx_images_for_a_network_of_colours(tmp_path):
    packed.idx(tmp_path, [[[90] * 28] * 28] * 4, [0, 1, 2, 255])
    (batch,) = drawn(open_source(tmp_path), 1, "inference", 4, card=CARD)
    assert batch.inputs.shape == (4, 224, 224, 3) and batch.targets.tolist() == [0, 1, 2, 255]
    grey = normalised(batch).inputs * torch.tensor(CARD.problem["input"]["standard_deviation"])[:, None, None]
    grey = (grey + torch.tensor(CARD.problem["input"]["mean"])[:, None, None]) * 255
    assert torch.allclose(grey, torch.full_like(grey, 90), atol=1e-3)


def open_source(path, task="training"):
    return formats.open_source(path, task, "pytorch")[1]


def photograph(form, mode="RGB"):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(content, form)
    return content.getvalue()
