"""What schemas cost: produces to a topic that asks for them, beside one that does not, and the registry's own requests.

Validation is compared by the broker's own processor time for a request: it looks at every record, on another thread.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from bench import broker_process
from bench.broker import WINDOWS, batch_of_values
from bench.broker_load import Load, produce_load, run_flat_out
from bench.broker_process import BrokerProcess
from bench.measuring import FULL, Place, Scale
from bench.table import Row, Table, duration, per_second, table_of

_SIZES = ("4 KB", "64 KB")
_BYTES_MAX = 128 << 20
_HEADERS = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_TOPICS = ("plain", "checked")


def run(place: Place, scale: Scale) -> Table:
    seconds, turns, asked = (0.5, 7, 300) if scale is FULL else (0.02, 1, 3)
    path = place.fresh()
    with broker_process.running(path, "--registry", "127.0.0.1:0") as broker:
        connection = http.client.HTTPConnection(*broker.registry_address, timeout=30)
        try:
            schema_id = _register(connection, "checked-value", 0)
            broker.create_topic("plain", 1)
            broker.create_topic("checked", 1, foldlog_value_schema_validation="true")
            rows = [_validated(broker, size, schema_id, seconds, turns) for size in _SIZES]
            rows += _requests(connection, asked)
        finally:
            connection.close()
    place.give_back(path)
    return table_of("The schema registry", rows, _NOTES)


_NOTES = [
    "'Processor' is the broker's own time for a produce request with acks=1, of records of 100 bytes.",
    "Requests come one after the other on one connection; a schema is synced before its registration is answered.",
]


def _validated(broker: BrokerProcess, size: str, schema_id: int, seconds: float, turns: int) -> Row:
    batch, records = batch_of_values(size, b"\0" + schema_id.to_bytes(4, "big"))
    loads = {name: replace(produce_load(name, 1, batch, records, 1, WINDOWS[size]), is_shared=True) for name in _TOPICS}
    spent: dict[str, list[float]] = {name: [] for name in _TOPICS}
    for load in loads.values():
        run_flat_out(broker.address, load, 1, seconds, _BYTES_MAX)
    for turn in range(turns):
        for name in _TOPICS if turn % 2 else reversed(_TOPICS):
            spent[name].append(_request_s(broker, loads[name], seconds))
    plain, checked = (statistics.median(spent[name]) for name in _TOPICS)
    what = f"produce, {size}, values validated"
    return Row(what, f"processor {duration(checked)}", f"not validated {duration(plain)}", plain / checked)


def _request_s(broker: BrokerProcess, load: Load, seconds: float) -> float:
    before_s = broker.threads_cpu_s()
    figures = run_flat_out(broker.address, load, 1, seconds, _BYTES_MAX)
    return (broker.threads_cpu_s() - before_s) / figures.requests


def _requests(connection: http.client.HTTPConnection, asked: int) -> list[Row]:
    def rate(ask: Callable[[int], object]) -> str:
        begun = time.perf_counter()
        for number in range(asked):
            ask(number)
        return per_second(asked / (time.perf_counter() - begun))

    return [
        Row("register a new schema", rate(lambda number: _register(connection, f"of-{number}", number)), ""),
        Row("register one that is there", rate(lambda number: _register(connection, f"of-{number}", number)), ""),
        Row("look a schema up", rate(lambda number: _ask(connection, "POST", f"/subjects/of-{number}", number)), ""),
        Row("get a schema by its id", rate(lambda _: _ask(connection, "GET", "/schemas/ids/1", None)), ""),
    ]


def _register(connection: http.client.HTTPConnection, subject: str, number: int) -> int:
    return int(_ask(connection, "POST", f"/subjects/{subject}/versions", number)["id"])


def _ask(connection: http.client.HTTPConnection, method: str, path: str, number: int | None) -> dict[str, int]:
    body = None
    if number is not None:
        fields = [{"name": f"column_{one}", "type": "long"} for one in range(10)]
        schema = {"type": "record", "name": f"Order{number}", "fields": fields}
        body = json.dumps({"schema": json.dumps(schema)})
    connection.request(method, path, body, _HEADERS)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"the registry answered {answer.status}: {text[:200]!r}")
    found: dict[str, int] = json.loads(text)
    return found
