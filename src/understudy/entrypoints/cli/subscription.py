"""``understudy subscription``: who is told of events, as CloudEvents or in Slack's format."""

import asyncio
import time
from shlex import quote
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.core.alerts.alerts import Severity
from understudy.core.alerts.events import FAMILIES, KINDS, EventFormat
from understudy.core.durations import duration_words
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, Utc
from understudy.entrypoints.cli.shared.rendering import Column, a_table, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.times import when_words
from understudy.ports.monitoring.notifications import NewSubscription, NotificationRecord, SubscriptionRecord

app = typer.Typer(
    no_args_is_help=True, help="Subscribe receivers to events, list, test and remove them.", add_completion=False
)
POLL_SECONDS = 0.5
Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name, such as ops.")]


@app.command()
def add(
    *,
    name: Name,
    receiver: Annotated[
        str, typer.Option(help="The receiver's name in UNDERSTUDY_RECEIVERS of the monitors, which has its address.")
    ],
    event_format: Annotated[EventFormat, typer.Option("--format", help="What the receiver reads.")] = (
        EventFormat.CLOUDEVENTS
    ),
    model: Annotated[str | None, typer.Option(help="Events of this model only.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help=f"{', '.join(FAMILIES)}, or one such as drift.found; repeatable. All without it."),
    ] = None,
    severity: Annotated[Severity, typer.Option(help="This one, and what is worse.")] = Severity.INFO,
    as_json: AsJson = False,
) -> None:
    """Have a receiver told of events from now on."""
    unknown = [one for one in kind or [] if one not in KINDS]
    if unknown:
        raise CommandRefused(
            ExitCode.USAGE, f"there is no kind of events {unknown[0]!r}", f"They are: {', '.join(KINDS)}."
        )
    new = NewSubscription(name, receiver, event_format, model, tuple(kind or ()), severity)
    made = with_session(lambda session: session.subscriptions.add(new, actor_of_command(None)))
    show(
        {"subscription": _document(made)},
        Text("✔ ", "green").append(f"{name} is told of {_asked_words(new)}", "bold"),
        f"  Try it: understudy subscription test {quote(name)}",
        as_json=as_json,
    )


@app.command("list")
def list_subscriptions(*, utc: Utc = False, as_json: AsJson = False) -> None:
    """List every subscription, with what waits for its receiver; addresses are the monitors' alone."""
    found = with_session(lambda session: session.subscriptions.list_all())
    columns = [
        Column("name"),
        Column("receiver"),
        Column("format", drop=4),
        Column("events"),
        Column("waiting", right=True),
        Column("given up", right=True),
        Column("last delivered", drop=2),
        Column("by", drop=5),
        Column("problem", drop=1),
    ]
    rows = [
        (
            record.subscription.name,
            record.subscription.receiver,
            record.subscription.format.value,
            _asked_words(record.subscription),
            str(record.waiting),
            str(record.given_up),
            "never" if record.delivered_at is None else when_words(record.delivered_at, utc=utc),
            record.created_by,
            nothing_as(record.last_error),
        )
        for record in found
    ]
    text = a_table(columns, rows) if rows else "There is no subscription; understudy subscription add makes one."
    show({"subscriptions": [_document(record) for record in found]}, text, as_json=as_json)


@app.command()
def remove(*, name: Name, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Remove a subscription; what waits for its receiver is given up."""
    gone = with_session(lambda session: session.subscriptions.remove(name, actor_of_command(None), dry_run=dry_run))
    waits = f"; {gone.waiting} notifications that wait are given up" if gone.waiting else ""
    said = f"Would remove {name}{waits}; nothing was changed." if dry_run else f"✔ {name} is removed{waits}"
    document = {**gone.subscription._asdict(), "waiting": gone.waiting}
    show({"subscription": document, "dry_run": dry_run}, said, as_json=as_json)


@app.command("test")
def try_receiver(
    *,
    name: Name,
    wait_seconds: Annotated[
        float, typer.Option("--wait", min=0, max=600, help="How long to wait for the receiver's answer, in seconds.")
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Have the monitor send a test to the receiver, and say what that answers."""

    async def send_and_wait(session: Session) -> NotificationRecord | None:
        store = session.subscriptions
        async with store.shared_session():
            queued = await store.send_test(name, actor_of_command(None))
            until = time.monotonic() + wait_seconds
            while (found := await store.show_notification(queued)) is not None:
                if _is_answered(found) or time.monotonic() >= until:
                    break
                await asyncio.sleep(POLL_SECONDS)
        return found

    found = with_session(send_and_wait)
    document = None if found is None else found._asdict()
    if found is not None and found.is_delivered:
        show({"notification": document}, f"✔ the receiver of {name} took the test", as_json=as_json)
        return
    if found is None or not _is_answered(found):
        raise CommandRefused(
            ExitCode.UNDECIDED,
            f"no monitor has sent the test to the receiver of {name} within {duration_words(round(wait_seconds))}",
            "It stays queued. understudy doctor says whether a monitor leads; notifications before it may hold it up.",
        )
    raise CommandRefused(
        ExitCode.PROBLEM,
        f"the receiver of {name} did not take the test: {found.last_error}",
        "Correct the address in UNDERSTUDY_RECEIVERS of the monitors and restart them, or correct the receiver. "
        + ("Then test it again." if found.is_given_up else "This test is sent again by itself, for a day."),
    )


def _is_answered(found: NotificationRecord) -> bool:
    return found.is_delivered or found.last_error is not None


def _asked_words(asked: NewSubscription) -> str:
    """Return which events a subscription is for."""
    kinds = ", ".join(asked.kinds) or "all events"
    level = "" if asked.severity is Severity.INFO else f", {asked.severity.value} or worse"
    return f"{kinds} of {asked.model_name or 'all models'}{level}"


def _document(record: SubscriptionRecord) -> dict[str, Any]:
    rest = record._asdict()
    del rest["subscription"]
    return {**record.subscription._asdict(), **rest}
