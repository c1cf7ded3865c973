"""Decoding and cutting, on images made here of which every pixel is known."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("PIL")

from PIL import Image  # noqa: E402

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.session import Normalisation  # noqa: E402
from entrypoints.data.images import decoding  # noqa: E402

RULE = cards.load()["resnet50"].problem["input"]


def saved(tmp_path, image, name="image.png", **options):
    image.save(str(tmp_path / name), **options)
    return (tmp_path / name).read_bytes()


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("RGB", (200, 100, 50), (200, 100, 50)),
        ("L", 90, (90, 90, 90)),
        ("1", 1, (255, 255, 255)),
        ("LA", (90, 10), (90, 90, 90)),
        ("RGBA", (200, 100, 50, 0), (200, 100, 50)),
        ("I;16", 90 * 256 + 7, (90, 90, 90)),
    ],
)
def test_every_colour_model_becomes_rgb(tmp_path, mode, colour, expected):
    decoded = decoding.decode(saved(tmp_path, Image.new(mode, (5, 4), colour)))
    assert decoded.mode == "RGB" and decoded.size == (5, 4)
    assert decoded.getpixel((2, 2)) == expected


def test_palettes_with_and_without_transparency(tmp_path):
    image = Image.new("P", (5, 4), 1)
    image.putpalette([0, 0, 0, 200, 100, 50] + [0] * 762)
    assert decoding.decode(saved(tmp_path, image)).getpixel((2, 2)) == (200, 100, 50)
    assert decoding.decode(saved(tmp_path, image, transparency=1)).getpixel((2, 2)) == (200, 100, 50)


def test_cmyk_jpeg(tmp_path):
    decoded = decoding.decode(saved(tmp_path, Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "image.jpg", quality=95))
    red, green, blue = np.asarray(decoded)[8, 8]
    assert red > 200 and green < 60 and blue < 60


def test_an_image_lies_as_its_orientation_tag_says(tmp_path):
    image = Image.new("RGB", (40, 20), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 20, 20))  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # EXIF orientation: the camera was turned, rotate by 90 degrees clockwise
    decoded = decoding.decode(saved(tmp_path, image, "image.jpg", exif=exif, quality=95))
    assert decoded.size == (20, 40)
    pixels = np.asarray(decoded)
    assert pixels[5, 10, 0] > 200 and pixels[35, 10, 0] < 50


@pytest.mark.parametrize("kept", [0, 100, 2000])
def test_a_damaged_file_raises(tmp_path, kept):
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = saved(tmp_path, Image.fromarray(noise), "image.jpg")
    with pytest.raises(OSError):
        decoding.decode(content[:kept])


def test_pixels_are_bytes_that_are_normalised_by_channel():
    image = Image.new("RGB", (300, 260), (255, 0, 51))
    pixels = decoding.pixels(image, RULE, "inference", np.random.default_rng(0))
    assert pixels.shape == (224, 224, 3) and pixels.dtype == np.uint8
    numbers = decoding.normalised(pixels, Normalisation.of(RULE))
    assert numbers.dtype == np.float32
    for channel, value in enumerate((1.0, 0.0, 0.2)):
        expected = (value - RULE["mean"][channel]) / RULE["standard_deviation"][channel]
        np.testing.assert_allclose(numbers[..., channel], expected, rtol=1e-5)


@pytest.mark.parametrize("size", [(512, 1024), (500, 375), (333, 257), (256, 256), (120, 90)])
def test_inference_takes_the_centre_of_the_resized_image(size):
    image = smooth(*size)
    scale = 256 / min(size)
    whole = image.resize(tuple(round(side * scale) for side in size), decoding.BILINEAR)
    left, upper = (whole.width - 224) // 2, (whole.height - 224) // 2
    expected = np.asarray(whole.crop((left, upper, left + 224, upper + 224)), np.int16)
    pixels = decoding.pixels(image, RULE, "inference", np.random.default_rng(0))
    assert np.abs(pixels - expected).max() <= 1, "they are rounded elsewhere"


def smooth(width, height):
    """An image like a photograph: its neighbouring pixels are similar."""
    noise = np.random.default_rng(width).integers(0, 255, (height // 40 + 1, width // 40 + 1, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), decoding.BILINEAR)


@pytest.mark.parametrize("orientation", [None, 6])
@pytest.mark.parametrize("task", ["training", "inference"])
@pytest.mark.parametrize(("size", "kind", "reduced"), [((1400, 2100), "JPEG", 2), ((2900, 2200), "MPO", 4)])
def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size(
    tmp_path, monkeypatch, size, kind, reduced, task, orientation
):
    exif = Image.Exif()
    if orientation:
        exif[decoding.ORIENTATION] = orientation
    content = saved(tmp_path, smooth(*size), "image.jpg", format=kind, quality=90, exif=exif)
    taken = []
    given = decoding.resized

    def resized(*rest):
        taken.append(rest[3:])
        return given(*rest)

    monkeypatch.setattr(decoding, "resized", resized)
    for seed in range(3):
        whole = decoding.pixels(decoding.decode(content), RULE, task, np.random.default_rng(seed)).astype(np.int16)
        part = decoding.pixels_of_file(content, RULE, task, np.random.default_rng(seed))
        difference = np.abs(part - whole)
        assert difference.mean() < 0.6 and difference.max() <= 12, (difference.mean(), difference.max())
    reductions = {rest[0] for rest in taken if rest}
    assert reductions == {reduced} if task == "inference" else reductions <= {1, 2, 4}


@pytest.mark.parametrize("name", ["image.jpg", "image.png"])
def test_other_files_are_decoded_whole(tmp_path, name):
    content = saved(tmp_path, smooth(700, 500), name)
    for task in ("training", "inference"):
        whole, file = (
            make(np.random.default_rng(3))
            for make in (
                lambda random: decoding.pixels(decoding.decode(content), RULE, task, random),  # noqa: B023
                lambda random: decoding.pixels_of_file(content, RULE, task, random),  # noqa: B023
            )
        )
        assert np.array_equal(whole, file)


@pytest.mark.parametrize("size", [(500, 400), (1, 1), (2, 3000), (3000, 2), (224, 224)])
def test_random_crops_lie_inside_and_keep_to_the_rule(size):
    random = np.random.default_rng(1)
    rule = RULE["training"]
    for _ in range(200):
        left, upper, right, lower = decoding.random_crop(size, rule, random)
        assert 0 <= left < right <= size[0] and 0 <= upper < lower <= size[1]
        if min(size) > 100:
            assert 0.075 < (right - left) * (lower - upper) / (size[0] * size[1]) <= 1
            assert 0.74 < (right - left) / (lower - upper) < 1.35


def test_the_same_seed_cuts_the_same_and_another_does_not():
    noise = np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)

    def cut(seed):
        return decoding.pixels(Image.fromarray(noise), RULE, "training", np.random.default_rng(seed))

    assert np.array_equal(cut(5), cut(5))
    assert not np.array_equal(cut(5), cut(6))


def test_a_line_takes_no_more_memory_than_an_input():
    image = Image.new("RGB", (60000, 1), (9, 9, 9))
    assert (decoding.pixels(image, RULE, "inference", np.random.default_rng(0)) == 9).all()


def damaged(content):
    with pytest.raises(ValueError, match="pixels in a file of"):
        decoding.decode(content)
    return True


def test_an_image_of_more_pixels_than_are_decoded(tmp_path, monkeypatch):
    content = saved(tmp_path, Image.new("L", (20, 5)))
    monkeypatch.setattr(decoding, "MOST_PIXELS", 100)
    assert decoding.decode(content).size == (20, 5)
    monkeypatch.setattr(decoding, "MOST_PIXELS", 99)
    assert damaged(content)


def test_a_jpeg_whose_scans_take_longer_than_its_pixels(tmp_path, monkeypatch):
    """Each of them is a few bytes, and takes as long as an image without any compression."""
    content = saved(tmp_path, Image.new("L", (400, 400)), "image.jpg", progressive=True)
    last = content[content.rindex(decoding.SCAN) : -2]
    monkeypatch.setattr(decoding, "MOST_SCANNED", 10 * 400 * 400)
    assert decoding.decode(content).size == (400, 400)
    assert damaged(content[:-2] + last * 10 + content[-2:])


@pytest.mark.parametrize("kind", ["EPS", "GIF", "TIFF", "BMP", "PDF"])
def test_other_formats_are_not_decoded_whatever_their_names(tmp_path, kind):
    with pytest.raises(OSError, match="cannot identify"):
        decoding.decode(saved(tmp_path, Image.new("RGB", (4, 4)), "image.png", format=kind))
