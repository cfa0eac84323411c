"""Following a rollout on a terminal or as lines of JSON, also while Postgres is away."""

import asyncio
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from understudy.entrypoints.cli.rollout.status import MAX_EVENTS, status_view
from understudy.errors import RegistryUnavailable
from understudy.rollout.status import RolloutStatus, StatusReader

WATCH_SECONDS = 1.0


async def follow(
    reader: StatusReader,
    tell: Callable[[RolloutStatus], None],
    away: Callable[[float], None],
    *,
    pause_seconds: float = WATCH_SECONDS,
) -> RolloutStatus:
    """Tell of a rollout again and again until it ends, and return its last status.

    Args:
        reader: Looks at it. A first look that fails ends this; later ones are tried again for as long as it takes.
        tell: Gets each status.
        away: Gets how long Postgres does not answer, after each try that failed.
        pause_seconds: Between two looks.

    Raises:
        RegistryUnavailable: Postgres did not answer the first look.
    """
    away_since: float | None = None
    status = await reader.read()
    while True:
        if away_since is None:
            tell(status)
        if status.view.record.state.phase.is_final:
            return status
        await asyncio.sleep(pause_seconds)
        try:
            status = await reader.read()
            away_since = None
        except RegistryUnavailable:
            away_since = time.monotonic() if away_since is None else away_since
            away(time.monotonic() - away_since)


class Screen:
    """The last status on a terminal, redrawn in place by ``live``, which the caller starts."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._shown: list[RenderableType] = []

    def tell(self, status: RolloutStatus) -> None:
        """Draw a status; where the screen is too low, older events go."""
        for max_events in range(MAX_EVENTS, 0, -1):
            self._shown = status_view(status, self._console.width, max_events)
            height = len(self._console.render_lines(Group(*self._shown), pad=False))
            if height < self._console.height or not self._console.is_terminal:
                break
        self._live.update(Group(*self._shown), refresh=True)

    def away(self, seconds: float) -> None:
        """Say under the last status that nothing newer can be read."""
        line = Text(f"Postgres does not answer for {seconds:.0f} s; this is from before. It is asked again.", "yellow")
        self._live.update(Group(line, *self._shown), refresh=True)
