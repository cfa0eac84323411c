"""A rollback that is done is told of, whatever becomes of the questions after it."""

from collections.abc import Mapping
from typing import Any

import pytest

from understudy.adapters.http.control_plane import ControlPlaneClient
from understudy.adapters.http.rollbacks import HttpRollbacks
from understudy.errors import (
    ControlPlaneAway,
    NotRegistered,
    Overloaded,
    QuotaExceeded,
    RegistryUnavailable,
    ScopeMissing,
    Unauthenticated,
    UnderstudyError,
    UnknownRoute,
)
from understudy.ports.registry.registry import Actor
from understudy.rollout.propagation import wait_for_drain, wait_for_propagation

ME = Actor("dana", "cli", "a test")
TOLD = {
    "model_name": "visits", "did": "weight 0", "generation": 7, "champion": "6", "challenger": "7", "rollout_id": None,
    "changed": True, "in_flight": {"6": 4}, "versions_without_calls": ["7"], "dry_run": False,
    "confirmed": {"proxies": 2, "proxies_on_generation": 2, "seconds": 0.2, "silent": {"count": 0, "first": []}},
}  # fmt: skip
REACH = {"generation": 7, "proxies": 2, "proxies_on_generation": 2, "proxies_hidden": False, "in_flight": {"7": 3}}


class Proxy(ControlPlaneClient):
    """Rolls back, and then answers questions one after the other; the last one again and again."""

    def __init__(self, *answers: Mapping[str, Any] | UnderstudyError) -> None:
        super().__init__("http://127.0.0.1:1", None)
        self._answers = list(answers)

    async def send(self, *_: Any, **__: Any) -> Mapping[str, Any]:
        return {"rollback": TOLD}

    async def get(self, *_: Any, **__: Any) -> Mapping[str, Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, UnderstudyError):
            raise answer
        return {"reach": answer}


@pytest.mark.parametrize(
    "problem",
    [
        *(ScopeMissing("read"), UnknownRoute("none"), Unauthenticated("the token has expired"), Overloaded("full")),
        *(QuotaExceeded("key k1", retry_after_seconds=1), ControlPlaneAway("no answer"), RegistryUnavailable()),
    ],
)
async def test_what_the_rollback_was_told_holds_while_nothing_newer_can_be_read(problem):
    async with Proxy(problem) as proxy:
        rollbacks = HttpRollbacks(proxy)
        done = await rollbacks.roll_back("visits", ME)
        confirmed, _ = await wait_for_propagation(rollbacks, "visits", done.generation, 0)
        drained = await wait_for_drain(rollbacks, "visits", done.without_calls, 0)

    assert (done.changed, confirmed.proxies, confirmed.proxies_on_generation, drained.left) == (True, 2, 2, 0)


async def test_the_last_that_was_read_holds():
    async with Proxy(REACH, Overloaded("full")) as proxy:
        rollbacks = HttpRollbacks(proxy)
        await rollbacks.roll_back("visits", ME)
        calls = [(await rollbacks.reach("visits")).in_flight for _ in range(2)]

    assert calls[0] == calls[1]
    assert sum(calls[0].values()) == 3


async def test_what_a_later_release_says_of_a_proxy_is_passed_over():
    silent = {"count": 1, "first": [{"instance": "a:7", "seconds": 31.5, "zone": "b"}], "zones": ["b"]}
    async with Proxy({**REACH, "silent": silent}) as proxy:
        stale = (await HttpRollbacks(proxy).reach("visits")).stale

    assert (stale.count, list(stale.first)) == (1, [("a:7", 31.5)])


async def test_a_policy_that_is_gone_is_told():
    async with Proxy(NotRegistered("no policy")) as proxy:
        rollbacks = HttpRollbacks(proxy)
        await rollbacks.roll_back("visits", ME)
        with pytest.raises(NotRegistered):
            await rollbacks.reach("visits")


async def test_what_the_proxy_refuses_before_a_rollback_is_told():
    async with Proxy(ScopeMissing("read")) as proxy:
        with pytest.raises(ScopeMissing):
            await HttpRollbacks(proxy).reach("visits")
