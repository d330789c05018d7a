"""Images that go into a model: a folder of photographs, or crops of the two that scikit-learn ships."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin._memory import mapped

__all__ = ["SMALLEST", "Images", "Pictures", "default_pictures", "folder", "images"]

SMALLEST = 32
"""Shorter side in pixels that an image must have, enlarging a smaller one would make its patches nearly alike."""

_EIGHT_BITS = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}


@dataclass(frozen=True)
class Pictures:
    """Pictures, opened one at a time, and where they come from."""

    name: str
    sources: tuple[Any, ...]
    """Files, or functions that return a Pillow image."""
    sha256: str
    choice: str

    def __len__(self) -> int:
        return len(self.sources)

    def open(self, index: int) -> Any:
        """One picture, a Pillow image in RGB."""
        source = self.sources[index]
        return _read(source) if isinstance(source, Path) else source()


def folder(path: str | Path, number: int) -> Pictures:
    """`number` photographs of a folder and its subfolders, evenly spaced in the order of their names.

    All that are chosen are read once, so that a bad one is found before anything is measured.  Grey, palette and
    CMYK images become RGB, turned as EXIF says; transparency is laid on white.  Hidden files are passed over.

    Raises:
        FileNotFoundError: there is no such folder, or no file in it.
        ValueError: fewer files than asked for; a file that is not an image, is damaged, has more than 8 bits a
            channel, or a side of less than :data:`SMALLEST` pixels.  The message names the file.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; expected one that holds photographs")
    there = [p for p in root.rglob("*") if p.is_file() and not any(part[0] == "." for part in p.relative_to(root).parts)]
    files = sorted(there, key=lambda p: p.relative_to(root).as_posix())
    if not files:
        raise FileNotFoundError(f"{path} holds no file; expected photographs")
    if number < 1:
        raise ValueError(f"number is {number}; expected at least 1 image")
    if len(files) < number:
        raise ValueError(f"{path} holds {len(files)} files, {number} images were asked for; ask for fewer with --number")
    chosen = [files[k * len(files) // number] for k in range(number)]
    digest = hashlib.sha256()
    for file in chosen:
        _read(file)
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    how = "all files" if number == len(files) else f"{number} of {len(files)} files, evenly spaced"
    return Pictures(root.resolve().name, tuple(chosen), digest.hexdigest(), f"{how}, in the order of their names")


def _read(file: Path) -> Any:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(file) as opened:
            opened.load()
            picture = ImageOps.exif_transpose(opened)
    except UnidentifiedImageError:
        raise ValueError(f"{file} is not an image that Pillow can read; take it out of the folder") from None
    except Exception as error:  # Pillow's readers raise many kinds, struct.error and EOFError among them
        raise ValueError(f"{file} is damaged ({error}); replace it or take it out of the folder") from None
    if picture.mode not in _EIGHT_BITS:
        raise ValueError(f"{file} has mode {picture.mode!r}; convert it to 8 bits a channel")
    if min(picture.size) < SMALLEST:
        raise ValueError(f"{file} has {picture.size[0]}×{picture.size[1]} px; expected at least {SMALLEST} px a side")
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def default_pictures(number: int, seed: int = 0) -> Pictures:
    """Crops of scikit-learn's two sample photographs, of random place and size: 160 to 427 px a side.

    They need no network and are alike: fine to try a model on, too few motifs for a claim about photographs.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images

    if number < 1:
        raise ValueError(f"number is {number}; expected at least 1 image")
    photographs = load_sample_images().images
    rng = np.random.default_rng(seed)

    def crop(which: int, top: int, left: int, side: int) -> Callable[[], Any]:
        return lambda: Image.fromarray(photographs[which][top : top + side, left : left + side])

    sources = []
    digest = hashlib.sha256()
    for k in range(number):
        which = k % len(photographs)
        height, width = photographs[which].shape[:2]
        side = int(rng.integers(160, min(height, width) + 1))
        sources.append(crop(which, int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1)), side))
        digest.update(np.asarray(sources[-1]()).tobytes())
    name = "crops of scikit-learn's sample photographs"
    return Pictures(name, tuple(sources), digest.hexdigest(), f"random place and size, seed {seed}")


@dataclass(frozen=True)
class Images:
    """Pictures as a model takes them."""

    pictures: Pictures
    preprocess: Callable[[Any], Any]
    token_roles: tuple[str, ...]
    size: int

    def __len__(self) -> int:
        return len(self.pictures)

    def batch(self, first: int, stop: int) -> dict[str, Any]:
        """Arguments of the model for the inputs from `first` to before `stop`."""
        import torch

        chosen = range(first, min(stop, len(self)))
        pixels = torch.from_numpy(mapped(len(chosen), 3, self.size, self.size, dtype=np.float32))
        for place, k in enumerate(chosen):
            pixels[place] = self.preprocess(self.pictures.open(k))
        return {"pixel_values": pixels}

    def roles(self, index: int) -> tuple[str, ...]:
        """Role of every token: the same for all images."""
        return self.token_roles

    def describe(self) -> dict[str, Any]:
        """What the provenance of a result says of the inputs."""
        return {
            "images": self.pictures.name,
            "sha256": self.pictures.sha256,
            "number": len(self),
            "size": self.size,
            "tokens": len(self.token_roles),
            "content_tokens": self.token_roles.count("content"),
            "choice": self.pictures.choice,
        }


def images(model: Any, pictures: Pictures) -> Images:
    """Pictures, prepared as the model's checkpoint says.

    Raises:
        ValueError: the model takes text.
    """
    if model.takes != "images":
        raise ValueError(f"{model.spec.title} takes text, not images; name a text")
    return Images(pictures, model.preprocess, model.roles(), model.size)
