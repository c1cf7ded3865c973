"""The loader on real photographs, with damaged files among them."""

from __future__ import annotations

import itertools

import photographs
import pytest

torch = pytest.importorskip("torch")

from entrypoints import cards  # noqa: E402
from entrypoints.data import images, synthetic  # noqa: E402
from entrypoints.data.folder import Folder  # noqa: E402
from entrypoints.statuses import RunError  # noqa: E402
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
    assert batch.inputs.shape == (12, 3, 224, 224) and batch.inputs.dtype == torch.float32
    assert batch.targets.tolist() == [0] * 6 + [1] * 6
    assert batch.skipped == ()
    assert -2.2 < batch.inputs.min() < -1 and 1 < batch.inputs.max() < 2.7


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_depend_on_the_seed_and_not_on_the_workers(photos, workers):
    for one, other in zip(batches(photos, 4, workers=0), batches(photos, 4, workers=workers)):
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)
    assert not torch.equal(batches(photos, 1, seed=1)[0].inputs, batches(photos, 1, seed=2)[0].inputs)


def test_every_epoch_has_another_order_and_other_crops(photos):
    first, second = batches(photos, 2, size=12)
    assert sorted(first.targets.tolist()) == sorted(second.targets.tolist())
    assert not torch.equal(first.inputs, second.inputs)


def test_damaged_files_are_passed_over_and_named(photos):
    names = damage(photos)
    found = batches(photos, 6, size=5)
    assert all(len(batch.inputs) == 5 for batch in found)
    assert {name for batch in found for name in batch.skipped} == names


def test_the_next_readable_image_takes_the_place(photos):
    damage(photos)
    for path in photos.glob("colour/*"):
        path.write_bytes(b"")
    (batch,) = batches(photos, 1, task="inference", size=4)
    assert batch.targets.tolist() == [1] * 4


def test_nothing_readable_is_a_data_error(photos):
    for path in photos.glob("*/*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no image of") as raised:
        batches(photos, 1)
    assert raised.value.state == "data_error"


def requested(folder, count, size=5):
    stream = loader.source_requests(CARD, Folder(folder), size, seed=0)
    return [make() for make in itertools.islice(stream, count)]


def test_requests_hold_what_batches_hold(photos):
    """Also with damaged files, and over the edge of an epoch: 15 images make three requests of five."""
    damage(photos)
    for one, other in zip(requested(photos, 5), batches(photos, 5, task="inference", size=5)):
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)
        assert one.inputs.shape == (5, 3, 224, 224)
    named = {name for batch in requested(photos, 5) for name in batch.skipped}
    assert named == {"colour/broken.jpg", "grey/empty.png", "grey/text.jpg"}


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
    one, same, other = (next(loader.synthetic_requests(CARD, 2, seed))() for seed in (1, 1, 2))
    assert one.inputs.shape == (2, 3, 224, 224) and one.inputs.dtype == torch.float32
    assert torch.equal(one.inputs, same.inputs) and not torch.equal(one.inputs, other.inputs)
    assert not torch.equal(one.inputs[0], one.inputs[1])
    raw = synthetic.photographs(CARD.problem["input"], 2, seed=1)
    assert [(image.mode, image.size) for image in raw] == [("RGB", (512, 384))] * 2
    cut = images.pixels(raw[0], CARD.problem["input"], "inference", None)
    assert torch.equal(one.inputs[0], torch.from_numpy(cut))


def test_synthetic_batches_come_from_the_seed():
    one, same, other = (loader.synthetic_batch(CARD, 2, seed) for seed in (1, 1, 2))
    assert one.inputs.shape == (2, 3, 224, 224) and one.targets.dtype == torch.int64
    assert torch.equal(one.inputs, same.inputs) and not torch.equal(one.inputs, other.inputs)
    assert one.targets.max() < 1000
