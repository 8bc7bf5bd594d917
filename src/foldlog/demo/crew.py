"""The processes of the demo: started, killed and ended here, each identified by its process id.

Each leads its own process group, so that a terminal's Ctrl-C reaches only the demo, which then decides. A watchdog
knows them all and ends what is left when the demo is gone, however it ended.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from foldlog.demo.claims import DemoFailed
from foldlog.demo.descendants import END_WITHIN_S, end_all, end_family, family_of, wait_for_end

FOLDLOG: Final = (sys.executable, "-m", "foldlog.cli.main")
_USUAL_LOWEST_PORT: Final = 32_768


def free_port() -> int:
    """A port that is free, and stays free while the broker is down.

    Outside the system's range of ephemeral ports: a client that keeps connecting to such a port while the broker is
    down eventually connects to itself, and the broker can never listen there again.
    """
    told = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest_given_out = int(told.read_text().split()[0]) if told.exists() else _USUAL_LOWEST_PORT
    ports = list(range(min(10_000, lowest_given_out // 2), lowest_given_out))
    random.SystemRandom().shuffle(ports)
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DemoFailed(f"every port below {lowest_given_out} of 127.0.0.1 is taken; end something that listens there")


def environment(scratch: Path) -> dict[str, str]:
    """The environment of the processes, without FOLDLOG_* variables, which are meant for the demo itself.

    Their temporary files go to `scratch`: a JVM that is killed leaves libraries and block files behind.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("FOLDLOG_")}
    java = f'{given.get("SPARK_SUBMIT_OPTS", "")} -Djava.io.tmpdir="{scratch}"'.strip()
    return {**given, "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "SPARK_SUBMIT_OPTS": java}


class CrewMember:
    """One process. Its standard error goes to `journal`. For one thread."""

    def __init__(
        self, crew: Crew, name: str, process: subprocess.Popen[str], journal: Path, asking: signal.Signals
    ) -> None:
        """Use `Crew.start`. `asking` is the signal that asks it to end."""
        self.name = name
        self.journal = journal
        self._crew = crew
        self._asking = asking
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def first_line(self) -> str:
        """The first line of its standard output; DemoFailed, with its last error, if there is none."""
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise DemoFailed(f"{self.name} did not start: {self.last_words()}")
        return line.rstrip("\n")

    def finish(self) -> tuple[str, int]:
        """Wait until it ends; returns its standard output and its exit code."""
        printed, _ = self._process.communicate()
        self._crew.forget(self)
        return printed, self._process.returncode

    def check(self) -> None:
        """DemoFailed if it has ended by itself."""
        if self.has_ended:
            raise DemoFailed(f"{self.name} ended by itself: {self.last_words()}")

    def last_words(self) -> str:
        lines = self.journal.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def kill(self) -> None:
        """kill -9 of this process only; its children end by themselves. Returns when all of them are gone."""
        family = family_of(self.pid)
        self._process.kill()
        self._process.wait()
        end_all(wait_for_end(family, END_WITHIN_S))
        self._crew.forget(self)

    def end(self) -> None:
        """Ask it to end; if it does not, kill it with all its descendants."""
        end_family(self.pid, self._asking)
        self._process.wait()
        self._crew.forget(self)


class Crew:
    """All processes of the demo. Use it in a `with` block: at its end they are gone, and so is the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._scratch = directory / "tmp"
        self._scratch.mkdir()
        self._members: list[CrewMember] = []
        self._watchdog = subprocess.Popen(
            [sys.executable, "-m", "foldlog.demo.watchdog", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        user: str | None = None,
        cwd: Path | None = None,
        asking: signal.Signals = signal.SIGTERM,
    ) -> CrewMember:
        """Start a process. Its standard output is for `first_line`."""
        journal = self.directory / f"{name}.log"
        with journal.open("a", encoding="utf-8") as complaints:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
                cwd=cwd or self.directory,
                env=environment(self._scratch),
                user=user,
                start_new_session=True,
                text=True,
            )
        member = CrewMember(self, name, process, journal, asking)
        self._members.append(member)
        self._tell(f"+{member.pid} {int(asking)}")
        return member

    def run(self, name: str, command: Sequence[str], *, user: str | None = None, cwd: Path | None = None) -> str:
        """Run a process to its end; returns its output. DemoFailed if it fails."""
        member = self.start(name, command, user=user, cwd=cwd)
        printed, code = member.finish()
        if code:
            raise DemoFailed(f"{name} failed: {member.last_words()}")
        return printed.strip()

    def forget(self, member: CrewMember) -> None:
        self._members.remove(member)
        self._tell(f"-{member.pid}")

    def close(self) -> None:
        """Newest first: readers of the log end before the broker. Then the watchdog removes the directory."""
        for member in reversed(list(self._members)):
            member.end()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.write(f"{line}\n")
            self._watchdog.stdin.flush()


def asked_to_leave(number: int, frame: object) -> None:
    """A handler for SIGTERM and SIGHUP: leave as after Ctrl-C."""
    raise KeyboardInterrupt(signal.Signals(number).name)
