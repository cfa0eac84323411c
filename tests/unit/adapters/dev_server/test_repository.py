"""Models that are loaded while the development model server runs, and what they inject."""

from pathlib import Path
from typing import Any

import numpy as np

from understudy.adapters.dev_server.catalog import Faults, InjectedError, ModelCatalog
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.dev_server.repository import ModelRepository

INPUTS = {"input": np.zeros((1, 9), np.float32)}


async def outcomes(catalog: ModelCatalog, calls: int) -> list[str]:
    found: list[str] = []
    for _ in range(calls):
        try:
            answer: dict[str, Any] = await catalog.find("bad", None).answer(INPUTS)
        except InjectedError:
            found.append("failed")
        else:
            found.append("answered" if "probabilities" in answer else "strange")
    return found


async def test_a_fault_begins_after_so_many_calls_and_anew_each_time_that_the_model_is_loaded(tmp_path: Path):
    for name in ("bad", "good"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(example_version("visits", 1).read())
    catalog = ModelCatalog([])
    repository = ModelRepository(catalog, tmp_path, {"bad": Faults(error_percent=100.0, after_calls=2)})
    await repository.load("bad")
    await repository.load("good")

    first = await outcomes(catalog, 4)
    await repository.load("bad")
    again = await outcomes(catalog, 3)
    others = await catalog.find("good", None).answer(INPUTS)

    assert first == ["answered", "answered", "failed", "failed"]
    assert again == ["answered", "answered", "failed"]
    assert "probabilities" in others
