"""`foldlog capture` as people type it: run, status, drop; and what each says when something is wrong."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from capture.shop import Shop
from foldlog.cli.commands import run_command
from foldlog.cli.exit_codes import DONE, FAILED, IN_THE_WAY, UNREACHABLE, USAGE


@pytest.fixture
def orders(shop: Shop) -> Shop:
    """With the table of the first example."""
    shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text, price numeric(9,2))")
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 1.10)")
    return shop


def test_the_first_example(orders: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = orders
    data = str(tmp_path / "data")
    assert run_command(["capture", "run", shop.url, "-d", data, "--once"]) == DONE
    shop.execute("UPDATE orders SET item = 'green tea'")
    assert run_command(["capture", "run", shop.url, "-d", data, "--once"]) == DONE
    out, _ = capsys.readouterr()
    assert f"{shop.name}: 1 record written, of 0 rows that a snapshot read and 1 transaction" in out
    assert run_command(["topic", "consume", shop.topic("orders"), "-d", data, "-f", r"%k %v\n"]) == DONE
    assert capsys.readouterr().out.splitlines() == [
        '1 {"id":1,"item":"tea","price":"1.10"}',
        '1 {"id":1,"item":"green tea","price":"1.10"}',
    ]
    assert run_command(["capture", "status", shop.url, "-d", data]) == DONE
    shown = capsys.readouterr().out
    assert "stopped" in shown
    assert shop.topic("orders") in shown
    assert run_command(["capture", "status", shop.url, "-d", data, "--format", "json"]) == DONE
    assert json.loads(capsys.readouterr().out)["source"]["state"] == "stopped"
    assert run_command(["capture", "status", shop.url, "-d", data, "--metrics"]) == DONE
    samples = {
        one.name: one for family in text_string_to_metric_families(capsys.readouterr().out) for one in family.samples
    }
    assert samples["foldlog_capture_running"].value == samples["foldlog_capture_lost"].value == 0
    assert samples["foldlog_capture_kept_bytes"].labels == {"capture": shop.name}
    assert run_command(["capture", "drop", shop.url]) == DONE
    assert capsys.readouterr().out.startswith("removed: replication slot foldlog_")
    assert run_command(["capture", "run", shop.url, "-d", data, "--once"]) == IN_THE_WAY
    assert "run it with --snapshot again" in capsys.readouterr().err
    assert run_command(["capture", "run", shop.url, "-d", data, "--once", "--snapshot", "again"]) == DONE
    assert "0 records written" in capsys.readouterr().out


def test_a_file_declares_captures(orders: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = orders
    data, file = str(tmp_path / "data"), tmp_path / "capture.py"
    file.write_text(
        f"import foldlog.capture\nfoldlog.capture.postgres({shop.url!r}, {{'orders': 'sold'}}, values='debezium')\n"
    )
    assert run_command(["capture", "run", str(file), "-d", data, "--once"]) == DONE
    assert run_command(["topic", "consume", "sold", "-d", data]) == DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["op"] == "r"
    assert run_command(["capture", "run", str(file), "-d", data, "--table", "orders"]) == USAGE
    assert "--table is for a database" in capsys.readouterr().err
    file.write_text("import foldlog.capture\nfoldlog.capture.postgres('postgresql://h/d', name='Not a name')\n")
    assert run_command(["capture", "run", str(file), "-d", data]) == FAILED
    assert "'Not a name' is not a name for a capture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ["shop.txt"],
            USAGE,
            "'shop.txt' is not postgresql://user@host/database, not mysql://user@host/database, no file of SQLite's",
        ),
        (["missing.py"], USAGE, "there is no file missing.py"),
        (["postgresql://postgres@127.0.0.1:1/shop"], UNREACHABLE, "postgresql://postgres@127.0.0.1:1/shop cannot be"),
        (["postgresql://h/d", "--table", "a=b c"], USAGE, "topic name 'b c' holds a character"),
        (["postgresql://h/d", "--name", "Shop"], USAGE, "'Shop' is not a name for a capture"),
    ],
)
def test_what_cannot_be_right_is_one_sentence(
    words: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["capture", "run", *words, "-d", str(tmp_path / "data"), "--once"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_sqlite_gets_its_triggers_with_consent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = str(tmp_path / "data"), str(tmp_path / "shop.db")
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executescript(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, item); INSERT INTO orders VALUES (1, 'tea')"
        )
        monkeypatch.setattr("foldlog.cli.confirmation.is_attended", lambda: True)
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert run_command(["capture", "run", file, "-d", data, "--once"]) == FAILED
        assert "put triggers on orders, and a table for their changes, into" in capsys.readouterr().err
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
        assert run_command(["capture", "run", file, "-d", data, "--once", "--yes"]) == DONE
        connection.execute("UPDATE orders SET item = 'green tea'")
        assert run_command(["capture", "run", file, "-d", data, "--once"]) == DONE  # nothing is asked again
    assert "1 record written" in capsys.readouterr().out
    assert run_command(["capture", "status", file, "-d", data]) == DONE
    assert "triggers in place" in capsys.readouterr().out
    assert run_command(["capture", "drop", file, "--yes"]) == DONE
    assert "table _foldlog_changes_shop" in capsys.readouterr().out
