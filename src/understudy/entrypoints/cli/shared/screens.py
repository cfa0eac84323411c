"""A screen: what a command shows, made here from the database, or by a proxy that its key leads to.

A proxy draws what rests on an analysis: that takes the windows and scipy, which a caller with a key has neither of. The
same functions draw it in both places, so it looks the same.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.shared.rendering import data_console, drawn_for, show, terminal_text
from understudy.entrypoints.cli.shared.session import with_session_or_proxy

TEXT = "text"
"""The member of an answer's document that has the screen, for a caller who names a terminal's ``columns``."""


class Drawn(NamedTuple):
    """A result for programs and for people."""

    document: Mapping[str, Any]
    texts: Sequence[RenderableType]


class AtProxy(NamedTuple):
    """Where a proxy draws the same screen."""

    path: str
    parameters: Mapping[str, str] = {}
    method: str = "GET"
    body: Mapping[str, Any] | None = None


def show_screen(draw: Callable[[Session], Awaitable[Drawn]], at_proxy: AtProxy, *, as_json: bool) -> Mapping[str, Any]:
    """Show a screen, from the database or by the proxy that is chosen here; return its document.

    Raises:
        RegistryUnavailable: Postgres, or the proxy, does not answer in time.
    """
    columns = {} if as_json else {"columns": str(data_console().width)}
    path, parameters, method, body = at_proxy
    screen = with_session_or_proxy(
        draw,
        lambda control_plane: control_plane.look(path, {**parameters, **columns}, method=method, body=body),
    )
    if isinstance(screen, Drawn):
        show(screen.document, *screen.texts, as_json=as_json)
        return screen.document
    document = {name: member for name, member in screen.items() if name not in (TEXT, "schema")}
    show(document, Text.from_ansi(str(screen.get(TEXT, "")).removesuffix("\n")), as_json=as_json)
    return document


async def drawn_document(draw: Callable[[], Awaitable[Drawn]], columns: int) -> dict[str, Any]:
    """Return a screen's document with its text for a terminal of so many columns: a proxy's answer."""
    with drawn_for(columns):
        screen = await draw()
        return {**screen.document, TEXT: terminal_text(screen.texts, columns)}
