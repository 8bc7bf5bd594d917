"""What every test shares: hypothesis profiles, and a last word on what was skipped.

A skip says how to undo it: `pytest.skip("strace is not installed; enable with: apt-get install strace")`. The summary
lists the reasons once each, with the command, so that nobody has to guess what a green run did not look at.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# No deadline: the machine is shared, and a slow example is not a wrong one. `make test` stays quick with the default;
# FOLDLOG_TEST_PROFILE=thorough looks fifty times as far.
settings.register_profile(
    "default", max_examples=20, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("FOLDLOG_TEST_PROFILE", "default"))

_ENABLE = "enable with:"
_IS_NEW = pytest.StashKey[bool]()
_LOTS = "lots"
_SHARED = ("spark", "postgres", "told_elsewhere", "s3_server")
"""Fixtures that take seconds to make, in the order of what they take."""
_MADE_IN_NO_TIME = {"loops", "compiled"}
"""Fixtures of a module that are no reason to keep its tests together."""
_SPARK = "spark"
_LESS_URGENT = 5
"""How nice a process is to the one that has the tests of Spark: that is one lot, and longer than all others."""
_FILLING = ("tests/log/", "tests/records/", "tests/wire/")
"""Rooms whose tests are short and wait for nothing: with them all processes end at one time."""


def pytest_configure() -> None:
    # A shell starts what it puts in the background with Ctrl-C ignored, and nohup ignores hangups; children inherit
    # that, and tests send both.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", metavar="K/N", help="run the K-th of N parts of the tests: a run too long for one go takes turns"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests and what they import are a million objects that stay until the end: garbage is neither looked
    for while they are made, nor among them later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Tests that share what is slow to make go to one process: else each would make it. Tests of Spark share a
    session, others a PostgreSQL server, a browser, the Apache Kafka of their file, or what their module makes once,
    such as a broker. Every other test goes where there is room.

    Not xdist's own groups: they are kept in the ids of tests, which newer pytests do not let it change.
    """
    config.option.loadscopereorder = False  # they are in order already, see pytest_collection_modifyitems
    return SharingTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[_LOTS] = str(_lots_file(node.workerinput["testrunuid"]))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For processes that work together: what takes longest is handed out first, so that all end at one time. First
    come those of Spark, then the other lots, the largest first, then single tests: mixed, as those of one room all
    wait, for clients or disks, and leave processors idle, or all compute."""
    _keep_part(config, items)
    if not hasattr(config, "workerinput"):
        return
    lots = [_lot_of(item) for item in items]
    sizes = Counter(lots)

    def place(at: int) -> tuple[int, int]:
        lot = lots[at]
        if lot is not None:
            return (0 if lot == _SPARK else 1), -sizes[lot]
        name = items[at].nodeid
        return (3 if name.startswith(_FILLING) else 2), zlib.crc32(name.encode())

    items[:] = [items[at] for at in sorted(range(len(items)), key=place)]


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By the digest of a test's name: tests that come and go do not move the others."""
    asked = config.getoption("--part")
    if asked is None:
        return
    found = re.fullmatch(r"(\d+)/(\d+)", asked)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"--part {asked} is not K/N with K from 1 to N, such as 1/2")
    number, parts = int(found[1]) - 1, int(found[2])
    others = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts != number]
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % parts == number]
    config.hook.pytest_deselected(items=others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """The first test says whether this process has those of Spark. They would end last by minutes if all were equal."""
    config = item.config
    if hasattr(config, "workerinput") and config.stash.get(_IS_NEW, True):
        config.stash[_IS_NEW] = False
        if _lot_of(item) != _SPARK:
            os.nice(_LESS_URGENT)
    return (yield)


@pytest.hookimpl(tryfirst=True)  # before xdist's own, which tells whoever hands the tests out to begin
def pytest_collection_finish(session: pytest.Session) -> None:
    """A worker knows which tests want what, and whoever hands them out only their ids: it is told in a file."""
    given = getattr(session.config, "workerinput", {})
    if given.get("workerid") == "gw0":
        lots = {item.nodeid: lot for item in session.items if (lot := _lot_of(item)) is not None}
        Path(given[_LOTS]).write_text(json.dumps(lots))


def _lot_of(item: pytest.Item) -> str | None:
    file = item.nodeid.partition("::")[0]
    if file.startswith("tests/console/"):
        return "console"
    if file.startswith("tests/clusters/"):
        return file
    wanted = next((name for name in _SHARED if name in getattr(item, "fixturenames", ())), None)
    return file if wanted is None and _shares_with_its_module(item) else wanted


def _shares_with_its_module(item: pytest.Item) -> bool:
    known = getattr(item, "_fixtureinfo", None)
    fixtures = known.name2fixturedefs.items() if known is not None else ()
    return any(made[-1].scope == "module" and name not in _MADE_IN_NO_TIME for name, made in fixtures)


class SharingTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests one by one, and those that share something as one lot each, in the order of the collection."""

    _lots: dict[str, str] | None = None
    _indexes: dict[str, int] | None = None

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """As the base class does, but what is over is forgotten: it counts what each process has left after every
        test, and would go through all that have ever been handed out."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        assigned = self.assigned_work[node]
        assigned[scope][nodeid] = True
        if all(assigned[scope].values()):
            del assigned[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """As the base class does, which looks through the whole collection for each test that it hands out."""
        if self._indexes is None:
            self._indexes = {nodeid: index for index, nodeid in enumerate(self.collection)}
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self._indexes[nodeid] for nodeid, is_done in unit.items() if not is_done])

    def _split_scope(self, nodeid: str) -> str:
        if self._lots is None:
            told = _lots_file(self.config.pluginmanager.getplugin("dsession").nodemanager.testrunuid)
            self._lots = json.loads(told.read_text())
            told.unlink()
        return self._lots.get(nodeid, nodeid)


def _lots_file(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"foldlog-test-lots-{run}"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with what was skipped and the command that enables it."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        longrepr = report.longrepr
        text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    if not reasons:
        return
    terminalreporter.section("skipped, and how to enable it")
    for text, count in sorted(reasons.items()):
        reason, marker, command = text.partition(_ENABLE)
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.line(f"{tests}: {reason.strip().rstrip(';')}")
        if marker:
            terminalreporter.line(f"    {command.strip()}")
