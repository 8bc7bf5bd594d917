"""Jars from Maven Central, fetched once into a cache that tests and benchmarks share."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from clusters.cache import cached

KAFKA_VERSION: Final = "4.3.1"
"""Of the broker and its tools: the newest that Maven Central has, in November 2026. Of 4.4 it has the clients only."""

SCHEMAS_VERSION: Final = "4.4.0"
"""Of the messages: the newest release, whose schemas are in its clients."""

SPARK_KAFKA_VERSION: Final = "4.2.0"
SPARK_KAFKA_TOKEN_VERSION: Final = "4.0.0"
"""The newest that Maven Central has, in November 2026: there is neither for Spark 4.3, which runs with these."""

KAFKA: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # what its release ships beside them, to write its log with
)
SCHEMAS: Final = (f"org.apache.kafka:kafka-clients:{SCHEMAS_VERSION}",)
KAFKA_STREAMS: Final = (*KAFKA, f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}")
SPARK_KAFKA: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_KAFKA_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{SPARK_KAFKA_TOKEN_VERSION}",
)

FETCH_TIMEOUT_S: Final = 600

_CENTRAL: Final = (
    "<repository><id>gcs-maven-central-mirror</id><url>https://repo.maven.apache.org/maven2</url></repository>"
)
"""Spark's parent names a mirror by this id and asks it first, reachable or not. Ours of the same id goes before it."""


class JarsUnavailable(Exception):
    """There is no Java or Maven here, or Maven Central cannot be reached. The text says which, and what to do."""


def fetch(coordinates: tuple[str, ...]) -> Path:
    """A directory with these artifacts (group:artifact:version, or with a classifier after that) and what they need at
    run time. Any number of processes may ask at once.
    """
    _check_tools()
    return cached("jars", "\n".join(coordinates).encode(), partial(_copy_dependencies, coordinates))


def fetch_archive(artifact: str) -> Path:
    """A directory with what is in this archive, a program as its release ships it."""
    _check_tools()
    return cached("archives", artifact.encode(), partial(_unpack, artifact))


def class_path(directory: Path) -> str:
    return str(directory / "*")


def _check_tools() -> None:
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            raise JarsUnavailable(
                f"{command} is not installed; enable with: apt-get install default-jdk-headless maven"
            )


def _copy_dependencies(coordinates: tuple[str, ...], directory: Path) -> None:
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={directory}", "-DincludeScope=runtime")
    _run_maven(goal, coordinates, ", ".join(coordinates))


def _unpack(artifact: str, directory: Path) -> None:
    _run_maven(("dependency:unpack", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"), (), artifact)


def _run_maven(goal: tuple[str, ...], coordinates: tuple[str, ...], wanted: str) -> None:
    """In a project that depends on these."""
    with tempfile.TemporaryDirectory() as project:
        (Path(project) / "pom.xml").write_text(_project(coordinates), encoding="utf-8")
        done = subprocess.run(
            ["mvn", "-B", "-q", *goal],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise JarsUnavailable(f"Maven could not fetch {wanted}: {done.stdout[-2000:]}{done.stderr}")


def _project(coordinates: tuple[str, ...]) -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{one}</classifier>' for one in classifier)}</dependency>"
        for group, artifact, version, *classifier in (escape(one).split(":") for one in coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>foldlog</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<repositories>{_CENTRAL}</repositories><dependencies>{wanted}</dependencies></project>"
    )
