"""Conversations about settings: of topics, of brokers, of groups and of the metrics of clients."""

from __future__ import annotations

from typing import Any

from conversations.running import conversation
from conversations.talk import Talk, steps
from foldlog.server.config.broker_settings import BROKER_SETTINGS

UNKNOWN, TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 0, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

BROKER_KEYS = (
    "log.cleanup.policy", "log.segment.bytes", "num.partitions", "max.connections", "compression.type",
    "message.max.bytes", "auto.create.topics.enable", "min.insync.replicas", "group.max.session.timeout.ms",
    "transaction.max.timeout.ms", "offsets.retention.minutes", "no.such.setting",
)  # fmt: skip


def described(talk: Talk, step: str, kind: int, name: str, *keys: str, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return talk.ask("DescribeConfigs", step, resources=[resource], **more)


@conversation("DescribeConfigs")
def settings_are_described(talk: Talk) -> None:
    topic = talk.topic(cleanup_policy="compact,delete", retention_ms="5000", max_message_bytes="2000000")
    for synonyms in (False, True):
        described(talk, f"of a topic, synonyms {synonyms}", TOPIC, topic, include_synonyms=synonyms)
    described(talk, "some of a topic", TOPIC, topic, "cleanup.policy", "no.such", include_synonyms=True)
    described(talk, "with documentation", TOPIC, topic, "cleanup.policy", include_documentation=True)
    described(talk, "of a broker", BROKER, "1", *BROKER_KEYS, include_synonyms=True)
    described(talk, "of all brokers", BROKER, "", *BROKER_KEYS, include_synonyms=True)
    for kind, name in (
        (TOPIC, talk.name("none")), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "2"), (BROKER, "one"), (LOGGER, "2"),
        (LOGGER, "one"), (CLIENT_METRICS, talk.name("metrics")), (CLIENT_METRICS, ""), (GROUP, talk.name("group")),
        (GROUP, ""), (UNKNOWN, "x"), (7, "x"),
    ):  # fmt: skip
        described(talk, f"of {kind} {talk.names.plain(name)!r}", kind, name)
    resources = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": ["retention.ms"]}] * 2
    talk.ask("DescribeConfigs", "twice", resources=resources)
    talk.ask("DescribeConfigs", "nothing", resources=[])


@conversation()
def settings_of_a_broker_that_can_be_changed(talk: Talk) -> None:
    resource = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    (found,) = talk.quiet("DescribeConfigs", resources=[resource]).results
    ours = {name for name in BROKER_SETTINGS if not name.startswith("foldlog.")}
    talk.tell("read only", {row.name: row.read_only for row in found.configs if row.name in ours})


@conversation("DescribeConfigs")
def cleanup_policies_are_kept_as_they_were_written(talk: Talk) -> None:
    for word, policy in (
        ("both", "compact,delete"),
        ("turned", "delete,compact"),
        ("neither", ""),
        ("twice", "delete,delete"),
    ):
        described(talk, word, TOPIC, talk.topic(word, cleanup_policy=policy), "cleanup.policy")


class Changes:
    """Sends changes of settings, and shows what became of them."""

    def __init__(self, talk: Talk, api: str) -> None:
        self.talk = talk
        self.api = api

    def __call__(self, step: str, kind: int, name: str, *changes: tuple[Any, ...], **more: Any) -> None:
        """(setting, operation, value), or (setting, value) for AlterConfigs."""
        configs = [
            {"name": change[0], "config_operation": change[1], "value": change[2]}
            if self.api == "IncrementalAlterConfigs"
            else {"name": change[0], "value": change[1]}
            for change in changes
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        self.talk.ask(self.api, step, resources=[resource], **more)


@conversation("IncrementalAlterConfigs")
def settings_of_a_topic_are_changed(talk: Talk) -> None:
    topic = talk.topic()
    change = Changes(talk, "IncrementalAlterConfigs")
    keys = ("retention.ms", "cleanup.policy", "max.message.bytes")
    for step, changes in steps(
        {
            "set": [("retention.ms", SET, "5000")],
            "set two": [("retention.ms", SET, "6000"), ("max.message.bytes", SET, "1000000")],
            "deleted": [("retention.ms", DELETE, None)],
            "deleted again": [("retention.ms", DELETE, None)],
            "appended": [("cleanup.policy", APPEND, "compact")],
            "appended again": [("cleanup.policy", APPEND, "compact")],
            "subtracted": [("cleanup.policy", SUBTRACT, "delete")],
            "no list": [("retention.ms", APPEND, "5")],
            "no number": [("retention.ms", SET, "soon")],
            "too small": [("segment.bytes", SET, "1")],
            "null": [("retention.ms", SET, None)],
            "no such setting": [("no.such", SET, "1")],
            "no such setting to delete": [("no.such", DELETE, None)],
            "an odd operation": [("retention.ms", 9, "1")],
            "twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            "one of two": [("retention.ms", SET, "7000"), ("segment.bytes", SET, "1")],
            "nothing": [],
        }
    ):
        change(f"{step}, only validated", TOPIC, topic, *changes, validate_only=True)
        change(step, TOPIC, topic, *changes)
    described(talk, "what became of it", TOPIC, topic, *keys)
    for kind, name in ((TOPIC, talk.name("none")), (TOPIC, "a b"), (TOPIC, ""), (UNKNOWN, "x"), (7, "x")):
        change(f"of {kind} {talk.names.plain(name)!r}", kind, name, ("retention.ms", SET, "1"))
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
    talk.ask("IncrementalAlterConfigs", "the same twice", resources=[resource, resource])
    talk.ask("IncrementalAlterConfigs", "no resource", resources=[])


@conversation("AlterConfigs")
def settings_of_a_topic_are_replaced(talk: Talk) -> None:
    topic = talk.topic()
    replace = Changes(talk, "AlterConfigs")
    for step, configs in steps(
        {
            "two": [("retention.ms", "5000"), ("max.message.bytes", "1000000")],
            "one": [("retention.ms", "6000")],
            "no number": [("retention.ms", "soon")],
            "null": [("retention.ms", None)],
            "no such setting": [("no.such", "1")],
            "twice": [("retention.ms", "1"), ("retention.ms", "2")],
            "nothing": [],
        }
    ):
        replace(f"{step}, only validated", TOPIC, topic, *configs, validate_only=True)
        replace(step, TOPIC, topic, *configs)
        if step == "one":
            described(talk, "what became of it", TOPIC, topic, "retention.ms", "max.message.bytes")
    for kind, name in ((TOPIC, talk.name("none")), (TOPIC, ""), (UNKNOWN, "x"), (7, "x")):
        replace(f"of {kind} {talk.names.plain(name)!r}", kind, name, ("retention.ms", "1"))
    talk.ask("AlterConfigs", "no resource", resources=[])


BROKER_CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "partitions": [("num.partitions", SET, "3")],
    "retention": [("log.retention.ms", SET, "5000000")],
    "no time": [("log.retention.ms", SET, "soon")],
    "hours": [("log.retention.hours", SET, "3")],
    "retention deleted": [("log.retention.ms", DELETE, None)],
    "connections": [("max.connections", SET, "500")],
    "null": [("max.connections", SET, None)],
    "an odd operation": [("max.connections", 9, "1")],
    "no list": [("max.connections", APPEND, "1")],
    "twice": [("max.connections", SET, "1"), ("max.connections", SET, "2")],
    "one of two": [("max.connections", SET, "400"), ("num.partitions", SET, "2")],
    "connections deleted": [("max.connections", DELETE, None)],
    "read only": [("broker.id", SET, "1")],
    "no such to delete": [("no.such", DELETE, None)],
    "appended": [("log.cleanup.policy", APPEND, "compact")],
    "subtracted": [("log.cleanup.policy", SUBTRACT, "delete")],
    "policy deleted": [("log.cleanup.policy", DELETE, None)],
}


@conversation("IncrementalAlterConfigs")
def settings_of_brokers_are_changed(talk: Talk) -> None:
    change = Changes(talk, "IncrementalAlterConfigs")
    for name in ("1", "", "2", "one"):
        for step, changes in BROKER_CHANGES.items():
            change(f"{name!r}: {step}", BROKER, name, *changes)
    for name in ("1", ""):
        change(
            f"{name!r} set",
            BROKER,
            name,
            ("log.cleanup.policy", SET, "compact"),
            ("log.segment.bytes", SET, "65536000"),
        )
        described(
            talk, f"{name!r} shown", BROKER, name, "log.cleanup.policy", "log.segment.bytes", include_synonyms=True
        )
        topic = talk.topic(f"of-{name}")
        described(talk, f"{name!r} for a topic", TOPIC, topic, "cleanup.policy", "segment.bytes", include_synonyms=True)
        change(
            f"{name!r} deleted", BROKER, name, ("log.cleanup.policy", DELETE, None), ("log.segment.bytes", DELETE, None)
        )
        described(
            talk, f"{name!r} as before", BROKER, name, "log.cleanup.policy", "log.segment.bytes", include_synonyms=True
        )


@conversation("AlterConfigs")
def settings_of_a_broker_are_replaced(talk: Talk) -> None:
    """For one broker: for all, Kafka refuses to lose the min.insync.replicas that it has set there itself."""
    replace = Changes(talk, "AlterConfigs")
    for step, configs in steps(
        {
            "connections": [("max.connections", "400")],
            "partitions": [("num.partitions", "3")],
            "null": [("max.connections", None)],
            "twice": [("max.connections", "1"), ("max.connections", "2")],
            "nothing": [],
        }
    ):
        replace(step, BROKER, "1", *configs)


METRICS_CHANGES: dict[str, list[tuple[str, int, str | None]]] = {
    "all": [("interval.ms", SET, "5000"), ("metrics", SET, "*"), ("match", SET, "client_id=x.*")],
    "a short interval": [("interval.ms", SET, "5")],
    "no number": [("interval.ms", SET, "soon")],
    "no list": [("interval.ms", APPEND, "1")],
    "no such": [("no.such", SET, "5")],
    "an odd match": [("match", SET, "colour=red")],
    "half a match": [("match", SET, "client_id")],
    "a wrong pattern": [("match", SET, "client_id=(")],
    "interval deleted": [("interval.ms", DELETE, None)],
    "deleted": [("metrics", DELETE, None), ("match", DELETE, None), ("interval.ms", DELETE, None)],
}


@conversation("IncrementalAlterConfigs", "ListConfigResources")
def subscriptions_to_metrics_are_changed(talk: Talk) -> None:
    change = Changes(talk, "IncrementalAlterConfigs")
    for word in ("latency", ""):
        name = talk.name(word) if word else ""
        for step, changes in METRICS_CHANGES.items():
            if not word and changes[0][1] == APPEND:
                continue  # two things are wrong, and Kafka looks at the other one first
            change(f"{word!r}: {step}", CLIENT_METRICS, name, *changes)
            described(talk, f"{word!r}: {step} shown", CLIENT_METRICS, name, include_synonyms=True)
            kinds = [CLIENT_METRICS] if talk.version("ListConfigResources") else []
            talk.ask("ListConfigResources", f"{word!r}: {step} listed", mine=True, resource_types=kinds)


@conversation("ListConfigResources")
def resources_are_listed(talk: Talk) -> None:
    talk.topic()
    group = talk.name("workers")
    Changes(talk, "IncrementalAlterConfigs")("a group", GROUP, group, ("share.auto.offset.reset", SET, "earliest"))
    if talk.version("ListConfigResources"):
        for kinds in ([], [TOPIC], [GROUP], [CLIENT_METRICS], [TOPIC, GROUP]):
            talk.ask("ListConfigResources", f"of {kinds}", mine=True, resource_types=kinds)
        talk.ask("ListConfigResources", "of brokers", resource_types=[BROKER, LOGGER])
        for kinds in ([99], [UNKNOWN], [TOPIC, 99]):
            talk.ask("ListConfigResources", f"of {kinds}", resource_types=kinds)
    else:
        talk.ask("ListConfigResources", "of metrics", mine=True)


@conversation("IncrementalAlterConfigs")
def settings_of_groups_are_changed(talk: Talk) -> None:
    change = Changes(talk, "IncrementalAlterConfigs")
    group = talk.name("workers")
    for step, changes in steps(
        {
            "reset": [("share.auto.offset.reset", SET, "earliest")],
            "by duration": [("share.auto.offset.reset", SET, "by_duration:PT1H")],
            "no reset": [("share.auto.offset.reset", SET, "never")],
            "isolation": [("share.isolation.level", SET, "read_committed")],
            "no isolation": [("share.isolation.level", SET, "read_all")],
            "a lock": [("share.record.lock.duration.ms", SET, "20000")],
            "a short lock": [("share.record.lock.duration.ms", SET, "5")],
            "no number": [("share.record.lock.duration.ms", SET, "soon")],
            "no such": [("no.such", SET, "1")],
            "deleted": [("share.auto.offset.reset", DELETE, None)],
        }
    ):
        change(step, GROUP, group, *changes)
    keys = ("share.auto.offset.reset", "share.isolation.level", "share.record.lock.duration.ms")
    described(talk, "what became of it", GROUP, group, *keys, include_synonyms=True)
    described(talk, "all of it", GROUP, group)
    change("no name", GROUP, "", ("share.auto.offset.reset", SET, "earliest"))


@conversation("GetTelemetrySubscriptions", "PushTelemetry")
def clients_push_metrics(talk: Talk) -> None:
    change = Changes(talk, "IncrementalAlterConfigs")
    change("subscribed", CLIENT_METRICS, talk.name("all"), ("metrics", SET, "*"), ("interval.ms", SET, "100"))
    described(talk, "shown", CLIENT_METRICS, talk.name("all"))
    talk.until(
        lambda: talk.quiet("GetTelemetrySubscriptions", client_instance_id=bytes(16)),
        lambda answer: not answer.error_code and len(answer.requested_metrics) > 0,
    )
    first = talk.ask("GetTelemetrySubscriptions", "the first time", on=talk.link(), client_instance_id=bytes(16))
    own = {"client_instance_id": bytes(first.client_instance_id), "subscription_id": first.subscription_id}
    talk.ask("PushTelemetry", "pushed", **own, metrics=b"")
    talk.ask("PushTelemetry", "another subscription", **{**own, "subscription_id": 1})
    talk.ask("PushTelemetry", "an odd codec", **own, compression_type=77)
    talk.ask("PushTelemetry", "nobody", **{**own, "client_instance_id": bytes(16)})
    talk.ask("GetTelemetrySubscriptions", "too soon", client_instance_id=bytes(first.client_instance_id))
    talk.ask("PushTelemetry", "the last time", **own, terminating=True, metrics=b"")
    talk.ask("PushTelemetry", "after that", **own, terminating=True, metrics=b"")
    change("deleted", CLIENT_METRICS, talk.name("all"), ("metrics", DELETE, None), ("interval.ms", DELETE, None))
