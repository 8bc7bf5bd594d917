"""Small files that are replaced whole: JSON that ends with the CRC-32C of every byte before its last member.

    {"version":1, ...,
    "crc32c":"89abcdef"}

A flipped bit, or an editor, is noticed when the file is read: what its checksum fits was written by some foldlog.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from crc32c import crc32c

from foldlog.errors import CorruptLog, NewerVersion

_CHECKSUM: Final = re.compile(rb',\n"crc32c":"(?P<crc>[0-9a-f]{8})"\}\n')
_CHECKSUM_BYTES: Final = len(',\n"crc32c":"89abcdef"}\n')


def sealed(body: str) -> bytes:
    """The file's bytes. `body` is a JSON object without its closing brace.

    >>> sealed('{"version":1')
    b'{"version":1,\\n"crc32c":"d9fbb835"}\\n'
    """
    data = body.encode()
    return data + f',\n"crc32c":"{crc32c(data):08x}"}}\n'.encode()


def unsealed(data: bytes, path: str, version: int, advice: str) -> dict[str, Any]:
    """The members of the object. `advice`: what to do about damage.

    Raises CorruptLog, naming `path`, if a byte differs from what was written; NewerVersion if a newer foldlog wrote it.
    """
    split = max(0, len(data) - _CHECKSUM_BYTES)
    checksum = _CHECKSUM.fullmatch(data, split)
    if checksum is None:
        raise CorruptLog(path, split, "it does not end with its checksum", advice)
    if int(checksum["crc"], 16) != crc32c(memoryview(data)[:split]):
        raise CorruptLog(path, 0, "its CRC-32C does not match its bytes", advice)
    # The checksum is right, so some foldlog wrote what follows: a newer one, if it cannot be understood.
    fields: dict[str, Any] = json.loads(data)
    if fields["version"] != version:
        raise NewerVersion(path, fields["version"], version)
    return fields


def lines_of(items: dict[str, Any]) -> str:
    """The members of an object as JSON, a line each, sorted by name.

    >>> print(lines_of({"b": 1, "a": {"x": []}}))
    <BLANKLINE>
    "a":{"x":[]},
    "b":1
    """
    lines = [f"{json.dumps(name)}:{compact(items[name])}" for name in sorted(items)]
    return "".join(f"\n{line}," for line in lines).removesuffix(",")


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))
