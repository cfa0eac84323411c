"""The in-memory twin of the tables ``WarmUpRequest`` and ``WarmUpAnswer``: one object is both sides' port."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from understudy.core.rollout.proxy_warm_up import LiveProxy, ProxyAnswer, is_possible
from understudy.errors import RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.warm_up import NewWarmUp, WarmUpAsked


class MemoryWarmUps:
    """Implements ``ports.WarmUpRequests`` and ``ports.WarmUpInbox``.

    ``live`` may be set at any time, ``None`` for reports that are kept locked; ``logged`` has inputs by prediction id;
    ``on_ask`` is what a notification would be.

    Args:
        model_name: Of all versions.
        now: The clock that deadlines go by.
    """

    def __init__(self, model_name: str, now: Callable[[], float]) -> None:
        self.live: Sequence[LiveProxy] | None = ()
        self.logged: dict[str, str] = {}
        self.on_ask: list[Callable[[], None]] = []
        self.asked: list[NewWarmUp] = []
        self.available = True
        self._model_name = model_name
        self._now = now
        self._deadlines: list[float] = []
        self._answers: dict[int, dict[str, ProxyAnswer]] = {}

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        """Share nothing."""
        yield

    async def live_proxies(self) -> Sequence[LiveProxy] | None:
        self._answer_or_fail()
        return self.live

    async def ask(self, new: NewWarmUp, *, epoch: Epoch | None = None) -> int:  # noqa: ARG002 - a twin has one leader
        self._answer_or_fail()
        self.asked.append(new)
        self._deadlines.append(self._now() + new.seconds)
        request_id = len(self.asked)
        self._answers[request_id] = {}
        for wake in self.on_ask:
            wake()
        return request_id

    async def count_answers(self, request_id: int) -> int:
        self._answer_or_fail()
        return len(self._answers[request_id])

    async def answers(self, request_id: int) -> Mapping[str, ProxyAnswer | None]:
        self._answer_or_fail()
        new = self.asked[request_id - 1]
        bounds = (new.example_calls, len(new.logged), new.seconds)
        found = self._answers[request_id].items()
        return {instance: answer if is_possible(answer, *bounds) else None for instance, answer in found}

    async def open(self, instance: str, at_most: int) -> Sequence[WarmUpAsked]:
        self._answer_or_fail()
        found = []
        for request_id, (new, deadline) in enumerate(zip(self.asked, self._deadlines, strict=True), start=1):
            left = deadline - self._now()
            if left > 0 and instance in new.instances and instance not in self._answers[request_id]:
                asked = (new.version_id, new.champion_id, new.example_calls, len(new.logged), left)
                found.append(WarmUpAsked(request_id, self._model_name, *asked))
        return found[:at_most]

    async def inputs(self, request_id: int) -> Mapping[int, str]:
        self._answer_or_fail()
        known = enumerate(self.asked[request_id - 1].logged)
        return {place: self.logged[call.prediction_id] for place, call in known if call.prediction_id in self.logged}

    async def answer(self, request_id: int, instance: str, answer: ProxyAnswer) -> None:
        self._answer_or_fail()
        if instance not in self.asked[request_id - 1].instances or self._deadlines[request_id - 1] <= self._now():
            raise RegistryUnavailable(f"{instance} was asked for no such answer, or it comes too late")
        self._answers[request_id][instance] = answer

    def _answer_or_fail(self) -> None:
        if not self.available:
            raise RegistryUnavailable("the registry is switched off")
