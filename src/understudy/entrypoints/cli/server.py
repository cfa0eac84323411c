"""``understudy server``: the model servers that agents run beside."""

import typer

from understudy.core.durations import duration_words
from understudy.core.loading.wanted import SILENT_SECONDS
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.ports.loading.loading_registry import ServerRecord

app = typer.Typer(
    no_args_is_help=True, help="List the model servers that agents load versions into.", add_completion=False
)


@app.callback()
def root() -> None:
    """Keep ``understudy server`` a group, though ``list`` is its only command."""


@app.command("list")
def list_servers(*, as_json: AsJson = False) -> None:
    """List the model servers with an agent: what each is to have, and has."""
    servers = with_control_plane(lambda control_plane: control_plane.loading.list_servers())
    columns = [
        Column("server"),
        Column("group"),
        Column("target", drop=2),
        Column("build", drop=3),
        Column("wanted", right=True),
        Column("available", right=True),
        Column("failed", right=True),
        Column("state", drop=1),
    ]
    rows = [
        (
            server.name,
            server.group_name,
            server.target,
            server.build,
            str(server.wanted),
            str(server.available),
            str(server.failed),
            state_words(server),
        )
        for server in servers
    ]
    text = a_table(columns, rows) if rows else "No agent has reported: understudy serve agent runs one."
    show({"servers": [server._asdict() for server in servers]}, text, as_json=as_json)


def state_words(server: ServerRecord) -> str:
    """Return what there is to know of a server at a glance."""
    if server.seen_seconds > SILENT_SECONDS:
        return f"agent silent for {duration_words(round(server.seen_seconds))}"
    return server.problem or "ok"
