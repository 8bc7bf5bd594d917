"""A log that another process serves, against the same model of plain lists as the embedded one.

The model's machine writes and reads through a remote log. The log that serves it is stopped and started between the
steps, and sometimes nobody serves at all: the remote log goes on, and nothing is lost, doubled or out of order.
"""

from __future__ import annotations

import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

import foldlog
from client.test_log_model import PARTITIONS, TOPICS, LogMachine


class RemoteMachine(LogMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp()

    def open(self) -> None:
        self.serve()
        self.log = foldlog.open(self.path, clock=self.clock)
        assert self.log.is_remote
        self.producer = self.log.producer(linger_ms=1e12, batch_records=5, compression="lz4")

    def serve(self) -> None:
        self.writer = foldlog.open(self.path, listen=True, clock=self.clock, background=False)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            self.writer.close()
        shutil.rmtree(self.path)

    @rule(seed=st.integers())
    def power_cut(self, seed: int) -> None:
        """The writer ends and another begins; who writes through it does not notice."""
        self.writer.close()
        self.serve()

    @rule(topic=st.sampled_from(sorted(TOPICS)), number=st.integers(0, PARTITIONS - 1), count=st.integers(1, 8))
    def write_while_nobody_serves(self, topic: str, number: int, count: int) -> None:
        self.writer.close()
        sent = [self.producer.send(topic, b"alone", key=b"a", partition=number) for _ in range(count)]
        self.producer.flush()
        expected = [self.model[topic, number].add(self.clock.now_ms(), b"a", b"alone") for _ in range(count)]
        assert [future.result(0).offset for future in sent] == expected
        self.serve()

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.writer.close()
        self.open()


RemoteMachine.TestCase.settings = settings(stateful_step_count=20, max_examples=10)
TestTheRemoteLogAgreesWithTheModel = RemoteMachine.TestCase
