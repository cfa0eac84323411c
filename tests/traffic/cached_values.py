"""What a prediction cache has."""

from understudy.ports.upstream.prediction_cache import PredictionCache


async def value_in(cache: PredictionCache, key: str) -> bytes | None:
    (value,) = await cache.get_all([key])
    return value
