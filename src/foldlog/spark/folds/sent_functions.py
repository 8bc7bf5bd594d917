"""Python functions as Spark sends them to workers, unpacked on the driver, with the values of their broadcasts.

A function is sent as a pickle. Of a broadcast that it uses there is only the number in it, which a worker exchanges for
the value that Spark has brought there. The driver has no such table: the value is where the JVM has put it. A pickle of
more than 1 MB (`spark.broadcast.UDFCompressionThreshold`) is put into a broadcast itself, and its number is sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest
from io import BufferedIOBase, BytesIO
from typing import Any, Final

from pyspark import SparkContext
from pyspark.core.broadcast import _from_id
from pyspark.util import local_connect_and_auth

_DIGEST: Final = "blake2b"


@dataclass(frozen=True, eq=False)
class SentBroadcast:
    """What a function has of a broadcast once it is unpacked. It is read when it is asked for, each time."""

    opened: Callable[[], BufferedIOBase]

    @property
    def value(self) -> Any:
        with self.opened() as file:
            return pickle.load(file)

    def digest(self) -> bytes:
        """Of the bytes that were sent. Those of an equal value may be others in another process."""
        with self.opened() as file:
            return file_digest(file, _DIGEST).digest()


def sent_bytes(function: Any) -> tuple[bytes, Mapping[int, SentBroadcast]]:
    """What the JVM would send of a function, and its broadcasts, by their numbers."""
    broadcasts = {int(one.id()): SentBroadcast(partial(_opened, one)) for one in function.broadcastVars()}
    packed = bytes(function.command().unsafeArray())
    if broadcasts:
        sent = unpacked(packed, broadcasts)
        if isinstance(sent, SentBroadcast):
            packed = sent.value
    return packed, broadcasts


def unpacked(packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> Any:
    """Raises what a user's object raises when it is unpacked."""
    return _Unpickler(packed, broadcasts).load()


class _Unpickler(pickle.Unpickler):
    """As a worker unpacks, but that broadcasts are those it is given."""

    def __init__(self, packed: bytes, broadcasts: Mapping[int, SentBroadcast]) -> None:
        super().__init__(BytesIO(packed))
        self._broadcasts = broadcasts

    def find_class(self, module: str, name: str, /) -> Any:
        if module == _from_id.__module__ and name == _from_id.__name__:
            return self._broadcasts.__getitem__
        return super().find_class(module, name)


def _opened(broadcast: Any) -> BufferedIOBase:
    """The bytes of a broadcast of the JVM's. With `spark.io.encryption.enabled` only the JVM can read the file."""
    held = broadcast.value()
    context = SparkContext._active_spark_context
    if context is None or not context._encryption_enabled:
        return open(held.path(), "rb")
    address, secret = held.setupDecryptionServer()
    stream, _ = local_connect_and_auth(address, secret)
    with stream:
        decrypted = BytesIO(stream.read())
    held.waitTillBroadcastDataSent()
    return decrypted
