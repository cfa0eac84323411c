"""``understudy serve``: the processes of an installation.

A process is imported when it is asked for: the monitor brings the metrics library, and that one decides at its import
whether a proxy's workers share their figures (see ``entrypoints/proxy/processes/launch.py``).
"""

from importlib import import_module

import typer

from understudy.entrypoints.cli.shared.environment import read_settings, settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import advise
from understudy.entrypoints.cli.shared.running.port_check import require_console_port, require_proxy_ports
from understudy.settings import Settings

_NEEDED_BY_AGENTS = ("server_group", "server_target", "server_control")
app = typer.Typer(
    no_args_is_help=True, help="Run a process of Understudy; settings come from the environment.", add_completion=False
)


@app.command()
def proxy() -> None:
    """Answer predict calls until SIGTERM. DATABASE_URL, REDIS_URL and UNDERSTUDY_* are docs/reference/settings.md."""
    # Numpy, which an agent does without.
    from understudy.bootstrap.tokens import TokensRefused, check_tokens  # noqa: PLC0415
    from understudy.bootstrap.tracing import TracesRefused, check_traces  # noqa: PLC0415

    settings = read_settings()
    try:
        check_traces(settings)
        check_tokens(settings)
    except (TracesRefused, TokensRefused) as problem:
        raise CommandRefused(ExitCode.USAGE, problem.detail, problem.next_step) from None
    require_proxy_ports(settings)
    _serve("understudy.entrypoints.proxy.processes.launch", settings)


@app.command()
def monitor() -> None:
    """Judge rollouts and deliver alerts until SIGTERM; of several monitors one leads, and the others stand by."""
    _serve("understudy.entrypoints.monitor", read_settings())


@app.command()
def console() -> None:
    """Serve the operator console until SIGTERM: pages that show models and rollouts, and take a version back."""
    settings = settings_with_demo()
    require_console_port(settings)
    _serve("understudy.entrypoints.console.launch", settings)


@app.command()
def agent() -> None:
    """Load what is wanted into the model server beside this process until SIGTERM, and unload what is not."""
    settings = settings_with_demo()
    missing = [f"UNDERSTUDY_{name.upper()}" for name in _NEEDED_BY_AGENTS if getattr(settings, name) is None]
    if settings.artifact_root is None and not settings.artifact_stores:
        missing.append("UNDERSTUDY_ARTIFACT_ROOT (or UNDERSTUDY_ARTIFACT_STORES)")
    if missing:
        variables = ", ".join(missing)
        raise CommandRefused(
            ExitCode.USAGE,
            f"an agent needs to know its model server: {variables} not set",
            "See docs/how-to/load-models.md.",
        )
    _serve("understudy.entrypoints.agent", settings)


def _serve(module: str, settings: Settings) -> None:
    if "database_url" not in settings.model_fields_set:
        advise(f"DATABASE_URL is not set: {settings.database_url.get_secret_value()} is used")  # the default, no secret
    raise typer.Exit(import_module(module).serve(settings))
