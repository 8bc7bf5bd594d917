"""kill -9 of a real writing process, many times: everything it said was acknowledged is there, once and in order.

A child appends from several threads to several partitions and prints a line for each acknowledgement. The parent reads
a random number of these lines, kills it, reads what was still in the pipe, reopens the directory and compares. The
directory lives on from round to round, so each recovery starts from what the one before it left.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

import foldlog
from budgets import with_and_without_journal
from faults.processes import child, last_lines, next_line
from faults.served import JOURNAL_AT_ONCE
from foldlog.files.posix import PosixFiles
from foldlog.log.journal.recovery import journal_files

THREADS = 4
PARTITIONS = 2

WRITER = (
    JOURNAL_AT_ONCE
    + """
import threading
import foldlog

path, round_number, journaled = sys.argv[1:]
log = foldlog.open(path, journal=journaled == "True")

def work(thread):
    for number in range(1_000_000):
        value = f"{round_number}/{thread}/{number}"
        at = log.append("events", value.encode(), key=f"key-{thread}".encode())
        say(f"{at.partition} {at.offset} {value}")

for thread in range(4):
    threading.Thread(target=work, args=(thread,)).start()
"""
)


def read_everything(log: foldlog.Log) -> dict[int, list[tuple[int, str]]]:
    found: dict[int, list[tuple[int, str]]] = {}
    for partition, (start, end) in log.offsets("events").items():
        records = list(log.read("events", partition, start=start, max_records=end - start)) if end > start else []
        found[partition] = [(record.offset, (record.value or b"").decode()) for record in records]
    return found


@pytest.mark.parametrize(("rounds", "journaled"), with_and_without_journal(6, 18))
def test_kill_nine_loses_nothing_acknowledged_and_invents_nothing(rounds: int, journaled: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with foldlog.open(path) as log:
        log.create_topic("events", partitions=PARTITIONS, config={"segment.bytes": 16384})
    rng = random.Random(20)
    acknowledged: dict[tuple[int, int], str] = {}
    for round_number in range(rounds):
        with child(WRITER, path, str(round_number), str(journaled)) as process:
            lines = [next_line(process) for _ in range(rng.choice((1, 2, 5, 40, 200, 600)))]
            process.kill()
            lines += last_lines(process)
        for line in lines:
            partition, offset, value = line.split(" ")
            place = int(partition), int(offset)
            assert place not in acknowledged, f"offset {place} was given out twice"
            acknowledged[place] = value
        with foldlog.open(path, journal=journaled) as log:
            found = read_everything(log)
        judge(found, acknowledged, round_number)
    assert bool(journal_files(PosixFiles(), path)) == journaled


def judge(found: dict[int, list[tuple[int, str]]], acknowledged: dict[tuple[int, int], str], last_round: int) -> None:
    there = {(partition, offset): value for partition, records in found.items() for offset, value in records}
    lost = {place: value for place, value in acknowledged.items() if there.get(place) != value}
    assert not lost, f"acknowledged, and not there after round {last_round}: {lost}"
    values = list(there.values())
    assert len(values) == len(set(values)), "a record is there twice"
    # Each thread waits for each of its records, so at most one of each round was on its way when the process died.
    unacknowledged = set(values) - set(acknowledged.values())
    senders = [value.rsplit("/", 1)[0] for value in unacknowledged]
    assert len(senders) == len(set(senders)), f"invented: {sorted(unacknowledged)}"
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        assert offsets == list(range(len(offsets))), f"partition {partition} has holes or is out of order"
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for _, value in records:
            sender, _, number = value.rpartition("/")
            numbers[sender].append(int(number))
        for sender, sequence in numbers.items():
            assert sequence == list(range(len(sequence))), f"{sender} was reordered"
