"""Our own model server, which writes down each request for a model that it does not have.

``python -m rigs.lifecycle.watched_server --port 8500 --repository FOLDER --control-port 8501 --missed FILE``
"""

import argparse
import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel
from understudy.adapters.dev_server.repository import ModelRepository
from understudy.adapters.dev_server.server import ControlServer, InferenceServer
from understudy.errors import UnknownModel, UnknownVersion


class WatchedCatalog(ModelCatalog):
    """Adds a line to ``missed`` for each request that names a model which is not loaded, whatever the caller hears."""

    def __init__(self, missed: Path) -> None:
        super().__init__(())
        self._missed = missed

    def find(self, model_name: str, version: int | None) -> ServedModel:
        """Return a version, or write down that there is none."""
        try:
            return super().find(model_name, version)
        except (UnknownModel, UnknownVersion) as refused:
            with self._missed.open("a") as lines:
                lines.write(f"{time.time():.3f} {refused.detail}\n")
            raise


async def _serve(port: int, repository: Path, control_port: int, missed: Path) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    missed.touch()
    catalog = WatchedCatalog(missed)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ControlServer(ModelRepository(catalog, repository), control_port))
        await stack.enter_async_context(InferenceServer(catalog, "127.0.0.1", port))
        await stop.wait()


def main() -> int:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser("watched_server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--missed", type=Path, required=True)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.port, asked.repository, asked.control_port, asked.missed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
