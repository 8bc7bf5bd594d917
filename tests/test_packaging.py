"""The systemd unit and the container file start the broker as an unprivileged user: what needs no engine is tried.

The unit is judged by systemd's own checks, and its ExecStart runs as `nobody` without any capability. The commands of
the container file run in a fresh environment, with the paths of this machine, and its health check is asked.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "packaging" / "foldlog.service"
CONTAINERFILE = ROOT / "Containerfile"
NOBODY = 65534
EXPOSURE_MAX = 2.0
"""Of 10, as `systemd-analyze security` counts: 10 is a service that may do everything."""
WAIT_S = 60
BUILD_WAIT_S = 400


def needs(command: str, package: str) -> str:
    found = shutil.which(command)
    if found is None:
        pytest.skip(f"{command} is not here (Debian: apt-get install {package})")
    return found


def unprivileged() -> list[str]:
    """What runs a command as somebody who may do nothing; who is not root is that already."""
    if os.getuid() != 0:
        return []
    words = "--clear-groups --no-new-privs --bounding-set -all --inh-caps -all"
    return [needs("setpriv", "util-linux"), "--reuid", str(NOBODY), "--regid", str(NOBODY), *words.split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def owned(directory: Path) -> Path:
    """A data directory of whoever the broker runs as, reached through directories that it may pass."""
    directory.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    return directory


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may pass through. Not one of pytest's: those are private to who runs the tests, and
    shared with all tests that run beside this one."""
    with tempfile.TemporaryDirectory(prefix="foldlog-unprivileged-") as path:
        Path(path).chmod(0o711)
        yield Path(path)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser


@contextmanager
def serving(command: list[str], variables: dict[str, str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Once it has said where it serves, after what `--secure` prints; killed at the end if it is still there."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FOLDLOG_")}
    with subprocess.Popen(
        command, env={**kept, **variables}, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            while not any("foldlog is serving" in line for line in said):
                said.append(process.stdout.readline())
                if not said[-1]:
                    raise AssertionError("".join(said) + process.communicate(timeout=WAIT_S)[1])
            yield process
        finally:
            process.kill()


def assert_it_may_do_nothing(pid: int) -> None:
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert "0" not in status["Uid"].split()
    assert int(status["CapEff"], 16) == 0
    if os.getuid() == 0:
        assert int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1"


def assert_it_ends_well(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, errors


def reachable_python(place: Path) -> tuple[list[str], str]:
    """An interpreter that an unprivileged user can run, with the path on which it finds foldlog."""
    path = os.pathsep.join([str(ROOT / "src"), sysconfig.get_paths()["platlib"]])
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(
            [*unprivileged(), python, "-c", "import foldlog.cli.serve"],
            cwd=place,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        if done.returncode == 0:
            return [python, "-c", "import sys; from foldlog.cli.main import main; sys.exit(main())"], path
    pytest.skip("no Python here can be run by an unprivileged user and finds foldlog's packages")


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze", "systemd")
    text = UNIT.read_text(encoding="utf-8")
    (tmp_path / UNIT.name).write_text(text.replace("/opt/foldlog/bin/foldlog", sys.executable), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", str(tmp_path / UNIT.name)], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    about_it = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert not about_it
    assert done.returncode == 0, done.stderr


def test_the_unit_leaves_the_broker_little_to_reach(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze", "systemd")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    if done.returncode and "offline" in done.stderr:
        pytest.skip(f"this systemd-analyze cannot judge files: {done.stderr.strip()}")
    level = re.search(r"exposure level for foldlog.service: ([\d.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert float(level[1]) <= EXPOSURE_MAX


def test_what_the_unit_starts_serves_as_an_unprivileged_user(place: Path) -> None:
    service = unit()["Service"]
    assert service["User"] == "foldlog"
    command, path = reachable_python(place)
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/foldlog/bin/foldlog"
    data = owned(place / "data")
    words = [str(data) if word == "/var/lib/foldlog" else word for word in words]
    metrics = service["Environment"].removeprefix("FOLDLOG_METRICS=")
    assert metrics.startswith("127.0.0.1:")
    variables = {"FOLDLOG_METRICS": "127.0.0.1:0", "FOLDLOG_LISTEN": "127.0.0.1:0", "PYTHONPATH": path}
    with serving([*unprivileged(), *command, *words], variables, data) as process:
        assert_it_may_do_nothing(process.pid)
        assert (data / "catalog.json").exists()
        assert_it_ends_well(process)


def instructions() -> list[tuple[str, str]]:
    """Of the container file, in order: its lines that go on joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found = [line.partition(" ") for line in lines if line.strip()]
    return [(name, rest.strip()) for name, _, rest in found]


def last(name: str) -> str:
    return [rest for one, rest in instructions() if one == name][-1]


def test_the_container_runs_as_a_user_without_rights_and_copies_files_that_exist() -> None:
    names = [name for name, _ in instructions()]
    user, _, group = last("USER").partition(":")
    assert int(user) > 0, "a number, so that an engine can see that it is not root"
    assert int(group) > 0
    assert names.index("USER") < names.index("ENTRYPOINT")
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8")
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *files, _target = rest.split()
            assert not [file for file in files if not (ROOT / file).exists() or f"!{file}\n" not in ignored]
    assert (ROOT / ".dockerignore").read_text(encoding="utf-8") == ignored


@pytest.mark.faults  # it compiles the kernels and fetches packages: a minute or two
@pytest.mark.timeout(600)
def test_the_commands_of_the_container_file_build_a_broker_that_is_healthy(place: Path) -> None:
    source, environment = place / "source", place / "opt"
    for name, rest in instructions():
        if name == "COPY" and rest.endswith("/source/"):
            source.mkdir()
            for file in rest.split()[:-1]:
                shutil.copy2(ROOT / file, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    steps = [rest for name, rest in instructions() if name == "RUN" and "/opt/foldlog" in rest]
    assert len(steps) == 2, "the install, and the look at the kernels"
    python = "/usr/bin/python3" if os.getuid() == 0 and Path("/usr/bin/python3").exists() else sys.executable
    for step in steps:
        here = step.replace("/opt/foldlog", str(environment)).replace("/source", str(source))
        here = re.sub(r"^python ", f"{python} ", here)
        done = subprocess.run(
            ["sh", "-c", here], cwd=place, capture_output=True, text=True, timeout=BUILD_WAIT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    data, port = owned(place / "data"), free_port()
    words = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    words = [
        {"/var/lib/foldlog": str(data), "0.0.0.0:9092": "127.0.0.1:0", "localhost:9092": ""}.get(w, w) for w in words
    ]
    words = [word for word in words if word not in ("", "--advertise")]
    program = str(environment / "bin" / words[0])
    variables = {
        "FOLDLOG_METRICS": f"127.0.0.1:{port}",
        "PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    with serving([*unprivileged(), program, *words[1:]], variables, data) as process:
        assert_it_may_do_nothing(process.pid)
        check = json.loads(re.sub(r"^.*?CMD ", "", last("HEALTHCHECK")))
        assert check[0] == "python"
        subprocess.run(
            [str(environment / "bin" / "python"), *(word.replace("9464", str(port)) for word in check[1:])],
            timeout=WAIT_S,
            check=True,
        )
        assert_it_ends_well(process)
