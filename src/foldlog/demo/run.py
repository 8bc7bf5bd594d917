"""Sets the stage, has the story told, and takes everything down again, however it ends."""

from __future__ import annotations

import select
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TextIO

import foldlog
from foldlog.demo.board import Observer
from foldlog.demo.broker import Broker
from foldlog.demo.claims import Checklist, DemoFailed
from foldlog.demo.crew import Crew, asked_to_leave
from foldlog.demo.pipeline import Pipeline, write_file
from foldlog.demo.postgres import start_postgres
from foldlog.demo.preflight import Machine, look_around, missing_pieces
from foldlog.demo.prices import Prices
from foldlog.demo.readers import Reader
from foldlog.demo.screen import Screen
from foldlog.demo.stage import QUICK, SLOW, SLOW_PART, STOCK, Stage, Ticker, labels
from foldlog.demo.story import tell
from foldlog.demo.writer import Writer
from foldlog.errors import FoldlogError


@dataclass(frozen=True, slots=True)
class Options:
    """`is_once`: end after the checklist, instead of staying open for the console. `rate` is payments a second."""

    is_once: bool = False
    rate: int = 1000


def run_demo(options: Options, stream: TextIO) -> bool:
    """Whether every claim holds. DemoFailed before anything is started if this machine lacks something."""
    missing = missing_pieces()
    if missing:
        raise DemoFailed(" ".join(missing))
    screen, checklist = Screen(stream), Checklist()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
            signal.signal(number, asked_to_leave)
    directory = Path(tempfile.mkdtemp(prefix="foldlog-demo-"))
    with Crew(directory) as crew:
        try:
            with _set_stage(options, look_around(), crew, screen, checklist) as stage:
                tell(stage)
                screen.checklist(checklist)
                if not options.is_once:
                    _stay_open(stage)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            screen.say("Interrupted: ending what was started.")
            raise
        except (FoldlogError, OSError) as error:
            checklist.trouble = str(error)
            screen.checklist(checklist)
    return checklist.all_hold


@contextmanager
def _set_stage(options: Options, machine: Machine, crew: Crew, screen: Screen, checklist: Checklist) -> Iterator[Stage]:
    """Start everything that the story needs."""
    screen.title("foldlog: one durable log; everything else is a fold over it")
    screen.say(f"Everything happens in {crew.directory}, on ports of 127.0.0.1 that are free, and is gone afterwards.")
    with ExitStack() as ending:
        broker = Broker(crew, crew.directory / "data")
        screen.command(f"foldlog serve data --listen {broker.bootstrap} --console {broker.console}")
        screen.say(broker.start())
        database = _database(crew, machine, screen)
        writer = Writer(broker.bootstrap, options.rate)
        ending.callback(writer.stop)
        slow_per_s = max(1, options.rate // SLOW_PART)
        readers = {
            QUICK: Reader(broker.bootstrap, QUICK, QUICK),
            SLOW: Reader(broker.bootstrap, SLOW, SLOW, slow_per_s),
            STOCK: Reader(broker.bootstrap, STOCK, None),
        }
        for reader in readers.values():
            ending.callback(reader.stop)
        pipeline = Pipeline(crew, write_file(crew.directory, database), broker.bootstrap)
        pipeline.start()
        observer = Observer(broker.directory, writer, list(readers.values()), labels(database, slow_per_s))
        observer.expect(pipeline.pid)
        screen.serve_at(f"Kafka clients {broker.bootstrap} ── console {broker.console_url}")
        ending.callback(Ticker(observer, screen).stop)
        log = ending.enter_context(foldlog.open(broker.directory, mode="r"))
        yield Stage(screen, checklist, broker, writer, readers, observer, Prices(broker), pipeline, log)


def _database(crew: Crew, machine: Machine, screen: Screen) -> str | None:
    """Where the mirror goes: the URL of a PostgreSQL, None for SQLite."""
    if machine.postgres is None:
        screen.say("PostgreSQL's server is not installed here: the table is in SQLite.")
        return None
    screen.say("PostgreSQL is installed here: a server is started for one of the views.")
    try:
        return start_postgres(crew, machine.postgres)
    except (DemoFailed, OSError) as error:
        screen.say(f"It does not start ({error}), so the table is in SQLite.")
        return None


def _stay_open(stage: Stage) -> None:
    """Until Enter or Ctrl-C; payments go on, for who looks at the console."""
    stage.screen.say(
        f"Payments go on. Look at {stage.broker.console_url} and drag a cursor to the left."
        " Enter or Ctrl-C ends the demo."
    )
    stage.writer.resume()
    try:
        _wait_for_enter(stage)
    except KeyboardInterrupt:
        stage.screen.say("Leaving.")


def _wait_for_enter(stage: Stage) -> None:
    never = Event()
    while True:
        stage.check()
        if sys.stdin is None or sys.stdin.closed:
            never.wait(1.0)
        elif select.select([sys.stdin], [], [], 1.0)[0]:
            if sys.stdin.readline():  # at the end of the input there is nobody who could press a key
                stage.screen.line_was_typed()
            return
