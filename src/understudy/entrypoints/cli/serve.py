"""``understudy serve``: the processes of an installation.

A process is imported when it is asked for: the monitor brings the metrics library, and that one decides at its import
whether a proxy's workers share their figures (see ``entrypoints/proxy/server.py``).
"""

from importlib import import_module

import typer

from understudy.entrypoints.cli.environment import read_settings
from understudy.entrypoints.cli.rendering import advise

app = typer.Typer(
    no_args_is_help=True, help="Run a process of Understudy; settings come from the environment.", add_completion=False
)


@app.command()
def proxy() -> None:
    """Answer predict calls until SIGTERM. DATABASE_URL, REDIS_URL and UNDERSTUDY_* are docs/reference/settings.md."""
    _serve("understudy.entrypoints.proxy.server")


@app.command()
def monitor() -> None:
    """Judge rollouts and deliver alerts until SIGTERM; of several monitors one leads, and the others stand by."""
    _serve("understudy.entrypoints.monitor")


def _serve(module: str) -> None:
    settings = read_settings()
    if "database_url" not in settings.model_fields_set:
        advise(f"DATABASE_URL is not set: {settings.database_url.get_secret_value()} is used")  # the default, no secret
    raise typer.Exit(import_module(module).serve(settings))
