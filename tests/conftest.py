"""What every test shares: hypothesis profiles, and a last word on what was skipped.

A skip says how to undo it: `pytest.skip("strace is not installed; enable with: apt-get install strace")`. The summary
lists the reasons once each, with the command, so that nobody has to guess what a green run did not look at.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# No deadline: the machine is shared, and a slow example is not a wrong one. `make test` stays quick with the default;
# FOLDLOG_TEST_PROFILE=thorough looks twenty times as far.
settings.register_profile(
    "default", max_examples=50, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("FOLDLOG_TEST_PROFILE", "default"))

_ENABLE = "enable with:"
_SESSION_TESTS = "session_tests"


def pytest_configure() -> None:
    # A shell starts what it puts in the background with Ctrl-C ignored, and nohup ignores hangups; children inherit
    # that, and tests send both.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


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
    """Tests of folds share one Spark session, and so one process, and those of the source and the sink another: one
    for all would be longer than everything else beside it. Those of the console share a browser, and those of a file
    about Apache Kafka its broker; every other test goes where there is room.

    Not xdist's own groups: they are kept in the ids of tests, which newer pytests do not let it change.
    """
    return SparkTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[_SESSION_TESTS] = str(_session_tests_file(node.workerinput["testrunuid"]))


@pytest.hookimpl(tryfirst=True)  # before xdist's own, which tells whoever hands the tests out to begin
def pytest_collection_finish(session: pytest.Session) -> None:
    """A worker knows which tests want the session, and whoever hands them out only their ids: it is told in a file."""
    given = getattr(session.config, "workerinput", {})
    if given.get("workerid") == "gw0":
        ids = [item.nodeid for item in session.items if "spark" in getattr(item, "fixturenames", ())]
        Path(given[_SESSION_TESTS]).write_text("\n".join(ids))


class SparkTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests one by one, and those of Spark, and of the console, as one lot each, first."""

    _of_the_session: frozenset[str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._of_the_session is None:
            told = _session_tests_file(self.config.pluginmanager.getplugin("dsession").nodemanager.testrunuid)
            self._of_the_session = frozenset(told.read_text().split("\n"))
            told.unlink()
        # Those of a file about a cluster share it, those about the sources what was parsed of these, and those about the
        # plugin the runs of pytest.
        file = nodeid.partition("::")[0]
        lots = dict.fromkeys(("tests/clusters/", "tests/test_tidy.py", "tests/test_pytest_plugin.py"), file)
        lots["tests/console/"] = "console"
        session = "folds" if nodeid.startswith("tests/spark/folds/") else "spark"
        alone = session if nodeid in self._of_the_session else nodeid
        return next((lot for folder, lot in lots.items() if nodeid.startswith(folder)), alone)


def _session_tests_file(run: str) -> Path:
    return Path(tempfile.gettempdir()) / f"foldlog-session-tests-{run}"


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
