"""What a backend says that it cannot do is what it refuses, with that reason, and what the manual's table says.

Every method that any backend names is called on a log of each kind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import foldlog
from client.log_places import PLACES, WAIT_MS
from foldlog import errors
from foldlog.client.backends.backend import Backend, backend_of
from foldlog.client.backends.cluster.backend import ClusterBackend
from foldlog.client.backends.local import LocalBackend
from foldlog.client.backends.served.backend import ServedBackend

ROOT = Path(__file__).parents[3]

KINDS: dict[str, type[Backend]] = {"embedded": LocalBackend, "beside": ServedBackend, "cluster": ClusterBackend}


def renew_one(log: foldlog.Log) -> None:
    log.append("orders", "slow")
    with log.queue("orders", group="workers", auto_offset_reset="earliest") as queue:
        (record,) = queue.take(timeout_ms=WAIT_MS)
        try:
            queue.renew(record)
        finally:
            queue.ack(record)  # it is held, whatever became of the renewal


CALLS: dict[str, Callable[[foldlog.Log], object]] = {
    "compact": lambda log: log.compact(),
    "recompress": lambda log: log.recompress("orders", "zstd"),
    "enforce_retention": lambda log: log.enforce_retention(),
    "Queue.renew": renew_one,
}


def test_every_limit_is_a_method_that_is_tried_here() -> None:
    assert {method for kind in KINDS.values() for method in kind.LIMITS} == set(CALLS)
    for method in CALLS:
        kind, _, name = method.rpartition(".")
        assert hasattr(getattr(foldlog, kind or "Log"), name)


@pytest.mark.parametrize("place", PLACES)
def test_a_backend_refuses_what_it_says_it_cannot_do_and_nothing_else(place: str, tmp_path: Path) -> None:
    with PLACES[place](tmp_path) as log:
        backend = backend_of(log)
        assert type(backend) is KINDS[place]
        log.create_topic("orders")
        for method, call in CALLS.items():
            reason = backend.LIMITS.get(method)
            if reason is None:
                call(log)
                continue
            with pytest.raises(errors.ReadOnly) as caught:
                call(log)
            begins, _, goes_on = reason.partition("{where}")
            assert str(caught.value).startswith(begins)
            assert str(caught.value).endswith(goes_on.rpartition("}")[2])
            assert log.path in str(caught.value)


def test_the_table_in_the_manual_is_what_the_backends_say() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_backends_table.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
