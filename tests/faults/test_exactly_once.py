"""Consume, transform, produce under kill -9 of the broker and of clients, and under zombies: each record counts once.

Nobody tells the clients when the broker goes, and a client that dies is followed by another with its transactional id.
The moments follow what the clients say they are doing, and a seed. At the end the target, read as committed, is the
source transformed once, in order. Read as uncommitted it is not: what was aborted is there, so there was something to
get wrong; that wrong brokers are found is in test_planted_transactions.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from faults.copying_worker import Job
from faults.exactly_once import ARGUMENTS, PROGRAM, TOPICS, Pipeline, everything, pipeline_on
from faults.processes import child, next_line, tell
from faults.served import ServedDirectory

WORDS = ("begun", "written", "offsets", "committed", "aborted")


def kill_broker(served: ServedDirectory) -> None:
    assert served.end(signal.SIGKILL) == -signal.SIGKILL
    served.start()


def finish_and_judge(served: ServedDirectory, pipeline: Pipeline) -> None:
    pipeline.finish()
    uncommitted = everything(served.bootstrap, "read_uncommitted")
    assert sum(map(len, uncommitted)) > sum(map(len, pipeline.expected)), "nothing was aborted, so nothing was tested"


@pytest.mark.faults
def test_one_kill_of_each_kind_copies_everything_once(tmp_path: Path) -> None:
    with ServedDirectory(tmp_path, *ARGUMENTS) as served, pipeline_on(served, 300) as pipeline:
        pipeline.start()
        pipeline.progress.wait_more("offsets", 1)
        kill_broker(served)
        pipeline.progress.wait_more("written", 1)
        pipeline.copiers[0].kill()
        finish_and_judge(served, pipeline)


def disturb(served: ServedDirectory, pipeline: Pipeline, rng: random.Random, times: int) -> None:
    """Kill the broker or a process, or make one a zombie, when somebody says something."""
    for _ in range(times):
        pipeline.progress.wait_more(rng.choice(WORDS), rng.choice((1, 1, 2, 5)))
        what = rng.choice(("broker", "client", "client", "zombie"))
        if what == "broker":
            kill_broker(served)
        elif what == "client":
            rng.choice(pipeline.copiers).kill()
        else:
            with rng.choice(pipeline.copiers).succeeded():
                pipeline.progress.wait_more("begun", 3)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_at_random_moments_copy_everything_once(tmp_path: Path, seed: int) -> None:
    with ServedDirectory(tmp_path, *ARGUMENTS) as served, pipeline_on(served, 6000) as pipeline:
        pipeline.start()
        disturb(served, pipeline, random.Random(seed), 12)
        finish_and_judge(served, pipeline)


def revive_a_zombie(served: ServedDirectory, client: str, moment: str) -> None:
    """A process is stopped in the middle of a transaction, another one does its work, and then it goes on."""
    job = Job(client, served.bootstrap, TOPICS[0], TOPICS[-1], "copier")
    with (
        child(PROGRAM, *job._replace(pause=moment)) as zombie,
        pipeline_on(served, 60, [job]) as pipeline,
    ):
        while next_line(zombie) != moment:
            pass
        zombie.send_signal(signal.SIGSTOP)
        pipeline.start()
        pipeline.wait_for_all()
        zombie.send_signal(signal.SIGCONT)
        tell(zombie, "go on")
        while (word := next_line(zombie)) in ("written", "offsets"):
            pass
        assert word == "fenced"
        pipeline.judge()


@pytest.mark.faults
@pytest.mark.parametrize("moment", ["begun", "written", "offsets"])
@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_a_zombie_is_fenced_wherever_it_was_stopped(tmp_path: Path, client: str, moment: str) -> None:
    with ServedDirectory(tmp_path, *ARGUMENTS) as served:
        revive_a_zombie(served, client, moment)
