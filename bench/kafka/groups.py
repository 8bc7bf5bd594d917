"""Groups: rebalances of both protocols, and what a queue gives out; with the raw members of `make bench`."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

from bench.group_load import PROTOCOLS, rebalance_s
from bench.groups import BATCH_RECORDS, fill
from bench.kafka.recorder import Figures, Recorder, watched
from bench.kafka.results import Case
from bench.kafka.sides import FOLDLOG, KAFKA, Side, both
from bench.share_load import taken_per_s

TOGETHER, APART = "with the next fetch", "by requests of their own"
_number = count()


def run_rebalances(recorder: Recorder, directory: Path) -> None:
    members = recorder.effort.group_members
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):
            sides[name].create_topic("rebalances", members)
            for protocol in PROTOCOLS:
                _rebalance(recorder, sides[name], protocol, members)  # warms up, not counted
        for protocol in PROTOCOLS:
            case: Case = {"protocol": protocol, "members": members}
            runs = {name: partial(_rebalance, recorder, sides[name], protocol, members) for name in (KAFKA, FOLDLOG)}
            recorder.in_turns(case, runs)


def _rebalance(recorder: Recorder, side: Side, protocol: str, members: int) -> Figures:
    recorder.settle()

    def work() -> Figures:
        group = f"{protocol}-{next(_number):04d}"
        seconds = rebalance_s(side.address, protocol, group, "rebalances", members, 1, members)
        return {"rebalance_s": seconds, "rebalances_per_s": 1 / seconds}

    return watched(side.pid, work)


def run_shares(recorder: Recorder, directory: Path) -> None:
    effort = recorder.effort
    with both(directory) as sides:
        for name in (KAFKA, FOLDLOG):
            sides[name].create_topic("queue", 1)
            fill(sides[name].address, "queue", effort.taken_records)
            _take(recorder, sides[name], effort.taken_records, BATCH_RECORDS, TOGETHER)  # warms up, not counted
        for records, together in ((effort.taken_records, BATCH_RECORDS), (effort.taken_single_records, 1)):
            for how in (TOGETHER, APART):
                case: Case = {"a_fetch": together, "acknowledged": how}
                runs = {
                    name: partial(_take, recorder, sides[name], records, together, how) for name in (KAFKA, FOLDLOG)
                }
                recorder.in_turns(case, runs)


def _take(recorder: Recorder, side: Side, records: int, a_fetch: int, how: str) -> Figures:
    recorder.settle()
    group = f"queue-{next(_number):04d}"

    def work() -> Figures:
        return {"records_per_s": taken_per_s(side.address, group, "queue", records, a_fetch, apart=how == APART)}

    return watched(side.pid, work)
