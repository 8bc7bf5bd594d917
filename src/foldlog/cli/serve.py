"""`foldlog serve`: a data directory as a Kafka-compatible broker, until a signal asks it to leave."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final

from foldlog.broker.broker import Broker
from foldlog.broker.tiers import TierSettings
from foldlog.broker.topics.catalog import CATALOG_NAME
from foldlog.cli.exit_codes import DONE, FAILED
from foldlog.cli.log_options import init_option
from foldlog.cli.output import say
from foldlog.cli.parsing import GENERAL, Arguments, argument, command, option, switch
from foldlog.cli.shown_secrets import find_shown
from foldlog.cli.signals import LeaveSignals
from foldlog.cli.wording import counted
from foldlog.errors import InvalidConfig
from foldlog.files.posix import raise_descriptor_limit
from foldlog.server import process_log as logs
from foldlog.server.access.mechanisms import OAUTHBEARER
from foldlog.server.access.own_certificates import OwnCertificates, SecureFiles
from foldlog.server.access.secure_start import client_settings, prepare_admin, secured
from foldlog.server.access.signing_keys import is_clear
from foldlog.server.config.configuration import Configuration, Given, gather, parse_assignments
from foldlog.server.config.settings import ServerSettings
from foldlog.server.net.listeners import PLAINTEXT, SASL_PLAINTEXT, Listener, address_text, check_free, is_safe
from foldlog.server.server import Server

logger = logging.getLogger("foldlog.serve")

_M_TRIM_THRESHOLD: Final = -1  # of malloc.h
_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 4 << 20
_KEPT_BYTES: Final = 8 << 20

DEFAULT_CONSOLE: Final = "127.0.0.1:8080"
DEFAULT_REGISTRY: Final = "127.0.0.1:8081"

DESCRIPTION: Final = """\
Serves the log in DIR to Kafka clients. It creates the directory if it does not exist; ":memory:" is a log that ends
with the process. It prints one line when it is ready. On SIGTERM, SIGINT or SIGHUP it answers the requests under way,
syncs and exits; a second signal ends it at once, which loses nothing that was acknowledged. With TLS, SIGHUP reads the
certificates again instead.

Flags override FOLDLOG_* environment variables, and those override the file of --config: TOML, or a server.properties of
Kafka. Settings have Kafka's names; the page about the broker in foldlog's documentation lists them all."""


@command(
    argument("dir", "DIR", 'the log\'s directory, or ":memory:"'),
    option(
        "--listen",
        metavar="HOST:PORT",
        told="where to listen; repeatable; port 0 picks a free one (default: 127.0.0.1:9092)",
        is_repeated=True,
    ),
    option(
        "--advertise",
        metavar="HOST:PORT",
        told="the address that clients connect to, in the order of --listen (default: the same as --listen)",
        is_repeated=True,
    ),
    switch(
        "--insecure",
        told=(
            "allow listeners that other machines can reach without a login: they can read, write and delete everything"
        ),
    ),
    switch(
        "--secure",
        told="require TLS and a login: makes a certificate and the user admin, and prints what clients need",
    ),
    option("--config", metavar="FILE", told="a file with settings: TOML, or Kafka's .properties"),
    option("-X", metavar="NAME=VALUE", dest="assignments", told="any setting; repeatable", is_repeated=True),
    option("--metrics", metavar="HOST:PORT", told="serve /metrics and /healthz there; with TLS at https://HOST:PORT"),
    option(
        "--console",
        metavar="HOST:PORT",
        bare=DEFAULT_CONSOLE,
        told=f"serve the console, a page for browsers, there (default: {DEFAULT_CONSOLE}; port 0 is any free one); with"
        " TLS at https://HOST:PORT",
    ),
    option(
        "--console-token",
        metavar="TOKEN",
        told="the token that a browser needs (default: none on 127.0.0.1, otherwise generated and printed)",
    ),
    switch("--console-read-only", told="refuse every change in the console"),
    option(
        "--console-views",
        metavar="PLACE[,PLACE]",
        told=(
            "directories and postgresql://HOST whose views the console may open, and hosts that it may send"
            " passwords to"
        ),
    ),
    option(
        "--registry",
        metavar="HOST:PORT",
        bare=DEFAULT_REGISTRY,
        told="serve the schema registry, with Confluent's REST API, there (default:"
        f" {DEFAULT_REGISTRY}; port 0 is any free one); with TLS at https://HOST:PORT",
    ),
    option(
        "--tier",
        metavar="URL",
        told="the store for sealed segments of topics with remote.storage.enable=true: s3://BUCKET/PREFIX, gs://…,"
        " az://… or file:///DIRECTORY; the directory remembers it",
    ),
    option(
        "--create",
        metavar="TOPIC[:PARTITIONS]",
        told="create this topic if it does not exist; repeatable",
        is_repeated=True,
    ),
    init_option(),
    option("--log-format", metavar="FORMAT", told="text (default) or json"),
    option("--log-level", metavar="LEVEL", told="debug, info (default), warning or error"),
    description=DESCRIPTION,
    has_variables=False,  # a broker's settings have their own order: flags, variables, a file
)
def run(arguments: Arguments) -> int:
    environment = {name: text for name, text in os.environ.items() if name not in GENERAL}
    configuration = gather(flags_of(arguments), environment, arguments.config)
    if arguments.secure:
        os.umask(0o077)  # nothing that is made from here on is for other users of this machine
        configuration = secured(configuration, arguments.dir)
    settings = configuration.settings()
    logs.configure(settings.log_format, settings.log_level)
    configuration.warnings.extend(shown.warning for shown in find_shown(sys.argv[1:]))
    _warn(configuration, settings)
    signals = LeaveSignals(reloads=bool(settings.tls))
    return serve(arguments.dir, settings, signals, init=arguments.init, secure=arguments.secure)


def serve(
    path: str, settings: ServerSettings, signals: LeaveSignals, *, init: bool = False, secure: bool = False
) -> int:
    """Serve until a signal comes; returns the exit code. Closes the directory, so the next start need not recover."""
    give_large_memory_back()
    # Each connection and each partition is a descriptor: the usual soft limit is for processes with few of them.
    raise_descriptor_limit()
    if not secure:
        check_certificates(settings)
    if not os.path.exists(os.path.join(path, CATALOG_NAME)):
        # Create nothing that could not be served. In an existing log, the better error is which process writes it.
        others = (settings.metrics, settings.console, settings.registry)
        check_free([*settings.listeners, *(listener for listener in others if listener is not None)])
    with Broker.open(
        path,
        topic_defaults=settings.topic_defaults,
        group_settings=settings.group_settings(),
        transaction_settings=settings.transaction_settings(),
        offsets_retention_ms=settings.offsets_retention_ms,
        offset_metadata_bytes_max=settings.offset_metadata_max_bytes,
        compaction_threads=settings.log_cleaner_threads,
        init=init,
        journal=settings.journal_enable,
        tier=TierSettings(settings.tier, settings.tier_cache_bytes),
    ) as broker:
        create_topics(broker, settings)
        renew = renewal(path, settings) if secure else None
        admin = prepare_admin(broker.access) if secure else None
        warn_of_no_users(broker, settings)
        with Server.start(broker, settings) as server:
            server.on_failure = signals.wake
            server.each_hour = renew
            signals.on_hangup = server.reload_certificates
            broker.publish_address(*local_address(settings, server))
            # Existing objects stay. Otherwise the collector would now and then traverse all of them, for up to 16 ms,
            # while every connection waits.
            gc.freeze()
            say(ready_text(path, settings, server))
            if secure:
                ca = "AUTHORITY.pem" if renew is None else os.path.abspath(SecureFiles(path).ca)
                bootstrap = address_text(*server.endpoints[0][1:3])
                url = metrics_url(settings, server)
                say("\n" + client_settings(bootstrap, ca, admin, url, os.path.abspath(path), settings.super_users))
            # A failure before on_failure was set has woken nothing.
            number = signals.wait() if server.failure is None else None
            if number is not None:
                logger.info("%s: answering the requests under way, then stopping", number.name)
            broker.withdraw_address()
        if server.failure is not None:
            return FAILED  # the server has logged why
    logger.info("%s is closed", path)
    return DONE


def give_large_memory_back() -> None:
    """Have the C library return memory of large buffers to the system as soon as it is free.

    By default it raises the threshold for that with every large buffer that is freed, and keeps what is below:
    measured, 84 MB after a burst instead of about 50. Without such a function, nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def flags_of(arguments: Arguments) -> Mapping[str, Given]:
    """The settings from flags, each with the flag to name in errors."""
    flags = {
        "listen": Given(arguments.listen, "--listen"),
        "advertise": Given(arguments.advertise, "--advertise"),
        "foldlog.insecure": Given(arguments.insecure or None, "--insecure"),
        "foldlog.metrics": Given(arguments.metrics, "--metrics"),
        "foldlog.console": Given(arguments.console, "--console"),
        "foldlog.console.token": Given(arguments.console_token, "--console-token"),
        "foldlog.console.read.only": Given(arguments.console_read_only or None, "--console-read-only"),
        "foldlog.console.views": Given(arguments.console_views, "--console-views"),
        "foldlog.registry": Given(arguments.registry, "--registry"),
        "foldlog.create.topics": Given(arguments.create, "--create"),
        "foldlog.tier": Given(arguments.tier, "--tier"),
        "foldlog.log.format": Given(arguments.log_format, "--log-format"),
        "foldlog.log.level": Given(arguments.log_level, "--log-level"),
    }
    given = parse_assignments(arguments.assignments or ())
    for name, flag in flags.items():
        if flag.value is None:
            continue
        if name in given:
            raise InvalidConfig(f"{flag.origin} and {given[name].origin} are the same setting; give one of them")
        given[name] = flag
    return given


def create_topics(broker: Broker, settings: ServerSettings) -> None:
    """Create the required topics; an existing topic is left as it is, with a warning if it has another count."""
    for wanted in settings.create_topics:
        topic = broker.find_topic(wanted.name)
        if topic is None:
            broker.create_topic(wanted.name, wanted.partitions or settings.num_partitions)
        elif wanted.partitions not in (None, topic.partition_count):
            logger.warning(
                "topic %s exists with %s and is left as it is, not given %d",
                wanted.name,
                counted(topic.partition_count, "partition"),
                wanted.partitions,
            )


def renewal(path: str, settings: ServerSettings) -> Callable[[], None] | None:
    """Has the certificates in the directory made now, if there are none, and returns what keeps them good; None if the
    broker has others."""
    files, names = SecureFiles(path), certified_names(settings)
    if not any(tls.keystore_location == files.broker for tls in settings.tls.values()):
        return None

    own = OwnCertificates(files, names)
    own.look()
    return own.look


def warn_of_no_users(broker: Broker, settings: ServerSettings) -> None:
    """Say that nobody can log in, where that is so."""
    has_passwords = settings.has_logins and OAUTHBEARER not in settings.sasl_enabled_mechanisms
    if has_passwords and not broker.access.current.users.names:
        logger.warning(
            "clients log in, and there is no user yet; make one: foldlog user create NAME -d %s", broker.path
        )


def certified_names(settings: ServerSettings) -> list[str]:
    """The names and addresses at which clients reach this broker, for its certificate."""
    told = [one.host for one in (*settings.listeners, *settings.advertised_listeners) if not one.is_wildcard]
    return [*dict.fromkeys([*told, "localhost", "127.0.0.1", "::1", socket.gethostname()])]


def check_certificates(settings: ServerSettings) -> None:
    """Raises InvalidConfig if a listener's certificates cannot be used: before anything is created."""
    if settings.tls:
        from foldlog.server.tls.stores import load

        for each in settings.tls.values():
            load(each)


def local_address(settings: ServerSettings, server: Server) -> tuple[str, int]:
    """Where other processes of this machine reach it; if they need a certificate there, they use the socket in the
    directory."""
    return server.addresses[settings.local_listener or 0]


def ready_text(path: str, settings: ServerSettings, server: Server) -> str:
    """The line that says that and where clients can connect."""
    addresses: list[str] = []
    for listener, (_, port), endpoint in zip(settings.listeners, server.addresses, server.endpoints, strict=True):
        here = listener._replace(port=port)
        is_told = (endpoint.host, endpoint.port) == (here.host, here.port)
        told = "" if is_told else f" (advertised as {here._replace(host=endpoint.host, port=endpoint.port).address})"
        protocol = "" if listener.protocol == PLAINTEXT else f" ({listener.protocol})"
        addresses.append(f"{here.address}{protocol}{told}")
    url = metrics_url(settings, server)
    metrics = "" if url is None else f" (metrics {url}/metrics)"
    registry = "" if server.registry_address is None else f" (registry {registry_url(settings, server)})"
    return f"foldlog is serving {path} on {', '.join(addresses)}{metrics}{registry}{console_text(settings, server)}"


def registry_url(settings: ServerSettings, server: Server) -> str | None:
    """Where the schema registry is, if it is served: schema.registry.url of its clients."""
    if settings.registry is None or server.registry_address is None:
        return None
    return _url(settings.registry, *server.registry_address)


def metrics_url(settings: ServerSettings, server: Server) -> str | None:
    """Where /metrics is, if it is served."""
    if settings.metrics is None or server.metrics_address is None:
        return None
    return _url(settings.metrics, *server.metrics_address)


def console_text(settings: ServerSettings, server: Server) -> str:
    """The URL for a browser. With the token if it was generated just now: it is printed nowhere else."""
    if settings.console is None or server.console_address is None:
        return ""
    host, port = server.console_address
    token = f"?token={server.console_token}" if server.console_token and settings.console_token is None else ""
    return f" (console {_url(settings.console, host, port)}/{token})"


def _url(listener: Listener, host: str, port: int) -> str:
    return f"{'https' if listener.has_tls else 'http'}://{listener._replace(host=host, port=port).address}"


def _warn(configuration: Configuration, settings: ServerSettings) -> None:
    for warning in configuration.warnings:
        logger.warning("%s", warning)
    if settings.without_effect:
        names = ", ".join(settings.without_effect)
        logger.warning("ignoring properties of Kafka that have no effect on a single broker: %s", names)
    exposed = [listener for listener in settings.listeners if not listener.is_loopback]
    asked = {name for name, tls in settings.tls.items() if tls.authenticates}
    clear = [listener.address for listener in exposed if listener.protocol == SASL_PLAINTEXT]
    unknown = [
        listener.address
        for listener in exposed
        if listener.address not in clear and not is_safe(listener, needs_certificate=listener.name in asked)
    ]
    if clear:
        logger.warning("passwords and records go to and from %s without encryption", ", ".join(clear))
    if unknown:
        logger.warning(
            "whoever reaches %s can read, write and delete everything: there is no authentication", ", ".join(unknown)
        )
    keys = settings.sasl_oauthbearer_jwks_endpoint_url
    if keys is not None and is_clear(keys):
        logger.warning(
            (
                "the keys of tokens come from %s without encryption: somebody on the way can replace them, and log"
                " in as anybody"
            ),
            keys,
        )
    console = settings.console
    if console is not None and not (console.is_loopback or console.has_tls or settings.has_logins):
        logger.warning(
            "whoever has the token of the console on %s can read and write everything, and it is not encrypted;"
            " use https where the network is not trusted: --console https://%s",
            console.address,
            console.address,
        )
