"""The broker of the demo: `foldlog serve` on a directory, killed and started again on the same ports."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from foldlog.demo.claims import DemoFailed
from foldlog.demo.crew import FOLDLOG, Crew, Member, free_port
from foldlog.demo.payments import PARTITIONS, TOPIC


class Broker:
    """One directory, one address for Kafka clients and one for the console; the process may come and go."""

    def __init__(self, crew: Crew, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.console = f"127.0.0.1:{free_port()}"
        self.up = Lock()
        """Held by who needs the broker to stay, and by who kills it: without one, whoever writes takes its place."""
        self._crew = crew
        self._process: Member | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> Member:
        if self._process is None:
            raise DemoFailed("the broker does not run")
        return self._process

    @property
    def console_url(self) -> str:
        return f"http://{self.console}/"

    def start(self) -> str:
        """Returns when clients can connect; what it said then."""
        command = [*FOLDLOG, "serve", str(self.directory), "--listen", self.bootstrap]
        command += ["--create", f"{TOPIC}:{PARTITIONS}", "--console", self.console]
        self._process = self._crew.start("broker", command)
        return self._process.first_line()

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self.process, None
        process.kill()

    def check(self) -> None:
        """DemoFailed if it has ended by itself."""
        if self._process is not None:
            self._process.check()
