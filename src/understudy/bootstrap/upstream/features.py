"""The feature store that settings name: proxies read it while they answer, monitors compare what was served with it."""

from contextlib import AsyncExitStack

from understudy.adapters.postgres.features import PostgresFeatureStore
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.settings import Settings


def open_features(
    settings: Settings, stack: AsyncExitStack, timeout_seconds: float | None = None
) -> FeatureStore | None:
    """Open the feature store; ``None`` where there is none.

    Args:
        settings: Name it.
        stack: Closes it.
        timeout_seconds: When a read counts as failed; by default what callers wait.
    """
    seconds = settings.feature_timeout_seconds if timeout_seconds is None else timeout_seconds
    store: FeatureStore
    if settings.feature_redis_url is not None:
        # Late: its client takes 40 ms of processor, which a process without Redis does without.
        from understudy.adapters.redis.features import RedisFeatureStore  # noqa: PLC0415

        store = RedisFeatureStore(settings.feature_redis_url.get_secret_value(), timeout_seconds=seconds)
    elif settings.feature_table is not None:
        url, table = settings.database_url.get_secret_value(), settings.feature_table
        store = PostgresFeatureStore(url, table, timeout_seconds=seconds)
    else:
        return None
    stack.push_async_callback(store.close)
    return store
