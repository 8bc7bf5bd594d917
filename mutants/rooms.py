"""The rooms whose code is mutated: what belongs to each, and the tests that are asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutants.copied_tree import ROOT

SOURCE: Final = "src/foldlog"


@dataclass(frozen=True, slots=True)
class Room:
    """Files below `sources` (of src/foldlog) are mutated; `tests` (of tests) are run."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self, root: Path = ROOT) -> list[str]:
        """Every module, by its path in the repository."""
        found = []
        for source in self.sources:
            path = root / SOURCE / source
            found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return [str(path.relative_to(root)) for path in found if path.name != "__init__.py"]

    def asked(self) -> list[str]:
        return [f"tests/{test}" for test in self.tests]

    def test_files(self, root: Path = ROOT) -> list[Path]:
        found = []
        for asked in self.asked():
            path = root / asked
            found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return found


ROOMS: Final = {
    room.name: room
    for room in (
        Room(
            "log",
            ("log",),
            (
                "log",
                "behaviours",
                "broker/test_journal.py",
                "faults/test_power_loss.py",
                "faults/test_power_loss_journal.py",
                "faults/test_damage_everywhere.py",
                "faults/test_failing_disk.py",
            ),
        ),
        Room(
            "records",
            ("records",),
            (
                "records",
                "log/test_cleaning_damage.py",
                "log/test_compaction_passes.py",
                "log/test_producers.py",
                "client/test_schema_values.py",
            ),
        ),
        Room("broker", ("broker",), ("broker",)),
        # The broker on its sockets. The messages of the protocol are generated, and compared with another codec.
        Room("kafka", ("server/handlers", "server/fetches", "server/net", "wire/codec.py"), ("server", "wire")),
        Room("views", ("views",), ("views",)),
        Room("folds", ("spark/folds",), ("spark/folds",)),
        Room(
            "transactions",
            ("broker/transactions", "log/producers.py", "log/transactions.py", "client/transactions.py"),
            (
                "broker/transactions",
                "log/test_transactions.py",
                "log/test_transactions_model.py",
                "log/test_producers.py",
                "client/test_transactions.py",
                "server/handlers",
            ),
        ),
        Room(
            "access",
            ("broker/access", "server/access", "server/authorizer.py"),
            (
                "broker/access",
                "server/access",
                "server/test_authorizer.py",
                "server/test_every_api_asks.py",
                "server/net/test_quotas.py",
            ),
        ),
    )
}
