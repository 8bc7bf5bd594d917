"""The items of a dump: one item is one line for people, or one JSON object for programs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

TEXT_MAX: Final = 120
"""Characters of a key or value in a line for people."""

_YEAR_10000_MS: Final = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class Item:
    """`kind` and `fields` are the JSON object; `text` is the line, indented by its depth. `is_damage`: it is damage."""

    kind: str
    text: str
    fields: dict[str, object]
    is_damage: bool = False


Items = Iterator[Item]


def damage(position: int, end: int, reason: str, *, is_mendable: bool = False) -> Item:
    """Damaged bytes [position, end) of a file."""
    loss = "; only its header is: no record is lost by it" if is_mendable else ""
    return Item(
        "damage",
        f"  @{position}  DAMAGED: {reason}; {end - position} bytes up to {end}{loss}",
        {"position": position, "end": end, "reason": reason, "is_mendable": is_mendable},
        is_damage=True,
    )


def named_values(kind: str, data: bytes, sign: str, *, comment: str | None = None) -> Items:
    """Lines of text, each a name and a value separated by `sign`; with comments also empty lines."""
    fields: dict[str, object] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if comment is not None and (not line.strip() or line.strip().startswith(comment)):
            continue
        name, found, value = line.partition(sign.strip())
        if not found:
            yield damage(0, len(data), f"the line {line.strip()!r} is not NAME{sign}VALUE")
            return
        fields[name.strip()] = value.strip()
    yield Item(kind, "  " + ", ".join(f"{name} {value}" for name, value in fields.items()), fields)


def time_text(timestamp_ms: int) -> str:
    """
    >>> time_text(1_768_473_000_123), time_text(-1)
    ('2026-01-15T10:30:00.123Z', 'no time')
    """
    if timestamp_ms == -1:
        return "no time"
    if not 0 <= timestamp_ms < _YEAR_10000_MS:
        return f"{timestamp_ms} ms"
    return f"{_second_text(timestamp_ms // 1000)}.{timestamp_ms % 1000:03d}Z"


@lru_cache(maxsize=1024)
def _second_text(timestamp_s: int) -> str:
    """Cached, as records of one second are close together."""
    return datetime.fromtimestamp(timestamp_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def bytes_text(data: bytes | None, *, most: int | None = TEXT_MAX) -> str:
    """
    >>> bytes_text(b"tx_1"), bytes_text(None), bytes_text(bytes([0, 255])), bytes_text(b"abcdef", most=3)
    ("'tx_1'", 'null', '0x00ff', "'abc'… (6 bytes)")
    """
    if data is None:
        return "null"
    shown = data if most is None else data[:most]
    end = f"… ({len(data)} bytes)" if len(shown) < len(data) else ""
    text = _as_text(shown if not end else _whole_characters(shown))
    return (repr(text) if text is not None else f"0x{shown.hex()}") + end


def bytes_fields(data: bytes | None) -> dict[str, object] | None:
    """As text if it is UTF-8, else in base64; always with its size."""
    if data is None:
        return None
    text = _as_text(data)
    if text is not None:
        return {"text": text, "size": len(data)}
    return {"base64": base64.b64encode(data).decode("ascii"), "size": len(data)}


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _whole_characters(data: bytes) -> bytes:
    """Without an incomplete character at the end."""
    return data.decode("utf-8", "ignore").encode() if _as_text(data) is None and _is_cut(data) else data


def _is_cut(data: bytes) -> bool:
    return any(_as_text(data[:-count]) is not None for count in (1, 2, 3))
