"""The shared prediction cache of a proxy, and where the secret for its values comes from."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

import structlog
from pydantic import SecretStr

from understudy.adapters.redis.cache import RedisCache
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.schema.cache_mac import Rejected
from understudy.settings import Settings

_log = structlog.get_logger(__name__)
_WHY_OFF = (
    "the registry has no CacheSecret, or this login may not read it: run understudy db upgrade, which makes it and "
    "lets understudy_proxy read it, or set UNDERSTUDY_CACHE_KEY"
)


@dataclass(slots=True)
class SharedCache:
    """A proxy's shared cache; off until there is a secret for its values."""

    cache: RedisCache
    needs_secret: bool
    """Whether the secret comes from the registry, and not from ``UNDERSTUDY_CACHE_KEY``."""
    telemetry: PrometheusTelemetry
    is_off: bool = False

    @classmethod
    def open(cls, url: SecretStr, settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> Self:
        """Return the cache behind ``url``, which ``stack`` closes."""
        cache = RedisCache(
            url.get_secret_value(),
            timeout_seconds=settings.redis_timeout_seconds,
            now=time.monotonic,
            on_error=partial(telemetry.count, "cache_errors_total"),
            on_rejected=partial(telemetry.count, "cache_rejected_total"),
        )
        stack.push_async_callback(cache.close)
        for reason in Rejected:
            # A counter that first appears with 1 has not increased, for Prometheus.
            telemetry.count("cache_rejected_total", reason, by=0)
        if settings.cache_key is not None:
            cache.use_secret(settings.cache_key.get_secret_value().encode())
        telemetry.set("shared_cache_off", settings.cache_key is None)
        return cls(cache, settings.cache_key is None, telemetry)

    def act_on(self, snapshot: PolicySnapshot) -> None:
        """Use the registry's secret, where the settings have none."""
        if not self.needs_secret:
            return
        self.cache.use_secret(snapshot.cache_secret)
        is_off = snapshot.cache_secret is None
        self.telemetry.set("shared_cache_off", is_off)
        if is_off and not self.is_off:
            _log.warning("shared_cache.off", problem=_WHY_OFF)
        self.is_off = is_off
