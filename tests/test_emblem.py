"""The README's picture is what the committed results give."""

from __future__ import annotations

import emblem


def test_the_picture_is_up_to_date(tmp_path):
    assert emblem.draw(tmp_path / "emblem.svg").read_bytes() == emblem.EMBLEM.read_bytes(), "run: python tools/emblem.py"
