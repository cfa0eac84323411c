"""The in-memory twin of ``ports.FeatureStore``."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.errors import FeaturesUnavailable


class MemoryFeatureStore:
    """A :class:`understudy.ports.upstream.feature_store.FeatureStore` over a dictionary by model name and entity id.

    ``delay_seconds`` and ``available`` may be set at any time.
    """

    def __init__(self, features: Mapping[tuple[str, str], Mapping[str, Any]] | None = None) -> None:
        """Start with the features of some entities."""
        self.features: dict[tuple[str, str], Mapping[str, Any]] = dict(features or {})
        self.available = True
        self.delay_seconds = 0.0

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        if self.delay_seconds >= timeout_seconds:
            await asyncio.sleep(timeout_seconds)
            raise FeaturesUnavailable(f"the feature store did not answer within {timeout_seconds:g} s")
        await asyncio.sleep(self.delay_seconds)
        if not self.available:
            raise FeaturesUnavailable("the feature store is switched off")
        stored = self.features.get((model_name, entity_id), {})
        return {name: stored[name] for name in names if name in stored}

    async def close(self) -> None:
        """Fail every fetch from now on."""
        self.available = False
