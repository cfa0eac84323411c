"""A console in this process over a real database, and a browser's manners without one: cookies, forms, redirects."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx2
from pydantic import SecretStr

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.entrypoints.console.launch import ConsoleServer
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key
from understudy.settings import Settings

SECRET = "a secret of the tests that signs sessions"


class Visit:
    """One browser's session."""

    def __init__(self, client: httpx2.AsyncClient, origin: str) -> None:
        self.client = client
        self.origin = origin

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx2.Response:
        return await self.client.post(path, data=dict(fields), headers={"origin": self.origin, **headers})

    async def sign_in(self, credential: str) -> httpx2.Response:
        return await self.post("/login", {"key": credential, "next": "/"})

    async def form(self, path: str) -> dict[str, str]:
        """Return the hidden fields of a page's act."""
        page = (await self.get(path)).text
        found = re.search(r'<form class="act".*?</form>', page, re.DOTALL)
        assert found is not None, page
        hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', found[0])
        return {name: unescape(value) for name, value in hidden}

    async def form_token(self) -> str:
        """Return the token of the session's forms."""
        page = (await self.get("/")).text
        return page.partition('name="token" value="')[2].partition('"')[0]


async def a_key(database_url: str, *scopes: str) -> str:
    """Return the credential of a new key."""
    made = await create_key(PostgresRegistry(database_url), scopes, None, Actor("test", "test"))
    return made.credential


class RunningConsole:
    """Where a console is, and who may sign in."""

    def __init__(self, database_url: str, server: ConsoleServer, task: asyncio.Task[None]) -> None:
        self._url = database_url
        self.server, self.task = server, task
        port = server.config.port
        self.origin = f"http://127.0.0.1:{port}"
        self.port = port

    async def key(self, *scopes: str) -> str:
        """Return the credential of a new key."""
        return await a_key(self._url, *scopes)

    @asynccontextmanager
    async def visit(self, *scopes: str) -> AsyncIterator[Visit]:
        """Open a browser's session, signed in where scopes are named."""
        async with httpx2.AsyncClient(base_url=self.origin, timeout=20) as client:
            visit = Visit(client, self.origin)
            if scopes:
                answer = await visit.sign_in(await self.key(*scopes))
                assert answer.status_code == 303
            yield visit


@asynccontextmanager
async def running_console(owner_url: str, **given: Any) -> AsyncIterator[RunningConsole]:
    """Run a console in this event loop; ``owner_url`` makes keys, and is the console's own where none is given."""
    port = free_port()
    values = {"database_url": SecretStr(owner_url), "console_port": port, "environment": "test"}
    settings = Settings(**{**values, "console_secret": SecretStr(SECRET), **given})
    server = ConsoleServer(settings)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done()
            await asyncio.sleep(0.01)
        yield RunningConsole(owner_url, server, task)
    finally:
        server.should_exit = True
        await task


def texts_of(page: str) -> Sequence[str]:
    """Return a page's texts as a reader sees them."""
    return [
        unescape(text).replace("\N{NO-BREAK SPACE}", " ").strip()
        for text in re.findall(r">([^<]+)<", page)
        if text.strip()
    ]


def closed_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class Balanced(HTMLParser):
    """Tells of tags that are not closed in order, of scripts and styles in the page, and of handlers."""

    void = frozenset({"meta", "link", "input", "rect", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.wrong += [f"{tag} {name}" for name in named if name == "style" or name.startswith(("on", "hx-on"))]
        self.wrong += [f"{tag} without src"] if tag == "script" and not named.get("src") else []
        self.wrong += [tag] if tag in {"style", "iframe"} else []
        self.ids += [named["id"] or ""] if "id" in named else []
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")


def is_sound(page: str) -> bool:
    parser = Balanced()
    parser.feed(page)
    assert (parser.wrong, parser.open) == ([], [])
    assert len(set(parser.ids)) == len(parser.ids)
    return True
