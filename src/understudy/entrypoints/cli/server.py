"""``understudy server``: the model servers that agents run beside."""

import typer
from rich.text import Text

from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.ports.loading.loading_registry import ServerRecord
from understudy.registry.findings.loading import server_trouble, server_trouble_line

app = typer.Typer(
    no_args_is_help=True, help="List the model servers that agents load versions into.", add_completion=False
)

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


@app.callback()
def root() -> None:
    """Keep ``understudy server`` a group, though ``list`` is its only command."""


@app.command("list")
def list_servers(*, as_json: AsJson = False) -> None:
    """List the model servers with an agent: what each is to have, and has."""
    servers = with_control_plane(lambda control_plane: control_plane.loading.list_servers())
    rows = [server_row(server) for server in servers]
    text = a_table(SERVER_COLUMNS, rows) if rows else "No agent has reported: understudy serve agent runs one."
    # Of the whole words a column would take the whole width: they stand below the table.
    troubles = [Text(server_trouble_line(server), "red") for server in servers if server_trouble(server)]
    show({"servers": [server._asdict() for server in servers]}, text, *troubles, as_json=as_json)


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
        Text(trouble, "red") if trouble else "ok",
    )
