"""The servers of the demo: its broker, which is killed and restarted on the same ports, and a PostgreSQL.

The broker is `foldlog serve` on a directory. The PostgreSQL server is for the mirror: created in the demo's directory,
on a free port, and removed with the demo. It refuses to run as root, so if the demo does, it runs as `postgres` or
`nobody`. It does not sync: its data is derived from the log, and is deleted with the directory.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import time
from pathlib import Path
from threading import Lock
from typing import Final

from foldlog.demo.claims import DemoFailed
from foldlog.demo.crew import FOLDLOG, Crew, CrewMember, free_port
from foldlog.demo.payments import PARTITIONS, TOPIC


class DemoBroker:
    """One directory, one address for Kafka clients and one for the console; the process may be killed and restarted."""

    def __init__(self, crew: Crew, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.console = f"127.0.0.1:{free_port()}"
        self.up = Lock()
        """Held while the broker has to stay, and while it is killed: without one, a writer would take its place."""
        self._crew = crew
        self._process: CrewMember | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> CrewMember:
        if self._process is None:
            raise DemoFailed("the broker does not run")
        return self._process

    @property
    def console_url(self) -> str:
        return f"http://{self.console}/"

    def start(self) -> str:
        """Start the broker; returns its first line once clients can connect."""
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


START_TIMEOUT_S: Final = 60
_LOOK_AGAIN_S: Final = 0.05
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "20",
    "shared_buffers": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "log_min_messages": "fatal",
}


def start_postgres(crew: Crew, binaries: Path) -> str:
    """Create a cluster and start its server; returns the URL of its database."""
    user = _server_user()
    directory = crew.directory / "postgres"
    directory.mkdir()
    if user is not None:
        # Other users may traverse the demo's directory, but not list it.
        crew.directory.chmod(0o711)
        shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)
    data = directory / "data"
    command = [str(binaries / "initdb"), "-D", str(data), "-U", "shop", "-A", "trust", "-E", "UTF8", "--locale=C"]
    crew.run("initdb", [*command, "--no-sync", "--no-instructions"], user=user, cwd=directory)
    port = free_port()
    command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port)]
    command += ["-c", f"unix_socket_directories={directory}"]
    for name, value in _SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    # SIGTERM would wait for the last client to disconnect, and SIGKILL would leave shared memory behind.
    server = crew.start("postgres", command, user=user, cwd=directory, asking=signal.SIGQUIT)
    url = f"postgresql://shop@127.0.0.1:{port}/postgres"
    _wait_until_it_answers(server, url)
    return url


def _wait_until_it_answers(server: CrewMember, url: str) -> None:
    import psycopg

    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        server.check()
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"PostgreSQL did not answer within {START_TIMEOUT_S} s: {error}") from error
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


def _server_user() -> str | None:
    """The user that the server runs as; None for the current one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody", "daemon") if name in known)
