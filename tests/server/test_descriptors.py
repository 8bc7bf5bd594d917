"""A broker with too few descriptors: what is open goes on, what is not is refused in words, and scrapes are answered.

In a child process, because a limit is the whole process's. The child prints what it saw as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from foldlog.wire.error_codes import ErrorCode

LIMIT = 120
PARTITIONS = 200

CHILD = """
import json, logging, resource, sys, urllib.request
from foldlog.broker.broker import Broker
from foldlog.server.server import Server
from foldlog.server.config.settings import ServerSettings
from foldlog.wire.messages.api_versions import ApiVersionsRequest
from server.raw_client import RawClient, batch, fetch, produce, produced

path, limit, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lines = []
handler = logging.Handler()
handler.emit = lambda record: lines.append(record.getMessage())
logging.getLogger("foldlog").addHandler(handler)
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def is_taken(client):
    try:
        client.ask(ApiVersionsRequest(), 0)
    except ConnectionError:
        return False
    return True


with Broker.open(path) as broker:
    broker.create_topic("many", partitions=partitions)
    settings = ServerSettings.parse({"listeners": "127.0.0.1:0", "foldlog.metrics": "127.0.0.1:0"})
    with Server.start(broker, settings) as server:
        client = RawClient(server.addresses[0])
        produce_codes = [produced(client.ask(produce(batch(b"x"), "many", n), 9))[0] for n in range(partitions)]
        answers = [client.ask(fetch(0, "many", n), 11) for n in range(partitions)]
        others = [RawClient(server.addresses[0])]
        while is_taken(others[-1]):
            others.append(RawClient(server.addresses[0]))
        host, port = server.metrics_address
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=30) as answer:
            health = answer.status
        produce_codes.append(produced(client.ask(produce(batch(b"x"), "many", 0), 9))[0])
        for other in (client, *others):
            other.close()
fetch_codes = [answer.responses[0].partitions[0].error_code for answer in answers]
print(json.dumps([produce_codes, fetch_codes, health, lines]))
"""


def seen_with_a_limit(tmp_path: Path, limit: int, partitions: int) -> Any:
    child = [sys.executable, "-c", CHILD, str(tmp_path / "data"), str(limit), str(partitions)]
    tests = Path(__file__).parent.parent
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False, cwd=tests)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_open_goes_on_and_the_rest_is_refused_in_a_few_lines(tmp_path: Path) -> None:
    produce_codes, fetch_codes, health, lines = seen_with_a_limit(tmp_path, LIMIT, PARTITIONS)
    assert set(produce_codes) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert (produce_codes[0], produce_codes[-1]) == (ErrorCode.NONE, ErrorCode.NONE), "the first is open, and goes on"
    assert set(fetch_codes) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert health == 200
    started, refused, turned_away = lines
    assert started.startswith(f"there are {PARTITIONS} partitions")
    assert "Too many open files" in refused
    assert "connection closed: there are too many" in turned_away
    for line in lines:
        assert f"may have {LIMIT} files and connections open" in line
        assert "ulimit -n" in line
