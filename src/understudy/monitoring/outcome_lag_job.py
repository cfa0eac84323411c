"""How long ago the last outcome of each model came: an outcome that is not sent any more judges no version."""

from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import MetricStore
from understudy.ports.telemetry.telemetry import Telemetry


class OutcomeLagJob:
    """Sets ``outcome_lag_seconds``."""

    def __init__(self, store: MetricStore, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._newest: dict[str, float] = {}
        """When the newest outcome came, of each model that ever had one while this monitor led."""

    async def tick(self, _epoch: Epoch) -> None:
        """Look once; a model without an active version loses its gauge."""
        newest = await self._store.newest_outcomes()
        active = await self._store.active()
        served = {version.model_name for version in active.versions}
        for name in self._newest.keys() - served:
            self._telemetry.forget("outcome_lag_seconds", name)
        # Others may have sent so many since that a model is not among the newest any more.
        known = {**self._newest, **newest}
        self._newest = {name: received_at for name, received_at in known.items() if name in served}
        for name, received_at in self._newest.items():
            self._telemetry.set("outcome_lag_seconds", max(0.0, active.now - received_at), name)
