"""The shop's pipeline: the file that declares its four folds, the process that runs them, and their statuses."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from string import Template
from typing import Any, Final

import foldlog
from foldlog.client.fold_bulletin import FOLDS_TOPIC, Status, decode
from foldlog.demo.claims import DemoFailed
from foldlog.demo.crew import FOLDLOG, Crew, CrewMember
from foldlog.demo.payments import SCHEMA, TOPIC
from foldlog.errors import UnknownTopic
from foldlog.spark.folds.commands import ask
from foldlog.spark.folds.declaration import Fold, load_folds
from foldlog.views.bookmark import Bookmark

MIRROR: Final = "mirror"
SEARCH: Final = "search"
PER_MINUTE: Final = "per_minute"
HISTORY: Final = "history"
FOLDS: Final = (MIRROR, SEARCH, PER_MINUTE, HISTORY)

_LOOK_AGAIN_S: Final = 0.25

_FILE: Final = Template('''\
"""The folds of the shop: functions from payments to views."""

import foldlog.spark as fl

payments = fl.topic("$topic", key="tx_id", schema="$schema")


@fl.fold(payments, into=fl.table("$mirror", "payments"))
def mirror(rows):
    return rows  # one row for each payment: the newest; a refund deletes it


@fl.fold(payments, into=fl.search("$views/search", text=["merchant", "note"], engine="tantivy"))
def search(rows):
    return rows


@fl.fold(
    payments,
    into=fl.counters(
        "$views/live.db",
        by=["merchant"],
        window=("at", "1 minute"),
        measures={"payments": fl.count(), "paise": fl.sum("amount_paise"), "highest": fl.max("amount_paise")},
    ),
)
def per_minute(rows):
    return rows.filter("amount_paise > 0")


@fl.fold(payments, into=fl.lake("$views/history", format="delta"))
def history(rows):
    return rows  # every record, for ever
''')


def write_file(directory: Path, postgres_url: str | None) -> Path:
    """Write folds.py. The mirror is a table in PostgreSQL if there is a server, else in SQLite."""
    views = directory / "views"
    views.mkdir()
    file = directory / "folds.py"
    mirror = postgres_url or f"{views}/shop.db"
    file.write_text(_FILE.substitute(topic=TOPIC, schema=SCHEMA, views=views, mirror=mirror))
    return file


class DemoPipeline:
    """The process that runs the folds, which may be killed and restarted, and their views. For one thread."""

    def __init__(self, crew: Crew, file: Path, bootstrap: str, data: Path) -> None:
        """`data` is the served directory: it has the key with which the broker recognises runners."""
        self.file = file
        self._crew = crew
        self._bootstrap = bootstrap
        self._data = str(data)
        self._folds: dict[str, Fold] = {fold.name: fold for fold in load_folds(file)}
        self._process: CrewMember | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def process(self) -> CrewMember:
        if self._process is None:
            raise DemoFailed("the pipeline does not run")
        return self._process

    def start(self) -> None:
        """Does not wait for Spark, which takes a few seconds to start."""
        command = [*FOLDLOG, "fold", "run", str(self.file), "-b", self._bootstrap, "--interval", "300ms"]
        command += ["--folds-key", self._data]
        log = ["--spark-log", str(self._crew.directory / "spark.log")]
        # SIGTERM would make it store the current range, into views that are about to be deleted.
        self._process = self._crew.start("pipeline", [*command, *log], asking=signal.SIGKILL)

    def kill(self) -> None:
        process, self._process = self.process, None
        process.kill()

    def check(self) -> None:
        """DemoFailed if it has ended by itself."""
        if self._process is not None:
            self._process.check()

    def command(self, *arguments: str) -> str:
        """Run `foldlog fold` with these arguments to its end; returns its output."""
        options = ["-f", str(self.file), "-b", self._bootstrap]
        return self._crew.run(arguments[0], [*FOLDLOG, "fold", *arguments, *options])

    def ask(self, fold: str, verb: str) -> str:
        """Send a request to the running pipeline, as the console does; returns its id."""
        return ask(fold, self._bootstrap, verb, folds_key=self._data).id

    def bookmark(self, fold: str) -> Bookmark | None:
        """The bookmark that the view itself stores."""
        with closing(self._folds[fold].view) as view:
            return view.bookmark()

    def location_of(self, fold: str) -> str:
        return self._folds[fold].view.place

    def snapshot(self, fold: str) -> tuple[Bookmark, list[dict[str, Any]]]:
        """A view's bookmark and all its rows, at one moment."""
        with closing(self._folds[fold].view) as view:
            snapshot = view.scan()
            return snapshot.bookmark, [row for batch in snapshot.batches for row in batch.to_pylist()]

    def find(self, words: str, limit: int) -> list[dict[str, object]]:
        """Search the search view."""
        from foldlog.views.search.tantivy import TantivySearch

        with closing(self._folds[SEARCH].view) as view:
            if not isinstance(view, TantivySearch):
                raise DemoFailed(f"{view.place} cannot be searched")
            return view.search(words, limit)


class Bulletins:
    """The statuses that the running pipeline publishes in the topic `__folds`. For one thread."""

    def __init__(self, log: foldlog.Log) -> None:
        self._log = log
        self._at = 0
        self._latest: dict[str, Status] = {}

    def latest(self) -> Mapping[str, Status]:
        """The newest status of each fold."""
        try:
            end = self._log.offsets(FOLDS_TOPIC)[0][1]
        except UnknownTopic:
            return {}  # nothing was ever published
        for record in self._log.read(FOLDS_TOPIC, 0, start=self._at, stop=end):
            item = decode(record.key, record.value)
            if isinstance(item, Status):
                self._latest[item.fold] = item
        self._at = end
        return self._latest


def wait_for(is_so: Callable[[], bool], what: str, within_s: float, check: Callable[[], None]) -> float:
    """Poll until it is so; returns how long it took. DemoFailed after `within_s`; `check` may raise that sooner."""
    started_s = time.monotonic()
    while not is_so():
        check()
        if time.monotonic() - started_s > within_s:
            raise DemoFailed(f"not within {within_s:.0f} s: {what}")
        time.sleep(_LOOK_AGAIN_S)
    return time.monotonic() - started_s
