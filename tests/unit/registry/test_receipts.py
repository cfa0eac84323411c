"""Why a call got its answer: the search of an entity's calls ends by its number, its end or its time."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import pytest

from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.ports.prediction_log.receipts import EntityAsked, Receipt
from understudy.registry.receipts import MAX_CALLS, SEARCH_SECONDS, SLICES_SECONDS, calls_of_entity, explain_prediction

NOW = 1_795_000_800.0
ID = "019a0000-0000-7000-8000-000000000001"


def a_receipt(at: float, **changes: Any) -> Receipt:
    plain = Receipt(
        ID, at, "churn", "6", "6", "u-1", "champion", "bucket", "ok", None, 0.8, None, 9_000, 37, 4, None, False, ()
    )
    return plain._replace(**changes)


class Log:
    """A log whose questions take time on a clock of its own."""

    def __init__(self, found: Sequence[Receipt] = (), seconds: float = 0.0) -> None:
        self.found, self.seconds, self.now = found, seconds, 0.0
        self.asked: list[EntityAsked] = []

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def of_prediction(self, _prediction_id: str, _at: float) -> Sequence[Receipt]:
        return self.found

    async def of_entity(self, asked: EntityAsked, timeout_seconds: float) -> Sequence[Receipt]:
        self.asked.append(asked)
        self.now += min(self.seconds, timeout_seconds)
        if self.seconds > timeout_seconds:
            raise RegistryUnavailable("too slow")
        return [one for one in self.found if asked.since <= one.predicted_at < asked.until][: asked.at_most]

    @property
    def clock(self) -> Callable[[], float]:
        return lambda: self.now


async def test_calls_are_looked_for_stretch_by_stretch_without_a_gap_up_to_the_end():
    log = Log([a_receipt(NOW - age) for age in (1, 59, 60, 7_199, 90_000)])

    found = await calls_of_entity(log, "churn", "u-1", NOW, log.clock)

    assert [NOW - one.predicted_at for one in found.calls] == [1, 59, 60, 7_199, 90_000]
    assert [one.until for one in log.asked[1:]] == [one.since for one in log.asked[:-1]]
    assert (found.since, found.is_out_of_time) == (NOW - SLICES_SECONDS[-1], False)


async def test_the_search_ends_with_enough_calls_and_says_how_far_it_came():
    log = Log([a_receipt(NOW - age) for age in range(MAX_CALLS + 20)])

    found = await calls_of_entity(log, "churn", "u-1", NOW, log.clock)

    assert (len(found.calls), len(log.asked)) == (MAX_CALLS, 1)
    assert (NOW - found.since, found.is_out_of_time) == (MAX_CALLS - 1, False)


async def test_a_slow_log_ends_the_search_in_time_with_what_was_found():
    log = Log([a_receipt(NOW - age) for age in (1, 100, 5_000)], seconds=SEARCH_SECONDS * 0.4)

    found = await calls_of_entity(log, "churn", "u-1", NOW, log.clock)

    assert log.now <= SEARCH_SECONDS
    assert [NOW - one.predicted_at for one in found.calls] == [1, 100]
    assert (NOW - found.since, found.is_out_of_time) == (SLICES_SECONDS[1], True)


async def test_a_log_that_does_not_answer_at_all_is_said_so():
    log = Log(seconds=2 * SEARCH_SECONDS)

    with pytest.raises(RegistryUnavailable):
        await calls_of_entity(log, "churn", "u-1", NOW, log.clock)


NO_REGISTRY: Any = None
"""It is asked for nothing."""


@pytest.mark.parametrize(("asked", "words"), [("customer-42", "no id of a prediction"), (ID, "no such prediction")])
async def test_what_is_no_prediction_is_told_from_one_that_is_not_there(asked, words):
    with pytest.raises(NotRegistered, match=words):
        await explain_prediction(NO_REGISTRY, Log(), asked)
