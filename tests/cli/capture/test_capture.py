"""`foldlog capture` as people type it: run, status, drop; and what each says when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from capture.shop import Shop
from foldlog.cli.commands import run_command
from foldlog.cli.exit_codes import DONE, FAILED, IN_THE_WAY, UNREACHABLE, USAGE
from postgres_server import PostgresServer, postgres

__all__ = ["postgres"]


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[Shop]:
    url = postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        found = Shop(url, connection)
        found.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text, price numeric(9,2))")
        found.execute("INSERT INTO orders VALUES (1, 'tea', 1.10)")
        yield found
        found.forget()


def test_the_first_example(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert run_command(["capture", "drop", shop.url]) == DONE
    assert capsys.readouterr().out.startswith("removed: replication slot foldlog_")
    assert run_command(["capture", "run", shop.url, "-d", data, "--once"]) == IN_THE_WAY
    assert "run it with --snapshot again" in capsys.readouterr().err
    assert run_command(["capture", "run", shop.url, "-d", data, "--once", "--snapshot", "again"]) == DONE
    assert "0 records written" in capsys.readouterr().out


def test_a_file_declares_captures(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, file = str(tmp_path / "data"), tmp_path / "capture.py"
    file.write_text(
        f"import foldlog.capture\nfoldlog.capture.postgres({shop.url!r}, {{'orders': 'sold'}}, values='debezium')\n"
    )
    assert run_command(["capture", "run", str(file), "-d", data, "--once"]) == DONE
    assert run_command(["topic", "consume", "sold", "-d", data]) == DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["op"] == "r"
    assert run_command(["capture", "run", str(file), "-d", data, "--table", "orders"]) == USAGE
    assert "--table is for a URL" in capsys.readouterr().err
    file.write_text("import foldlog.capture\nfoldlog.capture.postgres('postgresql://h/d', name='Not a name')\n")
    assert run_command(["capture", "run", str(file), "-d", data]) == FAILED
    assert "'Not a name' is not a name for a capture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["shop.txt"], USAGE, "'shop.txt' is no URL such as postgresql://"),
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
