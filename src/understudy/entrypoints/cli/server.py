"""``understudy server``: the model servers that agents run beside."""

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from typing import Annotated, Final

import typer
from rich.text import Text

from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.ports.loading.loading_registry import ServerRecord
from understudy.registry.findings.loading import server_trouble, server_trouble_line

app = typer.Typer(no_args_is_help=True, help="The model servers that agents load versions into.", add_completion=False)
AGENT_SECONDS: Final = 15.0
"""Longest time that an agent takes to answer, beside its drain."""

SERVER_COLUMNS = (
    Column("server"),
    Column("group"),
    Column("target", drop=1),
    Column("build", drop=2),
    Column("wanted", right=True),
    Column("available", right=True),
    Column("failed", right=True),
    Column("state"),
)
"""Of ``server list``: the state is what people look for when it is bad, and so is never left out."""


@app.command("list")
def list_servers(*, as_json: AsJson = False) -> None:
    """List the model servers with an agent: what each is to have, and has."""
    servers = with_control_plane(lambda control_plane: control_plane.loading.list_servers())
    rows = [server_row(server) for server in servers]
    text = a_table(SERVER_COLUMNS, rows) if rows else "No agent has reported: understudy serve agent runs one."
    # Of the whole words a column would take the whole width: they stand below the table.
    troubles = [Text(server_trouble_line(server), "red") for server in servers if server_trouble(server)]
    failed = ["→ understudy doctor names what is not loaded, and why"] if any(one.failed for one in servers) else []
    show({"servers": [server._asdict() for server in servers]}, text, *troubles, *failed, as_json=as_json)


@app.command()
def drain(
    *,
    of_itself: Annotated[
        bool, typer.Option("--self", help="The server of the agent in this container, or on this machine.")
    ] = False,
) -> None:
    """Take back every endpoint of a model server that is about to end, and wait until no proxy can call it.

    The last endpoint of a version with a role stays until another server has one.

    The wait ends after UNDERSTUDY_SERVER_DRAIN_SECONDS, with exit code 1. The agent begins again only when it is
    started anew. Of several agents on a machine it is the one at UNDERSTUDY_AGENT_METRICS_PORT.
    """
    if not of_itself:
        raise CommandRefused(
            ExitCode.USAGE, "a server is drained by the agent beside it alone: --self", "Run it where that agent runs."
        )
    settings = read_settings()
    host, port, seconds = _near(settings.metrics_host), settings.agent_metrics_port, settings.server_drain_seconds
    begun = _ask_agent(host, port, "POST", "/drain", AGENT_SECONDS)
    if begun == HTTPStatus.FORBIDDEN:
        raise CommandRefused(
            ExitCode.UNREACHABLE,
            f"the agent at {host}:{port} takes a drain from its own machine alone, and past no proxy",
            "Run the command where the agent runs, or in its pod.",
        )
    if begun != HTTPStatus.OK:
        raise CommandRefused(
            ExitCode.UNREACHABLE, f"what answers at {host}:{port} is no agent, or an older one", "Restart the agent."
        )
    drained = _ask_agent(host, port, "GET", "/drained", seconds + AGENT_SECONDS)
    if drained != HTTPStatus.OK:
        raise CommandRefused(
            ExitCode.PROBLEM,
            f"proxies may still call the server {seconds:g} s after its drain began",
            "The last endpoint of a version with a role stays: understudy server list shows the other servers.",
        )
    typer.echo(
        f"No proxy calls the server of the agent at {host}:{port} any more: stop the two. An agent that is started anew"
        " has it load again."
    )


def _near(host: str) -> str:
    """Return an address of this machine for one that a process listens at."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return ("127.0.0.1" if address.version == 4 else "::1") if address.is_unspecified else host  # noqa: PLR2004 - IPv4


def _ask_agent(host: str, port: int, method: str, path: str, seconds: float) -> int:
    """Return the status of an agent's answer.

    Raises:
        CommandRefused: There is none within so many seconds.
    """
    try:
        with closing(HTTPConnection(host, port, timeout=seconds)) as connection:
            connection.request(method, path)
            return connection.getresponse().status
    except (OSError, HTTPException) as problem:
        raise CommandRefused(
            ExitCode.UNREACHABLE,
            f"no agent answers at {host}:{port}: {problem}",
            "Set UNDERSTUDY_METRICS_HOST and UNDERSTUDY_AGENT_METRICS_PORT as the agent has them.",
        ) from None


def server_row(server: ServerRecord) -> tuple[str | Text, ...]:
    """Return a server's cells; what it has is only what it had where its agent does not see it."""
    trouble = server_trouble(server)
    return (
        server.name,
        server.group_name,
        server.target,
        server.build,
        str(server.wanted),
        Text(f"was {server.available}", "yellow") if trouble else str(server.available),
        str(server.failed),
        Text(trouble, "red") if trouble else "draining" if server.is_draining else "ok",
    )
