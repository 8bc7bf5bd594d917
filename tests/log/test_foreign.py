"""Partitions with transactions, written the way Kafka writes them, against a model: any interleaving of producers, any
rolls, with and without the files beside the segments.

The batches are real; segments, snapshots of producers and indexes of aborted transactions are put into memory as Kafka
lays them out. The model keeps, for each producer, what its open transaction holds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from foldlog.errors import InvalidBatch, StorageError
from foldlog.files.base import DirectoryEntry
from foldlog.files.memory import MemoryFile, MemoryFiles
from foldlog.log import foreign
from foldlog.log.doctor.salvage import UNKNOWN_END, Salvage, SalvageBounds
from foldlog.log.foreign import ForeignPartition, ForeignState
from foldlog.log.transactions import (
    Aborted,
    AbortedTransaction,
    ToldAborted,
    markers_of,
    read_transaction_index,
    spans_without,
)
from foldlog.records import batch as fmt
from foldlog.records.loops import assign_offsets, control_batch, decode, pack, walk
from records.generated import with_right_crc

PATH = "data/payments-0"
ENTRY = struct.Struct(">hqqqq")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")

Step = tuple[str, int]
"""What happens, and to which producer."""

STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "send", "plain", "commit", "abort", "roll"]), st.integers(0, 2)), max_size=40
)


@dataclass
class Model:
    """Kafka's side: files, and what is committed."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    end: int = 0
    base: int = 0
    data: bytearray = field(default_factory=bytearray)
    index: bytearray = field(default_factory=bytearray)
    open: dict[int, list[int]] = field(default_factory=dict)
    decided: set[int] = field(default_factory=set)  # offsets of records to be read, if no older transaction is open
    everything: list[int] = field(default_factory=list)

    def step(self, what: str, producer: int) -> None:
        if what == "roll":
            self.roll()
        elif what == "plain":
            self.decided.add(self.put(pack([(0, b"k", b"plain", ())])))
        elif what == "send":
            numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            offset = self.put(pack([(0, b"k", b"sent", ())], **numbers, transactional=True))
            self.open.setdefault(producer, []).append(offset)
        elif producer in self.open:
            kind = fmt.CONTROL_COMMIT if what == "commit" else fmt.CONTROL_ABORT
            offset = self.put(control_batch(kind, 0, producer, 0, 0), is_record=False)
            sent = self.open.pop(producer)
            if what == "commit":
                self.decided.update(sent)
            else:
                self.index += ENTRY.pack(0, producer, sent[0], offset, self.stable)

    def put(self, batch: bytearray, *, is_record: bool = True) -> int:
        offset = self.end
        self.end = assign_offsets(batch, walk(batch).headers, offset, 0)
        self.data += batch
        if is_record:
            self.everything.append(offset)
        return offset

    @property
    def stable(self) -> int:
        return min([self.end, *(sent[0] for sent in self.open.values())])

    def roll(self) -> None:
        """Also at the end: the segment gets its files."""
        self.store_last()
        if self.end == self.base:
            return
        entries = b"".join(
            SNAPSHOT_ENTRY.pack(producer, 0, 0, sent[-1], 0, 0, 0, sent[0]) for producer, sent in self.open.items()
        )
        body = struct.pack(">i", len(self.open)) + entries
        self.store(f"{self.end:020d}.snapshot", struct.pack(">hI", 1, crc32c(body)) + body)
        self.base, self.data, self.index = self.end, bytearray(), bytearray()
        self.store(f"{self.base:020d}.log", b"")

    def store_last(self) -> None:
        """The segment that is being written, and what is beside it."""
        self.store(f"{self.base:020d}.log", self.data)
        if self.index:
            self.store(f"{self.base:020d}.txnindex", self.index)

    def store(self, name: str, data: bytes | bytearray) -> None:
        file = self.files.open(f"{PATH}/{name}", write=True, create=True)
        file.truncate(0)
        file.write(0, [bytes(data)])
        file.close()

    def forget(self, suffix: str) -> None:
        for entry in self.files.entries(PATH):
            if entry.name.endswith(suffix):
                self.files.unlink(f"{PATH}/{entry.name}")

    def reader(self, *, committed_only: bool) -> ForeignPartition:
        state = ForeignState(self.files, PATH, lambda: 0, committed_only=committed_only)
        return ForeignPartition(self.files, PATH, state, ("payments", 0))

    def offsets(
        self, *, committed_only: bool, max_bytes: int = 1 << 20, log: ForeignPartition | None = None
    ) -> list[int]:
        log = log or self.reader(committed_only=committed_only)
        found: list[int] = []
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            data, next_offset, _ = log.read(offset, max_bytes)
            found += [record.offset for record in decode(data, "payments", 0, start_offset=offset)[0]]
            if next_offset == offset:
                break
            offset = next_offset
        return found


def written(steps: list[Step], files: MemoryFiles | None = None) -> Model:
    model = Model(files or MemoryFiles())
    model.files.make_directory(PATH)
    for step in steps:
        model.step(*step)
    model.store_last()
    return model


@given(STEPS, st.sampled_from([1, 200, 1 << 20]))
def test_what_is_committed_is_read_and_nothing_else(steps: list[Step], max_bytes: int) -> None:
    model = written(steps)
    assert model.offsets(committed_only=False, max_bytes=max_bytes) == model.everything
    truth = sorted(offset for offset in model.decided if offset < model.stable)
    assert model.offsets(committed_only=True, max_bytes=max_bytes) == truth
    model.forget(".snapshot")
    assert model.offsets(committed_only=True) == truth
    model.forget(".txnindex")
    assert model.offsets(committed_only=True) == truth


@given(STEPS)
def test_a_reader_beside_kafka_sees_at_each_moment_what_is_committed(steps: list[Step]) -> None:
    model = written([])
    readers = {committed_only: model.reader(committed_only=committed_only) for committed_only in (False, True)}
    for step in steps:
        model.step(*step)
        model.store_last()
        assert model.offsets(committed_only=False, log=readers[False]) == model.everything
        truth = sorted(offset for offset in model.decided if offset < model.stable)
        assert model.offsets(committed_only=True, log=readers[True]) == truth
        assert readers[True].high_watermark == model.stable


@given(STEPS, st.integers(1, 60))
def test_a_write_that_was_cut_off_changes_nothing_before_it(steps: list[Step], cut: int) -> None:
    model = written([*steps, ("plain", 0)])
    model.store(f"{model.base:020d}.log", model.data[: -min(cut, len(model.data))])
    truth = model.everything[:-1]
    assert model.offsets(committed_only=False) == truth
    stable = [offset for offset in truth if offset < model.stable and offset in model.decided]
    assert model.offsets(committed_only=True) == stable


def test_an_index_of_transactions_is_read_as_far_as_it_can_be_right() -> None:
    good = AbortedTransaction(1, 5, 9, 10)
    data = ENTRY.pack(0, *good)
    assert read_transaction_index(data) == ([good], "")
    for wrong, reason in (
        (data[:-1], "not a whole entry"),
        (ENTRY.pack(1, *good), "version 1"),
        (ENTRY.pack(0, 1, 9, 9, 10), "offsets 9 to 9"),
        (data, "not after the one before it"),
    ):
        found, problem = read_transaction_index(data + wrong)
        assert (found, reason in problem) == ([good], True)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20), st.integers(1, 9)), max_size=8), st.integers(0, 30))
def test_any_aborted_transactions_hold_what_each_of_them_holds(spans: list[tuple[int, int, int]], offset: int) -> None:
    """Also such as overlap, which a broken index may name."""
    aborted = Aborted(AbortedTransaction(producer, first, first + length) for producer, first, length in spans)
    batch = pack([(0, b"k", b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assign_offsets(batch, walk(batch).headers, offset, 0)
    truth = any(producer == 1 and first <= offset < first + length for producer, first, length in spans)
    assert aborted.holds(walk(batch).headers[0]) == truth


@pytest.mark.parametrize(
    "aborted",
    [Aborted([AbortedTransaction(1, 0, 5)]), ToldAborted([(0, 1)])],
    ids=["as an index has it", "as brokers do"],
)
def test_spans_of_what_was_not_aborted_are_as_few_as_can_be(aborted: Aborted | ToldAborted) -> None:
    """Producer 1 aborts at 5, and then sends what it does not abort; producer 2 goes on all the time."""
    log, offset, starts = bytearray(), 0, []
    for producer in (1, 2, 2, 1, 2, None, 1):
        if producer is None:
            batch = control_batch(fmt.CONTROL_ABORT, 0, 1, 0, 0)
        else:
            numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
            batch = pack([(0, b"k", b"v", ())], **numbers, transactional=True)
        starts.append(len(log))
        offset = assign_offsets(batch, walk(batch).headers, offset, 0)
        log += batch
    headers = walk(log).headers
    assert spans_without(aborted, headers) == [(starts[1], starts[3]), (starts[4], len(log))]
    assert spans_without(Aborted(), headers) == spans_without(ToldAborted([]), headers) == [(0, len(log))]


def test_a_control_record_without_a_type_is_an_invalid_batch() -> None:
    batch = pack([(0, b"k", b"v", ())])
    batch[fmt.ATTRIBUTES_AT + 1] |= fmt.CONTROL
    whole = with_right_crc(bytes(batch))
    with pytest.raises(InvalidBatch, match="not a version and a type"):
        markers_of(memoryview(whole), walk(whole).headers[0])


class Growing(MemoryFiles):
    """Kafka appends whenever somebody lists the directory."""

    def entries(self, directory: str) -> list[DirectoryEntry]:
        log = self.open(f"{PATH}/{0:020d}.log", write=True)
        log.write(log.size(), [at_offset(log.size() // len(at_offset(0)))])
        log.close()
        return super().entries(directory)


def at_offset(offset: int) -> bytearray:
    batch = pack([(0, b"k", b"plain", ())])
    assign_offsets(batch, walk(batch).headers, offset, 0)
    return batch


def test_a_log_that_grows_all_the_time_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lists of its files are never of the same sizes."""
    monkeypatch.setattr(foreign, "_TRIES", 3)
    files = Growing()
    files.make_directory(PATH)
    files.open(f"{PATH}/{0:020d}.log", write=True, create=True).close()
    log = ForeignPartition(files, PATH, ForeignState(files, PATH, lambda: 0), ("payments", 0))
    ends = [log.high_watermark for _ in range(3)]
    assert 0 < ends[0] < ends[1] < ends[2]


def test_what_is_written_into_room_made_ahead_is_read_although_the_file_does_not_grow() -> None:
    model = written([])
    model.store(f"{0:020d}.log", bytes(4096))
    log = ForeignPartition(model.files, PATH, ForeignState(model.files, PATH, lambda: 0), ("payments", 0))
    position = 0
    for end in range(5):
        assert log.high_watermark == end
        batch = at_offset(end)
        model.files.open(f"{PATH}/{0:020d}.log", write=True).write(position, [batch])
        position += len(batch)
    assert log.read(0, 1 << 20).next_offset == 5


def test_a_transaction_that_was_cut_off_is_open_no_more() -> None:
    """A replica that follows another leader cuts its log, and what comes instead has other offsets and producers."""
    model = written([("plain", 0)])
    log = model.reader(committed_only=True)
    kept, end = bytes(model.data), model.end
    model.step("send", 1)
    model.store_last()
    assert log.high_watermark == end
    model.data, model.end, model.open = bytearray(kept), end, {}
    model.store_last()
    assert log.high_watermark == end
    model.step("plain", 0)
    model.store_last()
    assert log.high_watermark == end + 1
    model.step("send", 2)
    model.store_last()
    assert log.high_watermark == end + 1
    model.step("commit", 2)
    model.store_last()
    assert log.high_watermark == model.end


class Removing(MemoryFiles):
    """Kafka removes a file when somebody is about to open it; with `keeps_name` it is only listed on."""

    def __init__(self) -> None:
        super().__init__()
        self.to_remove = ""
        self.keeps_name = False

    def open(self, path: str, *, write: bool = False, create: bool = False) -> MemoryFile:
        if self.to_remove and path.endswith(self.to_remove):
            if not self.keeps_name:
                self.to_remove = ""
                self.rename(path, f"{path}.deleted")
            raise FileNotFoundError(path)
        return super().open(path, write=write, create=create)


ROLLED: list[Step] = [("send", 1), ("abort", 1), ("roll", 0), ("plain", 0)]


@pytest.mark.parametrize("name", [f"{0:020d}.txnindex", f"{2:020d}.snapshot", f"{2:020d}.log"])
def test_a_file_that_goes_while_it_is_looked_at_is_no_damage(name: str) -> None:
    files = Removing()
    model = written(ROLLED, files)
    files.to_remove = name
    log = model.reader(committed_only=True)
    assert log.high_watermark == (2 if name.endswith(".log") else 3)
    assert files.to_remove == ""


@pytest.mark.parametrize("name", [f"{0:020d}.txnindex", f"{2:020d}.log"])
def test_a_file_that_is_listed_and_cannot_be_opened_is_named(name: str) -> None:
    files = Removing()
    model = written(ROLLED, files)
    files.to_remove, files.keeps_name = name, True
    with pytest.raises(StorageError, match=name):
        _ = model.reader(committed_only=True).high_watermark


def sparse_log(*base_offsets: int) -> tuple[MemoryFile, list[int]]:
    """Batches of two records as compaction leaves them, offsets missing in between; where each begins."""
    data, starts = bytearray(), []
    for offset in base_offsets:
        starts.append(len(data))
        batch = pack([(0, b"k", b"v", ()), (0, b"k", b"v", ())])
        assign_offsets(batch, walk(batch).headers, offset, 0)
        data += batch
    files = MemoryFiles()
    files.make_directory(PATH)
    file = files.open(f"{PATH}/{0:020d}.log", write=True, create=True)
    file.write(0, [bytes(data)])
    return file, starts


@pytest.mark.parametrize(
    ("base_offsets", "damaged", "lost"),
    [
        ((0, 90, 20, 30, 100), 1, (2, 20)),  # the two after it agree that it is too large
        ((0, 90, 10, 100), 2, (92, 100)),  # the one after it leaves open who is wrong: who came later
        ((0, 90, 1, 100), 2, (92, 100)),  # no room for the other before this one
        ((0, 2, 0, 100), 2, (4, 100)),  # the other just follows what is before it
    ],
)
def test_of_two_batches_that_contradict_each_other_the_neighbours_tell_which_is_wrong(
    base_offsets: tuple[int, ...], damaged: int, lost: tuple[int, int]
) -> None:
    file, starts = sparse_log(*base_offsets)
    bounds = SalvageBounds(0, file.size(), 0, UNKNOWN_END, UNKNOWN_END, ())
    found = Salvage(file, bounds, exact=False)
    [piece] = [piece for piece in found.pieces if piece.reason]
    assert (piece.position, piece.first_offset, piece.next_offset) == (starts[damaged], *lost)
    assert piece.is_lost  # which of the missing offsets it had, nobody knows
    assert found.records == 2 * (len(base_offsets) - 1)
