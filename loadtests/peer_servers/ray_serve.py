# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Run Ray Serve with its settings for throughput and HAProxy as its ingress, until SIGTERM.

python ray_serve.py <folder> <port>
"""

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


folder, port = Path(sys.argv[1]), int(sys.argv[2])
os.environ.update(
    {
        # Read when ray is imported, and by the processes that it starts.
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": free_port(),
        "RAY_SERVE_HAPROXY_STATS_PORT": free_port(),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
)

import ray  # noqa: E402 - see above
from ray import serve  # noqa: E402
from ray.serve.schema import LoggingConfig  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402
from work import answer  # noqa: E402

from loadtests.plain_body import Body  # noqa: E402


@serve.deployment(
    num_replicas=1,
    max_ongoing_requests=1_000,
    ray_actor_options={"num_cpus": 0.1},
    logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),
)
class Bench:
    """One predict call."""

    async def __call__(self, request: Request) -> Response:
        call = Body.model_validate_json(await request.body())
        return Response(json.dumps(answer(call.entity_id, call.inputs)), media_type="application/json")


ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 1_048_576, log_to_driver=False)
serve.start(http_options={"host": "0.0.0.0", "port": port}, logging_config=LoggingConfig(enable_access_log=False))
serve.run(Bench.bind(), name="bench", route_prefix="/v1/models/bench/predict")
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
stopped.wait()
serve.shutdown()
ray.shutdown()
