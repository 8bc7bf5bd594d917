"""A server that only counts bytes: after every request of the known length it sends the same answer.

`python -m bench.broker_sink REQUEST_BYTES` reads the answer from standard input, prints its port and serves until it is
killed. What the load client reaches against it is what the loopback and the client allow with these sizes; a broker
cannot be faster. One thread, no Kafka.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BUFFER_BYTES = 1 << 20
_ANSWERS_A_SEND = 64


class _Peer:
    """One connection: how many bytes of requests it sent, and how many bytes of answers it is owed."""

    def __init__(self, accepted: socket.socket, request_bytes: int, answers: memoryview, answer_bytes: int) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = accepted
        self._request_bytes = request_bytes
        self._answers = answers
        self._answer_bytes = answer_bytes
        self._received = 0
        self._sent = 0

    def serve(self, buffer: memoryview) -> tuple[bool, bool]:
        """Receive and answer once. Returns whether the peer is still there, and whether it is owed more."""
        try:
            got = self.socket.recv_into(buffer)
            if not got:
                return False, False
            self._received += got
        except BlockingIOError:
            pass
        owed = self._received // self._request_bytes * self._answer_bytes
        while self._sent < owed:
            begin = self._sent % self._answer_bytes
            try:
                self._sent += self.socket.send(self._answers[begin : begin + owed - self._sent])
            except BlockingIOError:
                return True, True
        return True, False


def serve(request_bytes: int, answer: bytes) -> None:
    answers = memoryview(answer * max(1, min(_ANSWERS_A_SEND, _BUFFER_BYTES // len(answer))))
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    peers: dict[int, _Peer] = {}
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                accepted, _ = listener.accept()
                peers[accepted.fileno()] = _Peer(accepted, request_bytes, answers, len(answer))
                epoll.register(accepted, select.EPOLLIN)
                continue
            peer = peers[descriptor]
            is_there, is_owed = peer.serve(buffer)
            if is_there:
                epoll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if is_owed else 0))
            else:
                epoll.unregister(descriptor)
                peers.pop(descriptor).socket.close()


@contextmanager
def running(request_bytes: int, answer: bytes) -> Iterator[tuple[str, int]]:
    """The sink in a process of its own; its address."""
    command = [sys.executable, "-m", "bench.broker_sink", str(request_bytes)]
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the sink has no pipes")
        try:
            process.stdin.write(answer)
            process.stdin.close()
            yield "127.0.0.1", int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.stdin.buffer.read())
