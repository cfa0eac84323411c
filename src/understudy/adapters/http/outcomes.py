"""``OutcomeStore`` over HTTP: batches to a proxy, with a key that has the scope ``outcomes``."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from understudy.adapters.http.control_plane import ControlPlaneClient
from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.ports.experiments.outcome_store import OutcomeResult


class HttpOutcomes:
    """Sends each batch as one call; the proxy stores all of it or nothing."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        if not outcomes:
            return []
        body = {"events": [_event(outcome) for outcome in outcomes]}
        found = await self._client.send("POST", "/v1/outcomes", body)
        return [OutcomeResult(one["result"]) for one in found["results"]]

    async def unknown_models(self, names: Collection[str]) -> frozenset[str]:
        if not names:
            return frozenset()
        found = await self._client.send("POST", "/v1/outcomes:check", {"models": sorted(names)})
        return frozenset(found["unknown_models"])

    async def new_metrics(self, metrics: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        if not metrics:
            return frozenset()
        asked = [{"model": model, "name": name} for model, name in sorted(metrics)]
        found = await self._client.send("POST", "/v1/outcomes:check", {"metrics": asked})
        return frozenset((one["model"], one["name"]) for one in found["new_metrics"])

    async def close(self) -> None:
        """The client stays open: its session closes it."""


def _event(outcome: OutcomeEvent) -> dict[str, Any]:
    ids = {"entity_id": outcome.entity_id, "prediction_id": outcome.prediction_id}
    return {
        "event_id": outcome.event_id,
        "model": outcome.model_name,
        **{name: value for name, value in ids.items() if value is not None},
        "name": outcome.name,
        "value": outcome.value,
        "occurred_at": datetime.fromtimestamp(outcome.occurred_at, UTC).isoformat(),
    }
