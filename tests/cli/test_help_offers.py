"""Help does not offer what is refused: every option that a command's help shows is tried, alone and beside every other.

The commands themselves are walked, so a new option is tried as soon as it is there. A line is refused where it ends
with exit code 2. That is allowed only where the help says so: the usage shows two of its options as alternatives, or
the text of one names the other.
"""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest

import foldlog
from cli.places import Place
from foldlog.cli.commands import root_context
from foldlog.cli.exit_codes import INTERRUPTED, USAGE
from foldlog.cli.log_options import UNSERVED
from foldlog.cli.main import main
from foldlog.cli.parsing import Option, ValueType, all_contexts

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An interrupt that comes in a destructor is printed and forgotten; the next one is heard."""

RECORDS = 1300
"""More than the largest offset that the help of a place shows."""
FEW = 120
"""More than the offsets below."""
ENDLESS_S = 0.1
"""What waits for more records is interrupted after so long."""
AGAIN_S = 5.0
"""And again, as the first may be lost: late enough not to meet what is already leaving."""

VALUES = {
    "--bootstrap-server": None,  # these two are the places themselves
    "--dir": None,
    "--as-of": "100",
    "--before": "100",
    "--command-config": "properties",
    "--compression": "gzip",
    "--count": "2",
    "--folds": None,  # a pipeline is Spark's
    "--from-config": "properties",
    "--from-property": "client.id=test",
    "--group": "app",
    "--header": "source=web",
    "--interval": "1s",
    "--jobs": "1",
    "--key": "u1",
    "--key-delimiter": ":",
    "--offset": "100",
    "--offsets": "1:3",
    "--partition": "1",
    "--partitions": "1",
    "--property": "client.id=test",
    "--record-format": r"%k\n",
    "--registry": "http://127.0.0.1:1",
    "--replication-factor": "1",
    "--to-config": "properties",
    "--to-property": "client.id=test",
    "--topic": "orders",
    "--topic-config": "retention.ms=7d",
}
"""What an option with a value is tried with. Those with choices are tried with each of them."""


@dataclass(frozen=True)
class Case:
    """A command as it is tried: the words it needs at least, and what one of its options is given instead."""

    name: str
    words: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)
    uses_up: bool = False
    """What it names is there no longer, or is there then: each line needs a log of its own."""
    is_endless: bool = False


CASES = (
    Case("topic list", ()),
    Case("topic describe", ("orders",)),
    Case("topic create", ("fresh",), uses_up=True),
    Case("topic alter", ("orders", "-c", "segment.bytes=1GiB"), {"--partitions": "2"}),
    Case("topic delete", ("orders",), uses_up=True),
    Case("topic produce", ("orders", "lines")),
    Case("topic consume", ("orders",)),
    Case("topic tail", ("orders",), is_endless=True),
    Case("topic latest", ("orders",)),
    Case("topic history", ("orders", "--key", "u1")),
    Case("topic trim", ("orders", "--before", "100")),
    Case("topic compact", ("orders", "--force")),
    Case("group list", ()),
    Case("group describe", ("app",)),
    Case("group seek", ("app", "--to", "100")),
    Case("group delete", ("app",), uses_up=True),
    Case("transaction list", ()),
    Case("check", ("{directory}",)),
    Case("dump", ("{directory}",)),
    Case("copy", ("--all", "--from", "{directory}", "--to", "fresh-directory")),
    Case("version", ()),
)
PLACED = tuple(case for case in CASES if case.name.startswith(("topic", "group", "transaction")))
NOT_RUN = ("foldlog", "foldlog topic", "foldlog group", "foldlog fold", "foldlog transaction")
"""Nouns, which have no options of their own."""
TRIED_ELSEWHERE = {
    "bench": "tests/cli/bench/test_bench_command.py",
    "capture": "tests/capture/test_command.py",
    "completion": "tests/cli/test_completion.py",
    "demo": "tests/demo",
    "fold": "tests/spark/folds/test_cli.py",
    "node": "tests/cli/node/test_node.py",
    "restore": "tests/cli/files/test_tiers.py",
    "serve": "tests/cli/test_serve.py",
    "transaction": "tests/cli/transaction/test_transaction.py",
    "user": "tests/cli/access/test_user.py",
    "acl": "tests/cli/access/test_acl.py",
    "quota": "tests/cli/access/test_quota.py",
    "certificate": "tests/cli/test_serve_secure.py",
}
"""What runs until it is ended, needs Spark or a database, or needs what is open for a while."""


def commands() -> dict[str, click.Context]:
    return {ctx.command_path: ctx for ctx in all_contexts(root_context())}


def shown(ctx: click.Context) -> list[Option]:
    """The options that the help shows, without those that every command has."""
    return [
        param
        for param in ctx.command.params
        if isinstance(param, Option) and not param.hidden and not {"--help", "--debug", "--version"} & set(param.opts)
    ]


def choices(option: Option) -> Sequence[str]:
    return option.type.choices if isinstance(option.type, ValueType) else ()


def test_every_command_is_tried() -> None:
    tried = {f"foldlog {case.name}" for case in CASES}
    left = [name for name in commands() if name not in tried and name not in NOT_RUN]
    assert {name.split()[1] for name in left} == set(TRIED_ELSEWHERE)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a topic of two partitions and a group without members."""
    path = tmp_path_factory.mktemp("template") / "log"
    with foldlog.open(path) as log:
        arrange(log)
    return path


def arrange(log: foldlog.Log, records: int = FEW) -> None:
    for name in log.topics():
        log.delete_topic(name)
    log.create_topic("orders", partitions=2)
    with log.producer() as producer:
        for partition in range(2):
            for _ in range(records):
                producer.send("orders", "paid", key="u1", partition=partition)
    log.reset_group("app", {foldlog.TopicPartition("orders", 0): 7, foldlog.TopicPartition("orders", 1): 7})


class Trial:
    """Runs lines of one command in a directory of their own."""

    def __init__(self, case: Case, capsys: pytest.CaptureFixture[str]) -> None:
        self.ctx = commands()[f"foldlog {case.name}"]
        self._case, self._capsys = case, capsys

    def given(self) -> list[tuple[Option, tuple[str, ...]]]:
        """Every option that the help shows, with every choice it has: the words to say for it."""
        return [(option, words) for option in shown(self.ctx) for words in self._words(option)]

    def _words(self, option: Option) -> Iterator[tuple[str, ...]]:
        name = option.opts[-1]
        if name in self._case.words:
            return  # it is on every line already
        if not option.takes_value:
            yield (name,)
        elif choices(option):
            yield from ((name, choice) for choice in choices(option))
        elif VALUES.get(name, "") is not None:
            yield name, self._case.values.get(name) or VALUES[name] or ""

    def run(self, place: Sequence[str], directory: Path, *more: str) -> tuple[int, str]:
        """The exit code, and what was said on standard error."""
        words = [word.format(directory=directory) for word in self._case.words]
        self._capsys.readouterr()
        line = [*self._case.name.split(), *words, *more, *place]
        code = interrupted(line) if {"tail", "--follow"} & set(line) else main(line)
        return code, self._capsys.readouterr().err

    def is_told(self, place: Sequence[str], more: Sequence[str]) -> bool:
        """Whether the help says that two options of the line do not go together, or that one needs another."""
        line = [*self._case.words, *more, *place]
        used = [option for option in shown(self.ctx) if set(option.opts) & set(line)]
        needed = [found[1] for option in used if (found := re.match(r"with (--[a-z-]+),", option.help or ""))]
        return any(name not in line for name in needed) or any(
            one in other.rivals or names(one, other) or names(other, one)
            for one, other in itertools.combinations(used, 2)
        )


def names(one: Option, other: Option) -> bool:
    """Whether the text of an option speaks of another one."""
    return bool(set(re.findall(r"--?[A-Za-z][a-z-]*", one.help or "")) & set(other.opts))


def interrupted(line: Sequence[str]) -> int:
    """The command, with Ctrl-C for what waits for more; its exit code. The timer is borrowed from who bounds the
    tests."""
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    # Again and again: an interrupt that comes in a destructor is printed and forgotten.
    timer = signal.setitimer(signal.ITIMER_REAL, ENDLESS_S, AGAIN_S)
    try:
        try:
            return main(line)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return INTERRUPTED  # it came when the command had just ended
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to be in, with the files that lines name."""
    (tmp_path / "lines").write_text('{"key": "u1", "value": "as text, too"}\n')
    (tmp_path / "properties").write_text("client.id=test\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_options_that_the_help_shows_go_together_or_it_says_that_they_do_not(
    case: Case, template: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(case, capsys)
    is_placed = any("--dir" in option.opts for option in shown(trial.ctx))
    given = trial.given()
    lines = [(), *(words for _, words in given)]
    if not case.is_endless:  # its options are those of consume
        last_choices = {id(option): words for option, words in given}
        lines += [(*one, *other) for one, other in itertools.combinations(last_choices.values(), 2)]
    refused = []
    directory = shutil.copytree(template, here / "log")
    place = ("--dir", str(directory)) if is_placed else ()
    for more in lines:
        code, told = trial.run(place, directory, *more)
        if code == USAGE and not trial.is_told(place, more):
            refused.append(f"{' '.join(more)}: {told.strip()}")
        if case.uses_up:
            shutil.rmtree(directory)
            shutil.copytree(template, directory)
    assert refused == []


def places_shown() -> list[Any]:
    """Each command with each place that its help offers."""
    found = []
    for case, (where, option) in itertools.product(PLACED, {"broker": "-b", "served directory": "-d"}.items()):
        ctx = commands()[f"foldlog {case.name}"]
        is_shown = any(option in each.opts for each in shown(ctx))
        if is_shown and not (where == "served directory" and UNSERVED in ctx.get_help()):
            found.append(pytest.param(case, where, id=f"{case.name}-{where}"))
    return found


@pytest.mark.parametrize(("case", "where"), places_shown())
def test_a_place_that_the_help_shows_is_taken_with_every_option(
    case: Case, where: str, places: dict[str, Place], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(case, capsys)
    place = places[where]
    refused = []
    with place.open() as log:
        arrange(log)
    for more in [(), *(words for _, words in trial.given())]:
        if case.uses_up:
            with place.open() as log:
                arrange(log)
        code, told = trial.run(place.options, place.directory, *more)
        if code not in (0, INTERRUPTED) and not trial.is_told(place.options, more):
            refused.append(f"{code}: {' '.join(more)}: {told.strip()}")
    assert refused == []


def takes_place(case: Case) -> bool:
    return any(option.metavar == "PLACE" for option in shown(commands()[f"foldlog {case.name}"]))


@pytest.mark.parametrize("case", [case for case in CASES if takes_place(case)], ids=lambda case: case.name)
def test_every_place_that_the_help_shows_is_taken(case: Case, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for option in shown(commands()[f"foldlog {case.name}"]) if option.metavar == "PLACE"]
    directory = here / "log"
    with foldlog.open(directory) as log:
        arrange(log, RECORDS)
    for option in options:
        name = option.opts[-1]
        needed = [word for at, word in enumerate(case.words) if name not in (word, case.words[at - 1])]
        samples = sample_places(option.help or "")
        assert len(samples) >= 2
        for sample in samples:
            code = main([*case.name.split(), *needed, name, sample, "--dir", str(directory)])
            assert code != USAGE, f"{name} {sample}: {capsys.readouterr().err}"


def sample_places(told: str) -> list[str]:
    """The words of a help text that stand for themselves, between commas: places, not what is said about them."""
    parts = re.split(r"[,;:] ", re.sub(r" \([^)]*\)", "", told))
    return [part for part in parts if re.fullmatch(r"start|end|[-+@:\d]\S*", part)]
