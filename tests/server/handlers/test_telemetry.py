"""Clients push metrics where that is on: asked for by subscriptions, taken at their intervals, shown within bounds.

What clients push is built with Google's protobuf from OpenTelemetry's declarations, as far as clients use them.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from foldlog import limits
from foldlog.records.batch import Compression
from foldlog.records.compression import compress
from foldlog.server.config.resources import ConfigResource
from foldlog.server.telemetry.clients import PushedValue, read_values
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from foldlog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from foldlog.wire.messages.push_telemetry import PushTelemetryRequest
from server.handlers.test_configs import DELETE, SET, change, changes_of, describe, values
from server.small_node import SmallNode

METRICS = ConfigResource.CLIENT_METRICS
KEYS = {71, 72}
NOBODY = bytes(16)
INTERVAL_MS = 300_000

_FIELDS = {
    "AnyValue": [("string_value", 1, "string"), ("bool_value", 2, "bool"), ("int_value", 3, "int64")],
    "KeyValue": [("key", 1, "string"), ("value", 2, "AnyValue")],
    "NumberDataPoint": [
        ("attributes", 7, "KeyValue*"), ("start_time_unix_nano", 2, "fixed64"), ("time_unix_nano", 3, "fixed64"),
        ("as_double", 4, "double"), ("as_int", 6, "sfixed64"), ("flags", 8, "uint32"),
    ],
    "Gauge": [("data_points", 1, "NumberDataPoint*")],
    "Sum": [("data_points", 1, "NumberDataPoint*"), ("temporality", 2, "int32"), ("is_monotonic", 3, "bool")],
    "Metric": [
        ("name", 1, "string"), ("description", 2, "string"), ("unit", 3, "string"), ("gauge", 5, "Gauge"),
        ("sum", 7, "Sum"),
    ],
    "ScopeMetrics": [("metrics", 2, "Metric*")],
    "ResourceMetrics": [("scope_metrics", 2, "ScopeMetrics*")],
    "MetricsData": [("resource_metrics", 1, "ResourceMetrics*")],
}  # fmt: skip


def _metrics_data() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number, label=kinds.LABEL_OPTIONAL)
            if kind.endswith("*"):
                added.label = kinds.LABEL_REPEATED
            if kind.rstrip("*") in _FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".otlp.{kind.rstrip('*')}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if field in ("as_double", "as_int"):  # one of them, which is then written also if it is 0
                added.oneof_index = len(message.oneof_decl) - 1 if message.oneof_decl else 0
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("otlp.MetricsData"))


MetricsData = _metrics_data()


def pushed(*numbers: tuple[str, dict[str, str | int], float]) -> bytes:
    """Gauges of floats, and sums of integers."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for name, attributes, value in numbers:
        metric = scope.metrics.add(name=name, unit="1", description="x")
        point = (metric.sum if isinstance(value, int) else metric.gauge).data_points.add(time_unix_nano=7, flags=1)
        setattr(point, "as_int" if isinstance(value, int) else "as_double", value)
        for key, said in attributes.items():
            attribute = point.attributes.add(key=key)
            setattr(attribute.value, "int_value" if isinstance(said, int) else "string_value", said)
    return bytes(data.SerializeToString())


@pytest.fixture
def telemetry() -> Any:
    small = SmallNode(settings={"foldlog.client.telemetry": True})
    yield small
    small.close()


def subscribe(small: SmallNode, name: str, **settings: str | None) -> list[ErrorCode]:
    changes = [(key.replace("_", "."), DELETE if value is None else SET, value) for key, value in settings.items()]
    return change(small, changes_of(name, *changes, kind=METRICS))


def ask(small: SmallNode, instance_id: bytes = NOBODY, **caller: Any) -> GetTelemetrySubscriptionsResponse:
    answer = small.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0, **caller)
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer


def push(
    small: SmallNode,
    asked: GetTelemetrySubscriptionsResponse,
    metrics: bytes = b"",
    *,
    codec: int = 0,
    terminating: bool = False,
    subscription_id: int | None = None,
) -> ErrorCode:
    request = PushTelemetryRequest(
        client_instance_id=asked.client_instance_id,
        subscription_id=asked.subscription_id if subscription_id is None else subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=metrics,
    )
    return ErrorCode(small.ask(request, 0).error_code)


def lines(small: SmallNode) -> dict[str, float]:
    assert small.node.telemetry is not None
    (family, *_) = small.node.telemetry.families()
    return {
        f"{dict(sample.labels)['metric']} {dict(sample.labels)['attributes']}": sample.value
        for sample in family.samples
    }


def test_it_is_neither_advertised_nor_answered_unless_it_is_on(small: SmallNode, telemetry: SmallNode) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    off, on = ({one.api_key for one in node.ask(request, 4).api_keys} for node in (small, telemetry))
    assert (off & KEYS, on & KEYS) == (set(), KEYS)
    assert ask(small).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert push(small, GetTelemetrySubscriptionsResponse()) is ErrorCode.UNSUPPORTED_VERSION


def test_a_client_is_asked_for_what_the_subscriptions_that_match_it_name(telemetry: SmallNode) -> None:
    assert subscribe(telemetry, "a", metrics="org.apache.kafka.producer.", interval_ms="60000") == [ErrorCode.NONE]
    assert subscribe(telemetry, "b", metrics="x.,y.", match="client_id=orders-.*") == [ErrorCode.NONE]
    plain, orders = ask(telemetry, client_id="clicks-1"), ask(telemetry, client_id="orders-1")
    assert list(plain.requested_metrics) == ["org.apache.kafka.producer."]
    assert list(orders.requested_metrics) == ["org.apache.kafka.producer.", "x.", "y."]
    assert plain.push_interval_ms == orders.push_interval_ms == 60_000
    assert plain.client_instance_id not in (NOBODY, orders.client_instance_id)
    assert plain.subscription_id != orders.subscription_id
    assert set(orders.accepted_compression_types) == {1, 2, 3, 4}
    assert orders.telemetry_max_bytes == 1 << 20
    assert subscribe(telemetry, "c", metrics="*") == [ErrorCode.NONE]
    telemetry.clock.advance(1)
    assert list(ask(telemetry, orders.client_instance_id, client_id="orders-1").requested_metrics) == ["*"]


def test_a_client_is_matched_by_what_it_said_of_its_software(telemetry: SmallNode) -> None:
    request = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.0")
    telemetry.ask(request, 3)
    match = r"client_software_name=librdkafka,client_software_version=2\.\d+\.\d,client_source_address=127.*"
    assert subscribe(telemetry, "a", metrics="*", match=match) == [ErrorCode.NONE]
    assert list(ask(telemetry).requested_metrics) == ["*"]
    assert list(ask(telemetry, host="10.0.0.1").requested_metrics) == []


def test_pushes_are_taken_at_their_interval(telemetry: SmallNode) -> None:
    subscribe(telemetry, "a", metrics="*")
    asked = ask(telemetry)
    assert ask(telemetry, asked.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(telemetry, asked) is ErrorCode.NONE, "the first one comes when it comes"
    assert push(telemetry, asked) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    telemetry.clock.advance(INTERVAL_MS)
    assert push(telemetry, asked) is ErrorCode.NONE
    assert push(telemetry, asked, terminating=True) is ErrorCode.NONE, "the last one too"
    telemetry.clock.advance(INTERVAL_MS)
    assert push(telemetry, asked) is ErrorCode.INVALID_REQUEST, "it said that it leaves"


def test_what_cannot_be_taken_is_told_with_kafkas_codes(telemetry: SmallNode) -> None:
    subscribe(telemetry, "a", metrics="*", interval_ms="100")

    def after(asked: GetTelemetrySubscriptionsResponse, *arguments: Any, **more: Any) -> ErrorCode:
        telemetry.clock.advance(100)
        return push(telemetry, asked, *arguments, **more)

    asked = ask(telemetry)
    assert after(asked, subscription_id=1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(telemetry, asked.client_instance_id).error_code == ErrorCode.NONE, "it may ask again at once"
    assert after(asked, b"x", codec=7) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert after(asked, bytes((1 << 20) + 1)) is ErrorCode.TELEMETRY_TOO_LARGE
    assert after(asked, b"\xff") is ErrorCode.INVALID_RECORD
    assert after(asked, b"not gzip", codec=1) is ErrorCode.INVALID_RECORD
    bomb = compress(Compression.GZIP, bytes(limits.TELEMETRY_DECOMPRESSED_BYTES_MAX + 1))
    assert after(asked, bomb, codec=1) is ErrorCode.INVALID_RECORD
    assert after(GetTelemetrySubscriptionsResponse()) is ErrorCode.INVALID_REQUEST
    subscribe(telemetry, "a", metrics="x.")
    assert after(asked, pushed()) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID, "it was changed"


@pytest.mark.parametrize("codec", range(5))
def test_what_was_pushed_is_shown_with_its_newest_value(telemetry: SmallNode, codec: int) -> None:
    subscribe(telemetry, "a", metrics="*", interval_ms="100")
    asked = ask(telemetry)
    for rtt, connections in ((1.5, 3), (2.5, 7)):
        data = pushed(("rtt.avg", {"node_id": "1", "x": 2}, rtt), ("connections", {}, connections))
        assert push(telemetry, asked, data if codec == 0 else compress(codec, data), codec=codec) is ErrorCode.NONE
        telemetry.clock.advance(100)
    assert lines(telemetry) == {"rtt.avg node_id=1,x=2": 2.5, "connections ": 7.0}
    telemetry.clock.advance(limits.TELEMETRY_SILENT_MS + 1)
    assert lines(telemetry) == {}, "a client that is gone is not shown for ever"


def test_values_are_kept_within_bounds(telemetry: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_VALUES_MAX", 3)
    monkeypatch.setattr(limits, "TELEMETRY_VALUES_OF_ALL_MAX", 5)
    monkeypatch.setattr(limits, "TELEMETRY_CLIENTS_MAX", 2)
    subscribe(telemetry, "a", metrics="*")
    data = pushed(*((f"m{number}", {}, 1.0) for number in range(9)))
    for count in (3, 5, 5):
        assert push(telemetry, ask(telemetry), data) is ErrorCode.NONE
        assert len(lines(telemetry)) <= count
    assert telemetry.node.telemetry is not None
    families = {family.name: family.samples[0].value for family in telemetry.node.telemetry.families()}
    assert families["foldlog_telemetry_clients"] == 2
    assert families["foldlog_telemetry_pushes_total"] == 3
    assert families["foldlog_telemetry_dropped_values_total"] > 0


def test_a_long_name_is_cut() -> None:
    found = read_values(0, pushed(("n" * 10_000, {"k": "v" * 10_000}, 1.0)))
    assert found is not None
    assert max(len(found[0].metric), len(found[0].attributes)) <= 2 * limits.TELEMETRY_TEXT_BYTES_MAX + 1


@given(
    numbers=st.lists(
        st.tuples(
            st.text(max_size=20),
            st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2),
            st.one_of(st.floats(allow_nan=False), st.integers(-(1 << 53), 1 << 53)),
        ),
        max_size=6,
    )
)
def test_what_protobuf_writes_is_read(numbers: list[tuple[str, dict[str, str | int], float]]) -> None:
    expected = [
        PushedValue(name, ",".join(sorted(f"{key}={value}" for key, value in attributes.items())), float(value))
        for name, attributes, value in numbers
    ]
    assert read_values(0, pushed(*numbers)) == expected


@given(data=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found = read_values(0, data)
    assert found is None or isinstance(found, list)


# --- the settings of subscriptions ------------------------------------------------------------------------------------


def test_a_subscription_is_shown_listed_and_removed(small: SmallNode) -> None:
    assert subscribe(small, "a", metrics="x.", interval_ms="500") == [ErrorCode.NONE]
    assert values(describe(small, METRICS, "a")) == {"interval.ms": ("500", 7), "match": ("", 5), "metrics": ("x.", 7)}
    assert values(describe(small, METRICS, "none")) == {
        "interval.ms": ("300000", 5), "match": ("", 5), "metrics": ("", 5)
    }  # fmt: skip
    assert small.broker.dynamic_settings.current.names("client-metrics") == ["a"]
    assert subscribe(small, "a", metrics=None, interval_ms=None) == [ErrorCode.NONE]
    assert small.broker.dynamic_settings.current.names("client-metrics") == []


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("", {"metrics": "x"}, ErrorCode.INVALID_REQUEST),
        ("a", {"no_such": "x"}, ErrorCode.INVALID_REQUEST),
        ("a", {"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ("a", {"interval_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=(a+)+"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=(a|b)*"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=.*.*.*.*"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=a{2}"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": r"client_id=(a)\1"}, ErrorCode.INVALID_CONFIG),
        ("a", {"match": "client_id=(?=a)"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(
    small: SmallNode, name: str, settings: dict[str, str], code: ErrorCode
) -> None:
    assert subscribe(small, name, **settings) == [code]
    assert not small.broker.dynamic_settings.current.resources


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders-1"),
        (".*", "anything", "x" * 256),
        ("(orders|clicks)-[0-9]+", "clicks-42", "clicks-x"),
        (r"a\.b?", "a.b", "axb"),
        ("[^a]x", "bx", "ax"),
        ("", "", "x"),
    ],
)
def test_a_pattern_matches_the_whole_text(telemetry: SmallNode, pattern: str, matching: str, other: str) -> None:
    assert subscribe(telemetry, "a", metrics="*", match=f"client_id={pattern}") == [ErrorCode.NONE]
    assert list(ask(telemetry, client_id=matching).requested_metrics) == ["*"]
    assert list(ask(telemetry, client_id=other).requested_metrics) == []
