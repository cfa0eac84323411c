"""Our own model server, each version of which answers so many rows at once, and takes its time for each.

``python -m rigs.lifecycle.slow_server --port 8500 --repository FOLDER --control-port 8501``
"""

import argparse
import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel
from understudy.adapters.dev_server.repository import ModelRepository
from understudy.adapters.dev_server.server import ControlServer, InferenceServer

AT_ONCE: Final = 4
ROW_SECONDS: Final = 0.2


class SlowModel(ServedModel):
    """A loaded version, whose rows wait for one another."""

    def __init__(self, model: ServedModel) -> None:
        self.__dict__.update(model.__dict__)
        self._free = asyncio.Semaphore(AT_ONCE)

    async def answer(self, inputs: Any) -> dict[str, NDArray[Any]]:
        """Return every output, once it is the row's turn and its time is over."""
        async with self._free:
            await asyncio.sleep(ROW_SECONDS * max(len(tensor) for tensor in inputs.values()))
            return await super().answer(inputs)


class SlowCatalog(ModelCatalog):
    """Serves slow versions."""

    def add(self, model: ServedModel) -> None:
        """Serve one more version."""
        super().add(SlowModel(model))


async def _serve(port: int, repository: Path, control_port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    catalog = SlowCatalog(())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(ControlServer(ModelRepository(catalog, repository), control_port))
        await stack.enter_async_context(InferenceServer(catalog, "127.0.0.1", port))
        await stop.wait()


def main() -> int:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser("slow_server")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    asked = parser.parse_args()
    asyncio.run(_serve(asked.port, asked.repository, asked.control_port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
