"""The gRPC services as the reference names them."""

from pathlib import Path
from typing import Any

from understudy.entrypoints.proxy.rpc.inference import NOT_OFFERED, InferenceService
from understudy.entrypoints.proxy.rpc.prediction import PredictionServices

PAGE = Path(__file__).resolve().parents[5] / "docs" / "reference" / "dialects.md"
NOTHING: Any = None
REFUSED = {*NOT_OFFERED, "MultiInference", "HandleReloadConfigRequest"}


def test_the_page_names_every_method_that_is_offered():
    tensorflow = PredictionServices(NOTHING)
    services = (InferenceService(NOTHING, NOTHING).methods, tensorflow.prediction, tensorflow.model)
    names = {method.name for methods in services for method in methods} - REFUSED
    text = PAGE.read_text(encoding="utf-8")

    assert len(names) > 12
    assert {name for name in names if f"/{name}`" not in text} == set()
