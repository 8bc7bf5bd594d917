"""Runs under the sanitizers: feeds the compiled decoders, and prints what it counted as a line of JSON.

`python -m scorecard.sanitized SEED SECONDS`, started by `scorecard.classes.fuzz` with the libraries that this needs.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
from dataclasses import astuple

from scorecard.decoders import all_decoders
from scorecard.outcome import Outcome, until


def main() -> None:
    from scorecard.classes.fuzz import feed

    if sys.argv[1] == "planted":
        allocated = ctypes.CDLL(None)
        allocated.malloc.restype = ctypes.c_void_p
        block = allocated.malloc(16)
        allocated.memchr(ctypes.c_void_p(block), 0x7F, 17 + 64)
        return
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    outcome, rng = Outcome(), random.Random(seed)
    compiled = [fuzzed for fuzzed in all_decoders() if fuzzed.is_compiled]
    for number in until(seconds):
        feed(compiled[number % len(compiled)], rng, 100, outcome)
    print(json.dumps({"done": outcome.done, "findings": [astuple(one) for one in outcome.findings]}))


if __name__ == "__main__":
    main()
