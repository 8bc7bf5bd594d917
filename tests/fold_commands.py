"""`foldlog fold` as a process of its own, and where the views of its folds stand while others write and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Final

import foldlog.spark as fl
from foldlog.demo.descendants import end_all, family_of
from folds_shop import loaded
from payment_writer import PaymentWriter
from spark_session import child_environment

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE_S: Final = 240
"""For anything that is waited for: none of it takes long, even on a busy machine."""

SOME_RECORDS: Final = 100
"""Acknowledged, and read by every view, between one event and the next."""


def wait_until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
    """Look again and again; AssertionError with `what` if it does not come."""
    pause = Event()
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"not within {PATIENCE_S} s: {what()}"
        pause.wait(0.2)  # looking opens every view


def environment(**more: str) -> dict[str, str]:
    """For a child with a quick Spark of its own, and this tree's foldlog in its driver and in its workers."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **child_environment(), **more}


class FoldCommand:
    """A running `foldlog fold …`. What it says is in `output`."""

    def __init__(self, output: Path, *arguments: object, **more_environment: str) -> None:
        self.output = output
        command = [sys.executable, "-m", "foldlog.cli.main", "fold", *map(str, arguments)]
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(**more_environment)
            )

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def still_runs(self) -> bool:
        """AssertionError with what it said if it has ended."""
        assert self._process.poll() is None, f"it ended by itself: {self.said()[-3000:]}"
        return True

    def stop(self) -> int:
        """Ask, as Ctrl-C and service managers do; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.finish()

    def finish(self) -> int:
        """Wait for its own end; its exit code."""
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """Whatever state it is in: it, its JVM and their children are killed."""
        family = family_of(self._process.pid)
        self._process.kill()
        self._process.wait(PATIENCE_S)
        assert not end_all(family)


@contextmanager
def fold_command(output: Path, *arguments: object, **more_environment: str) -> Iterator[FoldCommand]:
    """Nothing of it is left after the block."""
    command = FoldCommand(output, *arguments, **more_environment)
    try:
        yield command
    finally:
        command.end()


def run_fold(output: Path, *arguments: object, **more_environment: str) -> str:
    """To its end, which has to be a good one; what it said."""
    with fold_command(output, *arguments, **more_environment) as command:
        code = command.finish()
        assert code == 0, command.said()[-3000:]
        return command.said()


def records_read(file: Path) -> dict[str, int]:
    """How many offsets each view of a pipeline has read, by its own bookmark, whoever is writing to it."""
    found: dict[str, int] = {}
    for name, fold in loaded(file).items():
        with closing(fold.view):
            bookmark = fold.view.bookmark()
        found[name] = 0 if bookmark is None else sum(at.offset for at in bookmark.positions.values())
    return found


def wait_for_more(runner: FoldCommand, writer: PaymentWriter, file: Path, when: str) -> None:
    """The producer gets acknowledgements and every view goes on, beyond what was acknowledged at the beginning."""
    goal = writer.acknowledged() + SOME_RECORDS

    def is_beyond() -> bool:
        runner.still_runs()
        return writer.acknowledged() >= goal and min(records_read(file).values()) >= goal

    wait_until(
        is_beyond,
        lambda: (
            f"{goal} acknowledged ({writer.acknowledged()} are) and read by all ({records_read(file)}) {when}:"
            f" {runner.said()[-2000:]}"
        ),
    )


def wait_until_read(runner: FoldCommand, file: Path, count: int) -> None:
    """Every view has read as many offsets, and no more."""
    wait_until(
        lambda: runner.still_runs() and set(records_read(file).values()) == {count},
        lambda: f"{records_read(file)} read of {count}: {runner.said()[-2000:]}",
    )


def verify_by_runner(runner: FoldCommand, file: Path, source: str) -> None:
    """The runner that lived through it all is asked, over the topic that did, too, to compare with a replay."""
    asked = {name: fl.ask(name, source, "verify").id for name in loaded(file)}

    def verdicts() -> dict[str, str | None]:
        told = [one.published for one in fl.status(list(loaded(file).values()), source) if one.published is not None]
        return {one.fold: one.result for one in told if one.last_command == asked[one.fold]}

    def is_verified() -> bool:
        runner.still_runs()
        told = verdicts()
        return len(told) == len(asked) and "verifying" not in told.values()

    wait_until(is_verified, lambda: f"verdicts, and there are {verdicts()}: {runner.said()[-2000:]}")
    assert {(told or "").partition(":")[0] for told in verdicts().values()} == {"equal"}, verdicts()
