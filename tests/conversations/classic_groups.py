"""Conversations about classic groups, whose members assign the partitions, and about committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations.running import conversation
from conversations.talk import Talk, steps
from server.raw_client import RawClient

STRANGE_ID = bytes(range(16))
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06events\xff\xff\xff\xff\x00\x00\x00\x00"
MEMBERSHIP = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "DescribeGroups")


class Member:
    """A member of a classic group, on a connection of its own."""

    def __init__(self, talk: Talk, group: str, who: str, instance_id: str | None = None) -> None:
        self.talk = talk
        self.group = group
        self.who = who
        self.instance_id = instance_id
        self.link: RawClient = talk.link()
        self.member_id = ""
        self.generation = -1

    def fields(self, **changes: Any) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
            **changes,
        }

    def join(self, **changes: Any) -> Any:
        """With KIP-394 the first answer is an id, with which it joins again."""
        answer = self.talk.ask("JoinGroup", f"{self.who} joins", on=self.link, **self.fields(**changes))
        if answer.error_code == 79:
            self.member_id = answer.member_id
            answer = self.talk.ask("JoinGroup", f"{self.who} joins with its id", on=self.link, **self.fields(**changes))
        return self._joined(answer)

    def begin_join(self, **changes: Any) -> Any:
        """Join where others have to join again first: what is returned waits for the answer."""
        if self.talk.version("JoinGroup") >= 4 and not self.member_id and self.instance_id is None:
            first = self.talk.ask("JoinGroup", f"{self.who} asks for an id", on=self.link, **self.fields(**changes))
            self.member_id = first.member_id
        end = self.talk.begin("JoinGroup", on=self.link, **self.fields(**changes))
        return lambda: self._joined(end(f"{self.who} joins"))

    def _joined(self, answer: Any) -> Any:
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, step: str = "", **changes: Any) -> Any:
        given = [{"member_id": member, "assignment": bytes_} for member, bytes_ in (assignments or {}).items()]
        fields = {**self._known(), "protocol_type": "consumer", "protocol_name": "range", "assignments": given}
        return self.talk.ask("SyncGroup", step or f"{self.who} syncs", on=self.link, **{**fields, **changes})

    def heartbeat(self, step: str = "", **changes: Any) -> Any:
        return self.talk.ask("Heartbeat", step or f"{self.who} reports", on=self.link, **{**self._known(), **changes})

    def leave(self, step: str = "", **changes: Any) -> Any:
        identity = {"member_id": self.member_id, "group_instance_id": self.instance_id, **changes}
        fields = {"group_id": self.group, "member_id": identity["member_id"], "members": [identity]}
        return self.talk.ask("LeaveGroup", step or f"{self.who} leaves", on=self.link, **fields)

    def _known(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }


@conversation(*MEMBERSHIP)
def two_members_of_a_classic_group(talk: Talk) -> None:
    group = talk.name("readers")
    ann, ben = Member(talk, group, "ann"), Member(talk, group, "ben")
    ann.join()
    ann.heartbeat("ann reports before the sync")
    talk.ask("DescribeGroups", "not assigned yet", groups=[group], include_authorized_operations=True)
    ann.sync({ann.member_id: b"all"})
    ann.heartbeat()
    talk.ask("DescribeGroups", "stable", groups=[group], include_authorized_operations=True)
    end = ben.begin_join()
    talk.until(
        lambda: talk.quiet("Heartbeat", group_id=group, generation_id=ann.generation, member_id=ann.member_id),
        lambda answer: bool(answer.error_code),
    )
    ann.heartbeat("ann is told of a rebalance")
    ann.join()
    end()
    ann.sync({ann.member_id: b"half", ben.member_id: b"other half"})
    ben.sync()
    ben.heartbeat()
    for step, changes in steps(
        {
            "an old generation": {"generation_id": 1},
            "a generation of tomorrow": {"generation_id": 9},
            "an unknown member": {"member_id": "nobody"},
            "no member": {"member_id": ""},
            "another group": {"group_id": talk.name("none")},
            "no group": {"group_id": ""},
            "a static member that is none": {"group_instance_id": "i"},
        }
    ):
        ann.heartbeat(f"{step} reports", **changes)
        ann.sync(None, f"{step} syncs", **changes)
    ann.sync(None, "another protocol", protocol_name="roundrobin")
    ann.sync(None, "another kind of protocol", protocol_type="connect")
    ben.leave("ben leaves as nobody", member_id="nobody")
    ben.leave()
    ben.leave("ben leaves again")
    ben.heartbeat("ben reports after that")
    ann.leave()
    talk.ask("DescribeGroups", "empty", groups=[group], include_authorized_operations=True)


@conversation(*MEMBERSHIP)
def joins_that_are_refused(talk: Talk) -> None:
    group = talk.name("readers")
    ann, ben = Member(talk, group, "ann"), Member(talk, group, "ben")
    for step, changes in steps(
        {
            "a short session": {"session_timeout_ms": 10},
            "a long session": {"session_timeout_ms": 100_000_000},
            "no group": {"group_id": ""},
            "an unknown member": {"member_id": "nobody"},
            "no protocols": {"protocols": []},
            "no kind of protocol": {"protocol_type": ""},
        }
    ):
        talk.ask("JoinGroup", step, on=ann.link, **ann.fields(**changes))
    ann.join()
    ann.sync({ann.member_id: b"all"})
    for step, changes in steps(
        {
            "another kind of protocol": {"protocol_type": "connect"},
            "no common protocol": {"protocols": [{"name": "roundrobin", "metadata": b""}]},
            "no protocols in a group": {"protocols": []},
        }
    ):
        talk.ask("JoinGroup", step, on=ben.link, **ben.fields(**changes))
    groups = [group, talk.name("none"), ""]
    talk.ask("DescribeGroups", "some", groups=groups)
    talk.ask("DescribeGroups", "twice", groups=[group, group])
    talk.ask("DescribeGroups", "nothing", groups=[])
    ann.leave()


@conversation("JoinGroup")
def rebalance_timeouts_of_a_group(talk: Talk) -> None:
    for timeout_ms in (1000, 0, -1, -5):
        member = Member(talk, talk.name(f"timeout{timeout_ms}"), f"{timeout_ms}")
        member.join(rebalance_timeout_ms=timeout_ms)


@conversation(*MEMBERSHIP)
def static_members_of_a_classic_group(talk: Talk) -> None:
    if talk.version("JoinGroup") < 5:
        return
    group = talk.name("readers")
    ann = Member(talk, group, "ann", "first")
    ann.join()
    ann.sync({ann.member_id: b"all"})
    ann.heartbeat()
    again = Member(talk, group, "ann again", "first")
    again.join()
    again.sync({again.member_id: b"all of it"})
    ann.heartbeat("the one before reports")
    ann.sync(None, "the one before syncs")
    ann.leave("the one before leaves")
    again.heartbeat()
    talk.ask("DescribeGroups", "one static member", groups=[group])
    for step, identities in steps(
        {
            "nobody leaves": [{"member_id": "", "group_instance_id": "nobody"}],
            "nobody and she leave": [
                {"member_id": "nobody", "group_instance_id": None},
                {"member_id": "", "group_instance_id": "first"},
            ],
            "from no group": [{"member_id": "", "group_instance_id": "first"}],
        }
    ):
        of = talk.name("none") if step == "from no group" else group
        talk.ask("LeaveGroup", step, group_id=of, member_id="", members=identities)


def committed(topic: str, topic_id: bytes, *partitions: tuple[int, int], metadata: str | None = "m") -> list[Any]:
    """(number, offset) of each partition of a topic, to commit."""
    rows = [
        {"partition_index": number, "committed_offset": at, "committed_metadata": metadata} for number, at in partitions
    ]
    return [{"name": topic, "topic_id": topic_id, "partitions": rows}]


def look_at_offsets(
    talk: Talk,
    step: str,
    group: str,
    topics: list[tuple[str, bytes, list[int]]] | None,
    *,
    require_stable: bool = False,
    **member: Any,
) -> None:
    """OffsetFetch, in whichever form the version has."""
    named = (
        None
        if topics is None
        else [{"name": name, "topic_id": topic_id, "partition_indexes": numbers} for name, topic_id, numbers in topics]
    )
    old = None if topics is None else [{"name": name, "partition_indexes": numbers} for name, _, numbers in topics]
    fields: dict[str, Any] = {
        "group_id": group,
        "topics": old,
        "groups": [{"group_id": group, "topics": named, **member}],
    }
    talk.ask("OffsetFetch", step, require_stable=require_stable, **fields)


@conversation("OffsetCommit", "OffsetFetch")
def offsets_without_a_member(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.name("readers")
    own = talk.ids["orders"]

    def commit(step: str, topics: list[Any], of: str = group, **more: Any) -> None:
        talk.ask("OffsetCommit", step, group_id=of, topics=topics, **more)

    all_of_it = [(topic, own, [0, 1, 9])]
    look_at_offsets(talk, "before there is a group", group, all_of_it)
    commit("one", committed(topic, own, (0, 5)))
    commit("without metadata", committed(topic, own, (1, 7), metadata=None))
    commit("no such partition", committed(topic, own, (9, 7)))
    commit("no such topic", committed(talk.name("none"), STRANGE_ID, (0, 7)))
    commit("some", committed(topic, own, (0, 6)) + committed(talk.name("none"), STRANGE_ID, (0, 7)))
    commit("much metadata", committed(topic, own, (0, 7), metadata="x" * 5000))
    commit("a negative offset", committed(topic, own, (0, -1)))
    commit("nothing", [])
    commit("no group", committed(topic, own, (0, 7)), of="")
    commit("a generation", committed(topic, own, (0, 7)), generation_id_or_member_epoch=1)
    commit("a member", committed(topic, own, (0, 7)), generation_id_or_member_epoch=1, member_id="nobody")
    commit("a member, no generation", committed(topic, own, (0, 7)), member_id="nobody")
    commit(
        "a static member",
        committed(topic, own, (0, 7)),
        group_instance_id="i",
        member_id="nobody",
        generation_id_or_member_epoch=1,
    )
    commit("a group that is not", committed(topic, own, (0, 7)), of=talk.name("new"), generation_id_or_member_epoch=3)
    look_at_offsets(talk, "some of them", group, all_of_it)
    look_at_offsets(talk, "no such topic", group, [(talk.name("none"), STRANGE_ID, [0])])
    look_at_offsets(talk, "no group", "", all_of_it)
    look_at_offsets(talk, "another group", talk.name("none"), all_of_it)
    look_at_offsets(talk, "no partitions", group, [(topic, own, [])])
    if talk.version("OffsetFetch") >= 2:
        look_at_offsets(talk, "all", group, None)
        look_at_offsets(talk, "all of another group", talk.name("none"), None)
    look_at_offsets(talk, "as a member", group, all_of_it, member_id="nobody", member_epoch=1)


@conversation("OffsetCommit", "OffsetFetch")
def offsets_of_a_member(talk: Talk) -> None:
    topic, group = talk.topic(), talk.name("readers")
    own = talk.ids["orders"]
    ann = Member(talk, group, "ann")
    ann.join()
    topics = committed(topic, own, (0, 3))

    def commit(step: str, generation: int, member_id: str, **more: Any) -> None:
        fields = {"generation_id_or_member_epoch": generation, "member_id": member_id, **more}
        talk.ask("OffsetCommit", step, group_id=group, topics=topics, **fields)

    commit("before the sync", 1, ann.member_id)
    ann.sync({ann.member_id: b"all"})
    commit("by her", 1, ann.member_id)
    commit("an old generation", 0, ann.member_id)
    commit("a later generation", 2, ann.member_id)
    commit("nobody", 1, "nobody")
    commit("without a member", -1, "")
    commit("as a static member", 1, ann.member_id, group_instance_id="i")
    look_at_offsets(talk, "by epoch", group, [(topic, own, [0])], member_id=ann.member_id, member_epoch=1)
    ann.leave()


@conversation("ListGroups")
def groups_are_listed(talk: Talk) -> None:
    topic = talk.topic()
    ann = Member(talk, talk.name("readers"), "ann")
    ann.join()
    ann.sync({ann.member_id: b"all"})
    offsets = committed(topic, talk.ids["orders"], (0, 3))
    talk.quiet("OffsetCommit", group_id=talk.name("only-offsets"), topics=offsets)
    for states, types in (
        ([], []), (["Stable"], []), (["stable"], []), (["Empty"], []), (["Sleeping"], []), ([], ["classic"]),
        ([], ["Classic"]), ([], ["consumer"]), ([], ["share"]), ([], ["odd"]), (["Stable"], ["classic"]),
        (["Dead", "Empty"], ["classic", "consumer"]),
    ):  # fmt: skip
        step = f"{'/'.join(states)} {'/'.join(types)}"
        talk.ask("ListGroups", step, mine=True, states_filter=states, types_filter=types)
    ann.leave()


@conversation("DeleteGroups", "OffsetDelete")
def groups_and_offsets_are_deleted(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.name("readers")
    offsets = committed(topic, talk.ids["orders"], (0, 3), (1, 4))
    for name in (group, talk.name("gone")):
        talk.quiet("OffsetCommit", group_id=name, topics=offsets)
    ann = Member(talk, talk.name("busy"), "ann")
    ann.join(protocols=[{"name": "range", "metadata": subscription(topic)}])
    ann.sync({ann.member_id: b"all"})
    talk.quiet(
        "OffsetCommit", group_id=ann.group, topics=offsets, member_id=ann.member_id, generation_id_or_member_epoch=1
    )

    def forget(step: str, of: str, name: str, *partitions: int) -> None:
        rows = [{"partition_index": number} for number in partitions]
        talk.ask("OffsetDelete", step, group_id=of, topics=[{"name": name, "partitions": rows}])

    forget("one", group, topic, 0)
    forget("again", group, topic, 0)
    forget("some", group, topic, 1, 9)
    forget("no such topic", group, talk.name("none"), 0)
    forget("no such group", talk.name("none"), topic, 0)
    forget("no group", "", topic, 0)
    forget("of a group that reads it", ann.group, topic, 0)
    for step, names in {
        "one": [talk.name("gone")],
        "again": [talk.name("gone")],
        "some": [group, talk.name("none"), ann.group],
        "twice": [talk.name("none"), talk.name("none")],
        "no name": [""],
        "nothing": [],
    }.items():
        talk.ask("DeleteGroups", f"delete {step}", groups_names=names)
    ann.leave()
    talk.ask("DeleteGroups", "delete the last", groups_names=[ann.group])


def subscription(topic: str) -> bytes:
    """ConsumerProtocol: version 1, one topic, no user data, no owned partitions."""
    name = topic.encode()
    return b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\0\0\0\0"


def assignment(topic: str, *partitions: int) -> bytes:
    """ConsumerProtocol: version 1, partitions of one topic, no user data."""
    name = topic.encode()
    numbers = b"".join(number.to_bytes(4, "big") for number in (len(partitions), *partitions))
    return b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + numbers + b"\xff\xff\xff\xff"
