"""What a proxy does of warm-ups that it is asked for: calls of its own to a version's model servers, beside callers'.

They go over connections of their own, so that nothing of them is logged, cached or counted, and no replica that callers
use is judged by them.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from understudy.core.rollout.proxy_warm_up import ProxyAnswer, clipped
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable, RegistryError
from understudy.ports.rollout.warm_up import WarmUpAsked, WarmUpInbox
from understudy.ports.upstream.model_backend import ConnectBackend, ModelBackend
from understudy.rollout.warm_up.calls_again import SENDING_SECONDS, row_of, send_again
from understudy.rollout.warm_up.warm_up import make_example_calls

_log = structlog.get_logger(__name__)

MAX_AT_ONCE = 4
"""Warm-ups; each makes one call at a time, or eight of those that are sent again."""
MAX_OPEN = 64
"""Requests that are read at a time."""
MAX_KNOWN = 1_024
"""Requests that are remembered as begun; none is open for longer than a minute."""
PAUSE_SECONDS = 1.0
"""A burst of changes of policies costs one look in this time, as it costs one report."""
MARGIN_SECONDS = 0.5
"""Of the time for an answer, for its way to Postgres."""
UNKNOWN_VERSION = "its row cannot be used: see understudy doctor"


class WarmUpAnswerer:
    """Answers requests in the background, from :meth:`wake` on.

    Args:
        inbox: Where they are.
        instance: This process's name in ``ProxyInstance``.
        snapshot: The current policies.
        connect: Opens model servers.
    """

    def __init__(
        self,
        inbox: WarmUpInbox,
        instance: str,
        snapshot: Callable[[], PolicySnapshot | None],
        connect: ConnectBackend,
    ) -> None:
        self._inbox = inbox
        self._instance = instance
        self._snapshot = snapshot
        self._connect = connect
        self._woken = asyncio.Event()
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._begun: deque[int] = deque(maxlen=MAX_KNOWN)

    def wake(self) -> None:
        """Look for requests soon: one comes as a change of its version."""
        self._woken.set()

    async def run(self) -> None:
        """Answer until cancelled; then what is under way is broken off."""
        async with asyncio.TaskGroup() as answering:
            while True:
                await self._woken.wait()
                self._woken.clear()
                try:
                    found = await self._inbox.open(self._instance, MAX_OPEN)
                except RegistryError as problem:  # the monitor asks again, which wakes this up
                    _log.warning("warm_up.not_read", problem=str(problem))
                    found = ()
                for asked in found:
                    if asked.id not in self._begun:
                        self._begun.append(asked.id)
                        answering.create_task(self._answer(asked))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _answer(self, asked: WarmUpAsked) -> None:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + asked.left_seconds - MARGIN_SECONDS
        async with self._turns:
            left_seconds = ends_at - clock()
            if left_seconds <= 0:
                return
            version = self._version(asked, asked.version_id)
            try:
                answer = await self._found(asked, version, left_seconds)
                await self._inbox.answer(asked.id, self._instance, answer)
            except Exception as problem:  # noqa: BLE001 - costs this answer only, and the other side names the proxy
                _log.warning("warm_up.not_answered", request=asked.id, problem=f"{type(problem).__name__}: {problem}")
            else:
                label = f"id {asked.version_id}" if version is None else version.version
                _log.info("warm_up.answered", model=asked.model_name, version=label, problem=answer.problem)

    async def _found(self, asked: WarmUpAsked, version: ModelVersion | None, left_seconds: float) -> ProxyAnswer:
        if version is None:
            return ProxyAnswer(problem=UNKNOWN_VERSION)
        try:
            backend = self._connect(version)
        except BackendUnavailable as problem:
            return ProxyAnswer(problem=clipped(str(problem)))
        try:
            async with asyncio.timeout(left_seconds):
                if asked.champion_id is None:
                    return await self._called(asked, version, backend)
                return await self._sent_again(asked, version, backend, min(left_seconds, SENDING_SECONDS))
        except TimeoutError:
            return ProxyAnswer(problem=f"it took longer than {left_seconds:.1f} s")
        finally:
            await backend.close()

    async def _called(self, asked: WarmUpAsked, version: ModelVersion, backend: ModelBackend) -> ProxyAnswer:
        made = await make_example_calls(version, backend, asked.example_calls)
        return ProxyAnswer(made.answered, made.seconds, clipped(made.problem))

    async def _sent_again(
        self, asked: WarmUpAsked, version: ModelVersion, backend: ModelBackend, seconds: float
    ) -> ProxyAnswer:
        champion = self._version(asked, asked.champion_id)
        if champion is None:
            return ProxyAnswer(problem=UNKNOWN_VERSION)
        inputs = await self._inbox.inputs(asked.id)
        found = [inputs.get(place) for place in range(asked.logged_calls)]
        rows = [None if text is None else row_of(text, champion, version) for text in found]
        sent = await send_again(version, backend, rows, seconds)
        return ProxyAnswer(problem=clipped(sent.problem), scores=sent.scores)

    def _version(self, asked: WarmUpAsked, version_id: int | None) -> ModelVersion | None:
        snapshot = self._snapshot()
        policy = None if snapshot is None else snapshot.policies.get(asked.model_name)
        known = () if policy is None else policy.versions.values()
        return next((version for version in known if version.id == version_id), None)
