"""What the machine does at best, measured with the sizes of the run beside it: a stream through the loopback, the
page cache, and the disk."""

from __future__ import annotations

import os
import socket
import time

from bench.measuring import Place

_STREAM_BYTES = 1 << 20


def append(place: Place, batch: bytes, seconds: float, bytes_max: int) -> float:
    """Bytes per second of os.write to the end of a file: the page cache."""
    return _write(place, batch, seconds, bytes_max, sync_bytes=None)


def append_and_sync(place: Place, batch: bytes, seconds: float, bytes_max: int, sync_bytes: int = 0) -> float:
    """Bytes per second of os.write with fdatasync after each, or after every `sync_bytes`."""
    return _write(place, batch, seconds, bytes_max, sync_bytes=sync_bytes)


def _write(place: Place, batch: bytes, seconds: float, bytes_max: int, sync_bytes: int | None) -> float:
    path = place.fresh()
    descriptor = os.open(path / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    written = unsynced = 0
    try:
        start = time.perf_counter()
        deadline = start + seconds
        while written < bytes_max and time.perf_counter() < deadline:
            size = os.write(descriptor, batch)
            written += size
            unsynced += size
            if sync_bytes is not None and unsynced >= sync_bytes:
                os.fdatasync(descriptor)
                unsynced = 0
        if sync_bytes is not None:
            os.fdatasync(descriptor)
        return written / (time.perf_counter() - start)
    finally:
        os.close(descriptor)
        place.give_back(path)


def loopback_stream(seconds: float) -> float:
    """Bytes per second of one connection between two processes, 1 MiB at a time, without any protocol."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        _swallow(listener)
    block = memoryview(bytes(_STREAM_BYTES))
    sent = 0
    with socket.create_connection(listener.getsockname()) as stream:
        listener.close()
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            stream.sendall(block)
            sent += len(block)
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)  # the other end has read everything
        took = time.perf_counter() - start
    os.waitpid(child, 0)
    return sent / took


def _swallow(listener: socket.socket) -> None:
    """Read until the end. Never returns: this is the child, which must not run what its parent has left to do."""
    code = 1
    try:
        stream, _ = listener.accept()
        buffer = bytearray(_STREAM_BYTES)
        while stream.recv_into(buffer):
            pass
        stream.close()
        code = 0
    finally:
        os._exit(code)
