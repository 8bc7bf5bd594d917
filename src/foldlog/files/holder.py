r"""The content of a lock file: the process that writes the directory, and where it listens.

    4711\n                                  the pid
    127.0.0.1:9092 6b085b10\n               the address, if there is one, and a CRC-32 of both

The file is written in place while other processes read it, so a reader may find half of a change, or remains of a
killed holder behind a shorter text. The checksum decides: an address is whole or absent.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

HOLDER_BYTES_MAX: Final = 4096

LOCAL_SOCKET: Final = "broker.sock"
"""In the directory, where the holder's listeners ask for certificates or passwords: whoever may write the directory may
connect to this socket. It goes before the address; one that nobody listens on is left from a killed holder."""


@dataclass(frozen=True, slots=True)
class WriterInfo:
    """The process that writes a directory; `address` is "host:port" where it listens, if it does.

    `pid` is None if the lock file does not say, as in the instant between taking the lock and writing it.
    """

    pid: int | None
    address: str | None = None


def format_holder(pid: int, address: str | None) -> bytes:
    """
    >>> format_holder(4711, "127.0.0.1:9092")
    b'4711\\n127.0.0.1:9092 6b085b10\\n'
    """
    return f"{pid}\n".encode() + (b"" if address is None else f"{address} {_checksum(pid, address)}\n".encode())


def parse_holder(data: bytes) -> WriterInfo:
    """What the bytes say for certain; never an address that is not the holder's."""
    first, _, rest = data.partition(b"\n")
    digits = first.strip()
    pid = int(digits) if digits.isdigit() else None
    if pid is None:
        return WriterInfo(None)
    address, _, checksum = rest.partition(b"\n")[0].decode("ascii", "replace").partition(" ")
    return WriterInfo(pid, address if checksum == _checksum(pid, address) else None)


def is_whole(data: bytes) -> bool:
    """Whether the bytes are exactly what one holder writes: if not, they are worth another read."""
    holder = parse_holder(data)
    return holder.pid is not None and data == format_holder(holder.pid, holder.address)


def _checksum(pid: int, address: str) -> str:
    return f"{zlib.crc32(f'{pid} {address}'.encode()):08x}"
