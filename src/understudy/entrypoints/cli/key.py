"""``understudy key``: the keys that authorize callers."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.core.routing.access import Scope, is_scope
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, Utc
from understudy.entrypoints.cli.shared.rendering import Column, a_table, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.shared.times import instant, seconds_of, when_words
from understudy.ports.registry.registry import KeyLimits, KeyRecord, Registry
from understudy.registry.changes import NewKey, create_key

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke callers' keys.", add_completion=False)
MAX_SECONDS = 10 * 365 * 86_400


@app.command()
def create(
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            help="predict, outcomes, read, operate, register (:MODEL behind it: for one model), or keys. Repeatable.",
        ),
    ],
    note: Annotated[str | None, typer.Option(help="Whose key it is, and what for.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Keys of one tenant share what they may use.")] = None,
    calls_per_second: Annotated[float | None, typer.Option(help="Calls that it may make of each proxy.")] = None,
    bytes_per_second: Annotated[
        float | None, typer.Option(help="Bytes of bodies and log rows that it may use of each proxy.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Good for so long: 12h, 30d; by default for good.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key. Its secret is printed once; the registry keeps a hash of it."""
    for one in scope:
        if not is_scope(one):
            kinds = ", ".join(Scope)
            what = f"--scope: there is no scope {one!r}; there are {kinds}"
            raise CommandRefused(ExitCode.USAGE, what, "All but keys also for one model: read:fraud.")
    until = None if expires is None else _moment_after(expires)

    async def make(registry: Registry) -> NewKey:
        limits = KeyLimits(tenant, calls_per_second, bytes_per_second, until)
        return await create_key(registry, scope, note, actor_of_command(None), limits)

    made = with_registry(make)
    scopes = ", ".join(made.record.scopes)
    show(
        {"key": _document(made.record), "credential": made.credential},
        Text("✔ ", "green").append(f"key {made.record.id} for {scopes}; its secret is shown only now:", "bold"),
        "",
        Text(f"  Authorization: Bearer {made.credential}", no_wrap=True, overflow="ignore"),
        as_json=as_json,
    )


@app.command("list")
def list_keys(*, utc: Utc = False, as_json: AsJson = False) -> None:
    """List every key; secrets are kept nowhere."""
    found = with_registry(lambda registry: registry.list_keys())
    columns = [
        Column("id"),
        Column("scopes"),
        Column("state"),
        Column("note", drop=1),
        Column("tenant", drop=4),
        Column("limits", drop=5),
        Column("created", drop=2),
        Column("by", drop=3),
    ]
    rows = [
        (
            key.id,
            ", ".join(key.scopes),
            _state(key, utc=utc),
            nothing_as(key.note),
            nothing_as(key.tenant),
            _limits(key),
            when_words(key.created_at, utc=utc),
            key.created_by,
        )
        for key in found
    ]
    text = a_table(columns, rows) if rows else "There is no key; understudy key create makes one."
    show({"keys": [_document(key) for key in found]}, text, as_json=as_json)


@app.command()
def revoke(
    *,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The part of the key before the dot.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Revoke a key: proxies refuse it within moments."""

    async def end(registry: Registry) -> KeyRecord:
        if not dry_run:
            return await registry.revoke_key(key_id, actor_of_command(None))
        for key in await registry.list_keys():
            if key.id == key_id:
                return key
        raise CommandRefused(ExitCode.NOT_FOUND, f"there is no key {key_id!r}", "understudy key list shows them.")

    key = with_registry(end)
    said = f"Would revoke key {key.id}; nothing was changed." if dry_run else f"✔ key {key.id} is revoked"
    show({"key": _document(key), "dry_run": dry_run}, said, as_json=as_json)


def _limits(key: KeyRecord) -> str:
    rates = ((key.calls_per_second, "calls/s"), (key.bytes_per_second, "bytes/s"))
    return nothing_as(", ".join(f"{rate:g} {unit}" for rate, unit in rates if rate is not None))


def _moment_after(text: str) -> datetime:
    seconds = seconds_of(text, "--expires")
    if not 0 < seconds <= MAX_SECONDS:
        raise CommandRefused(ExitCode.USAGE, "--expires: a key is good for up to ten years", "For example 30d.")
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _state(key: KeyRecord, *, utc: bool) -> str:
    if key.revoked_at is not None:
        return f"revoked {when_words(key.revoked_at, utc=utc)}"
    if key.expires_at is None:
        return "valid"
    if key.expires_at <= datetime.now(UTC):
        return f"expired {when_words(key.expires_at, utc=utc)}"
    return f"valid until {instant(key.expires_at)}"


def _document(key: KeyRecord) -> dict[str, Any]:
    return key._asdict()
