"""What the console opens, and whom it tells a secret: nothing because a record says so.

`__folds` is written by clients that know nothing, by one that has read it all, and by an older foldlog that left its
records there. The PostgreSQL that is named plays a server up to the point where a client would send a password.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import foldlog
from broker.small_broker import make_own_topic
from foldlog.broker.broker import Broker
from foldlog.client.fold_bulletin import FOLDS_CONFIG, FOLDS_TOPIC, Command, Status, encode
from foldlog.client.fold_proof import KEY_FILE, FoldsKey, runners_key
from foldlog.clock import SystemClock
from foldlog.errors import FoldlogError, InvalidArgument, InvalidConfig
from foldlog.limits import FOLD_PROOF_AGE_MS
from foldlog.records.loops import pack
from foldlog.server.config.settings import ServerSettings
from foldlog.server.console.peeks import PeekProcesses
from foldlog.server.server import Server
from foldlog.spark.folds.bulletin import Bulletin, Publisher, entry_of
from foldlog.spark.origins.ledger import open_ledger
from foldlog.spark.origins.origin import open_origin, origin_spec
from foldlog.views.peek.locations import NamedLocations
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from foldlog.wire.messages.produce import PartitionProduceResponse
from server.console.console_site import WAIT_S, ConsoleSite, console
from server.raw_client import RawClient, produce

PASSWORD = "cordless-kettle-91"
KEYLESS = b"status/mirror", b"{}"


def now_ms() -> int:
    return SystemClock().now_ms()


def status_of(description: dict[str, Any], fold: str = "mirror") -> Status:
    return Status(
        fold, "payments", "its view", "table", "running", {}, {}, 0, 0, 0, 0.0, 0, 0, "", None, "host:1", now_ms(),
        view_description=description, file="/tmp/not-yours.py",
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker.open(str(tmp_path / "data")) as broker:
        broker.create_topic(FOLDS_TOPIC, 1, FOLDS_CONFIG)
        yield broker


@pytest.fixture
def key(broker: Broker) -> FoldsKey:
    return FoldsKey.of_directory(broker.path)


class FakePostgres:
    """Answers a client as PostgreSQL does, asks for its password in clear text, and keeps what it is told."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.told = b""
        self.hears = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def description(self) -> dict[str, Any]:
        url = f"postgresql://shop@127.0.0.1:{self.port}/shop"
        return {"kind": "table", "engine": "postgresql", "url": url, "name": "payments"}

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(ConnectionError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        while True:
            size = connection.recv(4)
            if len(size) < 4:
                return
            message = connection.recv(struct.unpack(">i", size)[0] - 4)
            if message[:4] == struct.pack(">i", 196608):
                break
            connection.sendall(b"N")  # no TLS, no GSS
        if not self._asks:
            ready = b"R\x00\x00\x00\x08\x00\x00\x00\x00" + b"Z\x00\x00\x00\x05I"
            connection.sendall(ready)
            self.hears.set()
            while connection.recv(4096):
                pass  # whatever it is asked, it says nothing more
            return
        connection.sendall(b"R\x00\x00\x00\x08\x00\x00\x00\x03")
        self.told += connection.recv(4096)
        self.hears.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def fake_postgres(*, asks: bool = True) -> Iterator[FakePostgres]:
    server = FakePostgres(asks=asks)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def sent(client: RawClient, topic: str, records: bytearray, acks: int = -1) -> PartitionProduceResponse:
    answer = client.ask(produce(bytes(records), topic, acks=acks), 9)
    found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


# --- who may write --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_a_client_without_the_key_writes_nothing_into_the_topic(broker: Broker, acks: int) -> None:
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
        client = RawClient(server.addresses[0])
        answer = sent(client, FOLDS_TOPIC, pack([(1, *KEYLESS, ())]), acks=acks)
        FoldsKey.of_directory(broker.path)
        again = sent(client, FOLDS_TOPIC, pack([(1, *KEYLESS, ())]), acks=acks)
        fine = sent(client, FOLDS_TOPIC, proven(FoldsKey.of_directory(broker.path), now_ms()), acks=acks)
        client.close()
        assert answer.error_code == again.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "--folds-key" in str(answer.error_message)
        assert (fine.error_code, fine.base_offset) == (ErrorCode.NONE, 0)


def proven(key: FoldsKey, at_ms: int, value: bytes = b"{}") -> bytearray:
    return pack([(at_ms, b"status/mirror", value, (key.proof(b"status/mirror", value, at_ms),))])


def hidden(key: FoldsKey) -> bytearray:
    """A batch whose base offset lies below 0, so that who looks for records from 0 on finds none."""
    batch = pack([(1, *KEYLESS, ())])
    batch[:8] = struct.pack(">q", -1000)
    return batch


def another_value(key: FoldsKey) -> bytearray:
    proof = key.proof(b"status/mirror", b"{}", now_ms())
    return pack([(1, b"status/mirror", b'{"lag": 1}', (proof,))])


def one_of_two(key: FoldsKey) -> bytearray:
    proof = key.proof(*KEYLESS, now_ms())
    return pack([(1, *KEYLESS, (proof,)), (1, *KEYLESS, ())])


def twice(key: FoldsKey) -> bytearray:
    proof = key.proof(*KEYLESS, now_ms())
    return pack([(1, *KEYLESS, (proof, proof))])


@pytest.mark.parametrize(
    "forged",
    [
        hidden,
        another_value,
        one_of_two,
        twice,
        lambda key: proven(FoldsKey.made_up(), now_ms()),
        lambda key: proven(key, now_ms() - 2 * FOLD_PROOF_AGE_MS),
        lambda key: proven(key, now_ms() + 2 * FOLD_PROOF_AGE_MS),
        lambda key: pack([(1, *KEYLESS, (("foldlog.proof", b"short"),))]),
        lambda key: pack([(1, *KEYLESS, (key.proof(*KEYLESS, now_ms()),))], compression=4),
    ],
    ids=["hidden", "value", "one of two", "twice", "another key", "old", "early", "short", "compressed"],
)
def test_no_other_proof_will_do(broker: Broker, key: FoldsKey, forged: Any) -> None:
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
        client = RawClient(server.addresses[0])
        answer = sent(client, FOLDS_TOPIC, forged(key))
        client.close()
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, answer
        assert broker.partition(FOLDS_TOPIC, 0).high_watermark == 0


def test_an_operator_may_let_everybody_write_there(broker: Broker) -> None:
    properties = {"listeners": "127.0.0.1:0", "foldlog.folds.accept.unproven": True}
    with Server.start(broker, ServerSettings.parse(properties)) as server:
        client = RawClient(server.addresses[0])
        assert sent(client, FOLDS_TOPIC, pack([(1, *KEYLESS, ())])).error_code == ErrorCode.NONE
        client.close()


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_topics_that_a_broker_keeps_for_itself_are_no_clients(broker: Broker, topic: str) -> None:
    with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
        client = RawClient(server.addresses[0])
        answer = sent(client, topic, pack([(1, b"k", b"v", ())]))
        client.close()
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("topic", [FOLDS_TOPIC, "__transaction_state"])
def test_whoever_has_the_console_open_writes_there_no_more_than_a_client(broker: Broker, topic: str) -> None:
    if topic == "__transaction_state":
        make_own_topic(broker, topic)  # an older broker let any client
    with console(broker) as site:
        answer = site.post(f"/api/topics/{topic}/records", {"key": "status/mirror", "value": "{}", "partition": 0})
        assert answer.status == 403, answer.body
        assert topic in answer.json["error"]
        assert broker.partition(topic, 0).high_watermark == 0


def test_a_question_about_the_topic_of_folds_does_not_make_it(tmp_path: Path) -> None:
    # Made so, it would have a user's settings, and never be compacted.
    with Broker.open(str(tmp_path / "data")) as broker:
        with Server.start(broker, ServerSettings.parse({"listeners": "127.0.0.1:0"})) as server:
            client = RawClient(server.addresses[0])
            topics = [MetadataRequestTopic(name=name) for name in (FOLDS_TOPIC, "payments")]
            answer = client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
            client.close()
        assert {one.name: one.error_code for one in answer.topics} == {
            FOLDS_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "payments": ErrorCode.NONE,
        }
        assert broker.find_topic(FOLDS_TOPIC) is None


def test_runners_write_there_by_path_and_by_wire_and_hear_only_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with foldlog.open(path, listen=True) as log:
        log.create_topic("payments")
        log.append("payments", "tea")
        for place, named in ((path, None), (str(log.bootstrap), path), (str(log.bootstrap), None)):
            spec = origin_spec(place)
            made = runners_key(spec.path, named)
            with closing(open_ledger(spec)) as ledger:
                publisher = Publisher(ledger, SystemClock(), made)
                assert publisher.append([entry_of(status_of({}, fold=f"by {place} {named}"))]) is (made is not None)
                # Its group has its place in any case, so that every tool shows how far behind it is.
                assert publisher.publish([], [("fold.mirror", "payments", {0: 1})])
        command, value = encode(Command.ask("mirror", "rebuild", 1))
        log.append(FOLDS_TOPIC, value, key=command)
        with closing(open_origin(origin_spec(path))) as origin:
            heard = Bulletin(origin, FoldsKey.of_directory(path)).news()
            everything = Bulletin(origin).news()
    assert [type(item) for item in heard] == [Status, Status]
    assert [type(item) for item in everything] == [Status, Status, Command]


def test_the_key_is_for_its_owner_only_and_there_is_one(tmp_path: Path) -> None:
    made: list[FoldsKey] = []
    threads = [threading.Thread(target=lambda: made.append(FoldsKey.of_directory(str(tmp_path)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.stat(tmp_path / KEY_FILE).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [KEY_FILE]
    name, proof = made[0].proof(b"k", None, 5)
    assert [one.proven_ms(b"k", None, [(name, proof)]) for one in made] == [5] * 8
    assert made[0].proven_ms(b"k", b"", [(name, proof)]) is None
    (tmp_path / KEY_FILE).write_text("not a key")
    with pytest.raises(InvalidArgument, match="is not the key"):
        FoldsKey.of_directory(str(tmp_path))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        runners_key(None, str(tmp_path / "nowhere"))


# --- what is opened, and who is told a secret -----------------------------------------------------------------------


@pytest.mark.usefixtures("secret")
def test_a_status_without_a_proof_opens_nothing(broker: Broker) -> None:
    with fake_postgres() as evil, console(broker) as site:
        site.append(FOLDS_TOPIC, 0, encode(status_of(evil.description)))
        answer = site.ask("GET", "/api/folds/mirror/peek")
        (entry,) = site.get("/api/folds")
        assert (answer.status, "has not proven" in answer.json["error"]) == (403, True)
        assert (evil.connections, evil.told) == (0, b"")
        assert entry["is_proven"] is False
        assert "not-yours" not in str(entry)


@pytest.mark.usefixtures("secret")
def test_a_proven_runner_names_a_view_and_the_operator_who_gets_the_password(broker: Broker, key: FoldsKey) -> None:
    with fake_postgres() as database:
        for views, is_told in (("/srv/views", False), (f"postgresql://127.0.0.1:{database.port}", True)):
            with console(broker, views=views) as site:
                site.append(FOLDS_TOPIC, 0, encode(status_of(database.description)), folds_key=key)
                answer = site.ask("GET", "/api/folds/mirror/peek")
            assert answer.status == 503
            assert (PASSWORD.encode() in database.told) is is_told
            assert ("--console-views" in answer.json["error"]) is not is_told
            assert PASSWORD not in answer.json["error"]


def test_a_view_that_the_operator_named_is_opened_whoever_wrote_where_it_is(broker: Broker, tmp_path: Path) -> None:
    description = {"kind": "search", "engine": "fts5", "path": str(tmp_path / "views" / "x.db")}
    with console(broker, views=str(tmp_path / "views")) as site:
        site.append(FOLDS_TOPIC, 0, encode(status_of(description)))
        assert site.ask("GET", "/api/folds/mirror/peek").status == 503  # it is looked for, and not there
        outside = {**description, "path": str(tmp_path / "views" / ".." / "other.db")}
        site.append(FOLDS_TOPIC, 0, encode(status_of(outside)))
        assert site.ask("GET", "/api/folds/mirror/peek").status == 403


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://a@evil,b@db/shop",
        "postgresql://db@evil/shop",
        "postgresql://db,evil/shop",
        "postgresql://db:6000/shop",
        "postgresql://db#@evil/shop",
        "postgresql://a/b@db/shop",
        "postgres://%64b.evil/shop",
        None,
    ],
)
def test_a_host_is_the_one_that_was_named_or_it_is_not(url: str | None) -> None:
    named = NamedLocations(["postgresql://db", "views"])
    assert named.names({"engine": "postgresql", "url": "postgresql://shop@DB:5432/shop?sslmode=require"})
    assert not named.names({"engine": "postgresql", "url": url})
    assert not named.names({"engine": "sqlite", "path": f"{os.getcwd()}/views2/x.db", "url": "postgresql://db/x"})
    assert named.names({"engine": "sqlite", "path": f"{os.getcwd()}/views/x.db"})


def test_a_place_that_is_none_is_told_at_the_start() -> None:
    for wrong in ("mysql://db/shop", "postgresql://a@b@c"):
        with pytest.raises(InvalidConfig, match=r"foldlog\.console\.views"):
            ServerSettings.parse({"foldlog.console.views": wrong})


# --- what hangs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "engine"),
    [("table", "sqlite"), ("counters", "duckdb"), ("search", "fts5"), ("lake", "parquet"), ("lake", "delta")],
)
def test_a_pipe_where_a_view_should_be_hangs_nobody(
    broker: Broker, key: FoldsKey, tmp_path: Path, kind: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("foldlog.server.console.folds.PeekProcesses", partial(PeekProcesses, 3000))
    description = {"kind": kind, "engine": engine, "path": str(tmp_path / "pipe"), "name": "payments"}
    with console(broker) as site:
        site.append(FOLDS_TOPIC, 0, encode(status_of(description)), folds_key=key)
        answer = site.ask("GET", "/api/folds/mirror/peek")
        assert answer.status == 503, answer.body


def test_a_database_that_says_nothing_more_is_left_at_the_deadline(
    broker: Broker, key: FoldsKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.server.console.folds.PeekProcesses", partial(PeekProcesses, 1500))
    with fake_postgres(asks=False) as database, console(broker) as site:
        site.append(FOLDS_TOPIC, 0, encode(status_of(database.description)), folds_key=key)
        for _ in range(3):  # more than there are threads for it
            answer = site.ask("GET", "/api/folds/mirror/peek")
            assert (answer.status, "took over 1.5 s" in answer.json["error"]) == (503, True)


def test_a_console_closes_while_a_look_hangs(broker: Broker, key: FoldsKey) -> None:
    with fake_postgres(asks=False) as database:
        with console(broker) as site:
            site.append(FOLDS_TOPIC, 0, encode(status_of(database.description)), folds_key=key)
            asking = threading.Thread(target=_asked, args=(site,))
            asking.start()
            assert database.hears.wait(WAIT_S)
        asking.join(WAIT_S)
        assert not asking.is_alive()


def _asked(site: ConsoleSite) -> None:
    try:
        site.ask("GET", "/api/folds/mirror/peek")
    except OSError:
        pass  # the console was closed meanwhile


def test_a_process_that_has_left_is_replaced_without_a_word(tmp_path: Path) -> None:
    processes = PeekProcesses()
    question = {
        "description": {"kind": "search", "engine": "fts5", "path": str(tmp_path / "x.db")},
        "limit": 1,
        "q": None,
        "after": None,
        "measure": None,
    }
    for _ in range(2):
        with pytest.raises(FoldlogError, match="is not there"):
            processes.look(question, "its view", with_secrets=False)
        (child,) = processes._idle.values()
        child._process.kill()
        child._process.wait()
    processes.close()
