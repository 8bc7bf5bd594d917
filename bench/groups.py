"""Groups over the loopback: how long a rebalance takes in both protocols, and how fast a queue gives out records.

Two tables. Members speak the protocol raw and do no more than they must: `group_load`, `share_load`.
"""

from __future__ import annotations

import statistics
from functools import partial
from itertools import count

from bench import broker_process
from bench.broker_load import connect
from bench.broker_process import BrokerProcess
from bench.group_load import HEARTBEAT_S, PROTOCOLS, rebalance_s
from bench.isolation import produce_one
from bench.measuring import FULL, Place, Scale, Turns
from bench.share_load import committed_per_s, taken_per_s
from bench.table import Row, Table, duration, per_second, table_of

from foldlog.clock import SystemClock
from foldlog.records.loops import pack

TOPIC = "bench-groups"
MEMBERS = 100
_QUICK_MEMBERS = 5
BATCH_RECORDS = 500
"""As many as Java's consumers of both kinds take in a poll."""
_RECORDS = 100_000
_QUICK_RECORDS = 2_000
_SINGLE_RECORDS = 500
_QUICK_SINGLE_RECORDS = 5

_number = count()


# --- rebalances -------------------------------------------------------------------------------------------------------


def run_rebalances(place: Place, scale: Scale) -> Table:
    members = MEMBERS if scale is FULL else _QUICK_MEMBERS
    path = place.fresh()
    used: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    with broker_process.running(path / "log") as broker:
        broker.create_topic(TOPIC, members)

        def run(protocol: str) -> float:
            before_s = broker.cpu_s()
            group = f"{protocol}-{next(_number)}"
            seconds = rebalance_s(broker.address, protocol, group, TOPIC, members, 1, members)
            used[protocol].append(broker.cpu_s() - before_s)
            return 1 / seconds

        turns = Turns(scale.repeats, {protocol: partial(run, protocol) for protocol in PROTOCOLS}, warm_up=True)
    place.give_back(path)

    def told(protocol: str) -> str:
        spent_s = statistics.median(used[protocol][1:])
        return f"{duration(1 / turns.speed(protocol))}, {duration(max(spent_s, 1e-3))} of processor time"

    name = f"1 → {members} members, {members} partitions: consumer protocol beside classic"
    row = Row(name, told("consumer"), f"classic {told('classic')}", turns.ratio("consumer", "classic"))
    return table_of("Rebalances", [row], _REBALANCE_NOTES)


_REBALANCE_NOTES = (
    f"Raw members in one process, heartbeats every {HEARTBEAT_S * 1000:.0f} ms; until each has its share, and said so.",
    "In the classic protocol all stop reading meanwhile; in the consumer protocol those who give something back.",
)


# --- share groups -----------------------------------------------------------------------------------------------------


def fill(address: tuple[str, int], topic: str, records: int) -> int:
    """Batches of `BATCH_RECORDS` records of 100 bytes, to partition 0. The size of one."""
    now_ms = SystemClock().now_ms()
    batch = bytes(pack([(now_ms, None, b"v" * 100, ()) for _ in range(BATCH_RECORDS)]))
    with connect(address) as opened:
        for _ in range(records // BATCH_RECORDS + 2):  # a take ahead of those that count
            produce_one(opened, topic, batch)
    return len(batch)


def run_shares(place: Place, scale: Scale) -> Table:
    is_full = scale is FULL
    records = _RECORDS if is_full else _QUICK_RECORDS
    path = place.fresh()
    with broker_process.running(path / "log") as broker:
        broker.create_topic(TOPIC, 1)
        batch_bytes = fill(broker.address, TOPIC, records)
        many = _share_turns(broker, scale.repeats, records, BATCH_RECORDS, batch_bytes)
        few = _share_turns(broker, scale.repeats, _SINGLE_RECORDS if is_full else _QUICK_SINGLE_RECORDS, 1, 0)
    place.give_back(path)
    rows = [
        Row(
            f"fetch and acknowledge, {BATCH_RECORDS} records a fetch, acknowledged with the next",
            f"{per_second(many.speed('together'))} records",
            f"fetch and commit, as often {per_second(many.speed('committed'))} records",
            many.ratio("together", "committed"),
        ),
        Row(
            f"fetch and acknowledge, {BATCH_RECORDS} records a fetch, acknowledged by requests of their own",
            f"{per_second(many.speed('apart'))} records",
            f"with the next {per_second(many.speed('together'))} records",
            many.ratio("apart", "together"),
        ),
        Row(
            "fetch and acknowledge, 1 record a fetch, acknowledged with the next",
            f"{per_second(few.speed('together'))} records",
            f"by requests of their own {per_second(few.speed('apart'))} records",
            few.ratio("together", "apart"),
        ),
    ]
    return table_of("Share groups", rows, _SHARE_NOTES)


def _share_turns(broker: BrokerProcess, repeats: int, records: int, records_max: int, batch_bytes: int) -> Turns:
    def take(apart: bool) -> float:
        return taken_per_s(broker.address, f"queue-{next(_number)}", TOPIC, records, records_max, apart=apart)

    def commit() -> float:
        return committed_per_s(broker.address, f"reader-{next(_number)}", TOPIC, records, batch_bytes, records_max)

    runs = {"together": partial(take, False), "apart": partial(take, True)}
    return Turns(repeats, {**runs, "committed": commit} if batch_bytes else runs, warm_up=True)


_SHARE_NOTES = (
    "One raw member, one partition, 100-byte values in batches of 500; each answer is waited for.",
    "An acknowledgement, as a commit, is answered when it is durable: each costs a sync.",
)
