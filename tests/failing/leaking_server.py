"""Our own model server, which keeps some memory for good at each load: ``--leak-bytes`` beside its own options.

``python -m failing.leaking_server --port 8500 --repository FOLDER --control-port 8501 --leak-bytes 20000000``
"""

import argparse
import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from understudy.adapters.dev_server.catalog import ModelCatalog
from understudy.adapters.dev_server.repository import ModelRepository
from understudy.adapters.dev_server.server import ControlServer, InferenceServer


class LeakingRepository(ModelRepository):
    """Keeps so many bytes at each load."""

    def __init__(self, catalog: ModelCatalog, folder: Path, leak_bytes: int) -> None:
        super().__init__(catalog, folder)
        self._leak_bytes = leak_bytes
        self._kept: list[bytes] = []

    async def load(self, name: str) -> None:
        self._kept.append(b"\1" * self._leak_bytes)
        await super().load(name)


async def _serve(port: int, repository: Path, control_port: int, leak_bytes: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    catalog = ModelCatalog(())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ControlServer(LeakingRepository(catalog, repository, leak_bytes), control_port))
        await stack.enter_async_context(InferenceServer(catalog, "127.0.0.1", port))
        await stop.wait()


def main() -> int:
    parser = argparse.ArgumentParser("leaking_server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--leak-bytes", type=int, required=True)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.port, asked.repository, asked.control_port, asked.leak_bytes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
