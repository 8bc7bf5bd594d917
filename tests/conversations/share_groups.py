"""Conversations about share groups, which are queues over partitions (KIP-932)."""

from __future__ import annotations

from itertools import count
from typing import Any

from conversations.messages import made
from conversations.running import conversation
from conversations.talk import Talk, codes_in, steps

STRANGE_ID = bytes(range(16))
GROUP_RESOURCE = 32
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LONG_MS = 20_000
"""Longer than it takes until a record is there."""


class Worker:
    """A member of a share group with its session: it takes records and says what became of them."""

    def __init__(self, talk: Talk, group: str, who: str, word: str = "jobs") -> None:
        self.talk = talk
        self.group = group
        # Members name themselves with an id.
        self.member_id = f"{who}-AAAAAAAAAAAAAAAAAA"[:22]
        self.who = who
        self.topic = talk.name(word)
        self.topic_id = talk.ids[word]
        self.link = talk.link()
        self.epoch = 0

    def heartbeat(self, step: str, epoch: int | None = None, **more: Any) -> Any:
        fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch if epoch is None else epoch,
        }
        answer = self.talk.ask("ShareGroupHeartbeat", step, **{**fields, **more})
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def join(self) -> None:
        self.heartbeat(f"{self.who} joins to share", 0, subscribed_topic_names=[self.topic])
        self.talk.until(
            lambda: self.talk.quiet(
                "ShareGroupHeartbeat", group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
            ),
            self._is_assigned,
        )

    def _is_assigned(self, answer: Any) -> bool:
        assert not answer.error_code, answer
        self.epoch = answer.member_epoch
        described = self.talk.quiet("ShareGroupDescribe", group_ids=[self.group]).groups[0]
        return any(one.assignment.topic_partitions for one in described.members if one.member_id == self.member_id)

    def wanted(self, session_epoch: int, *said: tuple[int, int, int]) -> dict[str, Any]:
        """The fields of a ShareFetch, with (first, last, kind) of acknowledgements."""
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]} for first, last, kind in said
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": session_epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 100,
            "batch_size": 100,
            "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
        }

    def said(self, session_epoch: int, first: int, last: int, *kinds: int) -> dict[str, Any]:
        """The fields of a ShareAcknowledge."""
        batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": kinds}]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": session_epoch,
            "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
        }

    def take(self, step: str, session_epoch: int, *said: tuple[int, int, int], **more: Any) -> Any:
        return self.talk.ask("ShareFetch", step, on=self.link, **{**self.wanted(session_epoch, *said), **more})

    def say(self, step: str, session_epoch: int, first: int, last: int, *kinds: int, **more: Any) -> Any:
        fields = {**self.said(session_epoch, first, last, *kinds), **more}
        return self.talk.ask("ShareAcknowledge", step, on=self.link, **fields)

    def ask(self, api: str, fields: dict[str, Any]) -> Any:
        """Without a word in the comparison; a session belongs to its connection."""
        return self.link.ask(made(api, fields), self.talk.version(api))


def begin_at_the_start(talk: Talk, group: str) -> None:
    """The setting of a group, and wait until it holds."""
    configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    talk.quiet("IncrementalAlterConfigs", resources=[resource])
    wanted = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": group,
        "configuration_keys": ["share.auto.offset.reset"],
    }
    talk.until(
        lambda: talk.quiet("DescribeConfigs", resources=[wanted]),
        lambda answer: any(one.value == "earliest" for one in answer.results[0].configs),
    )


def opened(talk: Talk, *values: bytes) -> Worker:
    """A topic with records from offset 1 on, and a member that may take them.

    Kafka reads the state of a partition after the first fetch, which gets nothing: another member takes the record at
    offset 0, however long that takes.
    """
    group, topic = talk.name("workers"), talk.shared_topic("jobs")
    begin_at_the_start(talk, group)
    talk.write(topic, b"first")
    ann = Worker(talk, group, "ann")
    ann.join()
    first = Worker(talk, group, "first")
    epochs = count()
    talk.until(lambda: first.ask("ShareFetch", first.wanted(next(epochs))), acquired)
    answer = first.ask("ShareAcknowledge", first.said(next(epochs), 0, 0, ACCEPT))
    assert codes_in(answer) == {0}, answer
    first.ask("ShareAcknowledge", {**first.said(-1, 0, 0), "topics": []})
    for value in values:
        talk.write(topic, value)
    return ann


def acquired(answer: Any) -> bool:
    return any(one.acquired_records for topic in answer.responses for one in topic.partitions)


@conversation("ShareGroupHeartbeat", "ShareGroupDescribe")
def members_of_a_share_group(talk: Talk) -> None:
    topic, group = talk.shared_topic("jobs", partitions=2), talk.name("workers")
    ann = Worker(talk, group, "ann")
    ann.join()
    described(talk, "one", group)
    ann.heartbeat("nothing new")
    talk.ask("ListGroups", "listed", mine=True)
    talk.ask("DescribeGroups", "as a classic group", groups=[group])
    talk.ask("ConsumerGroupDescribe", "as a consumer group", group_ids=[group])
    ann.heartbeat("subscribed to what is not", subscribed_topic_names=[talk.name("none")])
    ann.heartbeat("subscribed again", subscribed_topic_names=[topic])
    ann.heartbeat("an epoch of tomorrow", ann.epoch + 5)
    ann.heartbeat("a stranger", member_id="nobody")
    ann.heartbeat("no member", member_id="")
    ann.heartbeat("no group", group_id="")
    ann.heartbeat("another group", group_id=talk.name("none"))
    ann.heartbeat("an odd epoch", -2)
    ann.heartbeat("an empty rack", rack_id="")
    talk.ask("DeleteGroups", "with members", groups_names=[group])
    ann.heartbeat("she leaves", -1)
    ann.heartbeat("she leaves again", -1)
    described(talk, "empty", group)
    described(talk, "none", talk.name("none"), "")
    described(talk, "nothing")
    bare = Worker(talk, talk.name("bare"), "ben")
    bare.heartbeat("joins without topics", 0)
    bare.heartbeat("joins with none", 0, subscribed_topic_names=[])


def described(talk: Talk, step: str, *groups: str) -> None:
    talk.ask("ShareGroupDescribe", step, group_ids=groups, include_authorized_operations=True)


@conversation("ShareFetch", "ShareAcknowledge")
def records_are_taken_and_acknowledged(talk: Talk) -> None:
    ann = opened(talk, b"a", b"b", b"c", b"d", b"e", b"f")
    ann.take("she opens a session and takes all", 0)
    ann.take("nothing more", 1)
    ann.say("accepted", 2, 1, 1, ACCEPT)
    ann.say("released", 3, 2, 2, RELEASE)
    ann.say("rejected", 4, 3, 3, REJECT)
    ann.take("the released one again", 5, max_wait_ms=LONG_MS)
    ann.take("accepted with a fetch", 6, (2, 2, ACCEPT))
    ann.say("several at once", 7, 4, 6, ACCEPT, REJECT, ACCEPT)
    ann.say("what was accepted", 8, 1, 1, ACCEPT)
    ann.say("what is not there yet", 9, 50, 60, ACCEPT)
    ann.take("closed", -1, topics=[])
    ann.take("after its end", 10)
    ann.heartbeat("she leaves", -1)


@conversation("ShareFetch", "ShareAcknowledge")
def share_requests_that_are_refused(talk: Talk) -> None:
    ann = opened(talk, b"a", b"b", b"c")
    ann.say("without a session", 1, 1, 1, ACCEPT)
    ann.say("as its first", 0, 1, 1, ACCEPT)
    ann.take("a session that is not", 4)
    ann.take("with words at once", 0, (1, 1, ACCEPT))
    for step, fields in steps(
        {
            "no group": {"group_id": ""},
            "null group": {"group_id": None},
            "no member": {"member_id": ""},
            "null member": {"member_id": None},
        }
    ):
        ann.take(step, 0, **fields)
        ann.say(f"{step} says", 1, 1, 1, ACCEPT, **fields)
    ann.take("she takes all", 0)
    ann.take("the wrong epoch", 7)
    ann.say("the wrong epoch says", 7, 1, 1, ACCEPT)
    for number, (step, first, last, kinds) in enumerate(
        (
            ("turned around", 2, 1, (ACCEPT,)),
            ("an odd kind", 1, 1, (9,)),
            ("no kind", 1, 1, ()),
            ("too many kinds", 1, 2, (ACCEPT, ACCEPT, ACCEPT)),
            ("below the start", -1, 0, (ACCEPT,)),
            ("renewed without a word", 1, 1, (RENEW,)),
        )
    ):
        ann.say(step, 1 + number, first, last, *kinds)
    ben = Worker(talk, ann.group, "ben")
    ben.take("another takes what is hers", 0)
    ben.say("another says so", 1, 1, 1, ACCEPT)
    strange = [{"topic_id": STRANGE_ID, "partitions": [{"partition_index": 0}]}]
    Worker(talk, ann.group, "cid").take("no such topic", 0, topics=strange)
    missing = [{"topic_id": ann.topic_id, "partitions": [{"partition_index": 9}]}]
    Worker(talk, ann.group, "dee").take("no such partition", 0, topics=missing)
    ann.heartbeat("she leaves", -1)


@conversation("ShareFetch", "ShareAcknowledge")
def records_are_renewed(talk: Talk) -> None:
    if talk.version("ShareFetch") < 2:
        return
    ann = opened(talk, b"a", b"b")
    ann.take("one at a time", 0, max_records=1, batch_size=1, share_acquire_mode=1)
    ann.say("renewed", 1, 1, 1, RENEW, is_renew_ack=True)
    ann.say("accepted after that", 2, 1, 1, ACCEPT)
    ann.take("an odd mode", 3, share_acquire_mode=7)
    ann.heartbeat("she leaves", -1)


@conversation("DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets")
def offsets_of_share_groups(talk: Talk) -> None:
    ann = opened(talk, b"a", b"b", b"c")
    group, topic = ann.group, ann.topic

    # Not of a partition that is not there: Kafka never answers.
    def look(step: str, of: str, *partitions: int, name: str = topic) -> None:
        topics = [{"topic_name": name, "partitions": partitions}] if partitions else None
        talk.ask("DescribeShareGroupOffsets", step, groups=[{"group_id": of, "topics": topics}])

    def move(step: str, of: str, *places: tuple[int, int], name: str = topic) -> None:
        rows = [{"partition_index": number, "start_offset": offset} for number, offset in places]
        talk.ask("AlterShareGroupOffsets", step, group_id=of, topics=[{"topic_name": name, "partitions": rows}])

    def forget(step: str, of: str, *names: str) -> None:
        topics = [{"topic_name": name} for name in names]
        talk.ask("DeleteShareGroupOffsets", step, group_id=of, topics=topics)

    ann.take("she takes all", 0)
    ann.say("accepted", 1, 1, 2, ACCEPT)
    look("one", group, 0)
    look("no such topic", group, 0, name=talk.name("none"))
    look("all", group)
    look("no such group", talk.name("none"), 0)
    look("no group", "", 0)
    move("while it is read", group, (0, 0))
    forget("while it is read", group, topic)
    ann.take("closed", -1, topics=[])
    ann.heartbeat("she leaves", -1)
    move("back", group, (0, 1))
    look("moved", group, 0)
    move("no such partition", group, (9, 0))
    move("no such topic", group, (0, 0), name=talk.name("none"))
    move("no such group", talk.name("none"), (0, 0))
    move("no group", "", (0, 0))
    forget("no such topic", group, talk.name("none"))
    forget("no such group", talk.name("none"), topic)
    forget("no group", "", topic)
    forget("nothing", group)
    forget("the topic", group, topic)
    look("forgotten", group, 0)
    talk.ask("DeleteGroups", "deleted", groups_names=[group])
