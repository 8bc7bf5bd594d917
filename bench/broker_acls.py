"""What ACLs cost a produce: the same load at a broker without an authorizer, and at one with thousands of ACLs.

Compared by the broker's own processor time for a request, which disturbances of the machine change less than its speed.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import broker_process
from bench.broker import ACKS_ALL, WINDOWS, Layout, batch_of
from bench.broker_load import Load, produce_load, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale
from bench.table import Row, Table, duration, table_of

from foldlog.broker.access.acls import Acl, AclOperation, Identity, PatternType, Permission, ResourceType, Verdicts
from foldlog.broker.broker import Broker
from foldlog.server.authorizer import AclAuthorizer

TOPIC = "payments-settled"
ACLS = 5_000
_WHO = Identity("User:ANONYMOUS", "127.0.0.1")
_LAYOUTS = (Layout("4 KB", 1, 1), Layout("4 KB", 8, 8), Layout("64 KB", 1, 1))
_COST_MAX = 0.02
_WARM_UP_S = 20.0
_BYTES_MAX = 256 << 20


def run(place: Place, scale: Scale) -> Table:
    seconds, turns, asked = (0.5, 15, 100_000) if scale is FULL else (0.02, 1, 100)
    path = place.fresh()
    make_directory(path / "bare", 0)
    make_directory(path / "guarded", ACLS)
    one, first = _decisions(path / "guarded", asked)
    rows = []
    with ExitStack() as stack:
        bare = stack.enter_context(broker_process.running(path / "bare"))
        flags = ("-X", "authorizer.class.name=foldlog")
        guarded = stack.enter_context(broker_process.running(path / "guarded", *flags))
        for layout in _LAYOUTS:
            for acks in (1, ACKS_ALL):
                rows += _compared(bare, guarded, layout, acks, seconds, turns, one)
    place.give_back(path)
    rows.append(
        Row("a decision of a topic that was not asked for yet", duration(first), f"one that was {duration(one)}")
    )
    return table_of("The broker, with ACLs", rows, _NOTES)


_NOTES = [
    f"{ACLS} ACLs of topics and groups, literal and prefixed, allowed and denied, of other users; one is for the load.",
    "'Processor' is the broker's own time for a request. Requests that come together ask once for each of the topics.",
]


def make_directory(path: Path, acls: int) -> None:
    """A directory with the topics of every layout, and that many ACLs."""
    with Broker.open(str(path)) as broker:
        for layout in _LAYOUTS:
            broker.create_topic(_topic_of(layout), layout.partitions)
        if acls:
            wanted = [_acl(number) for number in range(acls - 1)]
            mine = Acl(
                ResourceType.TOPIC, TOPIC, PatternType.PREFIXED, "User:*", "*", AclOperation.WRITE, Permission.ALLOW
            )
            broker.access.change(lambda access: replace(access, acls=access.acls.with_more([*wanted, mine])))


def _topic_of(layout: Layout) -> str:
    return f"{TOPIC}-{layout.size.replace(' ', '')}-{layout.connections}-{layout.partitions}"


def _acl(number: int) -> Acl:
    """One of a company's: mostly of topics, a third of them by prefix, now and then a denial."""
    kind = ResourceType.GROUP if number % 5 == 4 else ResourceType.TOPIC
    pattern = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
    operation = AclOperation.READ if number % 2 else AclOperation.WRITE
    permission = Permission.DENY if number % 10 == 7 else Permission.ALLOW
    return Acl(
        kind, f"team-{number % 400}-{number}", pattern, f"User:worker-{number % 700}", "*", operation, permission
    )


def _decisions(path: Path, asked: int) -> tuple[float, float]:
    """Seconds for a decision that was asked for before, as those of a client's requests are, and for a new one."""
    with Broker.open(str(path)) as broker:
        authorizer = AclAuthorizer(broker.access, Verdicts())

        def ask(names: list[str]) -> float:
            begun = time.thread_time()
            for name in names:
                authorizer.allows(_WHO, AclOperation.WRITE, ResourceType.TOPIC, name)
            return (time.thread_time() - begun) / len(names)

        known = min(ask([TOPIC] * asked) for _ in range(5))
        return known, ask([f"{TOPIC}-{number}" for number in range(max(1, asked // 100))])


def _compared(
    bare: BrokerProcess, guarded: BrokerProcess, layout: Layout, acks: int, seconds: float, turns: int, one: float
) -> list[Row]:
    batch, records = batch_of(layout.size, layout.codec)
    load = produce_load(_topic_of(layout), layout.partitions, batch, records, acks, WINDOWS[layout.size])
    load = replace(load, is_shared=True)
    for broker in (bare, guarded):
        run_flat_out(broker.address, load, 1, _WARM_UP_S, 0)
    without: list[float] = []
    with_acls: list[float] = []
    for turn in range(turns):
        order = [(bare, without), (guarded, with_acls)]
        for broker, found in order if turn % 2 else reversed(order):
            found.append(_request_s(broker, load, layout.connections, seconds))
    ratio = statistics.median(plain / asking for plain, asking in zip(without, with_acls, strict=True))
    plain = statistics.median(without)
    # The dearest case: requests that come together ask once for each topic, and share what it costs.
    lone = replace(load, window=1)
    alone = statistics.median(
        _request_s(bare, lone, layout.connections, seconds / 2) for _ in range(max(1, turns // 3))
    )
    what = f"produce acks={'all' if acks == ACKS_ALL else acks}, {layout}"
    shown = f"processor {duration(statistics.median(with_acls))}"
    share = one / alone
    return [
        Row(what, shown, f"without {duration(plain)}", ratio, ">= 0.98", ratio >= 1 - _COST_MAX),
        Row(
            "its question, where requests come one by one",
            duration(one),
            f"{share:.2%} of {duration(alone)}",
            None,
            "<= 2 %",
            share <= _COST_MAX,
        ),
    ]


def _request_s(broker: BrokerProcess, load: Load, connections: int, seconds: float) -> float:
    """The broker's processor time for a request."""
    before_s = broker.threads_cpu_s()
    figures = run_flat_out(broker.address, load, connections, seconds, _BYTES_MAX)
    return (broker.threads_cpu_s() - before_s) / figures.requests
