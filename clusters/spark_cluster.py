"""A Spark standalone cluster on loopback, from the jars that pyspark ships: a master and workers, each a process.

with SparkCluster.launch(directory, workers=2) as cluster:
    SparkSession.builder.master(cluster.url)
    cluster.workers[0].kill()
    cluster.workers[0].start()
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from clusters.processes import HOST, ClusterProcess, StartFailed, free_ports
from foldlog.demo.descendants import Process, end_all, family_of

EXECUTOR_MEMORY: Final = "512m"
"""The least that Spark takes, about."""

_DAEMON: Final = {
    "SPARK_DAEMON_MEMORY": "128m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "SPARK_LOCAL_IP": HOST,
    "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # it would listen on a port of its own choice
    "SPARK_NO_DAEMONIZE": "1",
}
_LOOK_TIMEOUT_S: Final = 5


class SparkWorker:
    """One worker, and the executors and Python processes that it starts. Its directory has what they print."""

    def __init__(self, number: int, master: str, port: int, directory: Path, environment: Mapping[str, str]) -> None:
        self.number = number
        self.directory = directory
        directory.mkdir(parents=True)
        arguments = ("--host", HOST, "--cores", "1", "--memory", EXECUTOR_MEMORY, "--webui-port", str(port))
        command = _spark_class("worker.Worker", *arguments, "--work-dir", str(directory / "work"), master)
        self.process = ClusterProcess(
            f"Spark's worker {number}", command, directory / "worker.log", {**_DAEMON, **environment}
        )

    @property
    def family(self) -> list[Process]:
        """It, its executors and their Python processes, as of now."""
        return family_of(self.process.pid) if self.process.is_running else []

    @property
    def executor(self) -> Process | None:
        """The JVM of its executor, without the Python processes below it; None if it has none now."""
        below = {one.pid for one in self.family} - {self.process.pid}
        return next((one for one in self.family if one.pid in below and is_executor(one)), None)

    def start(self) -> None:
        """Begin it; `SparkCluster.wait_until_whole` says when the master knows of it."""
        self.process.start()

    def kill(self) -> None:
        """kill -9, of all of its family at once, as if the machine had lost its power."""
        family = self.family
        self.process.kill()
        left = end_all(family)
        if left:
            raise StartFailed(f"these processes of Spark's worker {self.number} cannot be killed: {left}")


class SparkCluster:
    """A cluster that is up. Each worker has one core, and memory for one executor of EXECUTOR_MEMORY."""

    def __init__(self, directory: Path, workers: int, environment: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, self._page_port, *ports = free_ports(2 + workers)
        self.url = f"spark://{HOST}:{port}"
        command = _spark_class(
            "master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(self._page_port)
        )
        self.master = ClusterProcess("Spark's master", command, directory / "master.log", _DAEMON)
        self.workers = [
            SparkWorker(number, self.url, page, directory / f"worker-{number}", environment)
            for number, page in enumerate(ports, start=1)
        ]

    @classmethod
    def launch(cls, directory: Path, *, workers: int = 2, environment: Mapping[str, str] | None = None) -> SparkCluster:
        """Start them. `environment` is for the workers, their executors and their Python processes, beside ours."""
        cluster = cls(directory, workers, environment or {})
        try:
            cluster.master.start()
            cluster.master.wait_until(lambda: cluster._state() is not None)
            for worker in cluster.workers:
                worker.start()
            cluster.wait_until_whole()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def wait_until_whole(self) -> None:
        """The master knows of every worker, and takes none that is dead for one."""
        for worker in self.workers:
            worker.process.wait_until(lambda: self.alive_workers() == len(self.workers))

    def alive_workers(self) -> int:
        return 0 if (state := self._state()) is None else int(state["aliveworkers"])

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.master.kill()

    def _state(self) -> dict[str, int] | None:
        """What the master's page says; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page_port}/json/", timeout=_LOOK_TIMEOUT_S) as answer:
                state: dict[str, int] = json.load(answer)
                return state
        except (OSError, ValueError):  # the page is there before what it says
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_executor(process: Process) -> bool:
    """Whether a process runs Spark's executor."""
    try:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(b"ExecutorBackend" in word for word in words) and words[0].endswith(b"java")


def _spark_class(name: str, *arguments: str) -> list[str]:
    """The script becomes the JVM, so its process id is the JVM's."""
    home = os.path.dirname(pyspark.__file__)
    return [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
