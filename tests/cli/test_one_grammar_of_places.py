"""One grammar for places: `group seek`, `fold rewind` and the console take the same texts for the same places, and
refuse the same ones in the same sentence. Over a real broker with its console, and a view with a bookmark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from foldlog.broker.broker import Broker
from foldlog.cli.main import main
from foldlog.client.places import parse_place
from foldlog.spark.folds.declaration import load_folds
from foldlog.spark.folds.feed import starting_bookmark
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.views.bookmark import Position
from foldlog.views.contract import Shape
from server.console.console_site import ConsoleSite, console

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "places.md").read_text(encoding="utf-8")
HELD = 30
AT_MS = 1_768_473_000_000  # 2026-01-15T10:30:00Z, of every record
PIPELINE = """
import foldlog.spark as fl

payments = fl.topic("payments", key="tx_id", schema="merchant STRING")

@fl.fold(payments, into=fl.table("shop.db", "payments"))
def mirror(rows): return rows
"""


class Ways(NamedTuple):
    """The three ways in which a person says a place. Each gives the offsets of both partitions, or the sentence."""

    site: ConsoleSite
    capsys: pytest.CaptureFixture[str]

    def seek(self, text: str) -> dict[int, int] | str:
        code, out, err = self._run("group", "seek", "g", "--to", text, "--topic", "payments", "--dry-run")
        if code:
            return _sentence(err)
        rows = [line.split() for line in out.splitlines()[1:]]
        return {int(row[1]): int(row[3]) for row in rows}

    def rewind(self, text: str) -> dict[int, int] | str:
        code, out, err = self._run("fold", "rewind", "mirror", "--to", text, "--dry-run")
        if code:
            return _sentence(err)
        told = re.search(r" to (\S+):", out)
        assert told is not None, out
        return {int(number): int(offset) for number, offset in (at.split("=") for at in told[1].split(","))}

    def jump(self, text: str) -> dict[int, int] | str:
        answer = self.site.ask("GET", f"/api/topics/payments/place?{urlencode({'place': text})}")
        if answer.status != 200:
            assert answer.status == (404 if "has no partition" in answer.json["error"] else 400)
            return str(answer.json["error"])
        return {int(number): at["offset"] for number, at in answer.json["partitions"].items()}

    def _run(self, *words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "-b", self.site.server.bootstrap])
        except SystemExit as ended:
            code = int(str(ended.code))
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


def _sentence(err: str) -> str:
    """The last line, without the name of the command before it."""
    return err.splitlines()[-1].partition(": ")[2]


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ways]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folds.py").write_text(PIPELINE)
    with Broker.open(":memory:") as broker, console(broker) as site:
        broker.create_topic("payments", 2)
        for number in (0, 1):
            site.append("payments", number, *[(b"k", b"{}")] * HELD, at_ms=AT_MS)
        _read_all(site.server.bootstrap)
        yield Ways(site, capsys)


def _read_all(bootstrap: str) -> None:
    (mirror,) = load_folds("folds.py")
    origin = open_origin(origin_spec(bootstrap))
    try:
        start = starting_bookmark(origin.topic("payments"), origin.bounds("payments"))
    finally:
        origin.close()
    columns = pa.schema([("tx_id", pa.string()), ("merchant", pa.string())])
    mirror.view.prepare(Shape(columns, "tx_id", ("tx_id",)), start)
    mirror.view.move(start, start.advanced({0: Position(HELD), 1: Position(HELD)}))
    mirror.view.close()


MEANT: list[tuple[str, dict[int, int]]] = [
    ("start", {0: 0, 1: 0}),
    ("+10", {0: 10, 1: 10}),
    ("-10", {0: 20, 1: 20}),
    ("12", {0: 12, 1: 12}),
    ("12:", {0: 12, 1: 12}),
    ("0=3", {0: 3}),
    ("0=3,1=-5", {0: 3, 1: 25}),
    ("1=@2026-01-15T10:30Z", {1: 0}),
    ("@2026-01-15T10:30:00Z", {0: 0, 1: 0}),
    ("@2026-01-15T16:00+05:30", {0: 0, 1: 0}),
    ("@2026-01-15", {0: 0, 1: 0}),
    ("@1768473000", {0: 0, 1: 0}),
    ("@-600w", {0: 0, 1: 0}),
]


def test_a_text_means_the_same_place_in_all_three(ways: Ways) -> None:
    for text, meant in MEANT:
        assert ways.seek(text) == meant, text
        assert ways.jump(text) == meant, text
        # A rewind tells where all stand then, also those that it leaves where they are.
        assert ways.rewind(text) == {0: HELD, 1: HELD} | meant, text


REFUSED = [
    "",
    ":",
    "tomorrow",
    "1,200",
    "START",
    "6h",
    "-6h",
    "2026-01-15T10:30",
    "@",
    "@soon",
    "@2026-02-30",
    "@25:61",
    "@-" + "9" * 30 + "w",
    "9" * 40,
    "2:5",
    "0:1200,1:900",
    "@-2h:-1h",
    "5:2",
    "0=",
    "0=soon",
    "0=1:2",
    "0=1,2",
    "0=1,0=2",
    "0=1,7=1",
]


def test_what_is_no_place_is_refused_in_the_same_sentence_by_all_three(ways: Ways) -> None:
    for text in REFUSED:
        said = ways.jump(text)
        assert isinstance(said, str), text
        assert len(said) > 20, text
        assert ways.seek(text) == said, text
        assert ways.rewind(text) == said, text


def test_a_time_without_a_zone_is_one_of_the_browsers_zone(ways: Ways) -> None:
    def asked(place: str, zone: str) -> Any:
        return ways.site.ask("GET", f"/api/topics/payments/place?{urlencode({'place': place, 'zone': zone})}")

    for wall, zone in (("16:00", "Asia/Kolkata"), ("05:30", "America/New_York")):
        assert asked(f"@2026-01-15T{wall}", zone).json["partitions"]["0"]["offset"] == 0
        assert asked(f"@2026-01-15T{wall}:01", zone).json["partitions"]["0"]["offset"] == HELD
    assert asked("@2026-01-15T16:00", "Asia/Kolkata").json["place"] == "@2026-01-15T16:00:00+05:30"
    refused = asked("@2026-01-15T16:00", "../etc")
    assert (refused.status, refused.json["error"]) == (
        400,
        "the time zone '../etc' is not known here; write the time with Z or +05:30",
    )
    assert asked("12", "Nowhere/Town").status == 200, "nothing of it depends on the zone"


def test_every_place_on_the_page_is_one() -> None:
    cells = [row.split(" | ")[0] for row in PAGE.splitlines() if row.startswith("| `")]
    places = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    places = [text for text in places if not text.startswith(("foldlog", "fl.", "latest", "history"))]
    assert len(places) > 20
    for text in places:
        assert parse_place(text).text == text


def test_what_is_shown_can_be_typed_again(ways: Ways) -> None:
    main(["fold", "status", "mirror", "-b", ways.site.server.bootstrap])
    shown = ways.capsys.readouterr().out.splitlines()[1].split()
    assert f"0={HELD},1={HELD}" in shown
    assert ways.seek(f"0={HELD},1={HELD}") == {0: HELD, 1: HELD}
    main(["fold", "rewind", "mirror", "--to", "0=3,1=25", "--dry-run", "-b", ways.site.server.bootstrap])
    assert f" from 0={HELD},1={HELD} to 0=3,1=25: " in ways.capsys.readouterr().out


def test_the_help_of_a_rewind_does_not_offer_the_end_which_no_rewind_reaches(ways: Ways) -> None:
    assert "is not before the bookmark" in str(ways.rewind("end"))
    main(["fold", "rewind", "--help"])
    told = re.search(r"--to PLACE\s+(.*?)\s+--dry-run", ways.capsys.readouterr().out, re.DOTALL)
    assert told is not None
    assert "end" not in re.split(r"[,;:]\s+", told[1])
