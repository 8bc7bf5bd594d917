"""Every byte of every file of a directory, changed: what is read then is what was written, or an error of ours.

Two kinds of directories: the plain one of tests/faults/test_flipped_bytes, of which every lookup is compared; and those
of tests/faults/damaged_directories, with a journal, transactions, producer ids and a compaction under way, of which no
record may be served that was not written there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from faults import damaged_directories as worlds
from faults.test_flipped_bytes import contents, files_of, kind_of, replaced, write_log
from foldlog.errors import FoldlogError
from foldlog.log import recovery, segment
from foldlog.records.loops import decode, walk
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.sim_clock import SimClock
from scorecard.outcome import FaultClass, Outcome, Plant, until

MODES = ("w", "r")
STEP = 97
"""Of a file's bytes, those of one turn: slices that end early have been everywhere."""


def turns(length: int, turn: int) -> range:
    return range(turn % STEP, length, STEP)


def changed(data: bytes, position: int, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= rng.choice((0xFF, 1 << rng.randrange(8), rng.randrange(1, 256)))
    return bytes(damaged)


def flip_plain(turn: int, rng: random.Random, outcome: Outcome) -> None:
    image = write_log()
    for mode in MODES:
        intact = contents(image, mode)
        for path, data in files_of(image.tree):
            for position in turns(len(data), turn):
                damaged = changed(data, position, rng)
                outcome.done[f"flips/{kind_of(path)}"] += 1
                try:
                    found = contents(DiskImage(replaced(image.tree, path, damaged)), mode)
                except FoldlogError:
                    outcome.done["answers/refused with an error of ours"] += 1
                    continue
                except Exception as error:  # noqa: BLE001 - any other exception is a finding
                    outcome.found("other error", f"{path} byte {position}: {error!r}", f"mode {mode}")
                    continue
                outcome.done["answers/read as it was written"] += 1
                if found != intact:
                    outcome.found("undetected damage", f"{path} byte {position}", f"mode {mode}")


def served(world: worlds.World, tree: dict[str, Tree]) -> Iterator[tuple[str, int, bytes | None]]:
    """(topic, offset, value) of every record that a damaged directory serves."""
    clock = SimClock(worlds.START_MS + worlds.LATER_MS + 1000)
    broker = worlds.opened(DiskImage({worlds.DATA: tree}).files(), clock, world.journal)
    for topic in broker.topics():
        log = broker.partition(topic, 0)
        offset = log.log_start_offset
        while offset < log.high_watermark:
            piece = log.read(offset, 500)
            for record in decode(piece.data, topic, 0, start_offset=offset)[0]:
                yield topic, record.offset, record.value
            offset = piece.next_offset
    broker.close()


def flip_worlds(turn: int, rng: random.Random, outcome: Outcome) -> None:
    for name, make in worlds.WORLDS.items():
        world = make()
        for path, data in worlds.files_in(world.tree):
            if worlds.kind_of(path) in (".lock", "folds.key"):
                continue
            for position in turns(len(data), turn):
                tree = worlds.with_file(world.tree, path, changed(data, position, rng))
                outcome.done[f"flips/{worlds.kind_of(path)}"] += 1
                try:
                    found = list(served(world, tree))
                except FoldlogError:
                    outcome.done["answers/refused with an error of ours"] += 1
                    continue
                except Exception as error:  # noqa: BLE001 - any other exception is a finding
                    outcome.found("other error", f"{name}: {path} byte {position}: {error!r}", name)
                    continue
                outcome.done["answers/read as it was written"] += 1
                judge(world, found, f"{name}: {path} byte {position}", outcome)


def judge(world: worlds.World, found: list[tuple[str, int, bytes | None]], where: str, outcome: Outcome) -> None:
    for topic, offset, value in found:
        written = world.written.get(value or b"")
        if written is None or (written.topic, written.offset) != (topic, offset):
            outcome.found("undetected damage", f"{where}: offset {offset} of {topic} is served as {value!r}", where)
            return
    # What is left out without a word is as bad: all that has to be there, or an error, or what nothing can know of:
    # bytes behind the end that nobody acknowledged are not told from a tail that a kill left.
    for topic in worlds.TOPICS:
        there = {offset for name, offset, _ in found if name == topic}
        missing = world.must_be_served(topic).keys() - there
        if missing and min(missing) < max(there, default=-1):
            outcome.found("undetected damage", f"{where}: offsets {sorted(missing)[:5]} of {topic} are left out", where)
            return


def run(seed: int, seconds: float) -> Outcome:
    outcome, rng = Outcome(), random.Random(seed)
    for number in until(seconds):
        turn = seed * 31 + number
        (flip_plain if number % 2 == 0 else flip_worlds)(turn, rng, outcome)
    return outcome


def not_checking_crcs_is_found() -> bool:
    outcome = Outcome()
    with pytest.MonkeyPatch.context() as patched:
        for module in (recovery, segment):
            patched.setattr(module, "walk", partial(walk, check_crc=False))
        for turn in range(8):
            flip_plain(turn, random.Random(turn), outcome)
            if any(finding.kind == "undetected damage" for finding in outcome.findings):
                return True
    return False


CLASS = FaultClass(
    name="flips",
    title="Flipped bytes",
    what="""Each byte of each file of small data directories is changed: segments, indexes, snapshots of producers, the
catalog, the checkpoint, the journal, producer ids, files of a compaction that is under way. The directory is then
opened as its writer and as a reader beside it. Either an error of ours names the damage, or everything is read as it
was written.""",
    finds=("undetected damage", "other error"),
    share=0.08,
    run=run,
    plants=(Plant("does not check CRCs", not_checking_crcs_is_found),),
)
