"""Topics in the console: make, alter, grow, trim, compact and delete one. With `dry_run` each only says what it would
do. The rules are those of the requests that Kafka's clients send."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from foldlog.broker.access.acls import CLUSTER_NAME, AclOperation, ResourceType
from foldlog.broker.topics.changes import NewTopic
from foldlog.broker.topics.config import TopicConfig
from foldlog.broker.topics.names import OwnTopicChange, check_topic_name, check_user_topic_name
from foldlog.client.places import parse_points, resolve
from foldlog.errors import FoldlogError, InvalidArgument, InvalidConfig
from foldlog.server.console.api_errors import ApiError
from foldlog.server.console.parameters import JsonBody, bad_request
from foldlog.server.console.records import OpenedTopic
from foldlog.server.console.rights import OneOf, Right, Sight, identity_of, of_topic
from foldlog.server.console.topics import open_partition
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.topic_admin import check_partitions_max, partition_count, refuse_if_leaving, refuse_own

if TYPE_CHECKING:
    from foldlog.server.node import BrokerNode


class TopicPages:
    """The handlers for changes of topics of one console. Event loop only."""

    def __init__(self, node: BrokerNode, workers: Executor) -> None:
        self._node = node
        self._workers = workers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("POST", "/api/topics", self.create, _rights_of_creation),
            HttpRoute("POST", "/api/topics/{topic}/configs", self.alter, of_topic(AclOperation.ALTER_CONFIGS)),
            HttpRoute("POST", "/api/topics/{topic}/partitions", self.grow, of_topic(AclOperation.ALTER)),
            HttpRoute("POST", "/api/topics/{topic}/trim", self.trim, of_topic(AclOperation.DELETE)),
            HttpRoute("POST", "/api/topics/{topic}/compact", self.compact, of_topic(AclOperation.ALTER)),
            HttpRoute("POST", "/api/topics/{topic}/delete", self.delete, of_topic(AclOperation.DELETE)),
        ]

    async def _run(self, change: Callable[[], Any]) -> HttpResponse:
        refuse_if_leaving(self._node)
        response: HttpResponse = await self._node.loop.run_in_executor(
            self._workers, lambda: HttpResponse.json(change())
        )
        return response

    async def create(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        name, partitions = body.text("name"), body.integer("partitions", 1, default=-1)
        settings, dry_run = body.settings("config"), body.boolean("dry_run", False)
        body.end()
        node = self._node
        if None in settings.values():
            raise InvalidConfig("a new topic has nothing to reset; leave out settings without a value")
        given = {one: value for one, value in settings.items() if value is not None}
        count = partition_count(partitions, node.settings.num_partitions)
        config = TopicConfig.parse(given).with_defaults(node.settings.topic_defaults)
        plan = NewTopic(check_user_topic_name(name), count, config)
        refusal = node.fold_guard.creation_refusal(name, count, config.settings)
        if refusal is not None:
            raise ApiError(HTTPStatus.BAD_REQUEST, refusal)

        def make() -> dict[str, Any]:
            (failed,) = node.broker.check_new_topics([plan])
            if failed is not None:
                raise failed
            if not dry_run:
                node.quotas.console_mutations(identity_of(request)).take(count)
                (made,) = node.broker.create_topics([plan])
                if isinstance(made, FoldlogError):
                    raise made
            return {"topic": name, "partitions": count, "config": dict(config.settings), "is_done": not dry_run}

        return await self._run(make)

    async def alter(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        changes, dry_run = body.settings("set"), body.boolean("dry_run", False)
        body.end()
        name = self._checked(request, OwnTopicChange.ALTER)
        if not changes:
            raise bad_request('nothing is to change; set is an object, as {"retention.ms": "1000"}')

        def change() -> dict[str, Any]:
            before = self._node.broker.topic(name).config.effective()
            found = self._node.broker.configure_topic(
                name, lambda config: config.with_changes(changes), validate_only=dry_run
            )
            after = found.config.effective()
            moved = [
                {"name": one, "from": before.get(one), "to": after.get(one)}
                for one in sorted({*before, *after})
                if before.get(one) != after.get(one)
            ]
            return {"changes": moved, "is_done": not dry_run}

        return await self._run(change)

    async def grow(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        count, dry_run = body.integer("count", 1), body.boolean("dry_run", False)
        body.end()
        name = self._checked(request, OwnTopicChange.GROW)
        check_partitions_max(count)

        def change() -> dict[str, Any]:
            before = self._node.broker.topic(name).partition_count
            if count <= before:
                raise InvalidArgument(
                    f"topic {name!r} has {before} partitions, so {count} would not be more; ask for more than {before}"
                )
            if not dry_run:
                self._node.quotas.console_mutations(identity_of(request)).take(count - before)
                self._node.broker.grow_topic(name, count)
            return {"from": before, "to": count, "is_done": not dry_run}

        return await self._run(change)

    async def trim(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        before, zone = body.text("before"), body.text("zone", default="")
        dry_run = body.boolean("dry_run", False)
        body.end()
        name = self._checked(request, OwnTopicChange.DELETE_RECORDS)
        spec = parse_points(before, zone=zone or None, now_ms=self._node.clock.now_ms())

        def change() -> dict[str, Any]:
            if "delete" not in self._node.broker.topic(name).config.effective()["cleanup.policy"]:
                raise ApiError(
                    HTTPStatus.CONFLICT,
                    f"topic {name!r} is compacted, and only compaction removes records there; set"
                    " cleanup.policy=compact,delete to trim it",
                )
            opened = OpenedTopic(self._node.broker, name)
            bounds = opened.offsets(name)
            for number, (_, end) in bounds.items():
                kind, value = spec.point(number)
                if kind == "offset" and value > end:
                    # Elsewhere an offset beyond the end means the end. Here that would delete everything.
                    raise InvalidArgument(
                        f"{name}-{number} ends at {end}, before offset {value}; nothing was deleted: say 'end' to"
                        " delete everything, or name the partitions that are meant, as 0=1200"
                    )
            spans = resolve(spec, opened, name, bounds=bounds, now_ms=self._node.clock.now_ms())
            rows = [_trimmed(number, bounds[number], span.start) for number, span in spans.items()]
            if not dry_run:
                for row in rows:
                    if row["removed"]:
                        open_partition(self._node.broker, name, row["partition"]).delete_records(row["new_start"])
            return {"partitions": rows, "note": spec.note, "is_done": not dry_run}

        return await self._run(change)

    async def compact(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        dry_run = body.boolean("dry_run", False)
        body.end()
        name = request.named["topic"]

        def change() -> dict[str, Any]:
            topic = self._node.broker.topic(name)
            if "compact" not in topic.config.effective()["cleanup.policy"]:
                raise ApiError(
                    HTTPStatus.CONFLICT, f"topic {name!r} is not compacted; set cleanup.policy=compact for it first"
                )
            if dry_run:
                return {"partitions": self._sizes(name, topic.partition_count), "is_done": False}
            done = self._node.broker.compact(name)
            rows = [
                {
                    "partition": number,
                    "records_before": report.records_before,
                    "records_after": report.records_after,
                    "bytes_before": report.bytes_before,
                    "bytes_after": report.bytes_after,
                }
                for (_, number), report in sorted(done.items())
            ]
            return {"partitions": rows, "is_done": True}

        return await self._run(change)

    async def delete(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        dry_run = body.boolean("dry_run", False)
        body.end()
        name, node = self._checked(request, OwnTopicChange.DELETE), self._node
        sight = Sight(node.authorizer, identity_of(request))
        if not node.settings.delete_topic_enable:
            raise ApiError(HTTPStatus.FORBIDDEN, "the broker has delete.topic.enable=false")

        def change() -> dict[str, Any]:
            count = node.broker.topic(name).partition_count
            sizes = self._sizes(name, count)
            groups = [
                group
                for group in node.broker.group_names()
                if sight.sees_group(group) and any(topic == name for topic, _ in node.broker.committed(group))
            ]
            if not dry_run:
                node.quotas.console_mutations(identity_of(request)).take(count)
                node.broker.delete_topic(name)
            return {
                "partitions": count,
                "offsets": sum(one["offsets"] for one in sizes),
                "size_bytes": sum(one["size_bytes"] for one in sizes),
                "groups": groups,
                "is_done": not dry_run,
            }

        return await self._run(change)

    def _checked(self, request: HttpRequest, change: OwnTopicChange) -> str:
        name = check_topic_name(request.named["topic"])
        refuse_own(self._node, name, change)
        return name

    def _sizes(self, name: str, count: int) -> list[dict[str, Any]]:
        opened = [open_partition(self._node.broker, name, number) for number in range(count)]
        return [
            {
                "partition": number,
                "offsets": partition.log_end_offset - partition.log_start_offset,
                "size_bytes": partition.size_bytes,
            }
            for number, partition in enumerate(opened)
        ]


def _trimmed(number: int, bounds: tuple[int, int], wanted: int) -> dict[str, Any]:
    start, end = bounds
    new_start = min(max(start, wanted), end)
    return {"partition": number, "start": start, "new_start": new_start, "end": end, "removed": new_start - start}


def _rights_of_creation(request: HttpRequest) -> list[Right | OneOf]:
    name = JsonBody(request).text("name")
    create = AclOperation.CREATE
    return [OneOf((Right(create, ResourceType.TOPIC, name), Right(create, ResourceType.CLUSTER, CLUSTER_NAME)))]
