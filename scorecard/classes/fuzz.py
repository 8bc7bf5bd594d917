"""Inputs that nobody sound sends, for every decoder: by mutation, under sanitizers, and guided by coverage.

The three run the decoders of `scorecard.decoders`. Under the address and undefined-behaviour sanitizers runs a copy of
the package whose compiled modules are built for that, by gcc. Coverage guides atheris through the decoders in Python.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

from foldlog.errors import FoldlogError
from scorecard.card import BUILD, ROOT, source_of_the_log
from scorecard.decoders import Fuzzed, all_decoders, mutated
from scorecard.outcome import FaultClass, Outcome, Plant, shuffled, until

EACH = 200
"""Inputs for a decoder before the next has its turn."""

FLAGS = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"


def feed(fuzzed: Fuzzed, rng: random.Random, count: int, outcome: Outcome, head: str = "inputs") -> None:
    for _ in range(count):
        data = mutated(fuzzed, rng)
        try:
            fuzzed.read(data)
        except FoldlogError:
            pass
        except Exception as error:  # noqa: BLE001 - any other exception is a finding
            what = f"{fuzzed.name}: {type(error).__name__}: {error}"
            outcome.found("other error", what, f"{fuzzed.name}: bytes.fromhex('{data.hex()[:2000]}')")
    family = fuzzed.name.partition(",")[0]
    outcome.done[f"{head}/{family}"] += count


def run(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    decoders = shuffled(all_decoders(), seed)
    rng = random.Random(seed)
    for number in until(seconds):
        feed(decoders[number % len(decoders)], rng, EACH, outcome)
    return outcome


def trusting_a_length_is_found() -> bool:
    """A decoder that reads as many bytes as the first one says, without looking whether they are there."""
    outcome = Outcome()
    trusting = Fuzzed("trusting", lambda data: [data[1 + at] for at in range(data[0])], (b"\3abc",))
    feed(trusting, random.Random(1), 200, outcome)
    return bool(outcome.findings)


def disagreeing_twins_are_found() -> bool:
    """A compiled loop that reads on where the one in Python refuses."""
    from foldlog.records import kernels_py

    sound = kernels_py.decode
    outcome = Outcome()
    try:
        kernels_py.decode = lambda *arguments, **options: sound(b"", "events", 0)
        for fuzzed in all_decoders():
            if fuzzed.name == "batches, decode":
                feed(fuzzed, random.Random(1), 100, outcome)
    finally:
        kernels_py.decode = sound
    return bool(outcome.findings)


DECODERS = FaultClass(
    name="decoders",
    title="Fuzzed decoders",
    what="""Random and mutated inputs for every decoder of bytes that a peer or a disk decides about: every version of
every request and response, batches of every codec, frames, records of groups and transactions, files. Checksums are
mended, so that damage gets behind them. A decoder answers or raises an error of ours; the compiled loops and those in
Python agree on every input.""",
    finds=("other error",),
    share=0.08,
    run=run,
    plants=(
        Plant("a decoder that trusts a length", trusting_a_length_is_found),
        Plant("compiled and Python disagree", disagreeing_twins_are_found),
    ),
)


# --- under sanitizers -------------------------------------------------------------------------------------------------


def sanitized_source() -> Path:
    """The package with its compiled modules built for the sanitizers; built once for a source. Raises OSError."""
    target = BUILD / "sanitized"
    stamp = target / ".built"
    source = source_of_the_log()
    if stamp.exists() and stamp.read_text() == source:
        return target / "src"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "src", target / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.c"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, target / name)
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address,undefined", "CC": "gcc"}
    # setup.py asks for -O3 behind CFLAGS; the sanitizers do not mind.
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    built = subprocess.run(command, cwd=target, env=environment, capture_output=True, text=True, check=False)
    if built.returncode != 0 or not list((target / "src").rglob("*.so")):
        raise OSError(f"the compiled modules could not be built with sanitizers: {built.stderr[-300:]}")
    stamp.write_text(source)
    return target / "src"


def preloaded() -> str:
    names = ("libasan.so", "libubsan.so")
    paths = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]
    return " ".join(paths)


def in_sanitized(*arguments: str) -> subprocess.CompletedProcess[str]:
    source = sanitized_source()
    environment = {
        **os.environ,
        "LD_PRELOAD": preloaded(),
        "PYTHONPATH": os.pathsep.join((str(source), str(ROOT), str(ROOT / "tests"))),
        # Python itself keeps what it allocates once; and a single allocation beyond this is a finding.
        "ASAN_OPTIONS": "detect_leaks=0:max_allocation_size_mb=2000:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "scorecard.sanitized", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def run_sanitized(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    try:
        ran = in_sanitized(str(seed), str(seconds))
    except (OSError, subprocess.CalledProcessError) as error:
        outcome.notes["sanitizers"] = f"not run here: {error}"
        return outcome
    outcome.notes["sanitizers"] = f"gcc {subprocess.check_output(['gcc', '-dumpfullversion'], text=True).strip()}"
    if ran.returncode != 0:
        outcome.found("memory error", _report_of(ran.stderr), f"python -m scorecard.sanitized {seed}")
        return outcome
    told = json.loads(ran.stdout.splitlines()[-1])
    outcome.done.update(told["done"])
    for finding in told["findings"]:
        outcome.found(*finding)
    return outcome


def _report_of(said: str) -> str:
    """The first lines of what a sanitizer reports."""
    found = re.search(r"(ERROR: AddressSanitizer.*|runtime error:.*)", said)
    return said[found.start() : found.start() + 800] if found else said[-800:]


def reading_behind_the_end_is_found() -> bool:
    return "heap-buffer-overflow" in in_sanitized("planted").stderr


SANITIZED = FaultClass(
    name="sanitized",
    title="Compiled parsers under sanitizers",
    what="""The compiled parsers (batches, frames of Produce) read mutated inputs in a process whose compiled modules
are built with gcc's address and undefined-behaviour sanitizers. A read or write beside what was allocated, or undefined
behaviour, ends it.""",
    finds=("memory error", "other error"),
    share=0.06,
    run=run_sanitized,
    plants=(Plant("reads one byte behind the end", reading_behind_the_end_is_found),),
)


# --- guided by coverage -----------------------------------------------------------------------------------------------


def run_guided(seed: int, seconds: float) -> Outcome:
    outcome = Outcome()
    names = sorted({fuzzed.name for fuzzed in all_decoders() if not fuzzed.is_compiled})
    each_s = 5 if seconds < 120 else 15
    order = shuffled(names, seed)
    for number in until(seconds):
        if not guide(order[number % len(order)], seed, each_s, outcome):
            break
    return outcome


def guide(name: str, seed: int, seconds: int, outcome: Outcome) -> bool:
    """One decoder, for some seconds. False if there is no atheris."""
    corpus = BUILD / "corpus" / re.sub(r"\W+", "-", name)
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "scorecard.guided", name, str(corpus), f"-max_total_time={seconds}"]
    command += [f"-seed={seed}", "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={corpus.parent}/"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "tests")))}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode == 3:
        outcome.notes["atheris"] = "not run here: atheris is not installed; enable with: pip install atheris"
        return False
    executed = re.search(r"stat::number_of_executed_units:\s+(\d+)", ran.stderr)
    if executed is not None:
        outcome.done[f"inputs/{name.partition(',')[0]}"] += int(executed[1])
    if ran.returncode != 0:
        error = re.search(r"Uncaught Python exception.*?\n(.*?)\nTraceback", ran.stderr, flags=re.DOTALL)
        what = error[1] if error else ran.stderr[-500:]
        outcome.found("other error", f"{name}: {what}", " ".join(command[1:]))
    return True


def a_byte_deep_inside_is_found() -> bool:
    """A decoder that fails behind three comparisons, which chance alone does not pass."""
    outcome = Outcome()
    guide("planted", 1, 40, outcome)
    return bool(outcome.findings) or "atheris" in outcome.notes


GUIDED = FaultClass(
    name="guided",
    title="Decoders, guided by coverage",
    what="""atheris (libFuzzer) drives the decoders in Python: an input that reaches new lines is kept and mutated
further. What it kept is in build/scorecard/corpus, and the next run begins with it.""",
    finds=("other error",),
    share=0.05,
    run=run_guided,
    plants=(Plant("fails behind three comparisons", a_byte_deep_inside_is_found),),
)
