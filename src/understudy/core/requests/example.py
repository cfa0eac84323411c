"""A request that a version accepts, made from its own schema."""

from typing import Any

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.features import Feature
from understudy.core.schema.tensors import Datatype


def example_inputs(version: ModelVersion) -> dict[str, Any]:
    """Return inputs that the version accepts: each feature's own example, or the middle of what it permits."""
    return {feature.name: _example_of(feature) for feature in version.input_schema.features}


def _example_of(feature: Feature) -> Any:
    if feature.has_default:
        return feature.default
    value = _example_element(feature)
    for size in reversed(feature.shape):
        value = [value] * size
    return value


def _example_element(feature: Feature) -> Any:
    if feature.enum:
        return feature.enum[0]
    if feature.datatype is Datatype.BYTES:
        return "text"
    if feature.datatype is Datatype.BOOL:
        return True
    low, high = feature.minimum, feature.maximum
    if low is not None and high is not None:
        value = low / 2 + high / 2  # not (low + high) / 2: that may be infinite
    else:
        value = low if low is not None else high if high is not None else 0.0
    if not feature.datatype.is_integer:
        return float(value)
    # The middle of two whole numbers may be a half: towards the lower bound it is still inside.
    return int(value // 1) if low is None or value // 1 >= low else int(value // 1) + 1
