"""The in-memory twin of ``ports.PolicySource``."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from understudy.core.routing.policy_document import PolicyDocument
from understudy.errors import RegistryUnavailable
from understudy.ports.registry.policy import PolicyChange


class MemoryPolicySource:
    """A :class:`understudy.ports.registry.policy.PolicySource` that holds the document itself.

    ``available`` may be set to ``False`` at any time: every call then fails as with an unavailable Postgres, and
    each listener ends. ``reported``, ``in_flight`` and ``horizons`` hold the last report of each instance that has not
    signed off. ``last_xid`` numbers the changes; a transaction that tests leave open is ``oldest_open``.
    """

    def __init__(self, document: PolicyDocument | None = None) -> None:
        """Start with a document, by default an empty one."""
        given: PolicyDocument = document or {}
        self._models: dict[str, Any] = deepcopy(dict(given.get("models", {})))
        self._keys: list[Any] = deepcopy(list(given.get("keys", [])))
        self._cache_secret: str | None = given.get("cache_secret")
        self._changed: set[str] = set()
        self._polled: set[str] = set()
        self._listeners: list[asyncio.Queue[PolicyChange | None]] = []
        self._available = True
        self.reported: dict[str, dict[str, int]] = {}
        self.in_flight: dict[str, dict[int, int]] = {}
        self.horizons: dict[str, int | None] = {}
        self.last_xid = 0
        self.oldest_open: int | None = None
        """A transaction that is open: no horizon is beyond it."""
        self.newest_change: int | None = None
        self._horizon: int | None = None

    @property
    def available(self) -> bool:
        """Whether calls are answered."""
        return self._available

    @available.setter
    def available(self, available: bool) -> None:
        self._available = available
        if not available:
            for queue in self._listeners:
                queue.put_nowait(None)

    def put_model(self, model_name: str, rows: Mapping[str, Any]) -> None:
        """Replace a model's policy and versions, as ``core.routing.policy`` documents them, and notify listeners."""
        self._models[model_name] = deepcopy(dict(rows))
        self._notify(model_name)

    def change_policy(self, model_name: str, **columns: Any) -> int:
        """Change columns of a model's policy; return the new generation."""
        policy = self._models[model_name]["policy"]
        policy.update(columns, generation=policy["generation"] + 1)
        self._notify(model_name)
        return int(policy["generation"])

    def remove_model(self, model_name: str) -> None:
        """Delete a model's policy."""
        self._models.pop(model_name, None)
        self._notify(model_name)

    def put_keys(self, keys: Sequence[Mapping[str, Any]]) -> None:
        """Replace the callers' keys."""
        self._keys = [dict(key) for key in keys]
        self._notify("")

    def put_cache_secret(self, secret: bytes | None) -> None:
        """Replace the shared cache's secret."""
        self._cache_secret = None if secret is None else secret.hex()
        self._notify("")

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        self._answer_or_fail()
        nothing: dict[str, Any] = {"policy": None, "versions": []}
        names = self._models if model_names is None else [name for name in model_names if name]
        models = {name: deepcopy(self._models.get(name, nothing)) for name in names}
        if model_names is None:
            self._horizon, self.newest_change = self._next_horizon(), None
        for noted in (self._changed, self._polled):
            noted.difference_update(set(noted) if model_names is None else model_names, [""])
        secret = {"cache_secret": self._cache_secret} if model_names is None or "" in model_names else {}
        return {"models": models, "keys": deepcopy(self._keys), **secret}

    async def changed_since_last_poll(self) -> Sequence[str]:
        self._answer_or_fail()
        self._horizon, self._polled = self._next_horizon(), set(self._changed)
        self.newest_change = self.last_xid or None
        return sorted(self._changed)

    @property
    def horizon(self) -> int | None:
        return None if self._polled else self._horizon

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        self._answer_or_fail()
        queue: asyncio.Queue[PolicyChange | None] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            on_change(PolicyChange(None))
            while (change := await queue.get()) is not None:
                on_change(change)
        finally:
            self._listeners.remove(queue)
        raise RegistryUnavailable("the registry was switched off")

    async def report(
        self, instance: str, generations: Mapping[str, int], in_flight: Mapping[int, int], horizon: int | None
    ) -> None:
        self._answer_or_fail()
        self.reported[instance] = dict(generations)
        self.horizons[instance] = horizon
        self.in_flight[instance] = dict(in_flight)

    async def sign_off(self, instance: str) -> None:
        self._answer_or_fail()
        self.reported.pop(instance, None)
        self.in_flight.pop(instance, None)
        self.horizons.pop(instance, None)

    async def close(self) -> None:
        """End every listener."""
        self.available = False

    def _next_horizon(self) -> int:
        return self.last_xid + 1 if self.oldest_open is None else self.oldest_open

    def _notify(self, model_name: str) -> None:
        self.last_xid += 1
        self._changed.add(model_name)
        for queue in self._listeners:
            queue.put_nowait(PolicyChange(model_name))

    def _answer_or_fail(self) -> None:
        if not self._available:
            raise RegistryUnavailable("the registry is switched off")
