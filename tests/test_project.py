"""The project keeps its promises to whoever installs it: what is imported, what is installed, what a target checks.

Reads pyproject.toml, the Makefile and .ci/run, and runs small processes: what is imported already in this one must not
decide what `import foldlog` imports.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog.records.loops import COMPILED

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "foldlog"
CI_MINUTES_MAX = 90
HEAVY = (
    "pyarrow", "kio", "uvloop", "pyspark", "pandas", "numpy", "asyncio", "click", "rich", "foldlog.testing",
    "foldlog.console",
)  # fmt: skip
LOOPS_IN_PYTHON = "foldlog.records.pure"


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!;\[ ]", requirement, maxsplit=1)[0] for requirement in requirements}


def run_python(
    code: str, *arguments: str, cwd: Path | None = None, source: Path = ROOT / "src"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


USE = """
import sys
import foldlog
with foldlog.open({place!r}) as log:
    log.create_topic("orders", partitions=1)
    log.append("orders", {{"tx_id": "tx_001"}}, key="tx_001")
    with log.producer() as producer:
        producer.send("orders", value=b"x").result()
    assert [record.offset for record in log.read("orders", 0)] == [0, 1]
    with log.consumer(["orders"], group="g", auto_offset_reset="earliest") as consumer:
        consumer.poll(max_records=10, timeout_ms=5000)
print(",".join(name for name in {heavy!r} if name in sys.modules))
"""


@pytest.mark.parametrize("place", [":memory:", "data"])
def test_embedded_use_imports_nothing_heavy(place: str, tmp_path: Path) -> None:
    done = run_python(USE.format(place=place, heavy=HEAVY), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


@pytest.mark.skipif(not COMPILED, reason="the loops in Python are the ones in use")
def test_a_server_starts_without_the_loops_in_python() -> None:
    """Where bytecode cannot be written, each start compiles every module it imports."""
    code = (
        f"import sys, foldlog.cli.serve; print([name for name in sys.modules if name.startswith({LOOPS_IN_PYTHON!r})])"
    )
    assert run_python(code).stdout.strip() == "[]"


def test_the_base_install_is_seven_packages() -> None:
    base = {"click", "crc32c", "cramjam", "google-re2", "h11", "rich", "uvloop"}
    assert names(project()["dependencies"]) == base


def test_the_extras_are_the_documented_ones() -> None:
    extras = project()["optional-dependencies"]
    assert set(extras) == {
        "arrow",
        "spark",
        "views",
        "tier",
        "capture",
        "mysql",
        "iceberg",
        "decoders",
        "registry",
        "kafka",
        "oauth",
        "secure",
        "lineage",
        "sql",
        "docs",
        "all",
        "dev",
    }
    assert extras["all"] == [
        "foldlog[arrow,spark,views,tier,capture,mysql,iceberg,decoders,registry,kafka,oauth,secure,lineage,sql]"
    ]


def test_every_python_we_claim_is_allowed_and_the_oldest_is_3_11() -> None:
    assert project()["requires-python"] == ">=3.11"
    minors = [match[1] for line in project()["classifiers"] if (match := re.search(r":: 3\.(\d+)$", line))]
    assert minors[0] == "11"


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
    kernels = sorted(SOURCE.rglob("*.pyx"))
    assert all(path.with_suffix(".pyi").exists() for path in kernels), "a compiled module needs its types in a .pyi"


def test_the_version_is_said_once() -> None:
    """In `foldlog.__version__`, which the build reads; the changelog has a section of that name."""
    assert "version" not in project()
    assert "version" in project()["dynamic"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {foldlog.__version__}" in changelog


def test_the_command_is_a_function_that_exists() -> None:
    module, _, function = project()["scripts"]["foldlog"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.faults
def test_without_a_compiler_the_package_still_builds(tmp_path: Path) -> None:
    """The kernels are an option of the build: where they cannot be compiled, it warns and goes on without them."""
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy2(ROOT / name, tmp_path)
    (tmp_path / "README.md").touch()
    # With the generated C, where there is some: it is the compiling that has to fail here, not the translating.
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={**os.environ, "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "failed" in done.stderr, "the warning that says so"
    assert not list(tmp_path.rglob("*.so"))
    loaded = subprocess.run(
        [sys.executable, "-c", "from foldlog.records import loops; print(loops.COMPILED)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert loaded.stdout.strip() == "False"
    assert loaded.stderr == "", "said at install and by `foldlog version`, not by every command"
    version = run_python("from foldlog.cli.main import main; main(['version'])", source=tmp_path / "src")
    assert "they were not built" in version.stdout
    assert version.stderr == ""


def test_there_is_a_wheel_for_every_python_we_claim() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    claimed = [match[1] for line in project()["classifiers"] if (match := re.search(r":: 3\.(\d+)$", line))]
    assert tool["build"].split() == [f"cp3{minor}-*" for minor in claimed]
    assert (ROOT / tool["test-command"].removeprefix("python {project}/")).exists()


def test_the_repository_has_one_address() -> None:
    """In `project.urls`; what else names it, a template or a label, means the same one."""
    repository = project()["urls"]["Repository"]
    owner = repository.rpartition("/")[0]
    named = [
        (path, link)
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*"), ROOT / "Containerfile")
        if path.is_file()
        for link in re.findall(rf"{re.escape(owner)}/[\w-]+", path.read_text(encoding="utf-8"))
    ]
    assert named
    assert not [(path.name, link) for path, link in named if link != repository]


def test_a_release_is_built_from_a_tag_that_is_the_version(tmp_path: Path) -> None:
    """The step of the workflow really runs: a tag of another version, or a version without a date, ends it."""
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs: pip install 'foldlog[docs]'")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    (step,) = [step for step in workflow["jobs"]["sdist"]["steps"] if step.get("name") == "the tag is the version"]
    (tmp_path / "src" / "foldlog").mkdir(parents=True)
    (tmp_path / "src" / "foldlog" / "__init__.py").write_text('"""A log."""\n\n__version__ = "1.2.0"\n')
    for tag, heading, code in (
        ("v1.2.0", "## 1.2.0 (2027-01-31)", 0),
        ("v1.2.1", "## 1.2.0 (2027-01-31)", 1),
        ("v1.2.0", "## 1.2.0 (unreleased)", 1),
    ):
        (tmp_path / "CHANGELOG.md").write_text(heading + "\n")
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environment, timeout=60, check=False)
        assert done.returncode == code, (tag, heading)
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["jobs"]["publish"]["needs"] == ["sdist", "wheels"]


def test_ci_runs_the_commands_that_people_type() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    commands = re.findall(r"^timeout --foreground \d+m make (.*)$", text, flags=re.MULTILINE)
    assert commands == ["lint", "docs", "release-check", "demo ONCE=1"]
    tests = re.findall(r"^run_tests (\d+) make (\S+)", text, flags=re.MULTILINE)
    assert [target for _, target in tests] == ["test", "test-faults", "test-kafka"]
    again = re.search(r"timeout --foreground (\d+)m make \"\$target\" .*--last-failed", text)
    assert again is not None
    minutes = {target: int(limit) + int(again[1]) for limit, target in tests}
    alone = [int(limit) for limit in re.findall(r"timeout --foreground (\d+)m (?!make \"\$target\")", text)]
    beside_each_other = max(minutes["test-faults"], minutes["test-kafka"])
    assert sum(alone) + minutes["test"] + beside_each_other <= CI_MINUTES_MAX


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)
    assert phony is not None
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r"^  make ([a-z-]+)", done.stdout, flags=re.MULTILINE) == phony[1].split()


def check_machine(python: str, venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / "check_machine.sh"), python, str(venv)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def script(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_missing_python_is_named_with_its_package(tmp_path: Path) -> None:
    done = check_machine("no-such-python", tmp_path / "venv")
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    old = script(tmp_path / "python3.9", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac\n')
    done = check_machine(old, tmp_path / "venv")
    assert done.returncode == 1
    assert "Python 3.9.2 is too old" in done.stderr


def test_a_python_without_venv_is_named_with_its_package(tmp_path: Path) -> None:
    bare = script(tmp_path / "python3", f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"\n')
    done = check_machine(bare, tmp_path / "venv")
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_a_missing_compiler_is_a_warning_and_no_more(tmp_path: Path) -> None:
    done = check_machine(sys.executable, tmp_path / "venv", CC="no-such-compiler")
    assert done.returncode == 0
    assert "warning: there is no C compiler" in done.stderr
    assert "apt-get install gcc" in done.stderr


def test_a_missing_java_is_a_warning_and_no_more(tmp_path: Path) -> None:
    done = check_machine(sys.executable, tmp_path / "venv", JAVA_HOME=str(tmp_path))
    assert done.returncode == 0
    assert "warning: there is no Java" in done.stderr
    assert "apt-get install default-jre-headless" in done.stderr


@pytest.mark.parametrize(
    ("version", "is_old"),
    [
        ('openjdk version "17.0.15" 2025-04-15', False),
        ('java version "1.8.0_392"', True),
        ('openjdk version "21"', False),
    ],
)
def test_an_old_java_is_a_warning_and_no_more(tmp_path: Path, version: str, is_old: bool) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "java", f"echo '{version}' >&2\n")
    done = check_machine(sys.executable, tmp_path / "venv", JAVA_HOME=str(tmp_path))
    assert done.returncode == 0
    assert ("Java 8 is too old for Spark" in done.stderr) == is_old
    assert ("Java" in done.stderr) == is_old


def test_the_long_runs_are_asked_for_by_name() -> None:
    """`make test` leaves them out by default; naming the marker brings them in."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert options["addopts"][-2:] == ["-m", "not faults and not kafka"]
    assert [marker.partition(":")[0] for marker in options["markers"]] == ["faults", "kafka"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in ("faults", "kafka"):
        assert re.search(rf"^test-{name}:.*\n\t.* -m {name} ", makefile, flags=re.MULTILINE)


def test_a_full_disk_is_named_before_anything_is_downloaded(tmp_path: Path) -> None:
    script(tmp_path / "df", 'echo header\necho "/dev/x 100000 99000 1024 99% /"\n')
    done = check_machine(sys.executable, tmp_path / "venv", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert "has 1 MB free" in done.stderr


def test_an_installation_leaves_bytecode_of_every_module(tmp_path: Path) -> None:
    """The install script really runs, over a copy of one room and with a pip that does nothing."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n[ "$2" = pip ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    for script in (ROOT / "scripts").glob("install*"):
        shutil.copy(script, tmp_path / "scripts")
    source = tmp_path / "src" / "foldlog" / "errors"
    shutil.copytree(SOURCE / "errors", source, ignore=shutil.ignore_patterns("__pycache__"))
    command = ["sh", "scripts/install.sh", str(tmp_path / "venv")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    written = {path.name.partition(".")[0] for path in (source / "__pycache__").glob("*.pyc")}
    assert written == {path.stem for path in source.glob("*.py")}
