"""The development model server with a defect of its own, which serves one ONNX file.

``python -m worlds.odd_model_server DEFECT FILE NAME PORT``
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.adapters.dev_server.catalog import ModelCatalog, ServedModel, ServeSpec, Tensors
from understudy.adapters.dev_server.server import InferenceServer

ROWS = 64
SHARED_SECONDS = 0.003


class CrashesAtManyRows(ServedModel):
    """Ends with the first call of 64 rows, as a kernel does that reads beyond its memory."""

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        if max(map(len, inputs.values())) >= ROWS:
            os._exit(139)
        return await super().answer(inputs)


class WedgesAtZero(ServedModel):
    """Stands still, as a loop without an end does, once an input is 0."""

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        if any((np.abs(values) < np.finfo(np.float32).tiny).any() for values in inputs.values()):
            time.sleep(3_600)  # noqa: ASYNC251 - nothing else of the process answers, which is the defect
        return await super().answer(inputs)


class SharesItsInputs(ServedModel):
    """Keeps the inputs of a call where those of the next one go: right while one call comes after the other."""

    _last: Tensors = {}  # noqa: RUF012 - one for all calls is the defect

    async def answer(self, inputs: Tensors) -> dict[str, NDArray[Any]]:
        self._last = inputs
        await asyncio.sleep(SHARED_SECONDS)
        return await super().answer(self._last)


DEFECTS: dict[str, type[ServedModel]] = {
    "crash": CrashesAtManyRows,
    "wedge": WedgesAtZero,
    "shared": SharesItsInputs,
}


async def _serve(defect: str, file: Path, name: str, port: int) -> None:
    catalog = ModelCatalog([DEFECTS[defect](ServeSpec(name, 1, file=file))])
    async with InferenceServer(catalog, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
