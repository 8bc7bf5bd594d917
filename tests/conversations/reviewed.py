"""Every difference between our answers and Apache Kafka's that is meant to be, with the reason.

A difference that is not here fails its test; a row here that stands for no difference any more fails, too.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from conversations.comparing import ABSENT, CLOSED, Row

ANY: Final = "any"
"""Whatever a side says there."""


ONE_MORE: Final = "one more than ours"
TWO_MORE: Final = "two more than ours"
ONE_MORE_OURS: Final = "one less than ours"


class Reviewed(NamedTuple):
    """Where two answers differ (patterns: conversation, step, field), what each says there, and why."""

    conversation: str
    step: str
    path: str
    ours: Any
    kafka: Any
    why: str
    versions: tuple[int, int] = (-1, 99)
    is_timing: bool = False
    """Kafka says so or not, by how quick it was: the row need not stand for a difference in every run."""

    def covers(self, conversation: str, step: str, version: int, row: Row) -> bool:
        return (
            fnmatchcase(conversation, self.conversation)
            and fnmatchcase(step, self.step)
            and fnmatchcase(row.path, self.path)
            and self.versions[0] <= version <= self.versions[1]
            and self.ours in (ANY, row.ours)
            and (self.kafka in (ANY, row.kafka) or self._is_more(row))
        )

    def _is_more(self, row: Row) -> bool:
        more = {ONE_MORE: 1, TWO_MORE: 2, ONE_MORE_OURS: -1}.get(str(self.kafka))
        return more is not None and isinstance(row.ours, int) and row.kafka == row.ours + more

    def __hash__(self) -> int:
        return hash(self[:3])


NOT_WHOLE: Final = "what is not whole is taken for damage on the way, and clients send it again"
EMPTY_NAME: Final = "a group has a name; Kafka takes commits of one without, as clients of old made them"
REPEATED: Final = "each once: a small request that repeats a name would be answered with gigabytes"
FAILS: Final = "Kafka fails at it, and says so with UNKNOWN_SERVER_ERROR"
WHO_IS_GONE: Final = "members of a group that is lost join again here; in Kafka they end"
ONLY_OFFSETS: Final = "a group that only has offsets has no members and no generation here; clients join again on both"
OLDER: Final = "taken without effect, as Kafka 3 had it"
OUR_DEFAULT: Final = "Kafka was started with our default"
NO_LOG: Final = "there is no log of metadata"
NO_GROUP_OF_NOTHING: Final = "a group without members and offsets is no group"

REVIEWED: Final[tuple[Reviewed, ...]] = (
    # --- what is served ---
    Reviewed("versions_of_apis", "*", "api_keys.*", ABSENT, ANY, "docs/reference/kafka_apis.md has what is not served"),
    *(
        Reviewed("versions_of_apis", "*", f"api_keys.{key}.max_version", ANY, ONE_MORE_OURS, "of Kafka 4.4")
        for key in (18, 28, 42)
    ),
    *(
        Reviewed("versions_of_apis", "*", f"{kind}_features.{name}.version", ABSENT, ANY, why)
        for kind in ("supported", "finalized")
        for name, why in (
            ("eligible.leader.replicas", "there are no replicas"),
            ("metadata", NO_LOG),
            ("streams", "there are no streams groups"),
        )
    ),
    Reviewed("versions_of_apis", "*", "supported_features.kraft.version", ABSENT, ANY, NO_LOG),
    # --- topics ---
    Reviewed("*", "*", "*configs.flush.messages.*", "1", ANY, "what is acknowledged is durable"),
    Reviewed("*", "*", "*configs.retention.ms.value", "-1", "604800000", "records are kept unless told otherwise"),
    Reviewed("*", "*", "*configs.foldlog.*", ANY, ABSENT, "a setting of ours"),
    Reviewed("*", "*", "*configs.message.downconversion.enable", ANY, ABSENT, OLDER),
    Reviewed("*", "*", "*configs.message.format.version", ANY, ABSENT, OLDER),
    Reviewed("*", "*", "*configs.message.timestamp.difference.max.ms", ANY, ABSENT, OLDER),
    Reviewed("topics_are_created", "*, only validated", "topics.*.topic_id", "none", ANY, "what is not made has no id"),
    Reviewed("topics_are_created", "named '__consumer_offsets'*", "*.error_code", 17, 36, "its name is never free"),
    Reviewed("topics_are_deleted", "twice", "responses.c.topic_id", "id of c", "none", "it is known, and so is said"),
    Reviewed("partitions_are_added", "too many", "*.error_code", 37, -1, FAILS),
    Reviewed("metadata_of_topics", "by neither", "*", ANY, ANY, "Kafka fails at it, and says nothing else"),
    Reviewed(
        "metadata_of_topics", "by *", "*", ANY, ANY, "of an id before version 12 Kafka says nothing else", (10, 11)
    ),
    Reviewed(
        "partitions_are_described",
        "*",
        "*.topic_authorized_operations",
        -2147483648,
        3576,
        "there is nothing to do with",
    ),
    Reviewed("partitions_are_described", "wrong", "*.error_code", 17, -1, FAILS),
    Reviewed("the_quorum", "*", "*.high_watermark", 0, ANY, NO_LOG),
    Reviewed(
        "the_quorum", "*", "*.leader_epoch", 1, ANY, "Kafka counts the elections of its controller", is_timing=True
    ),
    Reviewed("the_quorum", "*", "*.log_end_offset", 0, ANY, NO_LOG),
    # --- writing ---
    Reviewed("batches_that_are_wrong", "a format of yesterday", "*.error_code", 2, 87, "formats 0 and 1 are not known"),
    Reviewed("batches_that_are_wrong", "a codec that is none", "*.error_code", 2, -1, FAILS),
    *(
        Reviewed("batches_that_are_wrong", step, "*.error_code", 2, 87, NOT_WHOLE)
        for step in (
            "more records than there are",
            "fewer records than there are",
            "no records",
            "another last offset",
            "the end cut off",
            "a little",
            "nothing",
        )
    ),
    Reviewed("batches_that_are_wrong", "*", "*.log_start_offset", -1, 0, "it is damage, and the log was not looked at"),
    Reviewed(
        "batches_that_are_wrong", "two batches", "*.log_start_offset", 0, -1, "seen by the log here, before in Kafka"
    ),
    Reviewed(
        "*", "*", "*.log_append_time_ms", -1, 1, "what is written twice has no time of appending, as the first time"
    ),
    Reviewed("an_idempotent_producer", "a negative epoch", "*.error_code", 87, 47, "it is no epoch, older or not"),
    Reviewed(
        "versions_of_produce_that_are_gone",
        "*",
        "",
        ANY,
        CLOSED,
        "a client is told UNSUPPORTED_VERSION, and not cut off",
    ),
    Reviewed("what_operators_ask", "an older epoch", "*.error_code", 47, -1, FAILS),
    # --- reading ---
    Reviewed("*", "*", "*.partitions.0.log_start_offset", ANY, -1, "who is out of range is told where the log starts"),
    Reviewed("*", "*", "*.aborted_transactions", None, ANY, "of a partition that is not there nothing is known"),
    Reviewed("records_are_fetched", "isolation 7", "*", ANY, ANY, FAILS),
    Reviewed(
        "fetches_with_epochs",
        "after epoch *",
        "*",
        ANY,
        ANY,
        "who has read at an epoch that never was is told where the log ends, and not that the offset is out of range",
    ),
    Reviewed("offsets_by_time", "twice", "*", ANY, ABSENT, "each question has its answer"),
    # --- groups ---
    *(
        Reviewed("*", "*", f"*{kind}_epoch", ANY, ONE_MORE, "a new group begins at epoch 1 here, at 2 in Kafka 4.3")
        for kind in ("member", "group", "assignment")
    ),
    Reviewed("*", "a classic one beside it", "generation_id", ANY, ONE_MORE, "the epoch becomes the generation"),
    *(
        Reviewed("*share*", "*", f"*{kind}_epoch", ANY, TWO_MORE, "Kafka counts once more when it has made its state")
        for kind in ("member", "group", "assignment")
    ),
    Reviewed("joins_that_are_refused", "some", "groups..*", ANY, ANY, EMPTY_NAME),
    Reviewed("joins_that_are_refused", "twice", "groups.*", ANY, ANY, REPEATED),
    Reviewed("settings_are_described", "twice", "results.*", ANY, ANY, REPEATED),
    Reviewed("offsets_without_a_member", "no group*", "*", ANY, ANY, EMPTY_NAME),
    Reviewed("groups_and_offsets_are_deleted", "delete no name", "*.error_code", 24, ANY, EMPTY_NAME),
    Reviewed("coordinators", "0 of ''", "*", ANY, ANY, EMPTY_NAME),
    Reviewed("coordinators", "nobody", "*", ANY, ANY, EMPTY_NAME),
    Reviewed("coordinators", "* of ''", "*", ANY, ANY, EMPTY_NAME, (0, 0)),
    Reviewed("offsets_without_a_member", "a *", "*.error_code", 22, 25, ONLY_OFFSETS),
    Reviewed("offsets_without_a_member", "a group that is not", "*.error_code", 22, 69, WHO_IS_GONE),
    Reviewed("offsets_of_a_group", "member*", "*.error_code", 22, 25, ONLY_OFFSETS),
    Reviewed("groups_and_offsets_are_deleted", "no such topic", "*", ANY, ANY, NO_GROUP_OF_NOTHING),
    Reviewed("groups_and_offsets_are_deleted", "delete some", "*.error_code", 69, 0, NO_GROUP_OF_NOTHING),
    Reviewed("heartbeats_that_are_refused", "later: another group", "error_code", 25, 69, WHO_IS_GONE),
    Reviewed(
        "heartbeats_that_are_refused", "a static one leaves no group", "error_code", 42, 25, "it has no member id"
    ),
    Reviewed(
        "subscriptions_by_regular_expression",
        "she joins",
        "assignment.*",
        ANY,
        ABSENT,
        "matched at once, later in Kafka",
    ),
    Reviewed(
        "a_group_changes_its_protocol",
        "classic again",
        "*.member_assignment",
        b"",
        ANY,
        "it is rebalancing, and what was assigned is over",
    ),
    # --- share groups ---
    Reviewed("*", "* joins to share", "assignment.*", ANY, ABSENT, "there is no state to make first"),
    Reviewed("members_of_a_share_group", "another group", "error_code", 25, 69, WHO_IS_GONE),
    Reviewed(
        "*", "*", "*.current_leader.leader_*", -1, 0, "no other leader is meant: that is -1, and 0 may be a broker"
    ),
    Reviewed("share_requests_that_are_refused", "no group*", "*", ANY, ANY, "a share group has a name"),
    Reviewed("share_requests_that_are_refused", "below the start", "*.error_code", 42, 0, "there is no offset -1"),
    Reviewed("share_requests_that_are_refused", "no such topic", "*", ANY, ANY, FAILS),
    Reviewed("records_are_renewed", "an odd mode", "*", ANY, ANY, FAILS),
    Reviewed(
        "offsets_of_share_groups",
        "*",
        "*.start_offset",
        3,
        1,
        "it is the first record that is not done, at once",
        is_timing=True,
    ),
    Reviewed("offsets_of_share_groups", "no such topic", "*.error_code", 3, 0, "there is no such topic"),
    Reviewed(
        "offsets_of_share_groups", "no such group*", "*", ANY, ANY, "its first member makes a group, nothing else"
    ),
    Reviewed("offsets_of_share_groups", "no group", "*.error_code", 24, -1, FAILS),
    # --- settings ---
    *(
        Reviewed(
            "settings_of_a_broker_that_can_be_changed", "*", name, True, False, "who is connected would have to go"
        )
        for name in ("listeners", "listener.security.protocol.map")
    ),
    Reviewed("*", "*", "results.*.configs.min.insync.replicas.*", ANY, ANY, "it is 1, and cannot be changed"),
    Reviewed("settings_are_described", "*", "*configs.max.connections*value", "10000", ANY, "memory is bounded"),
    *(
        Reviewed("settings_*", "*", f"results.*.configs.{kind}*", ABSENT, ANY, why)
        for kind, why in (("streams", "there are no streams groups"),)
    ),
    *(
        Reviewed("settings_*", "*", f"results.*.configs.{kind}.assignment.interval.ms.config_source", 5, 4, OUR_DEFAULT)
        for kind in ("consumer", "share")
    ),
    *(
        Reviewed("settings_of_a_broker_that_can_be_changed", "*", name, True, ANY, why)
        for name, why in (
            ("ssl.*", "certificates are read again from their files, and the settings stay"),
            ("sasl.enabled.mechanisms", "who logs in is decided at the start"),
            ("group.*.assignment.interval.ms", "a group has it as a setting of its own"),
            ("super.users", "Kafka's authorizer has it, which is a class of its own"),
            ("allow.everyone.if.no.acl.found", "Kafka's authorizer has it, which is a class of its own"),
        )
    ),
    Reviewed("settings_of_a_topic_are_changed", "an odd operation*", "*.error_code", 42, -1, FAILS),
    Reviewed("clients_push_metrics", "*", "delta_temporality", False, True, "/metrics shows sums, not differences"),
)
