"""One decoder under atheris: `python -m scorecard.guided NAME CORPUS [options]`. 3: there is no atheris."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    sys.exit(3)

with atheris.instrument_imports(include=["foldlog"]):
    from foldlog.errors import FoldlogError
    from foldlog.wire import codec
    from scorecard.decoders import Fuzzed, all_decoders


def planted(data: bytes) -> None:
    if data[:1] == b"f" and data[1:2] == b"o" and data[2:3] == b"l":
        raise IndexError("planted")


def instrumented(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The functions of the codec are compiled when they are first asked for, and so nothing that an import shows."""
    return lambda *source: atheris.instrument_func(compiled(*source))


def fuzzed_of(name: str) -> list[Fuzzed]:
    if name == "planted":
        return [Fuzzed(name, atheris.instrument_func(planted), (b"",))]
    codec._compiled = instrumented(codec._compiled)
    return [fuzzed for fuzzed in all_decoders(name) if fuzzed.name == name]


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    decoders = fuzzed_of(name)

    def feed(data: bytes) -> None:
        for fuzzed in decoders:
            try:
                fuzzed.read(data)
            except FoldlogError:
                continue

    for number, sound in enumerate(one for fuzzed in decoders for one in fuzzed.corpus):
        Path(corpus, f"sound-{number}").write_bytes(sound)
    atheris.Setup([sys.argv[0], *options, corpus], feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
