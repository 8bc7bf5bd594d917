"""The settings with which our broker is compared: where its defaults are meant to be others, those of Kafka."""

from __future__ import annotations

from typing import Final

OURS: Final = {
    "group.min.session.timeout.ms": 6_000,
}
"""What docs/kafka_compatibility.md names as another default; with Kafka's, the rest can be compared."""
