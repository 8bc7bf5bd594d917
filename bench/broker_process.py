"""`foldlog serve` in a process of its own: started and stopped, asked for topics, and looked at from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.broker_load import LoadFailed, ask, connect

from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages import api_versions, create_topics, delete_topics, metadata, produce
from foldlog.wire.schema import Request, Response

_READY = re.compile(r" on (\S+):(\d+)")
_TLS = re.compile(r" ([^\s:]+):(\d+) \(SSL\)")
_CONSOLE = re.compile(r"\(console http://([^:]+):(\d+)/")
_REGISTRY = re.compile(r"registry http://([^:]+):(\d+)")
_LEAVE_S = 20.0


class BrokerProcess:
    """A broker that runs. What is not measured (topics, a first record) goes through `ask`."""

    def __init__(self, process: subprocess.Popen[str], address: tuple[str, int], ready: str) -> None:
        self._process = process
        self.address = address
        self._ready = ready

    @property
    def console_address(self) -> tuple[str, int]:
        """Of one that was started with --console."""
        found = _CONSOLE.search(self._ready)
        if found is None:
            raise LoadFailed(f"foldlog serve has no console: {self._ready!r}")
        return found[1], int(found[2])

    @property
    def registry_address(self) -> tuple[str, int]:
        """Of one that was started with --registry."""
        found = _REGISTRY.search(self._ready)
        if found is None:
            raise LoadFailed(f"foldlog serve has no registry: {self._ready!r}")
        return found[1], int(found[2])

    @property
    def tls_address(self) -> tuple[str, int]:
        """Of one that was started with a listener for TLS, too."""
        found = _TLS.search(self._ready)
        if found is None:
            raise LoadFailed(f"foldlog serve has no listener for TLS: {self._ready!r}")
        return found[1], int(found[2])

    def ask(self, request: Request, version: int, response: type[Response]) -> Response:
        with connect(self.address) as opened:
            return ask(opened, request, version, response)

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        """`configs` by their names, with `_` for dots."""
        wanted = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        answer = self.ask(
            create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5, create_topics.RESPONSE
        )
        _check([topic.error_code for topic in answer.topics])  # type: ignore[attr-defined]

    def delete_topic(self, name: str) -> None:
        request = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        answer = self.ask(request, 4, delete_topics.RESPONSE)
        _check([topic.error_code for topic in answer.responses])  # type: ignore[attr-defined]

    def memory_bytes(self, *, peak: bool = False) -> int:
        """Resident now, or the most it ever was."""
        wanted = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(wanted):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {wanted} of process {self._process.pid}")

    def cpu_s(self) -> float:
        """Processor time it has used so far, in all its threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads_cpu_s(self) -> float:
        """As `cpu_s`, of the threads that live now, and to the nanosecond, not to the tick of the clock."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9

    def first_ack(self, topic: str, batch: bytes) -> None:
        """What a client does to get its first record acknowledged: versions, metadata, produce with acks=all."""
        with connect(self.address) as opened:
            ask(opened, api_versions.ApiVersionsRequest(), 3, api_versions.RESPONSE)
            wanted = metadata.MetadataRequestTopic(name=topic)
            ask(
                opened,
                metadata.MetadataRequest(topics=[wanted], allow_auto_topic_creation=True),
                9,
                metadata.RESPONSE,
            )
            data = produce.TopicProduceData(
                name=topic, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
            )
            request = produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
            answer = ask(opened, request, 9, produce.RESPONSE)
            _check([one.error_code for topic in answer.responses for one in topic.partition_responses])

    def leave(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_LEAVE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_LEAVE_S)


def _check(codes: list[int]) -> None:
    for code in codes:
        if code != ErrorCode.NONE:
            raise LoadFailed(f"the broker answered {ErrorCode(code).name}")


def start(path: Path, *flags: str) -> BrokerProcess:
    """Start it; returns when it says that it is ready."""
    script = Path(sys.executable).with_name("foldlog")
    command = [str(script), "serve", str(path), "--listen", "127.0.0.1:0", "--log-level", "warning", *flags]
    # As installed: pip compiles to bytecode once, and nobody waits for that at a start.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = process.stdout.readline() if process.stdout is not None else ""
    found = _READY.search(line)
    if found is None:
        process.kill()
        raise LoadFailed(f"foldlog serve did not start: {line!r}")
    return BrokerProcess(process, (found[1], int(found[2])), line)


@contextmanager
def running(path: Path, *flags: str) -> Iterator[BrokerProcess]:
    broker = start(path, *flags)
    try:
        yield broker
    finally:
        broker.leave()


def cold_start(path: Path, batch: bytes) -> float:
    """Seconds from exec to the first acknowledged record. Ends with kill -9."""
    begun = time.perf_counter()
    broker = start(path)
    try:
        broker.first_ack("first", batch)
        return time.perf_counter() - begun
    finally:
        broker.kill()


def interpreter_start() -> float:
    """Seconds that Python needs to do nothing: no command can be faster."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - begun
