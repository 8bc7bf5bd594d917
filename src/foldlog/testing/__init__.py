"""For tests: of programs that speak Kafka (`Broker`, the pytest plugin), of folds, and of foldlog itself (the rest)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from foldlog.testing.kafka_broker import Broker, KafkaBroker

if TYPE_CHECKING:
    from foldlog.testing.broker_files import FullDisk
    from foldlog.testing.faults import RequestFault
    from foldlog.testing.fold_law import GivenRecord, LawBroken
    from foldlog.testing.folds import FoldTester

__all__ = ["Broker", "FoldTester", "FullDisk", "GivenRecord", "KafkaBroker", "LawBroken", "RequestFault"]

_LATER: Final = {
    "FoldTester": "foldlog.testing.folds",
    "FullDisk": "foldlog.testing.broker_files",
    "GivenRecord": "foldlog.testing.fold_law",
    "LawBroken": "foldlog.testing.fold_law",
    "RequestFault": "foldlog.testing.faults",
}
"""What is imported by those who name it: pytest loads this package in every run."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
