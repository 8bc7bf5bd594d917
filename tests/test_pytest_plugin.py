"""The pytest plugin gives tests a clean, real broker, and costs nothing where no test wants one.

pytest runs on small test files, in a process of its own with the plugin loaded by name; every test of docs/testing.md
runs the same way. Plugins are not loaded by their entry points there: what is installed beside foldlog does not matter.
Files that need the same options share a run, as those of a project would: starting pytest and importing a broker and
its clients takes longer than the tests.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from foldlog.testing import KafkaBroker

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
RUN_TIMEOUT_S = 120

Run = Callable[..., pytest.RunResult]

PLAIN: dict[str, str] = {}
"""The files that run together without options, by name; each stands above the test that looks at how it went."""

ON_DISK: dict[str, str] = {}
"""Those that run together with kafka_broker_storage = disk."""

TWO_TESTS = """
    def test_one(kafka_broker):
        kafka_broker.create_topic("orders", partitions=1)
        kafka_broker.log.append("orders", "1")

    def test_two(kafka_broker):
        kafka_broker.create_topic("orders", partitions=1)
        kafka_broker.log.append("orders", "2")
        assert [record.value for record in kafka_broker.log.read("orders")] == [b"2"]
"""

SHARED_TESTS = """
    def test_one(kafka_broker):
        kafka_broker.create_topic("orders")

    def test_two(kafka_broker):
        assert kafka_broker.log.topics() == ["orders"]
"""


class Outcomes:
    """How the tests of several files went that ran together."""

    def __init__(self, printed: str) -> None:
        self._printed = printed
        found = re.findall(r"^test_(\w+)\.py::\S+ (PASSED|FAILED|ERROR)\b", printed, flags=re.MULTILINE)
        self._counts = Counter((file, outcome) for file, outcome in found)

    def of(self, file: str) -> dict[str, int]:
        counts = {outcome: count for (name, outcome), count in self._counts.items() if name == file}
        return counts or pytest.fail(f"no test of {file} ran:\n{self._printed}")

    def assert_passed(self, file: str, count: int) -> None:
        assert self.of(file) == {"PASSED": count}, self._printed

    def told_of(self, file: str) -> str:
        """What is said of its errors."""
        told = [part for part in re.split(r"^_{3,} (?=ERROR|test)", self._printed, flags=re.MULTILINE) if file in part]
        return "".join(told)


def run_together(place: Path, files: Mapping[str, str], ini: str = "") -> Outcomes:
    (place / "pytest.ini").write_text(f"[pytest]\n{ini}\n", encoding="utf-8")
    for name, code in files.items():
        (place / f"test_{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    plugins = ["-p", "foldlog.testing.plugin"]
    if find_spec("pytest_asyncio") is not None:
        plugins += ["-p", "pytest_asyncio.plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-v", "--color=no", f"--basetemp={place / 'temporary'}"],
        cwd=place,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    return Outcomes(done.stdout + done.stderr)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_together(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_together(tmp_path_factory.mktemp("on_disk"), ON_DISK, "kafka_broker_storage = disk")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run_pytest(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-p", "foldlog.testing.plugin", *arguments, timeout=RUN_TIMEOUT_S)

    return run_pytest


PLAIN["clean"] = TWO_TESTS


def test_every_test_has_a_clean_broker(plain: Outcomes) -> None:
    plain.assert_passed("clean", 2)


@pytest.mark.parametrize("scope", ["session", "package", "module"])
def test_a_broker_is_shared_where_the_ini_file_says_so(pytester: pytest.Pytester, run: Run, scope: str) -> None:
    pytester.makeini(f"[pytest]\nkafka_broker_scope = {scope}\n")
    pytester.makepyfile(SHARED_TESTS)
    run().assert_outcomes(passed=2)


SETTINGS_OF_THE_FILE = """
    from confluent_kafka import Producer

    def test_it(kafka_broker):
        producer = Producer({"bootstrap.servers": kafka_broker})
        producer.produce("t", b"v")
        assert producer.flush(20) == 0
        topic = kafka_broker.log.topic("t")
        assert (topic.partition_count, topic.config.log.retention_ms) == (3, 60000)
        assert kafka_broker.create_topic("u").partition_count == 3
        assert kafka_broker.create_topic("v", partitions=2).partition_count == 2
"""


def test_the_command_line_goes_before_the_ini_file_and_settings_come_from_it(
    pytester: pytest.Pytester, run: Run
) -> None:
    """In the file are settings too: these hold for a broker of any scope."""
    pytester.makeini("""
        [pytest]
        kafka_broker_scope = session
        kafka_broker_settings =
            num.partitions = 3
            log.retention.ms=60000
    """)
    pytester.makepyfile(test_clean=TWO_TESTS, test_settings=SETTINGS_OF_THE_FILE)
    run("--kafka-broker-scope=function").assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("kafka_broker_scope = forever", "*kafka_broker_scope = forever is not allowed; it is one of function, class*"),
        ("kafka_broker_storage = tape", "*kafka_broker_storage = tape is not allowed; it is one of memory, disk*"),
        ("kafka_broker_settings = fast", "*kafka_broker_settings: 'fast' is not NAME=VALUE*"),
        ("kafka_broker_settings = num.partition=3", "*num.partition*num.partitions*"),
    ],
)
def test_a_wrong_option_is_told_in_a_sentence(pytester: pytest.Pytester, run: Run, option: str, sentence: str) -> None:
    pytester.makeini(f"[pytest]\n{option}\n")
    pytester.makepyfile(TWO_TESTS)
    result = run("-x")
    assert result.ret != pytest.ExitCode.OK
    lines = pytest.LineMatcher([*result.outlines, *result.errlines])
    lines.fnmatch_lines([sentence])


PLAIN["address"] = """
    import copy, json, pickle, socket
    from foldlog.testing import KafkaBroker

    def test_it(kafka_broker: KafkaBroker) -> None:
        assert isinstance(kafka_broker, str) and isinstance(kafka_broker, KafkaBroker)
        assert kafka_broker == f"127.0.0.1:{kafka_broker.port}" == kafka_broker.log.bootstrap
        assert (kafka_broker.host, kafka_broker.is_running) == ("127.0.0.1", True)
        assert json.loads(json.dumps(kafka_broker)) == kafka_broker
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            elsewhere = pickle.loads(pickle.dumps(kafka_broker, protocol))
            assert (type(elsewhere), elsewhere) == (str, kafka_broker)
        assert type(copy.deepcopy(kafka_broker)) is str
        socket.create_connection((kafka_broker.host, kafka_broker.port)).close()
"""


def test_the_fixture_is_the_address_and_more(plain: Outcomes) -> None:
    plain.assert_passed("address", 1)


SESSION_SETTINGS = """
    import pytest

    @pytest.fixture{scope}
    def kafka_broker_settings():
        return {{"num.partitions": 3}}

    def test_it(kafka_broker):
        assert kafka_broker.create_topic("t").partition_count == 3
"""


def test_settings_of_a_shared_broker_come_from_a_fixture_of_its_scope_or_a_sentence_says_so(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_narrower=SESSION_SETTINGS.format(scope=""),
        test_same_scope=SESSION_SETTINGS.format(scope='(scope="session")'),
    )
    told = run("--kafka-broker-scope=session")
    told.assert_outcomes(passed=1, errors=1)
    told.stdout.fnmatch_lines(["*define kafka_broker_settings with @pytest.fixture(scope='session'), or start a*"])
    told.stdout.fnmatch_lines(["ERROR test_narrower.py::*"])
    assert "ScopeMismatch" not in told.stdout.str()


PLAIN["mismatch"] = """
import pytest

@pytest.fixture
def short():
    pass

@pytest.fixture(scope="session")
def long(short):
    pass

def test_it(long):
    pass
"""


def test_a_scope_mismatch_of_other_fixtures_is_pytests_own(plain: Outcomes) -> None:
    assert plain.of("mismatch") == {"ERROR": 1}
    told = plain.told_of("mismatch")
    assert "ScopeMismatch" in told
    assert "kafka_broker" not in told


ON_DISK["temporary"] = """
    from pathlib import Path

    def test_it(kafka_broker, tmp_path):
        kafka_broker.create_topic("t")
        kafka_broker.log.append("t", b"v")
        place = Path(kafka_broker.log.path)
        assert (place / "t-0").is_dir()
        assert place.parent == tmp_path.parent
"""


def test_a_log_on_disk_is_in_a_temporary_directory(on_disk: Outcomes) -> None:
    on_disk.assert_passed("temporary", 1)


PLAIN["factory"] = """
    import socket
    import pytest
    from foldlog.errors import LogClosed

    brokers = []

    def test_they_are_apart(kafka_broker_factory, kafka_broker, tmp_path):
        one, other = kafka_broker_factory({"num.partitions": 2}), kafka_broker_factory(path=tmp_path / "log")
        brokers.extend([one, other, kafka_broker])
        assert len({broker.port for broker in brokers}) == 3
        one.create_topic("mine")
        assert (other.log.topics(), kafka_broker.log.topics()) == ([], [])

    @pytest.mark.parametrize("number", range(3))
    def test_they_are_gone(number):
        assert not brokers[number].is_running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((brokers[number].host, brokers[number].port))
        for use in (lambda: brokers[number].log, brokers[number].start, brokers[number].restart):
            with pytest.raises(LogClosed, match="ended with its with block .* launch\\(\\) another one"):
                use()
"""


def test_a_factory_starts_several_and_stops_all(plain: Outcomes) -> None:
    plain.assert_passed("factory", 4)


PLAIN["comes_back"] = ON_DISK["comes_back"] = """
    import pytest
    from foldlog.errors import LogClosed
    from kafka import KafkaConsumer, KafkaProducer

    def test_it(kafka_broker):
        producer = KafkaProducer(bootstrap_servers=kafka_broker)
        producer.send("t", b"before").get(20)
        kafka_broker.restart()
        producer.send("t", b"after").get(20)
        producer.close()
        consumer = KafkaConsumer("t", bootstrap_servers=kafka_broker, auto_offset_reset="earliest")
        assert [next(consumer).value for _ in range(2)] == [b"before", b"after"]
        consumer.close()
        kafka_broker.stop()
        with pytest.raises(LogClosed, match="stopped; start"):
            kafka_broker.log
        kafka_broker.stop()
        kafka_broker.start()
        kafka_broker.start()
        assert kafka_broker.log.offsets("t") == {0: (0, 2)}
"""


def test_a_broker_comes_back_where_it_was_with_what_it_had(plain: Outcomes) -> None:
    plain.assert_passed("comes_back", 1)


def test_a_broker_on_disk_comes_back_where_it_was_with_what_it_had(on_disk: Outcomes) -> None:
    on_disk.assert_passed("comes_back", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets have the port")
def test_nobody_else_is_given_the_port_of_a_broker_that_is_away() -> None:
    with KafkaBroker.launch() as broker:
        broker.stop()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((broker.host, broker.port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port))
        broker.start()
        socket.create_connection((broker.host, broker.port)).close()
    assert broker._kept
    assert all(one.fileno() == -1 for one in broker._kept), "it is let go of in the end"


PLAIN["embedded"] = """
    from pathlib import Path
    import pytest

    @pytest.mark.parametrize("turn", range(2))
    def test_it(foldlog_log, tmp_path, turn):
        assert foldlog_log.topics() == []
        foldlog_log.create_topic("t")
        assert Path(foldlog_log.path).is_dir()
        assert list(tmp_path.iterdir()) == []
        assert foldlog_log.bootstrap is None
"""


def test_an_embedded_log_is_in_a_directory_of_its_own(plain: Outcomes) -> None:
    plain.assert_passed("embedded", 2)


def test_workers_of_xdist_do_not_meet(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\nkafka_broker_scope = session\n")
    pytester.makepyfile("""
        import os
        import pytest

        @pytest.mark.parametrize("turn", range(6))
        def test_it(kafka_broker, turn):
            name = f"made-by-{os.environ['PYTEST_XDIST_WORKER']}"
            if kafka_broker.log.topics() != [name]:
                kafka_broker.create_topic(name)
            assert kafka_broker.log.topics() == [name]
    """)
    run("-p", "xdist", "-n", "2").assert_outcomes(passed=6)


def test_nothing_of_the_broker_is_imported_before_a_test_wants_it(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            ours = {name.removeprefix("foldlog.") for name in sys.modules if name.partition(".")[0] == "foldlog"}
            named = {"errors", "errors.log", "errors.pipeline"}
            assert ours == {"foldlog", *named, "testing", "testing.kafka_broker", "testing.plugin"}
            assert not {"uvloop", "asyncio", "pyarrow", "cramjam"} & set(sys.modules)
    """)
    run().assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_where_foldlog_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module = import_module(project["entry-points"]["pytest11"]["foldlog"])
    assert {"kafka_broker", "kafka_broker_factory", "foldlog_log"} <= set(dir(module))


def page_examples() -> list[str]:
    """The blocks of docs/testing.md with a test in them."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return [block for block in blocks if "def test_" in block]


PAGE_EXAMPLES = {re.findall(r"def test_(\w+)", block)[-1]: block for block in page_examples()}
PLAIN |= PAGE_EXAMPLES


@pytest.mark.parametrize("name", PAGE_EXAMPLES)
def test_the_examples_of_the_page_pass(plain: Outcomes, name: str) -> None:
    if "asyncio" in PAGE_EXAMPLES[name] and find_spec("pytest_asyncio") is None:
        pytest.skip("pytest-asyncio is not installed; enable with: pip install pytest-asyncio")
    plain.assert_passed(name, PAGE_EXAMPLES[name].count("def test_"))


def test_the_page_names_every_fixture_and_option() -> None:
    source = (ROOT / "src" / "foldlog" / "testing" / "plugin.py").read_text(encoding="utf-8")
    fixtures = re.findall(r"@pytest\.fixture[^\n]*\ndef (\w+)", source)
    options = re.findall(r"add(?:ini|option)\(\s*\"([\w-]+)\"", source)
    assert len(fixtures) == 6
    assert len(options) == 4
    assert [name for name in [*fixtures, *options] if name not in PAGE] == []
