"""A version's predictions for assembled inputs: from a cache, or from its model servers."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from understudy.core.requests.rank import AssembledTreatments, Ranking
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.cached_output import decode_with_output, encode_with_output, is_cacheable_output
from understudy.core.schema.outputs import Origin, Prediction, decode_cached, encode_cached, is_cacheable
from understudy.core.schema.schema import Assembled, OutputSchema
from understudy.errors import DeadlineExceeded
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.upstream.prediction_cache import LocalCache, PredictionCache
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.row_deadlines import WaitingRow
from understudy.serving.upstream.single_flight import SingleFlight

SHARED_HIT_TTL_SECONDS = 5
"""How long an answer found in the shared cache stays in process: its remaining life there is not known."""


class CacheResult(StrEnum):
    """Whether an answer came from a cache."""

    HIT = "hit"
    MISS = "miss"
    BYPASS = "bypass"
    TOO_LARGE = "too-large"
    """A miss whose answer no cache takes."""


class _Form(NamedTuple):
    """What is kept of an answer, under a name that begins with ``prefix``."""

    prefix: str
    fits: Callable[[Prediction], bool]
    encode: Callable[[Origin, Prediction], bytes]
    decode: Callable[[OutputSchema, Origin, bytes], Prediction | None]


_PLAIN = _Form("infer", is_cacheable, encode_cached, decode_cached)
_WITH_OUTPUT = _Form("infer:output", is_cacheable_output, encode_with_output, decode_with_output)
_FORMS = (_PLAIN, _WITH_OUTPUT)
"""By whether a prediction keeps the server's own output."""


class CachedInference:
    """Predictions by version and input; two cache levels, and one call for concurrent misses (single flight).

    Args:
        backends: The open backends.
        memory_cache: The first level; ``None`` turns it off.
        shared_cache: The second level, which all proxies share; ``None`` when there is none.
        telemetry: Counts hits and misses.
        now: The monotonic clock, in seconds, that deadlines are given in.
    """

    def __init__(
        self,
        backends: BackendPool,
        *,
        memory_cache: LocalCache | None,
        shared_cache: PredictionCache | None,
        telemetry: Telemetry,
        now: Callable[[], float],
    ) -> None:
        self._backends = backends
        self._memory_cache = memory_cache
        self._shared_cache = shared_cache
        self._has_cache = memory_cache is not None or shared_cache is not None
        self.is_shared = shared_cache is not None
        """Whether what the process does not keep is to be asked of :meth:`shared_values` before :meth:`infer`."""
        self._telemetry = telemetry
        self._now = now
        self._flights: SingleFlight[Prediction] = SingleFlight()

    def looks_up(self, version: ModelVersion) -> bool:
        """Whether a cache is asked before the version is."""
        return version.caches and self._has_cache

    def hit(self, version: ModelVersion, assembled: Assembled, *, keeps_output: bool = False) -> Prediction | None:
        """Return what this process keeps of a version that is looked up."""
        if self._memory_cache is None:
            return None
        return self._memory_cache.peek(_kept_as(_FORMS[keeps_output], version, assembled))

    async def shared_values(
        self, version: ModelVersion, asked: Iterable[tuple[Assembled, bool]]
    ) -> Sequence[bytes | None]:
        """Return what the shared cache has for inputs, each with whether its prediction keeps the server's output."""
        assert self._shared_cache is not None
        return await self._shared_cache.get_all(
            [_key_of(_FORMS[keeps_output], version, assembled) for assembled, keeps_output in asked]
        )

    def shared_hit(
        self, version: ModelVersion, assembled: Assembled, value: bytes | None, *, keeps_output: bool = False
    ) -> Prediction | None:
        """Return the prediction of such a value, and keep it in the process; ``None`` of one that is not good.

        Where the shared cache has none, the process may have one by now: another call was answered meanwhile.
        """
        if value is None:
            return self.hit(version, assembled, keeps_output=keeps_output)
        form = _FORMS[keeps_output]
        found = form.decode(version.output_schema, _origin_of(version, assembled), value)
        if found is not None and self._memory_cache is not None:
            ttl_seconds = min(version.cache_ttl_seconds, SHARED_HIT_TTL_SECONDS)
            self._memory_cache.keep(_kept_as(form, version, assembled), found, ttl_seconds)
        return found

    def count_hits(self, version: ModelVersion, hits: int) -> None:
        """Count calls that a cache answered."""
        self._telemetry.count("cache_requests_total", version.model_name, "hit", by=hits)

    def submit(self, version: ModelVersion, rows: Sequence[WaitingRow]) -> None:
        """Have rows answered by a version that is not looked up: all that a turn of the event loop has for it.

        Raises:
            BackendUnavailable: As :meth:`.BackendPool.of`; no row has ended.
        """
        self._backends.of(version).submit(rows)

    async def infer(
        self,
        version: ModelVersion,
        assembled: Assembled | AssembledTreatments,
        deadline: float,
        *,
        keeps_output: bool = False,
    ) -> tuple[Prediction | Ranking, CacheResult]:
        """Return the version's prediction for this input, or its ranking of these treatments; that is never cached.

        A prediction that ``keeps_output`` has the server's own values with it, and entries of its own in the caches.

        Raises:
            BackendUnavailable, BadAnswer, Overloaded: As the version's caller.
            DeadlineExceeded: The ``deadline`` passed first.
        """
        if isinstance(assembled, AssembledTreatments):
            tensor = await self._backends.of(version).call_block(assembled.block, deadline)
            return assembled.ranking_of(version.output_schema, tensor), CacheResult.BYPASS
        if not self.looks_up(version):
            caller = self._backends.of(version)
            return await caller.call(assembled.row, deadline, keeps_output=keeps_output), CacheResult.BYPASS
        try:
            async with asyncio.timeout(deadline - self._now()):
                return await self._miss(version, assembled, deadline, _FORMS[keeps_output])
        except TimeoutError:
            raise DeadlineExceeded("upstream") from None

    async def _miss(
        self, version: ModelVersion, assembled: Assembled, deadline: float, form: _Form
    ) -> tuple[Prediction, CacheResult]:
        """Return the version's prediction, and keep it; concurrent misses ask the model servers once."""
        self._telemetry.count("cache_requests_total", version.model_name, "miss")
        prediction, made = await self._flights.run(
            _kept_as(form, version, assembled),  # a version that was never deployed may be replaced meanwhile
            lambda: self._backends.of(version).call(assembled.row, deadline, keeps_output=form is _WITH_OUTPUT),
        )
        if not form.fits(prediction):
            return prediction, CacheResult.TOO_LARGE
        if made:
            await self._store(version, assembled, form, prediction)
        return prediction, CacheResult.MISS

    async def _store(self, version: ModelVersion, assembled: Assembled, form: _Form, prediction: Prediction) -> None:
        ttl_seconds = version.cache_ttl_seconds
        if self._memory_cache is not None:
            self._memory_cache.keep(_kept_as(form, version, assembled), prediction, ttl_seconds)
        if self._shared_cache is not None:
            value = form.encode(_origin_of(version, assembled), prediction)
            await self._shared_cache.set(_key_of(form, version, assembled), value, ttl_seconds)


def _origin_of(version: ModelVersion, assembled: Assembled) -> Origin:
    return Origin(version.id, version.answer_digest, assembled.digest)


def _key_of(form: _Form, version: ModelVersion, assembled: Assembled) -> str:
    return f"{form.prefix}:{version.id}:{assembled.digest}"


def _kept_as(form: _Form, version: ModelVersion, assembled: Assembled) -> str:
    """Return the key in this process. It has the whole origin: what is kept is not looked at again."""
    return f"{form.prefix}:{version.id}:{version.answer_digest}:{assembled.digest}"
