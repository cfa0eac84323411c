"""``understudy source``: follow aliases and tags of registries, which register versions and start their rollouts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.sources import read_sources
from understudy.bootstrap.registering.version_sources import (
    OpenSource,
    SourceMetrics,
    follower_of,
    look_seconds,
    open_sources,
    variable_problems,
)
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
from understudy.rollout.source_follower import SourceReport, not_looked_at
from understudy.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    help="Follow registries: an alias or tag that moves registers a version and starts its rollout.",
    add_completion=False,
)
MIN_SECONDS = 1.0
MAX_LOOKS = 8
"""At a time."""
SourceFile = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", help="Sources, a YAML document for each of them.")
]
WebhookPort = Annotated[
    int | None,
    typer.Option("--webhook-port", min=0, max=65_535, help="Take the registries' webhooks there, and look at once."),
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
    reports = asyncio.run(_looked(_read(file), dry_run=True))
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
        reports = asyncio.run(_looked(specs, dry_run=False))
        show({"sources": document_of(reports)}, *_texts(reports), as_json=as_json)
        found = {report.state for report in reports}
        raise typer.Exit(next((code for state, code in _CODES.items() if state in found), ExitCode.DONE))
    seconds = seconds_of(every, "--every")
    if seconds < MIN_SECONDS:
        raise CommandRefused(ExitCode.USAGE, "--every is at least 1 s", "Webhooks have labels looked at at once.")
    if webhook_port is not None and not all(spec.webhook_secret_env for spec in specs):
        what = "a source names no secret, and anyone could have its registry asked"
        raise CommandRefused(ExitCode.USAGE, what, "Give each source webhook_secret_env: VARIABLE.")
    raise typer.Exit(asyncio.run(_follow(specs, seconds, webhook_port, metrics_port)))


async def _follow(
    specs: Sequence[SourceSpec], seconds: float, webhook_port: int | None, metrics_port: int | None
) -> int:
    from understudy.entrypoints.cli.source.following import (  # noqa: PLC0415 - the log, for who goes on
        Following,
        Ports,
        Telling,
        follow_until_stopped,
    )

    settings = settings_of_place()
    ports = Ports(settings.host, webhook_port, settings.metrics_host, metrics_port)
    async with open_sources(specs, settings) as sources:
        following = Following(sources, seconds, _looker(settings, dry_run=False))
        return await follow_until_stopped(following, ports, Telling(SourceMetrics(specs)))


def _read(file: Path) -> list[SourceSpec]:
    try:
        specs = read_sources(file)
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None
    problems = variable_problems(specs)
    if problems:
        raise CommandRefused(ExitCode.USAGE, "; ".join(problems), f"{file} names them: set them.")
    return specs


async def _looked(specs: Sequence[SourceSpec], *, dry_run: bool) -> list[SourceReport]:
    settings = settings_of_place()
    look = _looker(settings, dry_run=dry_run)
    async with open_sources(specs, settings) as sources:
        return list(await asyncio.gather(*map(look, sources)))


def _looker(settings: Settings, *, dry_run: bool) -> Callable[[OpenSource], Awaitable[SourceReport]]:
    slots, actor, most = asyncio.Semaphore(MAX_LOOKS), this_login(), look_seconds(settings)

    async def look(one: OpenSource) -> SourceReport:
        # This installation is opened anew each time: it may have been away meanwhile, or its key replaced.
        try:
            async with slots, asyncio.timeout(most), open_control_plane() as control_plane:
                return await follower_of(one, control_plane, settings, actor).look(dry_run=dry_run)
        except TimeoutError:
            return not_looked_at(one.spec, f"it took longer than {most:g} s")

    return look


def _texts(reports: Sequence[SourceReport]) -> list[RenderableType]:
    columns = (Column("source"), Column("version"), Column("state"), Column("what holds"))
    rows = [(one.name, one.label or "-", one.state, one.detail) for one in reports]
    done = [
        *(f"registered {one.model_name} {one.label}" for one in reports if one.registered),
        *(f"started rollout {one.started} of {one.model_name} {one.label}" for one in reports if one.started),
    ]
    return [a_table(columns, rows), *(Text("✔ ", "green").append(line, "bold") for line in done)]
