"""kcat, the command: arguments and bytes in, text and records out."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any, NamedTuple

BOUND_S = 60.0
"""When something that should come has not come: far more than a busy machine needs."""

QUICK = (
    "-X",
    "topic.metadata.refresh.interval.ms=500",
    "-X",
    "heartbeat.interval.ms=200",
    "-X",
    "fetch.wait.max.ms=100",
)


class Printed(NamedTuple):
    """A record that kcat printed."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


def printed(line: str) -> Printed:
    """A line of `kcat -J`. Headers are a flat list there: a name, its value, a name, its value."""
    found = json.loads(line)
    flat = found.get("headers", [])
    headers = tuple(zip(flat[::2], flat[1::2], strict=True))
    return Printed(found["partition"], found["offset"], found["ts"], found["key"], found["payload"], headers)


class Failed(Exception):
    """kcat ended with an exit code that is not zero; what it said."""


class Member:
    """kcat as a process that reads on; what it prints is taken line by line."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._records: queue.Queue[Printed] = queue.Queue()
        self._remarks: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_records, daemon=True),
            threading.Thread(target=self._read_remarks, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_records(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._records.put(printed(line))

    def _read_remarks(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._remarks.put(line.strip())

    def next_record(self) -> Printed:
        return self._records.get(timeout=BOUND_S)

    def wait_assigned(self, count: int) -> None:
        """Until it tells that a rebalance gave it that many partitions."""
        while True:
            remark = self._remarks.get(timeout=BOUND_S)
            _, marker, partitions = remark.partition("): assigned: ")
            if marker and len(partitions.split(",")) == count:
                return

    def wait_remark(self, text: str) -> None:
        """Until it says something with that text in it."""
        while text not in self._remarks.get(timeout=BOUND_S):
            pass

    def end(self) -> None:
        """Ask it to leave: it commits what it printed, leaves its group and ends."""
        self._process.terminate()
        self._process.wait(BOUND_S)
        for reader in self._readers:
            reader.join(BOUND_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None


class Kcat:
    """kcat towards one broker."""

    def __init__(self, program: str, bootstrap: str, **settings: str) -> None:
        """`settings` are librdkafka's, with underscores."""
        given = [part for name, text in settings.items() for part in ("-X", f"{name.replace('_', '.')}={text}")]
        self._start = [program, "-b", bootstrap, *QUICK, *given]
        self._members: list[Member] = []

    def run(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run it to its end; what it printed."""
        done = subprocess.run(
            [*self._start, *arguments], input=stdin, capture_output=True, timeout=BOUND_S, check=False
        )
        if done.returncode:
            raise Failed(done.stderr.decode())
        return done.stdout.decode()

    def produce(self, topic: str, lines: bytes, *arguments: str) -> None:
        self.run("-P", "-t", topic, *arguments, stdin=lines)

    def consume(self, topic: str, *arguments: str) -> list[Printed]:
        """All that there is from where the arguments say, and then no more."""
        return [printed(line) for line in self.run("-C", "-q", "-J", "-e", "-t", topic, *arguments).splitlines()]

    def take(self, group: str, topic: str, count: int) -> list[Printed]:
        """That many records as the only member of a group."""
        reset = ("-X", "auto.offset.reset=earliest")
        return [
            printed(line) for line in self.run("-q", "-J", *reset, "-c", str(count), "-G", group, topic).splitlines()
        ]

    def join(self, group: str, topic: str) -> Member:
        """A member that reads on, until `end`."""
        reset = ("-X", "auto.offset.reset=earliest")
        self._members.append(Member([*self._start, "-u", "-J", *reset, "-G", group, topic]))
        return self._members[-1]

    def follow(self, topic: str) -> Member:
        """Reads on from the start, without a group, whatever happens to its connections, until `end`."""
        self._members.append(Member([*self._start, "-C", "-E", "-u", "-J", "-o", "beginning", "-t", topic]))
        return self._members[-1]

    def metadata(self, *arguments: str) -> Any:
        return json.loads(self.run("-L", "-J", *arguments))

    def close(self) -> None:
        for member in self._members:
            if not member.has_ended:
                member.end()
