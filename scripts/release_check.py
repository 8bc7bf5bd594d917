"""`make release-check`: build what a release uploads, and install it as a stranger would.

    python scripts/release_check.py                     with the oldest and the newest Python (3.11 or newer) found here
    python scripts/release_check.py --python python3.12 python3.13

In a copy of the tracked files, away from git: the sdist is built, and each Python builds a wheel from it, which is
installed into an empty environment, measured, and tried by `scripts/check_installed.py`. `twine check --strict` judges
all of it. With `--keep DIRECTORY` the files stay there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
BASE_INSTALL_MB_MAX = 40
STEP_TIMEOUT_S = 170
NOT_OURS = ("pip", "setuptools", "wheel", "_distutils_hack", "distutils-precedence.pth")
"""What an empty environment brings along."""


def run(*command: str | Path, cwd: Path, path: str | None = None) -> str:
    """What a step printed. One that fails, or takes too long, ends the check."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    if path is not None:
        environment["PATH"] = path
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{command[0]} … took longer than {STEP_TIMEOUT_S} s") from None
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def minor_version(python: str) -> tuple[int, int] | None:
    """Of an interpreter that runs and can make environments; pyenv's shims may not run."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return None
    major, _, minor = done.stdout.strip().partition(" ")
    return (int(major), int(minor)) if done.returncode == 0 and minor.isdigit() else None


def interpreters() -> dict[tuple[int, int], str]:
    """The Pythons of this machine that foldlog takes, one for each minor version, the oldest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 20)]
    candidates = [sys.executable, *filter(None, named), *map(str, sorted(pyenv.glob("versions/*/bin/python3")))]
    found: dict[tuple[int, int], str] = {}
    for candidate in candidates:
        version = minor_version(candidate)
        if version is not None and version >= OLDEST:
            found.setdefault(version, candidate)
    return dict(sorted(found.items()))


def chosen(wanted: list[str]) -> dict[tuple[int, int], str]:
    if not wanted:
        found = interpreters()
        return {version: found[version] for version in (min(found), max(found))}
    named = {}
    for python in wanted:
        version = minor_version(python)
        if version is None or version < OLDEST:
            raise SystemExit(f"{python} is no Python 3.11 or newer with venv and ensurepip")
        named[version] = python
    return named


def tracked_files(target: Path) -> Path:
    """What a clone has, without its git directory; changes that are not committed come along."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def path_without_git(directory: Path) -> str:
    """A PATH on which `git` fails, as where there is none."""
    directory.mkdir()
    (directory / "git").write_text("#!/bin/sh\necho 'there is no git here' >&2\nexit 127\n", encoding="utf-8")
    (directory / "git").chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def build_sdist(source: Path, out: Path, path: str) -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, cwd=source, path=path)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(source).as_posix() for path in (source / "src").rglob("*.p[yx]*") if path.is_file()}
    missing = {"setup.py", "pyproject.toml", "README.md", "LICENSE", *sources} - packed
    # setuptools takes some tests of a directory of that name by itself, without what they import.
    stray = {name for name in packed if re.search(r"\.(c|so|pyc)$|^tests", name)}
    if missing or stray:
        raise SystemExit(f"{sdist.name} lacks {sorted(missing)[:5]}, and should not hold {sorted(stray)[:5]}")
    return sdist


def build_wheel(python: str, sdist: Path, scratch: Path, path: str) -> Path:
    """From the sdist, with the build tools that pip fetches for it."""
    out = scratch / "wheel"
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, sdist, cwd=scratch, path=path)
    (wheel,) = out.glob("*.whl")
    return wheel


def check_links(wheel: Path) -> None:
    """The readme as PyPI shows it: every link is absolute, and one into the repository names a file that is there."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    (repository,) = re.findall(r"^Project-URL: Repository, (.+)$", metadata, flags=re.MULTILINE)
    (version,) = re.findall(r"^Version: (.+)$", metadata, flags=re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.partition("\n\n")[2])
    lost = [link for link in links if not link.startswith(("https://", "#"))]
    for link in links:
        inside = re.match(rf"{re.escape(repository)}/(?:blob|raw)/v{re.escape(version)}/([^#]+)", link)
        if link.startswith(repository) and (inside is None or not (ROOT / inside[1]).exists()):
            lost.append(link)
    if lost or not links:
        raise SystemExit(f"the readme of {wheel.name} has links that lead nowhere: {', '.join(lost) or 'it has none'}")


def sizes_mb(environment: Path) -> tuple[float, float]:
    """What the packages' files take in site-packages, pip's left out; and the bytecode that was compiled from them."""
    (packages,) = environment.glob("lib/python*/site-packages")
    added = [entry for entry in packages.iterdir() if re.split(r"[-.]", entry.name)[0] not in NOT_OURS]
    files = [file for entry in added for file in ([entry] if entry.is_file() else entry.rglob("*")) if file.is_file()]
    bytecode = sum(file.stat().st_size for file in files if file.suffix == ".pyc") / 1e6
    return sum(file.stat().st_size for file in files) / 1e6 - bytecode, bytecode


def try_python(python: str, sdist: Path, scratch: Path, path: str) -> tuple[Path, str]:
    """The wheel of one Python, and a line about its install."""
    scratch.mkdir()
    began = time.monotonic()
    wheel = build_wheel(python, sdist, scratch, path)
    check_links(wheel)
    built = time.monotonic()
    environment = scratch / "empty"
    run(python, "-m", "venv", environment, cwd=scratch)
    inside = environment / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", wheel, cwd=scratch)
    size, bytecode = sizes_mb(environment)
    if size > BASE_INSTALL_MB_MAX:
        raise SystemExit(f"the base install is {size:.1f} MB, and {BASE_INSTALL_MB_MAX} MB are promised")
    run(inside, "-m", "pip", "install", "--quiet", "pytest", cwd=scratch)
    said = run(inside, ROOT / "scripts" / "check_installed.py", cwd=scratch).strip()
    done = time.monotonic()
    measured = f"base install {size:.1f} MB, and {bytecode:.1f} MB of bytecode compiled from it"
    return wheel, f"{said}\n    {measured}; built in {built - began:.0f} s, tried in {done - built:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description="Build what a release uploads, and install it as a stranger would.")
    parser.add_argument("--python", nargs="+", default=[], help="the interpreters to try; else the oldest and newest")
    parser.add_argument("--keep", type=Path, help="put sdist and wheels into this directory")
    options = parser.parse_args()
    pythons = chosen(options.python)
    with tempfile.TemporaryDirectory(prefix="foldlog-release-") as directory:
        scratch = Path(directory)
        path = path_without_git(scratch / "no-git")
        sdist = build_sdist(tracked_files(scratch / "source"), scratch / "dist", path)
        print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB, built without git", flush=True)
        with ThreadPoolExecutor(len(pythons)) as pool:
            tries = [
                pool.submit(try_python, python, sdist, scratch / f"py{version[1]}", path)
                for version, python in pythons.items()
            ]
            wheels = []
            for one in tries:
                wheel, line = one.result()
                wheels.append(wheel)
                print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB\n    {line}", flush=True)
        print(
            run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", sdist, *wheels, cwd=scratch).strip()
        )
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            for file in (sdist, *wheels):
                shutil.copy2(file, options.keep)
    if len(pythons) == 1:
        print("only one Python here is 3.11 or newer, so a second one was not tried: install one, or name it: --python")


if __name__ == "__main__":
    main()
