"""nginx as the yardstick: it splits by the hash of a header, without reading the body, checking or logging anything."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.stack import wait_for_port

from loadtests.machine import find_program
from understudy.adapters.embedded.child_process import end
from understudy.adapters.embedded.loopback_ports import free_port

_FRAME = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{http}
}}
"""
_CONSTANT = """
    server {{
        listen 127.0.0.1:{port};
        default_type application/json;
        location / {{ return 200 '{{"prediction":{{"score":0.5}},"model":"bench","version":"1","role":"champion"}}'; }}
    }}
"""
_UPSTREAM = """
    upstream {name} {{ server 127.0.0.1:{port}; keepalive 128; keepalive_requests 1000000000; }}
"""
_SPLIT = """
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    split_clients $http_x_entity_id $variant {{ 10% challenger; * champion; }}
    server {{
        listen 127.0.0.1:{split};
        location / {{ proxy_pass http://$variant; }}
    }}
    server {{
        listen 127.0.0.1:{mirror};
        location / {{ mirror /shadow; proxy_pass http://$variant; }}
        location = /shadow {{ internal; proxy_pass http://shadow$request_uri; }}
    }}
"""
_GRPC = """
    upstream model {{ server 127.0.0.1:{model}; keepalive 128; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://model; }}
    }}
"""


class Nginx:
    """A running nginx; ``ports`` are those it was asked to listen on."""

    def __init__(self, folder: Path, http: str, *ports: int) -> None:
        folder.mkdir()
        folder.chmod(0o755)  # its worker is another user
        configuration = folder / "nginx.conf"
        configuration.write_text(_FRAME.format(folder=folder, http=http))
        command = [find_program("nginx") or "nginx", "-p", str(folder), "-c", str(configuration)]
        self.ports = ports
        self._child = subprocess.Popen([*command, "-e", str(folder / "error.log")])
        for port in ports:
            wait_for_port(port)

    @property
    def pid(self) -> int:
        """Of the master process."""
        return self._child.pid

    def stop(self) -> None:
        """End it and its worker."""
        end(self.pid, [(signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)], self._child)


@contextmanager
def constant_upstreams(folder: Path) -> Iterator[Nginx]:
    """Three servers that answer a constant: champion, challenger, shadow."""
    ports = (free_port(), free_port(), free_port())
    nginx = Nginx(folder, "".join(_CONSTANT.format(port=port) for port in ports), *ports)
    try:
        yield nginx
    finally:
        nginx.stop()


@contextmanager
def splitting_proxy(folder: Path, upstreams: Nginx) -> Iterator[Nginx]:
    """A/B by ``split_clients`` on the first of its ports; ``mirror`` on the second; a constant answer on the third."""
    names = ("champion", "challenger", "shadow")
    blocks = [_UPSTREAM.format(name=name, port=port) for name, port in zip(names, upstreams.ports, strict=True)]
    split, mirror, constant = free_port(), free_port(), free_port()
    servers = [_SPLIT.format(split=split, mirror=mirror), _CONSTANT.format(port=constant)]
    nginx = Nginx(folder, "".join([*blocks, *servers]), split, mirror, constant)
    try:
        yield nginx
    finally:
        nginx.stop()


@contextmanager
def grpc_passing_proxy(folder: Path, model: int) -> Iterator[Nginx]:
    """``grpc_pass`` to the model server on that port, and nothing else."""
    port = free_port()
    nginx = Nginx(folder, _GRPC.format(port=port, model=model), port)
    try:
        yield nginx
    finally:
        nginx.stop()
