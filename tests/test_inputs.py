"""Texts of all kinds, cut into sequences: nothing of the text is lost, and every token has its role."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin.inputs import Text, default_text, lines, read_text, sequences


def refused(message: str, error: type[Exception] = ValueError):
    return pytest.raises(error, match=re.escape(message))


def plain_ids(tokenizer, text: str) -> list[int]:
    """What the tokenizer makes of the whole text at once, without special tokens."""
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]


SCRIPTS = {
    "Chinese": "一二三四五六七八九十百千万人大小中国日月水火木金土上下左右",
    "Arabic": "السلام عليكم ورحمة الله وبركاته كيف حالكم اليوم نحن بخير والحمد لله",
    "emoji": "😀 😃 😄 😁 😆 😅 😂 🤣 😊 😇 🙂 🙃 👩‍👩‍👧‍👦 🏳️‍🌈",
    "Greek": "Μῆνιν ἄειδε θεὰ Πηληϊάδεω Ἀχιλῆος οὐλομένην, ἣ μυρί᾽ Ἀχαιοῖς ἄλγε᾽ ἔθηκε",
    "mixed": "naïve Straße \u202eabc\u202c \ufeff zero\u200bwidth \x00 nul\ttab",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("length", [4, 7, 16])
def test_windows_are_the_text_in_order_without_loss_or_overlap(minilm, script, length):
    text = Text(script, SCRIPTS[script] * 3)
    whole = plain_ids(minilm.tokenizer, text.content)
    number = len(whole) // (length - 2)
    cut = sequences(minilm.tokenizer, text, number, length)
    assert cut.token_ids.shape == (number, length)
    assert cut.token_ids[:, cut.content].ravel().tolist() == whole[: number * (length - 2)]
    assert cut.roles(0) == ("cls", *["content"] * (length - 2), "separator")
    with refused(f"{script} gives {number} windows of {length} tokens, {number + 1} were asked for"):
        sequences(minilm.tokenizer, text, number + 1, length)


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=120), st.integers(4, 12))
def test_any_text_is_cut_or_refused_in_words(minilm, content, length):
    whole = plain_ids(minilm.tokenizer, content)
    number = len(whole) // (length - 2)
    if number == 0:
        with refused("1 were asked for"):
            sequences(minilm.tokenizer, Text("any", content), 1, length)
    else:
        cut = sequences(minilm.tokenizer, Text("any", content), number, length)
        assert cut.token_ids[:, cut.content].ravel().tolist() == whole[: number * (length - 2)]


def test_separators_spelt_out_in_the_text_are_words(minilm):
    cut = sequences(minilm.tokenizer, Text("a", "see [SEP] and [CLS] or [PAD] and [MASK] here " * 4), 2, 12)
    special = {minilm.tokenizer.sep_token_id, minilm.tokenizer.cls_token_id, minilm.tokenizer.pad_token_id}
    assert not special & set(cut.token_ids[:, cut.content].ravel().tolist())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no text"),
        (b" \n\t \r\n", "holds no text"),
        ("caf\xe9".encode("latin-1"), "is not UTF-8 text (byte 0xe9 at position 3); convert it to UTF-8"),
        ("hello".encode("utf-16"), "is not UTF-8 text (byte 0xff at position 0); convert it to UTF-8"),
    ],
)
def test_files_that_hold_no_utf8_text_are_refused(tmp_path, content, message):
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with refused(message):
        read_text(path)


def test_what_is_no_file_or_cannot_be_read_is_refused(tmp_path):
    with refused(f"there is no file {tmp_path / 'none.txt'}; expected one of UTF-8 text", FileNotFoundError):
        read_text(tmp_path / "none.txt")
    with refused(f"{tmp_path} is a folder; expected one file of UTF-8 text"):
        read_text(tmp_path)
    (tmp_path / "a.txt").write_text("words")
    with refused("cannot be read (Not a directory); expected a file of UTF-8 text", OSError):
        read_text(tmp_path / "a.txt" / "b.txt")


def test_a_file_is_read_as_it_is(tmp_path):
    content = "".join(SCRIPTS.values())
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    read = read_text(tmp_path / "a.txt")
    assert (read.name, read.content, read.sha256) == ("a.txt", content, Text("other name", content).sha256)
    assert read.sha256 != Text("a.txt", content + " ").sha256


def test_every_line_is_an_input_of_its_own_length(minilm):
    text = Text("lines", "one two three\n\nx\n  four five  \n" + "long " * 50 + "\n一二三四\n")
    cut = lines(minilm.tokenizer, text, 4, 10)
    words = [["one two three"], ["four five"], ["long " * 8], ["一二三四"]]
    assert [ids[1:-1].tolist() for ids in cut.token_ids] == [plain_ids(minilm.tokenizer, " ".join(w)) for w in words]
    assert [cut.roles(k) for k in range(4)] == [("cls", *["content"] * n, "separator") for n in (3, 2, 8, 4)]
    batch = cut.batch(0, 4)
    assert batch["attention_mask"].sum(-1).tolist() == [5, 4, 10, 6]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == minilm.tokenizer.pad_token_id).all()
    assert cut.describe()["tokens"] == [4, 10]
    with refused("lines has 4 lines of two words or more, 5 were asked for"):
        lines(minilm.tokenizer, text, 5, 10)


@pytest.mark.parametrize("cut", [sequences, lines])
@pytest.mark.parametrize(
    ("number", "length", "message"),
    [
        (0, 16, "number is 0; expected at least 1 sequence"),
        (1, 3, "length is 3; expected from 4 to 512 tokens"),
        (1, 513, "length is 513; expected from 4 to 512 tokens"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(minilm, cut, number, length, message):
    with refused(message):
        cut(minilm.tokenizer, default_text(), number, length)


def test_batches_are_slices(minilm, few):
    ids = np.concatenate([few.batch(k, min(k + 4, 6))["input_ids"].numpy() for k in (0, 4)])
    assert np.array_equal(ids, few.token_ids)
    assert (few.batch(0, 6)["attention_mask"] == 1).all()
