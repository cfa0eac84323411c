"""What ``understudy log replay`` does once its options are read."""

import asyncio

import typer

from understudy.bootstrap.log_replay import replay_log
from understudy.entrypoints.cli.log.replay_text import replay_texts
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.documents.experiments import replay_document
from understudy.entrypoints.logs import keep_log_off_output
from understudy.experiments.log_replay import ReplayWanted
from understudy.settings import Settings

MAX_WITHIN_SECONDS = 3_600.0


def run_replay(settings: Settings, wanted: ReplayWanted, *, as_json: bool) -> None:
    """Replay, and show what was found.

    Raises:
        typer.Exit: With 1 unless every call was sent, answered and compared, and there was one.
    """
    if wanted.within_seconds > MAX_WITHIN_SECONDS:
        raise CommandRefused(ExitCode.USAGE, "--within: a replay may take an hour", "Name 1h, or less.")
    keep_log_off_output()
    with progress_bar("replaying", counts=True) as draw:
        work = replay_log(settings, wanted, lambda calls, of_calls: draw(completed=calls, total=of_calls))
        found = asyncio.run(work)
    show(replay_document(found), *replay_texts(found), as_json=as_json)
    raise typer.Exit(ExitCode.DONE if found.report.is_whole else ExitCode.PROBLEM)
