"""Clients that push their metrics (KIP-714): when each may, and the last value of each metric, for /metrics.

Kafka hands what clients push to a plugin. Here the newest value of every gauge and counter is kept, within bounds, and
shown beside the broker's own metrics. Counters are asked for as totals, so that the newest value says it all.
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from foldlog import limits
from foldlog.errors import DecompressedTooLarge, InvalidBatch, MalformedBytes
from foldlog.exposition import Family, Sample
from foldlog.records.batch import Compression
from foldlog.records.compression import decompress
from foldlog.server.telemetry.subscriptions import ClientTraits, MetricsSubscription, subscriptions_of, wanted_of
from foldlog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from foldlog.broker.dynamic_settings import ChangedSettings, DynamicSettings
    from foldlog.clock import Clock
    from foldlog.server.call import Call

ACCEPTED_CODECS: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER: Final = -(1 << 62)


def shown_id(instance_id: bytes) -> str:
    """
    >>> shown_id(bytes(16))
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(instance_id).rstrip(b"=").decode()


def traits_of(call: Call, instance_id: bytes) -> ClientTraits:
    """What is known of the client that asks."""
    software = call.caller.software
    return ClientTraits(
        shown_id(instance_id),
        call.client_id or "",
        software.name,
        software.version,
        call.caller.host,
        str(software.port),
    )


class PushedValue(NamedTuple):
    """The value of a metric; `attributes` are the names and values that the client set beside it, as one text."""

    metric: str
    attributes: str
    value: float


class _Instance:
    """One running client."""

    __slots__ = (
        "epoch",
        "got_ms",
        "has_left",
        "heard_ms",
        "interval_ms",
        "last_error",
        "metrics",
        "pushed_ms",
        "subscription_id",
        "traits",
        "values",
    )

    def __init__(self, traits: ClientTraits) -> None:
        self.traits = traits
        self.epoch = -1
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = 0
        self.subscription_id = 0
        self.got_ms = self.pushed_ms = self.heard_ms = _NEVER
        self.has_left = False
        self.last_error = ErrorCode.NONE
        self.values: dict[tuple[str, str], float] = {}

    def subscribe(self, instance_id: bytes, epoch: int, subscriptions: list[MetricsSubscription]) -> None:
        """Look again what is asked of it. With another answer it may ask and push at once."""
        self.epoch = epoch
        metrics, interval_ms = wanted_of(subscriptions, self.traits)
        if (metrics, interval_ms) != (self.metrics, self.interval_ms) or not self.subscription_id:
            self.metrics, self.interval_ms = metrics, interval_ms
            self.got_ms = self.pushed_ms = _NEVER
            number = crc32c(f"{metrics}{interval_ms}".encode() + instance_id)
            self.subscription_id = number - (1 << 32) if number >= 1 << 31 else number


class ClientTelemetry:
    """All clients that push, at most TELEMETRY_CLIENTS_MAX: the longest silent one is forgotten. Event loop only."""

    def __init__(self, stored: DynamicSettings, clock: Clock) -> None:
        self._stored = stored
        self._clock = clock
        self._seen: ChangedSettings | None = None
        self._subscriptions: list[MetricsSubscription] = []
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()  # the longest silent first
        self._value_count = 0
        self.push_count = 0
        self.dropped_count = 0

    def subscribe(self, instance_id: bytes, traits: ClientTraits) -> tuple[ErrorCode, bytes, _Instance]:
        """What is asked of a client; a client without an id gets one."""
        if not any(instance_id):
            instance_id = uuid.uuid4().bytes
            traits = traits._replace(client_instance_id=shown_id(instance_id))
        instance, now_ms = self._instance(instance_id, traits), self._clock.now_ms()
        last_ms = max(instance.got_ms, instance.pushed_ms)
        if now_ms - last_ms < instance.interval_ms and instance.last_error not in _ASK_AGAIN:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, instance_id, instance
        instance.got_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return ErrorCode.NONE, instance_id, instance

    def admit(
        self, instance_id: bytes, traits: ClientTraits, *, subscription_id: int, codec: int, is_last: bool
    ) -> ErrorCode:
        """Whether a push is taken now."""
        if not any(instance_id):
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(instance_id, traits)
        instance.last_error = self._refusal(instance, subscription_id, codec, is_last)
        instance.has_left = is_last
        return instance.last_error

    def _refusal(self, instance: _Instance, subscription_id: int, codec: int, is_last: bool) -> ErrorCode:
        if instance.has_left:
            return ErrorCode.INVALID_REQUEST
        now_ms = self._clock.now_ms()
        # The first one after a question comes when the client likes: it spreads its pushes by itself.
        if instance.got_ms <= instance.pushed_ms and now_ms - instance.pushed_ms < instance.interval_ms:
            if not is_last:
                return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        else:
            instance.pushed_ms = now_ms
        if subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec not in (Compression.NONE, *ACCEPTED_CODECS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE

    def store(self, instance_id: bytes, values: list[PushedValue]) -> None:
        """Keep the values of an admitted push, as far as there is room."""
        self.push_count += 1
        instance = self._instances.get(instance_id)
        if instance is None:
            return  # forgotten while the push was read
        for metric, attributes, value in values:
            key = (metric, attributes)
            if key not in instance.values:
                if len(instance.values) >= limits.TELEMETRY_VALUES_MAX or self._is_full:
                    self.dropped_count += 1
                    continue
                self._value_count += 1
            instance.values[key] = value

    @property
    def _is_full(self) -> bool:
        return self._value_count >= limits.TELEMETRY_VALUES_OF_ALL_MAX

    def families(self) -> list[Family]:
        """What clients pushed, for a scrape."""
        self._forget_silent()
        samples = [
            Sample(
                value,
                (
                    ("metric", metric),
                    ("attributes", attributes),
                    ("client_id", one.traits.client_id),
                    ("client_instance_id", one.traits.client_instance_id),
                ),
            )
            for one in self._instances.values()
            for (metric, attributes), value in one.values.items()
        ]
        return [
            Family("foldlog_client_metric", "gauge", "The newest value of a metric that a client pushed.", samples),
            Family("foldlog_telemetry_clients", "gauge", "Clients that push metrics.", [Sample(len(self._instances))]),
            Family("foldlog_telemetry_pushes_total", "counter", "Pushes of clients.", [Sample(self.push_count)]),
            Family(
                "foldlog_telemetry_dropped_values_total",
                "counter",
                "Values of clients' metrics for which there was no room.",
                [Sample(self.dropped_count)],
            ),
        ]

    def _instance(self, instance_id: bytes, traits: ClientTraits) -> _Instance:
        self._forget_silent()
        changed = self._stored.current
        if changed is not self._seen:
            self._seen, self._subscriptions = changed, subscriptions_of(changed)
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= limits.TELEMETRY_CLIENTS_MAX:
                self._forget()
            instance = self._instances[instance_id] = _Instance(traits)
        if instance.epoch != changed.epoch:
            instance.subscribe(instance_id, changed.epoch, self._subscriptions)
        self._instances.move_to_end(instance_id)
        instance.heard_ms = self._clock.now_ms()
        return instance

    def _forget_silent(self) -> None:
        now_ms = self._clock.now_ms()
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now_ms - oldest.heard_ms <= max(limits.TELEMETRY_SILENT_MS, 3 * oldest.interval_ms):
                return
            self._forget()

    def _forget(self) -> None:
        _, instance = self._instances.popitem(last=False)
        self._value_count -= len(instance.values)


# --- OpenTelemetry's MetricsData, as far as clients send it: numbers with a name --------------------------------------

_WHAT: Final = "metrics"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_values(codec: int, data: bytes) -> list[PushedValue] | None:
    """The numbers in a push, at most as many as are kept; None if it cannot be read. Any thread."""
    try:
        expanded = memoryview(decompress(codec, data, limits.TELEMETRY_DECOMPRESSED_BYTES_MAX))
        found = []
        for value in _values(expanded):
            found.append(value)
            if len(found) > limits.TELEMETRY_VALUES_MAX:
                break
        return found
    except (DecompressedTooLarge, InvalidBatch, MalformedBytes, UnicodeDecodeError):
        return None


def _values(data: memoryview) -> Iterator[PushedValue]:
    """MetricsData > ResourceMetrics (1) > ScopeMetrics (2) > Metric (2) > gauge (5) or sum (7) > data points (1)."""
    for resource in _parts(data, 1):
        for scope in _parts(resource, 2):
            for metric in _parts(scope, 2):
                name = _text(next(_parts(metric, 1), memoryview(b"")))
                for numbers in (*_parts(metric, 5), *_parts(metric, 7)):
                    for point in _parts(numbers, 1):
                        yield from _point(name, point)


def _point(name: str, point: memoryview) -> Iterator[PushedValue]:
    attributes, value = [], None
    for number, kind, content in _fields(point):
        if number == 7 and kind == _BYTES:
            attributes.append(_attribute(content))
        elif number == 4 and kind == _FIXED64:
            value = float(struct.unpack("<d", content)[0])
        elif number == 6 and kind == _FIXED64:
            value = float(struct.unpack("<q", content)[0])
    if value is not None:
        yield PushedValue(name, ",".join(sorted(attributes)), value)


def _attribute(data: memoryview) -> str:
    key, value = "", ""
    for number, kind, content in _fields(data):
        if number == 1 and kind == _BYTES:
            key = _text(content)
        elif number == 2 and kind == _BYTES:
            for inner, inner_kind, said in _fields(content):
                if inner == 1 and inner_kind == _BYTES:
                    value = _text(said)
                elif inner_kind == _VARINT:
                    value = bytes(said).decode()
    return f"{key}={value}"


def _parts(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, kind, content in _fields(data):
        if number == wanted and kind == _BYTES:
            yield content


def _text(data: memoryview) -> str:
    return bytes(data[: limits.TELEMETRY_TEXT_BYTES_MAX]).decode(errors="replace")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The fields of a message, in order; a varint's value is the bytes of its decimal text."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, kind, memoryview(str(value).encode())
            continue
        if kind == _BYTES:
            size, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedBytes(_WHAT, f"a field of type {kind}", position)
        if size > len(data) - position:
            raise MalformedBytes(_WHAT, f"{size} bytes are not there", position)
        yield number, kind, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise MalformedBytes(_WHAT, "a number is cut off", position)
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedBytes(_WHAT, "a number is too long", position)
