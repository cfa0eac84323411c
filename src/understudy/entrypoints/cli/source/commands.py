"""``understudy source``: follow labels of model registries, which register versions and start their rollouts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.sources import read_sources
from understudy.bootstrap.registering.version_sources import open_followers, unset_variables
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.entrypoints.cli.shared.actor import this_login
from understudy.entrypoints.cli.shared.environment import settings_of_place
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import open_control_plane
from understudy.entrypoints.cli.shared.times import seconds_of
from understudy.entrypoints.documents.json_text import document_of
from understudy.entrypoints.logs import keep_log_off_output
from understudy.rollout.source_follower import SourceReport

app = typer.Typer(
    no_args_is_help=True,
    help="Follow model registries: a label that moves registers a version and starts its rollout.",
    add_completion=False,
)
MIN_SECONDS = 1.0
SourceFile = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", help="Sources, a YAML document for each of them.")
]
WebhookPort = Annotated[
    int | None,
    typer.Option(
        "--webhook-port", min=0, max=65_535, help="Take the registry's signed webhooks there, and look at once."
    ),
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=0, max=65_535, help="Serve metrics for Prometheus there.")
]
_CODES = {
    SourceState.AWAY: ExitCode.UNREACHABLE,
    SourceState.REFUSED: ExitCode.PROBLEM,
    SourceState.WAITING: ExitCode.UNDECIDED,
}
"""Of several states the first one here is the command's exit code."""


@app.command("show")
def show_sources(*, file: SourceFile, as_json: AsJson = False) -> None:
    """Say what each label names, how far that version is, and what would be done; change nothing."""
    keep_log_off_output()
    reports = _looked(_read(file), dry_run=True)
    show({"sources": document_of(reports)}, *_texts(reports), as_json=as_json)


@app.command()
def follow(
    *,
    file: SourceFile,
    once: Annotated[bool, typer.Option("--once", help="Look once and leave, for a job that a clock starts.")] = False,
    every: Annotated[str, typer.Option(metavar="TIME", help="Between two looks.")] = "1m",
    webhook_port: WebhookPort = None,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Do what labels ask for until SIGTERM: register the version that one names, and start its rollout, once."""
    specs = _read(file)
    if once:
        keep_log_off_output()
        reports = _looked(specs, dry_run=False)
        show({"sources": document_of(reports)}, *_texts(reports), as_json=as_json)
        found = {report.state for report in reports}
        raise typer.Exit(next((code for state, code in _CODES.items() if state in found), ExitCode.DONE))
    seconds = seconds_of(every, "--every")
    if seconds < MIN_SECONDS:
        raise CommandRefused(ExitCode.USAGE, "--every is at least 1 s", "Webhooks have labels looked at at once.")
    if webhook_port is not None and not all(spec.webhook_secret_env for spec in specs):
        what = "a source names no secret, and anyone could have its registry asked"
        raise CommandRefused(ExitCode.USAGE, what, "Give each source webhook_secret_env: VARIABLE.")
    from understudy.entrypoints.cli.source.following import (  # noqa: PLC0415 - the log, for who goes on
        Following,
        Ports,
        follow_until_stopped,
    )

    settings = settings_of_place()

    async def look() -> list[SourceReport]:
        # Anew each time: a key that was replaced in its file, or a database that was away, is then no matter.
        async with (
            open_control_plane() as control_plane,
            open_followers(specs, control_plane, settings, this_login()) as followers,
        ):
            return [await follower.look() for follower in followers]

    ports = Ports(settings.host, webhook_port, settings.metrics_host, metrics_port)
    raise typer.Exit(asyncio.run(follow_until_stopped(Following(specs, seconds, look), ports)))


def _read(file: Path) -> list[SourceSpec]:
    try:
        specs = read_sources(file)
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None
    unset = unset_variables(specs)
    if unset:
        raise CommandRefused(ExitCode.USAGE, f"{', '.join(unset)}: not set", f"{file} names them: set them.")
    return specs


def _looked(specs: Sequence[SourceSpec], *, dry_run: bool) -> list[SourceReport]:
    settings, actor = settings_of_place(), this_login()

    async def look() -> list[SourceReport]:
        async with (
            open_control_plane() as control_plane,
            open_followers(specs, control_plane, settings, actor) as followers,
        ):
            return [await follower.look(dry_run=dry_run) for follower in followers]

    return asyncio.run(look())


def _texts(reports: Sequence[SourceReport]) -> list[RenderableType]:
    columns = (Column("source"), Column("version"), Column("state"), Column("what holds"))
    rows = [(one.name, one.label or "-", one.state, one.detail) for one in reports]
    done = [
        *(f"registered {one.model_name} {one.label}" for one in reports if one.registered),
        *(f"started rollout {one.started} of {one.model_name} {one.label}" for one in reports if one.started),
    ]
    return [a_table(columns, rows), *(Text("✔ ", "green").append(line, "bold") for line in done)]
