"""`foldlog serve` on a directory, killed and started again on the same port: what the tests of a served log share."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Self

from cli.command import COMMAND, WAIT_S, environment
from foldlog.demo.crew import free_port

READY = "foldlog is serving "

JOURNAL_AT_ONCE = "from foldlog import limits; limits.JOURNAL_BEGIN_SYNCS = 1; limits.JOURNAL_ALONE_ASKS = 1 << 30"
"""For the beginning of a program: most directories of tests would never get a journal."""


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"this system does not tell {name}")


class ServedDirectory:
    """One directory and one port; the process that serves them may come and go. One thread's."""

    def __init__(self, path: Path, *arguments: str, planted: str = "", journaled: bool = True) -> None:
        """`planted`: a program that breaks something in each process before it serves. `journaled`: with a journal, and
        from the first sync on."""
        self.path = path / "data"
        self.port = free_port()
        self.starts = 0
        python, option, program = COMMAND
        self._command = [python, option, f"{JOURNAL_AT_ONCE}\n{planted}\n{program}"]
        self._arguments = (*arguments, "-X", f"foldlog.journal.enable={str(journaled).lower()}")
        self._log = path / "serve.log"
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def peak_bytes(self) -> int:
        """The most memory that its process has had resident since it started, or since `forget_peak`."""
        return _status_kib(self.pid, "VmHWM") << 10

    @property
    def resident_bytes(self) -> int:
        return _status_kib(self.pid, "VmRSS") << 10

    def forget_peak(self) -> None:
        """Count the peak anew, from what is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def logged(self) -> str:
        """What all its processes have logged."""
        return self._log.read_text()

    def start(self) -> None:
        """Returns when it has said that it is ready."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._command, "serve", str(self.path), "--listen", self.bootstrap, *self._arguments],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(READY), f"it did not start: {self.logged}"
        self.starts += 1

    def end(self, number: signal.Signals) -> int:
        """Send the signal and wait for the end; the exit code."""
        process, self._process = self._process, None
        assert process is not None
        with process:
            process.send_signal(number)
            try:
                return process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)
