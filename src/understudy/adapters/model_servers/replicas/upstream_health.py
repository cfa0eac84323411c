"""What the results of calls add up to: the health of each replica (outlier ejection), and the retry budget."""

from collections.abc import Callable, Sequence

from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.core.upstream.replicas import (
    HEALTHY,
    CallResult,
    Health,
    RetryBudget,
    health_after_probe,
    health_of_newcomer,
    healths_after,
    healths_with_choice,
)


class UpstreamHealth:
    """The replicas of one version, and what is known about them."""

    def __init__(self, replicas: Sequence[Replica], now: Callable[[], float]) -> None:
        self.replicas = replicas
        self.retries = RetryBudget()
        self._now = now
        self._all_healthy = True
        """Nearly always true: then an answer changes nothing, and ``record`` costs next to nothing."""

    def change_replicas(self, replicas: Sequence[Replica]) -> None:
        """Go on with other replicas: new ones are probed first, what is known of those that stay is kept."""
        now = self._now()
        for replica in set(replicas).difference(self.replicas):
            replica.health = health_of_newcomer(now)
        self.replicas = replicas
        self._set_healths(healths_with_choice([replica.health for replica in replicas], now))

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
        try:
            index = self.replicas.index(replica)
        except ValueError:  # its address has left the name's answer: no call is sent by what is known of it
            return
        healths = [each.health for each in self.replicas]
        self._set_healths(healths_after(healths, index, result, self._now()))

    def _set_healths(self, healths: Sequence[Health]) -> None:
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
