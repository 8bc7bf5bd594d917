"""Every API asks the authorizer for what its row in `api_access` says, and nothing is served without a row.

Each request is handled twice: by a broker that allows everything, and by one that denies exactly that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from foldlog.broker.groups.committed import OffsetAndMetadata
from foldlog.wire.codec import encode
from foldlog.wire.messages import APIS
from foldlog.wire.messages.init_producer_id import InitProducerIdRequest
from foldlog.wire.schema import Response
from server.api_access import ASKS_NOTHING, BEFORE, HIDDEN, ROWS, Denied, Names, Row, codes
from server.small_node import Denies, SmallNode


@contextmanager
def node_that_denies(row: Row, denied: Denied) -> Iterator[tuple[SmallNode, Names]]:
    small = SmallNode(authorizer=Denies())
    topic = small.broker.create_topic("orders", 1)
    names = Names(topic_id=bytes.fromhex(topic.topic_id))
    small.broker.commit_offsets(names.group, {("orders", 0): OffsetAndMetadata(0)})
    small.ask(
        InitProducerIdRequest(transactional_id=names.transactional_id, transaction_timeout_ms=10_000), 4
    )  # so that there is an id to list
    for before in BEFORE.get(row.api, ()):
        assert not codes(small.ask(before.request(names), before.version))
    small.node.authorizer = Denies(*denied)
    try:
        yield small, names
    finally:
        small.close()


def answered(row: Row, denied: Denied) -> Response:
    with node_that_denies(row, denied) as (small, names):
        answer = small.ask(row.request(names), row.version)
    assert isinstance(answer, Response)
    return answer


def test_every_api_has_a_row_or_a_reason() -> None:
    served = {api.module for api in APIS.values()}
    assert {row.api for row in ROWS} | ASKS_NOTHING.keys() == served
    assert not {row.api for row in ROWS} & ASKS_NOTHING.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.api}-{row.asked_for}")
def test_it_is_refused_where_exactly_that_is_denied(row: Row) -> None:
    allowed, denied = answered(row, ()), answered(row, row.asks)
    if row.code is HIDDEN:
        assert encode(allowed, row.version) != encode(denied, row.version)
    else:
        assert row.code not in codes(allowed)
        assert row.code in codes(denied)
    for other in row.asks if len(row.asks) > 1 else ():
        remaining = answered(row, tuple(one for one in row.asks if one != other))
        assert row.code not in codes(remaining) or row.code is HIDDEN  # either is enough
