"""The scores of the last minute in tenths of the champion's own, as gauges: the heat map of a dashboard."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from understudy.core.drift.subject_window import PREDICTION
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram, merged
from understudy.core.windows.tenths import counts_in_bands, tenth_edges
from understudy.ports.monitoring.metric_store import ActiveVersion, ActiveVersions, MetricStore
from understudy.ports.telemetry.telemetry import Telemetry

EDGES_SECONDS = 86_400.0
"""The champion's scores of so long make its tenths."""
RENEWED_SECONDS = 6 * 3_600.0
"""So long edges stay: each new one is a new series."""
_GAUGE = "prediction_tenths"


class _Edges(NamedTuple):
    champion_id: int
    at: float
    edges: Sequence[float]


class ScoreTenths:
    """Remembers the tenths of each model, and shows the scores of its versions in them."""

    def __init__(self, store: MetricStore, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._edges: dict[str, _Edges] = {}
        self._shown: dict[int, set[tuple[str, ...]]] = {}

    async def renew(self, active: ActiveVersions) -> None:
        """Look whose tenths are to be made anew: of another champion, or after a while."""
        champions = [one for one in active.versions if one.role is Role.CHAMPION]
        for champion in champions:
            known = self._edges.get(champion.model_name)
            if known is None or known.champion_id != champion.id or active.now - known.at >= RENEWED_SECONDS:
                facts = await self._store.drift_facts(champion.id, active.now - EDGES_SECONDS, [PREDICTION])
                hours = facts.hours.get(PREDICTION, ())
                edges = tenth_edges(merged(Histogram(hour.cells) for hour in hours))
                # Until the first hour is summed up there is nothing to make them of: look again soon.
                if edges:
                    self._edges[champion.model_name] = _Edges(champion.id, active.now, edges)
        self._forget_others(active.versions)

    def show(self, versions: Sequence[ActiveVersion], scores: Mapping[int, Histogram]) -> None:
        """Set the gauges of versions that have a role, from their scores of the last minute by id."""
        for version in versions:
            known = self._edges.get(version.model_name)
            if known is not None and version.role is not None:
                counts = counts_in_bands(scores.get(version.id, Histogram()), known.edges)
                labels = (version.model_name, version.version, version.role.value)
                for text, count in counts.items():
                    self._telemetry.set(_GAUGE, float(count), *labels, text)
                shown: set[tuple[str, ...]] = {(*labels, text) for text in counts}
                self._drop(self._shown.get(version.id, set()) - shown)
                self._shown[version.id] = shown

    def _forget_others(self, versions: Sequence[ActiveVersion]) -> None:
        for version_id in self._shown.keys() - {version.id for version in versions}:
            self._drop(self._shown.pop(version_id))
        models = {version.model_name for version in versions}
        self._edges = {name: known for name, known in self._edges.items() if name in models}

    def _drop(self, gone: Collection[tuple[str, ...]]) -> None:
        for labels in gone:
            self._telemetry.forget(_GAUGE, *labels)
