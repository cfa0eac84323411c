"""``understudy db``: the schema of the database, its partitions, and old months of the log."""

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from understudy.bootstrap.psql import find_psql
from understudy.bootstrap.schema import (
    LOCK_SECONDS,
    MAX_MONTHS_AHEAD,
    STATEMENT_SECONDS,
    Patience,
    downgrade_schema,
    examine_schema,
    index_entities,
    known_revisions,
    make_partitions,
    upgrade_schema,
)
from understudy.entrypoints.cli.db.archive import archive
from understudy.entrypoints.cli.db.sql_prompt import prompt_call, run_prompt
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.startup.extras import install_advice
from understudy.entrypoints.cli.shared.texts.findings_text import findings_table, findings_verdict
from understudy.entrypoints.documents.findings import finding_document
from understudy.registry.findings.finding import State
from understudy.registry.findings.servers import judge_roles

_MEGABYTE = 1_000_000
app = typer.Typer(
    no_args_is_help=True,
    help="Bring the database's schema up to date, check it, archive old rows, open a SQL prompt.",
    add_completion=False,
)
app.command()(archive)


LockSeconds = Annotated[
    float, typer.Option(min=0.1, max=60, help="Longest wait for one lock; other users of the table queue behind it.")
]
StatementSeconds = Annotated[float, typer.Option(min=1, max=110, help="Longest time of one statement.")]


@app.command()
def upgrade(
    *,
    lock_seconds: LockSeconds = LOCK_SECONDS,
    statement_seconds: StatementSeconds = STATEMENT_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Bring the schema to the one that this version needs; does nothing when it is there."""
    database_url = settings_with_demo().database_url.get_secret_value()
    patience = Patience(lock_seconds, statement_seconds)
    before, after, missing, notes = asyncio.run(upgrade_schema(database_url, patience, dry_run=dry_run))
    document = {"before": before, "after": after, "dry_run": dry_run, "changed": before != after and not dry_run}
    if before == after:
        text = f"✔ schema at {after} already"
    elif dry_run:
        text = f"Would upgrade the schema from {before or 'nothing'} to {after}; nothing was changed."
    else:
        text = f"✔ schema upgraded from {before or 'nothing'} to {after}"
    told = {**document, "roles_without_rights": missing, "notes": notes}
    show(told, text, *(f"! {note}" for note in notes), *_about_roles(missing), as_json=as_json)


@app.command()
def downgrade(
    *,
    revision: Annotated[
        str, typer.Argument(metavar="REVISION", help="Where to go back to, such as 0009; base: nothing.")
    ],
    lose_data: Annotated[
        bool, typer.Option("--lose-data", help="Delete what the older schema has no place for.")
    ] = False,
    lock_seconds: LockSeconds = LOCK_SECONDS,
    statement_seconds: StatementSeconds = STATEMENT_SECONDS,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take migrations back; refuses when that would delete data. A release runs on the next one's schema: keep it."""
    if revision not in (*known_revisions(), "base"):
        known = ", ".join(known_revisions())
        raise CommandRefused(ExitCode.USAGE, f"there is no revision {revision}", f"There are: {known}, and base.")
    database_url = settings_with_demo().database_url.get_secret_value()
    patience = Patience(lock_seconds, statement_seconds)
    work = downgrade_schema(database_url, revision, patience, lose_data=lose_data, dry_run=dry_run)
    before, after, losses = asyncio.run(work)
    document = {"before": before, "after": after, "dry_run": dry_run, "changed": before != after, "losses": losses}
    lost = f"deletes {', '.join(losses)}" if losses else "deletes nothing"
    text = (
        f"Would take the schema from {before or 'nothing'} to {revision}, which {lost}; nothing was changed."
        if dry_run
        else f"✔ schema taken from {before or 'nothing'} to {after or 'nothing'}, which {lost}"
    )
    show(document, text, as_json=as_json)


@app.command()
def check(*, as_json: AsJson = False) -> None:
    """Say whether this release can run on the database, and where not; leaves with 1 for a problem."""
    examined = asyncio.run(examine_schema(settings_with_demo()))
    findings = examined.findings
    problems = sum(finding.state is State.PROBLEM for finding in findings)
    document = {
        **examined._asdict(),
        "findings": [*map(finding_document, findings)],
        "problems": problems,
        "warnings": sum(finding.state is State.WARNING for finding in findings),
    }
    show(document, findings_table(findings), findings_verdict(findings), as_json=as_json)
    raise typer.Exit(ExitCode.PROBLEM if problems else ExitCode.DONE)


@app.command()
def partitions(
    *,
    months_ahead: Annotated[int, typer.Option(min=0, max=MAX_MONTHS_AHEAD, help="Months to have from now on.")] = 3,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the monthly partitions of PredictionLog that are missing; does nothing when they are there."""
    made = asyncio.run(make_partitions(settings_with_demo(), months_ahead, dry_run=dry_run))
    text = f"Would make {made} partitions; nothing was changed." if dry_run else f"✔ {made} partitions made"
    document = {"made": 0 if dry_run else made, "missing": made, "months_ahead": months_ahead, "dry_run": dry_run}
    show(document, text if made else f"✔ partitions for {months_ahead} months ahead are there already", as_json=as_json)


@app.command("index-entities")
def index_by_entity(
    *,
    drop: Annotated[bool, typer.Option("--drop", help="Take the index away.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give PredictionLog an index by entity: an entity's calls are then found at once, and each row costs more.

    It is made month by month while proxies write; a command that was broken off goes on where it was. As the owner.
    """
    before, after = asyncio.run(index_entities(settings_with_demo(), drop=drop, dry_run=dry_run))
    todo = before.indexed if drop else before.missing
    size = f"{after.size_bytes / _MEGABYTE:,.0f} MB"
    if dry_run:
        text = f"Would {'take the index from' if drop else 'index'} {len(todo)} months; nothing was changed."
    elif drop:
        text = f"✔ the index was taken from {len(todo)} months"
    elif todo:
        text = f"✔ {len(todo)} months indexed by entity: {size} in all"
    else:
        text = f"✔ every month has the index already: {size}"
    changed = not dry_run and before != after
    show({**after._asdict(), "dry_run": dry_run, "changed": changed}, text, as_json=as_json)


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
            ExitCode.USAGE,
            "there is no psql on this machine",
            f"Install Postgres' client, or: {install_advice('demo')}",
        )
    raise typer.Exit(run_prompt(prompt_call(program, database_url, arguments or ()), dict(os.environ)))


def _about_roles(without_rights: Sequence[str]) -> list[Text]:
    found = judge_roles(without_rights)
    if found.state is State.GOOD:
        return []
    return [Text("! ", "yellow").append(f"roles {found.what}\n→ {found.next_step}")]
