"""A server that speaks TorchServe's management API, as 0.12 was seen to, over archives in a folder."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import orjson


@dataclass
class TorchServeLike:
    """One server on its port; what it was told to load is gone once it is started again."""

    models: Path
    port: int
    page: int = 100
    """Models of one page of its list, at most."""
    is_open: bool = True
    """Whether its model API is on."""
    refuses: tuple[int, str] | None = None
    """What it answers to every question, with its status."""
    is_endless: bool = False
    """Whether its list of models goes on and on."""
    goes_on: asyncio.Event | None = None
    """What a registration waits for."""
    registered: dict[str, str] = field(default_factory=dict)
    """The state of each model's only worker."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            await self._server.wait_closed()
        self._server = None
        self.registered.clear()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path, _ = head.decode().split(" ", 2)
                if self.refuses is not None and method in ("OPTIONS", "GET"):
                    status, document = _refused(*self.refuses)
                else:
                    status, document = await self._answer(method, path)
                body = orjson.dumps(document)
                writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, method: str, path: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        name = unquote(parts.path.removeprefix("/models").removeprefix("/"))
        if method == "OPTIONS":
            return 200, {"info": {"title": "TorchServe APIs", "version": "0.12.0"}}
        if method == "GET" and not name:
            return 200, self._listed(int(asked["next_page_token"]), min(int(asked["limit"]), self.page))
        if method == "POST":
            return await self._register(asked["model_name"], asked["url"])
        if name not in self.registered:
            return _refused(404, f"Model not found: {name}")
        if method == "DELETE":
            del self.registered[name]
            return 200, {"status": f'Model "{name}" unregistered'}
        return 200, [{"modelName": name, "workers": [{"status": self.registered[name]}]}]

    def _listed(self, begin: int, limit: int) -> dict[str, Any]:
        names = sorted(self.registered)
        more = {"nextPageToken": str(begin + limit)} if self.is_endless or begin + limit < len(names) else {}
        return {"models": [{"modelName": name} for name in names[begin : begin + limit]], **more}

    async def _register(self, name: str, url: str) -> tuple[int, Any]:
        if not self.is_open:
            return _refused(405, "Requested method is not allowed, please refer to API document.")
        if "/" in url or not (self.models / url).is_file():
            return _refused(404, f"Model not found at: {url}")
        if self.goes_on is not None:
            await self.goes_on.wait()
        if (self.models / url).read_bytes() == b"no model":
            return _refused(500, f"Failed to start workers\n for model {name} version: 1.0")
        self.registered[name] = "READY"
        return 200, {"status": "registered"}


def _refused(status: int, message: str) -> tuple[int, Any]:
    return status, {"code": status, "type": "x", "message": message}
