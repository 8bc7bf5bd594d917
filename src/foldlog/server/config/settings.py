"""The settings of a broker as one value: checked, immutable, with Kafka's names.

An attribute is Kafka's property with underscores for dots (`num.partitions` is `num_partitions`), without the prefix
`foldlog.`. `broker_settings` describes each setting, `configuration` where they come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from foldlog.broker.access.acls import Verdicts
from foldlog.broker.groups.consumer.messages import ConsumerGroupSettings, MigrationPolicy
from foldlog.broker.groups.messages import GroupSettings
from foldlog.broker.share.messages import ShareGroupSettings, ShareLimits
from foldlog.broker.transactions.coordinator import TransactionSettings
from foldlog.server.access.logins import LoginSettings
from foldlog.server.access.mechanisms import OAUTHBEARER
from foldlog.server.access.tokens import TokenSettings
from foldlog.server.config.broker_settings import ATTRIBUTES, BROKER_SETTINGS, BrokerSetting, text_of
from foldlog.server.config.property_reading import PropertyReader, TopicToCreate, checked_value
from foldlog.server.net.listeners import PLAINTEXT, Listener, parse_listeners
from foldlog.server.tls.settings import TlsSettings

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_DEFAULT_LISTENERS: Final = parse_listeners(BROKER_SETTINGS["listeners"].default, _NOTHING)
_MINUTE_MS: Final = 60 * 1000


class BrokerConfigRow(NamedTuple):
    """A setting as in DescribeConfigs. `source` and `kafka_type` are Kafka's names."""

    name: str
    value: str | None
    is_default: bool
    source: str
    kafka_type: str
    doc: str
    is_sensitive: bool


def _default(name: str) -> Any:
    return BROKER_SETTINGS[name].default


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """All settings of a broker. Immutable; created by `parse`, or by keyword in a program.

    `topic_defaults` are the topic settings that log.* sets, by the topic setting's name, `tls` those of listeners with
    TLS, by the listener's name. `given` has the values that
    were set, as Kafka prints them, `without_effect` the names of Kafka's properties that were set and do nothing here.

    >>> ServerSettings.parse({"num.partitions": 3, "log.retention.hours": 1}).topic_defaults["retention.ms"]
    '3600000'
    """

    node_id: int = _default("node.id")
    listeners: tuple[Listener, ...] = _DEFAULT_LISTENERS
    advertised_listeners: tuple[Listener, ...] = ()
    listener_security_protocol_map: tuple[str, ...] = _default("listener.security.protocol.map")
    insecure: bool = _default("foldlog.insecure")
    authorizer_class_name: str = _default("authorizer.class.name")
    super_users: str = _default("super.users")
    allow_everyone_if_no_acl_found: bool = _default("allow.everyone.if.no.acl.found")
    quota_window_num: int = _default("quota.window.num")
    quota_window_size_seconds: int = _default("quota.window.size.seconds")
    controller_quota_window_num: int = _default("controller.quota.window.num")
    controller_quota_window_size_seconds: int = _default("controller.quota.window.size.seconds")
    metrics: Listener | None = None
    jwks_insecure: bool = _default("foldlog.jwks.insecure")
    metrics_open: bool = _default("foldlog.metrics.open")
    console: Listener | None = None
    console_token: str | None = field(default=None, repr=False)
    console_read_only: bool = _default("foldlog.console.read.only")
    console_views: tuple[str, ...] = _default("foldlog.console.views")
    registry: Listener | None = None
    folds_accept_unproven: bool = _default("foldlog.folds.accept.unproven")
    journal_enable: bool = _default("foldlog.journal.enable")
    tier: str | None = _default("foldlog.tier")
    tier_cache_bytes: int = _default("foldlog.tier.cache.bytes")
    log_format: str = _default("foldlog.log.format")
    log_level: str = _default("foldlog.log.level")
    create_topics: tuple[TopicToCreate, ...] = _default("foldlog.create.topics")
    auto_create_topics_enable: bool = _default("auto.create.topics.enable")
    delete_topic_enable: bool = _default("delete.topic.enable")
    num_partitions: int = _default("num.partitions")
    default_replication_factor: int = _default("default.replication.factor")
    group_initial_rebalance_delay_ms: int = _default("group.initial.rebalance.delay.ms")
    group_min_session_timeout_ms: int = _default("group.min.session.timeout.ms")
    group_max_session_timeout_ms: int = _default("group.max.session.timeout.ms")
    group_max_size: int = _default("group.max.size")
    group_consumer_session_timeout_ms: int = _default("group.consumer.session.timeout.ms")
    group_consumer_min_session_timeout_ms: int = _default("group.consumer.min.session.timeout.ms")
    group_consumer_max_session_timeout_ms: int = _default("group.consumer.max.session.timeout.ms")
    group_consumer_heartbeat_interval_ms: int = _default("group.consumer.heartbeat.interval.ms")
    group_consumer_min_heartbeat_interval_ms: int = _default("group.consumer.min.heartbeat.interval.ms")
    group_consumer_max_heartbeat_interval_ms: int = _default("group.consumer.max.heartbeat.interval.ms")
    group_consumer_assignment_interval_ms: int = _default("group.consumer.assignment.interval.ms")
    group_consumer_min_assignment_interval_ms: int = _default("group.consumer.min.assignment.interval.ms")
    group_consumer_max_assignment_interval_ms: int = _default("group.consumer.max.assignment.interval.ms")
    group_consumer_max_size: int = _default("group.consumer.max.size")
    group_consumer_assignors: tuple[str, ...] = _default("group.consumer.assignors")
    group_consumer_migration_policy: str = _default("group.consumer.migration.policy")
    group_share_session_timeout_ms: int = _default("group.share.session.timeout.ms")
    group_share_min_session_timeout_ms: int = _default("group.share.min.session.timeout.ms")
    group_share_max_session_timeout_ms: int = _default("group.share.max.session.timeout.ms")
    group_share_heartbeat_interval_ms: int = _default("group.share.heartbeat.interval.ms")
    group_share_min_heartbeat_interval_ms: int = _default("group.share.min.heartbeat.interval.ms")
    group_share_max_heartbeat_interval_ms: int = _default("group.share.max.heartbeat.interval.ms")
    group_share_assignment_interval_ms: int = _default("group.share.assignment.interval.ms")
    group_share_min_assignment_interval_ms: int = _default("group.share.min.assignment.interval.ms")
    group_share_max_assignment_interval_ms: int = _default("group.share.max.assignment.interval.ms")
    group_share_max_size: int = _default("group.share.max.size")
    group_share_record_lock_duration_ms: int = _default("group.share.record.lock.duration.ms")
    group_share_min_record_lock_duration_ms: int = _default("group.share.min.record.lock.duration.ms")
    group_share_max_record_lock_duration_ms: int = _default("group.share.max.record.lock.duration.ms")
    group_share_delivery_count_limit: int = _default("group.share.delivery.count.limit")
    group_share_partition_max_record_locks: int = _default("group.share.partition.max.record.locks")
    group_share_max_share_sessions: int = _default("group.share.max.share.sessions")
    offsets_retention_minutes: int = _default("offsets.retention.minutes")
    offset_metadata_max_bytes: int = _default("offset.metadata.max.bytes")
    transaction_max_timeout_ms: int = _default("transaction.max.timeout.ms")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _default(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transactional_id_expiration_ms: int = _default("transactional.id.expiration.ms")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _default(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    log_cleaner_threads: int = _default("log.cleaner.threads")
    socket_request_max_bytes: int = _default("socket.request.max.bytes")
    queued_max_request_bytes: int = _default("queued.max.request.bytes")
    connections_max_idle_ms: int = _default("connections.max.idle.ms")
    max_connections: int = _default("max.connections")
    max_connections_per_ip: int = _default("max.connections.per.ip")
    fetch_max_bytes: int = _default("fetch.max.bytes")
    max_incremental_fetch_session_cache_slots: int = _default("max.incremental.fetch.session.cache.slots")
    max_request_partition_size_limit: int = _default("max.request.partition.size.limit")
    message_max_bytes: int = _default("message.max.bytes")
    producer_id_expiration_ms: int = _default("producer.id.expiration.ms")
    client_telemetry: bool = _default("foldlog.client.telemetry")
    telemetry_max_bytes: int = _default("telemetry.max.bytes")
    sasl_enabled_mechanisms: tuple[str, ...] = _default("sasl.enabled.mechanisms")
    sasl_server_max_receive_size: int = _default("sasl.server.max.receive.size")
    connection_failed_authentication_delay_ms: int = _default("connection.failed.authentication.delay.ms")
    connections_max_reauth_ms: int = _default("connections.max.reauth.ms")
    sasl_oauthbearer_jwks_endpoint_url: str | None = None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _default("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _default("sasl.oauthbearer.expected.audience")
    sasl_oauthbearer_expected_issuer: str | None = None
    sasl_oauthbearer_clock_skew_seconds: int = _default("sasl.oauthbearer.clock.skew.seconds")
    sasl_oauthbearer_sub_claim_name: str = _default("sasl.oauthbearer.sub.claim.name")
    topic_defaults: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    tls: Mapping[str, TlsSettings] = field(default_factory=lambda: _NOTHING)
    given: Mapping[str, str | None] = field(default_factory=lambda: _NOTHING, compare=False)
    without_effect: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def parse(cls, properties: Mapping[str, object], origins: Mapping[str, str] | None = None) -> ServerSettings:
        """Check every property. Raises InvalidConfig with its name, value, allowed values and source."""
        reader = PropertyReader(properties, origins or {})
        values = reader.read()
        attributes = {ATTRIBUTES[name]: value for name, value in values.items() if name in ATTRIBUTES}
        return cls(
            **attributes,
            topic_defaults=MappingProxyType(reader.topic_defaults(values)),
            tls=MappingProxyType(reader.tls),
            given=MappingProxyType(
                {name: None if BROKER_SETTINGS[name].is_sensitive else text_of(value) for name, value in values.items()}
            ),
            without_effect=tuple(sorted(reader.without_effect)),
        )

    def changed(self, texts: Mapping[str, str]) -> ServerSettings:
        """A copy with other values for settings that can be changed while the broker runs. Raises InvalidConfig."""
        attributes: dict[str, Any] = {}
        defaults = dict(self.topic_defaults)
        for name, text in texts.items():
            row, value = BROKER_SETTINGS[name], checked_value(name, name, text)
            if name in ATTRIBUTES:
                attributes[ATTRIBUTES[name]] = value
            if row.topic_setting is not None:
                # Whatever unit it was started with: what can be changed is in the smallest, which counts.
                defaults[row.topic_setting] = row.topic_text(value)
        return replace(self, **attributes, topic_defaults=MappingProxyType(defaults))

    def advertised(self, listener: Listener, bound_port: int) -> Listener:
        """The address that clients of a listener should connect to, once its port is known."""
        for advertised in self.advertised_listeners:
            if advertised.name == listener.name:
                return advertised if advertised.port else advertised._replace(port=bound_port)
        return listener._replace(port=bound_port)

    @property
    def local_listener(self) -> int | None:
        """Which of the listeners processes of this machine can use without a certificate or a password: on loopback, if
        there is one. None if all ask for something, or ACLs ask who they are: these processes then have a socket in the
        directory."""
        if self.authorizer_class_name:
            return None
        plain = [number for number, listener in enumerate(self.listeners) if listener.protocol == PLAINTEXT]
        return next((number for number in plain if self.listeners[number].is_loopback), plain[0] if plain else None)

    @property
    def has_logins(self) -> bool:
        """Whether clients log in, on some listener at least."""
        return any(one.protocol.startswith("SASL") for one in self.listeners)

    @property
    def knows_clients(self) -> bool:
        """Whether clients say who they are, on some listener at least."""
        return bool(self.authorizer_class_name) or any(one.protocol != PLAINTEXT for one in self.listeners)

    @property
    def is_anonymous(self) -> bool:
        """Whether no listener can tell its clients apart: on each of them everybody is User:ANONYMOUS."""
        return all(one.protocol == PLAINTEXT for one in self.listeners)

    @property
    def metrics_ask(self) -> bool:
        """Whether /metrics asks who it is."""
        return (self.has_logins or bool(self.authorizer_class_name)) and not self.metrics_open

    def verdicts(self) -> Verdicts | None:
        """What the authorizer decides without ACLs; None if there is no authorizer."""
        if not self.authorizer_class_name:
            return None
        super_users = frozenset(filter(None, self.super_users.split(";")))
        return Verdicts(super_users, self.allow_everyone_if_no_acl_found)

    def group_settings(self) -> GroupSettings:
        """The settings of the group coordinator."""
        return GroupSettings(
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            members_max=self.group_max_size,
            consumer=ConsumerGroupSettings(
                session_timeout_ms=self.group_consumer_session_timeout_ms,
                session_timeout_min_ms=self.group_consumer_min_session_timeout_ms,
                session_timeout_max_ms=self.group_consumer_max_session_timeout_ms,
                heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
                heartbeat_interval_min_ms=self.group_consumer_min_heartbeat_interval_ms,
                heartbeat_interval_max_ms=self.group_consumer_max_heartbeat_interval_ms,
                assignment_interval_ms=self.group_consumer_assignment_interval_ms,
                assignment_interval_min_ms=self.group_consumer_min_assignment_interval_ms,
                assignment_interval_max_ms=self.group_consumer_max_assignment_interval_ms,
                members_max=self.group_consumer_max_size,
                assignors=self.group_consumer_assignors,
                migration_policy=MigrationPolicy(self.group_consumer_migration_policy),
            ),
            share=ShareGroupSettings(
                limits=ShareLimits(
                    self.group_share_record_lock_duration_ms,
                    self.group_share_delivery_count_limit,
                    self.group_share_partition_max_record_locks,
                ),
                record_lock_duration_min_ms=self.group_share_min_record_lock_duration_ms,
                record_lock_duration_max_ms=self.group_share_max_record_lock_duration_ms,
                session_timeout_ms=self.group_share_session_timeout_ms,
                session_timeout_min_ms=self.group_share_min_session_timeout_ms,
                session_timeout_max_ms=self.group_share_max_session_timeout_ms,
                heartbeat_interval_ms=self.group_share_heartbeat_interval_ms,
                heartbeat_interval_min_ms=self.group_share_min_heartbeat_interval_ms,
                heartbeat_interval_max_ms=self.group_share_max_heartbeat_interval_ms,
                assignment_interval_ms=self.group_share_assignment_interval_ms,
                assignment_interval_min_ms=self.group_share_min_assignment_interval_ms,
                assignment_interval_max_ms=self.group_share_max_assignment_interval_ms,
                members_max=self.group_share_max_size,
                sessions_max=self.group_share_max_share_sessions,
            ),
        )

    def transaction_settings(self) -> TransactionSettings:
        """The settings of the transaction coordinator."""
        return TransactionSettings(
            timeout_max_ms=self.transaction_max_timeout_ms,
            id_expiration_ms=self.transactional_id_expiration_ms,
            abort_check_ms=self.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_check_ms=self.transaction_remove_expired_transaction_cleanup_interval_ms,
        )

    def login_settings(self) -> LoginSettings:
        """The settings of logins."""
        return LoginSettings(
            self.sasl_enabled_mechanisms,
            self.sasl_server_max_receive_size,
            self.connection_failed_authentication_delay_ms,
            self.connections_max_reauth_ms,
        )

    def token_settings(self) -> TokenSettings | None:
        """What tokens have to show; None if none are taken."""
        if OAUTHBEARER not in self.sasl_enabled_mechanisms or self.sasl_oauthbearer_jwks_endpoint_url is None:
            return None
        return TokenSettings(
            self.sasl_oauthbearer_jwks_endpoint_url,
            self.sasl_oauthbearer_expected_audience,
            self.sasl_oauthbearer_expected_issuer,
            self.sasl_oauthbearer_clock_skew_seconds,
            self.sasl_oauthbearer_sub_claim_name,
            self.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * _MINUTE_MS

    def broker_configs(self) -> list[BrokerConfigRow]:
        """Every setting, by name, as DescribeConfigs shows it for a broker."""
        return [self._config_row(name, BROKER_SETTINGS[name]) for name in sorted(BROKER_SETTINGS)]

    def _config_row(self, name: str, row: BrokerSetting) -> BrokerConfigRow:
        attribute = ATTRIBUTES.get(name)
        if attribute is None:
            value = self.given.get(name, text_of(row.default))
            is_default = name not in self.given
        else:
            value = None if row.is_sensitive else text_of(getattr(self, attribute))
            is_default = name not in self.given and getattr(self, attribute) == _DEFAULTS[attribute]
        source = "DEFAULT_CONFIG" if is_default else "STATIC_BROKER_CONFIG"
        return BrokerConfigRow(name, value, is_default, source, row.kafka_type, row.doc, row.is_sensitive)


_DEFAULTS: Final = {each.name: each.default for each in fields(ServerSettings)}
