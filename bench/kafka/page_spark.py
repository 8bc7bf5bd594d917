"""The page's section of Spark: our source beside Spark's own connector, at both brokers."""

from __future__ import annotations

from bench.kafka.charts import Group, bar_chart
from bench.kafka.page_parts import Comparison, Picture, SectionPage, bar, cell, per_second, table, written_size
from bench.kafka.results import Case, Rounds
from bench.kafka.spark import (
    BATCH,
    CONNECTOR_FOLDLOG,
    CONNECTOR_KAFKA,
    OURS_FOLDLOG,
    OURS_KAFKA,
    PATH,
    READER_LABELS,
    STREAM,
    UPSERT,
    VALUE_BYTES,
)
from bench.table import factor

ROWS = "rows_per_s"
SERIES = {
    PATH: "ours",
    OURS_FOLDLOG: "ours-2",
    OURS_KAFKA: "ours-3",
    CONNECTOR_FOLDLOG: "other-2",
    CONNECTOR_KAFKA: "other",
}


def spark_page(rounds: Rounds) -> SectionPage:
    reads = [case for case in rounds.cases() if case["way"] != UPSERT]
    upserts = rounds.cases(way=UPSERT)
    lines = [
        [
            name(case), *(cell(rounds, case, reader, ROWS, per_second) for reader in READER_LABELS),
            factor(rounds.ratio(case, PATH, CONNECTOR_KAFKA, ROWS)),
            factor(rounds.ratio(case, OURS_KAFKA, CONNECTOR_KAFKA, ROWS)),
        ]
        for case in [*reads, *upserts]
    ]  # fmt: skip
    head = ["", *READER_LABELS.values(), "path ÷ connector at Kafka", "our source ÷ connector, both at Kafka"]
    pictures = [
        _picture(rounds, f"benchmarks-spark-{size}.svg", f"Spark reads values of {written_size(size)}: rows a second",
                 rounds.cases(value_bytes=size, way=BATCH) + rounds.cases(value_bytes=size, way=STREAM))
        for size in VALUE_BYTES
    ]  # fmt: skip
    pictures.append(
        _picture(rounds, "benchmarks-spark-upsert.svg", "The same foreachBatch upsert: rows a second", upserts)
    )
    pairs = (
        ("Our source by path beside the connector at Kafka", PATH, CONNECTOR_KAFKA),
        ("Our source beside the connector, both at Kafka", OURS_KAFKA, CONNECTOR_KAFKA),
        ("Our source beside the connector, both at foldlog", OURS_FOLDLOG, CONNECTOR_FOLDLOG),
        ("The connector at foldlog beside the connector at Kafka", CONNECTOR_FOLDLOG, CONNECTOR_KAFKA),
    )
    findings = [
        Comparison(rounds, reads, ROWS, one, other).sentence(f"{what}, reading", name) for what, one, other in pairs
    ]
    findings += [
        Comparison(rounds, upserts, ROWS, one, other).sentence(f"{what}, upserting", name)
        for what, one, other in pairs[:2]
    ]
    aims = [
        Comparison(rounds, reads, ROWS, PATH, CONNECTOR_KAFKA).aim(
            "Spark reads 2x: our source by path, beside Spark's connector at Kafka", 2.0
        ),
        Comparison(rounds, reads, ROWS, OURS_KAFKA, CONNECTOR_KAFKA).aim(
            "Spark reads 2x: our source beside Spark's connector, both at Kafka", 2.0
        ),
    ]
    return SectionPage("Spark", [table(head, lines)], pictures, findings, aims)


def name(case: Case) -> str:
    return f"{case['way']}, {written_size(int(case['value_bytes']))}, {case['columns']}"


def _picture(rounds: Rounds, file: str, title: str, cases: list[Case]) -> Picture:
    groups = [
        Group(
            f"{case['way']}, {case['columns']}",
            [
                bar(rounds, case, reader, ROWS, per_second, name=label, series=SERIES[reader])
                for reader, label in READER_LABELS.items()
            ],
        )
        for case in cases
    ]
    told = "; ".join(f"{group.label}: {', '.join(f'{one.name} {one.text}' for one in group.bars)}" for group in groups)
    return Picture(
        file, title, bar_chart(title, f"Medians, with the least and the most of the rounds. {told}.", groups)
    )
