"""Logged calls that are sent again: within a bound of time and of calls at once, and never a reason to fail."""

from collections.abc import Sequence

import numpy as np
import orjson
import pytest
from builders import a_version_row, policy_rows
from virtual_time import in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.model_servers.connect import PROTOCOLS
from understudy.core.canary.scores.score_agreement import Agreement, AgreementState
from understudy.core.routing.policy import Role
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import WINDOW_SECONDS, Window, WindowKey
from understudy.errors import BadAnswer, RegistryUnavailable
from understudy.ports.prediction_log.prediction_history import Draw, LoggedCall
from understudy.rollout.warm_up.calls_again import CONCURRENCY
from understudy.rollout.warm_up.score_comparison import ScoreComparison

NOW = 1.7e9


class History:
    """What was logged of 300 entities."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.drawn: list[Draw] = []

    async def drawn_calls(self, version_id: int, draw: Draw) -> Sequence[LoggedCall]:
        self.drawn.append(draw)
        if self.is_away:
            raise RegistryUnavailable("Postgres did not find the answer within 2 s")
        return [
            LoggedCall(
                "", draw.until - place, f"user-{place}", version_id, orjson.dumps({"age": place}).decode(),
                f'{{"score":{place}}}', float(place), 1_000,
            )
            for place in range(min(300, draw.entities))
        ]  # fmt: skip

    async def shadow_scores(self, champion_id: int, shadow_id: int, draw: Draw) -> Sequence[tuple[float, float]]:
        if self.is_away:
            raise RegistryUnavailable("Postgres did not find the answer within 2 s")
        return []


def the_age(rows: Sequence[Row]) -> Tensor:
    """Answer each row with its one input."""
    ages = np.frombuffer(b"".join(bytes(row[0]) for row in rows), "<f4")
    return Tensor(Datatype.FP32, (len(rows),), ages)


async def compared(
    backend: MemoryBackend, history: History | None = None, windows: MemoryPredictionStore | None = None
) -> Agreement:
    features = {"features": [{"name": "age", "dtype": "float32"}]}
    versions = [a_version_row(label, input_schema=features, timeout_ms=2_000) for label in ("1", "2")]
    policies = MemoryPolicySource({"models": {"visits": policy_rows(versions=versions)}, "keys": []})
    comparison = ScoreComparison(
        policies, lambda _: backend, PROTOCOLS, history or History(), windows or MemoryPredictionStore()
    )
    found = await comparison.compare("visits", "1", "2", NOW)
    assert found is not None
    return found


async def test_200_entities_are_sent_a_few_at_once_and_keep_their_order():
    backend = MemoryBackend(the_age)
    most = 0

    def counted(rows: Sequence[Row]) -> Tensor:
        nonlocal most
        most = max(most, backend.in_flight + 1)
        return the_age(rows)

    backend.function = counted
    found = await compared(backend)

    assert (found.state, len(backend.calls)) == (AgreementState.ALIKE, 200)
    assert list(found.pairs.champion) == list(found.pairs.challenger) == list(range(200))
    assert most <= CONCURRENCY


@in_virtual_time
async def test_a_slow_version_is_asked_for_four_seconds_and_not_compared():
    backend = MemoryBackend(the_age, delay_seconds=0.9)

    found = await compared(backend)

    assert found.state is AgreementState.UNKNOWN
    assert "168 calls were not answered within 4 s" in found.words


@in_virtual_time
async def test_a_version_that_hangs_ends_no_rollout_and_is_not_compared():
    found = await compared(MemoryBackend(the_age, delay_seconds=1e6))

    assert found.state is AgreementState.UNKNOWN
    assert "16 failed" in found.words or "not answered within 4 s" in found.words


async def test_a_version_that_fails_the_calls_is_not_compared_and_its_own_words_are_not_told():
    problem = BadAnswer("the model server refused the call with INVALID_ARGUMENT")
    problem.said = "age 17 of person-4 is too young"

    found = await compared(MemoryBackend(the_age, error=problem))

    assert found.state is AgreementState.UNKNOWN
    assert "200 failed, the first with: the model server refused the call with INVALID_ARGUMENT" in found.words
    assert "person-4" not in found.words


async def test_a_log_that_does_not_answer_in_time_is_no_reason_to_wait():
    backend = MemoryBackend(the_age)

    found = await compared(backend, History(is_away=True))

    assert found.state is AgreementState.UNKNOWN
    assert found.words.endswith("Postgres did not find the answer within 2 s")
    assert backend.calls == []


def of_last_day(scores: Sequence[float], role: Role, *, version_id: int, seconds_ago: float) -> MemoryPredictionStore:
    windows = MemoryPredictionStore()
    start = int((NOW - seconds_ago) // WINDOW_SECONDS) * WINDOW_SECONDS
    key = WindowKey("here", 0, version_id, role, 0, 1, start)
    windows.windows[key] = Window(key, scores=Histogram.of(scores))
    return windows


@pytest.mark.parametrize("seconds_ago", [60, 1_500, 22 * 3_600 + 60, 22 * 3_600 + 1_500])
async def test_calls_that_are_all_alike_for_the_champion_are_not_compared(seconds_ago):
    backend, usual = MemoryBackend(the_age), list(range(0, 9_000, 10))

    found = await compared(backend, windows=of_last_day(usual, Role.CHAMPION, version_id=1, seconds_ago=seconds_ago))

    assert found.state is AgreementState.UNKNOWN
    assert found.words.startswith(
        "its scores were not compared: the middle half of the champion's scores of 200 logged calls that were sent "
        "again spreads over "
    )


@pytest.mark.parametrize(
    ("count", "role", "version_id", "seconds_ago"),
    [
        (99, Role.CHAMPION, 1, 60),
        (900, Role.SHADOW, 1, 60),
        (900, Role.CHAMPION, 2, 60),
        (900, Role.CHAMPION, 1, 23.5 * 3_600),
    ],
    ids=["too few", "a shadow's", "of another version", "of the day before"],
)
async def test_what_says_nothing_of_the_champions_day_keeps_no_pairs_from_being_compared(
    count, role, version_id, seconds_ago
):
    usual = of_last_day([10.0 * place for place in range(count)], role, version_id=version_id, seconds_ago=seconds_ago)

    found = await compared(MemoryBackend(the_age), windows=usual)

    assert found.state is AgreementState.ALIKE


async def test_no_caller_can_know_which_entities_are_drawn():
    history = History()

    await compared(MemoryBackend(the_age), history)
    await compared(MemoryBackend(the_age), history)

    one, other = history.drawn
    assert one.key != other.key
    assert (one.since, one.until) == (NOW - 7 * 86_400, NOW)
