"""Whether the ports that a process is to have are free: said before it starts, in the words of its settings."""

import errno
import os
import socket
import time

from understudy.entrypoints.cli.failure import CommandRefused, ExitCode
from understudy.settings import Settings

PATIENCE_SECONDS = 5.0
"""How long several workers wait for a port, as gunicorn does: the processes before them may be about to leave."""
_LOOK_SECONDS = 0.1


def require_proxy_ports(settings: Settings) -> None:
    """Go on only when a proxy can have its port and that of its metrics.

    Raises:
        CommandRefused: It cannot; the detail says which and why, the next step which setting names another.
    """
    is_cluster = settings.workers > 1
    # A socket that was handed over, by systemd or by the gunicorn before, is bound already.
    is_handed_over = is_cluster and not {"GUNICORN_FD", "LISTEN_FDS"}.isdisjoint(os.environ)
    patience = PATIENCE_SECONDS if is_cluster else 0.0
    if not is_handed_over:
        _require(settings.host, settings.port, "predict calls", "", patience, is_shared=False)
    _require(settings.metrics_host, settings.metrics_port, "/metrics", "METRICS_", patience, is_shared=True)


def _require(host: str, port: int, purpose: str, setting: str, patience: float, *, is_shared: bool) -> None:
    give_up = time.monotonic() + patience
    while (problem := _bind_problem(host, port, is_shared=is_shared)) is not None:
        if problem.errno != errno.EADDRINUSE:
            raise CommandRefused(
                ExitCode.PROBLEM,
                f"{host}:{port} cannot be had for {purpose}: {problem.strerror or problem}",
                f"Set UNDERSTUDY_{setting}HOST to an address of this machine, and UNDERSTUDY_{setting}PORT to a port "
                "that this account may have.",
            )
        if time.monotonic() >= give_up:
            raise CommandRefused(
                ExitCode.PROBLEM,
                f"port {port} of {host}, for {purpose}, is taken by another process",
                f"End that one (ss -ltnp 'sport = :{port}' names it), or set UNDERSTUDY_{setting}PORT to a port that "
                "is free.",
            )
        time.sleep(_LOOK_SECONDS)


def _bind_problem(host: str, port: int, *, is_shared: bool) -> OSError | None:
    """Bind as the process will, and let go again; without listening, or a caller of a neighbour might be accepted."""
    is_ipv6 = ":" in host
    try:
        with socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if is_ipv6:
                # As asyncio does: else "::" is every IPv4 address as well.
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind((host, port))
    except OSError as problem:
        return problem
    return None
