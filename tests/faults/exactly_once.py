"""A pipeline of copying processes under a broker that is killed, and what its last topic has to hold at the end.

    source ──► librdkafka, two members of a group ──► middle ──► aiokafka ──► target

The source is written in transactions, too, of which some are aborted. `Pipeline` runs the processes, and starts again
those that end; `judge` says what is wrong with the target.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from faults.copying_worker import MARK, PARTITIONS, Job
from faults.processes import child
from faults.served import ServedDirectory

TOPICS = ("source", "middle", "target")
ARGUMENTS = (
    *(word for topic in TOPICS for word in ("--create", f"{topic}:{PARTITIONS}")),
    *("-X", "log.segment.bytes=65536", "-X", "group.min.session.timeout.ms=1000"),
    *("-X", "group.initial.rebalance.delay.ms=0"),
)
BOUND_S = 90.0
"""When something that should come has not come: far more than a busy machine needs."""

STARTS_MAX = 100
_TESTS = Path(__file__).resolve().parents[1]
PROGRAM = f"sys.path.insert(0, {str(_TESTS)!r})\nfrom faults.copying_worker import main\nmain()"

ProcessOf = Callable[[Job], AbstractContextManager["subprocess.Popen[str]"]]
"""How a process for a job is started, which says what the one of copying_worker says."""

Found = list[list[bytes]]
"""The values of each partition, in order."""


class Progress:
    """What all processes have said. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.said: Counter[str] = Counter()
        self.endings: list[str] = []
        self.read: dict[tuple[int, int], bytes] = {}

    def note(self, change: Callable[[], None]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def wait(self, what: str, is_so: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, bound_s), f"waited for {bound_s} s: {what}; {self.told()}"

    def wait_more(self, word: str, count: int) -> None:
        """Until processes have said the word so many times more."""
        end = self.said[word] + count
        self.wait(f"{end} times {word!r}", lambda: self.said[word] >= end)

    def told(self) -> str:
        return f"{dict(self.said)}, {len(self.read)} read, ended with {self.endings[-5:]}"


def copying_process(job: Job) -> AbstractContextManager[subprocess.Popen[str]]:
    return child(PROGRAM, *job)


class Copier:
    """One place in the pipeline: a process, and after its end the next one, until it is stopped."""

    def __init__(self, job: Job, progress: Progress, process_of: ProcessOf) -> None:
        self.job = job
        self.progress = progress
        self._process_of = process_of
        self._stopping = threading.Event()
        self._running: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name=job.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for _ in range(STARTS_MAX):
            if self._stopping.is_set():
                return
            with self._process_of(self.job) as process:
                self._running = process
                if self._stopping.is_set():
                    return
                self.follow(process)

    def follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            word = line.rstrip("\n")
            if word.startswith("ends: "):
                self.progress.note(lambda word=word: self.progress.endings.append(word))  # type: ignore[misc]
            else:
                self.progress.note(lambda word=word: self.progress.said.update([word]))  # type: ignore[misc]

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()

    @contextmanager
    def succeeded(self) -> Iterator[None]:
        """Stop the process in the middle of what it does. Another one takes its place meanwhile, and at the end of the
        block it goes on, as a zombie."""
        process = self._running
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        heir = Copier(self.job, self.progress, self._process_of)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)
            heir.stop()

    def stop(self) -> None:
        self._stopping.set()
        self.kill()
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive(), f"{self.job.name} does not end"


class LiveReader:
    """Reads committed records of the target all the time: what it has read has to be there at the end."""

    def __init__(self, bootstrap: str, progress: Progress) -> None:
        self._bootstrap = bootstrap
        self._progress = progress
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        consumer = reader_of(self._bootstrap, "read_committed")
        while not self._stopping.is_set():
            found = {
                (message.partition(), message.offset()): message.value()
                for message in consumer.consume(500, 0.1)
                if message.error() is None
            }
            if found:
                self._progress.note(lambda found=found: self._progress.read.update(found))  # type: ignore[misc]
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(BOUND_S)


def reader_of(bootstrap: str, isolation: str, topic: str = TOPICS[-1]) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    return consumer


def everything(bootstrap: str, isolation: str) -> Found:
    """All values of the target, up to the end that a reader of that isolation is told."""
    consumer = reader_of(bootstrap, isolation)
    found: Found = [[] for _ in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(TopicPartition(TOPICS[-1], number), BOUND_S)[1] for number in range(3)]
    deadline = time.monotonic() + BOUND_S
    while any(place.offset < end for place, end in zip(consumer.position(consumer.assignment()), ends, strict=True)):
        for message in consumer.consume(500, 0.1):
            partition, value = message.partition(), message.value()
            assert partition is not None, message.error()
            assert isinstance(value, bytes), message.error()
            found[partition].append(value)
        if time.monotonic() > deadline:
            break  # what is not there is the judge's to say
    consumer.close()
    return found


def write_source(bootstrap: str, count: int) -> Found:
    """Records in transactions, of which each third is aborted; those that count."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", "log_level": 0})
    producer.init_transactions(BOUND_S)
    written: Found = [[] for _ in range(PARTITIONS)]
    for start in range(0, count, 50):
        for commits in (True, False) if start % 150 == 0 else (True,):
            producer.begin_transaction()
            for number in range(start, min(start + 50, count)):
                value = b"%d" % number if commits else b"aborted %d" % number
                producer.produce(TOPICS[0], value, partition=number % PARTITIONS)
                if commits:
                    written[number % PARTITIONS].append(value)
            producer.flush(BOUND_S)
            (producer.commit_transaction if commits else producer.abort_transaction)(BOUND_S)
    return written


class Pipeline:
    """The processes of both steps, at work."""

    def __init__(self, bootstrap: str, records: int, jobs: Sequence[Job], process_of: ProcessOf) -> None:
        self.bootstrap = bootstrap
        self._process_of = process_of
        self.progress = Progress()
        marks = MARK * len({job.target for job in jobs})
        self.expected = [[value + marks for value in values] for values in write_source(bootstrap, records)]
        self.jobs = jobs
        self.copiers: list[Copier] = []
        self._reader = LiveReader(bootstrap, self.progress)

    def start(self) -> None:
        self.copiers += [Copier(job, self.progress, self._process_of) for job in self.jobs]

    def wait_for_all(self, bound_s: float = BOUND_S) -> None:
        wanted = {value for values in self.expected for value in values}
        self.progress.wait("everything is copied", lambda: wanted <= set(self.progress.read.values()), bound_s)

    def finish(self, bound_s: float = BOUND_S) -> None:
        self.wait_for_all(bound_s)
        self.judge()

    def stop(self) -> None:
        for copier in self.copiers:
            copier.stop()
        self._reader.stop()

    def judge(self) -> None:
        """Nothing is missing, twice or out of order, nothing counts that was aborted, and what a reader was given
        while all this happened is what is there."""
        self.stop()
        # What a process left open when it was stopped is aborted by the next of its id.
        for job in self.jobs:
            names = {"bootstrap.servers": self.bootstrap, "transactional.id": job.name}
            Producer({**names, "log_level": 0}).init_transactions(BOUND_S)
        found = everything(self.bootstrap, "read_committed")
        assert found == self.expected, difference(found, self.expected)
        counted = Counter(value for values in found for value in values)
        read = Counter(self.progress.read.values())
        assert read == counted, f"a reader was given {read - counted}, and not {counted - read}"


def difference(found: Found, expected: Found) -> str:
    have, want = (Counter(value for values in all_values for value in values) for all_values in (found, expected))
    if have == want:
        return "records are out of order"
    return f"missing: {list(want - have)[:10]}; too many: {list(have - want)[:10]}"


@contextmanager
def pipeline_on(
    served: ServedDirectory, records: int, jobs: Sequence[Job] = (), process_of: ProcessOf = copying_process
) -> Iterator[Pipeline]:
    """Written, and the processes not started yet."""
    pipeline = Pipeline(served.bootstrap, records, jobs or both_steps(served.bootstrap), process_of)
    try:
        yield pipeline
    finally:
        pipeline.stop()


def both_steps(bootstrap: str) -> list[Job]:
    source, middle, target = TOPICS
    return [
        Job("confluent", bootstrap, source, middle, "one"),
        Job("confluent", bootstrap, source, middle, "two"),
        Job("aiokafka", bootstrap, middle, target, "three"),
    ]
