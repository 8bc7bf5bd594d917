"""Conversations about records: writing, reading, finding and deleting them."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c

from conversations.running import conversation
from conversations.talk import STAMP_MS, Talk, batch, produce
from foldlog.records.batch import CONTROL_COMMIT
from foldlog.records.loops import control_batch, pack

NO_TOPIC_ID = bytes(16)
STRANGE_ID = bytes(range(16))
HOUR_MS = 3_600_000
LATEST, EARLIEST, LARGEST_TIME, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


# --- Produce ----------------------------------------------------------------------------------------------------------


class Writer:
    """Sends batches to one topic, by its name or by its id, whichever the version has."""

    def __init__(self, talk: Talk, word: str = "orders", **configs: str) -> None:
        self.talk = talk
        self.topic = talk.topic(word, partitions=2, **configs)
        self.topic_id = talk.ids[word]

    def __call__(self, step: str, records: bytes | None, **more: Any) -> Any:
        fields = {"topic_id": self.topic_id, **more}
        return self.talk.ask("Produce", step, **produce(self.topic, records, **fields))


@conversation("Produce")
def batches_are_written(talk: Talk) -> None:
    write = Writer(talk)
    for acks in (-1, 1):
        write(f"acks {acks}", batch(b"a", b"b"), acks=acks)
    write("the other partition", batch(b"a"), partition=1)
    for codec in (0, 1, 2, 3, 4):
        write(f"codec {codec}", batch(b"a" * 500, b"b", compression=codec))
    parts = [{"index": number, "records": batch(b"x")} for number in (1, 0, 9)]
    topics = [
        {"name": write.topic, "topic_id": write.topic_id, "partition_data": parts},
        {"name": talk.name("none"), "topic_id": STRANGE_ID, "partition_data": parts[:1]},
    ]
    talk.ask("Produce", "some of several", acks=-1, timeout_ms=30_000, topic_data=topics)
    talk.ask("Produce", "nothing at all", acks=-1, timeout_ms=30_000, topic_data=[])


@conversation("Produce")
def batches_are_written_without_an_answer(talk: Talk) -> None:
    """With acks=0 the next answer is that of the next question."""
    topic = talk.topic()
    link = talk.link()
    silent = produce(topic, batch(b"a"), acks=0, topic_id=talk.ids["orders"])
    talk.send_and_forget("Produce", on=link, **silent)
    talk.ask("Produce", "the next", on=link, **produce(topic, batch(b"b"), topic_id=talk.ids["orders"]))
    talk.send_and_forget("Produce", on=link, **produce(topic, batch(b"a"), acks=0, partition=9, topic_id=STRANGE_ID))
    talk.ask("Produce", "after one that failed", on=link, **produce(topic, batch(b"b"), topic_id=talk.ids["orders"]))


@conversation("Produce")
def places_that_are_not_there(talk: Talk) -> None:
    write = Writer(talk)
    write("no such partition", batch(b"a"), partition=7)
    write("a negative partition", batch(b"a"), partition=-1)
    for word in ("none", "a b", "", ".", "x" * 250):
        name = word if word in ("", ".") else talk.name(word)
        fields = produce(name, batch(b"a"), topic_id=STRANGE_ID)
        talk.ask("Produce", f"topic {word[:9]!r}", **fields)
    talk.ask("Produce", "the zero id", **produce("", batch(b"a"), topic_id=NO_TOPIC_ID))
    for acks in (2, -2, 100):
        write(f"acks {acks}", batch(b"a"), acks=acks)
    for topic in ("__consumer_offsets", "__transaction_state"):
        if talk.version("Produce") < 13:
            talk.ask("Produce", f"to {topic}", **produce(topic, batch(b"a")))


def refixed(records: bytes, position: int, layout: str, value: int) -> bytes:
    """The batch with another number at a position, and a checksum that is right again."""
    changed = bytearray(records)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


GOOD = batch(b"v", b"v", b"v")

WRONG: dict[str, bytes] = {
    "a wrong checksum": GOOD[:-1] + b"x",
    "a format of tomorrow": refixed(GOOD, 16, ">b", 3),
    "a format of yesterday": refixed(GOOD, 16, ">b", 1),
    "two batches": GOOD + GOOD,
    "a control batch": refixed(GOOD, 21, ">h", 0x20),
    "a codec that is none": refixed(GOOD, 21, ">h", 5),
    "a producer without sequence": refixed(GOOD, 43, ">q", 9),
    "more records than there are": refixed(GOOD, 57, ">i", 4),
    "fewer records than there are": refixed(GOOD, 57, ">i", 2),
    "no records": refixed(GOOD, 57, ">i", 0),
    "another last offset": refixed(GOOD, 23, ">i", 5),
    "the end cut off": GOOD[:-3],
    "a little": GOOD[:20],
    "nothing": b"",
    "a marker": bytes(control_batch(CONTROL_COMMIT, 0, 5, 0, STAMP_MS)),
}


@conversation("Produce")
def batches_that_are_wrong(talk: Talk) -> None:
    write = Writer(talk)
    for what, records in WRONG.items():
        write(what, records)
    write("and a good one", GOOD)


@conversation("Produce")
def records_that_are_too_large(talk: Talk) -> None:
    write = Writer(talk, max_message_bytes="1000")
    write("too large", batch(b"x" * 2000))
    write("small when compressed", batch(b"x" * 2000, compression=1))
    write("small", batch(b"x" * 500))


@conversation("Produce")
def records_without_a_key(talk: Talk) -> None:
    for compression in ("producer", "gzip"):
        write = Writer(talk, compression, cleanup_policy="compact", compression_type=compression)
        for codec in (0, 1, 3, 4):
            keys = (b"k", None, b"k", None)
            records = bytes(pack([(STAMP_MS, key, b"v", ()) for key in keys], compression=codec))
            write(f"{compression}, codec {codec}", records)
        write(f"{compression}, with a key", batch(b"v"))


DATED: tuple[tuple[dict[str, str], tuple[int, ...]], ...] = (
    ({}, (0, 2, -1000, 3)),
    ({"message_timestamp_after_max_ms": "36000000"}, (0, 2, 11)),
    ({"message_timestamp_before_max_ms": "3600000"}, (0, -2, 0, -3)),
    ({"message_timestamp_type": "LogAppendTime"}, (0, 2, -1000)),
)


@conversation("Produce")
def times_that_are_far_from_the_clock(talk: Talk) -> None:
    for settings, hours in DATED:
        word = "-".join(["dated", *(name[18:23] for name in settings)])
        write = Writer(talk, word, **settings)
        stamps = [*(STAMP_MS + hour * HOUR_MS for hour in hours), -1]
        write(word, bytes(pack([(stamp_ms, b"k", b"v", ()) for stamp_ms in stamps])))
        write(f"{word}, now", batch(b"v"))


@conversation("Produce", "InitProducerId")
def an_idempotent_producer(talk: Talk) -> None:
    write = Writer(talk)
    own = talk.ask("InitProducerId", transactional_id=None, transaction_timeout_ms=60_000)

    def numbered(sequence: int, epoch: int = 0, producer_id: int | None = None) -> bytes:
        number = own.producer_id if producer_id is None else producer_id
        return batch(b"a", b"b", producer_id=number, producer_epoch=epoch, base_sequence=sequence)

    for step, records in {
        "first": numbered(0),
        "again": numbered(0),
        "next": numbered(2),
        "the first again": numbered(0),
        "a gap": numbered(7),
        "a newer epoch, not at its start": numbered(4, epoch=1),
        "a newer epoch": numbered(0, epoch=1),
        "an older epoch": numbered(4, epoch=0),
        "a stranger, not at its start": numbered(9, producer_id=987_654_321),
        "a negative epoch": numbered(2, epoch=-1),
    }.items():
        write(step, records)
    topics = [
        {"name": write.topic, "partition_indexes": [0, 1, 9]},
        {"name": talk.name("none"), "partition_indexes": [0]},
    ]
    talk.ask("DescribeProducers", topics=topics)
    transactional = batch(b"a", producer_id=own.producer_id, producer_epoch=1, base_sequence=2, transactional=True)
    write("transactional, without a transaction", transactional, transactional_id=talk.name("tx"))
    write("transactional, without an id", transactional)


@conversation("Produce")
def versions_of_produce_that_are_gone(talk: Talk) -> None:
    if talk.version("Produce") == 3:
        for version in (0, 1, 2):
            talk.send_raw(f"version {version}", "Produce", version, struct.pack(">hii", 1, 1000, 0))


# --- Fetch ------------------------------------------------------------------------------------------------------------


class Reader:
    """Fetches from topics, by name or by id, whichever the version has."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk

    def wanted(self, word: str, *partitions: tuple[int, int], **more: Any) -> dict[str, Any]:
        """(number, offset) of each partition of a topic."""
        asked = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more}
            for number, offset in partitions
        ]
        return {"topic": self.talk.name(word), "topic_id": self.talk.ids.get(word, STRANGE_ID), "partitions": asked}

    def __call__(self, step: str, *topics: dict[str, Any], settling: bool = True, **more: Any) -> Any:
        fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics, **more}
        return self.talk.ask("Fetch", step, settling=settling, **fields)


@conversation("Fetch")
def records_are_fetched(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    for value in (b"a", b"b", b"c"):
        talk.write(topic, value, value)
    fetch = Reader(talk)
    for offset in (0, 1, 5, 6, 7, -1, -2, 1 << 40):
        fetch(f"from {offset}", fetch.wanted("orders", (0, offset)))
    fetch("several", fetch.wanted("orders", (0, 2), (1, 0), (7, 0), (-1, 0)), fetch.wanted("none", (0, 0)))
    fetch("nothing")
    fetch("one batch", fetch.wanted("orders", (0, 0), partition_max_bytes=1))
    fetch("all of one batch", fetch.wanted("orders", (0, 0)), max_bytes=1)
    fetch("waiting for a byte", fetch.wanted("orders", (0, 0)), min_bytes=1, max_wait_ms=100)
    fetch("waiting for nothing", fetch.wanted("orders", (1, 0)), min_bytes=1, max_wait_ms=10)
    fetch("the zero id", {"topic": "", "topic_id": NO_TOPIC_ID, "partitions": [{"partition": 0}]})
    for level in (0, 1, 7):
        fetch(f"isolation {level}", fetch.wanted("orders", (0, 4)), isolation_level=level)


@conversation("Fetch")
def fetches_with_epochs(talk: Talk) -> None:
    topic = talk.topic()
    talk.write(topic, b"a", b"b")
    fetch = Reader(talk)
    for epoch in (-1, 0, 1, 9, -5):
        fetch(f"at epoch {epoch}", fetch.wanted("orders", (0, 0), current_leader_epoch=epoch))
    for epoch in (0, 1, 9):
        fetch(f"after epoch {epoch}", fetch.wanted("orders", (0, 2), last_fetched_epoch=epoch))
    fetch("with the start", fetch.wanted("orders", (0, 0), log_start_offset=0))


@conversation("Fetch")
def sessions_of_fetches(talk: Talk) -> None:
    if talk.version("Fetch") < 7:
        return
    topic = talk.topic(partitions=2)
    talk.write(topic, b"a")
    fetch = Reader(talk)
    begun = fetch("begin", fetch.wanted("orders", (0, 0), (1, 0)), session_epoch=0, settling=False)
    session = {"session_id": begun.session_id}
    fetch("nothing new", fetch.wanted("orders", (0, 1)), **session, session_epoch=1, settling=False)
    fetch("still nothing", **session, session_epoch=2, settling=False)
    talk.write(topic, b"b", partition=1)
    fetch("something new", **session, session_epoch=3, settling=False)
    gone = {"topic": topic, "topic_id": talk.ids["orders"], "partitions": [1]}
    fetch("one is forgotten", **session, session_epoch=4, forgotten_topics_data=[gone], settling=False)
    fetch("one out of range", fetch.wanted("orders", (0, 99)), **session, session_epoch=5, settling=False)
    fetch("told once more", **session, session_epoch=6, settling=False)
    fetch("the wrong epoch", **session, session_epoch=9, settling=False)
    fetch("no such partition", fetch.wanted("orders", (7, 0)), **session, session_epoch=7, settling=False)
    fetch("no such topic", fetch.wanted("none", (0, 0)), **session, session_epoch=8, settling=False)
    fetch("no such session", session_id=123_456_789, session_epoch=1, settling=False)
    fetch("closed", **session, session_epoch=-1, settling=False)
    fetch("after its end", **session, session_epoch=10, settling=False)


# --- where records are ------------------------------------------------------------------------------------------------


def places(topic: str, *partitions: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    """(number, time) of each partition of a topic, for ListOffsets."""
    return [
        {"name": topic, "partitions": [{"partition_index": one, "timestamp": at, **more} for one, at in partitions]}
    ]


@conversation("ListOffsets")
def offsets_by_time(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    for ahead_ms in (0, 10, 5):
        stamps = pack([(STAMP_MS + ahead_ms + number, b"k", b"v", ()) for number in range(2)])
        talk.quiet("Produce", version=9, **produce(topic, bytes(stamps)))
    special = (LATEST, EARLIEST, LARGEST_TIME, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING, -7)
    for at in (*special, 0, STAMP_MS, STAMP_MS + 1, STAMP_MS + 2, STAMP_MS + 6, STAMP_MS + 11, STAMP_MS + 999):
        shown = at if at <= 0 else f"+{at - STAMP_MS}"
        for level in (0, 1):
            asked = places(topic, (0, at))
            talk.ask("ListOffsets", f"at {shown}, level {level}", replica_id=-1, isolation_level=level, topics=asked)
        talk.ask("ListOffsets", f"at {shown}, empty", replica_id=-1, topics=places(topic, (1, at)))
    talk.ask("ListOffsets", "none", replica_id=-1, topics=places(topic, (7, -1)) + places(talk.name("none"), (0, -1)))
    for epoch in (0, 1, 9):
        asked = places(topic, (0, LATEST), current_leader_epoch=epoch)
        talk.ask("ListOffsets", f"at epoch {epoch}", replica_id=-1, topics=asked)
    talk.ask("ListOffsets", "twice", replica_id=-1, topics=places(topic, (0, -1), (0, -2)))


@conversation("OffsetForLeaderEpoch")
def ends_of_epochs(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    talk.write(topic, b"a", b"b")
    for number in (0, 1, 9):
        for current in (-1, 0, 5):
            for epoch in (0, 1, -1):
                asked = {"partition": number, "current_leader_epoch": current, "leader_epoch": epoch}
                step = f"{number}, at {current}, of {epoch}"
                topics = [{"topic": topic, "partitions": [asked]}]
                talk.ask("OffsetForLeaderEpoch", step, replica_id=-1, topics=topics)
    topics = [{"topic": talk.name("none"), "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    talk.ask("OffsetForLeaderEpoch", "no such topic", replica_id=-1, topics=topics)


@conversation("DeleteRecords")
def records_are_deleted(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    compacted = talk.topic("compacted", cleanup_policy="compact")
    both = talk.topic("both", cleanup_policy="compact,delete")
    for name in (topic, compacted, both):
        for value in (b"a", b"b", b"c"):
            talk.write(name, value)

    def delete(step: str, name: str, *partitions: tuple[int, int]) -> None:
        asked = [{"partition_index": number, "offset": offset} for number, offset in partitions]
        talk.ask("DeleteRecords", step, topics=[{"name": name, "partitions": asked}], timeout_ms=30_000)

    for offset in (0, 2, 1, 3, 4, -1, -2):
        delete(f"to {offset}", topic, (0, offset))
    delete("several", topic, (1, 0), (7, 0))
    delete("none", talk.name("none"), (0, 0))
    delete("compacted", compacted, (0, 1))
    delete("both", both, (0, 1))
    delete("internal", "__consumer_offsets", (0, 0))
    talk.ask("ListOffsets", "what is left", replica_id=-1, topics=places(topic, (0, EARLIEST), (1, EARLIEST)))
    fetch = Reader(talk)
    fetch("what was deleted", fetch.wanted("orders", (0, 0)))
