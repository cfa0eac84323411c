"""What ``understudy log replay`` does once its options are read."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from understudy.bootstrap.log_replay import replay_log
from understudy.entrypoints.cli.log.replay_text import replay_texts
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import advice_console, show
from understudy.entrypoints.documents.experiments import replay_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.experiments.log_replay import ReplayWanted

MAX_WITHIN_SECONDS = 3_600.0


def run_replay(wanted: ReplayWanted, *, as_json: bool) -> None:
    """Replay, and show what was found.

    Raises:
        typer.Exit: With 1 unless every call was sent, answered and compared, and there was one.
    """
    if wanted.within_seconds > MAX_WITHIN_SECONDS:
        raise CommandRefused(ExitCode.USAGE, "--within: a replay may take an hour", "Name 1h, or less.")
    keep_log_off_output()
    settings = settings_with_demo()
    with _progress_bar() as on_calls:
        found = asyncio.run(replay_log(settings, wanted, on_calls))
    show(replay_document(found), *replay_texts(found), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if found.report.is_whole else ExitCode.PROBLEM)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    console = advice_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("replaying", total=None)
        yield lambda calls, of_calls: progress.update(task, completed=calls, total=of_calls)
