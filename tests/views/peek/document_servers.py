"""Small servers for the examples of docs/views.md: they answer as Elasticsearch and ClickHouse document it.

Only what the examples ask for, and strictly: a request that they do not know is answered with 400 and noted. What the
examples rely on is kept as the engines keep it: external versions (also of deleted documents), sequence numbers,
aliases that change together, scrolls that show one state; rows of a ReplacingMergeTree with the highest version.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa


@dataclass
class Index:
    """An Elasticsearch index: its mapping, its documents, and the versions of those that were deleted."""

    mappings: dict[str, Any]
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    sequence: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def write(self, name: str, source: dict[str, Any] | None) -> None:
        self.count += 1
        self.sequence[name] = self.count
        if source is None:
            self.documents.pop(name, None)
        else:
            self.documents[name] = source


Answer = tuple[int, Any]


class Elasticsearch:
    """One node, one shard."""

    def __init__(self) -> None:
        self.indexes: dict[str, Index] = {}
        self.aliases: dict[str, tuple[str, Any]] = {}
        self.scrolls: dict[str, list[dict[str, Any]]] = {}
        self.unknown: list[str] = []

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path = parts.path.strip("/").split("/")
        match [method, *path]:
            case ["GET", "_alias", alias]:
                found = self.aliases.get(alias)
                return (404, {"status": 404}) if found is None else (200, {found[0]: {"aliases": {alias: {}}}})
            case ["POST", "_aliases"]:
                return self.change_aliases(json.loads(body)["actions"])
            case ["POST", "_bulk"]:
                return self.bulk(body.decode())
            case ["POST", "_search", "scroll"]:
                return self.page(json.loads(body)["scroll_id"])
            case [_, name, *rest]:
                return self.on_index(method, name, rest, query, json.loads(body) if body else {})
        return self.refuse(f"{method} {target}")

    def refuse(self, what: str) -> Answer:
        self.unknown.append(what)
        return 400, {"error": {"type": "illegal_argument_exception", "reason": what}}

    def on_index(self, method: str, name: str, rest: list[str], query: dict[str, str], body: dict[str, Any]) -> Answer:
        if [method, *rest] == ["PUT"]:
            return self.create_index(name, body)
        index = self.indexes.get(name)
        if index is None:
            return 404, {"error": {"type": "index_not_found_exception"}, "found": False}
        found: Any = {"acknowledged": True}
        match [method, *rest]:
            case ["DELETE"]:
                self.remove_index(name)
            case ["GET", "_mapping"]:
                found = {name: {"mappings": index.mappings}}
            case ["PUT", "_mapping"]:
                index.mappings |= body
            case ["POST", "_refresh"]:
                pass
            case ["POST", "_search"]:
                return self.search(index, body)
            case [_, "_doc" | "_create" as how, document]:
                return self.on_document(index, method, how, document, query, body)
            case _:
                return self.refuse(f"{method} {name} {rest}")
        return 200, found

    def create_index(self, name: str, body: dict[str, Any]) -> Answer:
        if name in self.indexes:
            return 400, {"error": {"type": "resource_already_exists_exception"}}
        self.indexes[name] = Index(body["mappings"])
        return 200, {"acknowledged": True}

    def on_document(
        self, index: Index, method: str, how: str, name: str, query: dict[str, str], body: dict[str, Any]
    ) -> Answer:
        source = index.documents.get(name)
        if method == "GET":
            if source is None:
                return 404, {"found": False}
            return 200, {"_source": source, "_seq_no": index.sequence[name], "_primary_term": 1, "found": True}
        if how == "_create" and source is not None:
            return 409, {"error": {"type": "version_conflict_engine_exception"}}
        if "if_seq_no" in query and (int(query["if_seq_no"]), query["if_primary_term"]) != (index.sequence[name], "1"):
            return 409, {"error": {"type": "version_conflict_engine_exception"}}
        index.write(name, body)
        return 201 if source is None else 200, {"result": "created" if source is None else "updated"}

    def change_aliases(self, actions: list[dict[str, dict[str, Any]]]) -> Answer:
        """All of them, or none if one cannot be."""
        for action in actions:
            for how, what in action.items():
                if what["index"] not in self.indexes or how not in ("add", "remove", "remove_index"):
                    return 404, {"error": {"type": "index_not_found_exception"}}
        for action in actions:
            for how, what in action.items():
                if how == "add":
                    self.aliases[what["alias"]] = (what["index"], what["filter"])
                elif how == "remove":
                    del self.aliases[what["alias"]]
                else:
                    self.remove_index(what["index"])
        return 200, {"acknowledged": True}

    def remove_index(self, name: str) -> None:
        del self.indexes[name]
        self.aliases = {alias: found for alias, found in self.aliases.items() if found[0] != name}

    def bulk(self, body: str) -> Answer:
        assert body.endswith("\n"), "a bulk request ends with a newline"
        lines = iter(body.splitlines())
        items = []
        for line in lines:
            ((how, target),) = json.loads(line).items()
            source = json.loads(next(lines)) if how == "index" else None
            items.append({how: self.versioned(target, source)})
        return 200, {"errors": any(item["status"] >= 400 for one in items for item in one.values()), "items": items}

    def versioned(self, target: dict[str, Any], source: dict[str, Any] | None) -> dict[str, Any]:
        assert target["version_type"] == "external_gte"
        index, name, version = self.indexes[target["_index"]], target["_id"], target["version"]
        if version < index.versions.get(name, 0):
            return {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
        was_there = name in index.documents
        index.versions[name] = version
        index.write(name, source)
        return {"status": (200 if was_there else 404) if source is None else (200 if was_there else 201)}

    def search(self, index: Index, body: dict[str, Any]) -> Answer:
        assert body["sort"] == ["_doc"]
        hidden = body["query"]["bool"]["must_not"]["ids"]["values"]
        hits = [{"_id": name, "_source": source} for name, source in index.documents.items() if name not in hidden]
        scroll = f"scroll-{len(self.scrolls)}"
        # Pages of three, whatever was asked for: an example must not rely on one page being enough.
        self.scrolls[scroll] = hits
        return self.page(scroll)

    def page(self, scroll: str) -> Answer:
        hits = self.scrolls[scroll]
        self.scrolls[scroll] = hits[3:]
        return 200, {"_scroll_id": scroll, "hits": {"hits": hits[:3]}}


@dataclass
class MergeTree:
    """A ReplacingMergeTree(_version, _deleted): every row that was inserted, as no merge has happened yet."""

    columns: list[str]
    key: str
    comment: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def final(self) -> list[dict[str, Any]]:
        newest: dict[Any, dict[str, Any]] = {}
        for row in self.rows:
            if row[self.key] not in newest or row["_version"] >= newest[row[self.key]]["_version"]:
                newest[row[self.key]] = row
        return [row for row in newest.values() if not row["_deleted"]]


def _literal(text: str) -> str:
    """A string literal of ClickHouse."""
    assert text[0] == text[-1] == "'"
    return re.sub(r"\\(.)", r"\1", text[1:-1])


class ClickHouseServer:
    """The HTTP interface of one server with one database."""

    def __init__(self) -> None:
        self.tables: dict[str, MergeTree] = {}
        self.schemas: dict[str, pa.Schema] = {}
        self.unknown: list[str] = []

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        statement = parse_qs(urlsplit(target).query)["query"][0]
        where = r"database = currentDatabase\(\) AND name = '(\w+)'"
        engine = r"ENGINE = ReplacingMergeTree\(_version, _deleted\) ORDER BY `(\w+)`"
        for pattern, respond in (
            (rf"SELECT comment FROM system\.tables WHERE {where} FORMAT TSVRaw", self.select_comment),
            (rf"CREATE TABLE IF NOT EXISTS `(\w+)` \((.*)\) {engine} COMMENT ('.*')", self.create),
            (r"ALTER TABLE `(\w+)` MODIFY COMMENT ('.*')", self.modify_comment),
            (r"ALTER TABLE `(\w+)` ADD COLUMN IF NOT EXISTS `(\w+)` (.*)", self.add_column),
            (r"EXCHANGE TABLES `(\w+)` AND `(\w+)`", self.exchange),
            (r"RENAME TABLE `(\w+)` TO `(\w+)`", self.rename),
            (r"DROP TABLE IF EXISTS `(\w+)` SYNC", self.drop),
            (r"SELECT (.*) FROM `(\w+)` FINAL FORMAT ArrowStream", self.select),
        ):
            found = re.fullmatch(pattern, statement, re.DOTALL)
            if found is not None:
                return respond(*found.groups())
        found = re.fullmatch(r"INSERT INTO `(\w+)` \((.*)\) FORMAT ArrowStream", statement)
        if found is not None:
            return self.insert(found[1], found[2], body)
        self.unknown.append(statement)
        return 400, b"Code: 62. DB::Exception: Syntax error"

    def select_comment(self, name: str) -> Answer:
        return 200, (self.tables[name].comment + "\n").encode() if name in self.tables else b""

    def create(self, name: str, columns: str, key: str, comment: str) -> Answer:
        if name not in self.tables:
            names = re.findall(r"`(\w+)` ", columns)
            assert f"`{key}` Nullable" not in columns, "a sorting key cannot be null"
            self.tables[name] = MergeTree([*names, "_version", "_deleted"], key, _literal(comment))
        return 200, b""

    def modify_comment(self, name: str, comment: str) -> Answer:
        if name not in self.tables:
            return 404, b"Code: 60. DB::Exception: Table does not exist"
        self.tables[name].comment = _literal(comment)
        return 200, b""

    def add_column(self, name: str, column: str, _: str) -> Answer:
        table = self.tables[name]
        if column not in table.columns:
            table.columns.append(column)
        return 200, b""

    def exchange(self, one: str, other: str) -> Answer:
        self.tables[one], self.tables[other] = self.tables[other], self.tables[one]
        return 200, b""

    def rename(self, old: str, new: str) -> Answer:
        assert new not in self.tables
        self.tables[new] = self.tables.pop(old)
        return 200, b""

    def drop(self, name: str) -> Answer:
        self.tables.pop(name, None)
        return 200, b""

    def insert(self, name: str, columns: str, body: bytes) -> Answer:
        if name not in self.tables:
            return 404, b"Code: 60. DB::Exception: Table does not exist"
        rows = pa.ipc.open_stream(body).read_all()
        assert [f"`{column}`" for column in rows.column_names] == columns.split(", ")
        assert set(rows.column_names) <= set(self.tables[name].columns)
        self.schemas |= {column: rows.schema.field(column).type for column in rows.column_names}
        self.tables[name].rows.extend(rows.to_pylist())
        return 200, b""

    def select(self, columns: str, name: str) -> Answer:
        names = re.findall(r"`(\w+)`", columns)
        schema = pa.schema([(column, self.schemas.get(column, pa.string())) for column in names])
        rows = [{column: row.get(column) for column in names} for row in self.tables[name].final()]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for row in rows:
                writer.write_table(pa.Table.from_pylist([row], schema=schema))
        return 200, bytes(sink.getvalue())


@contextmanager
def serving(engine: Elasticsearch | ClickHouseServer) -> Iterator[str]:
    """The engine at a free port; its address."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """One request at a time: each is one step of the engine."""

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                status, answer = engine.answer(self.command, self.path, body)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 http.server's own names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
