"""A progress bar on standard error, where that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from understudy.entrypoints.cli.shared.rendering import advice_console


@contextmanager
def progress_bar(doing: str, total: float | None = None, *, counts: bool = False) -> Iterator[Callable[..., None]]:
    """Yield what updates the bar: its ``description``, and how much is ``completed`` of the ``total``.

    Args:
        doing: What is done, until the first update says more.
        total: Of the work; ``None`` while it is unknown.
        counts: Show ``3/200`` in place of percent and time.
    """
    console = advice_console()
    figures = [MofNCompleteColumn()] if counts else [TaskProgressColumn(), TimeRemainingColumn()]
    columns = (TextColumn("{task.description}"), BarColumn(), *figures)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield partial(progress.update, progress.add_task(doing, total=total))
