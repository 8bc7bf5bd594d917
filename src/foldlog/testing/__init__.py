"""For tests: of programs that speak Kafka (`KafkaBroker` and the pytest plugin), and of foldlog itself (the rest)."""

from __future__ import annotations

from foldlog.testing.kafka_broker import KafkaBroker

__all__ = ["KafkaBroker"]
