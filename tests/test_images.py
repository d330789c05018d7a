"""Photographs of all kinds: what goes into the model, and which files are refused."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from dobrushin import images, models
from dobrushin.images import SMALLEST, default_pictures, folder


def refused(message: str, error: type[Exception] = ValueError):
    return pytest.raises(error, match=re.escape(message))


def photograph(width: int = 48, height: int = 40) -> Image.Image:
    """Smooth in every channel, so that JPEG keeps it nearly."""
    y, x = np.mgrid[0:height, 0:width]
    channels = np.stack([x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)], axis=-1)
    return Image.fromarray(channels.astype(np.uint8))


def only(path) -> Image.Image:
    return folder(path, 1).open(0)


def difference(one: Image.Image, other: Image.Image) -> float:
    assert one.size == other.size
    return np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).mean()


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("RGB", "a.png"),
        ("RGB", "a.jpg"),
        ("CMYK", "a.jpg"),
        ("CMYK", "a.tiff"),
        ("YCbCr", "a.jpg"),
        ("RGBA", "a.png"),
        ("RGB", "a.webp"),
    ],
)
def test_colour_images_of_any_kind_become_the_same_rgb(tmp_path, mode, name):
    photograph().convert(mode).save(tmp_path / name)
    read = only(tmp_path)
    assert read.mode == "RGB"
    assert difference(read, photograph()) < 4  # lossy formats


@pytest.mark.parametrize("mode", ["L", "1", "LA"])
def test_grey_images_have_three_equal_channels(tmp_path, mode):
    grey = photograph().convert(mode)
    grey.save(tmp_path / "a.png")
    read = np.asarray(only(tmp_path))
    assert (read == read[..., :1]).all()
    assert np.array_equal(read[..., 0], np.asarray(grey.convert("L")))


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA"])
def test_transparency_is_laid_on_white(tmp_path, mode):
    clear = photograph().convert("LA" if mode == "LA" else "RGBA")
    clear.putalpha(0)
    if mode == "P":
        palette = photograph().convert("P")
        palette.save(tmp_path / "a.png", transparency=bytes(256))
    else:
        clear.save(tmp_path / "a.png")
    assert (np.asarray(only(tmp_path)) == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_stands_as_its_camera_says(tmp_path, orientation):
    """The stored pixels are turned and mirrored as EXIF says, so that rows of patches run across what was seen."""
    upright = photograph()
    turns = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180], 4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90], 7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }  # fmt: skip
    stored = upright
    for turn in turns.get(orientation, []):
        stored = stored.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    assert difference(only(tmp_path), upright) == 0


def test_images_with_more_than_8_bits_are_refused(tmp_path):
    deep = (np.arange(40 * 48, dtype=np.uint16).reshape(40, 48) * 30).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    with refused("deep.png has mode 'I;16'; convert it to 8 bits a channel"):
        folder(tmp_path, 1)
    (tmp_path / "deep.png").unlink()
    Image.fromarray(deep.astype(np.float32)).save(tmp_path / "deep.tiff")
    with refused("deep.tiff has mode 'F'; convert it to 8 bits a channel"):
        folder(tmp_path, 1)


@pytest.mark.parametrize("size", [(1, 1), (SMALLEST - 1, 500), (500, SMALLEST - 1)])
def test_tiny_images_are_refused_and_the_smallest_that_is_not_is_taken(tmp_path, size):
    photograph(*size).save(tmp_path / "tiny.png")
    with refused(f"tiny.png has {size[0]}×{size[1]} px; expected at least {SMALLEST} px a side"):
        folder(tmp_path, 1)
    photograph(SMALLEST, 10 * SMALLEST).save(tmp_path / "tiny.png")
    assert only(tmp_path).size == (SMALLEST, 10 * SMALLEST)


def huge_png() -> bytes:
    """A few bytes that claim to be a picture of 60,000 by 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def cut(path) -> bytes:
    photograph(200, 200).save(path)
    return path.read_bytes()[: path.stat().st_size // 2]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("notes.txt", b"not an image", "notes.txt is not an image that Pillow can read; take it out of the folder"),
        ("empty.jpg", b"", "empty.jpg is not an image that Pillow can read"),
        ("text.jpg", b"not an image", "text.jpg is not an image that Pillow can read"),
        ("cut.jpg", None, "cut.jpg is damaged"),
        ("cut.png", None, "cut.png is damaged"),
        ("huge.png", huge_png(), "huge.png is damaged"),
    ],
)
def test_files_that_are_no_whole_image_are_refused_by_name_before_anything_is_measured(tmp_path, name, content, message):
    good = tmp_path / "a good one.png"
    photograph().save(good)
    path = tmp_path / "sub" / name
    path.parent.mkdir()
    path.write_bytes(cut(path) if content is None else content)
    with refused(message):
        folder(tmp_path, 2)


def test_numbers_and_folders_that_cannot_be_met_are_refused(tmp_path):
    with refused("is not a folder", FileNotFoundError):
        folder(tmp_path / "none", 1)
    with refused("holds no file", FileNotFoundError):
        folder(tmp_path, 1)
    (tmp_path / ".DS_Store").write_bytes(b"hidden")
    with refused("holds no file", FileNotFoundError):
        folder(tmp_path, 1)
    photograph().save(tmp_path / "a.png")
    with refused("holds 1 files, 2 images were asked for"):
        folder(tmp_path, 2)
    with refused("number is 0; expected at least 1 image"):
        folder(tmp_path, 0)
    with refused("number is 0; expected at least 1 image"):
        default_pictures(0)


def test_pictures_are_spread_over_the_folder_in_the_order_of_their_names(tmp_path):
    for k in (3, 0, 2, 5, 1, 4):
        Image.new("RGB", (40, 40), (k, k, k)).save(tmp_path / f"{k}.png")
    for number, expected in ((6, [0, 1, 2, 3, 4, 5]), (3, [0, 2, 4]), (2, [0, 3]), (1, [0])):
        chosen = folder(tmp_path, number)
        assert [chosen.open(k).getpixel((0, 0))[0] for k in range(number)] == expected
    digest = folder(tmp_path, 6).sha256
    assert folder(tmp_path, 6).sha256 == digest != folder(tmp_path, 3).sha256
    Image.new("RGB", (40, 40), (9, 9, 9)).save(tmp_path / "4.png")
    assert folder(tmp_path, 6).sha256 != digest


def test_default_pictures_are_the_same_for_a_seed_and_differ_among_each_other():
    one, same, other = (default_pictures(6, seed) for seed in (1, 1, 2))
    assert one.sha256 == same.sha256 != other.sha256
    crops = [np.asarray(one.open(k)).tobytes() for k in range(6)]
    assert len(set(crops)) == 6
    assert crops == [np.asarray(same.open(k)).tobytes() for k in range(6)]


def test_a_model_gets_the_pixels_its_checkpoint_says(tmp_path):
    """Resized, cropped, scaled and normalised with the statistics of the model's own configuration."""
    model = models.load("timm:test_vit", untrained=True)
    Image.new("RGB", (300, 200), (255, 128, 0)).save(tmp_path / "a.png")
    given = images.images(model, folder(tmp_path, 1))
    pixels = given.batch(0, 1)["pixel_values"]
    assert tuple(pixels.shape) == (1, 3, model.size, model.size)
    mean, std = (np.array(model.preprocessing[name]) for name in ("mean", "std"))
    expected = (np.array([255, 128, 0]) / 255 - mean) / std
    assert np.allclose(pixels[0].numpy(), expected[:, None, None], atol=1e-6)
    assert given.describe()["size"] == model.size
