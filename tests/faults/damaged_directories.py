"""Small data directories of every kind, what was written into them, and every way to damage a file of theirs.

Each value is written once and names its record, so that a record is known wherever its bytes turn up: in a segment, in
the journal, in a file that was set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from broker.small_broker import writable
from faults.plain_batches import batches_in
from foldlog.broker.broker import Broker
from foldlog.files.memory import MemoryFiles
from foldlog.log.checkpoint import Checkpoint
from foldlog.log.journal.format import BLOCK_BYTES
from foldlog.log.journal.journal import JournalSettings
from foldlog.records.loops import pack
from foldlog.testing.disk_image import DiskImage, Tree
from foldlog.testing.sim_clock import SimClock

DATA = "data"
START_MS = 1_700_000_000_000
LATER_MS = 3_600_000
RETENTION_MS = 600_000
TOPICS = ("plain", "keyed")
STORE = "store"
"""In the directory, so that one tree holds both, and every file of either is damaged."""
STORE_URL = f"file:///{DATA}/{STORE}"
IN_STORE = {"remote.storage.enable": "true", "local.retention.ms": "0"}
SMALL_JOURNAL = JournalSettings(
    begin_syncs=1, alone_asks=1 << 30, first_bytes=16 * BLOCK_BYTES, file_bytes=16 * BLOCK_BYTES, files_max=3
)
FieldsOfABatch = (0, 3, 7, 8, 10, 15, 16, 18, 22, 26, 30, 42, 49, 52, 56, 60, 64)
"""A byte of each field of a batch's head, and of its first record."""


@dataclass(frozen=True, slots=True)
class Written:
    """A record as it was acknowledged. `is_aborted`: of a transaction that was."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes
    is_aborted: bool = False


@dataclass(slots=True)
class World:
    """A directory as it was left, and as it was earlier; everything that was ever written; what must still be there."""

    name: str
    tree: dict[str, Tree]
    earlier: dict[str, Tree]
    written: dict[bytes, Written]
    ends: dict[str, int]
    expiring_below: int = 0
    """Of the topic without keys: what retention removes when LATER_MS have passed."""
    journal: JournalSettings | None = None
    producer_ids: set[int] = field(default_factory=set)

    def newest(self, values: set[bytes]) -> set[bytes]:
        """Of some values those that compaction has to keep: the newest of each key."""
        newest: dict[bytes | None, Written] = {}
        for one in sorted((self.written[value] for value in values), key=lambda one: one.offset):
            if one.topic == "keyed" and not one.is_aborted:
                newest[one.key] = one
        return {one.value for one in newest.values()}

    def of(self, topic: str) -> set[bytes]:
        return {value for value, one in self.written.items() if one.topic == topic}

    def must_be_served(self, topic: str) -> dict[int, bytes]:
        values = self.newest(self.of(topic)) if topic == "keyed" else self.of(topic)
        return {self.written[value].offset: value for value in values}


class Writer:
    """Writes into an open directory, and remembers."""

    def __init__(self, broker: Broker, clock: SimClock, world: World) -> None:
        self.broker, self.clock, self.world = broker, clock, world
        self.sequence = 0

    def batch(self, topic: str, *keys: bytes | None, is_aborted: bool = False, producer: int = -1) -> None:
        partition = writable(self.broker, topic)
        first = partition.log_end_offset
        written = [
            Written(topic, first + at, key, b"%s %d " % (topic.encode(), first + at) + b"." * 40, is_aborted)
            for at, key in enumerate(keys)
        ]
        rows = [(self.clock.now_ms(), one.key, one.value, ()) for one in written]
        if producer < 0:
            data = pack(rows, 1 if first % 4 == 0 else 0)
        else:
            data = pack(
                rows, producer_id=producer, producer_epoch=0, base_sequence=self.sequence, transactional=is_aborted
            )
            self.sequence += 0 if is_aborted else len(rows)
        appended = partition.append(data, foreign=True, begins_transaction=is_aborted)
        partition.wait_acknowledged(appended.next_offset)
        self.world.written.update((one.value, one) for one in written)
        self.world.ends[topic] = appended.next_offset

    def abort(self, producer: int) -> None:
        partition = writable(self.broker, "plain")
        marker = partition.append_marker(producer, 1, 0, commit=False, transaction_version=2)
        partition.wait_acknowledged(marker.next_offset)
        self.world.ends["plain"] = marker.next_offset

    def first_part(self) -> None:
        for topic, policy in (("plain", "delete"), ("keyed", "compact")):
            config = {"cleanup.policy": policy, "index.interval.bytes": 100, "retention.ms": RETENTION_MS}
            self.broker.create_topic(topic, 1, config)
        self.world.producer_ids = {self.broker.allocate_producer_id() for _ in range(2)}
        one, other = sorted(self.world.producer_ids)
        for number in range(6):
            self.batch("plain", None, None, producer=one)
            self.batch("keyed", b"k%d" % (number % 4), b"k%d" % (number * 3 % 5))
            self.clock.advance(10)
            if number in (2, 5):
                writable(self.broker, "plain").roll()
            if number == 3:
                writable(self.broker, "keyed").roll()
        self.batch("plain", None, is_aborted=True, producer=other)
        self.abort(other)

    def second_part(self) -> None:
        self.world.expiring_below = 12  # the first two segments
        self.clock.advance(LATER_MS)
        (one, _) = sorted(self.world.producer_ids)
        writable(self.broker, "keyed").compact(force=True)
        for number in range(5):
            self.batch("plain", None, None, producer=one)
            self.batch("keyed", b"k%d" % (number % 3), b"new %d" % number)
            if number == 1:
                writable(self.broker, "plain").roll()
                writable(self.broker, "keyed").roll()


def opened(
    files: MemoryFiles,
    clock: SimClock,
    journal: JournalSettings | None = None,
    mode: str = "w",
    tier: str | None = None,
) -> Broker:
    return Broker.open(DATA, files=files, clock=clock, background=False, journal=journal or False, mode=mode, tier=tier)


def read_tree(files: MemoryFiles, directory: str = DATA) -> dict[str, Tree]:
    tree: dict[str, Tree] = {}
    for entry in files.entries(directory):
        path = f"{directory}/{entry.name}"
        tree[entry.name] = (
            read_tree(files, path) if entry.is_directory else bytes(files.open(path).read(0, entry.size_bytes))
        )
    return tree


def _written(name: str, *, is_closed: bool, journal: JournalSettings | None = None) -> tuple[World, Writer]:
    world = World(name, {}, {}, {}, {}, journal=journal)
    files, clock = MemoryFiles(), SimClock(START_MS)
    writer = Writer(opened(files, clock, journal), clock, world)
    writer.first_part()
    if journal is None:
        writer.broker.close()
        world.earlier = read_tree(files)
        writer.broker = opened(files, clock)
    else:
        writer.broker.run_due()
        writer.batch("plain", None)
        writer.batch("keyed", b"k0")
        world.earlier = read_tree(files)
    writer.second_part()
    if is_closed:
        writer.broker.close()
    world.tree = read_tree(files)
    return world, writer


@cache
def closed() -> World:
    return _written("closed", is_closed=True)[0]


@cache
def killed() -> World:
    return _written("killed", is_closed=False)[0]


@cache
def journaled() -> World:
    """After a power cut that took from the segments everything that only the journal had synced."""
    world, _ = _written("journaled", is_closed=False, journal=SMALL_JOURNAL)
    checkpoint = Checkpoint.open(DiskImage({DATA: world.tree}).files(), f"{DATA}/checkpoint", write=False)
    for number, topic in enumerate(TOPICS):
        state = checkpoint.slot(number).load()
        assert state is not None
        path = f"{topic}-0/{state.active_base_offset:020d}.log"
        whole = file_in(world.tree, path)
        assert len(whole) > state.active_position, "nothing is in the journal alone"
        world.tree = with_file(world.tree, path, whole[: state.active_position])
    return world


class _Stopped(Exception):
    pass


class _StoppingFiles(MemoryFiles):
    """Stops at a rename into a name that ends so."""

    stops_at = ""

    def rename(self, source: str, target: str) -> None:
        if self.stops_at and target.endswith(self.stops_at) and ".log" in source:
            raise _Stopped
        super().rename(source, target)


@cache
def swapping() -> World:
    """A compaction that was decided, and killed before the last rename: the .swap file is the only copy."""
    world, _ = _written("swapping", is_closed=True)
    files = _StoppingFiles(DiskImage({DATA: world.tree}).files().root)
    broker = opened(files, SimClock(START_MS + LATER_MS + 1000))
    files.stops_at = ".log"
    try:
        writable(broker, "keyed").compact(force=True)
    except _Stopped:
        world.tree = read_tree(files)
        assert any(path.endswith(".swap") for path, _ in files_in(world.tree))
        return world
    raise AssertionError("nothing was rewritten")


@cache
def tiered() -> World:
    """Half of the topic without keys is in the store alone, a segment is in both, and one waits."""
    world = World("tiered", {}, {}, {}, {})
    files, clock = MemoryFiles(), SimClock(START_MS)
    writer = Writer(opened(files, clock, tier=STORE_URL), clock, world)
    writer.first_part()
    writer.broker.alter_topic("plain", IN_STORE)
    writer.broker.enforce_retention()
    world.earlier = read_tree(files)
    writer.broker.alter_topic("plain", {"local.retention.ms": "-2"})
    writable(writer.broker, "plain").roll()
    writer.broker.enforce_retention()
    writer.second_part()
    world.expiring_below = 14
    writer.broker.close()
    world.tree = read_tree(files)
    return world


WORLDS: dict[str, Callable[[], World]] = {
    "closed": closed,
    "killed": killed,
    "journaled": journaled,
    "swapping": swapping,
    "tiered": tiered,
}


# Files in trees


def files_in(tree: dict[str, Tree], prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for name, inner in sorted(tree.items()):
        if isinstance(inner, bytes):
            yield prefix + name, inner
        else:
            yield from files_in(inner, f"{prefix}{name}/")


def file_in(tree: dict[str, Tree], path: str) -> bytes:
    return dict(files_in(tree))[path]


def with_file(tree: dict[str, Tree], path: str, data: bytes | None) -> dict[str, Tree]:
    """None: without it."""
    name, _, rest = path.partition("/")
    if rest:
        inner = tree.get(name, {})
        assert isinstance(inner, dict)
        return {**tree, name: with_file(inner, rest, data)}
    return {**tree, name: data} if data is not None else {one: kept for one, kept in tree.items() if one != name}


def kind_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.index(".") :] if name[:1].isdigit() else name


def recoverable(tree: dict[str, Tree]) -> set[bytes]:
    """Every value that is in a sound batch anywhere."""
    return {
        record.value
        for _, data in files_in(tree)
        for batch in batches_in(data)
        if not batch.is_control
        for record in batch.records
        if record.value is not None
    }


def in_place(world: World, tree: dict[str, Tree], topic: str) -> set[bytes]:
    """The values of sound batches in segments of the topic, at the offsets that they were given."""
    return {
        record.value
        for path, data in files_in(tree)
        if path.startswith(f"{topic}-0/") and path.endswith(".log")
        for batch in batches_in(data)
        for record in batch.records
        if record.value in world.written and world.written[record.value].topic == topic
        if world.written[record.value].offset == record.offset
    }


# Damage


@dataclass(frozen=True, slots=True)
class Damaged:
    """A tree, and what was done to it: `kind` of file, `way`, and where."""

    kind: str
    way: str
    where: str
    tree: dict[str, Tree]

    @property
    def name(self) -> str:
        return f"{self.way} {self.where}"


def damages(world: World) -> Iterator[Damaged]:
    """Every file of the directory, in every way."""
    for path, data in files_in(world.tree):
        kind = kind_of(path)
        if kind in (".lock", "folds.key", ".writer"):
            continue

        def one(way: str, where: str, changed: bytes | None, path: str = path, kind: str = kind) -> Damaged:
            return Damaged(kind, way, f"{path} {where}".strip(), with_file(world.tree, path, changed))

        for at in flipped_at(kind, data):
            yield one("flip", str(at), data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        for size in sorted({0, len(data) // 3, len(data) - 1, *_ends(data)[-2:-1]}):
            if data and 0 <= size < len(data):
                yield one("cut", f"to {size}", data[:size])
        for start in {0, len(data) // 2} if data else ():
            end = min(len(data), start + 200)
            yield one("hole", f"from {start}", data[:start] + bytes(end - start) + data[end:])
        yield one("missing", "", None)
        yield one("grown", "", data + b"\x02 and something else \x02" * 3)
        stale = dict(files_in(world.earlier)).get(path)
        if stale is not None and stale != data:
            yield one("stale", "", stale)
    yield from _swaps(world)
    yield from _stale_parts(world)


def _ends(data: bytes) -> list[int]:
    return [batch.position + batch.size for batch in batches_in(data)]


def flipped_at(kind: str, data: bytes) -> list[int]:
    if kind in (".log", ".log.swap"):
        batches = list(batches_in(data))
        chosen = {0, len(batches) // 2, len(batches) - 1} if batches else set()
        return sorted(
            batches[one].position + at for one in chosen for at in FieldsOfABatch if at < batches[one].size
        ) + ([len(data) - 1] if data else [])
    used = [at for at in range(len(data)) if data[at]] if kind in ("checkpoint", ".journal") else range(len(data))
    step = max(1, len(used) // 24)
    return list(used[::step])


def _swaps(world: World) -> Iterator[Damaged]:
    """Two files of a kind, each with the other's content."""
    by_kind: dict[str, list[tuple[str, bytes]]] = {}
    for path, data in files_in(world.tree):
        by_kind.setdefault(kind_of(path), []).append((path, data))
    for kind, found in by_kind.items():
        for at, (path, data) in enumerate(found):
            for other, its in found[at + 1 :]:
                if kind == ".log" and (_fits(world, path, its) or _fits(world, other, data)):
                    continue
                if kind == ".log" and world.name == "swapping":
                    continue  # a swap that is finished replaces its segment, whatever it holds by then
                if data != its:
                    tree = with_file(with_file(world.tree, path, its), other, data)
                    yield Damaged(kind, "swapped", f"{path} and {other}", tree)


def _fits(world: World, path: str, data: bytes) -> bool:
    """Whether one of the batches could be of the segment of that name: nothing in a batch says whose it is."""
    directory, name = path.split("/")
    names = [one for one, _ in files_in(world.tree) if one.startswith(f"{directory}/") and one.endswith(".log")]
    bases = sorted(int(one.split("/")[1][:20]) for one in names)
    base = int(name[:20])
    end = min((one for one in bases if one > base), default=world.ends[directory.removesuffix("-0")])
    return any(base <= batch.base_offset and batch.next_offset <= end for batch in batches_in(data))


def _stale_parts(world: World) -> Iterator[Damaged]:
    """Several files of the earlier state, as a backup brings them back that was put together from two."""
    for name in ("plain-0", "keyed-0", "journal"):
        if name in world.earlier:
            yield Damaged("directory", "stale", name, {**world.tree, name: world.earlier[name]})
    both = ("catalog.json", "checkpoint")
    yield Damaged("directory", "stale", " and ".join(both), {**world.tree, **{one: world.earlier[one] for one in both}})
