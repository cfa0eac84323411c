"""Following a rollout on a terminal or as lines of JSON, also while Postgres is away."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from understudy.bootstrap.http_control_plane import model_path
from understudy.core.rollout.state import Kind, Phase
from understudy.entrypoints.cli.rollout.status import MAX_EVENTS, status_view
from understudy.errors import RegistryUnavailable
from understudy.rollout.status import RolloutStatus

WATCH_SECONDS = 1.0
PROXY_WATCH_SECONDS = 2.0
"""Between two looks through a proxy, which reads the whole rollout for each."""
_REST_RATIO = 4
"""A proxy rests that many times as long as its last answer took."""
Document = Mapping[str, Any]
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Seen(NamedTuple):
    """A rollout as a proxy showed it."""

    document: Document
    text: str
    """As the terminal is to show it."""

    @property
    def phase(self) -> Phase:
        """Where the rollout is."""
        return Phase(self.document["rollout"]["phase"])

    @property
    def kind(self) -> Kind:
        """Whether it is a rollout or a guard."""
        return Kind(self.document["rollout"]["kind"])


class ProxyReader:
    """Looks at one rollout, the newest at the first look, through a proxy.

    Args:
        look: Asks the proxy for a path.
        model_name: The model.
        columns: Of the terminal; ``None``: only the document is wanted.
    """

    def __init__(
        self,
        look: Callable[[str, Mapping[str, str]], Awaitable[Document]],
        model_name: str,
        columns: int | None,
    ) -> None:
        self._look = look
        self._model_name = model_name
        self._parameters = {} if columns is None else {"columns": str(columns)}
        self._rollout = "newest"
        self._rest_seconds = 0.0

    async def read(self) -> Seen:
        """Return the rollout as it is now; a proxy that takes long to draw it is asked the less often.

        Raises:
            UnderstudyError: What the proxy says.
        """
        await asyncio.sleep(self._rest_seconds)
        began = time.monotonic()
        said = await self._look(model_path(self._model_name, "rollouts", self._rollout), self._parameters)
        self._rest_seconds = _REST_RATIO * (time.monotonic() - began)
        self._rollout = str(said["rollout"]["rollout_id"])
        return Seen({name: part for name, part in said.items() if name not in ("text", "schema")}, said.get("text", ""))


class Reader(Protocol[S_co]):
    """What looks at a rollout."""

    async def read(self) -> S_co:
        """Return it as it is now.

        Raises:
            RegistryUnavailable: Postgres, or the proxy, does not answer.
        """


async def follow(
    reader: Reader[S],
    tell: Callable[[S], None],
    away: Callable[[float], None],
    is_over: Callable[[S], bool],
    *,
    pause_seconds: float = WATCH_SECONDS,
) -> S:
    """Tell of a rollout again and again until it ends, and return its last status.

    Args:
        reader: Looks at it. A first look that fails ends this; later ones are tried again for as long as it takes.
        tell: Gets each status.
        away: Gets how long Postgres does not answer, after each try that failed.
        is_over: Whether a status is the last one.
        pause_seconds: Between two looks.

    Raises:
        RegistryUnavailable: Postgres did not answer the first look.
    """
    away_since: float | None = None
    status = await reader.read()
    while True:
        if away_since is None:
            tell(status)
        if is_over(status):
            return status
        await asyncio.sleep(pause_seconds)
        try:
            status = await reader.read()
            away_since = None
        except RegistryUnavailable:
            away_since = time.monotonic() if away_since is None else away_since
            away(time.monotonic() - away_since)


class Screen:
    """The last status on a terminal, redrawn in place by ``live``, which the caller starts; ``who`` is asked for it."""

    def __init__(self, console: Console, live: Live, who: str = "Postgres") -> None:
        self._console = console
        self._live = live
        self._who = who
        self._shown: list[RenderableType] = []

    def tell_seen(self, seen: Seen) -> None:
        """Show what a proxy drew; where the screen is too low, its end is cut off."""
        self._shown = [Text.from_ansi(seen.text.removesuffix("\n"))]
        self._live.update(Group(*self._shown), refresh=True)

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
        line = Text(
            f"{self._who} does not answer for {seconds:.0f} s; this is from before. It is asked again.", "yellow"
        )
        self._live.update(Group(line, *self._shown), refresh=True)
