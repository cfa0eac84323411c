"""Where features of an entity come from."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class FeatureStore(Protocol):
    """Online features by entity."""

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """Return the stored values (JSON types) of those ``names`` that the entity has; an unknown entity has none.

        Raises:
            FeaturesUnavailable: The store is down or did not answer within ``timeout_seconds``.
        """

    async def close(self) -> None:
        """Close the connections."""
