"""OpenLineage events of folds: a run of each fold, the topic it reads and the view it writes, with columns and counts.

OpenLineage's own client sends them, to wherever its own settings say (OPENLINEAGE_URL, OPENLINEAGE_CONFIG,
openlineage.yml). One more thread waits for the receiver: folds never do, except at the end of a run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from foldlog.clock import Clock, SystemClock
from foldlog.environment import variable
from foldlog.errors import InvalidArgument, MissingDependency, brief_repr
from foldlog.files.paths import absolute
from foldlog.spark.change_topics.pipelines import WRITES_A_TOPIC
from foldlog.spark.folds.feed import Feed, State
from foldlog.spark.origins.origin import Origin, OriginSpec
from foldlog.spark.watch.watch import Watch
from foldlog.views.contract import META, View
from foldlog.views.topic_lists import topics_in

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

PRODUCER: Final = f"https://github.com/foldlog/foldlog/tree/v{version('foldlog')}"
NAMESPACE: Final = "foldlog"
RUNNING_EVERY_MS: Final = 60_000
"""How often a fold that runs on says how far it is."""

_log = logging.getLogger("foldlog")


class DatasetName(NamedTuple):
    """A dataset as OpenLineage names it."""

    namespace: str
    name: str


@dataclass
class _FoldRun:
    """The run of one fold."""

    run_id: str
    told_ms: float
    told_records: int = 0
    columns: tuple[list[tuple[str, str]], list[tuple[str, str]]] = field(default_factory=lambda: ([], []))
    """Of the topic's rows, and of the view's; known once the fold is prepared."""


def lineage_watch(*, streams: bool) -> Watch:
    """Events through OpenLineage's client. MissingDependency without it; InvalidArgument if it is not told where to."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        raise MissingDependency("OpenLineage events", "openlineage-python", "lineage") from error
    try:
        client = OpenLineageClient()
    except Exception as error:
        raise InvalidArgument(f"OpenLineage's settings cannot be used: {error}") from error
    if client.transport.kind == "console":
        raise InvalidArgument(
            "say where OpenLineage events go: OPENLINEAGE_URL=http://host:5000, or OPENLINEAGE_CONFIG=openlineage.yml"
        )
    return Lineage(client, streams=streams)


class Lineage(Watch):
    """START for each fold, RUNNING once a minute while it moves, and at the end COMPLETE, FAIL or ABORT."""

    def __init__(self, client: OpenLineageClient, *, streams: bool = False, clock: Clock | None = None) -> None:
        self._client = client
        self._streams = streams
        self._clock = clock or SystemClock()
        self._namespace = variable("OPENLINEAGE_NAMESPACE") or NAMESPACE
        self._parent = parent_of(variable("OPENLINEAGE_PARENT_ID"))
        self._spec: OriginSpec | None = None
        self._runs: dict[str, _FoldRun] = {}
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="foldlog-lineage")
        self._is_told = False

    def began(self, feeds: Sequence[Feed], origin: Origin) -> None:
        from openlineage.client.uuid import generate_new_uuid

        self._spec = origin.spec
        for feed in feeds:
            self._runs[feed.fold.title] = _FoldRun(str(generate_new_uuid()), self._clock.monotonic_ms())
            self._emit(feed, "START")

    def progressed(self, feed: Feed) -> None:
        run = None if feed.label else self._runs.get(feed.fold.title)
        if run is None:
            return
        now_ms = self._clock.monotonic_ms()
        if feed.records > run.told_records and now_ms - run.told_ms >= RUNNING_EVERY_MS:
            run.told_ms, run.told_records = now_ms, feed.records
            self._emit(feed, "RUNNING")

    def ended(self, feeds: Sequence[Feed], error: BaseException | None) -> None:
        for feed in feeds:
            if feed.label or feed.fold.title not in self._runs:
                continue
            if feed.error:
                self._emit(feed, "FAIL", feed.error)
            elif error is not None and not isinstance(error, TimeoutError) and feed.state is not State.CAUGHT_UP:
                self._emit(feed, "FAIL", str(error))
            elif self._streams or feed.state is State.CAUGHT_UP:
                self._emit(feed, "COMPLETE")  # a run that follows the log ends only because it is stopped
            else:
                self._emit(feed, "ABORT")

    def close(self) -> None:
        self._sender.shutdown()
        self._client.close()

    def _emit(self, feed: Feed, kind: str, error: str | None = None) -> None:
        run = self._runs[feed.fold.title]
        if feed.prepared is not None:
            run.columns = (
                [
                    (one.name, one.dataType.simpleString())
                    for one in feed.prepared.frames.schema
                    if one.name not in META
                ],
                [(one.name, str(one.type)) for one in feed.prepared.shape.columns],
            )
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat()
        event = self._event(feed, run, kind, error, at)
        self._sender.submit(self._send, event)

    def _send(self, event: RunEvent) -> None:
        try:
            self._client.emit(event)
        except Exception as error:  # noqa: BLE001 whatever the transport fails with
            if not self._is_told:
                self._is_told = True
                _log.warning("OpenLineage events cannot be sent, the folds go on without: %s", error)

    def _event(self, feed: Feed, run: _FoldRun, kind: str, error: str | None, at: str) -> RunEvent:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            input_statistics_input_dataset as read,
        )
        from openlineage.client.facet_v2 import (
            job_type_job,
            schema_dataset,
            source_code_location_job,
        )
        from openlineage.client.facet_v2 import (
            output_statistics_output_dataset as stored,
        )

        def columns(given: list[tuple[str, str]]) -> dict[str, Any]:
            fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in given]
            return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)} if fields else {}

        job: dict[str, Any] = {
            "jobType": job_type_job.JobTypeJobFacet(
                "STREAMING" if self._streams else "BATCH", "FOLDLOG", "FOLD", producer=PRODUCER
            )
        }
        if feed.fold.file is not None:
            job["sourceCodeLocation"] = source_code_location_job.SourceCodeLocationJobFacet(
                "file", f"file://{feed.fold.file}", producer=PRODUCER
            )
        topics, view = _topics_read(feed), view_name(feed.fold.view, self._spec or OriginSpec())
        is_start = kind == "START"
        return RunEvent(
            eventType=RunState[kind],
            eventTime=at,
            producer=PRODUCER,
            run=Run(run.run_id, self._run_facets(error)),
            job=Job(self._namespace, feed.fold.title, job),
            inputs=[
                InputDataset(
                    *topic_name(self._spec or OriginSpec(), topic),
                    facets=columns(run.columns[0]),
                    inputFacets={}  # which of several topics the records were of, nobody has counted
                    if is_start or len(topics) > 1
                    else {"inputStatistics": read.InputStatisticsInputDatasetFacet(feed.records, producer=PRODUCER)},
                )
                for topic in topics
            ],
            outputs=[
                OutputDataset(
                    *view,
                    facets=columns(run.columns[1]),
                    outputFacets={}
                    if is_start
                    else {"outputStatistics": stored.OutputStatisticsOutputDatasetFacet(feed.rows, producer=PRODUCER)},
                )
            ],
        )

    def _run_facets(self, error: str | None) -> dict[str, Any]:
        from openlineage.client.facet_v2 import error_message_run, parent_run, processing_engine_run

        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version("pyspark"), "spark", version("foldlog"), producer=PRODUCER
            )
        }
        if self._parent is not None:
            namespace, name, run_id = self._parent
            facets["parent"] = parent_run.ParentRunFacet(
                parent_run.Run(run_id), parent_run.Job(namespace, name), producer=PRODUCER
            )
        if error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "Python", producer=PRODUCER)
        return facets


# --- names ----------------------------------------------------------------------------------------------------------


def parent_of(text: str) -> tuple[str, str, str] | None:
    """The job and the run that started this one, as Airflow's `lineage_parent_id` writes them.

    >>> parent_of("etl/nightly.fold/01941f29-7c00-7087-8940-40e502bdb6e9")
    ('etl', 'nightly.fold', '01941f29-7c00-7087-8940-40e502bdb6e9')
    """
    if not text:
        return None
    before, slash, run_id = text.rpartition("/")
    namespace, other_slash, name = before.rpartition("/")
    if not slash or not other_slash or not namespace or not name or not run_id:
        raise InvalidArgument(f"OPENLINEAGE_PARENT_ID={brief_repr(text)} is not NAMESPACE/JOB/RUN_ID")
    return namespace, name, run_id


def _topics_read(feed: Feed) -> list[str]:
    """The topics of a fold; those that its view has met, if it reads several as one."""
    topic = feed.fold.topic
    if not topic.is_several:
        return [topic.name]
    return topics_in(feed.bookmark.topic) if feed.bookmark is not None else list(topic.names)


def topic_name(spec: OriginSpec, topic: str) -> DatasetName:
    """
    >>> topic_name(OriginSpec(bootstrap="one:9092,two:9092"), "payments")
    DatasetName(namespace='kafka://one:9092', name='payments')
    >>> topic_name(OriginSpec(path="/srv/data"), "payments")
    DatasetName(namespace='file', name='/srv/data/payments')
    """
    if spec.path is not None:
        return DatasetName("file", f"{absolute(spec.path)}/{topic}")
    return DatasetName(f"kafka://{(spec.bootstrap or '').partition(',')[0]}", topic)


_PLACES: Final[Mapping[str, Callable[[Mapping[str, Any]], DatasetName]]] = {
    "postgresql": lambda found: _postgres_name(str(found["url"]), str(found["name"])),
}


def view_name(view: View, spec: OriginSpec) -> DatasetName:
    """Of a table its database and its name, of files their path; of a topic what it is called as an input, so that the
    folds behind it join on; of a view of one's own its place.
    """
    if isinstance(view, WRITES_A_TOPIC):
        return topic_name(spec, view.topic)
    found = view.description()
    if found is None:
        return DatasetName(NAMESPACE, view.place)
    named = _PLACES.get(str(found.get("engine")))
    if named is not None:
        return named(found)
    path = found.get("path")
    if not isinstance(path, str):
        return DatasetName(NAMESPACE, view.place)
    name = f"/{found['name']}" if "name" in found else ""
    parts = urlsplit(path)
    if parts.scheme and parts.netloc:
        return DatasetName(f"{parts.scheme}://{parts.netloc}", f"{parts.path.strip('/')}{name}")
    return DatasetName("file", f"{path}{name}")


def _postgres_name(url: str, table: str) -> DatasetName:
    """
    >>> _postgres_name("postgresql://ann@db:6432/shop?sslmode=require", "public.payments")
    DatasetName(namespace='postgres://db:6432', name='shop.public.payments')
    """
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2].partition(",")[0] or "localhost"
    schema_and_table = table if "." in table else f"public.{table}"
    return DatasetName(
        f"postgres://{where if ':' in where else f'{where}:5432'}", f"{parts.path.strip('/')}.{schema_and_table}"
    )
