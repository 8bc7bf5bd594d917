"""For tests: of programs that speak Kafka (`Broker`, the pytest plugin), of folds, and of foldlog itself (the rest)."""

from __future__ import annotations

from foldlog.testing.kafka_broker import Broker, KafkaBroker

__all__ = ["Broker", "KafkaBroker"]
