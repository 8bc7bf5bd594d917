"""The pytest plugin: `kafka_broker` and its like, `schema_registry`, `foldlog_log` and `foldlog_fold`.

The page about testing shows them.

pytest finds it through an entry point and loads it in every run wherever foldlog is installed. So only pytest is
imported here; the broker is imported when a test first uses one.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

import pytest

from foldlog.testing.kafka_broker import MEMORY, KafkaBroker, clear_all_faults

if TYPE_CHECKING:
    from foldlog.client.log import Log
    from foldlog.testing.folds import FoldTester

Scope = Literal["session", "package", "module", "class", "function"]

_SCOPES: Final = ("function", "class", "module", "package", "session")
_STORAGES: Final = ("memory", "disk")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("foldlog", "a Kafka broker for tests")
    group.addoption(
        "--kafka-broker-scope",
        choices=_SCOPES,
        help="how long a kafka_broker lives: a clean one for each test (function, the default), or shared by more",
    )
    parser.addini("kafka_broker_scope", "how long a kafka_broker lives: " + ", ".join(_SCOPES), default="function")
    parser.addini("kafka_broker_storage", "where its log is: memory, or disk (a temporary directory)", default="memory")
    parser.addini(
        "kafka_broker_settings", "settings of the broker, by Kafka's names: NAME=VALUE, one a line", type="linelist"
    )


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    given = config.getoption("kafka_broker_scope", None) or config.getini("kafka_broker_scope")
    return cast(Scope, _one_of("kafka_broker_scope", str(given), _SCOPES))


def _one_of(name: str, given: str, allowed: tuple[str, ...]) -> str:
    if given not in allowed:
        raise pytest.UsageError(f"{name} = {given} is not allowed; it is one of {', '.join(allowed)}")
    return given


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Explain pytest's ScopeMismatch in a sentence if kafka_broker_settings has another scope than kafka_broker."""
    try:
        return (yield)
    except pytest.fail.Exception as error:
        if not ("ScopeMismatch" in str(error) and "kafka_broker_settings" in str(error)):
            raise
        scope = _scope("kafka_broker", item.config)
        raise pytest.fail.Exception(
            f"kafka_broker lives for the {scope} (kafka_broker_scope), and so must the fixture with its settings:"
            f" define kafka_broker_settings with @pytest.fixture(scope={scope!r}), or start a broker for this test"
            " alone with kafka_broker_factory",
            pytrace=False,
        ) from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """End the faults that a test asked for, before its fixtures end: a client's close may wait for an answer."""
    clear_all_faults()


class KafkaBrokerFactory(Protocol):
    """The type of the fixture `kafka_broker_factory`."""

    def __call__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        path: str | os.PathLike[str] = MEMORY,
        registry: bool = False,
    ) -> KafkaBroker:
        """Start another broker, with these settings, in memory or in a directory; with `registry` also its schema
        registry. It ends with the test."""
        ...


@pytest.fixture(scope=_scope)
def kafka_broker_settings(pytestconfig: pytest.Config) -> Mapping[str, object]:
    """Settings of `kafka_broker`, by Kafka's names. To override: a fixture of this name and of the broker's scope."""
    settings: dict[str, object] = {}
    for line in pytestconfig.getini("kafka_broker_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_broker_settings: {line!r} is not NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture(scope=_scope)
def kafka_broker(
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_broker_settings: Mapping[str, object],
) -> Iterator[KafkaBroker]:
    """A Kafka broker with an empty log, for this test alone unless kafka_broker_scope says otherwise.

    A str, "127.0.0.1:port", for bootstrap.servers; `.log` is the log behind it, `.stop()` and `.start()` take it away
    and bring it back.
    """
    storage = _one_of("kafka_broker_storage", str(pytestconfig.getini("kafka_broker_storage")), _STORAGES)
    path = MEMORY if storage == "memory" else tmp_path_factory.mktemp("kafka_broker")
    # A registry starts with the broker, so whether a test asks for one has to be known by then. One that lives longer
    # than a test always has it, if its libraries are there: the next test may ask.
    wants = "schema_registry" in request.fixturenames or (request.scope != "function" and _has_registry())
    with KafkaBroker.launch(kafka_broker_settings, path=path, registry=wants) as broker:
        yield broker


@pytest.fixture(scope=_scope)
def schema_registry(kafka_broker: KafkaBroker) -> str:
    """The URL of `kafka_broker`'s schema registry, with Confluent's REST API: `schema.registry.url` of a client."""
    return kafka_broker.schema_registry_url


def _has_registry() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) is not None for name in ("fastavro", "jsonschema", "google"))


@pytest.fixture
def kafka_broker_factory() -> Iterator[KafkaBrokerFactory]:
    """Starts brokers with the test's own settings; they end with the test."""
    with ExitStack() as started:

        def launch(
            settings: Mapping[str, object] | None = None,
            *,
            path: str | os.PathLike[str] = MEMORY,
            registry: bool = False,
        ) -> KafkaBroker:
            return started.enter_context(KafkaBroker.launch(settings, path=path, registry=registry))

        yield launch


@pytest.fixture
def foldlog_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """An embedded log in a temporary directory, without a broker."""
    import foldlog

    with foldlog.open(tmp_path_factory.mktemp("foldlog_log")) as log:
        yield log


@pytest.fixture(scope="session")
def foldlog_fold() -> Iterator[FoldTester]:
    """Runs folds on given records and checks that they obey the law, in one Spark session for all tests.

    It uses the active session, or starts one on this machine with the first fold, and stops it after the last test.
    """
    from foldlog.testing.folds import FoldTester, spark_for_tests

    with spark_for_tests() as session:
        yield FoldTester(session)
