"""A model that does nothing, and that stays in TensorFlow Serving's configuration for as long as the server runs.

So a configuration is never empty, and the first one that a server gets is one that it can load. The name is another one
for each start of the server: see ``server_start``.
"""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final
from uuid import uuid4

from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.adapters.model_servers.control.repository_layout import SAVED_MODEL
from understudy.core.loading.served_name import SERVED_VERSION

FOLDER: Final = ".keep"
"""Below the folder of the models, of which none is called so."""
WORK_SECONDS: Final = 10.0
MAX_KEPT: Final = 8
"""Models of starts before, each of which the server may have still."""
_START: Final = re.compile(r"[0-9a-f]{8}")


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a protobuf message that has bytes or another message, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


_NODE: Final = _field(1, b"keep") + _field(2, b"NoOp")
_GRAPH: Final = _field(1, _NODE) + _field(4, b"\x08\x01")
_META_GRAPH: Final = _field(1, _field(4, b"serve")) + _field(2, _GRAPH)
EMPTY_SAVED_MODEL: Final = b"\x08\x01" + _field(2, _META_GRAPH)
"""``SavedModel`` of schema 1 with one graph for the tag ``serve``: a node without inputs and outputs, no signature."""


class KeptModel:
    """The model below the folder ``models``: that of the present start of the server, and those that it may have yet.

    A folder that goes while it is in the server's configuration stops the server from finding any other model.
    """

    def __init__(self, models: Path) -> None:
        self._folder = models / FOLDER

    async def newest(self) -> str | None:
        """Return what the newest start is called; ``None``: there is none.

        Raises:
            OSError: The folder cannot be read.
        """
        return await in_bounded_thread(lambda _: next(iter(self._starts()), None), WORK_SECONDS)

    async def renew(self) -> str:
        """Add a model of another name, for a server that was started anew, and return what that start is called.

        Raises:
            OSError: The model cannot be written.
        """
        return await in_bounded_thread(self._renew, WORK_SECONDS)

    async def drop_others(self, start: str) -> None:
        """Delete the models of other starts; what cannot be deleted stays."""
        with suppress(OSError):
            await in_bounded_thread(lambda _: self._drop_others(start), WORK_SECONDS)

    def _starts(self) -> list[str]:
        """Return what starts are called, the newest one first."""
        there = [path.parents[1] for path in self._folder.glob(f"*/{SERVED_VERSION}/{SAVED_MODEL}")]
        there.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [path.name for path in there if _START.fullmatch(path.name)]

    def _renew(self, given_up: Event) -> str:
        for before in self._starts()[MAX_KEPT:]:
            shutil.rmtree(self._folder / before, ignore_errors=True)
        go_on_unless(given_up)
        start = uuid4().hex[:8]
        place = self._folder / start / SERVED_VERSION
        place.mkdir(parents=True)
        (place / SAVED_MODEL).write_bytes(EMPTY_SAVED_MODEL)
        return start

    def _drop_others(self, start: str) -> None:
        for before in self._starts():
            if before != start:
                shutil.rmtree(self._folder / before, ignore_errors=True)


def kept_name(start: str) -> str:
    """Return the model's name on the server."""
    return f"understudy-keep-{start}"


def kept_path(start: str) -> str:
    """Return where its versions lie, below the folder of the models."""
    return f"{FOLDER}/{start}"
