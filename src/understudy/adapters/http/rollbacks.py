"""``Rollbacks`` over HTTP: a proxy sends all traffic back, and says which proxies have heard of it."""

from collections.abc import Mapping
from typing import Any

from understudy.adapters.http.control_plane import ControlPlaneClient, said
from understudy.adapters.http.paths import model_path
from understudy.core.routing.proxy_liveness import StaleProxies
from understudy.errors import NotRegistered, UnderstudyError
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import PolicyReach, RollbackRecord

_CHAMPION, _OTHERS = 0, 1
"""Stand for the ids of versions, which documents have not: the champion, and all that get no calls any more."""


class HttpRollbacks:
    """Asks one proxy about one model; the actor that a method is given is not sent: the proxy signs with the key."""

    def __init__(self, client: ControlPlaneClient) -> None:
        self._client = client
        self._without_calls: frozenset[str] | None = None
        self._champion = ""
        self._told: PolicyReach | None = None

    async def roll_back(self, model_name: str, actor: Actor, *, dry_run: bool = False) -> RollbackRecord:
        # In the body: a proxy of the release before refuses an unknown member, and would pass over a query.
        body = said(actor.reason, **({"dry_run": True} if dry_run else {}))
        path = f"{model_path(model_name)}:rollback"
        told = (await self._client.send("POST", path, body))["rollback"]
        labels = told.get("versions_without_calls")
        self._without_calls = None if labels is None else frozenset(labels)
        self._champion = told["champion"]
        self._told = self._reach(told["generation"], told["confirmed"] or {}, told["in_flight"])
        fields = {name: told[name] for name in RollbackRecord._fields if name in told}
        return RollbackRecord(**{**fields, "without_calls": (_OTHERS,)})

    async def reach(self, model_name: str, generation: int | None = None) -> PolicyReach:
        asked = {} if generation is None else {"generation": str(generation)}
        try:
            found = (await self._client.get(model_path(model_name, "policy", "reach"), asked))["reach"]
        except NotRegistered:
            raise
        except UnderstudyError:
            # A key that may roll back need not read, a proxy of the release before has no such path, and one under
            # load refuses: the rollback is done all the same, so what was told last has to do.
            if self._told is None:
                raise
            return self._told
        seen = self._reach(found["generation"], found, found["in_flight"])
        self._told = None if self._told is None else seen
        return seen

    def _reach(self, generation: int, told: Mapping[str, Any], in_flight: Mapping[str, int] | None) -> PolicyReach:
        stale = told.get("silent") or {"count": 0, "first": []}
        calls = {_CHAMPION: 0, _OTHERS: 0}
        for label, number in (in_flight or {}).items():
            others = self._without_calls
            ended = label in others if others is not None else label != self._champion
            calls[_OTHERS if ended else _CHAMPION] += number
        return PolicyReach(
            generation,
            told.get("proxies", 0),
            told.get("proxies_on_generation", 0),
            calls,
            None,
            0.0,
            StaleProxies.from_json(stale),
            proxies_hidden=bool(told.get("proxies_hidden", not told)),
        )
