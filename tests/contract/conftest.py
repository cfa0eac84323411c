"""A real S3 server (moto's), and a bucket of each test in it; no authority of the machine is trusted."""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from loopback.authorities import one_authority
from loopback.s3 import LOGIN, an_s3_server, make_bucket

__all__ = ["bucket", "one_authority", "s3_endpoint", "s3_login"]


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with an_s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture
def s3_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(s3_endpoint: str, s3_login: None) -> str:
    name = f"bucket-{uuid4().hex[:12]}"
    make_bucket(s3_endpoint, name)
    return name
