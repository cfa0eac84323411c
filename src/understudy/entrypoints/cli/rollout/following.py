"""A rollout on a terminal or as lines of JSON until it ends, from the database or through a proxy."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from understudy.bootstrap.http_control_plane import HttpControlPlane
from understudy.core.rollout.state import Kind, Phase
from understudy.entrypoints.cli.rollout.watch import PROXY_WATCH_SECONDS, ProxyReader, Screen, Seen, follow
from understudy.entrypoints.cli.shared.rendering import data_console, print_json
from understudy.entrypoints.cli.shared.running.reminder import Reminder
from understudy.entrypoints.documents.rollouts import status_document
from understudy.rollout.status import RolloutStatus, StatusReader


@contextmanager
def redrawn(console: Console) -> Iterator[Live]:
    """Show a screen in place; elsewhere than on a terminal its last state is written at the end, as whole lines."""
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield live
    finally:
        if not console.is_terminal:
            console.line()


async def followed(reader: StatusReader, *, as_lines: bool) -> tuple[Phase, Kind]:
    """Show a rollout until it ends, read from the database; return how it ended, and what it was.

    Raises:
        RegistryUnavailable: Postgres did not answer the first look.
    """
    if as_lines:
        reminder = Reminder()

        def tell(status: RolloutStatus) -> None:
            reminder.back()
            print_json(status_document(status, ()))

        last = await follow(reader, tell, reminder.away, _is_over)
    else:
        console = data_console()
        with redrawn(console) as live:
            screen = Screen(console, live)
            last = await follow(reader, screen.tell, screen.away, _is_over)
    return last.view.record.state.phase, last.view.record.state.kind


def _is_over(status: RolloutStatus) -> bool:
    return status.view.record.state.phase.is_final


async def followed_at_proxy(proxy: HttpControlPlane, model: str, *, as_lines: bool) -> tuple[Phase, Kind]:
    """Show a model's newest rollout until it ends, as a proxy draws it; return how it ended, and what it was.

    Raises:
        UnderstudyError: What the proxy says to the first look, or to a key that is good no more.
    """
    console = data_console()
    reader = ProxyReader(proxy.look_again, model, None if as_lines else console.width)
    if as_lines:
        reminder = Reminder("the proxy")

        def tell(seen: Seen) -> None:
            reminder.back()
            print_json(seen.document)

        last = await follow(
            reader, tell, reminder.away, lambda seen: seen.phase.is_final, pause_seconds=PROXY_WATCH_SECONDS
        )
    else:
        with redrawn(console) as live:
            screen = Screen(console, live, "The proxy")
            last = await follow(
                reader,
                screen.tell_seen,
                screen.away,
                lambda seen: seen.phase.is_final,
                pause_seconds=PROXY_WATCH_SECONDS,
            )
    return last.phase, last.kind
