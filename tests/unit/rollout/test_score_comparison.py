"""Logged calls that are sent again: within a bound of time and of calls at once, and never a reason to fail."""

from collections.abc import Sequence

import numpy as np
import orjson
from builders import a_version_row, policy_rows
from virtual_time import in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.model_servers.connect import PROTOCOLS
from understudy.core.canary.score_agreement import Agreement, AgreementState
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.errors import BadAnswer, RegistryUnavailable
from understudy.ports.prediction_history import LoggedCall
from understudy.rollout.calls_again import CONCURRENCY
from understudy.rollout.score_comparison import ScoreComparison

NOW = 1.7e9


class History:
    """What was logged of 300 entities; the newest first."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away

    async def calls(self, version_ids: Sequence[int], since: float, until: float, at_most: int) -> Sequence[LoggedCall]:
        if self.is_away:
            raise RegistryUnavailable("Postgres did not find the answer within 2 s")
        return [
            LoggedCall(
                "", until - place, f"user-{place}", version_ids[0], orjson.dumps({"age": place}).decode(),
                f'{{"score":{place}}}', float(place), 1_000,
            )
            for place in range(min(300, at_most))
        ]  # fmt: skip

    async def shadow_scores(self, *_: float) -> Sequence[tuple[float, float]]:
        if self.is_away:
            raise RegistryUnavailable("Postgres did not find the answer within 2 s")
        return []


def the_age(rows: Sequence[Row]) -> Tensor:
    """Answer each row with its one input."""
    ages = np.frombuffer(b"".join(bytes(row[0]) for row in rows), "<f4")
    return Tensor(Datatype.FP32, (len(rows),), ages)


async def compared(backend: MemoryBackend, history: History | None = None) -> Agreement:
    features = {"features": [{"name": "age", "dtype": "float32"}]}
    versions = [a_version_row(label, input_schema=features, timeout_ms=2_000) for label in ("1", "2")]
    policies = MemoryPolicySource({"models": {"visits": policy_rows(versions=versions)}, "keys": []})
    comparison = ScoreComparison(policies, lambda _: backend, PROTOCOLS, history or History())
    found = await comparison.compare("visits", "1", "2", NOW)
    assert found is not None
    return found


async def test_the_newest_200_entities_are_sent_a_few_at_once_and_keep_their_order():
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
