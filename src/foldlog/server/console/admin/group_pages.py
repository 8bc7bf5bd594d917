"""Groups in the console: move a whole one to a place, with what that means for each partition, and delete one."""

from __future__ import annotations

from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from foldlog.broker.access.acls import AclOperation
from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.broker.groups.messages import GroupType
from foldlog.client.descriptions import assigned_partitions, full_name
from foldlog.client.places import PlaceSpec, parse_points, resolve
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.groups import commit_moves, known_group, refuse_fold
from foldlog.server.console.parameters import JsonBody
from foldlog.server.console.records import OpenedTopic
from foldlog.server.console.rights import READ, Sight, identity_of, of_group
from foldlog.server.console.topics import open_partition
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.topic_admin import refuse_if_leaving

if TYPE_CHECKING:
    from foldlog.broker.groups.messages import GroupSummary
    from foldlog.server.node import BrokerNode


class GroupPages:
    """The handlers for changes of groups of one console. Event loop only."""

    def __init__(self, node: BrokerNode, workers: Executor) -> None:
        self._node = node
        self._workers = workers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("POST", "/api/groups/{group}/reset", self.reset, of_group(READ)),
            HttpRoute("POST", "/api/groups/{group}/delete", self.delete, of_group(AclOperation.DELETE)),
        ]

    async def reset(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        to, zone, topics = body.text("to"), body.text("zone", default=""), body.texts("topics")
        evict, dry_run = body.boolean("evict", False), body.boolean("dry_run", False)
        body.end()
        refuse_if_leaving(self._node)
        group, sight = request.named["group"], Sight(self._node.authorizer, identity_of(request))
        spec = parse_points(to, zone=zone or None, now_ms=self._node.clock.now_ms())

        def move() -> HttpResponse:
            description = known_group(self._node.broker, group)
            refuse_fold(group)
            chosen = self._partitions(description, topics, sight)
            moves = self._moves(group, spec, chosen)
            evicted = [] if dry_run else self._carry_out(description, moves, evict=evict)
            return HttpResponse.json(
                {
                    "moves": moves,
                    "read_again": sum(one["again"] for one in moves),
                    "skipped": sum(one["skipped"] for one in moves),
                    "members": [
                        full_name(one.group_instance_id, one.client_id, one.member_id) for one in description.members
                    ],
                    "evicted": evicted,
                    "note": spec.note,
                    "is_done": not dry_run,
                }
            )

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, move)
        return response

    def _partitions(
        self, description: GroupSummary, topics: list[str] | None, sight: Sight
    ) -> dict[str, dict[int, int | None]]:
        """Where the group is, by topic and partition; in topics that are named, every partition. Only in topics that
        one may read: of the others one does not even learn that there are any."""
        broker, group = self._node.broker, description.group
        if description.group_type is GroupType.SHARE:
            committed: dict[tuple[str, int], int | None] = {
                one: start for one, (start, _) in broker.share_offsets(group).items()
            }
        else:
            committed = {one: at.offset for one, at in broker.committed(group).items()}
        chosen: dict[tuple[str, int], int | None] = dict.fromkeys(assigned_partitions(description))
        chosen |= committed
        if topics is not None:
            named = {topic: broker.topic(topic) for topic in topics if sight.reads_topic(topic)}
            every = [(topic, number) for topic, known in named.items() for number in range(known.partition_count)]
            chosen = {one: committed.get(one) for one in every}
        found: dict[str, dict[int, int | None]] = {}
        for (topic, number), at in sorted(chosen.items()):
            if sight.reads_topic(topic) and broker.find_topic(topic) is not None:
                found.setdefault(topic, {})[number] = at
        if not found:
            raise ApiError(
                HTTPStatus.CONFLICT, f"group {group!r} has committed nothing that could be moved; name topics for it"
            )
        return found

    def _moves(self, group: str, spec: PlaceSpec, chosen: dict[str, dict[int, int | None]]) -> list[dict[str, Any]]:
        moves: list[dict[str, Any]] = []
        for topic, numbers in chosen.items():
            opened = OpenedTopic(self._node.broker, topic)
            bounds = {number: at for number, at in opened.offsets(topic).items() if number in numbers}
            for number, span in resolve(spec, opened, topic, bounds=bounds, now_ms=self._node.clock.now_ms()).items():
                (start, end), before = bounds[number], numbers[number]
                to = min(max(start, span.start), end)
                moves.append(
                    {
                        "topic": topic,
                        "partition": number,
                        "from": before,
                        "to": to,
                        "again": max(0, min(before or 0, end) - to),
                        "skipped": 0 if before is None else max(0, to - max(before, start)),
                        "start": start,
                        "end": end,
                    }
                )
        return moves

    def _carry_out(self, description: GroupSummary, moves: list[dict[str, Any]], *, evict: bool) -> list[str]:
        broker, group = self._node.broker, description.group
        if description.group_type is GroupType.SHARE:
            broker.move_share_group(group, {(one["topic"], one["partition"]): one["to"] for one in moves})
            return []
        offsets = {
            (one["topic"], one["partition"]): OffsetAndMetadata(
                one["to"], open_partition(broker, one["topic"], one["partition"]).leader_epoch
            )
            for one in moves
        }
        return commit_moves(broker, group, offsets, evict)

    async def delete(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        dry_run = body.boolean("dry_run", False)
        body.end()
        refuse_if_leaving(self._node)
        group, broker = request.named["group"], self._node.broker
        sight = Sight(self._node.authorizer, identity_of(request))

        def forget() -> HttpResponse:
            description = known_group(broker, group)
            commits = [
                {"topic": topic, "partition": number, "offset": at.offset}
                for (topic, number), at in sorted(broker.committed(group).items())
                if sight.sees_topic(topic)
            ]
            members = [full_name(one.group_instance_id, one.client_id, one.member_id) for one in description.members]
            if not dry_run:
                broker.delete_group(group)
            return HttpResponse.json({"commits": commits, "members": members, "is_done": not dry_run})

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, forget)
        return response
