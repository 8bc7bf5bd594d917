"""The comparison with Apache Kafka says what was measured: parsing, statistics, pictures and page, without a broker.

Rounds are made up here, with one side faster or slower on purpose: the page has to say so in every section.
`tests/clusters/test_bench_kafka.py` runs the real thing.
"""

from __future__ import annotations

import doctest
import importlib
import re
import statistics
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from bench.group_load import PROTOCOLS
from bench.kafka import (
    consume,
    fan_out,
    java_tools,
    latency,
    librdkafka,
    page,
    produce,
    requests,
    results,
    security,
    spark,
    start,
    watching,
)
from bench.kafka.__main__ import DOCS, RESULTS, SECTIONS, main
from bench.kafka.charts import WIDTH, Bar, Group, Line, Point, bar_chart, point_chart
from bench.kafka.effort import FULL, QUICK, Effort
from bench.kafka.groups import TOGETHER
from bench.kafka.page_parts import Comparison
from bench.kafka.recorder import Recorder
from bench.kafka.results import Case, Measurement, Rounds, SectionRun, Spread, percentile
from bench.kafka.sides import FOLDLOG, KAFKA, KFAKE, KFAKE_SYNCED, RELAXED
from bench.kafka.topics import cached_share, encoded_batch
from bench.measuring import Place
from bench.transactions import SIZES
from hypothesis import given
from hypothesis import strategies as st

RECORD_COUNT_AT = 57
SVG = "{http://www.w3.org/2000/svg}"

PRODUCER_OUTPUT = """\
Warmup first 10000 records. Steady state results will print after the complete test summary.
In steady state.
1544 records sent, 308.2 records/sec (0.03 MB/sec), 4543.8 ms avg latency, 4730.0 ms max latency.
40000 records sent, 2340.960964 records/sec (0.22 MB/sec), 6500.03 ms avg latency, 9985.00 ms max latency, 7348 ms 50th.
30000 steady state records sent, 2381.708479 records/sec (0.23 MB/sec), 7826.20 ms avg latency, 7578 ms 50th.
"""
CONSUMER_OUTPUT = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-16 10:13:10:930, 2026-11-16 10:13:28:033, 6.7092, 0.3923, 70351, 4113.3719, 9860, 7243, 0.9263, 9712.9642
"""


# What the tools print


def test_the_producer_tool_is_read_without_its_warm_up() -> None:
    assert java_tools.produced(PRODUCER_OUTPUT) == java_tools.Speed(30_000, 2381.708479)


def test_the_consumer_tool_is_read_without_the_time_of_joining() -> None:
    assert java_tools.consumed(CONSUMER_OUTPUT) == java_tools.Speed(70_351, 9712.9642)


@pytest.mark.parametrize("text", ["", "Exception in thread main", CONSUMER_OUTPUT.splitlines()[0]])
def test_a_tool_that_prints_no_figures_is_a_failure(text: str) -> None:
    with pytest.raises(java_tools.ToolFailed, match="printed no figures"):
        java_tools.produced(text)
    with pytest.raises(java_tools.ToolFailed, match="printed no figures"):
        java_tools.consumed(text)


# Statistics


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.sampled_from([50, 99, 99.9, 100]))
def test_a_percentile_is_a_value_that_so_many_are_not_above(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, percent)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= len(ordered) * percent / 100
    assert sum(value < found for value in ordered) < len(ordered) * percent / 100


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        percentile([], 50)


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    speeds = {KAFKA: [100.0, 10.0, 50.0], FOLDLOG: [110.0, 30.0, 60.0]}
    case: Case = {"n": 1}
    rounds = Rounds(
        Measurement(case, side, number, {"speed": value})
        for side, values in speeds.items()
        for number, value in enumerate(values)
    )
    assert rounds.ratio(case, FOLDLOG, KAFKA, "speed") == pytest.approx(1.2)
    assert rounds.spread(case, KAFKA, "speed") == Spread(50.0, 10.0, 100.0)


def test_sides_take_turns_and_none_is_always_first(tmp_path: Path) -> None:
    recorder = Recorder(Place(tmp_path), replace(QUICK, rounds=3))
    order: list[str] = []

    def run(side: str) -> dict[str, float]:
        order.append(side)
        return {"speed": 1.0}

    recorder.in_turns({"n": 1}, {side: lambda side=side: run(side) for side in "ABC"})  # type: ignore[misc]
    assert order == [*"ABC", *"BCA", *"CAB"]
    assert [one.round for one in recorder.measurements] == [0] * 3 + [1] * 3 + [2] * 3


def test_only_the_cases_that_were_asked_for_are_measured(tmp_path: Path) -> None:
    recorder = Recorder(Place(tmp_path), QUICK, {"acks": "all", "partitions": "8"})
    for acks, partitions in (("all", 8), ("all", 1), ("1", 8)):
        recorder.in_turns({"acks": acks, "partitions": partitions}, {KAFKA: lambda: {"speed": 1.0}})
    assert [one.case for one in recorder.measurements] == [{"acks": "all", "partitions": 8}]


# The clients and what they look at


def test_records_are_due_at_even_times_however_late_they_are_sent() -> None:
    due: list[int] = []

    def send(due_ns: int) -> None:
        if len(due) == 5:  # a client that is busy for ten records' time
            until = time.monotonic() + 0.01
            while time.monotonic() < until:
                pass
        due.append(due_ns)

    librdkafka._send_at(1000, 30, send)
    steps = {after - before for before, after in pairwise(due)}
    assert len(due) == 30
    assert steps == {1_000_000}


def test_values_compress_about_two_to_one() -> None:
    import zlib

    values = b"".join(librdkafka.values_of(1000, 50))
    assert len(values) == 50_000
    assert 0.25 < len(zlib.compress(values)) / len(values) < 0.6


def test_a_batch_that_fills_topics_has_the_records_it_says() -> None:
    batch, records = encoded_batch(1000, 64_000)
    assert struct.unpack_from(">i", batch, RECORD_COUNT_AT) == (records,)
    assert 0.9 < len(batch) / 64_000 <= 1.05


class Stepping:
    """Python code in a process of its own, which goes on when it is asked to: this one may have a JVM, whose memory is
    its own affair and whose children end without its counting them.
    """

    TELL = """
import os, time
def tell(text):
    os.write(1, f"{text}\\n".encode())
    os.read(0, 1)
tell("ready")
"""

    def __init__(self, started: subprocess.Popen[bytes]) -> None:
        assert started.stdin is not None
        assert started.stdout is not None
        self.pid, self._asked, self._told = started.pid, started.stdin, started.stdout
        assert self.told() == "ready"

    @classmethod
    @contextmanager
    def through(cls, code: str) -> Iterator[Stepping]:
        command = [sys.executable, "-I", "-S", "-c", cls.TELL + code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as started:
            yield cls(started)

    def told(self) -> str:
        return self._told.readline().decode().strip()

    def step(self) -> str:
        self._asked.write(b".")
        return self.told()


LARGE_BYTES = 96 << 20
LARGE_AND_SMALL_AGAIN = f"""
large = bytearray({LARGE_BYTES})
tell("large")
del large
tell("small")
"""
BUSY_CHILD = """
if os.fork() == 0:
    while time.process_time() < 0.1:
        pass
    tell(os.getpid())
    os._exit(0)
os.wait()
tell("ended")
"""


def test_a_watch_sees_the_peak_since_it_began_and_no_earlier_one() -> None:
    with Stepping.through(LARGE_AND_SMALL_AGAIN) as process:
        first = watching.Watch(process.pid)
        assert process.step() == "large"
        at_peak = watching.memory_bytes(process.pid)
        assert process.step() == "small"
        # The kernel counts pages in batches, so the two may differ by a few.
        assert first.used().peak_bytes >= at_peak * 0.95
        assert watching.Watch(process.pid).used().peak_bytes < at_peak - LARGE_BYTES // 2


def test_processor_time_counts_children_that_have_ended() -> None:
    with Stepping.through(BUSY_CHILD) as parent:
        watch = watching.Watch(parent.pid)
        child = int(parent.step())
        assert watching.family(parent.pid) == [parent.pid, child]
        assert parent.step() == "ended"
        assert watching.family(parent.pid) == [parent.pid]
        assert watch.used().cpu_s >= 0.09


def test_what_was_just_written_is_in_the_page_cache(tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(bytes(1 << 20))
    (tmp_path / "empty").write_bytes(b"")
    assert cached_share([tmp_path / "full", tmp_path / "empty"]) == 1.0
    assert cached_share([tmp_path / "empty"]) == 0.0


# Pictures


def drawn() -> list[str]:
    bars = [Bar("other", "A & B", 90.0, 80.0, 100.0, "90/s"), Bar("ours", "<us>", 0.0, 0.0, 0.0, "0/s")]
    points = [Point("p50", 0.001, "1 ms"), Point("p99", 0.0011, "1.1 ms"), Point("p99.9", 2.0, "2 s")]
    return [
        bar_chart("Bars <1>", "What they say & mean", [Group("first & second", bars), Group("third", bars[:1])]),
        point_chart("Points", "On a line", [Line("kafka", "other", points), Line("disk", "limit", points[:1] * 3)]),
    ]


@pytest.mark.parametrize("svg", drawn(), ids=["bars", "points"])
def test_a_picture_is_well_formed_says_what_it_is_and_stays_in_its_frame(svg: str) -> None:
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    names = {part.get("id"): part.text for part in root if part.get("id")}
    assert set((root.get("aria-labelledby") or "").split()) == set(names)
    assert all(names.values())
    height = float(root.get("height", "0"))
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.get("x", "-1")) < WIDTH, text.text
        assert 0 < float(text.get("y", "-1")) < height, text.text
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", "0")) + float(box.get("width", "0")) <= WIDTH


def test_every_bar_has_its_figure_and_its_name_beside_it() -> None:
    texts = ["".join(text.itertext()) for text in ET.fromstring(drawn()[0]).iter(f"{SVG}text")]
    assert texts == ["Bars <1>", "first & second", "90/sA & B", "0/s<us>", "third", "90/sA & B"]


def test_points_that_are_close_have_their_texts_above_and_below() -> None:
    root = ET.fromstring(drawn()[1])
    at = {text.text: float(text.get("y", "0")) for text in root.iter(f"{SVG}text") if text.get("class") == "value"}
    assert at["p50 1 ms"] != at["p99 1.1 ms"]


# The page


def section(name: str, found: list[Measurement], effort: Effort = FULL) -> SectionRun:
    limits = {
        "sequential_write_bytes_per_s": 1e9, "fdatasync_p50_s": 1e-3, "fdatasync_p99_s": 2e-3,
        "loopback_bytes_per_s": 2e9,
    }  # fmt: skip
    return SectionRun(
        name, "make bench-kafka", "2026-11-16", effort, 61.0, 0.2, {"foldlog": "0.1"}, {"memory": "8 GB"}, limits, found
    )


def made_up(ours: float) -> dict[str, SectionRun]:
    """Every section, with foldlog `ours` times as fast as Kafka, as small and as soon; the same for Spark."""

    def measured(case: Case, speeds: dict[str, float], *figures: str) -> list[Measurement]:
        return [
            Measurement(case, side, number, dict.fromkeys(figures, speed * (1 + number / 1000)))
            for side, speed in speeds.items()
            for number in range(3)
        ]

    fast = {KAFKA: 1000.0, FOLDLOG: 1000 * ours, RELAXED: 1000 * ours}
    both = {KAFKA: 1000.0, FOLDLOG: 1000 * ours}
    slow = {KAFKA: 1.0, FOLDLOG: 1 / ours, RELAXED: 1 / ours, latency.DISK: 0.1}
    used = ("cpu_s", "peak_bytes")
    produced = [
        one
        for case in produce.cases(FULL)
        for one in measured(case, fast | {produce.MOCK: 9000.0}, "records_per_s", *used)
        if case["acks"] == "all" or one.side in {KAFKA, FOLDLOG}
    ]
    consumed = [
        one
        for size in produce.VALUE_BYTES
        for case in consume.cases(FULL, size)
        for one in measured(case, {KAFKA: 1000.0, FOLDLOG: 1000 * ours}, "records_per_s", *used)
    ]
    percents = [f"p{percent}_s" for percent in latency.PERCENTS]
    late = [one for rate in latency.RATES for one in measured({"rate": rate}, slow, *percents)]
    started = measured({"what": start.START}, slow, "seconds")
    started += measured({"what": start.MEMORY}, slow, "idle_bytes", "loaded_bytes")
    again = measured({"stored_bytes": 5_000_000_000, "partitions": 8}, slow, "read_s", "acknowledged_s")
    readers = dict.fromkeys((spark.PATH, spark.OURS_FOLDLOG, spark.OURS_KAFKA), 1000 * ours)
    readers |= {spark.CONNECTOR_FOLDLOG: 1000.0, spark.CONNECTOR_KAFKA: 1000.0}
    ways = [(way, columns) for way in (spark.BATCH, spark.STREAM) for columns in (spark.KEY_AND_VALUE, spark.ALL)]
    read = [
        one
        for size in spark.VALUE_BYTES
        for way, columns in ways
        for one in measured({"way": way, "value_bytes": size, "columns": columns}, readers, "rows_per_s")
    ]
    read += measured({"way": spark.UPSERT, "value_bytes": 100, "columns": spark.KEY_AND_VALUE}, readers, "rows_per_s")
    delivered = [
        one
        for groups in fan_out.GROUPS
        for one in measured({"groups": groups}, fast, "delivered_per_s", "delivered", *used)
    ]
    transacted = [
        one
        for size in SIZES
        for one in measured(
            {"records": size}, both, "records_per_s", "transaction_s", "plain_per_s", "beside_plain", *used
        )
    ]
    last: Case = {"records": SIZES[-1], "read": "again"}
    transacted += measured(
        last, both, "records_per_s", "transaction_s", "beside_plain", "committed_per_s", "committed_beside_all"
    )
    rebalanced = [
        one
        for protocol in PROTOCOLS
        for one in measured({"protocol": protocol, "members": 100}, both, "rebalance_s", "rebalances_per_s", *used)
    ]
    taken = measured({"a_fetch": 500, "acknowledged": TOGETHER}, both, "records_per_s", *used)
    secured = [
        one
        for way in (security.PLAIN, security.TLS, security.TLS_AND_ACLS)
        for one in measured({"what": "raw, fetch", "way": way}, both, "value_bytes_per_s", *used)
    ]
    beside = both | {RELAXED: 1000 * ours, KFAKE: 1000.0, KFAKE_SYNCED: 10.0, requests.LOOPBACK: 1000.0}
    speeds = ("requests_per_s", requests.SPEED, "cpu_s_per_gb", *used)
    sent = [
        one
        for size in requests.REQUEST_BYTES
        for one in measured({"request_bytes": size, "connections": 1, "partitions": 1}, beside, *speeds)
    ]
    in_turn = {
        partitions: [
            one
            for size in requests.ROUND_ROBIN_BYTES
            for one in measured({"request_bytes": size, "partitions": partitions}, beside, *speeds)
        ]
        for partitions in (100, 1000)
    }
    fetched = [one for number in requests.CONNECTIONS for one in measured({"connections": number}, beside, *speeds)]
    waits = slow | {KFAKE: 1.0, KFAKE_SYNCED: 2.0}
    rated = [one for rate in requests.RATES for one in measured({"rate": rate}, waits, "p50_s", "p99_s")]
    footprint = measured({"what": "start"}, waits, "seconds", "idle_bytes")
    found = {
        "produce": produced, "consume": consumed, "latency": late, "start": started, "restart": again, "spark": read,
        "fan-out": delivered, "transactions": transacted, "rebalances": rebalanced, "share-groups": taken,
        "requests": sent, "round-robin-100": in_turn[100], "round-robin-1000": in_turn[1000], "fetches": fetched,
        "rates": rated, "security": secured, "footprint": footprint,
    }  # fmt: skip
    return {name: section(name, measurements) for name, measurements in found.items()}


def aims(text: str) -> list[str]:
    """The last cell of each line of the table of aims."""
    table = text.partition("## What we aimed for\n\n")[2].partition("\n\n")[0]
    return [line.split("|")[-2].strip() for line in table.splitlines()[2:]]


def test_where_foldlog_wins_every_aim_is_reached_and_nothing_is_behind() -> None:
    text, _ = page.page(made_up(ours=20.0))
    assert aims(text) == ["yes"] * 17
    assert "**Behind**" not in text
    assert "**behind**" not in text
    assert "mean nothing" not in text


def test_where_foldlog_loses_every_section_says_so() -> None:
    text, _ = page.page(made_up(ours=0.5))
    assert aims(text) == ["**no**"] * 17
    assert "**Ahead**" not in text
    assert "**ahead**" not in text
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    for title in (
        "Produce",
        "Consume",
        "Spark",
        "Fan-out",
        "Transactions",
        "Rebalances",
        "Share groups",
        "TLS and ACLs",
        "Requests, by size",
    ):
        assert "**Behind** in" in parts[title], title
    assert "**behind**" in parts["End-to-end latency"]
    assert "foldlog has acknowledged its first record 0.5x as fast as Kafka" in parts["Start and memory"]
    assert "200% of Kafka's memory" in parts["Start and memory"]
    assert "0.5x as fast" in parts["Restart after kill -9 with 5 GB"]


def test_an_aim_that_some_cases_reach_says_how_many() -> None:
    cases: list[Case] = [{"n": 1}, {"n": 2}]
    found = [
        Measurement(case, side, 0, {"speed": value})
        for case, values in zip(cases, ((1.0, 2.0), (1.0, 1.2)), strict=True)
        for side, value in zip((KAFKA, FOLDLOG), values, strict=True)
    ]
    aim = Comparison(Rounds(found), cases, "speed").aim("1.5x", 1.5)
    assert (aim.verdict(), aim.measured) == ("**in 1 of 2 cases**", "1.2x to 2x, median 1.6x")


def test_where_the_rounds_overlap_nobody_is_ahead() -> None:
    case: Case = {"n": 1}
    speeds = {KAFKA: [10.0, 14.0], FOLDLOG: [13.0, 20.0]}
    found = [
        Measurement(case, side, number, {"speed": value})
        for side, values in speeds.items()
        for number, value in enumerate(values)
    ]
    told = Comparison(Rounds(found), [case], "speed").sentence("Read", lambda _: "it")
    ratio = statistics.median([13 / 10, 20 / 14])
    assert told == f"Read: {ratio:.3g}x of Apache Kafka. The rounds overlap in 1."


def test_the_page_shows_every_picture_and_no_other() -> None:
    text, pictures = page.page(made_up(ours=2.0))
    assert re.findall(r"!\[[^\]]+\]\(images/([^)]+)\)", text) == list(pictures)
    for svg in pictures.values():
        ET.fromstring(svg)


def test_the_page_has_the_command_the_versions_and_the_limits_of_the_machine() -> None:
    text, _ = page.page({"start": made_up(2.0)["start"]})
    assert "| start | `make bench-kafka` | 2026-11-16 | 1.0 min |" in text
    assert "| foldlog | 0.1 |" in text
    assert "1.00 ms / 2.00 ms" in text or "1 ms / 2 ms" in text
    assert "{" not in text, "a name in braces was not filled in"


def test_reasons_are_copied_below_the_section_they_are_about() -> None:
    text, _ = page.page(made_up(0.5), "Intro.\n\n## consume\n\nThe loop copies.\n\n## spark\n\n")
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    assert "**Why.**\n\nThe loop copies." in parts["Consume"]
    assert all("**Why.**" not in part for title, part in parts.items() if title != "Consume")


def test_a_connector_of_another_version_is_named_beside_the_figures() -> None:
    one = made_up(2.0)["spark"]
    for versions, is_told in (
        ({"Spark": "4.3.0", "Spark's Kafka connector": "4.2.0"}, True),
        ({"Spark": "4.3.0", "Spark's Kafka connector": "4.3.0"}, False),
    ):
        text, _ = page.page({"spark": replace(one, versions=versions)})
        assert ("The connector here is 4.2.0, and Spark is 4.3.0" in text) == is_told


def test_tiny_sizes_are_called_that() -> None:
    tiny = {"start": replace(made_up(2.0)["start"], effort=QUICK)}
    assert "the figures mean nothing" in page.page(tiny)[0]


def test_what_is_kept_comes_back_and_a_section_can_be_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    before = made_up(2.0)
    results.save(file, before)
    assert results.load(file) == {
        name: replace(one, measurements=tuple(one.measurements)) for name, one in before.items()
    }
    again = section("start", [Measurement({"what": start.START}, KAFKA, 0, {"seconds": 1.0})])
    merged = results.merged(results.load(file), {"start": again}, list(SECTIONS))
    assert list(merged) == list(SECTIONS)
    assert merged["start"] == again
    assert len(merged["spark"].measurements) == len(before["spark"].measurements)
    assert results.load(tmp_path / "none.json") == {}


def test_the_page_and_its_pictures_are_what_the_rounds_that_are_kept_say(tmp_path: Path) -> None:
    page.write(results.load(RESULTS), tmp_path)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {Path("benchmarks.md"), *(path.relative_to(DOCS) for path in DOCS.glob("images/benchmarks-*.svg"))}
    assert made == kept
    for path in made:
        told = "written by hand, or not written anew: python -m bench.kafka --page"
        assert (tmp_path / path).read_text(encoding="utf-8") == (DOCS / path).read_text(encoding="utf-8"), (
            f"{path}: {told}"
        )


def test_results_of_another_format_are_refused() -> None:
    with pytest.raises(ValueError, match="measure again with --write"):
        results.decoded({"format": 0, "sections": {}})


def test_writing_replaces_the_pictures_of_the_last_run(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (images / "benchmarks-gone.svg").write_text("<svg/>")
    (images / "console.png").write_bytes(b"not ours")
    page.write(made_up(2.0), tmp_path)
    names = {path.name for path in images.iterdir()}
    assert "benchmarks-gone.svg" not in names
    assert {"console.png", "benchmarks-start.svg"} <= names
    assert (tmp_path / "benchmarks.md").read_text(encoding="utf-8").startswith("# Beside Apache Kafka\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "produce,tea"], "there is no section 'tea'"),
        (["--where", "acks"], "'acks' is not NAME=VALUE"),
    ],
)
def test_a_wrong_word_is_refused_in_a_sentence(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert told in capsys.readouterr().err


def test_a_part_of_a_section_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--write", "--where", "acks=all"]) == 1
    assert "leave --where out" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["java_tools", "machine", "page", "page_parts", "results"])
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"bench.kafka.{name}"))
    assert found.attempted
    assert not found.failed
