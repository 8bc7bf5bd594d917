"""Whether a change has reached every broker: they hear of it one after the other, and a client may ask any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foldlog.client.wire.links import ClusterLinks
from foldlog.wire.error_codes import ErrorCode
from foldlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from foldlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_TOPIC_RESOURCE: Final = 2

OWN_SETTING: Final = 1
"""Kafka's number for a value that the topic itself sets."""


def is_led(links: ClusterLinks, name: str, partitions: int) -> bool:
    """Whether all brokers know the topic, with a leader for each of at least so many partitions."""
    return all(
        not topic.error_code
        and len(topic.partitions) >= partitions
        and all(one.leader_id >= 0 for one in topic.partitions)
        for topic in _told(links, name)
    )


def is_known(links: ClusterLinks, name: str) -> bool:
    """Whether all brokers have heard of the topic, whatever its leaders are."""
    return all(topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in _told(links, name))


def is_gone(links: ClusterLinks, name: str) -> bool:
    """Whether no broker knows the topic any more."""
    return all(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in _told(links, name))


def _told(links: ClusterLinks, name: str) -> list[MetadataResponseTopic]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return [topic for answer in links.call_each(request, MetadataResponse) for topic in answer.topics]


def has_settings(links: ClusterLinks, name: str, changes: Mapping[str, str | None]) -> bool:
    """Whether all brokers say that the topic has these settings; None stands for one that it leaves to its default."""
    resource = DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=list(changes)
    )
    answers = links.call_each(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    return all(_has(result, changes) for answer in answers for result in answer.results)


def _has(result: DescribeConfigsResult, changes: Mapping[str, str | None]) -> bool:
    own = {one.name: one.value for one in result.configs if one.config_source == OWN_SETTING}
    return all(
        setting not in own if wanted is None else is_same(wanted, own.get(setting))
        for setting, wanted in changes.items()
    )


def is_same(wanted: str, told: str | None) -> bool:
    """Whether a broker means the value that was set: it tells what it made of it, in its own spelling.

    >>> is_same("compact, delete", "compact,delete"), is_same("0.50", "0.5"), is_same("TRUE", "true")
    (True, True, True)
    >>> is_same("1", "2"), is_same("1", None)
    (False, False)
    """
    if told is None:
        return False
    if _words(wanted) == _words(told):
        return True
    try:
        return float(wanted) == float(told)
    except ValueError:
        return False


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",")]
