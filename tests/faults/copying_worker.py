"""A process that copies one topic to another, exactly once: reads committed records, writes them with a mark behind,
and commits its offsets in the transaction that holds what it wrote.

Run with `processes.child`. It says on a line of its own what it does: "begun", "written", "offsets", "committed" or
"aborted", and at its end why. Some transactions are aborted on purpose: what was read is then read again. After any
trouble it ends, and whoever started it starts it again; only one that is fenced has to say so.

    confluent    librdkafka. Members of a group: their generation protects them as well (KIP-447).
    aiokafka     It does not tell its generation, so all partitions are assigned to one process at a time, and only the
                 transactional id keeps another one out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

PARTITIONS = 3
MARK = b"!"
RECORDS_MAX = 40
"""In one transaction."""

ABORT_EVERY = 4
BOUND_S = 60.0
STUCK_S = 6
"""After this long in one transaction a process dies. After a broker came back, librdkafka's
`send_offsets_to_transaction` may send nothing and wait, whatever its timeout (its issues 5456 and 5511)."""


class Job(NamedTuple):
    """What a process is told on its command line. `pause` is a word that it says; it then waits for a line."""

    client: str
    bootstrap: str
    source: str
    target: str
    name: str
    pause: str = ""

    @property
    def group(self) -> str:
        return f"from-{self.source}"


def say(job: Job, word: str) -> None:
    os.write(1, word.encode() + b"\n")
    if word == job.pause:
        signal.alarm(0)
        sys.stdin.readline()


# --- librdkafka -------------------------------------------------------------------------------------------------------


def copy_with_confluent(job: Job) -> str:
    common = {
        "bootstrap.servers": job.bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
        "log_level": 0,
    }
    producer = Producer({**common, "transactional.id": job.name, "linger.ms": 1, "batch.num.messages": 7})
    producer.init_transactions(BOUND_S)
    consumer = Consumer(
        {
            **common,
            "group.id": job.group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": 50,
        }
    )
    # With callbacks of ours a rebalance happens in `consume` only: not between reading and committing.
    consumer.subscribe([job.source], on_assign=_no_op, on_revoke=_no_op, on_lost=_no_op)
    number = 0
    while True:
        messages = [message for message in consumer.consume(RECORDS_MAX, 0.1) if message.error() is None]
        if messages:
            number += 1
            membership = consumer.consumer_group_metadata()
            _copy_messages(job, producer, consumer, membership, messages, commits=number % ABORT_EVERY != 0)


def _no_op(consumer: Consumer, partitions: list[TopicPartition]) -> None: ...


def _copy_messages(
    job: Job, producer: Producer, consumer: Consumer, membership: object, messages: list[Any], *, commits: bool
) -> None:
    signal.alarm(STUCK_S)
    producer.begin_transaction()
    say(job, "begun")
    for message in messages:
        producer.produce(job.target, message.value() + MARK, partition=message.partition())
    producer.flush(BOUND_S)
    say(job, "written")
    ends = {message.partition(): message.offset() + 1 for message in messages}
    producer.send_offsets_to_transaction(
        [TopicPartition(job.source, partition, end) for partition, end in ends.items()], membership, BOUND_S
    )
    say(job, "offsets")
    if commits:
        producer.commit_transaction(BOUND_S)
        say(job, "committed")
        signal.alarm(0)
        return
    producer.abort_transaction(BOUND_S)
    say(job, "aborted")
    signal.alarm(0)
    for place in consumer.committed(consumer.assignment(), BOUND_S):
        consumer.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))


def _is_fenced(error: KafkaError) -> bool:
    return error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


# --- aiokafka ---------------------------------------------------------------------------------------------------------


async def copy_with_aiokafka(job: Job) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, transactional_id=job.name, linger_ms=1, max_batch_size=200, retry_backoff_ms=10
    )
    await producer.start()  # what the process before it left open is aborted: its offsets will not change any more
    consumer = AIOKafkaConsumer(
        bootstrap_servers=job.bootstrap,
        group_id=job.group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        retry_backoff_ms=10,
    )
    await consumer.start()
    consumer.assign([AiokafkaPartition(job.source, number) for number in range(PARTITIONS)])
    number = 0
    while True:
        found = await consumer.getmany(timeout_ms=100, max_records=RECORDS_MAX)
        if not any(found.values()):
            continue
        number += 1
        await producer.begin_transaction()
        say(job, "begun")
        sent = [
            await producer.send(job.target, record.value + MARK, partition=place.partition)
            for place, records in found.items()
            for record in records
        ]
        await asyncio.gather(*sent)
        say(job, "written")
        ends = {place: records[-1].offset + 1 for place, records in found.items() if records}
        await producer.send_offsets_to_transaction(ends, job.group)
        say(job, "offsets")
        if number % ABORT_EVERY:
            await producer.commit_transaction()
            say(job, "committed")
        else:
            await producer.abort_transaction()
            say(job, "aborted")
            for place in consumer.assignment():  # its `seek_to_committed` stays where nothing is committed
                consumer.seek(place, await consumer.committed(place) or 0)


def main() -> None:
    job = Job(*sys.argv[1:])
    logging.disable(logging.CRITICAL)
    try:
        if job.client == "confluent":
            copy_with_confluent(job)
        else:
            asyncio.run(copy_with_aiokafka(job))
    except ProducerFenced:
        say(job, "fenced")
    except KafkaException as error:
        say(job, "fenced" if _is_fenced(error.args[0]) else f"ends: {error}")
    except AiokafkaError as error:
        say(job, f"ends: {error!r}")
    # At once: what is under way stays as it is, as after a kill.
    os._exit(0)
