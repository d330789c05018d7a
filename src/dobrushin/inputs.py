"""Texts that go into a model: windows of equal length, or lines of their own lengths.  Images are in `images`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

__all__ = ["Lines", "Sequences", "Text", "default_text", "lines", "read_text", "sequences"]


@dataclass(frozen=True)
class Text:
    """A text and where it comes from."""

    name: str
    content: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the text in UTF-8, hexadecimal."""
        return hashlib.sha256(self.content.encode()).hexdigest()


def default_text() -> Text:
    """English prose that comes with Python itself: the help topics of the language reference."""
    from pydoc_data.topics import topics

    return Text("help topics of the Python language (pydoc_data.topics)", "\n\n".join(topics[key] for key in sorted(topics)))


def read_text(path: str | Path) -> Text:
    """Read a UTF-8 text file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is a folder, is not UTF-8 or holds no text.
        OSError: the system does not let it be read.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected one file of UTF-8 text, for example all texts of the folder in one")
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}; expected one of UTF-8 text") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} at position {error.start}); convert it to UTF-8"
        ) from error
    except OSError as error:
        raise OSError(
            f"{path} cannot be read ({error.strerror}); expected a file of UTF-8 text that this user may read"
        ) from error
    if not content.strip():
        raise ValueError(f"{path} holds no text; expected English prose")
    return Text(path.name, content)


@dataclass(frozen=True)
class Sequences:
    """Token sequences of one length, ready for a model."""

    text: Text
    token_ids: Int[np.ndarray, "inputs length"]
    content: Bool[np.ndarray, " length"]
    """Which positions hold words; the others hold the separators that the tokenizer adds."""
    special: tuple[str, ...] = ()
    """Roles by position ("content", "cls" or "separator"); if empty, "separator" wherever `content` is false."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def batch(self, first: int, stop: int) -> dict[str, Any]:
        """Arguments of the model for the inputs from `first` to before `stop`."""
        import torch

        ids = torch.from_numpy(self.token_ids[first:stop])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def roles(self, index: int) -> tuple[str, ...]:
        """Role of every token of one input, the same for all."""
        return self.special or tuple("content" if word else "separator" for word in self.content)

    def describe(self) -> dict[str, Any]:
        """What the provenance of a result says of the inputs."""
        return {
            "text": self.text.name,
            "sha256": self.text.sha256,
            "number": len(self),
            "tokens": self.token_ids.shape[1],
            "content_tokens": int(self.content.sum()),
            "choice": "the first windows of the text, consecutive, without overlap",
        }


def sequences(tokenizer: Any, text: Text, number: int, length: int) -> Sequences:
    """Cut a text into consecutive windows of `length` tokens, separators included, and keep the first `number`.

    The tokenizer of the model cuts the text and says which tokens it added: no position is assumed.  Special
    tokens that the text spells out, such as "[SEP]", are words of the text.

    Args:
        tokenizer: a tokenizer of transformers.
        text: where the windows come from, from its beginning, without overlap.
        number: how many windows.
        length: tokens per window, including the separators.

    Raises:
        ValueError: number < 1, a length that the model does not take, or a text that is too short.
    """
    _check_request(tokenizer, number, length)
    windows = _tokenize(tokenizer, text.content, length, return_overflowing_tokens=True)
    full = [k for k, ids in enumerate(windows["input_ids"]) if len(ids) == length]
    if len(full) < number:
        raise ValueError(
            f"{text.name} gives {len(full)} windows of {length} tokens, {number} were asked for; "
            "name a longer text, fewer sequences or a shorter length"
        )
    chosen = full[:number]
    ids = np.array([windows["input_ids"][k] for k in chosen])
    content = ~np.array([windows["special_tokens_mask"][k] for k in chosen], dtype=bool)
    if (content != content[0]).any():
        raise ValueError("the tokenizer puts separators at different positions in different windows; expected the same in all")
    roles = {_roles(tokenizer, one, content[0]) for one in ids}
    return Sequences(text, ids, content[0], sorted(roles)[0])


@dataclass(frozen=True)
class Lines:
    """Token sequences of different lengths, padded on the right within a batch; padding is left out of every matrix."""

    text: Text
    token_ids: tuple[Int[np.ndarray, " _"], ...]
    special: tuple[tuple[str, ...], ...]
    padding_id: int = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    def batch(self, first: int, stop: int) -> dict[str, Any]:
        """Arguments of the model for the inputs from `first` to before `stop`, padded to the longest of them."""
        import torch

        chosen = self.token_ids[first:stop]
        ids = np.full((len(chosen), max(map(len, chosen))), self.padding_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for k, one in enumerate(chosen):
            ids[k, : len(one)], mask[k, : len(one)] = one, 1
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def roles(self, index: int) -> tuple[str, ...]:
        """Role of every token of one input, padding not counted."""
        return self.special[index]

    def describe(self) -> dict[str, Any]:
        """What the provenance of a result says of the inputs."""
        lengths = [len(ids) for ids in self.token_ids]
        return {
            "text": self.text.name,
            "sha256": self.text.sha256,
            "number": len(self),
            "tokens": [min(lengths), max(lengths)],
            "choice": "the first lines of the text that hold two words or more, cut at the longest length",
        }


def lines(tokenizer: Any, text: Text, number: int, length: int) -> Lines:
    """The first `number` lines of a text that have at least two content tokens, each an input of its own length.

    Args:
        tokenizer: a tokenizer of transformers.
        text: one input a line.
        number: how many lines.
        length: where longer lines are cut, separators included.

    Raises:
        ValueError: as :func:`sequences`.
    """
    _check_request(tokenizer, number, length)
    ids: list[np.ndarray] = []
    roles: list[tuple[str, ...]] = []
    for line in filter(str.strip, text.content.splitlines()):
        one = _tokenize(tokenizer, line.strip(), length)
        content = ~np.array(one["special_tokens_mask"], dtype=bool)
        if content.sum() >= 2:
            ids.append(np.array(one["input_ids"]))
            roles.append(_roles(tokenizer, ids[-1], content))
        if len(ids) == number:
            padding = getattr(tokenizer, "pad_token_id", None)
            return Lines(text, tuple(ids), tuple(roles), 0 if padding is None else int(padding))
    raise ValueError(f"{text.name} has {len(ids)} lines of two words or more, {number} were asked for; ask for fewer")


def _check_request(tokenizer: Any, number: int, length: int) -> None:
    longest, separators = tokenizer.model_max_length, tokenizer.num_special_tokens_to_add()
    if number < 1:
        raise ValueError(f"number is {number}; expected at least 1 sequence")
    if not separators + 2 <= length <= longest:
        raise ValueError(f"length is {length}; expected from {separators + 2} to {longest} tokens for this model")


def _tokenize(tokenizer: Any, text: str, length: int, **options: Any) -> Any:
    return tokenizer(
        text, truncation=True, max_length=length, return_special_tokens_mask=True, split_special_tokens=True, **options
    )


def _roles(tokenizer: Any, ids: np.ndarray, content: np.ndarray) -> tuple[str, ...]:
    """Role of every token: what the tokenizer added has its name there, everything else is content."""
    named: dict[int | None, str] = {}
    for role, names in {"separator": ("eos_token_id", "sep_token_id"), "cls": ("bos_token_id", "cls_token_id")}.items():
        named |= {getattr(tokenizer, name, None): role for name in names}
    added = {*named, getattr(tokenizer, "pad_token_id", None), getattr(tokenizer, "mask_token_id", None)}
    stray = [int(k) for k, word in zip(ids, content, strict=True) if word and int(k) in added]
    if stray:
        raise ValueError(f"the text holds the tokenizer's own special token {stray[0]}; take it out of the text")
    return tuple("content" if word else named.get(int(k), "separator") for k, word in zip(ids, content, strict=True))
