"""Tiers: reading back beside the store's own range reads, producing while segments are copied, and Spark's read of a
store beside Parquet in it.

The store is moto's S3 server, in a process of its own, and a directory for producing and for Spark: a server in Python
on the same machine would take the processor that the log is measured on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench import spark_topics
from bench.measuring import FULL, Place, Scale, Turns, timed
from bench.spark_session import cores, session, to_nowhere, why_not
from bench.spark_source import FOUR
from bench.table import Row, Table, bytes_per_second, per_second, table_of

from foldlog.broker.broker import Broker
from foldlog.broker.tiers import TierSettings
from foldlog.log.partition import Partition
from foldlog.records.loops import pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUCKET = "bench"
_BLOCK_BYTES = 4 << 20
_SEGMENT_BYTES = 16 << 20
_READ_TARGET = 0.8
_PRODUCE_TARGET = 0.97
_SPARK_TARGET = 0.7
_SPARK_VALUE_BYTES = 1000
_SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": "0", "segment.bytes": str(_SEGMENT_BYTES)}

_SERVER = """
import logging
logging.getLogger("werkzeug").setLevel(logging.ERROR)
import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


def run(place: Place, scale: Scale) -> Table:
    title = "Tiers"
    if find_spec("obstore") is None or find_spec("moto") is None:
        return table_of(title, [Row("read back from a bucket", "-", "obstore or moto is not installed")])
    size_bytes = (256 << 20) if scale is FULL else (40 << 20)
    repeats = scale.repeats if scale is FULL else 1
    rows = [_read_back(place, size_bytes, repeats), _produce(place, size_bytes, repeats)]
    return table_of(title, [*rows, *_spark(place, scale)], _NOTES)


_NOTES = (
    "Read back: every batch through the partition, checked, with an empty cache; beside it ranges of 4 MiB by obstore.",
    "Both from moto's server, one request after the other but for ours, which reads the next block ahead.",
    "Spark: the store is a directory, read without the log; values of 1,000 bytes, four columns; Parquet beside them.",
    "Produce: 64 KB batches, each waited for, while sealed segments are copied to a directory, read back and removed.",
)


def _read_back(place: Place, size_bytes: int, repeats: int) -> Row:
    path = place.fresh()
    with _bucket() as url:
        with Broker.open(str(path / "log"), background=False, tier=url) as broker:
            _fill(broker, size_bytes)
            broker.enforce_retention()
        turns = Turns(
            repeats,
            {"ours": lambda: _read_all(path / "log"), "ranges": lambda: _read_ranges(url)},
            warm_up=True,
        )
    place.give_back(path)
    ratio = turns.ratio("ours", "ranges")
    return Row(
        "read back from a bucket",
        bytes_per_second(turns.speed("ours")),
        f"its range reads {bytes_per_second(turns.speed('ranges'))}",
        ratio,
        f">= {_READ_TARGET}",
        ratio >= _READ_TARGET,
    )


def _read_all(path: Path) -> float:
    with Broker.open(str(path), mode="r", tier=TierSettings(cache_bytes=32 << 20)) as broker:
        partition = broker.partition("orders", 0)
        end = partition.local_start_offset
        found = 0

        def read() -> None:
            nonlocal found
            offset = partition.log_start_offset
            while offset < end:
                piece = partition.read(offset, _BLOCK_BYTES)
                found += len(piece.data)
                offset = piece.next_offset

        seconds = timed(read)
    return found / seconds


def _read_ranges(url: str) -> float:
    import obstore
    from obstore.store import from_url

    store = from_url(url, client_options={"allow_http": True})
    objects = [(one["path"], one["size"]) for page in obstore.list(store) for one in page if one["size"] > 1 << 20]

    def read() -> None:
        for path, size in objects:
            for start in range(0, size, _BLOCK_BYTES):
                obstore.get_range(store, path, start=start, length=min(_BLOCK_BYTES, size - start))

    seconds = timed(read)
    return sum(size for _, size in objects) / seconds


def _produce(place: Place, size_bytes: int, repeats: int) -> Row:
    def plain() -> float:
        path = place.fresh()
        with Broker.open(str(path / "log"), background=False) as broker:
            speed = size_bytes / timed(lambda: _fill(broker, size_bytes, {"segment.bytes": str(_SEGMENT_BYTES)}))
        place.give_back(path)
        return speed

    def tiering() -> float:
        path = place.fresh()
        with Broker.open(str(path / "log"), background=False, tier=f"file://{path}/store") as broker:
            stop = threading.Event()
            broker.create_topic("orders", 1, _SETTINGS)

            def copy() -> None:
                while not stop.wait(0.2):
                    broker.enforce_retention()

            copying = threading.Thread(target=copy)
            copying.start()
            speed = size_bytes / timed(lambda: _append(broker, size_bytes))
            stop.set()
            copying.join()
        place.give_back(path)
        return speed

    turns = Turns(repeats, {"tiering": tiering, "plain": plain}, warm_up=True)
    ratio = turns.ratio("tiering", "plain")
    return Row(
        "produce while segments are copied",
        bytes_per_second(turns.speed("tiering")),
        f"without a store {bytes_per_second(turns.speed('plain'))}",
        ratio,
        f">= {_PRODUCE_TARGET}",
        ratio >= _PRODUCE_TARGET,
    )


def _spark(place: Place, scale: Scale) -> list[Row]:
    what = "Spark, a topic in a store"
    reason = why_not()
    if reason is not None:
        return [Row(what, "-", reason)]
    spark, home = session(), place.fresh()
    records = scale.spark_value_bytes // _SPARK_VALUE_BYTES
    url, parquet = f"file://{home}/store", f"{home}/store/parquet"
    spark_topics.make_plain(home / "log", records, _SPARK_VALUE_BYTES, cores(spark))
    with Broker.open(str(home / "log"), background=False, tier=url) as broker:
        broker.alter_topic(spark_topics.PLAIN, {"remote.storage.enable": "true", "local.retention.ms": "0"})
        for number in range(cores(spark)):
            broker.writable_partition(spark_topics.PLAIN, number).roll()
        broker.enforce_retention()

    def stored() -> DataFrame:
        reader = spark.read.format("foldlog").schema(FOUR)
        return reader.option("subscribe", spark_topics.PLAIN).load(url)

    stored().write.parquet(parquet)
    if stored().count() != records:
        raise RuntimeError("the store does not have all records")
    turns = Turns(
        scale.spark_repeats,
        {
            "store": lambda: records / timed(lambda: to_nowhere(stored())),
            "Parquet": lambda: records / timed(lambda: to_nowhere(spark.read.schema(FOUR).parquet(parquet))),
        },
        warm_up=scale.spark_warm_up,
    )
    place.give_back(home)
    ratio = turns.ratio("store", "Parquet")
    beside = f"Parquet in it {per_second(turns.speed('Parquet'))}"
    target = f">= {_SPARK_TARGET}"
    return [Row(what, per_second(turns.speed("store")), beside, ratio, target, ratio >= _SPARK_TARGET)]


def _fill(broker: Broker, size_bytes: int, settings: dict[str, str] | None = None) -> None:
    broker.create_topic("orders", 1, settings or _SETTINGS)
    _append(broker, size_bytes)


def _append(broker: Broker, size_bytes: int) -> None:
    partition = broker.partition("orders", 0)
    if not isinstance(partition, Partition):
        raise TypeError("it was opened for reading")
    batch = bytes(pack([(1_700_000_000_000 + at, None, b"v" * 1000, ()) for at in range(64)]))
    for _ in range(size_bytes // len(batch)):
        partition.wait_acknowledged(partition.append(batch, trusted=True).next_offset)


@contextmanager
def _bucket() -> Iterator[str]:
    """The URL of a prefix in a bucket that is gone afterwards; where it is stands in the environment."""
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            if server.stdout is None:
                raise TypeError("no output")
            endpoint = f"http://127.0.0.1:{server.stdout.readline().decode().strip()}"
            settings = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "bench",
                "AWS_SECRET_ACCESS_KEY": "bench",
                "AWS_REGION": "us-east-1",
            }
            before = {name: os.environ.get(name) for name in settings}
            os.environ.update(settings)
            try:
                import boto3

                boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=_BUCKET)
                yield f"s3://{_BUCKET}/{uuid.uuid4().hex[:8]}"
            finally:
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value
        finally:
            server.kill()
