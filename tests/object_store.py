"""A real S3 server for tests: moto's, in a process of its own, on a free port of 127.0.0.1, gone with the run.

What is in a bucket is told by boto3, and not by what the views use.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config

SECRET: Final = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
KEY_ID: Final = "AKIAIOSFODNN7EXAMPLE"
REGION: Final = "us-east-1"

# The server chooses the port itself, so nobody can be quicker, and says it.
_SERVER: Final = """
import logging
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own for a test."""

    endpoint: str
    name: str

    def url(self, path: str) -> str:
        return f"s3://{self.name}/{path}"

    @property
    def options(self) -> dict[str, str]:
        """As deltalake names them."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def properties(self) -> dict[str, str]:
        """As pyiceberg names them."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": KEY_ID,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        }

    def objects(self, prefix: str = "") -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def make(self) -> None:
        self._client.create_bucket(Bucket=self.name)

    @property
    def _client(self) -> Any:
        return _client_of(self.endpoint)


@cache
def _client_of(endpoint: str) -> Any:
    """Making one takes longer than most requests."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        region_name=REGION,
        config=Config(retries={"total_max_attempts": 1}),
    )


@contextmanager
def served() -> Iterator[str]:
    """The server's URL."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().decode().strip()
            assert port, "moto's server has ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    with served() as url:
        yield url


@pytest.fixture
def bucket(s3_server: str) -> Bucket:
    made = Bucket(s3_server, f"lake-{uuid.uuid4().hex[:12]}")
    made.make()
    return made
