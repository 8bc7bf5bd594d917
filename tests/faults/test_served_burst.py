"""A burst of twelve times the usual load: the broker's memory stays bounded, the lag drains, nothing told is lost.

`foldlog serve` runs as a process with a small queued.max.request.bytes. Two connections produce as usual, each a few
batches ahead of the answers, and two members of a group keep up with them. Then twenty-four connections send all they
have at once, many times what the broker may hold. Its resident memory is read from /proc, where the system counts it;
requests wait in the sockets of those who sent them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import foldlog
from faults.served import ServedDirectory
from faults.served_load import BALLAST, PARTITIONS, TOPIC, Member, Story, Worker
from foldlog.server.net.memory import RECEIVE_BYTES
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, produce, produced

MIB = 1 << 20

USUAL_CONNECTIONS = 2
BURST_CONNECTIONS = 12 * USUAL_CONNECTIONS
FRAMES = 8
RECORDS = 8
RECORD_BYTES = 120 << 10
FRAME_BYTES = RECORDS * RECORD_BYTES

QUEUED_MAX_BYTES = 4 * MIB
AROUND_BYTES = 14 * MIB
"""What Python and the C library take besides: threads' own heaps, and memory that is free and not yet given back."""

PRODUCE_VERSION = 9

ARGUMENTS = (
    *("--create", f"{TOPIC}:{PARTITIONS}"),
    *("-X", f"queued.max.request.bytes={QUEUED_MAX_BYTES}"),
    *("-X", f"socket.request.max.bytes={QUEUED_MAX_BYTES}"),
)


class Sender(Worker):
    """Sends the same frame to one partition again and again, at most `ahead` of them before the answers; then ends."""

    def __init__(self, name: str, number: int, ahead: int, served: ServedDirectory, story: Story) -> None:
        self._partition = number % PARTITIONS
        self._ahead = ahead
        self._client = RawClient(served.address)
        value = f"{name}-{number}".encode().ljust(RECORD_BYTES, BALLAST)
        request = produce(batch(*[value] * RECORDS), TOPIC, self._partition, timeout_ms=60_000)
        self._frame = self._client.frame(request, PRODUCE_VERSION)
        super().__init__(f"{name}-{number}", served.bootstrap, story)

    def run(self) -> None:
        for number in range(FRAMES):
            self._client.socket.sendall(self._frame)
            if number >= self._ahead:
                self._take_answer()
        for _ in range(min(self._ahead, FRAMES)):
            self._take_answer()
        self._client.close()

    def _take_answer(self) -> None:
        error, offset = produced(self._client.receive(ProduceResponse, PRODUCE_VERSION)[1])
        if error:
            self.story.failed(f"{self.name}: {ErrorCode(error).name}")
        for at in range(RECORDS):
            self.story.was_acknowledged(self._partition, offset + at, self.name)


def send_all(name: str, connections: int, ahead: int, served: ServedDirectory, story: Story) -> None:
    """All of them send at the same time; returns when everything is answered."""
    senders = [Sender(name, number, ahead, served, story) for number in range(connections)]
    for sender in senders:
        sender.join()


def wait_drained(story: Story) -> None:
    """Until everything that was acknowledged has been read and committed by the group."""

    def is_drained(now: Story) -> bool:
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset in now.acknowledged:
            ends[partition] = max(ends[partition], offset + 1)
        return all(now.committed.get(partition, 0) == end for partition, end in ends.items())

    story.wait_for("the group has committed everything", is_drained)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a peak of memory that can be reset")
def test_a_burst_of_twelve_times_the_load_leaves_memory_bounded_and_the_lag_drains(tmp_path: Path) -> None:
    story = Story()
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        members = [Member(f"member-{number}", served.bootstrap, story) for number in range(2)]
        served.forget_peak()
        idle_bytes = served.peak_bytes
        send_all("usual", USUAL_CONNECTIONS, 2, served, story)
        wait_drained(story)
        served.forget_peak()
        send_all("burst", BURST_CONNECTIONS, FRAMES, served, story)
        wait_drained(story)
        # Above its limit the broker still takes what each connection has received at once, and one request at a time.
        at_once_bytes = BURST_CONNECTIONS * min(RECEIVE_BYTES, FRAME_BYTES)
        bound_bytes = QUEUED_MAX_BYTES + FRAME_BYTES + at_once_bytes + AROUND_BYTES
        grown_bytes = served.peak_bytes - idle_bytes
        for member in members:
            member.stop()
            member.join()
    assert not story.problems, story.problems
    sent_bytes = BURST_CONNECTIONS * FRAMES * FRAME_BYTES
    assert grown_bytes < bound_bytes < sent_bytes / 4, f"it grew by {grown_bytes / MIB:.1f} MiB"
    assert story.read == story.acknowledged
    with foldlog.open(str(served.path)) as log:
        ends = [log.offsets(TOPIC)[partition][1] for partition in range(PARTITIONS)]
    assert sum(ends) == len(story.acknowledged) == (USUAL_CONNECTIONS + BURST_CONNECTIONS) * FRAMES * RECORDS
