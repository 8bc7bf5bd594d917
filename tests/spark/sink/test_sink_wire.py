"""Rows of a task by wire, in this process: every row once and in its partition's order, and requests that are full."""

from __future__ import annotations

import pyarrow as pa
import pytest

from client.wire.simulated_cluster import SimulatedCluster
from client.wire.test_cluster_produce import values_in
from foldlog.limits import PRODUCE_REQUEST_BYTES
from foldlog.spark.origins.origin import OriginSpec
from foldlog.spark.sink.by_wire import send
from foldlog.spark.sink.options import SinkOptions

PARTITIONS = 8


def rows(count: int, value_bytes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([str(number).ljust(value_bytes).encode() for number in range(count)]),
            "partition": pa.array([number % PARTITIONS for number in range(count)], pa.int32()),
        }
    )


@pytest.mark.parametrize(
    ("count", "value_bytes", "requests"),
    [
        (80, 10, 1),
        (8 * 20, 10_000, -(-(8 * 20 * 10_000) // PRODUCE_REQUEST_BYTES)),
    ],
)
def test_partitions_share_requests_up_to_their_size(count: int, value_bytes: int, requests: int) -> None:
    with SimulatedCluster() as simulated:
        partitions = simulated.create("orders", PARTITIONS)
        told = SinkOptions(OriginSpec(bootstrap=simulated.address()), topic="orders")
        assert send(told, [rows(count, value_bytes)]) == count
        assert simulated.count("ProduceRequest") == requests
        for number, partition in enumerate(partitions):
            assert values_in(partition) == list(range(number, count, PARTITIONS))
