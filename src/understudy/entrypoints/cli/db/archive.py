"""``understudy db archive``: old months of the log into files."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.bootstrap.prediction_log.archive import ages_of, open_archiver
from understudy.core.prediction_log.archive_plan import Step
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.options import AsJson, DryRun
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.cli.shared.times import seconds_of
from understudy.retention import archiver
from understudy.retention.archiver import Moved, Planned
from understudy.settings import Settings

_DOING = {
    Step.EXPORT: "writing",
    Step.VERIFY: "reading back",
    Step.DETACH: "taking out",
    Step.DROP: "dropping",
}
_PLANNED = {
    Step.EXPORT: "to be archived",
    Step.VERIFY: "begun: its files are to be read back",
    Step.DETACH: "begun: its files are to be read back",
    Step.DROP: "begun: its files are to be read back",
}


def archive(
    *,
    dry_run: DryRun = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="How long after its end a month goes, such as 30d; else the settings say."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="s3://bucket/prefix or a folder, in place of UNDERSTUDY_ARCHIVE_URL.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move old months of the prediction log into Parquet files, read them back, and drop them from Postgres.

    Killed at any moment, the next run goes on where this one was. Run it once a day.
    """
    settings = settings_with_demo()
    after_seconds = None if older_than is None else seconds_of(older_than, "--older-than")
    location, months = asyncio.run(_archive(settings, to, after_seconds, dry_run=dry_run))
    document = {"archive": {"location": location, "dry_run": dry_run, "months": [_document(one) for one in months]}}
    show(document, *_texts(location, months, dry_run=dry_run), as_json=as_json)


async def _archive(
    settings: Settings, to: str | None, after_seconds: float | None, *, dry_run: bool
) -> tuple[str, Sequence[Moved] | Sequence[Planned]]:
    ages, now = ages_of(settings, after_seconds), time.time()
    with progress_bar("looking") as draw:

        def on_progress(done: archiver.Progress) -> None:
            text = f"{done.partition_name}: {_DOING[done.step]}, {done.rows:,} rows"
            draw(description=text, completed=done.rows, total=done.of_rows)

        async with open_archiver(settings, to, on_progress) as (mover, store):
            months = await mover.plan(now, ages) if dry_run else await mover.run(now, ages)
            return store.location, months


def _document(month: Moved | Planned) -> dict[str, Any]:
    document = month._asdict()
    document["start"], document["end"] = (datetime.fromtimestamp(at, UTC) for at in (month.start, month.end))
    return document


def _texts(location: str, months: Sequence[Moved] | Sequence[Planned], *, dry_run: bool) -> list[Any]:
    if not months:
        return [Text("✔ no month is old enough", "green")]
    rows = sum(month.rows for month in months)
    count = f"{len(months)} month{'' if len(months) == 1 else 's'}, {rows:,} rows"
    head = (
        Text(f"Would move {count} to {location}; nothing was changed.", "bold")
        if dry_run
        else Text("✔ ", "green").append(f"{count} moved to {location}", "bold")
    )
    columns = [Column("month"), Column("rows", right=True), Column("what became of it", drop=1)]
    return [head, a_table(columns, [(_month_of(month), f"{month.rows:,}", _came_to(month)) for month in months])]


def _month_of(month: Moved | Planned) -> str:
    return f"{datetime.fromtimestamp(month.start, UTC):%Y-%m}"


def _came_to(month: Moved | Planned) -> str:
    if isinstance(month, Planned):
        return _PLANNED[month.first_step]
    return f"{month.files} files, {month.size_bytes / 1e6:,.1f} MB, read back"
