"""A client that cannot wait: it asks again every few milliseconds until the broker answers, acknowledges, or reads.

The same code for both sides, raw protocol, so that no client's own pauses between attempts are measured.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import suppress

from bench.broker_load import ask, connect

from foldlog.errors import MalformedBytes
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import api_versions, fetch, metadata, produce

PAUSE_S = 0.002
PATIENCE_S = 600.0
_TIMEOUT_MS = 10_000
_FETCH_BYTES = 1 << 20
_CUT_SHORT = (OSError, struct.error, MalformedBytes)
"""Nobody listens yet, or the answer ends too early: the broker has just come, or just gone."""


class NotYet(Exception):
    """The broker answered, and the answer is an error that may pass."""


def answers(address: tuple[str, int]) -> bool:
    """Somebody listens there and speaks Kafka's protocol."""
    try:
        with connect(address) as opened:
            ask(opened, api_versions.ApiVersionsRequest(), 3, api_versions.RESPONSE)
    except _CUT_SHORT:
        return False
    return True


def until_acknowledged(address: tuple[str, int], topic: str, batch: bytes, partition: int = 0) -> float:
    """When a batch was acknowledged (acks=all). The topic is made by asking for it."""
    return _until(lambda: _produce(address, topic, batch, partition))


def until_read(address: tuple[str, int], topic: str, partition: int, offset: int) -> float:
    """When a record at this offset was there to be read."""
    return _until(lambda: _fetch(address, topic, partition, offset, is_empty=False))


def until_led(address: tuple[str, int], topic: str, partitions: int) -> None:
    """Kafka answers that a topic was made before its own broker has heard of it."""
    for number in range(partitions):
        _until(lambda number=number: _fetch(address, topic, number, 0, is_empty=True))  # type: ignore[misc]


def _until(attempt: Callable[[], None]) -> float:
    deadline_s = time.perf_counter() + PATIENCE_S
    while True:
        with suppress(NotYet, *_CUT_SHORT):
            attempt()
            return time.perf_counter()
        if time.perf_counter() > deadline_s:
            raise TimeoutError(f"no good answer within {PATIENCE_S:.0f} seconds")
        time.sleep(PAUSE_S)


def _produce(address: tuple[str, int], topic: str, batch: bytes, partition: int) -> None:
    with connect(address) as opened:
        ask(opened, api_versions.ApiVersionsRequest(), 3, api_versions.RESPONSE)
        wanted = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
        )
        known = ask(opened, wanted, 9, metadata.RESPONSE)
        _check([one.error_code for one in known.topics])
        data = produce.PartitionProduceData(index=partition, records=batch)
        request = produce.ProduceRequest(
            acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])]
        )
        answer = ask(opened, request, 9, produce.RESPONSE)
        _check([one.error_code for each in answer.responses for one in each.partition_responses])


def _fetch(address: tuple[str, int], topic: str, partition: int, offset: int, *, is_empty: bool) -> None:
    with connect(address) as opened:
        wanted = fetch.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = fetch.FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=_FETCH_BYTES,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )  # fmt: skip
        answer = ask(opened, request, 12, fetch.RESPONSE)
        parts = [one for each in answer.responses for one in each.partitions]
        _check([one.error_code for one in parts])
        if not is_empty and not all(one.records for one in parts):
            raise NotYet("there is nothing to read")


def _check(codes: list[int]) -> None:
    wrong = [ErrorCode(code).name for code in codes if code != ErrorCode.NONE]
    if wrong or not codes:
        raise NotYet(", ".join(wrong) or "an empty answer")
