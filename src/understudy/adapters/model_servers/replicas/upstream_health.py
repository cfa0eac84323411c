"""What the results of calls add up to: the health of each replica (outlier ejection), and the retry budget."""

from collections.abc import Callable, Sequence

from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.core.upstream.replicas import (
    HEALTHY,
    CallResult,
    RetryBudget,
    health_after_probe,
    healths_after,
)


class UpstreamHealth:
    """The replicas of one version, and what is known about them."""

    def __init__(self, replicas: Sequence[Replica], now: Callable[[], float]) -> None:
        self.replicas = replicas
        self.retries = RetryBudget()
        self._now = now
        self._all_healthy = True
        """Nearly always true: then an answer changes nothing, and ``record`` costs next to nothing."""

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return sum(replica.in_flight for replica in self.replicas)

    @property
    def ejected(self) -> int:
        """Replicas that get no calls now."""
        return sum(replica.health.ejected for replica in self.replicas)

    def record(self, replica: Replica, result: CallResult) -> None:
        """Count the result of a call at its replica."""
        if result is CallResult.ANSWERED:
            self.retries = self.retries.after_answer()
            if self._all_healthy:
                return
        healths = [each.health for each in self.replicas]
        healths = healths_after(healths, self.replicas.index(replica), result, self._now())
        self._all_healthy = True
        for each, health in zip(self.replicas, healths, strict=True):
            each.health = health
            self._all_healthy = self._all_healthy and health == HEALTHY

    def record_probe(self, replica: Replica, *, ready: bool) -> None:
        """Count a probe of an ejected or suspect replica."""
        replica.health = health_after_probe(replica.health, ready, self._now())

    def due(self) -> Sequence[Replica]:
        """Return the ejected replicas whose probe is due."""
        if self._all_healthy:
            return ()
        now = self._now()
        return [replica for replica in self.replicas if replica.health.probe_due(now)]
