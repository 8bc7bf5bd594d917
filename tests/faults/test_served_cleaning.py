"""`foldlog serve` on a directory with damage in a compacted topic: one line says so, producers and the other topics go
on, nothing is rewritten again and again, and SIGTERM ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

import foldlog
from cli.serving import ANY_PORT, serving
from foldlog.records import batch as fmt
from foldlog.records.loops import walk

pytestmark = pytest.mark.faults


def make(directory: Path) -> None:
    with foldlog.open(directory) as log:
        for topic in ("bad", "good"):
            log.create_topic(topic, config={"cleanup.policy": "compact", "segment.bytes": 16384})
            for number in range(400):
                log.append(topic, b"%d" % number * 40, key=b"k%d" % (number % 5))


@pytest.mark.parametrize("upwards", [True, False])
def test_damage_in_one_topic_is_one_line_and_everything_else_goes_on(tmp_path: Path, upwards: bool) -> None:
    data = tmp_path / "data"
    make(data)
    sealed = sorted((data / "bad-0").glob("*.log"))[1]
    image = bytearray(sealed.read_bytes())
    last = walk(image).headers[-1].position
    image[last + (fmt.LENGTH_AT - 6 if upwards else fmt.LENGTH_AT - 1)] ^= 0x10
    sealed.write_bytes(image)
    before = {path.name: path.read_bytes() for path in sorted((data / "bad-0").glob("*.log"))[:-1]}
    with serving(str(data), *ANY_PORT) as broker:
        assert broker.process.stderr is not None
        told = next(line for line in broker.process.stderr if "compacting" in line)
        assert f"{sealed.name} is damaged at byte" in told
        assert "foldlog check --cut-out" in told
        with foldlog.open(data) as log:
            for topic in ("bad", "good"):
                log.append(topic, b"after", key=b"k0")
            assert log.offsets("good")[0][1] == 401
        assert broker.end() == 0
    assert [line for line in broker.errors if "damaged" in line or "Traceback" in line] == []
    assert {path: (data / "bad-0" / path).read_bytes() for path in before} == before
    with foldlog.open(data, mode="r") as log:
        assert len(list(log.read("good"))) < 400
