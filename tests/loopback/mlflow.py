"""A model registry that answers as MLflow's does; ``tests/servers/test_mlflow_registry.py`` asks a real one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class MlflowServer:
    """Registered models' aliases, each of which names a version; what it answers can be told while it runs."""

    def __init__(self) -> None:
        self.url = ""
        self.aliases: dict[tuple[str, str], str] = {}
        self.mlmodel = ""
        """What each version's file ``MLmodel`` says."""
        self.login: str | None = None
        """The ``authorization`` that it asks for."""
        self.is_broken = False
        self.asked: list[str] = []
        """Paths, in order."""

    def answer(self, target: str, authorization: str | None) -> tuple[int, bytes]:
        """Return what a request gets."""
        parts = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(parts.path)
        if self.is_broken:
            return 500, b"<html>"
        if self.login is not None and authorization != self.login:
            return 401, b"You are not authenticated."
        name, version = asked.get("name", ""), asked.get("version", "")
        if parts.path == "/api/2.0/mlflow/registered-models/alias":
            return self._version_of(name, asked["alias"])
        if parts.path == "/api/2.0/mlflow/model-versions/get-download-uri":
            return 200, json.dumps({"artifact_uri": f"s3://mlflow/{name}/{version}"}).encode()
        if parts.path == "/model-versions/get-artifact" and asked.get("path") == "MLmodel":
            return 200, self.mlmodel.encode()
        return 404, b"Not Found"

    def _version_of(self, name: str, alias: str) -> tuple[int, bytes]:
        number = self.aliases.get((name, alias))
        if number is None:
            said = {"error_code": "INVALID_PARAMETER_VALUE", "message": f"Registered model alias {alias} not found."}
            return 400, json.dumps(said).encode()
        stamp = 1_790_000_000_000 + int(number)
        version = {"name": name, "version": number, "creation_timestamp": stamp, "run_id": "r1", "user_id": "ana"}
        return 200, json.dumps({"model_version": version}).encode()


@contextmanager
def an_mlflow_server() -> Iterator[MlflowServer]:
    """A registry that runs in a thread."""
    registry = MlflowServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("authorization"))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
