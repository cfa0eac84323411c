import asyncio
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import orjson
import pytest
from builders import KeptRows, a_policy, a_version, an_input_schema
from virtual_time import in_virtual_time

from understudy.adapters.local_cache import MemoryCache, PredictionMemory
from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.memory.tracing import MemorySpan, MemoryTracer
from understudy.adapters.model_servers.connect import connect
from understudy.core.canary.analysis import evaluate
from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.limits import Stage as RolloutStage
from understudy.core.loading.served_name import served_name
from understudy.core.prediction_log.input_sampling import is_sampled
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.spool_format import MAX_PAYLOAD_BYTES, encode_row
from understudy.core.requests.predict import LONG_BYTES, LongRequest, PredictRequest, parse_predict_batch
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy
from understudy.core.routing.route import Reason, bucket_of
from understudy.core.schema.features import Feature
from understudy.core.schema.outputs import MAX_CACHED_BYTES, Origin, Prediction, encode_cached
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.core.windows.builder import WindowBuilder
from understudy.entrypoints.proxy.messages.answers import answer_of
from understudy.errors import (
    BackendUnavailable,
    BadAnswer,
    DeadlineExceeded,
    FeaturesUnavailable,
    InputInvalid,
    InternalFault,
    PolicyNotLoaded,
    UnknownModel,
    UnknownVersion,
    VersionUnloaded,
)
from understudy.ports.telemetry.tracing import CURRENT, Attributes, within
from understudy.ports.upstream.feature_store import FeatureStore
from understudy.serving.call import Asked, Call
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn import Clocks, Limits, Predictor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference, CacheResult
from understudy.serving.upstream.row_deadlines import WaitingRow
from understudy.serving.version_calls import MAX_LARGE

INPUTS = {"age": 41.0, "income": 2.0}


def now() -> float:
    return asyncio.get_running_loop().time()


def sums(rows: Sequence[Row]) -> Tensor:
    """Answer each row with the sum of its features."""
    totals = [sum(struct.unpack(f"<{len(row[0]) // 4}f", row[0])) for row in rows]
    return Tensor(Datatype.FP32, (len(rows), 1), np.array(totals, dtype="<f4"))


class Stored:
    """A feature store of one dictionary."""

    def __init__(
        self, features: Mapping[str, Any], error: FeaturesUnavailable | None = None, seconds: float = 0
    ) -> None:
        self.features, self.error, self.seconds = features, error, seconds

    async def fetch(self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float) -> Any:
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return {name: self.features[name] for name in names if name in self.features}

    async def close(self) -> None:
        pass


class Answered(Asked):
    """What is asked by a caller that is told by callback."""

    tell: Callable[[Call | Exception], object]

    def on_result(self, found: Call | Exception) -> None:
        self.tell(found)


class DefectiveCaller(BatchingCaller):
    """One that takes no rows."""

    def submit(self, rows: Iterable[WaitingRow]) -> None:
        raise ZeroDivisionError(str(rows))


def asked(request: PredictRequest, tell: Callable[[Call | Exception], object]) -> Answered:
    return Answered("visits", request, None, None, None, tell)


class Stage:
    """A predictor with in-memory parts around it, and a backend for each version."""

    by_callback = False
    """Whether calls are begun as a turn of their own, as those of the fast path, and answered by callback."""

    def __init__(
        self,
        policy: ServingPolicy | None,
        features: FeatureStore | None = None,
        *,
        shadows: int = 64,
        shared_cache: MemoryCache | None = None,
        caches: bool = True,
        memory_cache: PredictionMemory | None = None,
        spool: KeptRows | None = None,
        telemetry: MemoryTelemetry | None = None,
        on_drop: Callable[[str], None] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.backends: dict[str, MemoryBackend] = {}
        self.connects: set[str] = set()
        """Versions that have the backend of their own settings instead."""
        self.defective: set[str] = set()
        """Versions to which no row can be sent."""
        self.spool = spool or KeptRows()
        self.telemetry = telemetry or MemoryTelemetry()
        self.snapshot = PolicySnapshot({policy.model_name: policy}) if policy is not None else None
        self.shadows = ShadowPool(shadows, on_drop or partial(self.telemetry.count, "shadow_dropped_total"))
        self.memory_cache = PredictionMemory(1_000_000) if memory_cache is None else memory_cache
        for version in policy.versions.values() if policy is not None else ():
            self.backends[version.version] = MemoryBackend(sums)
        log = GroupCommit(self.spool)
        inference = CachedInference(
            BackendPool(self._make),
            memory_cache=self.memory_cache if caches else None,
            shared_cache=shared_cache,
            telemetry=self.telemetry,
            now=now,
        )
        self.predictor = Predictor(
            snapshot=lambda: self.snapshot,
            inference=inference,
            features=features,
            log=log,
            shadows=self.shadows,
            telemetry=self.telemetry,
            limits=Limits(feature_timeout_seconds=0.2, challenger_budget_ratio=0.4, shadow_timeout_seconds=0.5),
            clocks=Clocks(monotonic=now, unix=time.time, random_bytes=random_bytes),
        )

    def _make(self, version: ModelVersion) -> BatchingCaller:
        kind = DefectiveCaller if version.version in self.defective else BatchingCaller
        return kind(
            version,
            connect(version) if version.version in self.connects else self.backends[version.version],
            concurrency=2,
            gap_seconds=0.002,
            batch_rows=32,
            queue_rows=100,
            now=now,
        )

    async def ask(self, entity_id: str = "customer-1", inputs: Any = None, **options: Any) -> Call:
        category = options.pop("category", None)
        request = PredictRequest(entity_id, INPUTS if inputs is None else inputs, category)
        if self.by_callback:
            answered: asyncio.Future[Call | Exception] = asyncio.get_running_loop().create_future()
            timeout_seconds, forced_version = options.get("timeout_seconds"), options.get("forced_version")
            self.predictor.begin(
                [Answered("visits", request, timeout_seconds, forced_version, CURRENT.get(), answered.set_result)]
            )
            outcome = await answered
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return await self.predictor.predict("visits", request, **options)

    @property
    def rows(self) -> list[Any]:
        return self.spool.rows


@pytest.fixture(autouse=True, params=["awaited", "by callback"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stage, "by_callback", request.param == "by callback")


def entity_in(low: int, high: int) -> str:
    return next(e for e in map("customer-{}".format, count()) if low <= bucket_of("visits", e) < high)


def score_of(outcome: Call) -> float | None:
    assert outcome.error is None
    assert outcome.prediction is not None
    return outcome.prediction.score


async def test_the_champion_answers_and_the_row_tells_everything():
    stage = Stage(a_policy(generation=41, rollout_id=7))

    outcome = await stage.ask("customer-1")

    assert score_of(outcome) == 43.0
    (row,) = stage.rows
    assert row.prediction_id == outcome.prediction_id
    assert (row.model_version_id, row.assigned_version_id, row.role) == (1, 1, Role.CHAMPION)
    assert (row.entity_id, row.bucket, row.reason) == ("customer-1", bucket_of("visits", "customer-1"), Reason.BUCKET)
    assert (row.policy_generation, row.rollout_id) == (41, 7)
    assert (row.prediction, row.score, row.status, row.error_code) == (b'{"score":43.0}', 43.0, Status.OK, None)
    assert outcome.assembled is not None
    assert row.input_hash == outcome.assembled.digest


async def test_a_second_call_with_the_same_input_is_a_hit_and_is_logged_too():
    stage = Stage(a_policy())

    first, second = await stage.ask("customer-1"), await stage.ask("customer-2")

    assert (first.cache, second.cache) == (CacheResult.MISS, CacheResult.HIT)
    assert score_of(second) == 43.0
    assert len(stage.backends["1"].calls) == 1
    assert [row.cache_hit for row in stage.rows] == [False, True]


async def test_a_hit_in_the_shared_cache_needs_no_call():
    shared = MemoryCache(1_000_000)
    warmed, stage = Stage(a_policy(), shared_cache=shared), Stage(a_policy(), shared_cache=shared)
    await warmed.ask()

    outcome = await stage.ask()

    assert outcome.cache is CacheResult.HIT
    assert stage.backends["1"].calls == []


class SharedCache(MemoryCache):
    """One that takes its time for some of its answers, and knows what it was asked for together."""

    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.asked: list[list[str]] = []
        self.seconds: Iterator[float] = iter(())
        self.problem: Exception | None = None

    async def get_all(self, keys: Iterable[str]) -> list[bytes | None]:
        asked = list(keys)
        self.asked.append(asked)
        found = await super().get_all(asked)
        await asyncio.sleep(next(self.seconds, 0.0))
        if self.problem is not None:
            raise self.problem
        return found


async def a_cache_that_knows(*ages: int, labels: str = "1") -> SharedCache:
    """Return a shared cache with versions' answers to these inputs."""
    shared = SharedCache()
    for label in labels:
        warmed = Stage(a_policy(champion=a_version(label)), shared_cache=shared)
        for age in ages:
            await warmed.ask(inputs={"age": age, "income": 1})
    shared.asked.clear()
    return shared


def of_ages(ages: Iterable[int]) -> list[PredictRequest]:
    return [PredictRequest(f"customer-{age}", {"age": age, "income": 1}) for age in ages]


async def test_calls_of_a_turn_ask_the_shared_cache_together_and_each_has_its_own_answer():
    shared = await a_cache_that_knows(*range(10))
    stage = Stage(a_policy(), shared_cache=shared)

    outcomes = await stage.predictor.predict_all("visits", of_ages([*range(20), 0, 19]))

    assert [len(keys) for keys in shared.asked] == [22]
    assert [score_of(outcome) for outcome in outcomes] == [age + 1.0 for age in [*range(20), 0, 19]]
    hit, miss = CacheResult.HIT, CacheResult.MISS
    assert [outcome.cache for outcome in outcomes] == [*10 * [hit], *10 * [miss], hit, miss]
    assert sum(map(len, stage.backends["1"].calls)) == 10
    assert Counter(row.cache_hit for row in stage.rows) == {True: 11, False: 11}
    counts = stage.telemetry.counts
    assert counts["cache_requests_total", "visits", "hit"] == counts["cache_requests_total", "visits", "miss"] == 11


@in_virtual_time
async def test_a_call_ends_at_its_deadline_though_the_shared_cache_is_still_asked_and_the_others_go_on():
    shared = await a_cache_that_knows(0, 1, 2)
    shared.seconds = iter((0.3, 0.3, 0.3))
    stage, began = Stage(a_policy(), shared_cache=shared), now()

    async def ended(age: int, timeout_seconds: float | None) -> tuple[Call, float]:
        outcome = await stage.ask(inputs={"age": age, "income": 1}, timeout_seconds=timeout_seconds)
        return outcome, now() - began

    (first, _), (hasty, hasty_at), (last, last_at) = await asyncio.gather(ended(0, None), ended(1, 0.1), ended(2, None))
    await asyncio.sleep(10)  # past all deadlines

    assert isinstance(hasty.error, DeadlineExceeded)
    assert hasty_at == pytest.approx(0.1, abs=0.002)
    assert [first.cache, last.cache] == [CacheResult.HIT] * 2
    assert last_at == pytest.approx(0.3, abs=0.002)
    assert len(stage.rows) == 3
    assert stage.backends["1"].calls == []


@in_virtual_time
async def test_what_was_answered_while_the_shared_cache_was_asked_needs_no_further_call():
    shared = SharedCache()
    shared.seconds = iter((0.1, 0.2))
    stage = Stage(a_policy(), shared_cache=shared)

    first = asyncio.create_task(stage.ask())
    await asyncio.sleep(0.05)
    second = await stage.ask()

    assert [len(keys) for keys in shared.asked] == [1, 1]
    assert [(await first).cache, second.cache] == [CacheResult.MISS, CacheResult.HIT]
    assert score_of(second) == 43.0
    assert len(stage.backends["1"].calls) == 1


@in_virtual_time
async def test_a_challenger_whose_time_is_over_while_the_shared_cache_is_asked_leaves_the_champion_to_answer():
    shared = await a_cache_that_knows(0, labels="12")
    shared.seconds = iter((10.0,))
    stage = Stage(a_policy(challenger_weight=100), shared_cache=shared)

    outcome = await stage.ask(inputs={"age": 0, "income": 1})
    await asyncio.sleep(20)

    assert isinstance(outcome.fallback_from, DeadlineExceeded)
    assert (outcome.role, outcome.cache, score_of(outcome)) == (Role.CHAMPION, CacheResult.HIT, 1.0)
    assert len(stage.rows) == 1
    assert len(shared.asked) == 2


async def test_a_defect_of_the_shared_cache_is_told_to_every_call_that_asked_it():
    shared = await a_cache_that_knows(0)
    shared.problem = ZeroDivisionError()
    stage = Stage(a_policy(), shared_cache=shared)

    told = await asyncio.gather(
        *(stage.ask(inputs={"age": age, "income": 1}) for age in range(3)), return_exceptions=True
    )

    assert told == [shared.problem] * 3


async def test_a_value_that_is_none_costs_no_other_call_of_its_turn_its_answer():
    shared = await a_cache_that_knows(0, 1, 2)
    odd: Any = shared
    odd._entries[[*odd._entries][1]] = odd._entries[[*odd._entries][1]]._replace(value=7)  # noqa: SLF001 - no bytes
    stage = Stage(a_policy(), shared_cache=shared)

    told = await asyncio.gather(
        *(stage.ask(inputs={"age": age, "income": 1}) for age in range(3)), return_exceptions=True
    )

    assert [score_of(told[0]), score_of(told[2])] == [1.0, 3.0]  # type: ignore[arg-type]
    assert isinstance(told[1], TypeError)


async def test_a_poisoned_cache_value_is_a_miss_and_is_replaced():
    shared = MemoryCache(1_000_000)
    digest = (await Stage(a_policy(), shared_cache=shared).ask()).assembled.digest  # type: ignore[union-attr]
    good = shared.peek(f"infer:1:{digest}")
    poison = encode_cached(Origin(2, a_version().answer_digest, digest), Prediction(b'{"score":-1.0}', -1.0))
    await shared.set(f"infer:1:{digest}", poison, 300)

    outcome = await Stage(a_policy(), shared_cache=shared).ask()

    assert (outcome.cache, score_of(outcome)) == (CacheResult.MISS, 43.0)
    assert shared.peek(f"infer:1:{digest}") == good


async def test_what_the_process_keeps_is_no_answer_of_a_version_that_was_corrected_in_place():
    corrected = a_version("1", output_schema={"score_index": 0})
    before = Stage(a_policy())
    after = Stage(a_policy(champion=corrected), memory_cache=before.memory_cache)
    await before.ask()

    outcomes = [await after.ask(), await after.ask(), await before.ask()]

    assert [outcome.cache for outcome in outcomes] == [CacheResult.MISS, CacheResult.HIT, CacheResult.HIT]


async def test_a_version_that_is_not_deterministic_is_asked_every_time():
    stage = Stage(a_policy(champion=a_version("1", deterministic=False)))

    outcomes = [await stage.ask(), await stage.ask()]

    assert [outcome.cache for outcome in outcomes] == [CacheResult.BYPASS] * 2
    assert len(stage.backends["1"].calls) == 2


def lists(size: int) -> Callable[[Sequence[Row]], Tensor]:
    """Answer each row with as many numbers."""
    return lambda rows: Tensor(Datatype.FP32, (len(rows), size), np.full(len(rows) * size, 0.125, "<f4"))


async def test_an_answer_that_no_cache_takes_is_not_stored_and_does_not_say_that_it_was():
    shared = MemoryCache(100_000_000)
    stage = Stage(a_policy(), shared_cache=shared)
    await stage.ask()
    kept = len(stage.memory_cache)
    stage.backends["1"].function = lists(MAX_CACHED_BYTES // 5)

    answered = await asyncio.gather(*(stage.ask(inputs={"age": 1, "income": 1}) for _ in range(2)))

    for outcome in answered:
        assert outcome.cache is CacheResult.TOO_LARGE
        lines, _ = answer_of(outcome, name_version=True)
        assert b"cache-status: understudy; fwd=miss; detail=too-large\r\n" in lines
        assert b"stored" not in lines
    assert len(stage.memory_cache) == len(shared) == kept
    assert (await stage.ask()).cache is CacheResult.HIT


@pytest.mark.deep
async def test_an_answer_that_is_too_long_for_a_row_is_given_whole_and_logged_shortened():
    stage = Stage(a_policy(champion=a_version("1", timeout_ms=30_000)))
    stage.backends["1"].function = lists(800_000)

    outcome = await stage.ask()

    assert score_of(outcome) == 0.125
    assert outcome.prediction is not None
    text = outcome.prediction.json
    assert len(orjson.loads(text)["scores"]) == 800_000
    (row,) = stage.rows
    assert (orjson.loads(row.prediction), row.score) == ({"label": 0, "omitted_bytes": len(text)}, 0.125)
    assert len(encode_row(row)) <= MAX_PAYLOAD_BYTES


async def test_an_output_of_true_and_false_is_a_hit_the_second_time():
    stage = Stage(a_policy(champion=a_version("1", output_schema={"dtype": "bool"})))
    stage.backends["1"].function = lambda rows: Tensor(Datatype.BOOL, (len(rows), 1), np.ones(len(rows), "?"))

    first, second = await stage.ask(), await stage.ask()

    assert (first.cache, second.cache) == (CacheResult.MISS, CacheResult.HIT)
    assert first.prediction == second.prediction == Prediction(b'{"score":true}', 1.0)


@pytest.mark.parametrize(
    "correction",
    [
        {"output_schema": {"activation": "sigmoid"}},
        {"backend": {"version": "7"}},
        {"protocol": "tfserving"},
    ],
)
async def test_a_version_that_was_corrected_in_place_does_not_answer_from_before(correction):
    shared = MemoryCache(1_000_000)
    stage = Stage(a_policy(), shared_cache=shared)
    await stage.ask()
    stage.backends["1"].function = lambda rows: Tensor(Datatype.FP32, (len(rows), 1), np.zeros(len(rows), "<f4"))

    stage.snapshot = PolicySnapshot({"visits": a_policy(champion=a_version("1", **correction))})
    outcome = await stage.ask()
    again = await stage.ask()

    assert score_of(outcome) == (0.5 if "output_schema" in correction else 0.0)
    assert (outcome.cache, again.cache) == (CacheResult.MISS, CacheResult.HIT)


async def test_a_version_that_only_got_a_role_or_another_address_keeps_its_cached_answers():
    stage = Stage(a_policy())
    await stage.ask()

    moved = a_version("1", status="champion", endpoints=["127.0.0.1:9001"])
    stage.snapshot = PolicySnapshot({"visits": a_policy(champion=moved)})

    assert (await stage.ask()).cache is CacheResult.HIT


async def test_concurrent_misses_on_one_input_make_one_call():
    stage = Stage(a_policy())
    stage.backends["1"].delay_seconds = 0.02

    outcomes = await asyncio.gather(*(stage.ask(f"customer-{n}") for n in range(50)))

    assert {score_of(outcome) for outcome in outcomes} == {43.0}
    assert sum(len(call) for call in stage.backends["1"].calls) == 1
    assert len({row.prediction_id for row in stage.rows}) == 50


async def test_a_swapped_version_never_gives_the_other_versions_cached_answer():
    stage = Stage(a_policy())
    stage.backends["2"] = MemoryBackend(
        lambda rows: Tensor(Datatype.FP32, (len(rows), 1), np.full(len(rows), 9.0, "<f4"))
    )
    await stage.ask()

    stage.snapshot = PolicySnapshot({"visits": a_policy(champion=a_version("2"), generation=2)})
    outcome = await stage.ask()

    assert score_of(outcome) == 9.0
    assert outcome.policy.generation == 2


async def test_a_failing_challenger_gets_the_champions_answer_and_the_row_says_both():
    stage = Stage(a_policy(challenger_weight=50))
    stage.backends["2"].error = BackendUnavailable("down")

    outcome = await stage.ask(entity_in(0, 50))

    assert score_of(outcome) == 43.0
    assert outcome.role is Role.CHAMPION
    assert isinstance(outcome.fallback_from, BackendUnavailable)
    (row,) = stage.rows
    assert (row.assigned_version_id, row.model_version_id, row.role) == (2, 1, Role.CHAMPION)
    assert (row.status, row.error_code) == (Status.FALLBACK, "E503")
    counts = stage.telemetry.counts
    assert counts["fallbacks_total", "visits", "E503"] == 1
    assert counts["predict_requests_total", "visits", "2", "challenger", "unavailable"] == 1
    assert counts["predict_requests_total", "visits", "1", "champion", "fallback"] == 1


@pytest.mark.parametrize("cache_ttl_seconds", [0, 60])
async def test_a_challenger_whose_backend_cannot_be_made_gets_the_champions_answer_and_a_row(cache_ttl_seconds: int):
    challenger = a_version(
        "2", backend={"version": str(2**63)}, protocol="tfserving", cache_ttl_seconds=cache_ttl_seconds
    )
    stage = Stage(a_policy(challenger=challenger, challenger_weight=50))
    stage.connects.add("2")

    outcome = await stage.ask(entity_in(0, 50))

    assert score_of(outcome) == 43.0
    assert isinstance(outcome.fallback_from, BackendUnavailable)
    (row,) = stage.rows
    assert (row.assigned_version_id, row.model_version_id, row.status) == (2, 1, Status.FALLBACK)


@in_virtual_time
async def test_a_hanging_challenger_costs_at_most_its_share_of_the_deadline():
    stage = Stage(a_policy(challenger_weight=100))
    stage.backends["2"].delay_seconds = 10

    started = now()
    outcome = await stage.ask(timeout_seconds=1)

    assert score_of(outcome) == 43.0
    assert now() - started == pytest.approx(0.4 * 0.5)  # of the champion's own time-out
    # Each arm is charged its own time: the challenger's delay is not the champion's.
    (champion_seconds,) = stage.telemetry.observed["predict_duration_seconds", "visits", "1", "champion"]
    (challenger_seconds,) = stage.telemetry.observed["predict_duration_seconds", "visits", "2", "challenger"]
    assert champion_seconds < 0.1
    assert challenger_seconds == pytest.approx(0.2, abs=0.1)
    assert stage.rows[0].error_code == "E504"


class Late(MemoryBackend):
    """A backend that answers after the time that it has."""

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        await asyncio.sleep(max(timeout_seconds, self.delay_seconds))
        return self.function(rows)


@in_virtual_time
async def test_a_challengers_late_answer_is_not_taken_for_the_champions():
    stage = Stage(a_policy(challenger_weight=100), caches=False)
    stage.backends["2"] = Late(lambda rows: sums([*rows, *rows]), delay_seconds=0.25)
    stage.backends["1"].delay_seconds = 0.2

    outcome = await stage.ask()
    await asyncio.sleep(1)

    assert score_of(outcome) == 43.0
    assert isinstance(outcome.fallback_from, DeadlineExceeded)
    assert outcome.ended - outcome.started == pytest.approx(0.4 * 0.5 + 0.2)
    assert [(row.status, row.model_version_id) for row in stage.rows] == [(Status.FALLBACK, 1)]


@pytest.mark.deep
@in_virtual_time
async def test_an_equal_challenger_is_not_taken_back_for_deadlines_that_leave_it_no_time():
    policy = a_policy(challenger_weight=50, rollout_id=7)
    stage = Stage(policy, caches=False)
    stage.backends["1"].delay_seconds = stage.backends["2"].delay_seconds = 0.06
    began, rows = 1_763_661_000, []
    for number in range(400):
        at = now()
        assert score_of(await stage.ask(f"customer-{number}", timeout_seconds=0.14)) == 43.0
        rows.append(stage.rows[-1]._replace(predicted_at=began + at))
    lines = [encode_line(row) for row in rows]

    windows = WindowBuilder("here").stage(lines, COLUMNS, lambda _: 61_000).windows
    rollout = RolloutStage("visits", "2", 7, (float(began),), 2, 50.0, {policy.generation: 50.0})
    decisions = [evaluate(windows, CanaryPolicy(), rollout, began + seconds) for seconds in (11.0, 20.0, 60.0)]

    assert [decision.verdict for decision in decisions] == [Verdict.HOLD] * 3
    assert "were left out: their callers' deadlines" in decisions[-1].reason
    # The log says what happened.
    assert {(row.status, row.error_code) for row in rows} == {(Status.OK, None), (Status.FALLBACK, "E504")}
    assert {row.deadline_us for row in rows} == {140_000}


async def test_a_row_has_its_category_and_the_features_that_versions_mark_and_a_shadows_has_none():
    marked = (Feature("age", Datatype.FP32, is_slice=True), Feature("plan", Datatype.BYTES, default="free"))
    stage = Stage(a_policy(shadow=a_version("3"), slices=marked))

    await stage.ask("ada", category="gold")
    await stage.ask("ada")
    await stage.shadows.drain(1)

    answered = [row.slices for row in stage.rows if row.role is not Role.SHADOW]
    assert answered == [b'{"category":"gold","age":"other","plan":"free"}', b'{"age":"other","plan":"free"}']
    assert {row.slices for row in stage.rows if row.role is Role.SHADOW} == {None}


async def test_a_row_has_its_callers_deadline_where_that_is_shorter_than_the_champions_time_out():
    policy = a_policy(challenger_weight=50, challenger=a_version("2", timeout_ms=100), shadow=a_version("3"))
    stage = Stage(policy)

    for entity in (entity_in(0, 50), entity_in(50, 100)):
        for seconds in (None, 0.494, 0.4995, 0.5, 1e-9):  # of 0.4995 reading took the rest
            await stage.ask(entity, timeout_seconds=seconds)
    await stage.shadows.drain(1)

    answered = [row.deadline_us for row in stage.rows if row.role is not Role.SHADOW]
    assert answered == 2 * [None, 494_000, None, None, 1]
    assert {row.deadline_us for row in stage.rows if row.role is Role.SHADOW} == {None}


async def test_a_further_arm_answers_its_buckets_and_is_logged_as_a_challenger_of_no_rollout():
    policy = a_policy(challenger_weight=50, arms=dict.fromkeys(range(90, 100), a_version("3")))
    stage = Stage(replace(policy, versions={**policy.versions, "3": policy.arms[95]}))

    outcome = await stage.ask(entity_in(90, 100))

    assert (outcome.version.version, outcome.role, outcome.route.reason) == ("3", Role.CHALLENGER, Reason.BUCKET)
    (row,) = stage.rows
    assert (row.model_version_id, row.assigned_version_id, row.role) == (3, 3, Role.CHALLENGER)
    assert row.rollout_id is None
    assert stage.telemetry.counts["predict_requests_total", "visits", "3", "challenger", "ok"] == 1


async def test_the_champion_answers_for_a_further_arm_that_fails():
    policy = a_policy(arms=dict.fromkeys(range(100), a_version("3")))
    stage = Stage(replace(policy, versions={**policy.versions, "3": policy.arms[0]}))
    stage.backends["3"].error = BackendUnavailable("away")

    outcome = await stage.ask()

    assert (outcome.version.version, outcome.role) == ("1", Role.CHAMPION)
    (row,) = stage.rows
    assert (row.model_version_id, row.assigned_version_id, row.status) == (1, 3, Status.FALLBACK)


async def test_without_fallback_the_challengers_failure_is_the_answer():
    stage = Stage(a_policy(challenger_weight=100, fallback=False))
    stage.backends["2"].error = BadAnswer("nonsense")

    outcome = await stage.ask()

    assert isinstance(outcome.error, BadAnswer)
    assert (stage.rows[0].status, stage.rows[0].role) == (Status.BAD_ANSWER, Role.CHALLENGER)


async def test_a_challenger_whose_schema_wants_more_falls_back_to_the_champion():
    wants_more = a_version("2", input_schema={"features": [{"name": "extra", "dtype": "float32"}]})
    stage = Stage(a_policy(challenger=wants_more, challenger_weight=100))

    outcome = await stage.ask()

    assert score_of(outcome) == 43.0
    assert isinstance(outcome.fallback_from, InputInvalid)


async def test_the_champions_failure_is_never_silently_the_challengers_answer():
    stage = Stage(a_policy(challenger_weight=1))
    stage.backends["1"].error = BackendUnavailable("down")

    outcome = await stage.ask(entity_in(1, 100))

    assert isinstance(outcome.error, BackendUnavailable)
    assert stage.backends["2"].calls == []
    assert (stage.rows[0].status, stage.rows[0].prediction) == (Status.UNAVAILABLE, b"null")


async def test_cached_answers_go_on_while_the_champion_is_down():
    stage = Stage(a_policy())
    await stage.ask()
    stage.backends["1"].error = BackendUnavailable("down")

    assert score_of(await stage.ask("customer-9")) == 43.0
    assert isinstance((await stage.ask(inputs={"age": 1, "income": 1})).error, BackendUnavailable)


@in_virtual_time
async def test_a_late_answer_is_a_timeout_at_the_deadline():
    stage = Stage(a_policy())
    stage.backends["1"].delay_seconds = 10

    started = now()
    outcome = await stage.ask(timeout_seconds=0.2)

    assert isinstance(outcome.error, DeadlineExceeded)
    assert outcome.error.stage == "upstream"
    assert now() - started == pytest.approx(0.2)
    assert stage.rows[0].status is Status.TIMEOUT


async def test_a_bad_answer_is_neither_used_nor_cached():
    stage = Stage(a_policy())
    stage.backends["1"].function = lambda rows: Tensor(Datatype.FP32, (1, 1), np.array([np.nan], "<f4"))

    first = await stage.ask()
    stage.backends["1"].function = sums
    second = await stage.ask()

    assert isinstance(first.error, BadAnswer)
    assert score_of(second) == 43.0
    assert second.cache is CacheResult.MISS


async def test_wrong_inputs_are_the_callers_to_correct_and_are_no_exposure():
    stage = Stage(a_policy())

    outcome = await stage.ask(inputs={"age": "x"})

    assert isinstance(outcome.error, InputInvalid)
    assert len(outcome.error.violations) == 2
    assert stage.rows == []
    assert stage.telemetry.counts["predict_requests_total", "visits", "1", "champion", "invalid_input"] == 1


async def test_the_shadow_sees_the_same_call_and_is_logged_under_its_own_version():
    stage = Stage(a_policy(shadow=a_version("4")))

    outcome = await stage.ask()
    await stage.shadows.drain(1)

    champion, shadow = stage.rows
    assert stage.backends["4"].calls == stage.backends["1"].calls
    assert (shadow.role, shadow.model_version_id, shadow.assigned_version_id) == (Role.SHADOW, 4, 4)
    assert shadow.prediction_id == champion.prediction_id == outcome.prediction_id
    assert shadow.input_hash == champion.input_hash


@in_virtual_time
async def test_a_hanging_shadow_is_bounded_costs_the_caller_nothing_and_says_timeout():
    stage = Stage(a_policy(shadow=a_version("4", timeout_ms=300)), shadows=3)
    stage.backends["4"].delay_seconds = 10

    started = now()
    for n in range(10):
        await stage.ask(inputs={"age": n, "income": 0})
    spent = now() - started
    most = len(stage.shadows)
    await stage.shadows.drain(1)

    assert spent == 0
    assert most == 3
    assert [row.status for row in stage.rows if row.role is Role.SHADOW] == [Status.TIMEOUT] * 3
    assert stage.telemetry.counts["shadow_dropped_total", "visits"] == 7


async def test_a_failing_shadow_is_a_row_and_nothing_else():
    stage = Stage(a_policy(shadow=a_version("4")))
    stage.backends["4"].error = BackendUnavailable("down")

    outcome = await stage.ask()
    await stage.shadows.drain(1)

    assert score_of(outcome) == 43.0
    assert stage.rows[1].status is Status.UNAVAILABLE


async def test_a_forced_version_answers_is_marked_and_is_not_shadowed():
    stage = Stage(a_policy(challenger_weight=1, shadow=a_version("4")))

    outcome = await stage.ask(entity_in(50, 100), forced_version="2")

    assert outcome.version.version == "2"
    assert (stage.rows[0].reason, len(stage.shadows)) == (Reason.FORCED, 0)
    with pytest.raises(UnknownVersion):
        await stage.ask(forced_version="99")


async def test_a_forced_version_that_agents_have_loaded_nowhere_is_unavailable_in_the_log_for_the_leader_to_read():
    unloaded = replace(a_version("2"), endpoints=(), backend={"model_name": served_name("visits", "2")})
    stage = Stage(a_policy(challenger=unloaded))

    outcome = await stage.ask(forced_version="2")

    assert isinstance(outcome.error, VersionUnloaded)
    (row,) = stage.rows
    assert (row.model_version_id, row.reason, row.status, row.error_code) == (
        unloaded.id,
        Reason.FORCED,
        Status.UNAVAILABLE,
        "E509",
    )


async def test_without_policies_or_model_there_is_no_route():
    with pytest.raises(PolicyNotLoaded):
        await Stage(None).ask()
    with pytest.raises(UnknownModel):
        await Stage(a_policy(model_name="other")).ask()


STORED_SCHEMA = {
    "features": [
        {"name": "age", "dtype": "float32"},
        {"name": "income", "dtype": "float32", "source": "store"},
        {"name": "visits", "dtype": "float32", "source": "store", "default": 5},
    ],
    "tensors": [{"name": "input", "features": ["age", "income", "visits"]}],
}


def a_policy_with_stored_features() -> ServingPolicy:
    return a_policy(champion=a_version("1", input_schema=STORED_SCHEMA))


async def test_features_come_from_the_store_and_the_requests_own_values_win():
    stage = Stage(a_policy_with_stored_features(), Stored({"income": 10, "visits": 100}))

    assert score_of(await stage.ask(inputs={"age": 1})) == 111.0
    assert score_of(await stage.ask(inputs={"age": 1, "visits": 0})) == 11.0


async def test_a_default_that_stood_in_is_flagged():
    stage = Stage(a_policy_with_stored_features(), Stored({"income": 10}))

    outcome = await stage.ask(inputs={"age": 1})

    assert score_of(outcome) == 16.0
    assert stage.rows[0].defaulted == ("visits",)
    assert stage.telemetry.counts["feature_missing_total", "visits", "visits"] == 1
    assert ("feature_missing_total", "visits", "income") not in stage.telemetry.counts


async def test_two_entities_with_the_same_body_but_other_features_never_share_an_answer():
    store = Stored({"income": 10, "visits": 1})
    stage = Stage(a_policy_with_stored_features(), store)
    one = await stage.ask("customer-1", inputs={"age": 1})
    store.features = {"income": 20, "visits": 1}
    other = await stage.ask("customer-2", inputs={"age": 1})

    assert (score_of(one), score_of(other)) == (12.0, 22.0)


@in_virtual_time
@pytest.mark.parametrize("store", [Stored({}, FeaturesUnavailable("down")), Stored({}, seconds=1), None])
async def test_a_store_that_fails_is_503_for_required_features_and_defaults_for_the_others(store):
    stage = Stage(a_policy_with_stored_features(), store)

    started = now()
    missing = await stage.ask(inputs={"age": 1})
    enough = await stage.ask(inputs={"age": 1, "income": 2})

    assert isinstance(missing.error, FeaturesUnavailable)
    assert score_of(enough) == 8.0
    assert stage.rows[-1].defaulted == ("visits",)
    assert now() - started <= 2 * 0.2 + 0.001


async def test_an_entity_that_the_store_does_not_know_is_422_with_the_pointer():
    stage = Stage(a_policy_with_stored_features(), Stored({}))

    outcome = await stage.ask(inputs={"age": 1})

    assert isinstance(outcome.error, InputInvalid)
    assert [violation.pointer for violation in outcome.error.violations] == ["/inputs/income"]


FITTING_SCHEMA = {
    "features": [
        {"name": "age", "dtype": "float32", "max": 150},
        {"name": "income", "dtype": "float32", "source": "store", "min": 0},
        {"name": "a/b~c", "dtype": "int8", "source": "store", "default": 5},
        {"name": "pair", "dtype": "float32", "shape": [2], "source": "store", "default": [1, 2]},
    ],
    "tensors": [
        {"name": "input", "dtype": "float32", "features": ["age", "income", "pair"]},
        {"name": "small", "features": ["a/b~c"]},
    ],
}
STORED = {"income": 10, "a/b~c": 100, "pair": [1, 2]}


def a_stage_that_stores(**stored: Any) -> Stage:
    policy = a_policy(champion=a_version("1", input_schema=FITTING_SCHEMA), input_sample_percent=100)
    return Stage(policy, Stored({**STORED, **stored}))


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("a/b~c", "many", 5),
        ("a/b~c", 300, 5),  # fits JSON's integers and not the tensor
        ("pair", [1, "x"], [1, 2]),
        ("pair", [1, 2, 3], [1, 2]),
        ("pair", [1, 1e300], [1, 2]),
        ("pair", None, [1, 2]),
    ],
)
async def test_a_default_stands_in_for_a_stored_value_that_does_not_fit(name, value, default):
    stage = a_stage_that_stores(**{name: value})

    outcome = await stage.ask(inputs={"age": 1})

    assert score_of(outcome) == 14.0
    (row,) = stage.rows
    assert (row.status, row.defaulted) == (Status.OK, (name,))
    if name != "pair":  # of a shape, which is not logged
        assert orjson.loads(row.inputs)[name] == default
    assert stage.telemetry.counts["feature_missing_total", "visits", name] == 1


async def test_a_required_stored_value_that_does_not_fit_is_503_and_a_row():
    stage = a_stage_that_stores(income=-3)

    outcome = await stage.ask(inputs={"age": 1})

    error = outcome.error
    assert isinstance(error, FeaturesUnavailable)
    assert "income" in error.detail
    assert "is below the least permitted value 0" in error.detail
    assert "-3" not in error.detail
    (row,) = stage.rows
    assert (row.status, row.error_code, row.input_hash) == (Status.UNAVAILABLE, "E505", "")
    assert stage.backends["1"].calls == []


async def test_the_callers_own_mistakes_are_told_without_those_of_the_store():
    stage = a_stage_that_stores(income="x", pair="y")

    outcome = await stage.ask(inputs={"age": 151, "a/b~c": 300})

    assert isinstance(outcome.error, InputInvalid)
    assert [one.pointer for one in outcome.error.violations] == ["/inputs/age"]
    both = await stage.ask(inputs={"age": 1, "income": 1, "a/b~c": 300})
    assert isinstance(both.error, InputInvalid)
    assert [one.pointer for one in both.error.violations] == ["/inputs/a~1b~0c"]
    assert stage.rows == []


async def test_the_champion_answers_for_a_challenger_that_cannot_use_what_is_stored():
    picky = a_version("2", input_schema=FITTING_SCHEMA)
    policy = a_policy(challenger=picky, challenger_weight=100)
    store = Stored({**STORED, "a/b~c": "many", "pair": None})
    stage = Stage(policy, store)
    stage.snapshot = PolicySnapshot({"visits": replace(policy, champion=a_version("1", input_schema=STORED_SCHEMA))})
    stage.backends["1"] = MemoryBackend(sums)
    store.features = {"income": -1, "visits": 3}

    outcome = await stage.ask(inputs={"age": 1})

    assert score_of(outcome) == 3.0
    assert isinstance(outcome.fallback_from, FeaturesUnavailable)
    assert (stage.rows[0].status, stage.rows[0].error_code) == (Status.FALLBACK, "E505")


async def test_an_input_schema_without_a_batch_dimension_is_served_row_by_row():
    version = a_version("1", input_schema=an_input_schema(batch=False), deterministic=False)
    stage = Stage(a_policy(champion=version))
    stage.backends["1"].function = lambda rows: Tensor(Datatype.FP32, (), sums(rows).values)

    outcomes = await asyncio.gather(*(stage.ask(inputs={"age": n, "income": 0}) for n in range(20)))

    assert [score_of(outcome) for outcome in outcomes] == [float(n) for n in range(20)]
    assert {len(call) for call in stage.backends["1"].calls} == {1}


async def test_a_request_that_is_refused_is_not_shown_to_the_shadow():
    stage = Stage(a_policy(shadow=a_version("4")))

    await stage.ask(inputs={"age": "x"})
    await stage.shadows.drain(1)

    assert stage.rows == []
    assert stage.backends["4"].calls == []


@in_virtual_time
async def test_features_that_only_the_shadow_wants_delay_no_caller():
    store = Stored({"income": 10, "visits": 1}, seconds=0.15)
    shadow = a_version("4", input_schema=STORED_SCHEMA, deterministic=False)
    stage = Stage(a_policy(champion=a_version("1"), shadow=shadow), store)
    inputs = {"age": 1, "income": 2}

    started = now()
    await stage.ask(inputs=inputs)
    spent = now() - started
    await stage.shadows.drain(1)

    assert spent == 0
    assert [row.score for row in stage.rows] == [3.0, 4.0]


async def test_a_forced_version_gets_the_stored_features_of_its_own():
    policy = a_policy(challenger=a_version("2", input_schema=STORED_SCHEMA), challenger_weight=1)
    stage = Stage(policy, Stored({"income": 10, "visits": 100}))

    assert score_of(await stage.ask(inputs={"age": 1}, forced_version="2")) == 111.0


async def test_without_any_cache_the_version_is_asked_every_time():
    stage = Stage(a_policy(), caches=False)

    outcomes = [await stage.ask(), await stage.ask()]

    assert [outcome.cache for outcome in outcomes] == [CacheResult.BYPASS] * 2


PRIVATE_SCHEMA = {
    "features": [
        {"name": "age", "dtype": "float32"},
        {"name": "income", "dtype": "float32", "source": "store", "private": True},
        {"name": "visits", "dtype": "float32", "source": "store", "default": 5},
    ],
    "tensors": [{"name": "input", "features": ["age", "income", "visits"]}],
}


async def test_inputs_are_logged_of_sampled_entities_as_they_were_used_and_without_the_private_ones():
    version = a_version("1", input_schema=PRIVATE_SCHEMA)
    store = Stored({"income": 10, "visits": 7})
    stage = Stage(a_policy(champion=version, input_sample_percent=50), store)
    entities = [f"customer-{number}" for number in range(40)]

    for entity in entities:
        await stage.ask(entity, inputs={"age": 1})
    store.features = {"income": 10}
    await stage.ask(next(entity for entity in entities if is_sampled("visits", entity, 50)), inputs={"age": 2})

    *rows, defaulted = stage.rows
    sampled = {entity for entity in entities if is_sampled("visits", entity, 50)}
    assert {row.entity_id for row in rows if row.inputs is not None} == sampled
    assert {row.inputs for row in rows} == {None, b'{"age":1,"visits":7}'}
    assert defaulted.inputs == b'{"age":2,"visits":5}'
    assert stage.telemetry.counts["input_samples_total", "visits", "stored"] == len(sampled) + 1


async def test_no_inputs_are_logged_unless_somebody_asks_for_it():
    stage = Stage(a_policy())

    await stage.ask()

    assert stage.rows[0].inputs is None


async def test_inputs_of_cache_hits_failures_and_fallbacks_are_logged_and_those_of_shadows_and_forced_calls_are_not():
    policy = a_policy(challenger=a_version("2"), challenger_weight=50, shadow=a_version("4"), input_sample_percent=100)
    stage = Stage(policy)
    champions, challengers = entity_in(50, 100), entity_in(0, 50)

    await stage.ask(champions)
    await stage.ask(champions)
    stage.backends["2"].error = BackendUnavailable("down")
    await stage.ask(challengers, inputs={"age": 1, "income": 1})
    stage.backends["1"].error = BackendUnavailable("down")
    await stage.ask(champions, inputs={"age": 2, "income": 2})
    await stage.ask(champions, forced_version="2")
    await stage.shadows.drain(1)

    logged = [(row.role, row.reason, row.status, row.cache_hit, row.inputs) for row in stage.rows]
    own = [one[2:] for one in logged if one[0] is not Role.SHADOW and one[1] is not Reason.FORCED]
    assert own == [
        (Status.OK, False, b'{"age":41.0,"income":2.0}'),
        (Status.OK, True, b'{"age":41.0,"income":2.0}'),
        (Status.FALLBACK, False, b'{"age":1,"income":1}'),
        (Status.UNAVAILABLE, False, b'{"age":2,"income":2}'),
    ]
    others = [one[-1] for one in logged if one[0] is Role.SHADOW or one[1] is Reason.FORCED]
    assert len(others) > 1
    assert set(others) == {None}


async def test_inputs_that_are_too_long_are_counted_and_the_answer_is_logged_all_the_same():
    schema = {
        "features": [
            {"name": "age", "dtype": "float32"},
            {"name": "note", "dtype": "string", "default": ""},
        ]
    }
    stage = Stage(a_policy(champion=a_version("1", input_schema=schema), input_sample_percent=100))

    outcome = await stage.ask(inputs={"age": 1, "note": "x" * 9_000})

    assert outcome.error is None
    assert [row.inputs for row in stage.rows] == [None]
    assert stage.telemetry.counts["input_samples_total", "visits", "too_large"] == 1


class Defective(KeptRows):
    def append(self, row: PredictionRow) -> bool:
        if row.entity_id == "unlucky":
            raise ValueError("a defect of the spool")
        return super().append(row)


async def test_a_defect_behind_one_answer_is_told_and_costs_no_other_row_of_the_same_call():
    stage = Stage(a_policy(champion=a_version("1", deterministic=False)), spool=Defective())
    stage.backends["1"].delay_seconds = 0.01
    answered: dict[str, Call | Exception] = {}
    entities = ["first", "second", "third", "unlucky", "fifth", "sixth"]

    stage.predictor.begin(
        [asked(PredictRequest(entity, INPUTS), partial(answered.__setitem__, entity)) for entity in entities]
    )
    async with asyncio.timeout(5):
        while len(answered) < len(entities):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)

    assert [len(call) for call in stage.backends["1"].calls] == [6]
    assert {entity for entity, found in answered.items() if isinstance(found, ValueError)} == {"unlucky"}
    assert [score_of(found) for found in answered.values() if isinstance(found, Call)] == [43.0] * 5


def a_defect(*_: Any) -> Any:
    raise ZeroDivisionError


class DefectiveSpan(MemorySpan):
    """A span that breaks its promise to raise nothing."""

    def tell(self, attributes: Attributes) -> None:
        a_defect(attributes)


class DefectiveTelemetry(MemoryTelemetry):
    def predicted(self, *labels: Any) -> None:
        a_defect(labels)


async def test_a_defect_of_spans_costs_neither_the_row_nor_the_answer():
    stage, tracer = Stage(a_policy()), MemoryTracer()

    with within(DefectiveSpan(tracer, "call", "server", tracer.place(None, sampled=True))):
        outcome = await stage.ask()

    assert score_of(outcome) == 43.0
    assert [row.prediction_id for row in stage.rows] == [outcome.prediction_id]


async def test_a_defect_of_the_shadow_pool_costs_neither_the_row_nor_the_answer():
    stage = Stage(a_policy(shadow=a_version("3")), shadows=0, on_drop=a_defect)

    outcome = await stage.ask()

    assert score_of(outcome) == 43.0
    assert [row.prediction_id for row in stage.rows] == [outcome.prediction_id]


async def test_a_defect_of_telemetry_costs_neither_the_row_nor_the_answer():
    stage = Stage(a_policy(), telemetry=DefectiveTelemetry())

    outcome = await stage.ask()

    assert score_of(outcome) == 43.0
    assert [row.prediction_id for row in stage.rows] == [outcome.prediction_id]


class HitsUncounted(MemoryTelemetry):
    def count(self, name: str, *labels: str, by: float = 1) -> None:
        if labels[-1:] == ("hit",):
            a_defect()
        super().count(name, *labels, by=by)


async def test_a_defect_at_counting_hits_costs_no_call_of_the_turn_its_answer():
    champion, challenger = a_version("1"), a_version("2", deterministic=False)
    policy = a_policy(champion=champion, challenger=challenger, challenger_weight=50, fallback=False)
    stage, answered = Stage(policy, telemetry=HitsUncounted()), dict[str, Call | Exception]()
    hit, other = entity_in(50, 100), entity_in(0, 50)
    await stage.ask(hit)

    stage.predictor.begin(
        [asked(PredictRequest(entity, INPUTS), partial(answered.__setitem__, entity)) for entity in (hit, other)]
    )
    async with asyncio.timeout(5):
        while answered.keys() != {hit, other}:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)

    assert [score_of(found) for found in answered.values() if isinstance(found, Call)] == [43.0, 43.0]
    assert [row.cache_hit for row in stage.rows] == [False, True, False]


async def test_callers_are_told_of_a_defect_of_what_their_ids_are_made_of():
    stage, answered = Stage(a_policy(), random_bytes=a_defect), list[Call | Exception]()

    stage.predictor.begin([asked(PredictRequest(entity, INPUTS), answered.append) for entity in ("one", "another")])

    assert [type(found) for found in answered] == [ZeroDivisionError, ZeroDivisionError]


def a_long_batch(*entities: str) -> list[Any]:
    members = [{"entity_id": entity, "inputs": INPUTS} for entity in entities]
    return parse_predict_batch(orjson.dumps({"entities": members}) + b" " * LONG_BYTES)


async def test_a_member_of_a_long_batch_is_assembled_beside_the_loop_and_means_the_same():
    stage = Stage(a_policy())
    (long,) = a_long_batch("customer-1")

    outcomes = [await stage.predictor.predict("visits", one) for one in (PredictRequest("customer-1", INPUTS), long)]

    assert (long.is_large(a_version()), long) == (True, PredictRequest("customer-1", INPUTS))
    assert [score_of(outcome) for outcome in outcomes] == [43.0, 43.0]


class Held:
    """Long requests that one version assembles when it is let go."""

    def __init__(self, version: str) -> None:
        self.go = threading.Event()
        self.assembling = 0
        held = self

        class HeldRequest(LongRequest):
            def assemble(self, by: ModelVersion, stored: Any) -> Any:
                if by.version == version:
                    held.assembling += 1
                    held.go.wait(10)
                return super().assemble(by, stored)

        self.request = partial(HeldRequest, inputs=INPUTS)

    async def until_assembling(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.assembling < count:  # noqa: ASYNC110 - it is in a thread
                await asyncio.sleep(0.002)


async def test_members_wait_for_a_thread_no_longer_than_for_their_answer():
    held, stage = Held("1"), Stage(a_policy())
    slow = [asyncio.create_task(stage.predictor.predict("visits", held.request(f"c{n}"))) for n in range(MAX_LARGE)]
    await held.until_assembling(MAX_LARGE)

    late = await stage.predictor.predict("visits", LongRequest("late", INPUTS), timeout_seconds=0.01)
    held.go.set()
    served = await asyncio.gather(*slow)

    assert isinstance(late.error, DeadlineExceeded)
    assert late.error.stage == "queue"
    assert [score_of(outcome) for outcome in served] == [43.0] * MAX_LARGE


async def test_a_call_ends_at_its_deadline_although_its_inputs_are_still_being_assembled():
    held, stage = Held("1"), Stage(a_policy())

    async with asyncio.timeout(5):
        late = await stage.predictor.predict("visits", held.request("late"), timeout_seconds=0.01)
    held.go.set()

    assert isinstance(late.error, DeadlineExceeded)
    assert late.error.stage == "queue"


@pytest.mark.deep
async def test_a_challenger_has_its_share_of_the_time_that_assembling_a_long_body_left():
    champion, challenger = (a_version(label, timeout_ms=3_000) for label in ("1", "2"))
    held, stage = Held("2"), Stage(a_policy(champion=champion, challenger=challenger, challenger_weight=100))
    waiting = asyncio.create_task(stage.predictor.predict("visits", held.request("long")))
    await held.until_assembling(1)

    await asyncio.sleep(1.3)  # of 3 s, of which a challenger has 1.2
    held.go.set()
    call = await waiting

    assert (call.role, call.error, call.failed) == (Role.CHALLENGER, None, None)
    assert stage.rows[0].latency_us < 1_200_000
    assert stage.rows[0].deadline_us < 1_700_000


async def test_a_call_whose_time_is_over_before_its_version_is_asked_is_no_evidence():
    held, stage = Held("2"), Stage(a_policy(challenger_weight=100))

    late = await stage.predictor.predict("visits", held.request("late"), timeout_seconds=0.05)
    held.go.set()

    assert isinstance(late.error, DeadlineExceeded)
    assert [(row.assigned_version_id, row.deadline_us) for row in stage.rows] == [(2, 1)]


async def test_a_cancelled_call_keeps_its_place_until_its_thread_is_done():
    held, stage = Held("1"), Stage(a_policy())
    gone = [asyncio.create_task(stage.predictor.predict("visits", held.request(f"c{n}"))) for n in range(MAX_LARGE)]
    await held.until_assembling(MAX_LARGE)

    for call in gone:
        call.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    early = await stage.predictor.predict("visits", LongRequest("early", INPUTS), timeout_seconds=0.05)
    held.go.set()
    later = await stage.predictor.predict("visits", LongRequest("later", INPUTS))

    assert isinstance(early.error, DeadlineExceeded)
    assert score_of(later) == 43.0


async def test_shadows_whose_inputs_take_long_to_assemble_delay_no_live_call():
    held, stage = Held("3"), Stage(a_policy(shadow=a_version("3")))
    for number in range(MAX_LARGE):
        await stage.predictor.predict("visits", held.request(f"c{number}"))
    for _ in range(3):  # until each shadow has asked for a thread
        await asyncio.sleep(0)
    await held.until_assembling(1)

    live = await stage.predictor.predict("visits", LongRequest("live", INPUTS))
    held.go.set()
    await stage.shadows.drain(5)

    assert score_of(live) == 43.0


async def test_a_shadow_is_asked_once_the_answers_of_the_turn_are_given():
    stage = Stage(a_policy(shadow=a_version("3")))
    called = stage.backends["3"].calls
    shadows: list[int] = []
    requests = [PredictRequest(entity, {"age": len(entity), "income": 1}) for entity in ("one", "another")]

    stage.predictor.begin([asked(request, lambda _: shadows.append(len(called))) for request in requests])
    async with asyncio.timeout(5):
        while len(shadows) < len(requests):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
    await stage.shadows.drain(5)

    assert shadows == [0, 0]
    assert [len(call) for call in called] == [2]
    assert Counter(row.role for row in stage.rows) == {Role.CHAMPION: 2, Role.SHADOW: 2}


async def test_what_has_ended_when_the_process_ends_is_written_and_answered_once():
    stage = Stage(a_policy())
    await stage.ask()
    answered: list[Call | Exception] = []

    stage.predictor.begin([asked(PredictRequest("customer-2", INPUTS), answered.append)])
    before = len(answered)
    stage.predictor.flush()
    after = len(answered)
    await asyncio.sleep(0)

    assert (before, after, len(answered)) == (0, 1, 1)
    assert [row.cache_hit for row in stage.rows] == [False, True]


async def test_a_defect_in_one_call_of_a_turn_costs_no_other_its_answer():
    class Broken(PredictRequest):
        def assemble(self, version: ModelVersion, stored: Any) -> Any:
            raise ZeroDivisionError

    stage = Stage(a_policy())
    answered: dict[str, Call | Exception] = {}
    kinds = {"first": PredictRequest, "broken": Broken, "last": PredictRequest}

    stage.predictor.begin(
        [asked(kind(name, INPUTS), partial(answered.__setitem__, name)) for name, kind in kinds.items()]
    )
    async with asyncio.timeout(5):
        while len(answered) < len(kinds):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)

    assert isinstance(answered["broken"], ZeroDivisionError)
    assert [score_of(found) for found in answered.values() if isinstance(found, Call)] == [43.0, 43.0]


async def test_a_defect_at_sending_one_versions_rows_leaves_no_call_of_the_turn_without_its_answer():
    champion, challenger = a_version("1", deterministic=False), a_version("2", deterministic=False)
    policy = a_policy(champion=champion, challenger=challenger, challenger_weight=50, fallback=False)
    stage, answered = Stage(policy), dict[str, list[Call | Exception]]()
    stage.defective.add("2")
    entities = {"challenger's": entity_in(0, 50), "champion's": entity_in(50, 100)}

    stage.predictor.begin(
        [
            asked(PredictRequest(entity, INPUTS), answered.setdefault(name, []).append)
            for name, entity in entities.items()
        ]
    )
    async with asyncio.timeout(5):
        while not all(answered.values()):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)

    (good,), (failed,) = answered["champion's"], answered["challenger's"]
    assert isinstance(good, Call)
    assert score_of(good) == 43.0
    assert isinstance(failed, Call)
    assert isinstance(failed.error, InternalFault)
    assert Counter(row.status for row in stage.rows) == {Status.OK: 1, Status.ERROR: 1}
