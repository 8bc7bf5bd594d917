"""Write a directory of a log for tests/broker/stored, with the foldlog that PYTHONPATH names, and what is in it.

    PYTHONPATH=<source of an older commit>/src python scripts/write_stored_directory.py NAME

A process writes the log and is killed; half a batch is added to one partition, as a power cut would leave it. That is
`crashed`; `closed` is the same log, opened and closed once more by the same foldlog. `facts.json` is what it read then.
tests/broker/test_stored_directory.py opens both with the code of the day.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from confluent_kafka import Producer  # noqa: E402

import foldlog  # noqa: E402
from broker.stored_log import PAYMENTS, facts_of, fold, held_by, views_in  # noqa: E402

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_MS: Final = 1_700_000_000_000
MERCHANTS: Final = ("Chai Point", "Café Coffee Day", "Haldiram", "Third Wave")
SEGMENT: Final = {"foldlog.segment.records": 20, "index.interval.bytes": 500}


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a directory for tests/broker/stored.")
    parser.add_argument("name", help="of the archive, without .tar.xz")
    parser.add_argument("--write", metavar="DIRECTORY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(Path(arguments.write))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        stored = Path(scratch) / arguments.name
        write_and_kill(stored, arguments.name)
        tear(stored / "crashed" / f"{PAYMENTS}-1")
        (stored / "facts.json").write_text(json.dumps(read_back(stored), indent=1))
        target = ROOT / "tests" / "broker" / "stored" / f"{arguments.name}.tar.xz"
        with tarfile.open(target, "w:xz", preset=9) as archive:
            archive.add(stored, arguments.name)
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


def write_and_kill(stored: Path, name: str) -> None:
    """A process of its own writes; SIGKILL ends it while everything is open."""
    command = [sys.executable, __file__, name, "--write", str(stored)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        said = child.stdout.readline() if child.stdout else ""
        child.send_signal(signal.SIGKILL)
    if said != "written\n":
        raise SystemExit(f"the writer ended before it was done: {said!r}")


def tear(partition: Path) -> None:
    """Half of a batch after the last one, as a power cut leaves it."""
    newest = max(partition.glob("*.log"))
    whole = newest.read_bytes()
    newest.write_bytes(whole + whole[: len(whole) // 2][:50])


def read_back(stored: Path) -> dict[str, object]:
    shutil.copytree(stored / "crashed", stored / "closed")
    with foldlog.open(stored / "closed", background=False) as log:
        return {
            "foldlog": foldlog.__version__,
            "written_ms": int(time.time() * 1000),
            "views": {kind: held_by(view) for kind, view in views_in(stored).items()},
            **facts_of(log),
        }


# --- what is written --------------------------------------------------------------------------------------------------


def write(stored: Path) -> None:
    stored.mkdir(parents=True)
    log = foldlog.open(stored / "crashed", listen=True, background=False)
    write_payments(log, stored)
    write_codecs(log)
    write_cleaned(log)
    write_idempotently(log)
    write_groups(log)
    print("written", flush=True)
    signal.pause()


def pay(log: foldlog.Log, numbers: range) -> None:
    """Keyed, a third of them newer states of an older payment, some of them tombstones."""
    for number in numbers:
        value = {"merchant": MERCHANTS[number % len(MERCHANTS)], "amount": 100 * number + 99}
        log.append(
            PAYMENTS,
            None if number % 11 == 7 else value,
            key=f"tx_{number % 60:03}",
            headers={"source": "web", "attempt": str(number)} if number % 3 else None,
            timestamp_ms=FIRST_MS + 1000 * number,
        )


def write_payments(log: foldlog.Log, stored: Path) -> None:
    """Three partitions, then four, with views that have read a part of them."""
    log.create_topic(PAYMENTS, 3, SEGMENT)
    pay(log, range(150))
    for view in views_in(stored).values():
        fold(log, view, {number: end - 10 for number, (_, end) in log.offsets(PAYMENTS).items()})
        view.close()
    log.grow_topic(PAYMENTS, 4)
    pay(log, range(150, 220))


def write_codecs(log: foldlog.Log) -> None:
    """A partition for each codec; keys, values and headers that are null, empty and long."""
    log.create_topic("codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        with log.producer(compression=codec, linger_ms=50, batch_records=25) as producer:
            for number in range(60):
                producer.send(
                    "codecs",
                    value=(None, b"", b"x" * number * 5)[number % 3],
                    key=(None, b"", b"k%d" % number)[number // 3 % 3],
                    headers=[("a", b"1"), ("a", b""), ("b", None)][: number % 4],
                    partition=partition,
                    timestamp_ms=FIRST_MS + number // 2,
                )
    log.create_topic("archived", 1, SEGMENT)
    log.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    for number in range(50):
        log.append("archived", {"reading": number % 4, "note": "the same words again " * 5}, timestamp_ms=FIRST_MS)
        log.append("stamped", str(number))
    log.recompress("archived", "zstd")


def write_cleaned(log: foldlog.Log) -> None:
    """Gaps by compaction, starts that moved by retention and by request, a topic made twice, and one with nothing."""
    log.create_topic("latest", 2, {"cleanup.policy": "compact", "min.compaction.lag.ms": 0, **SEGMENT})
    for number in range(240):
        value = None if number % 13 == 5 else f"state {number}"
        log.append("latest", value, key=f"device-{number % 17}", timestamp_ms=FIRST_MS + number)
    log.compact("latest")
    for number in range(30):
        log.append("latest", f"later {number}", key=f"device-{number % 17}", timestamp_ms=FIRST_MS + 1000 + number)
    log.create_topic("trimmed", 1, SEGMENT)
    log.create_topic("recent", 1, {"retention.bytes": 2000, **SEGMENT})
    log.create_topic("again", 2)
    log.append("again", "of the first topic of this name", partition=0)
    log.delete_topic("again")
    log.create_topic("again", 1)
    log.create_topic("empty", 2, {"retention.ms": 86_400_000})
    for number in range(90):
        log.append("trimmed", f"entry {number}", timestamp_ms=FIRST_MS + number)
        log.append("recent", f"reading {number} of a sensor", timestamp_ms=FIRST_MS + number)
    log.append("again", "of the second", timestamp_ms=FIRST_MS)
    log.delete_records("trimmed", {0: 47})
    log.enforce_retention("recent")


def write_idempotently(log: foldlog.Log) -> None:
    """Two producers of librdkafka, over the network: ids, sequences, and snapshots where segments were rolled."""
    log.create_topic("sensors", 2, SEGMENT)
    for name in ("first", "second"):
        producer = Producer({"bootstrap.servers": log.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(50):
            producer.produce("sensors", f"{name} {number}", partition=number % 2, timestamp=FIRST_MS + number)
            if number % 5 == 4:
                producer.flush()
        producer.flush()


def write_groups(log: foldlog.Log) -> None:
    """One that has read and committed, one with a note beside its places, one that was moved."""
    with log.consumer([PAYMENTS, "codecs"], group="billing", auto_offset_reset="earliest", auto_commit=False) as reader:
        for _ in range(20):
            reader.poll(timeout_ms=100)
        reader.commit()
    with log.consumer(["latest"], group="audit", auto_offset_reset="earliest", auto_commit=False) as reader:
        reader.poll(timeout_ms=1000)
        reader.commit({("latest", 0): 12, ("latest", 1): 9}, metadata="signed off")
    log.reset_group("billing", {("codecs", 2): 7})


if __name__ == "__main__":
    sys.exit(main())
