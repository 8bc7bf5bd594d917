"""Writes docs/reference/settings.md: every setting of a topic and of the broker, from the rows that parse them.

    python scripts/write_settings_reference.py            # write it
    python scripts/write_settings_reference.py --check    # exit with 1 if it is not what would be written

A test runs the check, so the page cannot be stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foldlog.broker.topics.config import TOPIC_SETTINGS
from foldlog.server.config.broker_settings import BROKER_SETTINGS, BrokerSetting, text_of

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"
HEADING: Final = """\
# Settings of topics and of the broker

For people who look up a setting: its default, its values and what it does. Names, units and ranges are Kafka's; names
that begin with `foldlog.` are ours. [The broker](../broker.md) says where settings come from, and
[Guarantees](../guarantees.md) what they promise. Written by `scripts/write_settings_reference.py`.
"""
TOPICS: Final = """\
## Topics

Set them with `foldlog topic create -c NAME=VALUE`, `foldlog topic alter`, `log.create_topic(…, config={…})` or
`kafka-configs`. Two defaults are not Kafka's: `flush.messages` (Kafka never syncs by itself) and `retention.ms` (Kafka
deletes after seven days).
"""
IDLE: Final = """\
### Without effect

foldlog accepts, checks, stores and lists these settings, so that tools which set them work.
"""
BROKER: Final = """\
## The broker

You can change settings marked with ¹ [while the broker runs](../broker.md#changes-while-it-runs).
"""
LOGINS: Final = """\
### Logins

For listeners of `SASL_SSL` and `SASL_PLAINTEXT`: [logins](../security.md#logins).
"""
TLS: Final = """\
### TLS

For listeners of `SSL` and `SASL_SSL`, and for https: [security](../security.md#tls). With the prefix
`listener.name.{name}.`, the listener's name in lower case, a setting counts for that listener only; those of https are
`metrics` and `console`.
"""
DEFAULTS: Final = """\
### Defaults of topics

For topics that do not set them. If the same thing is set in several units, the smallest unit counts.
"""
GROUPS: Final = (
    (LOGINS, ("sasl.", "connection.failed.", "connections.max.reauth.")),
    (TLS, ("ssl.",)),
    ("### Groups\n", ("group.", "offset")),
    ("### Transactions\n", ("transaction",)),
)
"""Headings of broker settings, and how the names below them begin; the other names are first."""


def reference() -> str:
    """The page."""
    return "\n".join([HEADING, *_topics(), *_broker()])


def _topics() -> Iterator[str]:
    idle = [name for name, row in TOPIC_SETTINGS.items() if row.doc.startswith("No effect: ")]
    rows = {
        name: (row.default, _values(row.allowed), row.doc.removeprefix("No effect: "))
        for name, row in TOPIC_SETTINGS.items()
    }
    for text, names in ((TOPICS, [name for name in rows if name not in idle]), (IDLE, idle)):
        yield text
        yield _table(
            [(name, f"`{rows[name][0]}`" if rows[name][0] else "none", *rows[name][1:]) for name in names],
            "why" if names is idle else "meaning",
        )


def _broker() -> Iterator[str]:
    own = {name: row for name, row in BROKER_SETTINGS.items() if row.topic_setting is None}
    grouped = [(text, [name for name in own if name.startswith(starts)]) for text, starts in GROUPS]
    rest = [name for name in own if not any(name in names for _, names in grouped)]
    defaults = [name for name, row in BROKER_SETTINGS.items() if row.topic_setting is not None]
    for text, names in ((BROKER, rest), *grouped, (DEFAULTS, defaults)):
        yield text
        yield _table([_broker_row(name, BROKER_SETTINGS[name]) for name in sorted(names)], "meaning")


def _broker_row(name: str, row: BrokerSetting) -> tuple[str, str, str, str]:
    default = text_of(row.default)
    doc = row.doc if row.topic_setting is None else f"`{row.topic_setting}`"
    return name, f"`{default}`" if default else "none", _values(row.allowed), f"¹ {doc}" if row.is_dynamic else doc


def _values(allowed: str) -> str:
    """What a row allows, without the largest number that its type holds."""
    return re.sub(r"an integer from (\S+) to (?:9223372036854775807|2147483647)\b", r"\1 or more", allowed)


def _cell(text: str) -> str:
    """As Markdown: names of protocols are code, and a bar does not end the cell."""
    return re.sub(r"(?<!`)\bSASL_[A-Z]+\b", r"`\g<0>`", text).replace("|", "\\|")


def _table(rows: list[tuple[str, str, str, str]], last: str) -> str:
    lines = [f"| setting | default | values | {last} |", "| --- | --- | --- | --- |"]
    lines += ["| `{}` | {} | {} | {} |".format(*map(_cell, row)) for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    text = reference()
    if "--check" in arguments:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'current' if is_current else 'stale: run scripts/write_settings_reference.py'}")
        return 0 if is_current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
