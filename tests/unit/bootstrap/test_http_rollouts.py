"""Who waits for a rollout over HTTP goes on while the proxy restarts."""

from collections.abc import Mapping
from typing import Any

import pytest

from understudy.adapters.http.control_plane import ControlPlaneClient
from understudy.bootstrap.http_rollouts import HttpRollouts
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import new_rollout_state
from understudy.errors import (
    ControlPlaneAway,
    DeadlineExceeded,
    Overloaded,
    PolicyNotLoaded,
    QuotaExceeded,
    Unauthenticated,
    UnderstudyError,
)
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView

STATE = new_rollout_state(
    1, "churn", RolloutPlan((Step(10, 300, 1_000), Step(100, 0, 0))), PolicySeen("6", "7", 0, 4, 1), 1_000.0
)
SEEN = RolloutView(RolloutRecord(5, STATE, 3, 11, 12, "salt", 9_000, None, "dana", None, None), None, {}, 1, 1, {}, 0.0)


class Refusing(ControlPlaneClient):
    """A proxy that answers every question with one problem."""

    def __init__(self, problem: UnderstudyError) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self._problem = problem

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        raise self._problem


@pytest.mark.parametrize("problem", [PolicyNotLoaded(), Overloaded(), DeadlineExceeded("control"), QuotaExceeded()])
async def test_a_refusal_that_passes_is_an_absence(problem):
    async with Refusing(problem) as client:
        with pytest.raises(ControlPlaneAway) as away:
            await HttpRollouts(client).again(SEEN)

    assert away.value.detail == problem.detail


async def test_a_key_that_is_good_no_more_ends_the_wait():
    async with Refusing(Unauthenticated("the key has expired")) as client:
        with pytest.raises(Unauthenticated):
            await HttpRollouts(client).again(SEEN)
