"""`foldlog topic`: topics, their records, and the table behind them. One module a kind of verb."""

from __future__ import annotations

from typing import Final

from foldlog.cli.parsing import LazyVerb, Noun

DESCRIPTION: Final = """\
A topic is a named log of records in one or more partitions. Records are appended at the end of a partition and can be
read from anywhere. Name the log with -d DIR or -b HOST:PORT, or with FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER."""

NOUN: Final = Noun(
    {
        "list": LazyVerb("topic.admin:list_topics", "list topics"),
        "describe": LazyVerb("topic.admin:describe_topics", "show partitions and settings of topics"),
        "create": LazyVerb("topic.admin:create_topics", "create topics"),
        "alter": LazyVerb("topic.admin:alter_topics", "change settings of topics, or add partitions"),
        "delete": LazyVerb(
            "topic.admin:delete_topics", "delete topics, their records, and the offsets that groups committed in them"
        ),
        "produce": LazyVerb("topic.produce:produce", "write records, one per line"),
        "consume": LazyVerb("topic.consume:consume", "print records"),
        "tail": LazyVerb("topic.consume:tail", "print the last records, then new ones"),
        "latest": LazyVerb("topic.table:latest", "show the newest record of each key"),
        "history": LazyVerb("topic.table:history", "show every record of a key"),
        "trim": LazyVerb("topic.upkeep:trim_topic", "delete the records before a place, for good"),
        "compact": LazyVerb(
            "topic.upkeep:compact_topics", "keep only the newest record of each key, now; or recompress"
        ),
    },
    DESCRIPTION,
)
