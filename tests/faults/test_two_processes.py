"""One writer and many readers, as real processes.

The second writer is refused with the pid of the first; a forked child is never the writer; the lock goes with the
process, however it ends. Readers in other processes follow a live writer through rolls, retention and compaction:
what they get is in order and complete, but for gaps that retention or compaction explains.
"""

from __future__ import annotations

import os
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, finish, next_line, tell
from foldlog.errors import DirectoryLocked, WrongProcess

HOLD = """
import foldlog
log = foldlog.open(sys.argv[1])
say(str(os.getpid()))
sys.stdin.readline()
log.close()
say("closed")
sys.stdin.readline()
"""


def test_the_second_writer_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with child(HOLD, path) as holder:
        pid = int(next_line(holder))
        assert pid == holder.pid
        with pytest.raises(DirectoryLocked, match=str(pid)) as refused:
            foldlog.open(path)
        assert refused.value.pid == pid
        with foldlog.open(path, mode="r") as reader:
            assert reader.topics() == []
        tell(holder, "close")
        assert next_line(holder) == "closed"
        foldlog.open(path).close()


def test_the_lock_of_a_killed_writer_is_free(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with child(HOLD, path) as holder:
        next_line(holder)
        holder.kill()
        holder.wait()
        foldlog.open(path).close()


def in_fork(act: Callable[[], object]) -> str:
    """Run `act` in a forked child and bring back what it returned, as text."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(act())
        except Exception as error:  # noqa: BLE001 - its type is the answer
            answer = type(error).__name__
        os.write(theirs, answer.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def test_a_forked_child_is_never_the_writer_and_does_not_take_the_lock_along(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with foldlog.open(path) as log:
        log.create_topic("events")
        log.append("events", b"before")
        for refused in (
            lambda: log.append("events", b"from the child"),
            lambda: log.create_topic("other"),
            lambda: log.delete_topic("events"),
            lambda: log.compact("events"),
        ):
            assert in_fork(refused) in (WrongProcess.__name__, "ReadOnly")
        assert in_fork(lambda: foldlog.open(path)) == DirectoryLocked.__name__, "the parent is still the writer"
        log.append("events", b"after")
        assert [record.value for record in log.read("events", 0, start=0, max_records=10)] == [b"before", b"after"]
    with foldlog.open(path) as log:
        assert log.topics() == ["events"]
        assert log.offsets("events") == {0: (0, 2)}


WRITE = """
import foldlog
path, settings, rounds = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3])
log = foldlog.open(path)
log.create_topic("events", config=settings)
say("ready")
sys.stdin.readline()
number = 0
for step in range(rounds):
    with log.producer(linger_ms=0, batch_records=5) as producer:
        for _ in range(20):
            producer.send("events", value=b"%d" % number, key=b"key-%d" % (number % 7))
            number += 1
    if step % 3 == 2:
        log.enforce_retention()
        if "compact" in settings.get("cleanup.policy", ""):
            log.compact("events")
log.append("events", b"the end", key=b"end")
say(f"wrote {number} start {log.offsets('events')[0][0]}")
sys.stdin.readline()
log.close()
"""

FOLLOW = """
import foldlog
from foldlog.errors import OffsetOutOfRange
path = sys.argv[1]
log = foldlog.open(path, mode="r")
say("ready")
offset, explained = 0, []
while True:
    try:
        records = list(log.read("events", 0, start=offset, max_records=7))
    except OffsetOutOfRange as error:
        explained.append((offset, error.start, error.why))
        assert error.start > offset, error
        offset = error.start
        continue
    for record in records:
        say(f"{record.offset} {record.value.decode()}")
        offset = record.offset + 1
        if record.value == b"the end":
            say(f"explained {explained!r}")
            log.close()
            sys.exit()
"""


def follow(path: str, settings: dict[str, object], rounds: int) -> tuple[int, list[list[tuple[int, str]]], list[str]]:
    """What was written, what each of three readers saw, and how each explained its gaps. The third comes late."""
    with child(WRITE, path, repr(settings), str(rounds)) as writer:
        assert next_line(writer) == "ready"
        with child(FOLLOW, path) as first, child(FOLLOW, path) as second:
            for reader in (first, second):
                assert next_line(reader) == "ready"
            tell(writer, "go")
            written = int(next_line(writer).split()[1])
            with child(FOLLOW, path) as late:
                assert next_line(late) == "ready"
                outputs = [finish(reader) for reader in (first, second, late)]
            seen, explanations = [], []
            for output in outputs:
                *lines, explanation = output
                pairs = [line.split(" ", 1) for line in lines]
                seen.append([(int(offset), value) for offset, value in pairs])
                explanations.append(explanation.removeprefix("explained "))
        tell(writer, "end")
        finish(writer)
    return written, seen, explanations


def test_readers_follow_a_live_writer_through_rolls_without_a_gap(tmp_path: Path) -> None:
    written, seen, explanations = follow(str(tmp_path / "data"), {"segment.bytes": 1024}, 30)
    expected = [(number, str(number)) for number in range(written)] + [(written, "the end")]
    assert seen == [expected] * 3
    assert explanations == ["[]"] * 3


def test_readers_follow_a_live_writer_through_retention_and_every_gap_is_explained(tmp_path: Path) -> None:
    settings: dict[str, object] = {"segment.bytes": 1024, "retention.bytes": 4096}
    written, seen, explanations = follow(str(tmp_path / "data"), settings, 40)
    for records, explanation in zip(seen, explanations, strict=True):
        skipped = {offset for start, end, _ in literal_eval(explanation) for offset in range(start, end)}
        assert all("retention" in why for _, _, why in literal_eval(explanation))
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(range(written + 1)) - skipped)
        assert all(value == str(offset) for offset, value in records[:-1])
    assert literal_eval(explanations[2]), "who comes late has missed something, and is told what became of it"


def test_readers_follow_a_live_writer_through_compaction_and_miss_only_what_is_superseded(tmp_path: Path) -> None:
    settings: dict[str, object] = {"segment.bytes": 1024, "cleanup.policy": "compact"}
    written, seen, explanations = follow(str(tmp_path / "data"), settings, 40)
    newest = {number % 7: number for number in range(written)}
    for records in seen:
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(offsets))
        assert offsets[-1] == written
        assert all(value == str(offset) for offset, value in records[:-1])
        assert set(newest.values()) <= set(offsets), "the newest record of each key was seen"
    assert explanations == ["[]"] * 3
    assert len(seen[2]) < written, "who comes late sees the compacted log"
