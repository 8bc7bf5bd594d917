"""Bytes of a record as JSON shows them. Pure."""

from __future__ import annotations

import base64
from typing import Any, Final

from foldlog.limits import CONSOLE_FIELD_BYTES_MAX

KEY_CHARS_MAX: Final = 40
"""Of a key in a cell: as much as fits a label."""

_KEY_BYTES: Final = 4 * KEY_CHARS_MAX
_UTF8_BYTES_MAX: Final = 4


def shown(data: bytes | None) -> dict[str, Any] | None:
    """The text if it is UTF-8, else base64; `size` is in bytes, and `is_cut` where not all of it is shown.

    >>> shown(b"paid"), shown(b"\\xff"), shown(None)
    ({'text': 'paid', 'size': 4}, {'base64': '/w==', 'size': 1}, None)
    """
    if data is None:
        return None
    is_cut = len(data) > CONSOLE_FIELD_BYTES_MAX
    piece = data[:CONSOLE_FIELD_BYTES_MAX] if is_cut else data
    text = _text_of(piece, is_cut)
    found: dict[str, Any] = {"base64": base64.b64encode(piece).decode()} if text is None else {"text": text}
    found["size"] = len(data)
    if is_cut:
        found["is_cut"] = True
    return found


def short_key(key: bytes | None) -> str | None:
    """A key as a label: at most KEY_CHARS_MAX characters, with an ellipsis if that is not all; hex if it is not UTF-8.

    >>> short_key(b"u1"), short_key(b"x" * 50)[-2:], short_key(b"\\xff\\x00"), short_key(None)
    ('u1', 'x…', '0xff00', None)
    """
    if key is None:
        return None
    piece = key[:_KEY_BYTES]
    text = _text_of(piece, len(key) > len(piece))
    if text is None:
        text = "0x" + piece[:KEY_CHARS_MAX].hex()
    is_all = len(key) == len(piece) and len(text) <= KEY_CHARS_MAX
    return text if is_all else text[: KEY_CHARS_MAX - 1] + "…"


def _text_of(piece: bytes, is_cut: bool) -> str | None:
    """The text, without the character that the cut may have gone through; None if it is not UTF-8."""
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data" and len(piece) - error.start < _UTF8_BYTES_MAX:
            return piece[: error.start].decode()
        return None
