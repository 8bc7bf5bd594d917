"""`foldlog fold` without Spark: what is refused before Spark is started, and the verbs that need none.

The command runs in this process; what it prints and its exit code are what a person would see. Views get their
bookmarks here by hand, as a runner would give them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import foldlog
from cli.command import foldlog as command
from foldlog.cli.main import main
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Status
from foldlog.clock import SystemClock
from foldlog.spark.folds.bulletin import entry_of
from foldlog.spark.folds.commands import ask
from foldlog.spark.folds.declaration import load_folds
from foldlog.spark.folds.feed import starting_bookmark
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.testing import KafkaBroker
from foldlog.views.bookmark import Position
from foldlog.views.contract import Shape

RECORDS = 30
PIPELINE = """
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="merchant STRING, amount_paise BIGINT")

@fl.fold(payments, into=fl.table("views/shop.db", "payments"))
def mirror(rows): return rows

@fl.fold(payments, into=fl.counters("views/live.db", by=["merchant"], measures={"payments": fl.count()}))
def per_merchant(rows): return rows
"""

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a log and a pipeline, which is where the commands run."""
    monkeypatch.chdir(tmp_path)
    for name in ("FOLDLOG_SOURCE", "FOLDLOG_FOLDS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "folds.py").write_text(PIPELINE)
    with foldlog.open("data") as log:
        log.create_topic("payments", partitions=2)
        for number in range(RECORDS):
            log.append("payments", {"merchant": "tea", "amount_paise": number}, partition=number % 2)
    return tmp_path


@pytest.fixture
def fold(shop: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `foldlog fold` with these arguments: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["fold", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def read_up_to(offset: int, name: str = "mirror", *, source: str = "data") -> None:
    """Give a fold's view the bookmark that it has after so many offsets of each partition."""
    (view,) = [one.view for one in load_folds("folds.py") if one.name == name]
    origin = open_origin(origin_spec(source))
    try:
        start = starting_bookmark(origin.topic("payments"), origin.bounds("payments"))
    finally:
        origin.close()
    columns = pa.schema([("tx_id", pa.string()), ("merchant", pa.string()), ("amount_paise", pa.int64())])
    view.prepare(Shape(columns, "tx_id", ("tx_id",)), start)
    view.move(start, start.advanced({0: Position(offset), 1: Position(offset)}))
    view.close()


def publish(state: str, *, error: str | None = None, age_ms: int = 0) -> None:
    """What a runner of the fold `mirror` says of it."""
    now_ms = SystemClock().now_ms() - age_ms
    at = {"0": 10, "1": 10}
    status = Status(
        "mirror", "payments", "views", "table", state, at, at, 0, 20, 20, 0.0, 3, 0, "", error, "host:77", now_ms
    )
    ledger = open_ledger(origin_spec("data"))
    try:
        ledger.ensure_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        ledger.append(FOLDS_TOPIC, [entry_of(status)])
    finally:
        ledger.close()


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["run", "none.py", "-d", "data"], 2, "there is no file none.py; a pipeline is a Python file"),
        (["run", "folds.py", "mirrow", "-d", "data"], 3, "there is no fold 'mirrow'; there are mirror, per_merchant"),
        (["run", "folds.py"], 2, "say where the log is: -d data/"),
        (["run", "folds.py", "-d", "data", "-b", "127.0.0.1:1"], 2, "not allowed with argument -d/--dir"),
        (["run", "folds.py", "-d", "data", "--interval", "soon"], 2, "--interval 'soon' is not a time"),
        (
            ["run", "folds.py", "-d", "data", "--range-bytes", "0"],
            2,
            "'0' is not a whole number, 1 or more",
        ),
        (
            ["run", "folds.py", "-d", "data", "--conf", "memory=2g"],
            2,
            "--conf memory=2g is no setting of Spark's, such",
        ),
        (["run", "folds.py", "-d", "data", "--conf", "spark.x"], 2, "--conf spark.x is no setting of Spark's, such as"),
        (
            ["run", "folds.py", "-d", "data", "--master", "spark://127.0.0.1:1"],
            1,
            "no Spark master answers at 127.0.0.1:1: ",
        ),
        (
            ["run", "folds.py", "-d", "data", "--master", "sc://127.0.0.1:1"],
            1,
            "folds need a classic Spark session, and",
        ),
        (["run", "folds.py", "-d", "nowhere"], 3, "/nowhere; name the directory that holds its catalog.json"),
        (["run", "folds.py", "-b", "127.0.0.1:1"], 4, "no answer from the Kafka cluster at 127.0.0.1:1"),
        (["status", "-f", "none.py", "-d", "data"], 2, "there is no file none.py"),
        (["rewind", "mirror", "--to", "start", "-d", "data"], 1, "fold 'mirror' has no view yet, so there is nothing"),
        (["rebuild", "mirror", "-d", "data"], 1, "fold 'mirror' has no view yet; to build it: foldlog fold run"),
        (["verify", "mirror", "-d", "data"], 1, "fold 'mirror' has no view yet, so there is nothing to verify"),
        (["drop", "mirror", "--old", "-d", "data"], 1, "keeps nothing of an older rebuild"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_before_spark_is_started(
    fold: Command, arguments: list[str], code: int, told: str
) -> None:
    got, out, err = fold(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith("foldlog: ")
    assert err.count("\n") == 1
    assert told in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(:\n", "folds.py, line 1 cannot be run: SyntaxError: invalid syntax"),
        ("x = 1\nimport no_such_module\n", "folds.py, line 2 cannot be run: ModuleNotFoundError: No module named"),
        ("import foldlog.spark as fl\nfl.topic('payments')\n", "folds.py, line 2: topic 'payments' needs a schema"),
        ("x = 1\n", "folds.py declares no folds; decorate a function with @fl.fold(topic, into=view)"),
        (PIPELINE.replace("def per_merchant", "def mirror"), "two folds are named 'mirror'"),
        (PIPELINE.replace('"payments", key', '"paymnts", key'), "no topic 'paymnts'; there are payments"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(fold: Command, shop: Path, text: str, told: str) -> None:
    (shop / "folds.py").write_text(text)
    code, out, err = fold("run", "-d", "data", "--once")
    assert code in (1, 2, 3)
    assert out == ""
    assert err.count("\n") == 1
    assert told in err


@pytest.mark.parametrize("code", ["F.col('at')", "F.udf(lambda text: text, 'string')"])
def test_spark_is_not_there_while_a_file_is_loaded(shop: Path, code: str) -> None:
    (shop / "folds.py").write_text(f"from pyspark.sql import functions as F\nmade = {code}\n")
    done = command("fold", "status", "-d", "data")
    assert done.returncode == 1
    assert b"folds.py, line 2 cannot be run: it uses Spark while it is loaded, before there is a session" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_without_the_file_a_status_is_what_runners_have_published(fold: Command, shop: Path) -> None:
    (shop / "folds.py").unlink()
    publish("running")
    code, out, _ = fold("status", "-d", "data")
    assert code == 0
    assert out.splitlines()[1].split()[:5] == ["mirror", "running", "10", "0=10,1=10", "0=15,1=15"]
    assert json.loads(fold("status", "mirror", "-d", "data", "--format", "json")[1])[0]["lag"] == 10
    assert fold("status", "mirrow", "-d", "data")[::2] == (
        3,
        "foldlog: there is no fold 'mirrow'; there are mirror\n",
    )
    assert fold("pause", "mirror", "-d", "data")[1] == "asked host:77, which runs mirror, to pause it\n"
    publish("failed", error="the disk is full", age_ms=60_000)
    code, out, _ = fold("status", "-d", "data")
    assert code == 1
    assert "the disk is full" in out
    with foldlog.open("data") as log:
        log.append(FOLDS_TOPIC, None, key="status/mirror")
    assert "there is no folds.py here" in fold("status", "-d", "data")[2], "it was dropped"


def test_the_file_and_the_log_may_come_from_the_environment(
    fold: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop / "folds.py").rename(shop / "elsewhere.py")
    assert "there is no folds.py here; say which file declares the folds" in fold("status", "-d", "data")[2]
    monkeypatch.setenv("FOLDLOG_FOLDS", "elsewhere.py")
    monkeypatch.setenv("FOLDLOG_SOURCE", "data")
    code, out, _ = fold("status")
    assert code == 0
    assert "mirror" in out


def test_no_verb_and_unknown_verbs_explain_themselves() -> None:
    for arguments in (["fold"], ["fold", "explode"]):
        done = command(*arguments)
        assert done.returncode == 2
        for verb in ("run", "status", "rewind", "rebuild", "verify", "drop", "pause", "resume"):
            assert verb.encode() in done.stderr


def test_help_of_every_verb_says_where_the_log_may_be() -> None:
    for verb in ("run", "status", "rewind", "rebuild", "verify", "drop", "pause", "resume"):
        done = command("fold", verb, "--help")
        assert done.returncode == 0
        assert b"--source LOG" in done.stdout


# --- status ---------------------------------------------------------------------------------------------------------


def test_status_tells_bookmark_end_and_lag_of_folds_that_ran_and_of_those_that_did_not(fold: Command) -> None:
    read_up_to(10)
    code, out, err = fold("status", "-d", "data")
    heads, mirror, per_merchant = (line.split("  ") for line in out.splitlines())
    assert (code, err) == (0, "")
    assert [cell.strip() for cell in heads if cell][:5] == ["FOLD", "STATE", "LAG", "BOOKMARK", "END"]
    assert [cell.strip() for cell in mirror if cell][:5] == ["mirror", "not running", "10", "0=10,1=10", "0=15,1=15"]
    assert [cell.strip() for cell in per_merchant if cell][:5] == ["per_merchant", "never run", "30", "-", "0=15,1=15"]


def test_status_tells_of_a_bookmark_that_is_none_of_this_log(fold: Command) -> None:
    """Of another topic of the same name, and beyond the end: neither is a lag of 0."""
    read_up_to(16)
    code, out, _ = fold("status", "mirror", "-d", "data")
    assert code == 1
    assert out.splitlines()[1].split()[:3] == ["mirror", "mismatch", "-"]
    assert "mirror: the bookmark lies at offset 16 of payments-0, and the log ends at 15" in out
    with foldlog.open("other") as log:
        log.create_topic("payments", partitions=2)
        for number in range(40):
            log.append("payments", {"merchant": "m"}, key="a", partition=number % 2)
    code, out, _ = fold("status", "mirror", "-d", "other")
    assert code == 1
    assert "mirror: the bookmark is of another topic payments: this is another log, or the topic was deleted" in out
    assert "'foldlog copy --folds FILE' brings the bookmark" in out
    (state,) = json.loads(fold("status", "mirror", "-d", "other", "--format", "json")[1])
    assert state["lag"] is None


def test_status_tells_of_a_bookmark_that_is_another_brokers(fold: Command, tmp_path: Path) -> None:
    """Two brokers, two URLs, a topic of the same name."""
    with KafkaBroker.launch(path=tmp_path / "data") as first, KafkaBroker.launch() as second:
        second.log.create_topic("payments", partitions=2)
        for number in range(RECORDS):
            second.log.append("payments", {"merchant": "m"}, partition=number % 2)
        read_up_to(10, source=f"kafka://{first}")
        assert fold("status", "mirror", "--source", f"kafka://{first}")[0] == 0
        code, out, _ = fold("status", "mirror", "--source", f"kafka://{second}")
    assert code == 1
    assert out.splitlines()[1].split()[:3] == ["mirror", "mismatch", "-"]
    assert "mirror: the bookmark is of another topic payments: this is another log" in out


def test_status_for_programs_is_json_with_what_the_runner_said(fold: Command) -> None:
    read_up_to(10)
    publish("caught up")
    code, out, _ = fold("status", "mirror", "-d", "data", "--format", "json")
    (state,) = json.loads(out)
    assert code == 0
    assert (state["fold"], state["lag"], state["is_running"]) == ("mirror", 10, True)
    assert (state["bookmark"], state["end"]) == ({"0": 10, "1": 10}, {"0": 15, "1": 15})
    assert (state["published"]["runner"], state["published"]["dead_letters"]) == ("host:77", 3)
    _, wide, _ = fold("status", "mirror", "-d", "data", "--format", "wide")
    heads, row = wide.splitlines()
    assert heads.split()[-3:] == ["TOPIC", "KIND", "RUNNER"]
    assert row.split()[-3:] == ["payments", "table", "host:77"]


def test_a_failure_that_a_runner_published_is_shown_and_is_the_exit_code(fold: Command) -> None:
    read_up_to(10)
    publish("failed", error="the table is on fire")
    code, out, _ = fold("status", "mirror", "-d", "data")
    assert code == 1
    assert "failed" in out.splitlines()[1]
    assert out.splitlines()[2] == "mirror: the table is on fire"


def test_a_view_that_cannot_be_asked_is_that_folds_error_and_the_others_are_shown(fold: Command, shop: Path) -> None:
    (shop / "views").mkdir()
    (shop / "views" / "shop.db").write_bytes(b"this is no database, and long enough for SQLite to look" * 20)
    code, out, _ = fold("status", "-d", "data")
    assert code == 1
    assert "per_merchant" in out
    assert "cannot be used" in out.splitlines()[-1]


# --- rewind ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "now", "again"),
    [("start", "0=0,1=0", 20), ("4", "0=4,1=4", 12), ("0=3", "0=3,1=10", 7), ("@-6h", "0=0,1=0", 20)],
)
def test_a_rewind_says_from_where_to_where_and_how_much_is_read_again(
    fold: Command, to: str, now: str, again: int
) -> None:
    read_up_to(10)
    told = f"from 0=10,1=10 to {now}: {again} offsets to read again\n"
    assert fold("rewind", "mirror", "--to", to, "-d", "data", "--dry-run") == (0, f"mirror would go {told}", "")
    assert fold("rewind", "mirror", "--to", to, "-d", "data") == (0, f"mirror went {told}", "")
    assert now in fold("status", "mirror", "-d", "data")[1]


@pytest.fixture
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kolkata")
def test_a_time_without_a_zone_is_local_time_and_the_command_says_so(fold: Command) -> None:
    """An hour ago by the clock on the wall: as UTC it would lie in the future, where nothing is to be read again."""
    read_up_to(10)
    wall = (datetime.now(UTC) - timedelta(hours=1)).astimezone().replace(tzinfo=None, microsecond=0).isoformat()
    code, out, err = fold("rewind", "mirror", "--to", f"@{wall}", "-d", "data")
    assert (code, out) == (0, "mirror went from 0=10,1=10 to 0=0,1=0: 20 offsets to read again\n")
    assert err == f"note: {wall} is taken as local time, {wall[:16]}+05:30\n"


@pytest.mark.usefixtures("in_kolkata")
def test_a_command_to_a_runner_takes_its_zone_along(shop: Path) -> None:
    assert ask("mirror", "data", "rewind", to="@2026-01-15T10:30").to == "@2026-01-15T10:30:00+05:30"
    assert ask("mirror", "data", "rewind", to="@2026-01-15T10:30Z").to == "@2026-01-15T10:30Z"
    assert ask("mirror", "data", "rewind", to="@-6h").to == "@-6h"


@pytest.mark.parametrize(
    ("to", "ended", "told"),
    [
        ("tomorrow", 2, "'tomorrow' is not a place in a topic; give start, end"),
        ("11", 2, "'11' is not before the bookmark"),
        ("0=1,7=1", 3, "has no partition 7; it has 0 to 1"),
        ("", 2, "'' is not a place in a topic"),
    ],
)
def test_a_place_that_is_none_is_refused_and_moves_nothing(fold: Command, to: str, ended: int, told: str) -> None:
    read_up_to(10)
    code, out, err = fold("rewind", "mirror", "--to", to, "-d", "data")
    assert (code, out) == (ended, "")
    assert told in err
    assert "0=10,1=10" in fold("status", "mirror", "-d", "data")[1]


def test_counters_are_not_rewound_and_the_rebuild_is_offered(fold: Command) -> None:
    code, _, err = fold("rewind", "per_merchant", "--to", "start", "-d", "data")
    assert code == 1
    assert "would count it twice; rebuild it instead: foldlog fold rebuild per_merchant" in err


# --- drop, pause, resume --------------------------------------------------------------------------------------------


def test_drop_removes_a_view_and_a_dry_run_does_not(fold: Command, shop: Path) -> None:
    read_up_to(10)
    place = f"table payments in sqlite:///{shop}/views/shop.db"
    assert fold("drop", "mirror", "-d", "data", "--dry-run") == (0, f"would remove {place}\n", "")
    assert "not running" in fold("status", "mirror", "-d", "data")[1]
    assert fold("drop", "mirror", "-d", "data") == (0, f"removed {place}; the log is as it was\n", "")
    assert "never run" in fold("status", "mirror", "-d", "data")[1]
    assert fold("drop", "mirror", "-d", "data") == (0, f"there is no {place} to remove\n", "")


def test_a_view_is_not_dropped_under_its_runner_unless_that_has_fallen_silent(fold: Command) -> None:
    read_up_to(10)
    publish("running")
    code, _, err = fold("drop", "mirror", "-d", "data")
    assert code == 5, "as a group that has members"
    assert "is being run by host:77, which would make its view anew; stop that runner" in err
    publish("running", age_ms=60_000)
    assert fold("drop", "mirror", "-d", "data")[0] == 0


@pytest.mark.parametrize("has_run", [False, True])
def test_status_shows_a_pause_that_no_runner_has_heard_of_yet(fold: Command, has_run: bool) -> None:
    """The next one obeys it, so it is not simply not running."""
    if has_run:
        read_up_to(10)
    resting = "not running" if has_run else "never run"
    for verb, shown in (("pause", "paused"), ("resume", resting), ("pause", "paused")):
        assert fold(verb, "mirror", "-d", "data")[0] == 0
        code, out, _ = fold("status", "mirror", "-d", "data")
        assert (code, shown in out.splitlines()[1]) == (0, True), out
        (state,) = json.loads(fold("status", "mirror", "-d", "data", "--format", "json")[1])
        assert state["is_paused"] is (verb == "pause")


def test_a_pause_is_asked_of_the_runner_there_is_or_of_the_next_one(fold: Command) -> None:
    assert fold("pause", "mirror", "-d", "data")[:2] == (
        0,
        "nobody runs mirror now; whoever does next is asked to pause it\n",
    )
    publish("running")
    assert fold("resume", "mirror", "-d", "data")[:2] == (0, "asked host:77, which runs mirror, to resume it\n")
    with foldlog.open("data", "r") as log:
        asked = [record.json() for record in log.read(FOLDS_TOPIC) if record.key == b"command/mirror"]
    assert [one["verb"] for one in asked] == ["pause", "resume"]
