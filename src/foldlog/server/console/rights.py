"""What a route of the console asks of whoever uses it: an operation on a resource, as on the wire.

| what | on the wire |
| --- | --- |
| a topic or a group in a list, a topic's page | DESCRIBE of it |
| records | READ of the topic |
| a new record | WRITE of the topic |
| a rewind of a group | READ of the group and of the topic |
| a new topic | CREATE of the topic, or of the cluster |
| a topic's settings; more partitions, compaction; trimming, deleting | ALTER_CONFIGS; ALTER; DELETE of it |
| moving a whole group | READ of it; it moves in the topics that one may READ |
| deleting a group | DELETE of it |
| transactions, aborting one | DESCRIBE, WRITE of the transactional id |
| users and ACLs, changing them | DESCRIBE, ALTER of the cluster |
| a fold's state, its commands | DESCRIBE, READ of its group, `fold.NAME` |
| a look into a fold's view | READ of its group |
| a problem | DESCRIBE of the topic, group or fold that has it; of the cluster for the disk |
| rates and lags of the last hours | DESCRIBE of the topic, and of the group |
| the scene | READ, WRITE of its topic, `__log_or_queue` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from foldlog.broker.access.acls import CLUSTER_NAME, AclOperation, Identity, ResourceType
from foldlog.broker.topics.names import SCENE_TOPIC
from foldlog.server.authorizer import Authorizer
from foldlog.server.groups import address_in_acls
from foldlog.server.http.routes import HttpRequest

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
DESCRIBE: Final = AclOperation.DESCRIBE
_FOLD_GROUP: Final = "fold."


class Right(NamedTuple):
    """An operation on a resource."""

    operation: AclOperation
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} of {self.kind.name.lower()} {self.name!r}"


class OneOf(tuple[Right, ...]):
    """Rights of which one is enough."""

    __slots__ = ()

    def __str__(self) -> str:
        return " or ".join(map(str, self))


Asks = Callable[[HttpRequest], Sequence[Right | OneOf]]
"""The rights that a request needs, all of them."""


def of_topic(operation: AclOperation) -> Asks:
    return lambda request: [Right(operation, ResourceType.TOPIC, request.named["topic"])]


def of_group(operation: AclOperation) -> Asks:
    return lambda request: [Right(operation, ResourceType.GROUP, request.named["group"])]


def of_fold(operation: AclOperation) -> Asks:
    return lambda request: [Right(operation, ResourceType.GROUP, _FOLD_GROUP + request.named["fold"])]


def of_cluster(operation: AclOperation) -> Asks:
    return lambda _: [Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)]


def of_transaction(operation: AclOperation) -> Asks:
    return lambda request: [Right(operation, ResourceType.TRANSACTIONAL_ID, request.named["id"])]


def of_scene(operation: AclOperation) -> Asks:
    return lambda _: [Right(operation, ResourceType.TOPIC, SCENE_TOPIC)]


def nothing(_: HttpRequest) -> list[Right]:
    """For what says nothing about the log, and for lists, which hold what one may see."""
    return []


def identity_of(request: HttpRequest) -> Identity:
    return Identity(request.principal, address_in_acls(request.peer))


class Sight:
    """What one user may see of lists and events. Event loop, or any thread: the authorizer answers from memory."""

    def __init__(self, authorizer: Authorizer, who: Identity) -> None:
        self._authorizer = authorizer
        self._who = who
        self._told_problems: list[dict[str, Any]] | None = None

    def allows(self, right: Right) -> bool:
        return self._authorizer.allows(self._who, *right)

    def reads_topic(self, name: str) -> bool:
        return self.allows(Right(READ, ResourceType.TOPIC, name))

    def may(self, kind: ResourceType, name: str) -> list[str]:
        """What one may do with a topic or a group: the page offers nothing else."""
        offered = {
            ResourceType.TOPIC: (WRITE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DELETE),
            ResourceType.GROUP: (READ, AclOperation.DELETE),
        }
        return [one.name for one in offered[kind] if self.allows(Right(one, kind, name))]

    @property
    def creates_topics(self) -> bool:
        """Whether there is a name by which one may create a topic: otherwise the page does not offer it."""
        create = AclOperation.CREATE
        return self.allows(Right(create, ResourceType.CLUSTER, CLUSTER_NAME)) or self._authorizer.allows_some(
            self._who, create, ResourceType.TOPIC
        )

    def sees_transaction(self, name: str) -> bool:
        return self.allows(Right(DESCRIBE, ResourceType.TRANSACTIONAL_ID, name))

    def sees_topic(self, name: str) -> bool:
        return self.allows(Right(DESCRIBE, ResourceType.TOPIC, name))

    def sees_group(self, name: str) -> bool:
        return self.allows(Right(DESCRIBE, ResourceType.GROUP, name))

    def sees_fold(self, name: str) -> bool:
        return self.sees_group(_FOLD_GROUP + name)

    def of_group(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group without what it does with topics that one may not see."""
        seen = {**group, "cursors": [one for one in group["cursors"] if self.sees_topic(one["topic"])]}
        members = group.get("members")
        if isinstance(members, list):
            seen["members"] = [self._of_member(one) for one in members]
        return seen

    def _of_member(self, member: dict[str, Any]) -> dict[str, Any]:
        kept = {
            name: [one for one in member[name] if self.sees_topic(one["topic"])]
            for name in ("assignment", "target")
            if isinstance(member.get(name), list)
        }
        return {**member, **kept}

    @property
    def is_operator(self) -> bool:
        """Whether one may describe the cluster: paths, the disk and the process are for who runs the broker."""
        return self.allows(Right(DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME))

    def of_problems(self, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The problems of what one may describe. A command with a path is for operators."""
        sees = {"fold": self.sees_fold, "group": self.sees_group, "topic": self.sees_topic}
        is_operator = self.is_operator
        seen = [one for one in problems if sees.get(one["resource"], lambda _: is_operator)(one["name"])]
        return [one if is_operator or one["resource"] != "topic" else {**one, "command": None} for one in seen]

    def of_history(self, found: dict[str, Any]) -> dict[str, Any]:
        """Rates and lags of what one may describe."""
        groups = {
            group: {topic: lags for topic, lags in topics.items() if self.sees_topic(topic)}
            for group, topics in found["groups"].items()
            if self.sees_group(group)
        }
        return {
            **found,
            "topics": {topic: one for topic, one in found["topics"].items() if self.sees_topic(topic)},
            "groups": groups,
            "disk_free": found["disk_free"] if self.is_operator else None,
        }

    def of_event(self, event: str, data: Any) -> Any:
        """What of an event one may see; None if nothing."""
        if event in ("ends", "rates"):
            return {topic: one for topic, one in data.items() if self.sees_topic(topic)} or None
        if event == "groups":
            return [self.of_group(one) for one in data if self.sees_group(one["group"])] or None
        if event == "folds":
            return [one for one in data if self.sees_fold(one["fold"])] or None
        if event == "problems":
            seen, before = self.of_problems(data), self._told_problems
            self._told_problems = seen
            return None if seen == before else seen  # nor does one learn that others have problems
        return data
