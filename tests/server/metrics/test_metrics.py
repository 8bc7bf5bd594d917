"""What is counted is what is exposed: prometheus_client's own parser reads every page that is written here.

Labels and values of any kind survive the format, buckets agree with a count by hand, errors are found wherever an API
has a place for them, and nothing is lost between threads.
"""

from __future__ import annotations

import math
import threading
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from foldlog.exposition import Family, Histogram, Sample, render
from foldlog.server.call import has_error
from foldlog.server.metrics.metrics import Metrics
from foldlog.wire.messages import APIS
from foldlog.wire.schema import Message

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False))


def parse(page: bytes) -> dict[str, Metric]:
    """By name, as the parser has it: that of a counter is without its `_total`."""
    return {metric.name: metric for metric in text_string_to_metric_families(page.decode())}


def values(metrics: Metrics) -> dict[str, float]:
    """The samples without labels."""
    parsed = parse(render(metrics.families())).values()
    return {sample.name: sample.value for metric in parsed for sample in metric.samples if not sample.labels}


@given(st.lists(st.tuples(NUMBERS, TEXT, TEXT), max_size=5), TEXT)
def test_any_label_value_and_help_survives_the_format(rows: list[tuple[float, str, str]], text: str) -> None:
    samples = [Sample(value, (("group", one), ("topic", other))) for value, one, other in rows]
    parsed = parse(render([Family("foldlog_lag", "gauge", text, samples)]))
    if not rows:
        assert parsed == {}
        return
    found = parsed["foldlog_lag"]
    assert found.type == "gauge"
    assert [(s.value, s.labels) for s in found.samples] == [
        (value, {"group": one, "topic": other}) for value, one, other in rows
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_a_help_text_is_read_as_it_was_written(text: str) -> None:
    found = parse(render([Family("foldlog_lag", "gauge", "x" + text + "x", [Sample(1)])]))["foldlog_lag"]
    assert found.documentation == "x" + text + "x"


def test_a_label_that_is_not_text_costs_no_page() -> None:
    page = render([Family("foldlog_lag", "gauge", "Lag.", [Sample(1, (("group", "\ud800"),)), Sample(2)])])
    assert [sample.value for sample in parse(page)["foldlog_lag"].samples] == [1, 2]


def test_not_a_number_and_infinity_are_written_as_prometheus_reads_them() -> None:
    page = render([Family("foldlog_x", "gauge", "X.", [Sample(math.nan), Sample(math.inf), Sample(-math.inf)])])
    first, second, third = (sample.value for sample in parse(page)["foldlog_x"].samples)
    assert math.isnan(first)
    assert (second, third) == (math.inf, -math.inf)


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=8, unique=True).map(sorted),
    st.lists(st.integers(-1100, 1100), max_size=50),
)
def test_a_bucket_counts_all_that_is_not_above_its_bound(bounds: list[int], observed: list[int]) -> None:
    histogram = Histogram(bounds)
    for value in observed:
        histogram.observe(value)
    page = render([Family("foldlog_x", "histogram", "X.", histogram.samples((("api", "Fetch"),)))])
    samples = parse(page)["foldlog_x"].samples
    buckets = {float(s.labels["le"]): s.value for s in samples if s.name == "foldlog_x_bucket"}
    assert buckets == {bound: sum(value <= bound for value in observed) for bound in [*map(float, bounds), math.inf]}
    others = {s.name: s.value for s in samples if s.name != "foldlog_x_bucket"}
    assert others == {"foldlog_x_sum": sum(observed), "foldlog_x_count": len(observed)}
    assert all(s.labels["api"] == "Fetch" for s in samples)


def test_traffic_is_counted() -> None:
    metrics = Metrics()
    metrics.bytes_in += 100
    metrics.bytes_out += 50
    metrics.produced(3, 300)
    metrics.fetched(200, 2)
    metrics.connection_opened()
    metrics.connection_opened()
    metrics.connection_closed()
    assert values(metrics) == {
        **values(Metrics()),
        "foldlog_received_bytes_total": 100,
        "foldlog_sent_bytes_total": 50,
        "foldlog_produced_records_total": 3,
        "foldlog_produced_bytes_total": 300,
        "foldlog_fetched_records_total": 2,
        "foldlog_fetched_bytes_total": 200,
        "foldlog_connections": 1,
        "foldlog_connections_accepted_total": 2,
    }


def test_refused_connections_are_counted_by_reason() -> None:
    metrics = Metrics()
    for reason in ("bad request", "too many", "bad request"):
        metrics.connection_refused(reason)
    refused = parse(render(metrics.families()))["foldlog_connections_refused"]
    assert {sample.labels["reason"]: sample.value for sample in refused.samples} == {"bad request": 2, "too many": 1}


def test_requests_are_timed_by_api_and_errors_counted() -> None:
    metrics = Metrics()
    metrics.request_done(0, 0.003)
    metrics.request_done(0, 0.2, errors=1)
    metrics.request_done(1, 0.00005)
    page = parse(render(metrics.families()))
    seconds = page["foldlog_request_seconds"].samples
    counts = {s.labels["api"]: s.value for s in seconds if s.name == "foldlog_request_seconds_count"}
    assert counts == {"Produce": 2, "Fetch": 1}
    quick = {s.labels["api"]: s.value for s in seconds if s.labels.get("le") == "0.005"}
    assert quick == {"Produce": 1, "Fetch": 1}
    errors = {s.labels["api"]: s.value for s in page["foldlog_request_errors"].samples}
    assert errors == {"Produce": 1, "Fetch": 0}


def test_a_request_of_an_unknown_api_is_counted_under_its_number() -> None:
    metrics = Metrics()
    metrics.request_done(9999, 0.1)
    samples = parse(render(metrics.families()))["foldlog_request_errors"].samples
    assert [sample.labels for sample in samples] == [{"api": "9999"}]


def test_syncs_of_many_threads_are_all_counted() -> None:
    metrics = Metrics()
    start = threading.Barrier(8)

    def sync_often() -> None:
        start.wait(timeout=60)
        for _ in range(2000):
            metrics.synced(0.001, 4096, 3)

    threads = [threading.Thread(target=sync_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = values(metrics)
    assert found["foldlog_sync_seconds_count"] == 16_000
    assert found["foldlog_sync_bytes_sum"] == 16_000 * 4096
    assert found["foldlog_sync_records_sum"] == 16_000 * 3


def test_a_gauge_is_read_when_somebody_asks() -> None:
    metrics = Metrics()
    held = [1.0]
    metrics.add_gauge("parked_fetches", "Fetches that wait for records.", lambda: held[0])
    assert values(metrics)["foldlog_parked_fetches"] == 1
    held[0] = 7
    assert values(metrics)["foldlog_parked_fetches"] == 7


def responses() -> list[type[Message]]:
    return [import_module(f"foldlog.wire.messages.{api.module}").RESPONSE for api in APIS.values()]


def with_each_error(kind: type[Any]) -> list[tuple[str, Message]]:
    """An answer for each place where this class can have an error code, and the path to that place."""
    found: list[tuple[str, Message]] = []
    for name, item, is_array in {(field.name, field.item, field.is_array) for field in kind.SCHEMA}:
        if name == "error_code":
            found.append((name, kind(error_code=3)))
        elif item is not None:
            found += [
                (f"{name}.{path}", kind(**{name: [item(), part] if is_array else part}))
                for path, part in with_each_error(item)
            ]
    return found


def without_errors(kind: type[Any]) -> Message:
    """An answer that has one of everything."""
    parts = {
        field.name: [without_errors(field.item)] if field.is_array else without_errors(field.item)
        for field in kind.SCHEMA
        if field.item is not None
    }
    answer: Message = kind(**parts)
    return answer


@pytest.mark.parametrize("kind", responses(), ids=lambda kind: kind.__name__)
def test_an_error_is_found_wherever_an_answer_can_have_one(kind: type[Message]) -> None:
    places = with_each_error(kind)
    assert places, "an API without error codes cannot tell of errors: none is served"
    assert [path for path, answer in places if not has_error(answer)] == []
    assert not has_error(kind())
    assert not has_error(without_errors(kind))
