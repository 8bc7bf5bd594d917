"""kill -9 of a process that copies to a store, at whatever it is doing, many times: no acknowledged record is lost, and
the store is whole, without an object that nothing names.

The directory and the store live on from round to round.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

import foldlog
from faults.processes import child, last_lines, next_line
from foldlog.cli.main import main
from object_store import Bucket, bucket, s3_server

__all__ = ["bucket", "s3_server"]

pytestmark = pytest.mark.faults

SETTINGS = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "2000",
    "retention.bytes": "6000",
    "foldlog.segment.records": "4",
}
STEPS = ("put", "put-done", "create", "create-done", "delete", "remove_local", "move_start", "move_start-done")

TIERING = """
import foldlog
from foldlog.files.objects import BucketObjects, DirectoryObjects
from foldlog.log.cleanup import Cleanup

def told(cls, name):
    act = getattr(cls, name)
    def tell(*arguments):
        say(name)
        done = act(*arguments)
        say(name + "-done")
        return done
    setattr(cls, name, tell)

for cls in (BucketObjects, DirectoryObjects):
    for name in ("put", "create", "delete"):
        told(cls, name)
told(Cleanup, "remove_local")
told(Cleanup, "move_start")

path, store = sys.argv[1:]
log = foldlog.open(path, tier=store, background=False)
for number in range(1_000_000):
    at = log.append("events", b"x" * 50 + str(number).encode())
    say(f"{at.offset} {number}")
    if number % 12 == 11:
        log.enforce_retention()
"""


@pytest.mark.parametrize(("kind", "rounds"), [("file", 10), ("s3", 4)])
def test_kill_nine_while_segments_are_copied_freed_and_expired(
    kind: str, rounds: int, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.options.items():
        monkeypatch.setenv(name, value)
    store = bucket.url("tier") if kind == "s3" else f"file://{tmp_path}/store"
    path = str(tmp_path / "data")
    with foldlog.open(path, tier=store) as log:
        log.create_topic("events", partitions=1, config=SETTINGS)
    rng = random.Random(7)
    acknowledged: dict[int, str] = {}
    under_way: set[str] = set()
    for _ in range(rounds):
        with child(TIERING, path, store) as process:
            lines = [next_line(process) for _ in range(rng.randrange(30, 160))]
            while lines[-1] != (stop := rng.choice(STEPS)) and len(lines) < 400:
                lines.append(next_line(process))
            process.kill()
            lines += last_lines(process)
        under_way.add(stop)
        for offset, number in (line.split() for line in lines if " " in line):
            assert int(offset) not in acknowledged, "an offset was given out twice"
            acknowledged[int(offset)] = number
        judge(path, acknowledged)
        with foldlog.open(path, background=False) as log:
            log.enforce_retention()  # removes what nothing names
        judge(path, acknowledged)
        assert main(["check", path]) == 0
        judge_store(store, path, [key for key in keys_of(kind, bucket, tmp_path) if key.endswith(".segment")])
    assert len(under_way) > 1


def keys_of(kind: str, bucket: Bucket, tmp_path: Path) -> list[str]:
    return bucket.objects() if kind == "s3" else [str(one) for one in (tmp_path / "store").rglob("*.segment")]


def judge(path: str, acknowledged: dict[int, str]) -> None:
    with foldlog.open(path, mode="r") as log:
        start, end = log.offsets("events")[0]
        found = {record.offset: (record.value or b"")[50:].decode() for record in log.read("events", 0)}
    expected = {offset: number for offset, number in acknowledged.items() if offset >= start}
    assert {offset: found.get(offset) for offset in expected} == expected
    assert sorted(found) == list(range(start, end))


def judge_store(store: str, path: str, objects: list[str]) -> None:
    """It holds a part of the log, from its start on, and nothing besides."""
    with foldlog.open(store, mode="r") as stored, foldlog.open(path, mode="r") as log:
        start, end = stored.offsets("events")[0]
        assert start == log.offsets("events")[0][0]
        assert list(stored.read("events", 0)) == list(log.read("events", 0, max_records=end - start))
    names = sorted(one.rpartition("/")[2] for one in objects)
    spans = [tuple(int(part) for part in name.split("-")[:2]) for name in names]
    assert spans[0][0] <= start
    assert spans[-1][1] == end
    assert all(one[1] == other[0] for one, other in pairwise(spans)), "an object that nothing names"
