"""A predict call's body with the standard library and pydantic alone: the plain way, that the seed and the peers go.

Nothing of the product is imported: the peers' own venvs do not have it.
"""

import hashlib
import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

FEATURES = [f"feature_{number:02d}" for number in range(1, 14)]
BUCKETS = 100

Share = Annotated[float, Field(ge=0, le=1)]
Inputs: Any = create_model("Inputs", __config__=ConfigDict(extra="forbid"), **dict.fromkeys(FEATURES, (Share, ...)))  # type: ignore[call-overload]


class Body(BaseModel):
    """A predict call."""

    model_config = ConfigDict(extra="forbid")
    entity_id: Annotated[str, Field(min_length=1, max_length=255)]
    inputs: Inputs
    category: str | None = None


def bucket_of(model: str, entity_id: str) -> int:
    """Return the bucket as the seed writes it."""
    return int(hashlib.md5(f"{model}:{entity_id}".encode()).hexdigest(), 16) % BUCKETS


def digest_of(values: dict[str, float]) -> str:
    """Return the SHA-256 of the sorted JSON, as the seed writes it."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
