"""Asks live proxies to call a version whose model servers only they reach, through Postgres, and waits for them."""

import asyncio
from collections.abc import Mapping, Sequence

from understudy.core.rollout.proxy_warm_up import (
    ProxyAnswer,
    are_loopback,
    judge_proxies,
    machine_of,
    one_of_each_machine,
)
from understudy.core.rollout.state import WarmUpResult
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.warm_up import LoggedId, NewWarmUp, WarmUpRequests

ANSWER_SECONDS = 7.0
"""With the two seconds after which this process knows that it reaches no server, less than a warm-up has in a tick."""
REPLAY_SECONDS = 6.0
POLL_SECONDS = 0.1


class ProxyWarmUp:
    """Warm-ups by live proxies, of which each may have a model server of its own: all of them must find it ready.

    Args:
        requests: Where they are asked.
        machine: This one's name, as proxies on it give it.
    """

    def __init__(self, requests: WarmUpRequests, machine: str) -> None:
        self._requests = requests
        self._machine = machine

    async def have_their_own(self, version: ModelVersion) -> bool:
        """Whether a live proxy of another machine has model servers of its own: those at its own loopback address."""
        if not are_loopback(version.endpoints):
            return False
        live = await self._requests.live_proxies()
        return any(machine_of(proxy.instance) != self._machine for proxy in live or ())

    async def warm_up(
        self, version: ModelVersion, example_calls: int, *, epoch: Epoch | None = None
    ) -> WarmUpResult | None:
        """Return what all live proxies found together; ``None`` without any.

        Raises:
            RegistryUnavailable: They cannot be asked.
            LeadershipLost: Another monitor leads.
        """
        async with self._requests.shared_session():
            live = await self._requests.live_proxies()
            if live is None:
                return WarmUpResult(passed=False, detail=f"only proxies can reach its model servers; {HIDDEN_WORDS}")
            if not live:
                return None
            able = [proxy.instance for proxy in live if proxy.answers_warm_ups]
            new = NewWarmUp(version.id, able, ANSWER_SECONDS, example_calls)
            answers = await self._answers(new, epoch) if able else {}
        return judge_proxies(live, answers, ANSWER_SECONDS)

    async def replay(
        self,
        version: ModelVersion,
        champion_id: int,
        logged: Sequence[LoggedId],
        instances: Sequence[str],
        *,
        epoch: Epoch | None = None,
    ) -> Mapping[str, ProxyAnswer | None]:
        """Return the version's scores of logged calls that a proxy of each machine has sent again, by proxy.

        Raises:
            RegistryUnavailable: They cannot be asked.
            LeadershipLost: Another monitor leads.
        """
        chosen = one_of_each_machine(instances)
        new = NewWarmUp(version.id, chosen, REPLAY_SECONDS, champion_id=champion_id, logged=logged)
        async with self._requests.shared_session():
            return await self._answers(new, epoch)

    async def _answers(self, new: NewWarmUp, epoch: Epoch | None) -> Mapping[str, ProxyAnswer | None]:
        request_id = await self._requests.ask(new, epoch=epoch)
        clock = asyncio.get_running_loop().time
        deadline = clock() + new.seconds
        while True:
            count = await self._requests.count_answers(request_id)
            if count >= len(new.instances) or clock() >= deadline:
                return await self._requests.answers(request_id)
            await asyncio.sleep(POLL_SECONDS)
