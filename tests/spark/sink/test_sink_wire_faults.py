"""The sink by wire under kill -9 of its driver and of the broker, at random moments, and under zombies: what readers of
committed records find is the input, once and in order.

With drivers without Spark, which say what they are doing, so that many are killed at every step; and with a real Spark.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from faults.processes import child, complaint, last_lines, next_line
from faults.served import ServedDirectory
from spark.sink.wire_batches import PARTITIONS, TOPIC, differences, expected, options, read, write
from spark_session import child_environment, missing_java

TESTS = Path(__file__).resolve().parents[2]
CREATE = ("--create", f"{TOPIC}:{PARTITIONS}")

DRIVER = f"""
import signal
sys.path.insert(0, {str(TESTS)!r})
from foldlog.client.wire.transactions.produce import WireTransaction
from spark.sink.wire_batches import options, write

bootstrap, first, pause = sys.argv[1:]
commit = WireTransaction.commit

def commit_and_say(transaction):
    transaction._sender.flush()
    say("sent")
    if pause:
        os.kill(os.getpid(), signal.SIGSTOP)
    commit(transaction)
    say("decided")

WireTransaction.commit = commit_and_say
for batch in range(int(first), 10_000):
    say(f"begin {{batch}}")
    write(options(bootstrap), batch)
    say(f"end {{batch}}")
"""
FENCED = "another process has taken over transactional id"


class Drivers:
    """One driver after the other, as Spark would start them: each with the batch that the one before was at, or with
    the one before that, if Spark had not noted yet that it was done."""

    def __init__(self, served: ServedDirectory, rng: random.Random) -> None:
        self.at = 0
        self.served = served
        self.rng = rng

    @contextmanager
    def one(self, pause: str = "") -> Iterator[subprocess.Popen[str]]:
        first = max(0, self.at - self.rng.randrange(2))
        with child(DRIVER, self.served.bootstrap, str(first), pause) as driver:
            yield driver

    def hear(self, driver: subprocess.Popen[str]) -> str:
        return self.note(next_line(driver))

    def note(self, line: str) -> str:
        word, _, number = line.partition(" ")
        if word == "begin":
            self.at = max(self.at, int(number))
        return word

    def hear_until(self, driver: subprocess.Popen[str], word: str) -> None:
        while self.hear(driver) != word:
            pass

    def run_and_kill(self, words: int, broker_kills: int) -> None:
        """Killed a little after it has said something; and so is the broker, which then comes back, while it lives."""
        with self.one() as driver:
            for _ in range(broker_kills):
                self._listen(driver, words)
                self.served.end(signal.SIGKILL)
                self.served.start()
            self._listen(driver, words)
            driver.kill()
            for line in last_lines(driver):
                self.note(line)

    def _listen(self, driver: subprocess.Popen[str], words: int) -> None:
        for _ in range(self.rng.randrange(1, words + 1)):
            self.hear(driver)
        busy = self.rng.randrange(0, 60_000)
        while busy:  # for less than a commit takes
            busy -= 1

    def revive_a_zombie(self) -> None:
        """A driver stops when all is sent and nothing committed. Another one takes its place; then it goes on."""
        with self.one(pause="sent") as zombie:
            self.hear_until(zombie, "sent")
            with self.one() as heir:
                self.hear_until(heir, "decided")
                zombie.send_signal(signal.SIGCONT)
                last_lines(zombie)
                assert zombie.wait() != 0
                assert FENCED in complaint(zombie)
                self.hear_until(heir, "end")
                heir.kill()
                for line in last_lines(heir):
                    self.note(line)


def judge(served: ServedDirectory, last: int) -> None:
    write(options(served.bootstrap), last)
    found, wanted = read(served.bootstrap, is_of_one_query=True), expected(*range(last + 1))
    assert found == wanted, differences(found, wanted)
    uncommitted = read(served.bootstrap, "read_uncommitted")
    assert len(uncommitted) > len(wanted), "nothing was aborted, so nothing was tested"


@pytest.mark.faults
def test_a_kill_of_each_kind_leaves_every_batch_once(tmp_path: Path) -> None:
    with ServedDirectory(tmp_path, *CREATE) as served:
        drivers = Drivers(served, random.Random(1))
        drivers.revive_a_zombie()
        drivers.run_and_kill(words=6, broker_kills=1)
        judge(served, drivers.at)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_at_random_moments_leave_every_batch_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with ServedDirectory(tmp_path, *CREATE, "-X", "log.segment.bytes=65536") as served:
        drivers = Drivers(served, rng)
        for _ in range(12):
            if rng.randrange(4) == 0:
                drivers.revive_a_zombie()
            else:
                drivers.run_and_kill(words=9, broker_kills=rng.randrange(3))
        judge(served, drivers.at)


# --- with Spark -----------------------------------------------------------------------------------------------------

STREAM = f"""
sys.path.insert(0, {str(TESTS)!r})
import foldlog.spark
from pyspark.sql import SparkSession

bootstrap, lines, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.readStream.option("maxFilesPerTrigger", 1).text(lines).repartition(2)
query = (
    rows.writeStream.format("foldlog").option("kafka.bootstrap.servers", bootstrap).option("topic", {TOPIC!r})
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
say("started")
query.awaitTermination()
say("done")
"""
FILES = 24
LINES = 25
SPARK_KILLS = 3


@contextmanager
def spark_stream(served: ServedDirectory, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver with its JVM and their Python workers, in a group of processes that is killed as one."""
    code = f"import os, sys\ndef say(text): os.write(1, text.encode() + b'\\n')\n{STREAM}"
    arguments = (served.bootstrap, str(directory / "lines"), str(directory / "checkpoint"))
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **child_environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_spark_stream_whose_driver_and_broker_are_killed_writes_every_row_once(tmp_path: Path) -> None:
    reason = missing_java()
    if reason is not None:
        pytest.skip(reason)
    rng = random.Random(9)
    (tmp_path / "lines").mkdir()
    for number in range(FILES):
        text = "".join(f"{number}/0/{line:03d}\n" for line in range(LINES))
        (tmp_path / "lines" / f"{number:03d}.txt").write_text(text)
    with ServedDirectory(tmp_path, *CREATE) as served:
        for kill in range(SPARK_KILLS):
            with spark_stream(served, tmp_path) as driver:
                assert next_line(driver) == "started"
                before = len(read(served.bootstrap))
                while len(read(served.bootstrap)) < before + LINES * rng.randrange(2, 5):
                    assert driver.poll() is None, complaint(driver)
                if kill == 1:
                    served.end(signal.SIGKILL)
                    served.start()
                    while len(read(served.bootstrap)) < before + 6 * LINES:
                        assert driver.poll() is None, complaint(driver)
        assert len(read(served.bootstrap)) < FILES * LINES, "all was written before the last kill"
        with spark_stream(served, tmp_path) as driver:
            assert [next_line(driver), next_line(driver)] == ["started", "done"]
        found = read(served.bootstrap)
        wanted = sorted(f"{number}/0/{line:03d}" for number in range(FILES) for line in range(LINES))
        assert found == wanted, differences(found, wanted)
