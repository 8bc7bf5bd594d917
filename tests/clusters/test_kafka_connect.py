"""Kafka Connect in distributed mode: a file goes to a topic exactly once, and from there to another file.

The worker and our broker are killed while lines go through. The topic, read as committed, has every line once and in
order. Connect's sinks promise every line at least once, and that is what the second file has to hold. Where connectors
are is shown, and changed, as operators do it (KIP-875).
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

from clusters.connect import CONNECT, ConnectWorker

from faults.committed_reader import CommittedReader
from faults.served import ServedDirectory

ARGUMENTS = ("--create", "lines:1", "-X", "group.initial.rebalance.delay.ms=0")
WORKER = {"exactly.once.source.support": "enabled", "consumer.isolation.level": "read_committed"}
LINES = [f"line {number}" for number in range(12_000)]
TAIL = [f"tail {number}" for number in range(200)]
"""FileStreamSource keeps what it has read beyond a batch, up to 1,024 characters, until the file grows again."""
SOURCE = {"connector.class": "FileStreamSource", "topic": "lines", "exactly.once.support": "required"}
BATCH = 50
"""Lines of a transaction."""
SINK = {"connector.class": "FileStreamSink", "topics": "lines"}


def wait_lines(worker: ConnectWorker, path: Path, count: int) -> None:
    """Until the file has this many different lines."""
    worker.process.wait_until(lambda: path.exists() and len(set(path.read_text().splitlines())) >= count)


def append(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def test_a_file_goes_to_a_topic_once_and_to_another_file_while_worker_and_broker_are_killed(
    tmp_path: Path, need_jars: Callable[[tuple[str, ...]], None]
) -> None:
    need_jars(CONNECT)
    rng = random.Random(15)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    append(source, LINES[:8_000])
    with (
        ServedDirectory(tmp_path, *ARGUMENTS) as served,
        ConnectWorker(tmp_path / "connect", served.bootstrap, WORKER) as worker,
        CommittedReader(served.bootstrap, "lines") as reader,
    ):
        worker.put("source", {**SOURCE, "file": source, "batch.size": BATCH})
        worker.put("sink", {**SINK, "file": sink})
        for kills_broker in (False, True):
            reader.wait_more(rng.randrange(1, 3000))
            if kills_broker:
                assert served.end(signal.SIGKILL) == -signal.SIGKILL
                served.start()
            else:
                worker.kill()
                worker.start()
        append(source, LINES[8_000:] + TAIL)
        reader.wait_until(lambda: len(reader.records) >= len(LINES))
        wait_lines(worker, sink, len(LINES))
        worker.stop()
    assert reader.values == (LINES + TAIL)[: len(reader.values)]
    different = list(dict.fromkeys(sink.read_text().splitlines()))
    assert different == (LINES + TAIL)[: len(different)]


def test_offsets_of_connectors_are_shown_set_back_and_deleted(
    tmp_path: Path, need_jars: Callable[[tuple[str, ...]], None]
) -> None:
    need_jars(CONNECT)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = LINES[:1000]
    append(source, lines)
    with (
        ServedDirectory(tmp_path, *ARGUMENTS) as served,
        ConnectWorker(tmp_path / "connect", served.bootstrap, WORKER) as worker,
        CommittedReader(served.bootstrap, "lines") as reader,
    ):
        worker.put("source", {**SOURCE, "file": source})
        worker.put("sink", {**SINK, "file": sink})
        reader.wait_more(len(lines))
        wait_lines(worker, sink, len(lines))
        for name in ("source", "sink"):
            worker.ask("PUT", f"/connectors/{name}/stop")
            worker.wait_state(name, "STOPPED")
        shown = worker.ask("GET", "/connectors/source/offsets")["offsets"]
        assert shown == [{"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}]
        (shown,) = worker.ask("GET", "/connectors/sink/offsets")["offsets"]
        assert shown["partition"] == {"kafka_topic": "lines", "kafka_partition": 0}
        assert shown["offset"]["kafka_offset"] >= len(lines)  # the markers of transactions have offsets too
        again = {"partition": {"filename": str(source)}, "offset": {"position": len("line 0\n")}}
        worker.ask("PATCH", "/connectors/source/offsets", {"offsets": [again]})
        worker.ask("PUT", "/connectors/source/resume")
        reader.wait_until(lambda: len(reader.records) >= 2 * len(lines) - 1)
        worker.ask("DELETE", "/connectors/sink/offsets")
        assert worker.ask("GET", "/connectors/sink/offsets") == {"offsets": []}
        sink.unlink()
        worker.ask("PUT", "/connectors/sink/resume")
        wait_lines(worker, sink, len(lines))
    assert reader.values == [*lines, *lines[1:]]
    assert sink.read_text().splitlines()[: len(lines)] == lines
