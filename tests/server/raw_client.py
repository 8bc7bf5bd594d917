"""A client that sends what it is told, byte for byte, and decodes what comes back: for what real clients never do."""

from __future__ import annotations

import socket
import ssl
from typing import Any, TypeVar

from foldlog.records.loops import decode, pack
from foldlog.wire.frames import decode_response, encode_request, response_of
from foldlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from foldlog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from foldlog.wire.schema import Request, Response

Answer = TypeVar("Answer", bound=Response)

TIMEOUT_S = 30.0
"""Nothing here takes long: who waits this long would wait for ever."""


class RawClient:
    """One connection. Requests can be sent without waiting, and answers read one by one."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        receive_buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
        client_id: str = "raw",
        source: str | None = None,
    ) -> None:
        """`source` is the address that it comes from."""
        self._client_id = client_id
        self.socket = socket.socket()
        # As clients have it. Without, what follows a handshake waits for the other side's acknowledgement: 40 ms.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if source is not None:
            self.socket.bind((source, 0))
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self._correlation_id = 0

    def frame(self, request: Request, version: int) -> bytes:
        """The request as it goes over the wire, with the next correlation id."""
        self._correlation_id += 1
        return b"".join(encode_request(request, version, self._correlation_id, self._client_id))

    def send(self, request: Request, version: int) -> int:
        """Returns the correlation id."""
        self.socket.sendall(self.frame(request, version))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        """The next answer without its length; ConnectionError if the connection ends before."""
        return self.receive_exactly(int.from_bytes(self.receive_exactly(4), "big"))

    def receive_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("closed")
            parts += part
        return bytes(parts)

    def receive(self, answer: type[Answer], version: int) -> tuple[int, Answer]:
        return decode_response(answer, version, self.receive_frame())

    def ask(self, request: Request, version: int) -> Any:
        """Send, and wait for the answer."""
        sent = self.send(request, version)
        correlation_id, answer = self.receive(response_of(type(request)), version)
        assert correlation_id == sent
        return answer

    def is_closed_by_peer(self) -> bool:
        """Waits until the other side closes; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def close(self) -> None:
        self.socket.close()


def batch(*values: bytes, compression: int = 0, key: bytes | None = b"k") -> bytes:
    return bytes(pack([(5, key, value, ()) for value in values], compression=compression))


def produce(
    records: bytes | None, topic: str = "orders", partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=records)]
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def produced(answer: ProduceResponse) -> tuple[int, int]:
    """(error code, base offset) of the one partition."""
    only = answer.responses[0].partition_responses[0]
    return only.error_code, only.base_offset


def fetch(
    offset: int,
    topic: str = "orders",
    partition: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetched(answer: FetchResponse) -> list[bytes | None]:
    """The values of the one partition."""
    records = answer.responses[0].partitions[0].records or b""
    return [record.value for record in decode(records, "orders", 0)[0]]
