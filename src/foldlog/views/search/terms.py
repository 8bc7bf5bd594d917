"""Record keys as terms of an index: one text for each, different for different keys of one column."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

KEY_BYTES_MAX: Final = 1024
"""A longer key is represented by its SHA-256: tantivy silently drops terms of 64 KiB."""


def key_term(key: object) -> str:
    r"""A key as one term: itself if possible, else an encoding or a hash after a zero byte.

    >>> key_term("tx-1"), key_term(7), key_term(b"\x00\x01"), key_term("x" * 5000)[:16]
    ('tx-1', '7', '\x00b0001', '\x00hc59d3c0480cc2d')
    """
    if isinstance(key, bytes | bytearray | memoryview):
        text = "\0b" + bytes(key).hex()
    else:
        text = key if isinstance(key, str) else str(key)
        if text.startswith("\0"):
            text = "\0t" + text
    if len(text) > KEY_BYTES_MAX // 4 and len(text.encode()) > KEY_BYTES_MAX:
        return "\0h" + sha256(text.encode()).hexdigest()
    return text


def key_terms(keys: Sequence[Any]) -> Sequence[str]:
    """`key_term` of each, with a fast path if all of them are short texts."""
    if not keys or set(map(type, keys)) != {str}:
        return [key_term(key) for key in keys]
    is_usual = len(max(keys, key=len)) <= KEY_BYTES_MAX // 4 and min(keys) >= "\1"
    return keys if is_usual else [key_term(key) for key in keys]
