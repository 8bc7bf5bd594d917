"""The demo leaves no process behind: not those that hide in sessions of their own, not after kill -9 of itself.

Real processes: a parent that starts a child in another session, as Spark does with its JVM.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.command import environment
from foldlog.demo.claims import DemoFailed
from foldlog.demo.crew import Crew, CrewMember
from foldlog.demo.descendants import Process, alive, family_of, wait_for_end
from foldlog.demo.watchdog import left_behind

PARENT = """
import signal, subprocess, sys
program = "import signal; signal.pause()"
child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, start_new_session=True)
print("ready", flush=True)
signal.pause()
"""
OWNER = """
import sys
from pathlib import Path
from foldlog.demo.crew import Crew
crew = Crew(Path(sys.argv[1]))
member = crew.start("parent", [sys.executable, "-c", sys.argv[2]])
member.first_line()
print(member.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child does not end by itself, so there is no use in waiting for it long before it is killed."""
    monkeypatch.setattr("foldlog.demo.crew.END_WITHIN_S", 0.1)
    monkeypatch.setattr("foldlog.demo.descendants.ASKED_WITHIN_S", 0.1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "demo"
    made.mkdir()
    return made


def started(crew: Crew) -> tuple[CrewMember, list[Process]]:
    """A parent with a child in another session, and both of them."""
    member = crew.start("parent", [sys.executable, "-c", PARENT])
    assert member.first_line() == "ready"
    family = family_of(member.pid)
    assert len(family) == 2
    assert alive(family) == family
    return member, family


@pytest.mark.usefixtures("impatient")
def test_a_killed_process_takes_its_descendants_with_it(directory: Path) -> None:
    with Crew(directory) as crew:
        member, family = started(crew)
        member.kill()
        assert member.has_ended
        assert alive(family) == []


@pytest.mark.usefixtures("impatient")
def test_at_the_end_of_the_block_everything_is_gone_and_so_is_the_directory(directory: Path) -> None:
    with Crew(directory) as crew:
        _, family = started(crew)
    assert alive(family) == []
    assert not directory.exists()


@pytest.mark.faults
def test_a_demo_that_is_killed_leaves_nothing_behind(directory: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory), PARENT],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        family = family_of(int(owner.stdout.readline()))
        watchdog = [one for one in family_of(owner.pid) if one.pid != owner.pid and one not in family]
        assert (len(family), len(watchdog)) == (2, 1)
        owner.kill()
    assert wait_for_end([*family, *watchdog]) == []
    assert not directory.exists()


def test_what_does_not_start_is_told_with_its_own_words(directory: Path) -> None:
    with Crew(directory) as crew:
        complains = crew.start("broker", [sys.executable, "-c", "import sys; sys.exit('the port is taken')"])
        with pytest.raises(DemoFailed, match=r"^broker did not start: the port is taken$"):
            complains.first_line()
        with pytest.raises(DemoFailed, match=r"^initdb failed: no room$"):
            crew.run("initdb", [sys.executable, "-c", "import sys; sys.exit('no room')"])


def test_variables_for_the_demo_are_not_for_what_it_starts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDLOG_ONCE", "1")
    with Crew(directory) as crew:
        told = crew.run("python", [sys.executable, "-c", "import os; print(os.environ.get('FOLDLOG_ONCE'))"])
    assert told == "None"


def test_the_watchdog_knows_who_is_left() -> None:
    assert left_behind(["+10 15\n", "+11 3\n", "-10\n", "\n"]) == {11: 3}
