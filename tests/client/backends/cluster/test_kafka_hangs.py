"""A broker that hangs and closes no connection: every call ends when its time is over, and says that nobody answers.

The broker is a process of its own, stopped and continued with signals: its system still takes what is sent.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import foldlog
from client.log_places import handles_of, polled
from foldlog import errors
from foldlog.client.backends.cluster.consumption import BoundedCalls

SERVE = """
import sys
from foldlog.testing import KafkaBroker
with KafkaBroker.launch() as broker:
    for number in range(3):
        number or broker.create_topic("orders", 1)
        broker.log.append("orders", str(number))
    print(broker, flush=True)
    sys.stdin.readline()
"""

CALL_MS = 700
"""How long a call may take that ends in vain. Where an answer comes, a minute."""


class Served:
    """A broker with three records in topic "orders"."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    @contextmanager
    def hanging(self, log: foldlog.Log) -> Iterator[None]:
        """It says nothing, and calls of this log's consumers soon end; afterwards it goes on."""
        handles: Any = handles_of(log)
        patience_s, handles.call_s = handles.call_s, CALL_MS / 1000
        self.hang()
        try:
            yield
        finally:
            self.go_on()
            handles.call_s = patience_s

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # until then it may still answer

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.end()


@pytest.fixture
def log(served: Served) -> Iterator[foldlog.Log]:
    with foldlog.connect(f"kafka://{served.address}", properties={"heartbeat.interval.ms": 200}) as connected:
        yield connected


def test_a_commit_ends_when_its_time_is_over_and_works_once_the_broker_is_back(
    served: Served, log: foldlog.Log
) -> None:
    with log.consumer(["orders"], "fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(polled(consumer, 3)) == 3
        no_answer = f"no answer from the Kafka cluster at {served.address}"
        with served.hanging(log):
            for _ in range(2):  # the second while the first is still under way in librdkafka
                with pytest.raises(errors.BrokerUnreachable, match=no_answer):
                    consumer.commit()
        consumer.commit({("orders", 0): 2})
        assert log.committed("fraud")[foldlog.TopicPartition("orders", 0)].offset == 2


def test_while_a_commit_hangs_polls_give_nothing_and_other_calls_say_why(served: Served, log: foldlog.Log) -> None:
    with log.consumer(["orders"], "fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(polled(consumer, 3)) == 3
        no_answer = f"no answer from the Kafka cluster at {served.address}"
        with served.hanging(log):
            with pytest.raises(errors.BrokerUnreachable):
                consumer.commit()
            assert consumer.poll(timeout_ms=50) == []
            with pytest.raises(errors.BrokerUnreachable, match=no_answer):
                consumer.seek("orders", 0, 1)
        consumer.commit()
        consumer.seek("orders", 0, 1)
        assert [record.offset for record in polled(consumer, 2)] == [1, 2]


def test_a_consumer_that_is_closed_while_its_commit_hangs_leaves_once_the_broker_is_back(
    served: Served, log: foldlog.Log
) -> None:
    consumer = log.consumer(["orders"], "fraud", auto_offset_reset="earliest", auto_commit=False)
    assert len(polled(consumer, 3)) == 3
    with served.hanging(log):
        with pytest.raises(errors.BrokerUnreachable):
            consumer.commit()
        consumer.close()
    with log.consumer(["orders"], "fraud", auto_offset_reset="earliest") as other:
        assert other.assignment() == {("orders", 0)}


def test_the_late_leaving_of_a_consumer_whose_commit_hung_takes_nothing_from_what_is_read_since(
    log: foldlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], object]] = []
    with log.consumer(["orders"], "fraud", auto_offset_reset="earliest", auto_commit=False) as consumer:
        assert len(polled(consumer, 3)) == 3
        with monkeypatch.context() as hanging:
            hanging.setattr(BoundedCalls, "when_idle", lambda calls, leave: late.append(leave))
            consumer.assign([("orders", 0)])
        late.pop()()
        assert consumer.assignment() == {("orders", 0)}


def test_questions_over_our_own_connections_end_when_the_calls_time_is_over(served: Served, log: foldlog.Log) -> None:
    properties = {"default.api.timeout.ms": 1500, "request.timeout.ms": 30_000}
    with foldlog.connect(f"kafka://{served.address}", properties=properties) as hasty:
        assert hasty.committed("fraud") == {}
        served.hang()
        with pytest.raises(errors.BrokerUnreachable, match=r"default\.api\.timeout\.ms=1500"):
            hasty.committed("fraud")
        served.go_on()
    assert log.committed("fraud") == {}
