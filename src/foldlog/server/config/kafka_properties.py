"""Kafka's broker properties that have no effect on a single broker without a cluster.

They are accepted, so that an existing server.properties can be used, and listed in one warning. A property is refused
if ignoring it would silently remove a restriction.
"""

from __future__ import annotations

from typing import Final

NAMES_WITHOUT_EFFECT: Final = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "alter.config.policy.class.name",
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "auto.include.jmx.reporter",
        "auto.leader.rebalance.enable",
        "background.threads",
        "broker.heartbeat.interval.ms",
        "broker.id.generation.enable",
        "broker.rack",
        "broker.session.timeout.ms",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "config.providers",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "create.topic.policy.class.name",
        "early.start.listeners",
        "eligible.leader.replicas.enable",
        "fetch.purgatory.purge.interval.requests",
        "host.name",
        "initial.broker.registration.timeout.ms",
        "inter.broker.listener.name",
        "inter.broker.protocol.version",
        "leader.imbalance.check.interval.seconds",
        "leader.imbalance.per.broker.percentage",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.deletion.delay.ms",
        "log.dir",
        "log.dir.failure.timeout.ms",
        "log.dirs",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.index.size.max.bytes",
        "log.initial.task.delay.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "log.preallocate",
        "log.retention.check.interval.ms",
        "log.roll.jitter.hours",
        "log.roll.jitter.ms",
        "log.segment.delete.delay.ms",
        "max.connection.creation.rate",
        "max.connections.per.ip.overrides",
        "metadata.log.dir",
        "metadata.log.max.record.bytes.between.snapshots",
        "metadata.log.max.snapshot.interval.ms",
        "metadata.log.segment.bytes",
        "metadata.log.segment.min.bytes",
        "metadata.log.segment.ms",
        "metadata.max.idle.interval.ms",
        "metadata.max.retention.bytes",
        "metadata.max.retention.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "min.insync.replicas",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.alter.log.dirs.threads",
        "num.replica.fetchers",
        "offsets.commit.required.acks",
        "offsets.commit.timeout.ms",
        "offsets.load.buffer.size",
        "offsets.retention.check.interval.ms",
        "offsets.topic.compression.codec",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "port",
        "principal.builder.class",
        "process.roles",
        "producer.id.expiration.check.interval.ms",
        "producer.purgatory.purge.interval.requests",
        "queued.max.requests",
        "request.timeout.ms",
        "reserved.broker.max.id",
        "security.inter.broker.protocol",
        "security.providers",
        "server.max.startup.time.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.partition.verification.enable",
        "transaction.two.phase.commit.enable",
        "unclean.leader.election.enable",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    }
)

FAMILIES_WITHOUT_EFFECT: Final = (
    "controller.",
    "controlled.shutdown.",
    "delegation.token.",
    "group.consumer.assignment.",
    "group.consumer.assignor.offload.",
    "group.consumer.max.assignment.",
    "group.consumer.min.assignment.",
    "group.consumer.regex.",
    "group.coordinator.",
    "group.share.assign",
    "group.share.initialize.",
    "group.share.max.assignment.",
    "group.share.max.delivery.",
    "group.share.max.partition.",
    "group.share.min.assignment.",
    "group.share.min.delivery.",
    "group.share.min.heartbeat.",
    "group.share.min.partition.",
    "group.share.min.session.",
    "group.share.persister.",
    "group.streams.",
    "kafka.csv.",
    "kafka.metrics.",
    "leader.replication.",
    "listener.name.",
    "metadata.log.",
    "password.encoder.",
    "quota.",
    "remote.",
    "replica.",
    "replication.quota.",
    "sasl.",
    "share.",
    "transaction.state.log.",
    "zookeeper.",
)
"""Prefixes of names; those that are settings here are known before these are looked at."""

_AUTHORIZATION: Final = frozenset({"allow.everyone.if.no.acl.found", "authorizer.class.name", "super.users"})


def has_no_effect(name: str) -> bool:
    """Whether it is a property of Kafka's broker that is not used here.

    >>> has_no_effect("zookeeper.connect"), has_no_effect("num.partition")
    (True, False)
    """
    return name in NAMES_WITHOUT_EFFECT or name in _AUTHORIZATION or name.startswith(FAMILIES_WITHOUT_EFFECT)


def refusal_of(name: str, value: object) -> str | None:
    """Why a property of Kafka's cannot just be ignored, in a sentence; None if it can."""
    if name in _AUTHORIZATION and str(value).strip():
        return (
            f"{name} restricts who may do what, and that is not served yet: everybody on a listener may do everything;"
            " take it out once that is what you want"
        )
    return None
