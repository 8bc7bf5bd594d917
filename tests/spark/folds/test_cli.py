"""`foldlog fold` with a Spark of its own, as a person meets it: what it says, what it does not say, how it ends.

Each test starts the command as a process, which starts a JVM: so there are few, and each looks at several things. No
line that Spark prints may reach a person, and nothing may be left running.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

import foldlog
from cli.command import COMMAND, environment
from cli.screen import Terminal
from spark_session import child_environment

WAIT_S = 400

pytestmark = pytest.mark.timeout(2 * WAIT_S)  # each starts Spark several times, beside whatever else runs
SPARKS_WORDS = re.compile(r"WARN|INFO|log4j|Spark's default|incubator|Traceback|Exception in|^\s*at |^\[Stage")

PIPELINE = """
import foldlog.spark as fl
import helpers
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT")
SUFFIX = "!"

def loud(text): return helpers.upper(text) + SUFFIX
shout = F.udf(loud, StringType())

@fl.fold(payments, into=fl.table("views/shop.db", "payments"))
def mirror(rows): return rows.withColumn("merchant", shout("merchant"))
"""

WRONG = """
import foldlog.spark as fl
from pyspark.sql import functions as F

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT")

def into(name): return fl.table("views/wrong.db", name)

@fl.fold(payments, into=into("grouped"))
def grouped(rows): return rows.groupBy("merchant").count()

@fl.fold(payments, into=into("misspelt"))
def misspelt(rows): return rows.filter("amount_pais > 0")

@fl.fold(payments, into=into("raising"))
def raising(rows): return rows.withColumn("merchant", F.udf(lambda text: 1 // 0, "int")("merchant"))

@fl.fold(payments, into=fl.table("/dev/null/shop.db", "payments"))
def unwritable(rows): return rows

@fl.fold(payments, into=into("fine"))
def fine(rows): return rows.withColumn("merchant", F.upper("merchant"))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with a log of ten payments, one that is none, and a pipeline with a module beside it."""
    (tmp_path / "folds.py").write_text(PIPELINE)
    (tmp_path / "helpers.py").write_text("def upper(text):\n    return text.upper()\n")
    with foldlog.open(tmp_path / "data") as log:
        log.create_topic("payments")
        for number in range(10):
            log.append("payments", {"merchant": "tea", "amount_paise": number}, key=f"tx{number}")
        log.append("payments", b"no payment", key="tx11")
    return tmp_path


def merchants(shop: Path, database: str = "shop.db", table: str = "payments") -> list[str]:
    with closing(sqlite3.connect(shop / "views" / database)) as connection:
        return [merchant for (merchant,) in connection.execute(f"SELECT merchant FROM {table}")]


def fold(shop: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "fold", *arguments],
        cwd=shop,
        env={**environment(), **child_environment(), **extra},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def untimed(line: str) -> str:
    """A line of progress without its time."""
    return re.sub(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ", "", line)


@pytest.mark.faults
def test_an_orchestrator_can_tell_by_the_exit_code_how_a_run_ended(shop: Path) -> None:
    """Caught up, too little time, paused by somebody, and a receiver of metrics and events that is not there."""
    run = ("run", "folds.py", "-d", "data")
    late = fold(shop, *run, "--once", "--until-caught-up", "--timeout", "0s")
    assert late.returncode == 124, late.stderr
    assert late.stderr.splitlines()[-1].startswith("foldlog: the time is over, and not everything was read by mirror;")
    done = fold(shop, *run, "--until-caught-up", "--timeout", "10m", "--metrics", "run.prom")
    assert done.returncode == 0, done.stderr
    assert 'foldlog_fold_records_total{fold="mirror"} 11\n' in (shop / "run.prom").read_text()
    assert fold(shop, *run, "--timeout", "1s").returncode == 0  # asked to run so long, and no more
    fold(shop, "pause", "mirror", "-d", "data")
    paused = fold(shop, *run, "--once")
    assert (paused.returncode, paused.stderr.splitlines()[-1]) == (
        5,
        "foldlog: fold 'mirror' is paused, and so not up to date: foldlog fold resume mirror",
    )


@pytest.mark.faults
def test_a_changed_function_stops_a_run_until_the_change_is_accepted(shop: Path) -> None:
    run = ("run", "folds.py", "-d", "data", "--once")
    assert fold(shop, *run).returncode == 0
    (shop / "helpers.py").write_text('def upper(text):\n    "Words alone change nothing."\n    return text.upper()\n')
    assert fold(shop, *run).returncode == 0
    (shop / "helpers.py").write_text("def upper(text):\n    return text.title()\n")
    with foldlog.open(shop / "data") as log:
        log.append("payments", {"merchant": "chai", "amount_paise": 1}, key="tx12")
    refused = fold(shop, *run)
    assert refused.returncode == 1
    assert "the function of fold 'mirror' is another one than its view was made with" in refused.stderr
    assert "--accept-change" in refused.stderr
    assert merchants(shop) == ["TEA!"] * 10
    accepted = fold(shop, *run, "--accept-change")
    assert accepted.returncode == 0, accepted.stderr
    assert "old and new logic mix" in accepted.stderr
    assert sorted(merchants(shop)) == ["Chai!", *["TEA!"] * 10]
    assert "old and new logic mix" in fold(shop, "status", "-d", "data").stdout
    assert fold(shop, *run).returncode == 0  # it need not be accepted twice


CHAIN = """
import foldlog.spark as fl

schema = "merchant STRING, amount_paise BIGINT"
payments = fl.topic("payments", key="tx_id", schema=schema)
large = fl.topic("large", key="tx_id", schema=schema)

@fl.fold(large, into=fl.table("views/shop.db", "payments"))
def mirror(rows): return rows

@fl.fold(payments, into=fl.changes("large"))
def keep_large(rows): return rows.filter("amount_paise >= 5")
"""


@pytest.mark.faults
def test_a_rebuild_goes_on_downstream_if_it_is_asked(shop: Path) -> None:
    (shop / "folds.py").write_text(CHAIN)
    assert fold(shop, "run", "folds.py", "-d", "data", "--once").returncode == 0
    with closing(sqlite3.connect(shop / "views" / "shop.db")) as connection, connection:
        connection.execute("UPDATE payments SET merchant = 'spoilt' WHERE tx_id = 'tx9'")
    (shop / "folds.py").write_text(CHAIN.replace(">= 5", ">= 8"))
    rebuilt = fold(shop, "rebuild", "keep_large", "--downstream", "-d", "data")
    assert rebuilt.returncode == 0, rebuilt.stderr
    first, second = rebuilt.stdout.splitlines()
    assert first == "topic large is rebuilt from 11 records"
    # Five rows, and a tombstone for each of the three that the new function leaves out: it was rebuilt after the topic.
    assert re.fullmatch(r"table payments in .* is rebuilt from 8 records; the old one is kept until .*", second)
    assert merchants(shop) == ["tea"] * 2
    assert "spoilt" in merchants(shop, table="payments__old")
    assert "behind keep_large" not in rebuilt.stderr


@contextmanager
def started(shop: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The command as a running process, and the file that its standard error goes to."""
    errors = shop / "errors.txt"
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMAND, "fold", *arguments], cwd=shop, env={**environment(), **child_environment()}, stderr=stream
        )
    try:
        yield process, errors
    finally:
        process.kill()
        process.wait()


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    pause = Event()
    for _ in range(WAIT_S * 20):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError(f"not within {WAIT_S} s: {what}")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.faults  # with the other long runs
def test_a_running_pipeline_is_quiet_notices_a_rewind_while_it_waits_and_ends_when_it_is_asked(shop: Path) -> None:
    with started(shop, "run", "folds.py", "-d", "data", "--interval", "50ms") as (process, errors):
        wait_until(lambda: "0=0:11" in errors.read_text(), f"the first range is told; {errors.read_text()}")
        jvm = children_of(process.pid)
        rewound = fold(shop, "rewind", "mirror", "--to", "start", "-d", "data")
        assert rewound.stdout == "mirror went from 0=11 to 0=0: 11 offsets to read again\n"
        wait_until(lambda: errors.read_text().count("0=0:11") == 2, "an idle fold notices that it was rewound")
        paused = fold(shop, "pause", "mirror", "-d", "data")
        assert paused.stdout.endswith("which runs mirror, to pause it\n")
        wait_until(lambda: "mirror: paused" in errors.read_text(), "the pause is told")
        refused = fold(shop, "drop", "mirror", "-d", "data")
        assert (refused.returncode, "is being run by" in refused.stderr) == (5, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        told = errors.read_text()
    assert not SPARKS_WORDS.search(told), told
    assert [untimed(line).partition("  ")[0] for line in told.splitlines()] == [
        "mirror: 0=0:11",
        "mirror: 0=0:11",
        "mirror: paused",
        "stopping after the current work; a second signal stops it at once",
    ]
    # Functions of the file, and of the module beside it, have reached the workers.
    assert merchants(shop) == ["TEA!"] * 10
    assert jvm
    wait_until(lambda: not any(map(is_running, jvm)), "Spark has ended with its driver")


@pytest.mark.faults  # with the other long runs
def test_each_failure_is_a_sentence_and_what_is_right_is_done(shop: Path) -> None:
    (shop / "wrong.py").write_text(WRONG)
    done = fold(shop, "run", "wrong.py", "-d", "data", "--once")
    assert (done.returncode, done.stdout) == (1, "")
    assert not SPARKS_WORDS.search(done.stderr), done.stderr
    for told in (
        "grouped: failed: fold 'grouped' breaks the law of folds: it aggregates;",
        "misspelt: failed: fold 'misspelt' cannot be planned: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
        "raising: 0=0:11  ",
        "unwritable: waiting: table payments in sqlite:////dev/null/shop.db cannot be used",
        "fine: 0=0:11  ",
    ):
        assert any(untimed(line).startswith(told) for line in done.stderr.splitlines()), (told, done.stderr)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("foldlog: ")
    assert last.endswith("(and 2 more)")
    assert merchants(shop, "wrong.db", "fine") == ["TEA"] * 10
    # The fold that failed beside it, over the same rows, does not hide what did not parse.
    with foldlog.open(shop / "data", "r") as log:
        assert [record.key for record in log.read("fine.dead")] == [b"payments/0/10"]
        # What a function raises is told with each record that it fails at.
        whys = [dict(record.headers)["reason"] or b"" for record in log.read("raising.dead")]
        assert (len(whys), sum(b"ZeroDivisionError" in why for why in whys)) == (11, 10)


@pytest.mark.faults
def test_on_a_terminal_a_table_is_drawn_and_spark_is_announced(shop: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "fold", "run", "-d", "data", "--once", "--strict", "--spark-log", "spark.txt"],
            cwd=shop,
            env={**environment(), **child_environment(), "COLUMNS": "100", "LINES": "40"},
            stderr=theirs,
        )
        os.close(theirs)
        screen = "".join(_read_all(ours))
        assert process.wait(WAIT_S) == 1
    finally:
        os.close(ours)
    terminal = Terminal()
    terminal.write(screen)
    shown = terminal.lines()
    assert [line.split() for line in shown].count(
        ["FOLD", "STATE", "ROWS/S", "LAG", "RECORDS", "DEAD", "LAST", "RANGE"]
    ) == 1, shown
    assert "starting Spark" in screen
    assert not SPARKS_WORDS.search(screen), screen
    said = " ".join(" ".join(shown).split())  # wrapped to the terminal
    assert "foldlog: fold 'mirror' stops at offset 10 of payments-0: not JSON" in said
    # What Spark says is where it was asked for.
    assert "log4j" in (shop / "spark.txt").read_text()


def _read_all(descriptor: int) -> Iterator[str]:
    while select.select([descriptor], [], [], WAIT_S)[0]:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the other end is closed: so Linux says it
            return
        if not data:
            return
        yield data.decode()


@pytest.mark.faults  # with the other long runs
def test_a_spark_that_does_not_start_says_why(shop: Path) -> None:
    for extra, told in (
        ({"JAVA_HOME": "/nowhere"}, "Spark needs Java 17 or newer, and there is none in JAVA_HOME=/nowhere"),
        ({"SPARK_REMOTE": "sc://localhost"}, "folds need a classic Spark session"),
        ({"PYSPARK_SUBMIT_ARGS": "--nonsense pyspark-shell"}, "Spark did not start: Error: Unrecognized option: --n"),
    ):
        done = fold(shop, "run", "-d", "data", "--once", **extra)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"foldlog: {told}")
        assert done.stderr.count("\n") == 1
