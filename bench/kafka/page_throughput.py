"""The page's sections of what flows: produce, consume, and the fan-out."""

from __future__ import annotations

from bench.kafka.charts import Group, bar_chart
from bench.kafka.consume import CACHED
from bench.kafka.page_parts import (
    ON_PAR,
    Comparison,
    Picture,
    SectionPage,
    bar,
    cell,
    per_second,
    table,
    written_size,
)
from bench.kafka.produce import JAVA, LIBRDKAFKA, MOCK, RAW
from bench.kafka.results import Case, Rounds
from bench.kafka.sides import FOLDLOG, KAFKA, RELAXED
from bench.table import factor

CLIENTS = {LIBRDKAFKA: "librdkafka", JAVA: "kafka-producer-perf-test", RAW: "raw protocol"}
READERS = {LIBRDKAFKA: "librdkafka", JAVA: "kafka-consumer-perf-test", RAW: "raw protocol"}
SYNCS = {
    KAFKA: "Apache Kafka<br><small>answers before it syncs</small>",
    FOLDLOG: "foldlog<br><small>syncs, then answers</small>",
    RELAXED: "foldlog, relaxed<br><small>answers before it syncs</small>",
}
WITHOUT_SYNC = "foldlog<br><small>acks=1: answers, then syncs</small>"
SPEED = "records_per_s"


def produce_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        partitions = "1 partition" if case["partitions"] == 1 else f"{case['partitions']} partitions"
        codec = "not compressed" if case["codec"] == "none" else case["codec"]
        return f"{written_size(int(case['value_bytes']))}, {partitions}, {codec}"

    tables, pictures, findings = [], [], []
    for client, title in CLIENTS.items():
        durable, fast = (rounds.cases(client=client, acks=acks) for acks in ("all", "1"))
        has_mock = any(rounds.has(case, MOCK, SPEED) for case in durable)
        tables += [
            f"**{title}, acks=all**\n\n" + _produce_table(rounds, durable, name, has_mock=has_mock),
            f"**{title}, acks=1**\n\n" + _fast_table(rounds, fast, name),
        ]
        groups = [
            Group(name(case), [bar(rounds, case, side, SPEED, per_second) for side in (KAFKA, FOLDLOG, RELAXED)])
            for case in durable
        ]
        heading = f"Produce, {title}, acks=all: records a second"
        pictures.append(Picture(f"benchmarks-produce-{client.lower()}.svg", heading, _chart(heading, groups)))
        findings += [
            Comparison(rounds, durable, SPEED).sentence(f"{title}, acks=all, synced beside not synced", name),
            Comparison(rounds, durable, SPEED, RELAXED).sentence(f"{title}, acks=all, neither synced", name),
            Comparison(rounds, fast, SPEED).sentence(f"{title}, acks=1", name),
        ]
    aimed = [case for client in (LIBRDKAFKA, JAVA) for case in rounds.cases(client=client, acks="all")]
    aim = Comparison(rounds, aimed, SPEED).aim(
        f"produce durable, at least on par ({ON_PAR} or more) with Kafka that does not sync", ON_PAR
    )
    return SectionPage("Produce", tables, pictures, findings, [aim])


def _produce_table(rounds: Rounds, cases: list[Case], name: object, *, has_mock: bool) -> str:
    label = name if callable(name) else str
    head = ["values", SYNCS[KAFKA], SYNCS[FOLDLOG], SYNCS[RELAXED], "foldlog ÷ Kafka", "relaxed ÷ Kafka"]
    lines = []
    for case in cases:
        line = [label(case), *(cell(rounds, case, side, SPEED, per_second) for side in (KAFKA, FOLDLOG, RELAXED))]
        line += [factor(rounds.ratio(case, side, KAFKA, SPEED)) for side in (FOLDLOG, RELAXED)]
        lines.append([*line, cell(rounds, case, MOCK, SPEED, per_second)] if has_mock else line)
    return table([*head, "mock"] if has_mock else head, lines)


def _fast_table(rounds: Rounds, cases: list[Case], name: object) -> str:
    label = name if callable(name) else str
    lines = [
        [
            label(case), *(cell(rounds, case, side, SPEED, per_second) for side in (KAFKA, FOLDLOG)),
            factor(rounds.ratio(case, FOLDLOG, KAFKA, SPEED)),
        ]
        for case in cases
    ]  # fmt: skip
    return table(["values", SYNCS[KAFKA], WITHOUT_SYNC, "foldlog ÷ Kafka"], lines)


def consume_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        consumers = "1 consumer" if case["consumers"] == 1 else f"{case['consumers']} consumers"
        return f"{written_size(int(case['value_bytes']))}, {consumers}, {_origin(case)}"

    tables, pictures, findings = [], [], []
    for client, title in READERS.items():
        cases = rounds.cases(client=client)
        lines = [
            [
                name(case), *(cell(rounds, case, side, SPEED, per_second) for side in (KAFKA, FOLDLOG)),
                factor(rounds.ratio(case, FOLDLOG, KAFKA, SPEED)),
            ]
            for case in cases
        ]  # fmt: skip
        tables.append(f"**{title}**\n\n" + table(["values", "Apache Kafka", "foldlog", "foldlog ÷ Kafka"], lines))
        groups = [
            Group(name(case), [bar(rounds, case, side, SPEED, per_second) for side in (KAFKA, FOLDLOG)])
            for case in cases
        ]
        heading = f"Consume, {title}: records a second"
        pictures.append(Picture(f"benchmarks-consume-{client.lower()}.svg", heading, _chart(heading, groups)))
        findings.append(Comparison(rounds, cases, SPEED).sentence(title, name))
    aim = Comparison(rounds, rounds.cases(), SPEED).aim("consume 1.5x", 1.5)
    return SectionPage("Consume", tables, pictures, findings, [aim])


def _origin(case: Case) -> str:
    return "page cache" if case["from"] == CACHED else "disk"


def fan_out_page(rounds: Rounds) -> SectionPage:
    def name(case: Case) -> str:
        return "1 group" if case["groups"] == 1 else f"{case['groups']} groups"

    cases, figure = rounds.cases(), "delivered_per_s"
    lines = []
    for case in cases:
        line = [name(case), *(cell(rounds, case, side, figure, per_second) for side in (KAFKA, FOLDLOG, RELAXED))]
        costs = [
            rounds.spread(case, side, "cpu_s").median / rounds.spread(case, side, "delivered").median * 1e6
            for side in (KAFKA, FOLDLOG)
        ]
        ratio = factor(rounds.ratio(case, FOLDLOG, KAFKA, figure))
        lines.append([*line, ratio, " / ".join(f"{cost:.2f} s" for cost in costs)])
    head = ["readers", SYNCS[KAFKA], SYNCS[FOLDLOG], SYNCS[RELAXED], "foldlog ÷ Kafka"]
    heading = "One producer, several groups: records delivered a second, all groups together"
    groups = [
        Group(name(case), [bar(rounds, case, side, figure, per_second) for side in (KAFKA, FOLDLOG, RELAXED)])
        for case in cases
    ]
    findings = [
        Comparison(rounds, cases, figure).sentence("Delivered, synced beside not synced", name),
        Comparison(rounds, cases, figure, RELAXED).sentence("Delivered, neither synced", name),
    ]
    tables = [table([*head, "broker CPU for a million delivered, Kafka / foldlog"], lines)]
    return SectionPage(
        "Fan-out", tables, [Picture("benchmarks-fan-out.svg", heading, _chart(heading, groups))], findings
    )


def _chart(heading: str, groups: list[Group]) -> str:
    told = "; ".join(f"{group.label}: " + ", ".join(f"{one.name} {one.text}" for one in group.bars) for group in groups)
    return bar_chart(heading, f"Medians, with the least and the most of the rounds. {told}.", groups)
