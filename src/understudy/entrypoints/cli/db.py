"""``understudy db``: the schema of the database."""

import asyncio

import typer

from understudy.adapters import migrations
from understudy.entrypoints.cli.environment import settings_with_demo
from understudy.entrypoints.cli.options import AsJson, DryRun
from understudy.entrypoints.cli.rendering import show

app = typer.Typer(
    no_args_is_help=True, help="Bring the database's schema up to date, or check it.", add_completion=False
)


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
    show(document, text, as_json=as_json)


@app.command()
def check(*, as_json: AsJson = False) -> None:
    """Say whether the schema is the one that this version needs; leaves with 1 when it is not."""
    revision = asyncio.run(migrations.check(settings_with_demo().database_url.get_secret_value()))
    show({"revision": revision}, f"✔ schema at {revision}", as_json=as_json)
