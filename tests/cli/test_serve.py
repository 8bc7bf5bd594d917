"""`foldlog serve` as people run it: a process, its one line, its signals, its exit codes, its sentences.

Nearly every test starts the real command on a free port; those about signals and failures hold it where they need it by
replacing one function in the new process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cli.command import COMMAND, WAIT_S, environment
from cli.command import foldlog as run
from cli.serving import ANY_PORT, Serving, serving
from foldlog.broker.broker import Broker
from foldlog.broker.data_directory import writer_of
from foldlog.cli.main import main
from foldlog.files.posix import PosixFiles
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from foldlog.wire.messages.produce import ProduceResponse
from server.raw_client import RawClient, batch, fetch, fetched, produce, produced

PRODUCE_VERSION = 9
FETCH_VERSION = 11


def patched(statements: str) -> list[str]:
    """The command, in a process that runs these statements first."""
    return [sys.executable, "-c", f"{statements}\n{COMMAND[2].replace('; ', chr(10))}"]


def connected(broker: Serving) -> RawClient:
    return RawClient(broker.address)


def records_of(path: Path, topic: str = "orders") -> int:
    with Broker.open(str(path)) as broker:
        return broker.partition(topic, 0).log_end_offset


def append(client: RawClient, value: bytes) -> int:
    error, offset = produced(client.ask(produce(batch(value)), PRODUCE_VERSION))
    assert error == 0
    return offset


def test_it_serves_a_new_directory_and_leaves_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with serving(str(path), *ANY_PORT, "--create", "orders:3") as broker:
        assert broker.ready == f"foldlog is serving {path} on 127.0.0.1:{broker.address[1]}\n"
        client = connected(broker)
        assert append(client, b"paid") == 0
        assert fetched(client.ask(fetch(0), FETCH_VERSION)) == [b"paid"]
        assert broker.end() == 0
        assert client.is_closed_by_peer()
    assert [line.split(" ", 1)[1] for line in broker.errors] == [
        "INFO    serve: SIGTERM: answering the requests under way, then stopping",
        f"INFO    serve: {path} is closed",
    ]
    with Broker.open(str(path)) as embedded:
        assert embedded.topic("orders").partition_count == 3
        assert embedded.partition("orders", 0).log_end_offset == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupt_and_hangup_leave_in_the_same_way(number: signal.Signals, tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT) as broker:
        assert broker.end(number) == 0
    assert f"{number.name}: answering" in broker.errors[0]


def test_other_processes_learn_where_it_listens_and_that_it_left(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT) as broker:
        writer = writer_of(PosixFiles(), str(tmp_path))
        assert writer is not None
        assert writer.pid == broker.process.pid
        assert writer.address == f"127.0.0.1:{broker.address[1]}"
        assert broker.end() == 0
    assert writer_of(PosixFiles(), str(tmp_path)) is None


def test_what_was_written_when_it_is_asked_to_leave_is_answered(tmp_path: Path) -> None:
    """Requests pile up while the signal comes: every record that is in the log afterwards was acknowledged."""
    with serving(str(tmp_path), *ANY_PORT, "--create", "orders") as broker:
        client = connected(broker)
        assert append(client, b"first") == 0
        for number in range(300):
            client.send(produce(batch(b"%d" % number)), PRODUCE_VERSION)
        broker.process.send_signal(signal.SIGTERM)
        acknowledged = 1
        while True:
            try:
                _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
            except ConnectionError:
                break
            assert produced(answer) == (0, acknowledged)
            acknowledged += 1
        assert broker.finish() == 0
    assert records_of(tmp_path) == acknowledged


def test_a_signal_to_the_process_and_its_group_asks_once(tmp_path: Path) -> None:
    """`timeout` sends two at once; taken for impatience, the second would end the broker half-way."""
    with serving(str(tmp_path), *ANY_PORT, "--create", "orders") as broker:
        broker.process.send_signal(signal.SIGSTOP)  # so that all are there when it looks, whatever holds us up
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            broker.process.send_signal(number)
        assert broker.end(signal.SIGCONT) == 0
    assert broker.errors[-1].endswith(" is closed")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.faults),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.faults),
    ],
)
def test_whoever_asks_again_need_not_wait(number: signal.Signals, code: int, tmp_path: Path) -> None:
    never_stops = patched(
        "import threading\n"
        "from foldlog.server.server import Server\n"
        "Server.stop = lambda self: (print('stopping', flush=True), threading.Event().wait())"
    )
    with serving(str(tmp_path), *ANY_PORT, command=never_stops) as broker:
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.stdout is not None
        assert broker.process.stdout.readline() == "stopping\n"
        while broker.process.poll() is None:
            broker.process.send_signal(number)
            try:
                broker.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        assert broker.process.returncode == code


def test_after_kill_nine_a_second_run_starts_and_has_everything(tmp_path: Path) -> None:
    for run_number in range(3):
        with serving(str(tmp_path), *ANY_PORT, "--create", "orders") as broker:
            client = connected(broker)
            assert append(client, b"%d" % run_number) == run_number
            assert len(fetched(client.ask(fetch(0), FETCH_VERSION))) == run_number + 1
            assert broker.end(signal.SIGKILL) == -signal.SIGKILL


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """nohup ignores SIGHUP, and a script's background job ignores SIGINT."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with serving(str(tmp_path), *ANY_PORT, "--create", "orders", before=ignore) as broker:
        broker.process.send_signal(signal.SIGHUP)
        broker.process.send_signal(signal.SIGINT)
        assert append(connected(broker), b"still here") == 0
        assert broker.end() == 0
    assert "SIGTERM: answering" in broker.errors[0]


def test_a_server_that_dies_ends_the_process_with_one_line(tmp_path: Path) -> None:
    dies = patched(
        "from foldlog.server.server import Server\n"
        "async def die(self, node):\n"
        "    raise RuntimeError('planted')\n"
        "Server._keep = die"
    )
    with serving(str(tmp_path), *ANY_PORT, "--create", "orders", command=dies) as broker:
        assert broker.finish() == 1
    (line,) = broker.errors
    assert "CRITICAL server: the broker stopped serving: RuntimeError: planted" in line
    assert records_of(tmp_path) == 0, "the directory was closed"


def test_a_taken_port_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", str(tmp_path / "data"), "--listen", address)
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(f"foldlog: cannot listen on {address}: another process listens there".encode())
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "data").exists(), "nothing is left of a log that was never served"


def test_a_taken_port_of_the_metrics_is_one_sentence_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("serve", str(tmp_path / "data"), *ANY_PORT, "--metrics", address)
    assert done.returncode == 1
    assert address.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("192.0.2.1:9092", b"not an address of this machine; listen on one that is"),
        ("no-such-host.invalid:9092", b"; check the name, or give an address"),
    ],
)
def test_an_address_of_another_machine_is_one_sentence_with_a_way_out(
    address: str, words: bytes, tmp_path: Path
) -> None:
    done = run("serve", str(tmp_path / "data"), "--listen", address, "--insecure")
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith(f"foldlog: cannot listen on {address}: ".encode())
    assert words in sentence
    assert not (tmp_path / "data").exists()


def test_a_directory_that_another_process_serves_is_one_sentence_with_its_pid_and_address(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT) as broker:
        done = run("serve", str(tmp_path), *ANY_PORT)
        assert done.returncode == 4
        port = broker.address[1]
        assert f"process {broker.process.pid}, which listens on 127.0.0.1:{port}; stop it".encode() in done.stderr
        assert done.stderr.count(b"\n") == 1
        assert broker.end() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "nowhere"), "'nowhere' in listeners is no address"),
        (("--listen", "0.0.0.0:0"), "add --insecure"),
        (("--listen", ":0", "--insecure"), "add --advertise HOST:PORT"),
        (("-X", "num.partition=3"), "did you mean 'num.partitions'? (set by -X num.partition)"),
        (("-X", "num.partitions"), "is not -X name=value"),
        (("--create", "a/b"), "(set by --create)"),
        (("--log-format", "xml"), "one of text, json (set by --log-format)"),
        (("--config", "missing.toml"), "missing.toml cannot be read: No such file or directory; check what --config"),
        (("-X", "foldlog.insecure=1", "--insecure"), "--insecure and -X foldlog.insecure are the same setting"),
        (("--listen", "127.0.0.1:1", "-X", "listeners=127.0.0.1:2"), "listeners and listen are the same setting"),
    ],
)
def test_a_setting_that_cannot_be_is_exit_code_2_and_one_sentence(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "data"), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.startswith("foldlog: ")
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_settings_come_from_flags_the_environment_and_a_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "listeners=PLAINTEXT://127.0.0.1:1\nnum.partitions=7\nfoldlog.create.topics=fromfile\n"
        "zookeeper.connect=localhost:2181\nnum.io.threads=8\n"
    )
    path = str(tmp_path / "data")
    with serving(
        path, "-X", "num.partitions=4", FOLDLOG_CONFIG=str(config), FOLDLOG_LISTEN="127.0.0.1:0", FOLDLOG_PORT="x"
    ) as broker:
        assert broker.end() == 0
    with Broker.open(path) as embedded:
        assert embedded.topic("fromfile").partition_count == 4
    warnings = [line for line in broker.errors if "WARNING" in line]
    assert len(warnings) == 2
    assert warnings[0].endswith("the environment variable FOLDLOG_PORT is no setting, and has no effect")
    assert warnings[1].endswith("no effect on a single broker: num.io.threads, zookeeper.connect")


def test_the_settings_of_logs_and_groups_are_in_force(tmp_path: Path) -> None:
    """Seen from outside: a batch is too large, a member's session too short, a record stamped by the log."""
    arguments = ("-X", "message.max.bytes=200", "-X", "log.message.timestamp.type=LogAppendTime",
                 "-X", "group.min.session.timeout.ms=6000")  # fmt: skip
    with serving(str(tmp_path), *ANY_PORT, "--create", "orders", *arguments) as broker:
        client = connected(broker)
        error, _ = produced(client.ask(produce(batch(b"x" * 200)), PRODUCE_VERSION))
        assert error == ErrorCode.MESSAGE_TOO_LARGE
        answer = client.ask(produce(batch(b"small")), PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].log_append_time_ms > 0
        join = JoinGroupRequest(
            group_id="fraud",
            session_timeout_ms=5999,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert client.ask(join, 3).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert broker.end() == 0


def test_a_topic_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    with Broker.open(str(tmp_path)) as embedded:
        embedded.create_topic("orders", 2)
    with serving(str(tmp_path), *ANY_PORT, "--create", "orders:3", "--create", "orders:3") as broker:
        assert broker.end() == 0
    assert "topic orders exists with 2 partitions and is left as it is, not given 3" in broker.errors[0]
    with Broker.open(str(tmp_path)) as embedded:
        assert embedded.topic("orders").partition_count == 2


def test_a_log_in_memory_is_served_and_leaves_nothing(tmp_path: Path) -> None:
    with serving(":memory:", *ANY_PORT, "--create", "orders") as broker:
        assert broker.ready.startswith("foldlog is serving :memory: on 127.0.0.1:")
        assert append(connected(broker), b"gone soon") == 0
        assert broker.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_several_listeners_and_the_metrics_stand_in_the_line(tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--advertise", "PLAINTEXT_2://proxy:19092", "--metrics", "localhost:0")
    with serving(str(tmp_path), *ANY_PORT, *arguments) as broker:
        _, _, places = broker.ready.partition(" on ")
        first, second = places.split(", ")
        assert first.startswith("127.0.0.1:")
        assert " (advertised as proxy:19092) (metrics http://127.0.0.1:" in second
        metrics_url = second.rpartition("(metrics ")[2].rstrip(")\n")
        health_url = metrics_url.replace("/metrics", "/healthz")
        with urllib.request.urlopen(health_url, timeout=WAIT_S) as answer:
            assert answer.status == 200
        assert broker.end() == 0


def test_the_console_stands_in_the_line_and_needs_no_token_on_loopback(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT, "--console", "localhost:0", "--console-read-only") as broker:
        url = broker.ready.rpartition("(console ")[2].rstrip(")\n")
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/")
        with urllib.request.urlopen(f"{url}api/overview", timeout=WAIT_S) as answer:
            assert json.load(answer)["read_only"] is True
        assert broker.end() == 0
    assert not any("WARNING" in line for line in broker.errors)


def test_a_console_for_other_machines_has_a_token_that_is_printed_if_nobody_gave_it(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT, "--console", "0.0.0.0:0") as broker:
        url, _, token = broker.ready.rpartition("(console ")[2].rstrip(")\n").partition("?token=")
        assert len(token) >= 32
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}api/overview", timeout=WAIT_S)
        with urllib.request.urlopen(f"{url}api/overview?token={token}", timeout=WAIT_S) as answer:
            assert answer.status == 200
        assert broker.end() == 0
    assert any("whoever has the token of the console on 0.0.0.0:0" in line for line in broker.errors)


def test_a_token_that_was_given_is_not_printed(tmp_path: Path) -> None:
    token = "correct-horse-battery"
    with serving(str(tmp_path), *ANY_PORT, "--console", "127.0.0.1:0", FOLDLOG_CONSOLE_TOKEN=token) as broker:
        assert "?token" not in broker.ready
        url = broker.ready.rpartition("(console ")[2].rstrip(")\n")
        asked = urllib.request.Request(f"{url}api/overview", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
            assert answer.status == 200
        assert broker.end() == 0
    assert token not in "".join(broker.errors)


def test_a_listener_for_other_machines_is_served_with_a_warning(tmp_path: Path) -> None:
    arguments = ("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0", "--insecure")
    with serving(str(tmp_path), *arguments) as broker:
        assert "(advertised as 127.0.0.1:" in broker.ready
        with socket.create_connection(("127.0.0.1", broker.address[1]), timeout=WAIT_S):
            pass
        writer = writer_of(PosixFiles(), str(tmp_path))
        assert writer is not None
        assert writer.address == f"127.0.0.1:{broker.address[1]}"
        assert broker.end() == 0
    assert "whoever reaches 0.0.0.0:0 can read, write and delete everything" in broker.errors[0]


def test_other_processes_are_sent_to_loopback_where_there_is_one(tmp_path: Path) -> None:
    arguments = ("--listen", "0.0.0.0:0", "--listen", "127.0.0.1:0", "--advertise", "broker:1", "--insecure")
    with serving(str(tmp_path), *arguments) as broker:
        writer = writer_of(PosixFiles(), str(tmp_path))
        assert writer is not None
        assert broker.ready.rstrip().endswith(f", {writer.address}")
        assert broker.end() == 0


def test_logs_as_json_are_an_object_a_line(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT, "--log-format", "json", "-X", "process.roles=broker") as broker:
        assert broker.end() == 0
    events = [json.loads(line) for line in broker.errors]
    assert [event["level"] for event in events] == ["warning", "info", "info"]
    assert all(event["logger"] == "foldlog.serve" for event in events)


def test_a_quiet_broker_logs_nothing(tmp_path: Path) -> None:
    with serving(str(tmp_path), *ANY_PORT, "--log-level", "warning", "--create", "orders") as broker:
        assert append(connected(broker), b"x") == 0
        assert broker.end() == 0
    assert broker.errors == []


def test_a_line_that_nobody_reads_does_not_leave_the_directory_open(tmp_path: Path) -> None:
    closes_output = patched("import os\nread, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)")
    with pytest.raises(AssertionError, match="did not start"), serving(str(tmp_path), *ANY_PORT, command=closes_output):
        pass
    with Broker.open(str(tmp_path)) as embedded:
        assert embedded.topics() == []


def test_a_full_standard_output_is_named_and_the_directory_closed(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "serve", str(tmp_path), *ANY_PORT],
            env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(b"foldlog: standard output cannot be written (No space left on device); ")
    assert done.stderr.count(b"\n") == 1
    assert writer_of(PosixFiles(), str(tmp_path)) is None


def test_closed_standard_descriptors_do_not_end_up_as_sockets(tmp_path: Path) -> None:
    """A socket on descriptor 0, 1 or 2 aborts the process when the event loop closes it."""
    told = tmp_path / "address"
    statements = f"""
        import foldlog.cli.serve as command

        def write_address(line):
            with open({str(told)!r}, "w") as file:
                file.write(line)

        command.say = write_address
        """
    os.mkfifo(told)
    command = [*patched(textwrap.dedent(statements)), "serve", ":memory:", *ANY_PORT]
    with subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], env=environment()) as process:
        try:
            assert told.read_text(encoding="utf-8").startswith("foldlog is serving :memory:")
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()


def test_it_takes_the_descriptors_it_may_have(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 256

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))

    with serving(str(tmp_path), *ANY_PORT, before=limit) as broker:
        connections = [socket.create_connection(broker.address, timeout=WAIT_S) for _ in range(few)]
        client = connected(broker)
        client.ask(fetch(0), FETCH_VERSION)
        for connection in connections:
            connection.close()
        assert broker.end() == 0


def test_starting_imports_only_what_serving_needs(tmp_path: Path) -> None:
    tells = patched(
        "import sys\n"
        "from foldlog.cli import serve\n"
        "before = serve.ready_text\n"
        "serve.ready_text = lambda *given: before(*given) + ' ' + ' '.join(sys.modules)"
    )
    with serving(str(tmp_path), *ANY_PORT, command=tells) as broker:
        modules = set(broker.ready.split())
        assert broker.end() == 0
    assert "foldlog.server.server" in modules
    unneeded = {
        "pyarrow",
        "kio",
        "h11",
        "tomllib",
        "hypothesis",
        "foldlog.testing",
        "foldlog.cli.files.check",
        # Each is compiled anew at every start where no bytecode can be kept.
        "foldlog.broker.kafka_files.storage",
        "foldlog.files.memory",
        "foldlog.log.foreign",
    }
    assert not modules & unneeded
    # The proof of fold runners is a record's, which both write. Nothing else of the client is loaded.
    client = {name for name in modules if name.startswith("foldlog.client")}
    folds = {f"foldlog.client.fold_{name}" for name in ("bulletin", "proof", "runs")}
    assert client == {"foldlog.client", *folds}
