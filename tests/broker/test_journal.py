"""A directory with a journal, as a whole: it moves between having one and not, a killed writer's is recovered, the
pieces of a transaction share its syncs, and check and dump know its files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.client.backends.local import LocalBackend
from foldlog.client.log import Log
from foldlog.files.posix import PosixFiles
from foldlog.log.journal.format import BLOCK_BYTES
from foldlog.log.journal.journal import Journal, JournalSettings
from foldlog.log.journal.recovery import journal_files
from foldlog.log.partition import Partition
from foldlog.records.loops import decode, pack

AT_ONCE = JournalSettings(begin_syncs=1, alone_asks=1 << 30, first_bytes=64 * BLOCK_BYTES, file_bytes=64 * BLOCK_BYTES)


def opened(path: Path, journal: JournalSettings | bool = AT_ONCE) -> Broker:
    return Broker.open(str(path), journal=journal, background=False)


def partition_of(broker: Broker, topic: str, number: int = 0) -> Partition:
    partition = broker.partition(topic, number)
    assert isinstance(partition, Partition)
    return partition


def append(partition: Partition, value: bytes) -> None:
    partition.wait_acknowledged(partition.append(pack([(0, None, value, ())])).next_offset)


def values(partition: Partition) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        piece = partition.read(offset)
        found += [record.value for record in decode(piece.data, "t", 0)[0]]
        offset = piece.next_offset
    return found


def journal_of(broker: Broker) -> Journal:
    assert broker._written is not None
    assert broker._written.journal is not None
    return broker._written.journal


def begin(broker: Broker, topic: str = "orders", partitions: int = 2) -> list[Partition]:
    """A topic whose partitions have had their first sync, and a journal that is ready."""
    broker.create_topic(topic, partitions)
    found = [partition_of(broker, topic, number) for number in range(partitions)]
    for partition in found:
        append(partition, b"first")
    broker.run_due()
    assert journal_of(broker).is_ready
    return found


def test_a_partition_that_nobody_shares_a_sync_with_syncs_its_file(tmp_path: Path) -> None:
    with opened(tmp_path / "log", replace(AT_ONCE, alone_asks=8, alone_bytes=1)) as broker:
        alone, other = begin(broker)
        counts = journal_of(broker).counts
        for number in range(30):
            append(alone, b"%d" % number)
        assert 1 <= counts.commits <= 8
        before = counts.commits
        for number in range(10):
            append(other, b"%d" % number)
            append(alone, b"again %d" % number)
        assert counts.commits == before + 20
        stored = [values(alone), values(other)]
    with opened(tmp_path / "log", journal=False) as broker:
        assert [values(partition_of(broker, "orders", number)) for number in range(2)] == stored


def test_of_a_server_a_partition_alone_with_little_to_sync_uses_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path / "log", replace(AT_ONCE, alone_asks=0, alone_bytes=4000)) as broker:
        alone, _ = begin(broker)
        counts = journal_of(broker).counts
        append(alone, b"of this process")
        assert counts.commits == 0
        threads = pytest.importorskip("foldlog.files.sync_threads").SyncThreads(1)
        assert broker.lend_sync_threads(threads) is not None
        for number in range(10):
            append(alone, b"%d" % number)
            assert counts.commits == number + 1
        append(alone, b"." * 4000)
        assert counts.commits == 10


def kill_a_writer(path: Path) -> None:
    """In a process of its own that ends at once: nothing is closed."""
    script = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from broker.test_journal import append, begin, opened
        for number in range(20):
            for partition in (begin(broker := opened(Path({str(path)!r}))) if number == 0 else kept):
                append(partition, b"%d" % number)
            kept = [broker.partition("orders", 0), broker.partition("orders", 1)]
        assert broker.journal_counts().commits >= 20
        os._exit(9)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, env=os.environ)
    assert ended.returncode == 9


EXPECTED = [b"first", *(b"%d" % number for number in range(20))]


@pytest.mark.parametrize("journal", [AT_ONCE, False], ids=["on", "off"])
def test_what_a_killed_writer_left_in_its_journal_is_recovered(tmp_path: Path, journal: JournalSettings | bool) -> None:
    kill_a_writer(tmp_path)
    # As a power cut leaves it: the segments lack everything that only the journal made durable.
    for number in range(2):
        segment = tmp_path / f"orders-{number}" / f"{0:020d}.log"
        os.truncate(segment, len(pack([(0, None, b"first", ())])))
    with opened(tmp_path, journal) as broker:
        for number in range(2):
            assert values(partition_of(broker, "orders", number)) == EXPECTED
        assert broker.warnings() == []
    assert bool(journal_files(PosixFiles(), str(tmp_path))) == bool(journal)
    with opened(tmp_path, journal) as broker:
        assert values(partition_of(broker, "orders", 0)) == EXPECTED


def test_a_directory_that_never_had_a_journal_gets_one_and_loses_it(tmp_path: Path) -> None:
    with opened(tmp_path, False) as broker:
        broker.create_topic("orders")
        append(partition_of(broker, "orders"), b"a")
    with opened(tmp_path) as broker:
        for _ in range(3):
            append(partition_of(broker, "orders"), b"b")
            broker.run_due()
        assert broker.journal_counts().commits == 2
    assert len(journal_files(PosixFiles(), str(tmp_path))) == 2
    with opened(tmp_path, False) as broker:
        assert values(partition_of(broker, "orders")) == [b"a", b"b", b"b", b"b"]
    assert journal_files(PosixFiles(), str(tmp_path)) == []


def test_a_directory_in_use_for_a_moment_gets_no_journal(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path), journal=True) as broker:
        broker.create_topic("orders")
        for _ in range(20):
            append(partition_of(broker, "orders"), b"v")
    assert not (tmp_path / "journal").exists()


def test_a_reading_process_sees_what_the_journal_made_durable(tmp_path: Path) -> None:
    with opened(tmp_path) as broker, Broker.open(str(tmp_path), mode="r") as reader:
        append(begin(broker)[0], b"second")
        state = partition_of(broker, "orders")._core.state
        assert (state.synced_offset, state.durable_offset) == (1, 2)
        assert reader.partition("orders", 0).high_watermark == 2
        assert len(decode(reader.partition("orders", 0).read(0).data, "orders", 0)[0]) == 2


def test_a_deleted_topic_leaves_nothing_that_its_namesake_gets(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    append(begin(broker)[0], b"of the old one")
    broker.delete_topic("orders")
    broker.create_topic("orders", 2)
    append(partition_of(broker, "orders"), b"of the new one")
    # Not closed: the next open reads the journal.
    assert broker._written is not None
    broker._written._lock.release()
    with opened(tmp_path) as again:
        assert values(partition_of(again, "orders")) == [b"of the new one"]


def test_partitions_written_together_share_a_sync(tmp_path: Path) -> None:
    with opened(tmp_path) as broker:
        partitions = begin(broker, "orders", 10)
        before = broker.journal_counts().commits
        ends = [(one, one.append(pack([(0, None, b"v", ())])).next_offset) for one in partitions]
        journal = journal_of(broker)
        with journal.lock:  # they all come while a commit is under way
            for one, end in ends:
                one.on_acknowledged(end, lambda error: None)
        for one, end in ends:
            one.wait_acknowledged(end)
        assert broker.journal_counts().commits - before <= 2


def test_the_commit_of_a_transaction_over_ten_partitions_is_two_syncs(tmp_path: Path) -> None:
    """One for the decision, one for the markers of all partitions. The offsets that it commits are among them."""
    with opened(tmp_path) as broker:
        partitions = begin(broker, "orders", 10)
        log = Log(LocalBackend(broker))
        for _ in range(3):
            with log.transaction("etl") as transaction:
                sent = [transaction.send("orders", b"v", partition=number) for number in range(10)]
                assert all(future.result() for future in sent)
                transaction.commit_offsets("readers", {("orders", 0): 1})
                before = broker.journal_counts().commits
            assert broker.journal_counts().commits - before <= 2
        assert all(one.high_watermark == one.durable_offset == 7 for one in partitions)
        assert all(one._core.state.synced_offset < 7 for one in partitions)  # no file of theirs was synced


def test_older_versions_refuse_the_directory_while_the_journal_is_needed(tmp_path: Path) -> None:
    """They refuse a checkpoint whose version they do not know."""
    kill_a_writer(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    assert checkpoint.read_bytes().startswith(b"foldlog checkpoint 2\n")
    with opened(tmp_path) as broker:
        assert values(partition_of(broker, "orders")) == EXPECTED
        assert checkpoint.read_bytes().startswith(b"foldlog checkpoint 1\n")  # it was replayed
        append(partition_of(broker, "orders"), b"which has the journal made ready")
        broker.run_due()
        append(partition_of(broker, "orders"), b"by the journal")
        assert checkpoint.read_bytes().startswith(b"foldlog checkpoint 2\n")
    assert checkpoint.read_bytes().startswith(b"foldlog checkpoint 1\n")


def test_check_and_dump_know_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill_a_writer(tmp_path)
    assert main(["check", str(tmp_path)]) == 0
    assert "that a writer replays where need be" in capsys.readouterr().out
    assert main(["dump", "--all", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "commit 1: 1 partition" in shown
    assert "for byte 73 of segment 0, epoch 0" in shown
    path = min(journal_files(PosixFiles(), str(tmp_path)))[0]
    with open(path, "r+b") as file:
        file.seek(3 * BLOCK_BYTES + 20)
        file.write(b"rot")
    assert main(["check", str(tmp_path)]) == 1
    assert "DAMAGED: byte 12288: commit 4 follows it" in capsys.readouterr().out
    assert main(["check", "--repair", str(tmp_path)]) == 0
    capsys.readouterr()
    with opened(tmp_path) as broker:
        assert values(partition_of(broker, "orders", 1)) == EXPECTED
