"""Java's producer and consumer, of transaction version 2, copy a topic exactly once under kills.

As tests/faults/test_exactly_once does with other clients: the broker and the clients are killed, and clients come back
as zombies.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clusters.kafka_tools import EXACTLY_ONCE
from clusters.maven import KAFKA, JarsUnavailable, class_path, fetch

from faults.copying_worker import Job
from faults.exactly_once import ARGUMENTS, TOPICS, pipeline_on
from faults.served import ServedDirectory
from faults.test_exactly_once import disturb, finish_and_judge


@contextmanager
def java_process(job: Job) -> Iterator[subprocess.Popen[str]]:
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF", "-cp"]
    command += [class_path(fetch(KAFKA)), str(EXACTLY_ONCE), "work", job.bootstrap, job.source, job.target]
    process = subprocess.Popen(
        [*command, job.group, job.name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("seed", range(2))
def test_java_copies_everything_once_under_kills(tmp_path: Path, seed: int) -> None:
    try:
        fetch(KAFKA)
    except JarsUnavailable as missing:
        pytest.skip(str(missing))
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        jobs = [Job("java", served.bootstrap, TOPICS[0], TOPICS[-1], name) for name in ("one", "two")]
        with pipeline_on(served, 6000, jobs, java_process) as pipeline:
            pipeline.start()
            disturb(served, pipeline, random.Random(seed), 8)
            finish_and_judge(served, pipeline)
