"""Conversations about topics and the cluster: making, finding, describing and moving them."""

from __future__ import annotations

from typing import Any

from conversations.comparing import uuid_text
from conversations.running import conversation
from conversations.talk import Talk

STRANGE_ID = bytes(range(16))
LONG = "x" * 250


def creatable(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


@conversation("CreateTopics")
def topics_are_created(talk: Talk) -> None:
    for validate_only in (True, False):

        def create(step: str, *topics: dict[str, Any], validate_only: bool = validate_only) -> None:
            shown = f"{step}, only validated" if validate_only else step
            fields: dict[str, Any] = {"topics": topics, "timeout_ms": 30_000, "validate_only": validate_only}
            talk.ask("CreateTopics", shown, **fields)

        create("plain", creatable(talk.name("plain")))
        create("again", creatable(talk.name("plain")))
        create("defaults", creatable(talk.name("defaults"), -1, -1))
        configs = [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "value": "-1"}]
        create("settings", creatable(talk.name("settings"), 3, configs=configs))
        assigned = [{"partition_index": number, "broker_ids": [1]} for number in range(2)]
        create("assigned", creatable(talk.name("assigned"), -1, -1, assignments=assigned))
        create("nothing")
        create("two", creatable(talk.name("one")), creatable(talk.name("two"), 0))
        for word in ("", ".", "..", "a b", "a/b", LONG, "__consumer_offsets"):
            create(f"named {word[:20]!r}", creatable(word))
        create("almost the same name", creatable(talk.name("plain").replace(".", "_")))
        create("twice", creatable(talk.name("twice")), creatable(talk.name("twice"), 2))
        for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2)):
            create(f"{partitions} by {replicas}", creatable(talk.name("odd"), partitions, replicas))
        for name, value in (
            ("no.such", "1"), ("retention.ms", "soon"), ("retention.ms", None), ("cleanup.policy", "delete,"),
            ("cleanup.policy", "shred"), ("segment.bytes", "1"), ("min.insync.replicas", "0"),
            ("max.message.bytes", "-1"), ("compression.type", "brotli"), ("message.timestamp.type", "Never"),
        ):  # fmt: skip
            settings = [{"name": name, "value": value}]
            create(f"{name}={value}", creatable(talk.name("wrong"), configs=settings))
        for step, assignments in {
            "assigned to none": [{"partition_index": 0, "broker_ids": []}],
            "assigned to another": [{"partition_index": 0, "broker_ids": [2]}],
            "assigned twice": [{"partition_index": 0, "broker_ids": [1, 1]}],
            "assigned with a gap": [{"partition_index": 1, "broker_ids": [1]}],
        }.items():
            create(step, creatable(talk.name("odd"), -1, -1, assignments=assignments))
        assigned_too = creatable(talk.name("odd"), 2, 1, assignments=assigned)
        create("assigned and counted", assigned_too)


@conversation("DeleteTopics")
def topics_are_deleted(talk: Talk) -> None:
    by_id = talk.version("DeleteTopics") >= 6
    for word in ("a", "b", "c", "d"):
        talk.topic(word)

    def delete(step: str, *words: str) -> None:
        names = [talk.name(word) for word in words]
        topics = [{"name": name} for name in names]
        talk.ask("DeleteTopics", step, topic_names=names, topics=topics, timeout_ms=30_000)

    delete("one", "a")
    delete("again", "a")
    delete("some of several", "b", "none")
    delete("twice", "c", "c")
    delete("nothing")
    delete("internal", "no")
    if by_id:
        ids = talk.ids
        for step, topics in {
            "by id": [{"topic_id": ids["d"]}],
            "an id that was": [{"topic_id": ids["a"]}],
            "an id that never was": [{"topic_id": STRANGE_ID}],
            "both": [{"name": talk.name("c"), "topic_id": ids["c"]}],
            "neither": [{}],
        }.items():
            talk.ask("DeleteTopics", step, topics=topics, timeout_ms=30_000)


@conversation("CreatePartitions")
def partitions_are_added(talk: Talk) -> None:
    topic = talk.topic()

    def add(step: str, *topics: dict[str, Any], validate_only: bool = False) -> None:
        talk.ask("CreatePartitions", step, topics=topics, timeout_ms=30_000, validate_only=validate_only)

    for validate_only in (True, False):
        shown = ", only validated" if validate_only else ""
        add(f"to three{shown}", {"name": topic, "count": 3, "assignments": None}, validate_only=validate_only)
        for count in (0, -1, 1):
            add(f"to {count}{shown}", {"name": topic, "count": count, "assignments": None}, validate_only=validate_only)
    add("as many as there are", {"name": topic, "count": 3, "assignments": None})
    add("no such topic", {"name": talk.name("none"), "count": 3, "assignments": None})
    add("twice", {"name": topic, "count": 4, "assignments": None}, {"name": topic, "count": 5, "assignments": None})
    add("assigned", {"name": topic, "count": 4, "assignments": [{"broker_ids": [1]}]})
    add("assigned to another", {"name": topic, "count": 5, "assignments": [{"broker_ids": [2]}]})
    add("assigned to too few", {"name": topic, "count": 7, "assignments": [{"broker_ids": [1]}]})
    add("assigned to nobody", {"name": topic, "count": 5, "assignments": [{"broker_ids": []}]})
    add("too many", {"name": topic, "count": 20_000, "assignments": None}, validate_only=True)
    add("nothing")
    talk.ask("Metadata", "as many as were made", topics=[{"name": topic}], allow_auto_topic_creation=False)


@conversation("Metadata")
def metadata_of_topics(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    by_id = talk.version("Metadata") >= 10

    def look(step: str, *topics: dict[str, Any], **more: Any) -> None:
        fields = {"allow_auto_topic_creation": False, **more}
        talk.ask("Metadata", step, topics=topics, **fields)

    look("one", {"name": topic})
    look("with operations", {"name": topic}, include_topic_authorized_operations=True)
    look("of the cluster", {"name": topic}, include_cluster_authorized_operations=True)
    for word in ("", ".", "a b", LONG):
        look(f"named {word[:9]!r}", {"name": word}, allow_auto_topic_creation=True)
    if talk.version("Metadata") >= 4:
        look("none", {"name": talk.name("none")})
        look("some", {"name": topic}, {"name": talk.name("none")})
    look("twice", {"name": topic}, {"name": topic})
    talk.ask("Metadata", "all", topics=[] if talk.version("Metadata") == 0 else None, mine=True)
    if talk.version("Metadata"):
        look("nothing")
    if by_id:
        look("by id", {"name": None, "topic_id": talk.ids["orders"]})
        look("by a strange id", {"name": None, "topic_id": STRANGE_ID})
        look("by both", {"name": topic, "topic_id": talk.ids["orders"]})
        look("by neither", {"name": None})


@conversation("Metadata")
def metadata_creates_topics(talk: Talk) -> None:
    name = talk.name("made")
    talk.quiet("Metadata", version=4, topics=[{"name": name}], allow_auto_topic_creation=True)
    talk.ask("Metadata", "the second time", topics=[{"name": name}])
    missing = talk.name("not")
    talk.ask(
        "Metadata",
        "not allowed",
        version=max(4, talk.version("Metadata")),
        topics=[{"name": missing}],
        allow_auto_topic_creation=False,
    )


@conversation("DescribeTopicPartitions")
def partitions_are_described(talk: Talk) -> None:
    many, few = talk.topic("many", partitions=3), talk.topic("few")

    def describe(step: str, *names: str, limit: int = 2000, cursor: dict[str, Any] | None = None) -> None:
        topics = [{"name": name} for name in names]
        fields: dict[str, Any] = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
        talk.ask("DescribeTopicPartitions", step, **fields)

    describe("both", many, few)
    describe("none", talk.name("none"))
    describe("some", many, talk.name("none"), few)
    describe("wrong", "a b", "")
    describe("a page", few, many, limit=2)
    describe("from a cursor", few, many, cursor={"topic_name": many, "partition_index": 1})
    describe("from a cursor of another", few, cursor={"topic_name": many, "partition_index": 1})
    describe("a negative cursor", many, cursor={"topic_name": many, "partition_index": -1})
    describe("beyond", many, cursor={"topic_name": many, "partition_index": 9})
    for limit in (0, -1):
        describe(f"limit {limit}", many, limit=limit)


@conversation("DescribeCluster")
def the_cluster(talk: Talk) -> None:
    for operations in (False, True):
        talk.ask("DescribeCluster", f"operations {operations}", include_cluster_authorized_operations=operations)
    for kind in (1, 2, 3):
        talk.ask("DescribeCluster", f"endpoints {kind}", endpoint_type=kind)
    talk.ask("DescribeCluster", "fenced", include_fenced_brokers=True)


@conversation("DescribeLogDirs", "AlterReplicaLogDirs")
def directories_of_logs(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    talk.write(topic, b"a")
    talk.ask("DescribeLogDirs", "both", topics=[{"topic": topic, "partitions": [0, 1, 9]}])
    talk.ask("DescribeLogDirs", "none", topics=[{"topic": talk.name("none"), "partitions": [0]}])
    talk.ask("DescribeLogDirs", "all", topics=None, mine=True)
    talk.ask("DescribeLogDirs", "nothing", topics=[])
    own = talk.quiet("DescribeLogDirs", topics=[]).results[0].log_dir
    for step, path in (("where it is", own), ("elsewhere", "/no/such/directory"), ("a relative path", "logs")):
        topics = [{"name": topic, "partitions": [0]}]
        talk.ask("AlterReplicaLogDirs", step, dirs=[{"path": path, "topics": topics}])
    topics = [{"name": topic, "partitions": [7]}, {"name": talk.name("none"), "partitions": [0]}]
    talk.ask("AlterReplicaLogDirs", "no such partition", dirs=[{"path": own, "topics": topics}])


@conversation("AlterPartitionReassignments", "ListPartitionReassignments")
def partitions_are_moved(talk: Talk) -> None:
    topic = talk.topic()

    def move(step: str, name: str, *partitions: tuple[int, list[int] | None]) -> None:
        wanted = [{"partition_index": number, "replicas": replicas} for number, replicas in partitions]
        talk.ask("AlterPartitionReassignments", step, topics=[{"name": name, "partitions": wanted}])

    move("where it is", topic, (0, [1]))
    move("nothing to cancel", topic, (0, None))
    move("no such partition", topic, (9, [1]))
    move("not even to cancel", topic, (9, None))
    for replicas in ([2], [1, 1], [], [1, 2], [-1]):
        move(f"to {replicas}", topic, (0, replicas))
    move("no such topic", talk.name("none"), (0, [1]), (1, None))
    move("no name", "", (0, [1]))
    move("no partition", topic)
    talk.ask("AlterPartitionReassignments", "nothing")
    for step, topics in {
        "all": None,
        "none": [],
        "one": [{"name": topic, "partition_indexes": [0, 9]}],
        "no such": [{"name": talk.name("none"), "partition_indexes": [0]}],
    }.items():
        talk.ask("ListPartitionReassignments", f"listed, {step}", topics=topics)


@conversation("ElectLeaders")
def leaders_are_elected(talk: Talk) -> None:
    topic = talk.topic()
    places = [{"topic": topic, "partitions": [0, 9]}, {"topic": talk.name("none"), "partitions": [0]}]
    kinds = (0, 1, 7) if talk.version("ElectLeaders") else (0,)
    for kind in kinds:
        talk.ask("ElectLeaders", f"kind {kind}, some", election_type=kind, topic_partitions=places)
        talk.ask("ElectLeaders", f"kind {kind}, nothing", election_type=kind, topic_partitions=[])
        one = [{"topic": topic, "partitions": [0]}]
        talk.ask("ElectLeaders", f"kind {kind}, one", election_type=kind, topic_partitions=one)
        if kind != 7:  # Kafka fails at that one: it makes its error's answer of no topics
            talk.ask("ElectLeaders", f"kind {kind}, all", election_type=kind, topic_partitions=None, mine=True)


@conversation("DescribeQuorum")
def the_quorum(talk: Talk) -> None:
    for names in (["__cluster_metadata"], ["orders"], ["__cluster_metadata", "orders"], []):
        topics = [{"topic_name": name, "partitions": [{"partition_index": 0}]} for name in names]
        talk.ask("DescribeQuorum", " and ".join(names) or "nothing", topics=topics)
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 5}]}]
    talk.ask("DescribeQuorum", "another partition", topics=topics)


@conversation("UpdateFeatures")
def features_are_changed(talk: Talk) -> None:
    version = talk.version("UpdateFeatures")

    def update(step: str, *updates: tuple[str, int], **more: Any) -> None:
        wanted = [{"feature": name, "max_version_level": level} for name, level in updates]
        talk.ask("UpdateFeatures", step, feature_updates=wanted, **more)

    for name, level in (("no.such", 1), ("no.such", 0), ("no.such", -1), ("kraft.version", 99), ("group.version", 9)):
        update(f"{name} to {level}", (name, level))
    update("nothing")
    update("as it is", ("group.version", 1))
    update("as it is, twice", ("group.version", 1), ("share.version", 1))
    update("one of two", ("group.version", 1), ("no.such", 1))
    if version:
        update("only validated", ("transaction.version", 2), validate_only=True)
        update("wrong, only validated", ("no.such", 1), validate_only=True)


@conversation("ApiVersions")
def versions_of_apis(talk: Talk) -> None:
    talk.ask("ApiVersions", client_software_name="raw", client_software_version="1.0")
    if talk.version("ApiVersions") >= 3:
        for name, number in (("", "1"), ("raw", ""), ("a b", "1"), ("raw", "-")):
            talk.ask("ApiVersions", f"{name!r} {number!r}", client_software_name=name, client_software_version=number)
    else:
        talk.ask("ApiVersions", "again on the same connection")


@conversation()
def versions_of_tomorrow(talk: Talk) -> None:
    for api in ("ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup"):
        for version in (99, -1):
            talk.send_raw(f"{api} {version}", api, version, b"")


@conversation("FindCoordinator")
def coordinators(talk: Talk) -> None:
    for kind in (0, 1, 2, 9, -1):
        for word in ("g", ""):
            name = talk.name(word) if word else ""
            talk.ask("FindCoordinator", f"{kind} of {word!r}", key=name, key_type=kind, coordinator_keys=[name])
    talk.ask("FindCoordinator", "several", key=talk.name("a"), coordinator_keys=[talk.name("a"), talk.name("b")])
    topic = talk.topic()
    for key in (f"{talk.name('g')}:{uuid_text(talk.ids['orders'])}:0", "a:b:c", "a:b"):
        shown = "a partition" if topic.split(".")[0] in key else key
        talk.ask("FindCoordinator", f"of a share: {shown}", key=key, key_type=2, coordinator_keys=[key])
    talk.ask("FindCoordinator", "nobody", key="", coordinator_keys=[])
