"""Transactions in the console: which are open and since when, and aborting one."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from foldlog.broker.access.acls import AclOperation
from foldlog.client.backends.transactions import list_here
from foldlog.errors import InvalidTransactionState, UnknownTransactionalId
from foldlog.server.console.parameters import JsonBody
from foldlog.server.console.rights import Sight, identity_of, nothing, of_transaction
from foldlog.server.http.routes import HttpRequest, HttpResponse, HttpRoute
from foldlog.server.topic_admin import refuse_if_leaving

if TYPE_CHECKING:
    from foldlog.client.descriptions import TransactionDescription
    from foldlog.server.node import BrokerNode


class TransactionPages:
    """The handlers for transactions of one console. Event loop only."""

    def __init__(self, node: BrokerNode, workers: Executor) -> None:
        self._node = node
        self._workers = workers

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/api/transactions", self.transactions, nothing),
            HttpRoute("POST", "/api/transactions/{id}/abort", self.abort, of_transaction(AclOperation.WRITE)),
        ]

    async def transactions(self, request: HttpRequest) -> HttpResponse:
        sight = Sight(self._node.authorizer, identity_of(request))

        def look() -> HttpResponse:
            found = [one for one in list_here(self._node.broker) if sight.sees_transaction(one.transactional_id)]
            return HttpResponse.json([_shown(one, sight) for one in found])

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, look)
        return response

    async def abort(self, request: HttpRequest) -> HttpResponse:
        body = JsonBody(request)
        dry_run = body.boolean("dry_run", False)
        body.end()
        refuse_if_leaving(self._node)
        name, sight = request.named["id"], Sight(self._node.authorizer, identity_of(request))

        def end() -> HttpResponse:
            found = next((one for one in list_here(self._node.broker) if one.transactional_id == name), None)
            if found is None:
                raise UnknownTransactionalId(f"there is no transactional id {name!r}")
            if found.start_ms is None:
                raise InvalidTransactionState(f"{name!r} has no transaction open: it is in state {found.state}")
            if not dry_run:
                self._node.broker.transactions.abort(name)
            return HttpResponse.json({**_shown(found, sight), "is_done": not dry_run})

        response: HttpResponse = await self._node.loop.run_in_executor(self._workers, end)
        return response


def _shown(one: TransactionDescription, sight: Sight) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "partitions": [
            {"topic": topic, "partition": number} for topic, number in one.partitions if sight.sees_topic(topic)
        ],
    }
