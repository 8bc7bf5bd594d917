"""`python -m mutants`: plant the list of bugs, or mutants of rooms. The exit code is 1 if something survives."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mutants import plants, sampling
from mutants.copied_tree import BUILD, NotRun
from mutants.rooms import ROOMS


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--room", action="append", choices=[*ROOMS, "all"], help="mutants of a room, instead of plants")
    parser.add_argument("--count", type=int, default=20, help="mutants for each room (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--fault", action="append", choices=plants.CLASSES, help="only plants of this class")
    parser.add_argument("--name", help="only plants whose name holds this text")
    given = parser.parse_args(arguments)
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        return _rooms(given) if given.room else _plants(given)
    except NotRun as error:
        say(f"mutants: {error}")
        return 2


def _plants(given: argparse.Namespace) -> int:
    chosen = [
        plant
        for plant in plants.load()
        if (given.fault is None or plant.fault in given.fault) and (given.name is None or given.name in plant.name)
    ]
    if not chosen:
        say("mutants: no plant is called so; plants.toml has their names")
        return 2
    return 1 if plants.run(chosen, say) else 0


def _rooms(given: argparse.Namespace) -> int:
    names = list(ROOMS) if "all" in given.room else given.room
    scores = [sampling.run(ROOMS[name], given.count, given.seed, say) for name in names]
    for score in scores:
        for mutant in (*score.survivors, *score.unreached):
            say(f"survived: {mutant.name}")
    say(sampling.HEADING)
    for score in scores:
        say(score.row())
    return 1 if any(score.survivors or score.unreached for score in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
