"""A real S3 server (moto's) as a process, and the login that it is asked with."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import obstore
from obstore.store import S3Store

from understudy.adapters.embedded.loopback_ports import free_port

SECRET = "a-secret-that-nobody-may-see"
LOGIN = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


@contextmanager
def an_s3_server(folder: Path) -> Iterator[str]:
    """Start the server, and give its address."""
    port = free_port()
    script = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with (folder / "s3.log").open("wb") as log:
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


def make_bucket(endpoint: str, bucket: str, marker: str = "") -> None:
    """Make a bucket, or in a bucket the empty object that stands for a folder, whose key ends with a slash."""
    request = urllib.request.Request(f"{endpoint}/{bucket}{marker}", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def put_object(endpoint: str, bucket: str, key: str, content: bytes) -> None:
    store = S3Store(
        bucket,
        config={
            "endpoint": endpoint,
            "region": LOGIN["AWS_REGION"],
            "access_key_id": LOGIN["AWS_ACCESS_KEY_ID"],
            "secret_access_key": SECRET,
        },
        client_options={"allow_http": True},
    )
    obstore.put(store, key, content)
