"""A real MariaDB or MySQL server for tests: made in a temporary directory, on a port of its own, gone with the run.

MariaDB is that of PATH, or of Debian's packages. MySQL is `mysqld` of PATH, or what FOLDLOG_MYSQLD names; Debian stable
has none. Neither runs as root, so when the tests do, it runs as `mysql` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

MISSING: Final = {
    "mariadb": "MariaDB's server is not installed; enable with: apt-get install mariadb-server-core",
    "mysql": "MySQL's server is not installed; install mysqld, or name it: FOLDLOG_MYSQLD=/path/to/mysqld",
}
START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30

_SETTINGS: Final = {
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-buffer-pool-size": "16M",
    "innodb-flush-log-at-trx-commit": "2",
    "sync-binlog": "0",
    "character-set-server": "utf8mb4",
    "performance-schema": "OFF",
    "max-connections": "60",
}


@dataclass(slots=True)
class MySqlServer:
    """A running server; `new_database` gives a test one of its own."""

    kind: str
    directory: Path
    port: int
    process: subprocess.Popen[bytes]

    def url_of(self, database: str, user: str = "root") -> str:
        return f"mysql://{user}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None, **options: Any) -> pymysql.connections.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, **options
        )

    def new_database(self) -> str:
        """The URL of an empty database that nobody else uses."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def crash(self) -> None:
        """Killed: nothing is flushed, nobody is told. `directory` can be started again."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """For good: its directory is removed next."""
        if self.process.poll() is None:
            self.crash()


def server_binary(kind: str) -> str | None:
    """The server's program; None where there is none."""
    if kind == "mysql":
        named = os.environ.get("FOLDLOG_MYSQLD") or shutil.which("mysqld", path=_places())
        # Debian's MariaDB has a mysqld, too, which is a link.
        return named if named and "mariadb" not in os.path.realpath(named) else None
    return shutil.which("mariadbd", path=_places())


def _places() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


def server_user() -> str | None:
    """Who the server runs as; None for whoever runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return "daemon"


def make_data(kind: str, directory: Path) -> None:
    """An empty server in `directory`, with a user root who needs no password from anywhere on this machine."""
    binary, user = server_binary(kind), server_user()
    if binary is None:
        pytest.skip(MISSING[kind])
    if user is not None:
        shutil.chown(directory, user, pwd.getpwnam(user).pw_gid)
    data = f"--datadir={directory / 'data'}"
    if kind == "mariadb":
        command = ["mariadb-install-db", "--no-defaults", data, "--auth-root-authentication-method=normal"]
        command += ["--skip-test-db", "--skip-name-resolve"]
    else:
        command = [binary, "--no-defaults", "--initialize-insecure", data]
    done = subprocess.run(command, cwd=directory, user=user, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"the server's data were not made: {done.stdout[-1000:]} {done.stderr[-1000:]}"


def start_mysql(kind: str, directory: Path, *, durable: bool = False, **settings: str) -> MySqlServer:
    """Start the server of `directory`. `durable` syncs each commit, for tests that crash it."""
    binary = server_binary(kind)
    if binary is None:
        pytest.skip(MISSING[kind])
    chosen = {**_SETTINGS, **{name.replace("_", "-"): value for name, value in settings.items()}}
    if durable:
        chosen |= {"innodb-flush-log-at-trx-commit": "1", "sync-binlog": "1"}
    for _ in range(5):
        port = _free_port()
        command = [binary, "--no-defaults", f"--datadir={directory / 'data'}", f"--port={port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}"]
        command += [f"--{name}={value}" if value else f"--{name}" for name, value in chosen.items()]
        # MySQL's root is one of localhost, as it resolves 127.0.0.1.
        command += ["--mysqlx=OFF", "--secure-file-priv="] if kind == "mysql" else ["--skip-name-resolve"]
        with open(directory / "said", "wb") as said:
            process = subprocess.Popen(
                command,
                cwd=directory,
                user=server_user(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if _is_ready(process, port):
            return MySqlServer(kind, directory, port, process)
        complaint = (directory / "said").read_text(errors="replace")
        if "Address already in use" not in complaint:
            raise AssertionError(f"the server did not start: {complaint[-2000:]}")
    raise AssertionError("five free ports in a row were taken by somebody else")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """Once it answers; False if it ended instead."""
    for _ in range(START_TIMEOUT_S * 10):
        try:
            pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=5).close()
        except pymysql.OperationalError:
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            return False
        else:
            return True
    process.kill()
    raise AssertionError(f"the server did not answer within {START_TIMEOUT_S} s")


@contextmanager
def running_mysql(kind: str = "mariadb", **options: Any) -> Iterator[MySqlServer]:
    """A new server, removed at the end."""
    if server_binary(kind) is None:
        pytest.skip(MISSING[kind])
    base = Path(tempfile.mkdtemp(prefix="foldlog-mysql-"))
    server: MySqlServer | None = None
    try:
        base.chmod(0o755)
        make_data(kind, base)
        server = start_mysql(kind, base, **options)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(base, ignore_errors=True)


def mysql_kind() -> str:
    """Which of the two the tests use, where one is enough: FOLDLOG_MYSQLD names a MySQL instead of MariaDB."""
    return "mysql" if os.environ.get("FOLDLOG_MYSQLD") else "mariadb"


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    """One server for all tests of a worker."""
    with running_mysql(mysql_kind()) as server:
        yield server
