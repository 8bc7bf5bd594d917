"""Conversations about consumer groups, whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from typing import Any

from conversations.classic_groups import Member, assignment, committed, look_at_offsets, subscription
from conversations.running import conversation
from conversations.talk import Talk, steps

HEARTBEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"


class Modern:
    """A member of a consumer group: it says what it is told to say, and follows the epochs that it is given."""

    def __init__(self, talk: Talk, group: str, who: str, *topics: str, **also: Any) -> None:
        self.talk = talk
        self.group = group
        self.who = who
        self.topics = topics
        self.also = also
        # In version 0 the broker makes up the id.
        self.member_id = who if talk.version(HEARTBEAT) else ""
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []

    def join(self, step: str = "", **changes: Any) -> Any:
        fields = {
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": list(self.topics),
            "topic_partitions": [],
            "member_epoch": 0,
            **self.also,
            **changes,
        }
        return self.report(step or f"{self.who} joins", **fields)

    def report(self, step: str = "", **fields: Any) -> Any:
        sent: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            **fields,
        }
        answer = self.talk.ask(HEARTBEAT, step or f"{self.who} reports", **sent)
        if not answer.error_code:
            self.member_id, self.epoch = answer.member_id or self.member_id, answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    {"topic_id": bytes(one.topic_id), "partitions": list(one.partitions)}
                    for one in answer.assignment.topic_partitions
                ]
        return answer

    def report_owned(self, step: str = "") -> Any:
        return self.report(step or f"{self.who} has them", topic_partitions=self.owned)


def described(talk: Talk, step: str, *groups: str) -> None:
    talk.ask(DESCRIBE, step, group_ids=groups, include_authorized_operations=True)


@conversation(HEARTBEAT, DESCRIBE)
def a_member_of_a_consumer_group(talk: Talk) -> None:
    topic, group = talk.shared_topic(partitions=3), talk.name("readers")
    ann = Modern(talk, group, "ann", topic)
    ann.join()
    described(talk, "joined", group)
    ann.report_owned()
    ann.report("nothing new")
    described(talk, "reconciled", group)
    talk.ask("ListGroups", "listed", mine=True)
    talk.ask("DescribeGroups", "as a classic one", groups=[group])
    ann.report("she subscribes to nothing", subscribed_topic_names=[])
    ann.report_owned("she has nothing")
    ann.report("she subscribes again", subscribed_topic_names=[topic, talk.name("none")])
    ann.report("she leaves", member_epoch=-1)
    ann.report("after that", member_epoch=5)
    described(talk, "empty", group)
    described(talk, "none", talk.name("none"), "")
    described(talk, "nothing")
    talk.ask("DeleteGroups", "deleted", groups_names=[group])
    described(talk, "deleted", group)


@conversation(HEARTBEAT)
def two_members_of_a_consumer_group(talk: Talk) -> None:
    topic, group = talk.shared_topic(partitions=4), talk.name("readers")
    ann, ben = Modern(talk, group, "ann", topic), Modern(talk, group, "ben", topic)
    ann.join()
    ann.report_owned()
    ben.join()
    described(talk, "the second has to wait", group)
    ann.report("she is told to give back")
    described(talk, "revoking", group)
    ben.report("he waits")
    ann.report_owned("she gave back")
    ben.report("he is given his")
    ben.report_owned("he has them")
    described(talk, "both read", group)
    ann.report("she leaves", member_epoch=-1)
    ben.report("he is given all")
    ben.report_owned("he has all")
    described(talk, "one reads", group)


@conversation(HEARTBEAT)
def heartbeats_that_are_refused(talk: Talk) -> None:
    topic, group = talk.shared_topic(), talk.name("readers")
    for step, fields in steps(
        {
            "no group": {"group_id": ""},
            "blank group": {"group_id": "  "},
            "no timeout": {"rebalance_timeout_ms": -1},
            "a timeout of zero": {"rebalance_timeout_ms": 0},
            "no topics": {"subscribed_topic_names": None},
            "no partitions": {"topic_partitions": None},
            "partitions at once": {"topic_partitions": [{"topic_id": talk.ids["orders"], "partitions": [0]}]},
            "an assignor that is not": {"server_assignor": "magic"},
            "an empty instance": {"instance_id": ""},
            "an empty rack": {"rack_id": ""},
            "an epoch in no group": {"member_epoch": 3},
            "leaves no group": {"member_epoch": -1},
            "a static one leaves no group": {"member_epoch": -2, "instance_id": "i"},
            "an odd epoch": {"member_epoch": -9},
        }
    ):
        Modern(talk, group, "ann", topic).join(step, **fields)
    ann = Modern(talk, group, "ann", topic)
    ann.join()
    ann.report("she subscribes to more", subscribed_topic_names=[topic, talk.name("none")])
    ann.report_owned()
    strange = [{"topic_id": talk.ids["orders"], "partitions": [7]}]
    for step, fields in steps(
        {
            "an epoch of tomorrow": {"member_epoch": ann.epoch + 5},
            "an unknown member": {"member_id": "nobody"},
            "no member": {"member_id": ""},
            "another group": {"group_id": talk.name("none")},
            "an older epoch with other partitions": {"member_epoch": ann.epoch - 1, "topic_partitions": strange},
            "an assignor that is not": {"server_assignor": "magic"},
            "an empty instance": {"instance_id": ""},
            "a static leave without an instance": {"member_epoch": -2},
        }
    ):
        sent: dict[str, Any] = {"group_id": group, "member_id": ann.member_id, "member_epoch": ann.epoch, **fields}
        talk.ask(HEARTBEAT, f"later: {step}", **sent)
    ann.join("she joins again with her id")
    ann.report("she leaves", member_epoch=-1)


@conversation(HEARTBEAT, DESCRIBE)
def static_members_of_a_consumer_group(talk: Talk) -> None:
    topic, group = talk.shared_topic(partitions=2), talk.name("readers")
    ann = Modern(talk, group, "ann", topic, instance_id="first")
    ann.join()
    ann.report_owned()
    other = Modern(talk, group, "other", topic, instance_id="first")
    other.join("another with her name")
    ann.report("she goes for a moment", member_epoch=-2, instance_id="first")
    described(talk, "she is away", group)
    other.join("her successor")
    other.report_owned("he has hers")
    described(talk, "he is there", group)
    ann.report("she comes back as she was", member_epoch=1, instance_id="first")
    other.report("he leaves for good", member_epoch=-1, instance_id="first")
    described(talk, "nobody is there", group)


@conversation(HEARTBEAT, DESCRIBE)
def subscriptions_by_regular_expression(talk: Talk) -> None:
    if talk.version(HEARTBEAT) < 1:
        return
    talk.shared_topic("a1"), talk.shared_topic("a2", partitions=2), talk.shared_topic("b1")
    group = talk.name("readers")
    own = talk.names.prefix.replace(".", "[.]")
    ann = Modern(talk, group, "ann")
    for step, regex in (("unclosed", "("), ("a lookahead", "(?=a)a"), ("a class", "[")):
        ann.join(step, subscribed_topic_regex=regex, subscribed_topic_names=None)
    ann.join("she joins", subscribed_topic_regex=f"{own}a.*", subscribed_topic_names=None)
    settled(talk, ann, 3)
    described(talk, "matched", group)
    ann.report("another", subscribed_topic_regex=f"{own}b1")
    settled(talk, ann, 1)
    described(talk, "matched another", group)
    ann.report("none", subscribed_topic_regex="")
    settled(talk, ann, 0)
    described(talk, "matched none", group)
    ann.report("she leaves", member_epoch=-1)


def settled(talk: Talk, member: Modern, partitions: int) -> None:
    """Kafka matches expressions some time after the heartbeat: report until the member has what it will have."""

    def report() -> int:
        sent: dict[str, Any] = {"group_id": member.group, "member_id": member.member_id, "member_epoch": member.epoch}
        answer = talk.quiet(HEARTBEAT, **sent, topic_partitions=member.owned)
        assert not answer.error_code, answer
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.owned = [
                {"topic_id": bytes(one.topic_id), "partitions": list(one.partitions)}
                for one in answer.assignment.topic_partitions
            ]
        return sum(len(one["partitions"]) for one in member.owned)

    talk.until(report, lambda count: count == partitions)
    report()


@conversation(HEARTBEAT)
def assignors_of_consumer_groups(talk: Talk) -> None:
    one, two = talk.shared_topic("one", partitions=3), talk.shared_topic("two", partitions=3)
    for assignor in ("uniform", "range", None):
        group = talk.name(f"by-{assignor}")
        ann = Modern(talk, group, "ann", one, two, server_assignor=assignor)
        ann.join(f"{assignor}: she joins")
        ann.report_owned(f"{assignor}: she has them")
        described(talk, f"{assignor}: described", group)
        ann.report(f"{assignor}: she leaves", member_epoch=-1)


@conversation("OffsetCommit", "OffsetFetch")
def offsets_of_consumer_groups(talk: Talk) -> None:
    topic, group = talk.shared_topic(partitions=2), talk.name("readers")
    own = talk.ids["orders"]
    ann = Modern(talk, group, "ann", topic)
    ann.join()
    ann.report_owned()

    def commit(step: str, epoch: int, member_id: str, number: int = 0) -> None:
        topics = committed(topic, own, (number, 3))
        talk.ask(
            "OffsetCommit",
            step,
            group_id=group,
            topics=topics,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
        )

    commit("by her", ann.epoch, ann.member_id)
    commit("an older epoch", ann.epoch - 1, ann.member_id)
    commit("a later epoch", ann.epoch + 1, ann.member_id)
    commit("nobody", ann.epoch, "nobody")
    commit("without a member", -1, "")
    for step, member_id, epoch in (
        ("by her", ann.member_id, ann.epoch),
        ("an older epoch", ann.member_id, ann.epoch - 1),
        ("a later epoch", ann.member_id, ann.epoch + 1),
        ("nobody", "nobody", ann.epoch),
        ("without a member", None, -1),
    ):
        look_at_offsets(talk, f"read {step}", group, [(topic, own, [0, 1])], member_id=member_id, member_epoch=epoch)
    rows = [{"partition_index": 0}]
    talk.ask("OffsetDelete", "of a topic that is read", group_id=group, topics=[{"name": topic, "partitions": rows}])
    talk.ask("DeleteGroups", "with members", groups_names=[group])
    ann.report("she leaves", member_epoch=-1)
    commit("after she left", ann.epoch, ann.member_id)
    talk.ask("OffsetDelete", "of an empty group", group_id=group, topics=[{"name": topic, "partitions": rows}])


@conversation(HEARTBEAT, DESCRIBE)
def a_group_changes_its_protocol(talk: Talk) -> None:
    topic, group = talk.shared_topic(partitions=2), talk.name("readers")
    ann = Member(talk, group, "ann")
    ann.join(protocols=[{"name": "range", "metadata": subscription(topic)}])
    ann.sync({ann.member_id: assignment(topic, 0)})
    ben = Modern(talk, group, "ben", topic)
    ben.join("a modern one joins")
    described(talk, "both", group)
    talk.ask("ListGroups", "listed", mine=True)
    ben.report("he leaves", member_epoch=-1)
    talk.ask("DescribeGroups", "classic again", groups=[group])
    ann.leave()


@conversation(HEARTBEAT)
def an_empty_group_changes_its_protocol(talk: Talk) -> None:
    topic, group = talk.shared_topic(), talk.name("readers")
    talk.quiet("OffsetCommit", group_id=group, topics=committed(topic, talk.ids["orders"], (0, 3)))
    ann = Modern(talk, group, "ann", topic)
    ann.join("a modern one in a group of offsets")
    ben = Member(talk, group, "ben")
    talk.ask("JoinGroup", "a classic one beside it", on=ben.link, **ben.fields(member_id="nobody"))
    talk.ask("Heartbeat", "a classic heartbeat", group_id=group, generation_id=1, member_id=ann.member_id)
    talk.ask("SyncGroup", "a classic sync", group_id=group, generation_id=1, member_id=ann.member_id)
    identity = [{"member_id": "nobody"}]
    talk.ask("LeaveGroup", "a stranger leaves", group_id=group, members=identity)
    talk.ask("LeaveGroup", "she leaves the classic way", group_id=group, members=[{"member_id": ann.member_id}])
    talk.ask("ListGroups", "listed", mine=True)
