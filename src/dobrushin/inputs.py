"""What goes into a model: sequences of text, cut into windows of equal length."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

__all__ = ["Sequences", "Text", "default_text", "read_text", "sequences"]


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
        ValueError: the file is not UTF-8 or holds no text.
    """
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte {error.object[error.start]:#04x} at position {error.start}); convert it to UTF-8"
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

    def __len__(self) -> int:
        return len(self.token_ids)


def sequences(tokenizer: Any, text: Text, number: int, length: int) -> Sequences:
    """Cut a text into consecutive windows of `length` tokens, separators included, and keep the first `number`.

    The tokenizer of the model cuts the text and says which tokens it added: no position is assumed.

    Args:
        tokenizer: a tokenizer of transformers.
        text: where the windows come from, from its beginning, without overlap.
        number: how many windows.
        length: tokens per window, including the separators.

    Raises:
        ValueError: number < 1, a length that the model does not take, or a text that is too short.
    """
    longest = tokenizer.model_max_length
    separators = tokenizer.num_special_tokens_to_add()
    if number < 1:
        raise ValueError(f"number is {number}; expected at least 1 sequence")
    if not separators + 2 <= length <= longest:
        raise ValueError(f"length is {length}; expected from {separators + 2} to {longest} tokens for this model")
    windows = tokenizer(
        text.content, truncation=True, max_length=length, return_overflowing_tokens=True, return_special_tokens_mask=True
    )
    full = [k for k, ids in enumerate(windows["input_ids"]) if len(ids) == length]
    if len(full) < number:
        raise ValueError(
            f"{text.name} gives {len(full)} windows of {length} tokens, {number} were asked for; "
            "name a longer text, fewer sequences or a shorter length"
        )
    chosen = full[:number]
    content = ~np.array([windows["special_tokens_mask"][k] for k in chosen], dtype=bool)
    if (content != content[0]).any():
        raise ValueError("the tokenizer puts separators at different positions in different windows; expected the same in all")
    return Sequences(text, np.array([windows["input_ids"][k] for k in chosen]), content[0])
