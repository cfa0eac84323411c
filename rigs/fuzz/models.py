"""The models that are attacked: one of each kind of schema, so that every reader of a value has its own cases."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from loadtests.stub_model import OUTPUT
from understudy.adapters.dev_server.example_models import example_version

VISITS, MIXED, VECTORS, OFFERS, PAWN = "visits", "mixed", "vectors", "offers", "pawn"
_SCORE = {"tensor": OUTPUT, "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}


class Attacked(NamedTuple):
    """A model and its one version; ``real`` ones answer with a trained model, others with a constant over real gRPC."""

    name: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    real: bool = False
    cache_seconds: int = 0


def _feature(name: str, dtype: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, **more}


def attacked_models() -> tuple[Attacked, ...]:
    """Return every model that the proxies serve during an attack."""
    example = example_version(VISITS, 1)
    mixed = [
        _feature("age", "int32", min=0, max=130),
        _feature("plan", "string", enum=["free", "pro", "a:b"]),
        _feature("note", "string", default=""),
        _feature("rank", "uint8"),
        _feature("big", "int64"),
        _feature("is_new", "bool", default=False),
        _feature("ratio", "float64", min=-1.0, max=1.0),
        _feature("level", "int8", enum=[-1, 0, 1]),
        _feature("visits_30d", "int64", source="store", default=0),
        _feature("secret", "string", private=True, default="none"),
    ]
    vectors = [
        _feature("embedding", "float32", shape=[16], min=-10, max=10),
        _feature("grid", "int16", shape=[3, 4]),
        _feature("words", "string", shape=[2], default=["a", "b"]),
    ]
    offers = [
        _feature("age", "float32", min=0, max=130),
        _feature("price", "float32", min=0, per="treatment"),
        _feature("kind", "int32", enum=[1, 2, 3], per="treatment", default=1),
    ]
    pawn = [_feature("age", "float32")]
    return (
        Attacked(VISITS, example.input_schema, example.output_schema, real=True, cache_seconds=60),
        # Packed, so that each tensor has one dimension: the stub takes all others for rows.
        Attacked(MIXED, {"features": mixed, "tensors": [_packed([one]) for one in mixed]}, _SCORE),
        Attacked(VECTORS, {"features": vectors, "tensors": [_packed([one]) for one in vectors]}, _SCORE),
        Attacked(OFFERS, {"features": offers, "tensors": [_packed(offers)]}, {**_SCORE}),
        Attacked(PAWN, {"features": pawn, "tensors": [_packed(pawn)]}, _SCORE),
    )


def _packed(features: list[dict[str, Any]]) -> dict[str, Any]:
    names = [feature["name"] for feature in features]
    return {"name": names[0], "dtype": features[0]["dtype"], "features": names}
