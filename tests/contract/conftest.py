"""A real S3 server (moto's), and a bucket of each test in it."""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest

from understudy.adapters.embedded.loopback_ports import free_port

SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(scope="module")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    script = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with (tmp_path_factory.mktemp("s3") / "log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait(10)


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    name = f"bucket-{uuid4().hex[:12]}"
    request = urllib.request.Request(f"{s3_endpoint}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
    return name
