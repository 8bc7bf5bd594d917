"""Checks what the demo needs, starts everything, runs the story, and cleans up, however it ends.

Each missing piece is reported in one sentence, before anything is started.
"""

from __future__ import annotations

import glob
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import Final, TextIO

import foldlog
from foldlog.demo.board import Observer
from foldlog.demo.claims import Checklist, DemoFailed
from foldlog.demo.crew import Crew, asked_to_leave
from foldlog.demo.pipeline import DemoPipeline, write_file
from foldlog.demo.prices import Prices
from foldlog.demo.readers import Reader
from foldlog.demo.screen import Screen
from foldlog.demo.servers import DemoBroker, start_postgres
from foldlog.demo.stage import QUICK, SLOW, SLOW_PART, STOCK, DemoStage, Ticker, labels
from foldlog.demo.stock_clients import installed_client
from foldlog.demo.story import tell
from foldlog.demo.writer import Writer
from foldlog.errors import FoldlogError


@dataclass(frozen=True, slots=True)
class Options:
    """`is_once`: end after the checklist, instead of staying open for the console. `rate` is payments per second."""

    is_once: bool = False
    rate: int = 1000


def run_demo(options: Options, stream: TextIO) -> bool:
    """Whether every claim holds. DemoFailed, before anything is started, if this machine lacks something."""
    missing = missing_pieces()
    if missing:
        raise DemoFailed(" ".join(missing))
    screen, checklist = Screen(stream), Checklist()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
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
def _set_stage(
    options: Options, machine: Machine, crew: Crew, screen: Screen, checklist: Checklist
) -> Iterator[DemoStage]:
    """Start everything that the story needs."""
    screen.title("foldlog: one durable log; everything else is a fold over it")
    screen.say(f"Everything happens in {crew.directory}, on ports of 127.0.0.1 that are free, and is gone afterwards.")
    with ExitStack() as ending:
        broker = DemoBroker(crew, crew.directory / "data")
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
        pipeline = DemoPipeline(crew, write_file(crew.directory, database), broker.bootstrap, broker.directory)
        pipeline.start()
        observer = Observer(broker.directory, writer, list(readers.values()), labels(database, slow_per_s))
        observer.expect(pipeline.pid)
        screen.serve_at(f"Kafka clients {broker.bootstrap} ── console {broker.console_url}")
        ending.callback(Ticker(observer, screen).stop)
        log = ending.enter_context(foldlog.open(broker.directory, mode="r"))
        yield DemoStage(screen, checklist, broker, writer, readers, observer, Prices(broker), pipeline, log)


def _database(crew: Crew, machine: Machine, screen: Screen) -> str | None:
    """Where the mirror is stored: the URL of a PostgreSQL, None for SQLite."""
    if machine.postgres is None:
        screen.say("PostgreSQL's server is not installed here: the table is in SQLite.")
        return None
    screen.say("PostgreSQL is installed here: a server is started for one of the views.")
    try:
        return start_postgres(crew, machine.postgres)
    except (DemoFailed, OSError) as error:
        screen.say(f"It does not start ({error}), so the table is in SQLite.")
        return None


def _stay_open(stage: DemoStage) -> None:
    """Until Enter or Ctrl-C; payments continue, for the console."""
    stage.screen.say(
        f"Payments go on. Look at {stage.broker.console_url} and drag a cursor to the left."
        " Enter or Ctrl-C ends the demo."
    )
    stage.writer.resume()
    try:
        _wait_for_enter(stage)
    except KeyboardInterrupt:
        stage.screen.say("Leaving.")


def _wait_for_enter(stage: DemoStage) -> None:
    never = Event()
    while True:
        stage.check()
        if sys.stdin is None or sys.stdin.closed:
            never.wait(1.0)
        elif select.select([sys.stdin], [], [], 1.0)[0]:
            if sys.stdin.readline():  # at the end of the input, no key can be pressed
                stage.screen.line_was_typed()
            return


# --- what the demo needs ----------------------------------------------------------------------------------------------

JAVA_OLDEST: Final = 17
_PACKAGES: Final = {
    "pyspark": "Spark, which runs the folds (a download of 456 MB)",
    "pyarrow": "Arrow, which carries their rows",
    "tantivy": "the full-text index",
    "deltalake": "the lake table",
}
INSTALL: Final = "pip install 'foldlog[spark,views,kafka]'"


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found. `postgres` is the directory of PostgreSQL's server, None if there is none."""

    kafka_client: str
    postgres: Path | None


def missing_pieces() -> list[str]:
    """One sentence for each missing piece that the demo cannot run without."""
    missing: list[str] = []
    java = java_complaint()
    if java:
        missing.append(java)
    absent = [f"{name} ({what})" for name, what in _PACKAGES.items() if find_spec(name) is None]
    if installed_client() is None:
        absent.append("confluent-kafka (the stock Kafka client)")
    if absent:
        missing.append(f"These Python packages are missing: {', '.join(absent)}; install them: {INSTALL}")
    return missing


def look_around() -> Machine:
    """What is installed, once nothing is missing."""
    return Machine(installed_client() or "", server_binaries() if find_spec("psycopg") is not None else None)


def java_complaint() -> str:
    """What is wrong with this machine's Java; empty if nothing is."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    advice = f"install Java {JAVA_OLDEST} or newer (Debian: apt-get install default-jre-headless)"
    if shutil.which(java) is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        return f"Spark needs Java, and there is none in {where}; {advice}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = java_version(told)
    if version is None or version >= JAVA_OLDEST:
        return ""  # an unknown version may do
    return f"Spark needs a newer Java than {version}; {advice}"


def java_version(told: str) -> int | None:
    """
    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if found is None else int(found[1])


def server_binaries() -> Path | None:
    """The directory that holds PostgreSQL's `initdb` and `postgres`, the newest version first."""
    candidates = [Path(found).resolve().parent for found in (shutil.which("postgres"),) if found]
    versions = glob.glob("/usr/lib/postgresql/*/bin") + glob.glob("/usr/pgsql-*/bin")
    candidates += sorted(map(Path, versions), key=lambda path: _digits(path.parent.name), reverse=True)
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate
    return None


def _digits(name: str) -> int:
    return int("".join(character for character in name if character.isdigit()) or 0)
