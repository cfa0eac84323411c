"""Whether a process's ports are free, checked before it starts; a refusal names the setting."""

import errno
import os
import socket
import time
from typing import NamedTuple

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.settings import Settings

PATIENCE_SECONDS = 5.0
"""How long several workers wait for a port, as gunicorn does: the processes before them may be about to end."""
_LOOK_SECONDS = 0.1
Options = tuple[tuple[int, int], ...]
"""Of a socket, by level and name; each is switched on."""
REUSED: Options = ((socket.SOL_SOCKET, socket.SO_REUSEADDR),)
SHARED: Options = (*REUSED, (socket.SOL_SOCKET, socket.SO_REUSEPORT))
"""As workers bind a port which the ones before them may still have."""


def require_proxy_ports(settings: Settings) -> None:
    """Go on only when a proxy can have its port, that of gRPC's calls if there is to be one, and that of its metrics.

    Raises:
        CommandRefused: It cannot; the detail says which and why, the next step which setting names another.
    """
    is_cluster = settings.workers > 1
    # A socket that was handed over, by systemd or by the gunicorn before, is bound already.
    is_handed_over = is_cluster and not {"GUNICORN_FD", "LISTEN_FDS"}.isdisjoint(os.environ)
    patience = PATIENCE_SECONDS if is_cluster else 0.0
    if not is_handed_over:
        # asyncio binds IPv6 addresses without the IPv4 ones that "::" stands for; gunicorn and /metrics leave it open.
        options = REUSED if is_cluster else (*REUSED, (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
        _require(_Wanted(settings.host, settings.port, "predict calls", "HOST", "PORT", options), patience)
    if settings.grpc_port:
        # Of another proxy that shares its own among workers it would take calls, and that one of this one's.
        options = SHARED if is_handed_over else REUSED
        _require(_Wanted(settings.host, settings.grpc_port, "gRPC's calls", "HOST", "GRPC_PORT", options), patience)
    _require(
        _Wanted(settings.metrics_host, settings.metrics_port, "/metrics", "METRICS_HOST", "METRICS_PORT", SHARED),
        patience,
    )


def require_console_port(settings: Settings) -> None:
    """Go on only when the console can have its port.

    Raises:
        CommandRefused: As :func:`require_proxy_ports`.
    """
    options = (*REUSED, (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY))
    _require(
        _Wanted(settings.console_host, settings.console_port, "the console", "CONSOLE_HOST", "CONSOLE_PORT", options),
        0.0,
    )


class _Wanted(NamedTuple):
    """A port, what it is for, and the settings that choose it."""

    host: str
    port: int
    purpose: str
    host_setting: str
    port_setting: str
    options: Options


def _require(wanted: _Wanted, patience: float) -> None:
    host, port, purpose, host_setting, port_setting, options = wanted
    give_up = time.monotonic() + patience
    while (problem := _bind_problem(host, port, options)) is not None:
        if problem.errno != errno.EADDRINUSE:
            raise CommandRefused(
                ExitCode.PROBLEM,
                f"{host}:{port} cannot be had for {purpose}: {problem.strerror or problem}",
                f"Set UNDERSTUDY_{host_setting} to an address of this machine, and UNDERSTUDY_{port_setting} to a port "
                "that this account may have.",
            )
        if time.monotonic() >= give_up:
            raise CommandRefused(
                ExitCode.PROBLEM,
                f"port {port} of {host}, for {purpose}, is taken by another process",
                f"End that one (ss -ltnp 'sport = :{port}' names it), or set UNDERSTUDY_{port_setting} to a port that "
                "is free.",
            )
        time.sleep(_LOOK_SECONDS)


def _bind_problem(host: str, port: int, options: Options) -> OSError | None:
    """Bind as the process will, and let go again; without listening, or a call to another process might be accepted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as tried:
            for level, name in options:
                if level != socket.IPPROTO_IPV6 or family is socket.AF_INET6:
                    tried.setsockopt(level, name, 1)
            tried.bind((host, port))
    except OSError as problem:
        return problem
    return None
