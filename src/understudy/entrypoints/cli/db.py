"""``understudy db``: the schema of the database, its partitions, and old months of the log."""

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from understudy.adapters import migrations
from understudy.adapters.postgres_partitions import MOST_MONTHS_AHEAD, ensure_partitions
from understudy.entrypoints.cli.archive import archive
from understudy.entrypoints.cli.environment import settings_with_demo
from understudy.entrypoints.cli.failure import CommandRefused, ExitCode
from understudy.entrypoints.cli.options import AsJson, DryRun
from understudy.entrypoints.cli.rendering import show
from understudy.entrypoints.cli.sql_prompt import find_psql, prompt_call, run_prompt
from understudy.lifecycle.findings import State, judge_roles

app = typer.Typer(
    no_args_is_help=True,
    help="Bring the database's schema up to date, check it, archive old rows, open a SQL prompt.",
    add_completion=False,
)
app.command()(archive)


@app.command()
def upgrade(*, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Bring the schema to the one that this version needs; does nothing when it is there."""
    database_url = settings_with_demo().database_url.get_secret_value()
    before = asyncio.run(migrations.current_revision(database_url))
    after = migrations.head() if dry_run else asyncio.run(migrations.upgrade(database_url))
    document = {"before": before, "after": after, "dry_run": dry_run, "changed": before != after and not dry_run}
    if before == after:
        text = f"✔ schema at {after} already"
    elif dry_run:
        text = f"Would upgrade the schema from {before or 'nothing'} to {after}; nothing was changed."
    else:
        text = f"✔ schema upgraded from {before or 'nothing'} to {after}"
    missing = () if dry_run else asyncio.run(migrations.roles_without_rights(database_url))
    show({**document, "roles_without_rights": missing}, text, *_about_roles(missing), as_json=as_json)


@app.command()
def check(*, as_json: AsJson = False) -> None:
    """Say whether the schema is the one that this version needs; leaves with 1 when it is not."""
    database_url = settings_with_demo().database_url.get_secret_value()
    revision = asyncio.run(migrations.check(database_url))
    missing = asyncio.run(migrations.roles_without_rights(database_url))
    document = {"revision": revision, "roles_without_rights": missing}
    show(document, f"✔ schema at {revision}", *_about_roles(missing), as_json=as_json)


@app.command()
def partitions(
    *,
    months_ahead: Annotated[int, typer.Option(min=0, max=MOST_MONTHS_AHEAD, help="Months to have from now on.")] = 3,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the monthly partitions of PredictionLog that are missing; does nothing when they are there."""
    settings = settings_with_demo()
    made = asyncio.run(
        ensure_partitions(
            settings.database_url.get_secret_value(),
            months_ahead,
            timeout_seconds=settings.database_timeout_seconds,
            dry_run=dry_run,
        )
    )
    text = f"Would make {made} partitions; nothing was changed." if dry_run else f"✔ {made} partitions made"
    document = {"made": 0 if dry_run else made, "missing": made, "months_ahead": months_ahead, "dry_run": dry_run}
    show(document, text if made else f"✔ partitions for {months_ahead} months ahead are there already", as_json=as_json)


@app.command(context_settings={"ignore_unknown_options": True})
def psql(
    *,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[PSQL ARGUMENTS]", help="As psql takes them.")
    ] = None,
) -> None:
    """Open psql on the registry's database: -c "SQL" runs one statement.

    It is this machine's psql, else the one that comes with the demo's Postgres.
    """
    database_url = settings_with_demo().database_url.get_secret_value()
    program = find_psql()
    if program is None:
        raise CommandRefused(
            ExitCode.USAGE, "there is no psql on this machine", "Install Postgres' client, or the extra demo."
        )
    raise typer.Exit(run_prompt(prompt_call(program, database_url, arguments or ()), dict(os.environ)))


def _about_roles(without_rights: Sequence[str]) -> list[Text]:
    found = judge_roles(without_rights)
    if found.state is State.GOOD:
        return []
    return [Text("! ", "yellow").append(f"roles {found.what}\n→ {found.next_step}")]
