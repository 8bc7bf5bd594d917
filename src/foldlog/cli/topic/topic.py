"""`foldlog topic`: topics, their records, and the table behind them. One module a kind of verb."""

from __future__ import annotations

from typing import Final

from foldlog.cli.parsing import LazyVerb, Noun

DESCRIPTION: Final = """\
A topic is a named log of records in one or more partitions; each partition is written at its end only, and read from
anywhere. Where it is, is said with -d DIR or -b HOST:PORT, or by FOLDLOG_DIR or FOLDLOG_BOOTSTRAP_SERVER."""

NOUN: Final = Noun(
    {
        "list": LazyVerb("topic.admin:list_topics", "the topics there are"),
        "describe": LazyVerb("topic.admin:describe_topics", "partitions and settings of topics"),
        "create": LazyVerb("topic.admin:create_topics", "make topics"),
        "alter": LazyVerb("topic.admin:alter_topics", "change settings of topics, or add partitions"),
        "delete": LazyVerb(
            "topic.admin:delete_topics", "remove topics, their records, and what groups committed in them"
        ),
        "produce": LazyVerb("topic.produce:produce", "write records, a line each"),
        "consume": LazyVerb("topic.consume:consume", "print records"),
        "tail": LazyVerb("topic.consume:tail", "print the last records, then those that arrive"),
        "latest": LazyVerb("topic.table:latest", "show the newest record of each key"),
        "history": LazyVerb("topic.table:history", "show every record of a key"),
        "trim": LazyVerb("topic.upkeep:trim_topic", "delete the records before a place, for good"),
        "compact": LazyVerb(
            "topic.upkeep:compact_topics", "keep only the newest record of each key, now; or compress anew"
        ),
    },
    DESCRIPTION,
)
