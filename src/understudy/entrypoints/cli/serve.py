"""``understudy serve``: the processes of an installation."""

import typer

from understudy.entrypoints.cli.environment import read_settings
from understudy.entrypoints.proxy.server import serve

app = typer.Typer(
    no_args_is_help=True, help="Run a process of Understudy; settings come from the environment.", add_completion=False
)


@app.callback()
def root() -> None:
    """Make ``proxy`` a command of a group."""


@app.command()
def proxy() -> None:
    """Answer predict calls until SIGTERM. DATABASE_URL, REDIS_URL and UNDERSTUDY_* are docs/reference/settings.md."""
    raise typer.Exit(serve(read_settings()))
